"""Which margin do intervals need if propensities are estimated? Coverage by factor and length of the log.

    PYTHONPATH=tests python benchmarks/propensity_margin.py [SEED]

The logs are those of tests/statistical/test_estimated_propensities.py, with four seeds from SEED on (default: 40).
"""

import sys
import warnings

import numpy as np

import seachange as sc
from seachange.evaluation import estimators
from statistical.test_estimated_propensities import CURVES, curved

LENGTHS, FACTORS, NAMES = (1_500, 4_000, 12_000), (1.0, 1.5, 2.0, 3.0), ("dr", "ips", "snips")


def errors(n_rounds, first):
    """(m, 3) errors, standard errors and distances from DR, for each estimator; and how many values were refused."""
    rows, n_refused = [], 0
    for kind in CURVES:
        for seed in range(first, first + 4):
            log, _, policies, values = curved(kind, seed, n_rounds)
            estimated = log.with_propensities(sc.estimate_logging_probs(log), estimated=True)
            for name in ("uniform", "better"):
                try:
                    found = [_evaluated(estimated, policies[name], factor) for factor in (0.0, 1.0)]
                except sc.RefusedError:
                    n_refused += 1
                    continue
                pairs = zip(*found, strict=True)
                rows.append([(plain.value - values[name], plain.std_error, wide.std_error) for plain, wide in pairs])
    return np.array(rows), n_refused


def _evaluated(log, policy, factor):
    estimators.MARGIN = factor
    return sc.evaluate(log, policy, NAMES)


def main():
    """Print one line for each length and factor."""
    warnings.simplefilter("ignore")
    for n_rounds in LENGTHS:
        found, n_refused = errors(n_rounds, int(sys.argv[1]) if len(sys.argv) > 1 else 40)
        miss, plain, wide = np.moveaxis(found, 2, 0)
        gaps = np.sqrt(wide**2 - plain**2)
        print(f"{n_rounds:,} rounds: {len(found)} values, {n_refused} refused")
        for factor in FACTORS:
            widths = np.hypot(plain, factor * gaps)
            scores = np.abs(miss) / (1.96 * widths)
            covered, worst, wider = (scores <= 1).mean(axis=0), scores.max(axis=0), np.median(widths / plain, axis=0)
            print(f"  {factor}: {NAMES} cover {covered.round(2)}, worst {worst.round(2)}, wider {wider.round(2)}")


if __name__ == "__main__":
    main()
