"""Simulated worlds and deployments in them."""

from seachange.deploy.decision import Trace
from seachange.simulate.clicks import Clicks
from seachange.simulate.rollout import rollout
from seachange.simulate.rounds import Rounds
from seachange.simulate.shop import Shop
from seachange.simulate.synthetic import Synthetic, paper_states
from seachange.simulate.weekly import Weekly

__all__ = ["Clicks", "Rounds", "Shop", "Synthetic", "Trace", "Weekly", "paper_states", "rollout"]
