"""Invented campaigns like the Open Bandit Dataset's, and a slow reader that shares nothing with the fast one."""

import math
import re
from datetime import UTC, datetime

N_ITEMS, N_USER_FEATURES = 4, 2
HEADER = [
    "", "timestamp", "item_id", "position", "click", "propensity_score",
    *(f"user_feature_{i}" for i in range(N_USER_FEATURES)), *(f"user-item_affinity_{i}" for i in range(N_ITEMS)),
]  # fmt: skip
TIME = re.compile(r"([1-9]\d{3}-\d\d-\d\d \d\d:\d\d:\d\d)(\.\d{1,6})?([+-]\d\d:[0-5]\d)", re.ASCII)
NUMBER = re.compile(r"-?\d+(\.\d+)?([eE][+-]?\d{1,3})?", re.ASCII)


def invented_campaign(n, rng):
    lines = [",".join(HEADER)]
    for t in range(n):
        users = [f"{rng.integers(3):032x}" for _ in range(N_USER_FEATURES)]
        affinities = [f"{rng.integers(3)}.0" for _ in range(N_ITEMS)]
        fraction = "" if t % 7 == 3 else f".{rng.integers(1, 10**6):06d}"
        head = [t, f"2019-11-24 00:{t % 60:02d}:17{fraction}+00:00", rng.integers(N_ITEMS), rng.integers(1, 4)]
        lines.append(",".join(map(str, [*head, rng.integers(2), repr(float(rng.random())), *users, *affinities])))
    return lines


def write_items(folder):
    rows = [f"{i},{i},{0.5 * i - 1},{i % 2:032x}" for i in range(N_ITEMS)]
    (folder / "item_context.csv").write_text("\n".join([",item_id,item_feature_0,item_feature_1", *rows, ""]))


def number(text):
    if not NUMBER.fullmatch(text) or not math.isfinite(float(text)):
        raise ValueError(text)
    return float(text)


def whole(text):
    if not re.fullmatch(r"\d{1,9}", text, re.ASCII):
        raise ValueError(text)
    return int(text)


def moment(text):
    match = TIME.fullmatch(text)
    if match is None:
        raise ValueError(text)
    fraction = (match[2] or ".0").ljust(7, "0")
    read = datetime.fromisoformat(match[1] + fraction + match[3])
    return read.astimezone(UTC).replace(tzinfo=None)


def read_slowly(content):
    """Rounds by line number, and the numbers of the lines that hold none."""
    header, *lines = content.split(b"\n")
    columns = header.rstrip(b"\r").decode("utf-8", "replace").split(",")
    rounds, rejected = {}, []
    for number_, line in enumerate(lines, 2):
        if not line.strip():
            continue
        try:
            fields = line.removesuffix(b"\r").decode().split(",")
            if len(fields) != len(columns) or any("\r" in field for field in fields):
                raise ValueError(line)
            row = dict(zip(columns, fields, strict=True))
            users = [row[name] or None for name in columns if name.startswith("user_feature_")]
            head = moment(row["timestamp"]), whole(row["item_id"]), str(whole(row["position"]))
            rounds[number_] = (*head, number(row["click"]), number(row["propensity_score"]), *users)
        except (ValueError, OverflowError):
            rejected.append(number_)
    return rounds, rejected


def rounds_of(parts):
    """What the fast reader read, in the same form."""
    rounds, rejected = {}, []
    for part in parts:
        rejected += [each.line for each in part.rejected]
        heads = zip(part.lines.tolist(), part.time, part.action, part.reward, part.propensity, strict=True)
        for (line, time, item, click, propensity), (*users, position) in zip(heads, part.features.rows(), strict=True):
            rounds[line] = (time, item, position, click, propensity, *users)
    return rounds, rejected
