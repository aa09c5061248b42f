"""Compare what ``evaluate_deployment`` says a deployment earns with what it truly earns, in simulated worlds.

Results are appended to a file of JSON lines, one per world; worlds that are in it are not measured again.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import sys
import traceback
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path

for threads in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):  # processes use the cores
    os.environ.setdefault(threads, "1")
sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from statistical.headline import (  # noqa: E402
    GENERATORS,
    ChoiceSummary,
    Summary,
    choice_summarized,
    measured,
    summarized,
)


def main() -> None:
    """Measure the worlds that are missing, print both tables, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--worlds", type=int, default=60, help="worlds per family")
    parser.add_argument("--generator", default="main", choices=list(GENERATORS), help="what makes the worlds")
    parser.add_argument("--families", nargs="+", metavar="FAMILY", help="default: all of the generator")
    parser.add_argument("--first-seed", type=int, default=0, help="seed of each family's first world")
    parser.add_argument("--repetitions", type=int, default=300, help="simulated deployments per world")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes")
    parser.add_argument("--json", type=Path, required=True, help="file of results; it is continued if it exists")
    parser.add_argument("--page", type=Path, help="write both tables to this Markdown page")
    arguments = parser.parse_args()
    families = GENERATORS[arguments.generator].FAMILIES
    arguments.families = arguments.families or list(families)
    if unknown := sorted(set(arguments.families) - set(families)):
        parser.error(f"unknown families: {', '.join(unknown)}. Choose from: {', '.join(families)}.")
    seeds = range(arguments.first_seed, arguments.first_seed + arguments.worlds)
    wanted = [(name, seed) for seed in seeds for name in arguments.families]
    records = finished(arguments.json, arguments.generator)
    failed = measure([key for key in wanted if key not in records], arguments, records)
    by_family = {
        name: [records[name, seed] for seed in seeds if (name, seed) in records] for name in arguments.families
    }
    by_family = {name: found for name, found in by_family.items() if found}
    estimates = estimate_table({name: summarized(found) for name, found in by_family.items()})
    choices = choice_table({name: choice_summarized(found) for name, found in by_family.items()})
    print(f"{estimates}\n\n{choices}")
    if arguments.page is not None:
        arguments.page.write_text(page(estimates, choices, arguments, by_family), encoding="utf-8")
    if failed:
        sys.exit(f"{failed} worlds failed; run the command again to retry them.")


def finished(path: Path, generator: str) -> dict[tuple[str, int], dict]:
    """The records of a file by family and seed, of worlds of one generator; a last line that was cut off is removed."""
    if not path.exists():
        return {}
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    whole = [line for line in lines if line.endswith("\n")]
    if len(whole) < len(lines):
        path.write_text("".join(whole), encoding="utf-8")
    found = [json.loads(line) for line in whole]
    return {(each["family"], each["seed"]): each for each in found if each.get("generator", "main") == generator}


def measure(missing: list[tuple[str, int]], arguments: argparse.Namespace, records: dict) -> int:
    """Measure worlds in processes of one core each; returns how many failed."""
    if not missing:
        return 0
    context = multiprocessing.get_context("spawn")
    cores = context.Queue()
    available = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else [None]
    for job in range(arguments.jobs):
        cores.put(available[job % len(available)])
    failed = 0
    with (
        ProcessPoolExecutor(arguments.jobs, mp_context=context, initializer=keep_to_a_core, initargs=(cores,)) as pool,
        arguments.json.open("a", encoding="utf-8") as file,
    ):
        settings = {"switching": True, "repetitions": arguments.repetitions, "generator": arguments.generator}
        running = {pool.submit(measured, name, seed, **settings): (name, seed) for name, seed in missing}
        for done, future in enumerate(as_completed(running), 1):
            name, seed = running[future]
            try:
                record = future.result()
            except Exception:  # one world must not end a run of hours; it is measured again the next time
                failed += 1
                print(f"{name}, seed {seed}:\n{traceback.format_exc()}", file=sys.stderr)
                continue
            records[name, seed] = record
            file.write(json.dumps(record) + "\n")
            file.flush()
            print(f"{done} of {len(missing)}: {name}, seed {seed}, {record['seconds']:.1f} s", file=sys.stderr)
    return failed


def keep_to_a_core(cores) -> None:
    """Keep this process, and the threads that it would start, to one core."""
    core = cores.get()
    if core is not None:
        os.sched_setaffinity(0, {core})


def table(header: list[str], rows: list[list[str]]) -> str:
    """A Markdown table."""
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (header, ["---"] * len(header), *rows))


def estimate_table(found: dict[str, Summary]) -> str:
    """Estimates against the truth, by family."""
    header = ["family", "worlds", "refused", "covered, same states", "covered, fresh states", "bias", "standard error",
              "bias / se", "width", "claimed gain", "true gain", "gain covered", "false claims", "seconds"]  # fmt: skip
    rows = []
    for name, each in found.items():
        share = share_of(each.numbers)
        rows.append([
            name, f"{each.worlds}", f"{each.worlds - each.numbers}", share(each.covered), share(each.covered_fresh),
            f"{each.bias:+.4f} ± {each.bias_error:.4f}", f"{each.std_error:.4f}",
            f"{abs(each.bias) / each.std_error if each.std_error else 0:.2f}", f"{each.width:.4f}",
            f"{each.claimed_gain:+.4f}", f"{each.true_gain:+.4f}", share(each.gain_covered), share(each.false_claims),
            f"{each.seconds:.1f}",
        ])  # fmt: skip
    return table(header, rows)


def choice_table(found: dict[str, ChoiceSummary]) -> str:
    """True values of the default, of switching always and of switching never, by family."""
    header = ["family", "worlds", "switches", "default", "always switching", "single policy", "knows the state",
              "regret", "worse than single", "worse than switching", "0.01 below", "standard errors"]  # fmt: skip
    rows = []
    for name, each in found.items():
        share = share_of(each.worlds)
        values = (each.default, each.switching, each.single, each.oracle, each.regret)
        worse = [share(each.worse_than_single), share(each.worse_than_switching)]
        most = [f"{each.lost}", f"{each.lost_errors:.1f}" if each.lost else "-"]
        shown = [f"{round(value, 4) + 0.0:.4f}" for value in values]
        rows.append([name, f"{each.worlds}", share(each.switched), *shown, *worse, *most])
    return table(header, rows)


def share_of(total: int):
    """Formats counts as shares of ``total``."""
    return lambda count: f"{count / total:.0%}" if total else "-"


def page(estimates: str, choices: str, arguments: argparse.Namespace, by_family: dict) -> str:
    """The page with both tables."""
    errors = [each.truth_error for each in map(summarized, by_family.values())]
    known = GENERATORS[arguments.generator].FAMILIES
    families = table(["family", "worlds"], [[name, described(known[name])] for name in by_family])
    command = f"python benchmarks/headline.py --worlds {arguments.worlds} --first-seed {arguments.first_seed}"
    if arguments.generator != "main":
        command += f" --generator {arguments.generator}"
    if arguments.families != list(known):
        command += " --families " + " ".join(f'"{name}"' for name in arguments.families)
    command += f" --repetitions {arguments.repetitions} --json headline.jsonl --page docs/headline.md"
    return f"""# How accurate the headline is

This page shows how far you can trust `sc.evaluate_deployment`, and whether the default switches when switching pays.
All figures come from simulated worlds in which the true value of a deployment is known. Each world has 10,000 to
20,000 rounds, and its actions, states, rewards, noise, and logging policy are drawn at random. A model is learned from
the first 60% of the rounds with default settings and evaluated on the rest.

```text
{command}
```

True values are means of {arguments.repetitions} simulated deployments per world; their own error is at most
{max(errors, default=0):.0%} of the standard error of the estimates, averaged over each family.

## Estimates and the truth

*Covered* is the share of 95% intervals that contain the true value: with the contexts and states of the held-out rounds
and new rewards (*same states*), or with a new sequence of states as well (*fresh states*). *Bias* is the mean of
estimate minus true value (same states), with its standard error over worlds. *Standard error* is the width of the
interval divided by 3.92. *Gain* is the difference to the single policy. A *false claim* is an interval of the gain
above zero in a world where the true gain is zero or less. *Seconds* per world include learning, evaluating, and
simulating the truth.

{estimates}

## Switching chosen by value

True mean rewards per round, on the same states. *Switches* is the share of worlds in which the default model has more
than one state. *Always switching* sets `n_states` to the true number, or to 2 if the world has only one. *Regret* is
how much less the default earns than the better of the two alternatives, on average. *Worse* is the share of worlds in
which the default earns less by more than the error of the simulation. *0.01 below* counts worlds in which the default
earns less than the better of the two by more than 0.01, and *standard errors* is the most it lost in one of them, in
standard errors of the held-out gain that decided. Below 2, no rule could have known better from that log. In *new
regimes*, that gain is of earlier regimes and says nothing about later ones.

{choices}

## Families

{families}
"""


def described(family) -> str:
    """What a family is, in one sentence."""
    return " ".join((family.__doc__ or "").split())


if __name__ == "__main__":
    main()
