"""Compare forecasts for the week after a log with a weekly cycle: future values, IPS, and windows. Draws the figure."""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

import seachange as sc
from seachange.policies import SoftmaxPolicy
from seachange.simulate import Weekly

NAMES = ("future value (OPFV)", "IPS", "sliding window", "exponential weights")
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7")
DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")


def main() -> None:
    """Print mean squared errors over logs and the seven days after them; draw the forecasts from one log."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--logs", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0, help="seed of the environment")
    parser.add_argument("--figure", type=Path, help="draw the figure here, as PNG")
    arguments = parser.parse_args()
    env = Weekly(seed=arguments.seed)
    policy = SoftmaxPolicy(2.0 * env.coefs[5], env.log(0).joint)
    truths = np.array([env.value(policy, day) for day in range(7)])
    values = np.array([forecasts(env.log(run), policy) for run in range(arguments.logs)])
    errors = np.square(values - truths[None, None, :]).mean(axis=(0, 2))
    for name, error in zip(NAMES, errors, strict=True):
        print(f"{name:24}{error:10.6f} squared error{error / errors[0]:10.1f}x the error of the future value")
    if arguments.figure is not None:
        draw(arguments.figure, env, policy, truths, values, errors)


def forecasts(log: sc.BanditLog, policy: SoftmaxPolicy) -> list[list[float]]:
    """Each method's forecasts for the seven days after the log."""
    days = log.times[-1] + np.arange(1, 8).astype("timedelta64[D]")
    (ips,) = sc.evaluate(log, policy, ("ips",))
    window = sc.evaluate_over_time(log, policy, window="auto", points=1).values[-1]
    decayed = sc.evaluate_over_time(log, policy, half_life="auto", points=1).values[-1]
    return [[sc.evaluate_future(log, policy, day).value for day in days], [ips.value] * 7, [window] * 7, [decayed] * 7]


def draw(path: Path, env: Weekly, policy: SoftmaxPolicy, truths, values, errors) -> None:
    """Draw the last two weeks of one log and the week after it (left), and squared errors over all logs (right)."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 4.2), dpi=140, layout="constrained")
    FigureCanvasAgg(figure)
    left, right = figure.subplots(1, 2, gridspec_kw={"width_ratios": [2.6, 1]})
    log = env.log(0)
    past = sc.evaluate_by_period(log, policy, "day")
    places = np.arange(-14, 0)
    left.errorbar(places, past.values[-14:], 1.96 * past.std_errors[-14:], fmt="o", ms=3.5, color="#666666", lw=1,
                  label="past days, estimated (DR)")  # fmt: skip
    left.step(np.arange(-14, 8) - 0.5, np.append(np.tile(truths, 3), truths[-1]), where="post", color="black", lw=1,
              label="true value")  # fmt: skip
    days = [sc.evaluate_future(log, policy, day) for day in log.times[-1] + np.arange(1, 8).astype("timedelta64[D]")]
    left.errorbar(np.arange(7), [d.value for d in days], [1.96 * d.std_error for d in days], fmt="o", ms=5,
                  color=COLORS[0], lw=1.5, label=NAMES[0])  # fmt: skip
    for name, color, value in zip(NAMES[1:], COLORS[1:], values[0, 1:, 0], strict=True):
        left.plot([-0.5, 6.5], [value, value], color=color, lw=1.8, ls="--", label=name)
    left.axvspan(-0.5, 6.5, color="#f0f0f0", zorder=0)
    left.set_xlim(-14.5, 6.5)
    left.set_xticks(np.arange(-14, 7), [day[:1] for day in DAYS] * 3)
    left.set_xlabel("day of the week (gray: future)")
    left.set_ylabel("mean reward per round")
    left.legend(frameon=False, fontsize=8, ncols=3, loc="lower left", bbox_to_anchor=(0, 1.0))
    right.scatter(errors, np.arange(4)[::-1], color=COLORS, s=60)
    right.grid(axis="x", color="#dddddd", lw=0.8)
    right.set_ylim(-0.6, 3.6)
    right.set_yticks(np.arange(4)[::-1], [name.replace(" (OPFV)", "") for name in NAMES], fontsize=8)
    right.set_xscale("log")
    right.set_xlim(errors.min() / 2, errors.max() * 2)
    right.set_xlabel(f"mean squared error\n({len(values)} logs, 7 days each)")
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, format="png")


if __name__ == "__main__":
    main()
