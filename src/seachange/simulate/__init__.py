"""Simulated worlds, and deployments in them."""

from seachange.deploy.decision import Trace
from seachange.simulate.click_worlds import Clicks, Shop, Weekly
from seachange.simulate.clickstream import ClickRates, Clickstream, Visits
from seachange.simulate.front_page import FrontPage
from seachange.simulate.rollout import Rounds, rollout
from seachange.simulate.synthetic import Synthetic, paper_states

__all__ = [
    "ClickRates", "Clicks", "Clickstream", "FrontPage", "Rounds", "Shop", "Synthetic", "Trace", "Visits", "Weekly",
    "paper_states", "rollout",
]  # fmt: skip
