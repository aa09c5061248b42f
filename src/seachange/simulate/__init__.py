"""Simulated worlds, and deployments in them."""

from seachange.deploy.decision import Trace
from seachange.simulate.clicks import Clicks
from seachange.simulate.clickstream import ClickRates, Clickstream
from seachange.simulate.front_page import FrontPage
from seachange.simulate.rollout import Rounds, rollout
from seachange.simulate.shop import Shop
from seachange.simulate.synthetic import Synthetic, paper_states
from seachange.simulate.visits import Visits
from seachange.simulate.weekly import Weekly

__all__ = [
    "ClickRates",
    "Clicks",
    "Clickstream",
    "FrontPage",
    "Rounds",
    "Shop",
    "Synthetic",
    "Trace",
    "Visits",
    "Weekly",
    "paper_states",
    "rollout",
]
