"""Draw docs/figures/adaptive_sampling.png: a known regime returns, then a new one appears, in three deployments."""

from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

import seachange as sc

REGIMES, ROUNDS, WINDOW = (0, 1, 0, 2, 1), 1_500, 100
CLICK_RATES = np.array([[0.30, 0.10, 0.05], [0.05, 0.10, 0.30], [0.05, 0.35, 0.05]])  # by regime and action
KNOWN, DEPLOYMENTS = 20_000, 20
COLORS = {"adaptive": "#0072b2", "posterior sampling": "#d55e00", "online learner": "#009e73"}


def main() -> None:
    """Learn from a log of two regimes, deploy where a third appears, and draw clicks over time."""
    rng = np.random.default_rng(0)
    regimes, actions = np.arange(KNOWN) // 1_000 % 2, rng.integers(3, size=KNOWN)
    clicks = (rng.random(KNOWN) < CLICK_RATES[regimes, actions]).astype(float)
    model = sc.learn(sc.BanditLog.from_arrays(actions, clicks, np.full(KNOWN, 1 / 3)), n_states=2, objective="dm")
    adaptive, learned = model.deployer("adaptive"), (model.policies, model.world, model.evidence)
    deployers = {
        "adaptive": adaptive,
        "posterior sampling": model.deployer("posterior"),
        "online learner": sc.AdaptiveSampling(*learned, modes=["open"], boldness=1.0),
    }
    rates = CLICK_RATES[np.repeat(REGIMES, ROUNDS)]
    figure, axes = plt.subplots(figsize=(9, 3.6), layout="constrained")
    middle = np.arange(len(rates)) + 1
    for name, deployer in deployers.items():
        earned = np.zeros(len(rates))
        for seed in range(DEPLOYMENTS):
            drawn = np.random.default_rng([seed, 1])
            rewards, uniforms = (drawn.random(rates.shape) < rates).astype(float), drawn.random(len(rates))
            _, trace = deployer.run(deployer.init(), np.empty((len(rates), 0)), rates, rewards, uniforms)
            earned += trace.expected_rewards / DEPLOYMENTS
        smooth = np.convolve(earned, np.full(WINDOW, 1 / WINDOW), mode="full")[: len(rates)]
        smooth[:WINDOW] = np.cumsum(earned[:WINDOW]) / np.arange(1, WINDOW + 1)
        axes.plot(middle, smooth, label=name, color=COLORS[name], linewidth=1.6)
    for i, regime in enumerate(REGIMES):
        axes.axvspan(i * ROUNDS, (i + 1) * ROUNDS, color="#999999", alpha=(0.0, 0.08, 0.22)[regime], linewidth=0)
        label = f"regime {'AB'[regime]}, in the log" if regime < 2 else "regime C, never logged"
        axes.text((i + 0.5) * ROUNDS, 0.375, label, ha="center", fontsize=8)
    marked: set[sc.Alert] = set()
    drawn = np.random.default_rng([0, 1])
    rewards, uniforms = (drawn.random(rates.shape) < rates).astype(float), drawn.random(len(rates))
    state = adaptive.init()
    for start in range(0, len(rates), 10):
        part = slice(start, start + 10)
        none = np.empty((10, 0))
        state, _ = adaptive.run(state, none, rates[part], rewards[part], uniforms[part])
        for alert in set(adaptive.alerts(state)) - marked:
            marked.add(alert)
            axes.annotate(
                alert.kind, (start + 10, 0.0), (start + 60, 0.015), fontsize=8, color="#333333",
                arrowprops={"arrowstyle": "-", "color": "#333333"},
            )  # fmt: skip
            axes.axvline(start + 10, color="#333333", linewidth=0.8, linestyle=":")
    axes.set(xlabel="round of the deployment", ylabel=f"clicks per round, last {WINDOW} rounds", ylim=(0, 0.4))
    axes.set_xlim(0, len(rates))
    axes.legend(loc="lower left", bbox_to_anchor=(0.0, 0.1), frameon=False, fontsize=8)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    figure.savefig(Path(__file__).parent / "adaptive_sampling.png", dpi=150)


if __name__ == "__main__":
    main()
