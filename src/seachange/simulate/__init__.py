"""Simulated worlds, and deployments in them."""

from seachange.deploy.decision import Trace
from seachange.simulate.click_worlds import Clicks, Shop, Weekly
from seachange.simulate.clickstream import ClickRates, Clickstream, Visits
from seachange.simulate.drifting import MovingLinear, RandomWalk
from seachange.simulate.front_page import FrontPage
from seachange.simulate.piecewise import PiecewiseBernoulli
from seachange.simulate.rollout import Rounds, rollout
from seachange.simulate.stream import Stream
from seachange.simulate.synthetic import Synthetic, paper_states

__all__ = [
    "ClickRates", "Clicks", "Clickstream", "FrontPage", "MovingLinear", "PiecewiseBernoulli", "RandomWalk", "Rounds",
    "Shop", "Stream", "Synthetic", "Trace", "Visits", "Weekly", "paper_states", "rollout",
]  # fmt: skip
