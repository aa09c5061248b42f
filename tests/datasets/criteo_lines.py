"""Invented impressions in Criteo's two formats, and a slow reader that shares nothing with the fast one."""

import math
import string

SPACES = set("\t\n\v\f\r ")


def invented_challenge(n, rng):
    lines = []
    for _ in range(n):
        key = rng.integers(10**8)
        for place in range(rng.integers(1, 6)):
            label = f"|l {rng.choice(['0.999', '0.001'])} |p {rng.uniform(1, 300):.9f}" if place == 0 else ""
            lines.append(f"{key} {label}|f {features(rng)} ")
    return lines


def invented_testbed(n, rng):
    lines = []
    for _ in range(n):
        key, m = rng.integers(10**8), rng.integers(1, 6)
        click = rng.integers(2)
        lines.append(f"example {key}: {rng.integers(10**9):x} {click} {rng.random():.6f} 1 {m} {features(rng)}")
        lines += [f"{click if place == 0 else 0} exid:{key} {features(rng)}" for place in range(m)]
    return lines


def features(rng):
    return " ".join(
        f"{i}:{rng.choice([1, 1, 2, 300])}" for i in sorted(rng.choice(50, size=rng.integers(5), replace=False))
    )


def is_number(text):
    """Digits, maybe with a sign, decimals and a power of ten."""
    mantissa, *power = text.lower().split("e")
    if len(power) > 1 or (
        power and not 1 <= len(unsigned := power[0].removeprefix("+" if "+" in power[0] else "-")) <= 3
    ):
        return False
    whole, *decimals = mantissa.removeprefix("-").split(".")
    pieces = [whole, *decimals, *([unsigned] if power else [])]
    return len(decimals) <= 1 and all(piece and set(piece) <= set(string.digits) for piece in pieces)


def words_of(words):
    for word in words:
        name, colon, value = word.partition(":")
        if not name or not colon or "|" in name or SPACES & set(word) or not is_number(value):
            raise ValueError(word)
    return [word[:-2] if word.split(":")[1] == "1" else word for word in words]


def digits(text):
    if not text or not set(text) <= set(string.digits):
        raise ValueError(text)
    return text


def number(text):
    if not is_number(text):
        raise ValueError(text)
    return float(text)


def spaced(text):
    return [word for word in text.split(" ") if word]


def challenge_line(line):
    """key, candidate's words, and label and weight of the first."""
    if line[:1] == " ":
        raise ValueError(line)
    head, *spaces = line.split("|")
    if not head.endswith(" ") or len(spaced(head)) != 1:
        raise ValueError(line)
    (key,) = spaced(head)
    if len(spaces) == 1 and spaces[0][:1] == "f":
        if spaces[0] != "f" and spaces[0][1] != " ":
            raise ValueError(line)
        return digits(key), words_of(spaced(spaces[0][1:])), None
    label, weight, last = spaces
    if (
        label[:2] != "l "
        or label[-1] != " "
        or weight[:2] != "p "
        or last[:1] != "f"
        or (last != "f" and last[1] != " ")
    ):
        raise ValueError(line)
    (label,), (weight,) = spaced(label[1:]), spaced(weight[1:])
    return digits(key), words_of(spaced(last[1:])), (number(label), number(weight))


def testbed_line(line):
    if line[:1] == " ":
        raise ValueError(line)
    if line.startswith("example "):
        _, key, name, label, weight, slots, count, *words = spaced(line)
        if not key.endswith(":") or SPACES & set(name) or max(len(slots), len(count)) > 9:
            raise ValueError(line)
        opened = number(label), number(weight), int(digits(slots)), int(digits(count))
        return digits(key[:-1]), words_of(words), opened
    label, key, *words = spaced(line)
    number(label)
    if not key.startswith("exid:"):
        raise ValueError(line)
    return digits(key[5:]), words_of(words), None


def read_slowly(content, testbed):
    """Rounds by the number of their first line: reward, propensity, words of the display, words of the candidates.

    Lines that cannot be read spoil the impression they stand in, unless they name another.
    """
    read = testbed_line if testbed else challenge_line
    groups = []
    for place, raw in enumerate(content.split(b"\n"), 1):
        if not raw.strip():
            continue
        try:
            line = raw.removesuffix(b"\r").decode()
            key, words, opened = read(line)
            sound = True
        except ValueError:
            key, words, opened, sound = None, [], None, False
        if (
            groups
            and opened is None
            and ((sound and key == groups[-1]["key"]) or (not sound and not named(raw, groups)))
        ):
            groups[-1]["lines"].append((words, sound))
        else:
            groups.append(
                {"key": key if sound else name_in(raw), "place": place, "first": (words, opened, sound), "lines": []}
            )
    rounds, rejected = {}, []
    for group in groups:
        words, opened, sound = group["first"]
        clicks = {0.0: 0.0, 1.0: 1.0, 0.999: 0.0, 0.001: 1.0}
        candidates = [each for each, _ in group["lines"]]
        fine = sound and opened is not None and opened[0] in clicks and all(ok for _, ok in group["lines"])
        if fine and testbed:
            _, weight, slots, count = opened
            fine = 0 < weight < math.inf and slots == 1 and count == len(candidates) > 0
            propensity = 1 / weight if fine and weight > 1 else weight
            display = words
        elif fine:
            fine = 1 <= opened[1] < math.inf
            propensity, display, candidates = 1 / opened[1] if fine else None, None, [words, *candidates]
        if fine:
            rounds[group["place"]] = (clicks[opened[0]], propensity, display, candidates)
        else:
            rejected.append(group["place"])
    return rounds, rejected


def name_in(raw):
    """The impression that a broken line names: digits before a bar, behind "example" or behind "exid:"."""
    try:
        line = raw.removesuffix(b"\r").decode()
    except UnicodeDecodeError:
        return None
    words = spaced(line)
    if line[:1] == " " or not words:
        return None
    if words[0] == "example" and len(words) > 1 and ":" in words[1]:
        key = words[1].split(":")[0]
        return key if key and set(key) <= set(string.digits) else None
    key = line.split(" ")[0]
    if key and set(key) <= set(string.digits) and line[len(key) :].lstrip(" ").startswith("|"):
        return key
    if len(words) > 1 and words[1].startswith("exid:"):
        key = words[1][5:]
        cut = next((i for i, sign in enumerate(key) if sign not in string.digits), len(key))
        return key[:cut] if cut and not SPACES & set(words[0]) and (cut == len(key) or key[cut] in SPACES) else None
    return None


def named(raw, groups):
    """Whether a broken line names another impression than the last."""
    return name_in(raw) not in (None, groups[-1]["key"])


def rounds_of(parts, testbed):
    """What the fast reader read, in the same form."""
    rounds, rejected = {}, []
    for part in parts:
        rejected += [each.line for each in part.rejected]
        assert set(part.action) <= {0}
        bounds, candidates = part.pool.offsets.tolist(), part.pool.features["features"].to_list()
        for t, line in enumerate(part.lines.tolist()):
            display = part.features["display"][t].to_list() if testbed else None
            pool = candidates[bounds[t] : bounds[t + 1]]
            rounds[line] = (part.reward[t], part.propensity[t], display, pool)
    return rounds, rejected
