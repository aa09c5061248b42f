"""mTS: posterior sampling over states that never change."""

from dataclasses import replace

import numpy as np

from seachange.deploy.posterior import PosteriorSampling
from seachange.policies.per_state import PolicySet
from seachange.states.switching_regression import SwitchingRegression

# States that all evidence is against keep this much, so that the belief stays defined.
LEAST = 1e-12


def fixed_state(policies: PolicySet, hmm: SwitchingRegression) -> PosteriorSampling:
    """Posterior sampling over the learned models if the state never changes (Hong et al. 2020, mTS)."""
    n_states = hmm.n_states
    transition = (1 - LEAST) * np.eye(n_states) + LEAST / n_states
    return PosteriorSampling(policies, replace(hmm, transition_matrix=transition))
