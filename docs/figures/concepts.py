"""Draw the figures of the concept pages: ``python docs/figures/concepts.py`` takes about half a minute."""

from __future__ import annotations

import sys
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch

import seachange as sc
from seachange.evaluation.theorems import Quantities, ips_error_bound
from seachange.figures import COLORS, GRAY, color_of

FOLDER = Path(__file__).parent
SHOP = sc.simulate.Shop(seed=0)


@cache
def learned() -> tuple[sc.BanditLog, sc.BanditLog, sc.SwitchingModel, Any]:
    """The first 60% of a log of the shop, the rest, and a switching model and a single policy from the first part."""
    known, later = SHOP.log(seed=0).split(0.6)
    return known, later, sc.learn(known), sc.learn(known, oracle="none").policies[0]


def canvas(rows: int = 1, columns: int = 1, height: float = 3.4, **grid: Any) -> tuple[Figure, Any]:
    """A figure of page width without top and right spines."""
    figure = Figure(figsize=(8, height), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False, gridspec_kw=grid)
    for one in axes.flat:
        one.spines[["top", "right"]].set_visible(False)
    return figure, axes


def draw_log() -> Figure:
    """A few rounds: logging distribution, action, propensity, and reward."""
    log, n = SHOP.log(seed=0), 28
    probs, taken = SHOP.logging_probs(log.contexts[:n]), log.actions[:n]
    figure, ((above,), (below,)) = canvas(2, 1, 4.0, height_ratios=[4, 1])
    floor = np.zeros(n)
    for action, name in enumerate(log.action_names):
        share = probs[:, action]
        mine = taken == action
        above.bar(np.arange(n), share, 0.85, floor, color=COLORS[action], alpha=0.28)
        above.bar(np.flatnonzero(mine), share[mine], 0.85, floor[mine], color=COLORS[action], label=name)
        floor += share
    above.set(ylabel="π₀(a | x): logging\nprobabilities", ylim=(0, 1), xlim=(-0.7, n - 0.3), xticks=[])
    above.legend(ncols=6, frameon=False, loc="lower left", bbox_to_anchor=(0, 1), fontsize=9)
    clicked = log.rewards[:n] == 1
    for mask, face in ((clicked, GRAY), (~clicked, "white")):
        below.scatter(np.flatnonzero(mask), np.zeros(mask.sum()), s=46, facecolor=face, edgecolor=GRAY)
    below.set(xlim=(-0.7, n - 0.3), yticks=[0], yticklabels=["reward"])
    below.set_xlabel("round (solid: the action taken; its height is p)")
    below.spines["left"].set_visible(False)
    return figure


def draw_states() -> Figure:
    """The true state, the belief of an HMM, and the clicks on each item over time."""
    log, truth = SHOP.log(seed=0), SHOP.log_states(seed=0)
    labels = sc.HMMOracle(n_states=3).fit(log).predict(log)
    cut = sc.ChangePointOracle().fit(log).segmentation_
    first, last = 6000, 16_000
    rounds = np.arange(first, last)
    figure, axes = canvas(3, 1, 5.0, height_ratios=[0.45, 1, 2.2])
    hidden, believed, earned = axes[:, 0]
    order = [np.bincount(truth[labels.states == z], minlength=3).argmax() for z in range(3)]
    for z in range(3):
        hidden.fill_between(rounds, 0, truth[first:last] == order[z], color=color_of(z), lw=0, step="post")
    hidden.set(ylabel="true\nstate", yticks=[], ylim=(0, 1))
    believed.stackplot(rounds[::20], labels.state_probs[first:last:20].T, colors=[color_of(z) for z in range(3)])
    believed.set(ylabel="HMM\np(z | all r)", yticks=[0, 1], ylim=(0, 1))
    for color, action in zip(("#CC79A7", "#56B4E9", "#332288"), (0, 2, 3), strict=True):
        mine = np.flatnonzero(log.actions == action)
        mine = mine[(mine >= first) & (mine < last)]
        width = 60
        means = np.convolve(log.rewards[mine], np.ones(width) / width, "valid")
        earned.plot(mine[width // 2 :][: len(means)], means, color=color, lw=1.3, label=log.action_names[action])
    for place in cut.change_points[(cut.change_points > first) & (cut.change_points < last)]:
        earned.axvline(place, color="black", lw=0.9, ls="--")
    earned.set(ylabel="click rate (mean of 60)", xlabel="round (dashed: detected change points)")
    earned.legend(frameon=False, ncols=3, loc="lower left", bbox_to_anchor=(0, 0.98), fontsize=9)
    for one in axes[:, 0]:
        one.set_xlim(first, last)
    for one in (hidden, believed):
        one.set_xticks([])
    return figure


def draw_policies() -> Figure:
    """How often each state's policy takes an action, and what the action earns in that state."""
    known, _, model, single = learned()
    advice, labels = model.policies.advice(known.contexts), model.labels
    figure, axes = canvas(1, model.n_states + 1, 2.9)
    width, places = 0.4, np.arange(known.n_actions)
    for z, one in enumerate(axes[0]):
        here = labels.states == z if z < model.n_states else np.full(len(known), True)
        probs = advice[here, z] if z < model.n_states else single.predict_proba(known.contexts)
        earned = [known.rewards[here & (known.actions == a)].mean() for a in places]
        one.barh(places - width / 2, probs.mean(axis=0), width, color=color_of(z) if z < model.n_states else "#999999")
        one.barh(places + width / 2, earned, width, color="white", edgecolor=GRAY, lw=0.8)
        one.set(title=f"state {z}" if z < model.n_states else "single policy", xlim=(0, 1), yticks=places)
        one.set_yticklabels(known.action_names if z == 0 else [])
        one.invert_yaxis()
    figure.supxlabel("filled: probability under the policy; outlined: click rate in the log", fontsize=10)
    return figure


def draw_switching() -> Figure:
    """Belief in the new state and reward after a change, averaged over all changes of ten deployments."""
    *_, model, single = learned()
    deployers = {
        "posterior sampling": model.deployer("posterior"),
        "Exp4.S": model.deployer("exp4s"),
        "best single policy": sc.SinglePolicy(single),
    }
    before, after = 100, 900
    figure, axes = canvas(1, 2, 3.2)
    for i, (name, deployer) in enumerate(deployers.items()):
        beliefs, shares = [], []
        for seed in range(1, 11):
            trace = sc.simulate.rollout(SHOP, deployer, seed)
            world = next(iter(SHOP.rounds(seed, SHOP.horizon)))
            best = world.mean_rewards.max(axis=1)
            edges = np.concatenate([[0], np.flatnonzero(np.diff(world.states)) + 1, [len(best)]])
            for start, change, end in zip(edges, edges[1:-1], edges[2:], strict=False):
                if change - start < before or end - change < after:
                    continue
                around = slice(change - before, change + after)
                shares.append(trace.expected_rewards[around] / best[around])
                if trace.state_probs.shape[1] > 1:
                    settled = trace.state_probs[end - 200 : end].mean(axis=0).argmax()
                    beliefs.append(trace.state_probs[around, settled])
        rounds = np.arange(-before, after)
        if beliefs:
            axes[0, 0].plot(rounds, np.mean(beliefs, axis=0), color=COLORS[i], label=name)
        smooth = np.convolve(np.mean(shares, axis=0), np.ones(15) / 15, "same")
        axes[0, 1].plot(rounds[10:-10], smooth[10:-10], color=COLORS[i], label=name)
    for one, words in zip(axes[0], ("belief in the new state", "share of the best possible reward"), strict=True):
        one.axvline(0, color="black", lw=0.8)
        one.set(xlabel="rounds after a change", ylabel=words)
        one.legend(frameon=False, fontsize=9, loc="lower right")
    axes[0, 0].set_ylim(0, 1.02)
    return figure


def draw_estimates() -> Figure:
    """Estimates of one policy on many logs, by estimator, with a misspecified reward model."""
    names = ("ips", "snips", "dm", "dr")
    world = sc.simulate.Clicks(seed=0, n_actions=4, n_features=3, horizon=10_000, click_rate=0.2, quadratic=1.0)
    policy = sc.IPSLearner().fit(world.log(seed=99)).policy_
    contexts = world.contexts(400_000, np.random.default_rng(0))
    truth = world.value(policy.predict_proba(contexts), contexts)
    runs = [sc.evaluate(world.log(seed), policy, names) for seed in range(25)]
    figure, axes = canvas(1, 4, 3.0)
    for one, name, found in zip(axes[0], names, zip(*runs, strict=True), strict=True):
        for i, estimate in enumerate(sorted(found, key=lambda each: each.value)):
            color = COLORS[0] if estimate.low <= truth <= estimate.high else COLORS[1]
            one.plot([estimate.low, estimate.high], [i, i], color=color, lw=1.6)
            one.plot(estimate.value, i, ".", color=color)
        one.axvline(truth, color="black", lw=1)
        one.set(title=name.upper(), yticks=[], xlim=(truth - 0.05, truth + 0.05))
    figure.supxlabel(
        "value of one policy on 25 logs with 95% intervals; line: true value; orange: misses it", fontsize=10
    )
    return figure


def draw_features() -> Figure:
    """A raw record (left) and the features that a model sees (right)."""
    record = [
        ("age", "41", ["0.6", "0"], "standardized, plus a missing-value indicator"),
        ("returning", "true", ["1"], "0 or 1, unchanged"),
        ("country", '"DE"', ["0", "1", "0", "0"], "one feature per frequent value, one for the rest"),
        ("tags", '["new", "sale"]', ["1", "0", "1", "0"], "the same, for every entry of the list"),
        ("postcode", '"20095"', ["0", "0", "1", "0", "0", "…"], "too many values: hashed into buckets"),
    ]
    figure, ((axes,),) = canvas(height=3.3)
    axes.axis("off")
    for i, (name, value, numbers, words) in enumerate(record):
        box = FancyBboxPatch((0, -i - 0.3), 3.1, 0.6, boxstyle="round,pad=0.05", fc="white", ec=COLORS[i])
        axes.add_patch(box)
        axes.text(0.12, -i, f"{name}: {value}", va="center", family="monospace", fontsize=9)
        axes.annotate("", (4.0, -i), (3.2, -i), arrowprops={"arrowstyle": "->", "color": GRAY})
        for j, number in enumerate(numbers):
            place = (4.1 + 0.5 * j, -i - 0.25)
            axes.add_patch(FancyBboxPatch(place, 0.36, 0.5, boxstyle="round,pad=0.02", fc=COLORS[i], alpha=0.25, lw=0))
            axes.text(place[0] + 0.18, -i, number, ha="center", va="center", fontsize=10)
        axes.text(7.2, -i, words, va="center", fontsize=9, color=GRAY)
    axes.set(xlim=(-0.1, 11.6), ylim=(-4.5, 0.9))
    axes.text(1.5, 0.55, "record", ha="center", fontsize=10, weight="bold")
    axes.text(5.5, 0.55, "x", ha="center", fontsize=10, weight="bold")
    return figure


def draw_adaptive() -> Figure:
    """A deployer run along a log: accepted rounds and belief."""
    _, later, model, _ = learned()
    deployer, generator = model.deployer("posterior"), np.random.default_rng(0)
    advice = model.policies.advice(later.contexts)
    bound = (advice[np.arange(len(later)), :, later.actions] / later.propensities[:, None]).max()
    state, accepted, beliefs = deployer.init(), [], []
    for t in range(len(later)):
        decision = deployer.act(state, later.contexts[t], 0.5)
        beliefs.append(deployer.state_probs(state))
        ratio = decision.probs[later.actions[t]] / later.propensities[t]
        if generator.random() < ratio / bound:
            accepted.append(t)
            uniform = min(decision.probs[: later.actions[t]].sum() + decision.probs[later.actions[t]] / 2, 1 - 1e-12)
            state = deployer.update(state, deployer.act(state, later.contexts[t], uniform), later.rewards[t])
        else:
            state = deployer.update(state, decision, None)
    figure, axes = canvas(2, 1, 3.2, height_ratios=[1, 2.2])
    above, below = axes[:, 0]
    above.vlines(accepted, 0, 1, color=GRAY, lw=0.5)
    above.set(yticks=[], ylabel="accepted", xticks=[], title=f"{len(accepted):,} of {len(later):,} rounds", ylim=(0, 1))
    rounds = np.arange(0, len(later), 10)
    colors = [color_of(z) for z in range(model.n_states)]
    below.stackplot(rounds, np.array(beliefs)[rounds].T, colors=colors, alpha=0.8)
    for change in np.flatnonzero(np.diff(SHOP.log_states(seed=0)[-len(later) :])):
        below.axvline(change, color="black", lw=0.8)
    below.set(ylabel="belief", xlabel="round of the log (lines: true state changes)", ylim=(0, 1))
    for one in (above, below):
        one.set_xlim(0, len(later))
    return figure


def draw_values() -> Figure:
    """Value of one state's policy over a log, with a short and a long window, and its true value."""
    _, later, model, _ = learned()
    policy = model.policies[2]
    states = SHOP.log_states(seed=0)[-len(later) :]
    truth = (policy.predict_proba(later.contexts) * SHOP.click_rates(later.contexts, states)).sum(axis=1)
    figure, axes = canvas(1, 2, 3.2)
    for one, window in zip(axes[0], (400, 4000), strict=True):
        found = sc.evaluate_over_time(later, policy, window=window, points=150)
        one.fill_between(found.rounds, found.low, found.high, color=COLORS[0], alpha=0.25, lw=0)
        one.plot(found.rounds, found.values, color=COLORS[0], label=f"estimate, window of {window:,}")
        means = [truth[states == z].mean() for z in range(3)]
        one.step(np.arange(len(later)), np.array(means)[states], color="black", lw=1, label="true value")
        one.set(xlabel="round", ylim=(0, 1), ylabel="clicks per round")
        one.legend(frameon=False, fontsize=9, loc="lower left", bbox_to_anchor=(0, 1), ncols=2)
    return figure


def draw_bounds() -> Figure:
    """Worst-case error of IPS by length of the log."""
    rounds = np.logspace(3, 9, 60).astype(int)
    figure, ((axes,),) = canvas(height=3.2)
    for i, ratio in enumerate((2, 10, 100)):
        found = [ips_error_bound(Quantities(n_rounds=int(n), max_ratio=ratio, delta=0.05)) for n in rounds]
        provable, printed = np.array([(each.corrected, each.printed) for each in found]).T / rounds
        axes.loglog(rounds, provable, color=COLORS[i], label=f"M = {ratio}, proved")
        axes.loglog(rounds, printed, color=COLORS[i], ls=":", label="as printed")
    axes.axhline(1, color="black", lw=1)
    axes.text(rounds[-1], 1.15, "largest possible error", ha="right", fontsize=9)
    axes.set(xlabel="rounds T", ylabel="bound on the error per round", xlim=(1e3, 1e9))
    axes.legend(frameon=False, ncols=3, fontsize=9, loc="lower left")
    return figure


FIGURES = {
    "log": draw_log, "features": draw_features, "states": draw_states, "policies": draw_policies,
    "switching": draw_switching, "estimates": draw_estimates, "adaptive": draw_adaptive, "values": draw_values,
    "bounds": draw_bounds,
}  # fmt: skip

if __name__ == "__main__":
    for name in sys.argv[1:] or FIGURES:
        FIGURES[name]().savefig(FOLDER / f"concept-{name}.png", dpi=140)
