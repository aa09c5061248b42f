"""Tables as raw logs, and a sound one to plant defects in."""

from dataclasses import dataclass, field

import numpy as np
import polars as pl

from seachange.log.raw import RawRounds, Rejected

WORDS = ("action", "reward", "propensity", "time", "sequence")
N, ITEMS = 5_000, ("boots", "coats", "hats", "lamps", "mugs")
START = 1_700_000_000


@dataclass
class TableLog:
    """A polars frame as a reader would give it; ``rejected`` are the lines that hold no round."""

    frame: pl.DataFrame
    columns: dict = field(default_factory=dict)
    rejected: tuple = ()
    format: str = "csv"

    def __post_init__(self):
        self.columns = self.columns or {word: word for word in WORDS if word in self.frame.columns}

    def parts(self, rows=1 << 17):
        given = self.columns.values()
        for start in range(0, max(len(self.frame), 1), rows):
            part = self.frame[start : start + rows]
            columns = {word: part[name] for word, name in self.columns.items()}
            yield RawRounds(
                source="shop.csv",
                lines=np.arange(start + 1, start + len(part) + 1),
                features=part.select([name for name in part.columns if name not in given]),
                rejected=self.rejected if start == 0 else (),
                **columns,
            )


def logging_probs(rng, n):
    """(n, K) a softmax of two contexts, mixed with a tenth of chance; and the contexts."""
    x = rng.normal(size=(n, 2))
    scores = x @ np.array([[0.6, -0.4, 0.2, 0.0, -0.3], [0.1, 0.5, -0.6, 0.3, 0.0]])
    probs = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
    return 0.9 * probs + 0.1 / len(ITEMS), x


def sound_table(seed=0, n=N):
    """Clicks in a shop, once every few seconds, whose favourite changes in the middle."""
    rng = np.random.default_rng(seed)
    probs, x = logging_probs(rng, n)
    actions = (probs.cumsum(axis=1) > rng.random((n, 1))).argmax(axis=1)
    base = np.array([[0.10, 0.15, 0.20, 0.25, 0.30], [0.30, 0.25, 0.20, 0.15, 0.10]])[2 * np.arange(n) // n]
    chances = base[np.arange(n), actions] + 0.05 * np.tanh(x[:, 0])
    return pl.DataFrame(
        {
            "time": START + rng.exponential(30, n).cumsum(),
            "action": [ITEMS[a] for a in actions],
            "reward": (rng.random(n) < chances).astype(np.int64),
            "propensity": probs[np.arange(n), actions],
            "age": x[:, 0],
            "income": x[:, 1],
            "device": rng.choice(["phone", "tablet", "desk"], n, p=[0.6, 0.1, 0.3]),
        }
    )


def deployed_table(seed, exploration, certainty=0.999, n=N):
    """The same shop where a policy shows the favourite of each half with ``certainty``, but for its exploration."""
    rng, table = np.random.default_rng(seed), sound_table(seed, n)
    favourites = np.array([ITEMS.index("mugs"), ITEMS.index("boots")])[2 * np.arange(n) // n]
    sure = rng.uniform(certainty, 1, n)  # it depends on the visitor
    probs = np.repeat((1 - sure)[:, None] / (len(ITEMS) - 1), len(ITEMS), axis=1)
    probs[np.arange(n), favourites] = sure
    probs = (1 - exploration) * probs + exploration / len(ITEMS)
    actions = (probs.cumsum(axis=1) > rng.random((n, 1))).argmax(axis=1)
    chances = np.array([[0.10, 0.15, 0.20, 0.25, 0.30], [0.30, 0.25, 0.20, 0.15, 0.10]])[2 * np.arange(n) // n]
    return table.with_columns(
        action=pl.Series([ITEMS[a] for a in actions]),
        reward=pl.Series((rng.random(n) < chances[np.arange(n), actions]).astype(np.int64)),
        propensity=pl.Series(probs[np.arange(n), actions]),
    )


def unreadable(*lines):
    return tuple(Rejected("shop.csv", line, "a row has 7 fields, this line 3", "1,2,3") for line in lines)
