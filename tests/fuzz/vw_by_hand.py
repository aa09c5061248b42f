"""Vowpal Wabbit's formats read slowly, with nothing of what the package reads them with."""

import json
import re
from datetime import datetime, timedelta

NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
WORDS = re.compile(r"[^ \t]+")


class Written(str):
    """A number as it is written."""


class NoRoundError(Exception):
    """Why a line is none."""


def require(true, reason):
    if not true:
        raise NoRoundError(reason)


def once(pairs):
    keys = [key for key, _ in pairs]
    require(len(set(keys)) == len(keys), "twice")
    return dict(pairs)


def finite(text):
    require(abs(float(text)) < float("inf"), "too large")
    return Written(text)


def no_constant(word):
    raise NoRoundError(word)


def parsed(line):
    """A line of JSON, numbers as they are written."""
    try:
        text = line.decode()
        document = json.loads(
            text, object_pairs_hook=once, parse_int=finite, parse_float=finite, parse_constant=no_constant
        )
        json.dumps(document, ensure_ascii=False).encode()  # half of a surrogate pair is not text
    except (UnicodeError, json.JSONDecodeError, RecursionError) as error:
        raise NoRoundError("no JSON") from error
    require(isinstance(document, dict), "no object")
    return document


def leaves(value, name=(), in_array=False):
    """Features below an object: name, value, whether it is in an array. Of text, every word is one."""
    if isinstance(value, dict):
        for key, inner in value.items():
            for word in ("_outcomes", "_slot", "_label", "__aid"):
                require(inner is None or not key.startswith(word), word)
            if not key.startswith("_") or key in ("_tag", "_text"):
                yield from leaves(inner, (*name, key))
    elif isinstance(value, list):
        require(not in_array, "nested")
        for inner in value:
            yield from leaves(inner, name, True)
    elif value is not None:
        if name[-1] == "_text" and type(value) is str:
            yield from ((".".join(name), word, True) for word in WORDS.findall(value))
        else:
            yield ".".join(name), value, in_array


def features(value):
    found = {}
    for name, each, in_array in leaves(value):
        found.setdefault(name, []).append((each, in_array))
    return found


def number(value):
    require(isinstance(value, Written | bool), "no number")
    return float(value)


def one_of(line, *names):
    values = [line[name] for name in names if line.get(name) is not None]
    require(len(values) <= 1, "several")
    return values[0] if values else None


def dsjson(line):
    """A round: cost, action, probabilities of the items or None, propensity, time, features, items' features."""
    document = parsed(line)
    for key in ("_outcomes", "_label_ca", "_label"):
        require(document.get(key) is None, key)
    context = document.get("c")
    require(isinstance(context, dict), "c")
    items = context.get("_multi")
    require(isinstance(items, list) and items and all(isinstance(item, dict) for item in items), "_multi")
    shared = features({key: value for key, value in context.items() if key != "_multi"})
    flags = [document.get(name) for name in ("_skipLearn", "_deferred", "DeferredAction")]
    require(all(flag is None or isinstance(flag, bool) for flag in flags), "flag")
    require(document.get("_skipLearn") is not True and document.get("_deferred") is not True, "skipped")
    observed = document.get("o")
    observed = [each for each in (observed if isinstance(observed, list) else [observed]) if isinstance(each, dict)]
    activated = any(each.get("ActionTaken") is True or each.get("DeferredAction") is False for each in observed)
    require(document.get("DeferredAction") is not True or activated, "deferred")
    cost = number(one_of(document, "_label_cost", "_label_Cost"))
    dropped = number(document["pdrop"]) if document.get("pdrop") is not None else 0.0
    require(0 <= dropped < 1, "pdrop")
    order = document.get("a")
    order = [each for each in (order if isinstance(order, list) else [order]) if each is not None]
    order = [number(each) for each in order]
    require(sorted(order) == list(range(1, len(items) + 1)), "a")
    action = int(order[0]) - 1
    stated_action, index = one_of(document, "_label_Action", "_label_action"), document.get("_labelIndex")
    require(stated_action is None or number(stated_action) == action + 1, "_label_Action")
    require(index is None or number(index) == action, "_labelIndex")
    listed = one_of(document, "p", "_p")
    listed = [each for each in (listed if isinstance(listed, list) else [listed]) if each is not None]
    probs = [number(each) for each in listed]
    stated = one_of(document, "_label_probability", "_label_Probability")
    stated = None if stated is None else number(stated)
    if probs:
        require(len(probs) == len(items) and all(0 <= p <= 1 + 1e-4 for p in probs), "p")
        require(abs(sum(probs) - 1) <= 1e-4, "sum")
        total = sum(probs) if abs(sum(probs) - 1) > 1e-7 else 1.0
        probs = [probs[order.index(k + 1)] / total for k in range(len(items))]
        propensity = probs[action]
        near = (
            [abs(stated - each) <= 1e-5 for each in (propensity, propensity * (1 - dropped))]
            if stated is not None
            else [True]
        )
        require(any(near), "stated")
    else:
        propensity, probs = stated, None
        require(stated is not None and dropped == 0, "no probability")
    require(0 < propensity <= 1, "propensity")
    return (
        cost,
        action,
        probs,
        propensity,
        moment(document.get("Timestamp")),
        shared,
        [features(item) for item in items],
    )


def moment(text):
    if text is None:
        return None
    require(type(text) is str, "time")
    found = re.fullmatch(
        r"([0-9]{4})-([0-9]{2})-([0-9]{2})T([0-9]{2}):([0-9]{2}):([0-9]{2})(\.[0-9]+)?(Z|[+-].*)?", text
    )
    require(found is not None, "time")
    try:
        whole = datetime(*(int(part) for part in found.groups()[:6]))
    except ValueError as error:
        raise NoRoundError("time") from error
    ahead = timedelta()
    if found[8] not in (None, "Z"):
        zone = re.fullmatch(r"([+-])([01][0-9]|2[0-3]):([0-5][0-9])", found[8], re.ASCII)
        require(zone is not None, "time")
        ahead = timedelta(minutes=int(zone[2]) * 60 + int(zone[3])) * (-1 if zone[1] == "-" else 1)
    try:
        return whole - ahead + timedelta(microseconds=int((found[7] or ".0")[1:].ljust(6, "0")[:6]))
    except OverflowError as error:
        raise NoRoundError("time") from error


def text_features(text):
    """Features behind the first bar."""
    found, namespace, scale = {}, "", 1.0
    for part in re.split(r"(?=\|)|[ \t\r]+", text):
        if part.startswith("|"):
            name, colon, value = part[1:].partition(":")
            require(not colon or (name and NUMBER.fullmatch(value)), "scale")
            namespace, scale = name, float(value) if colon else 1.0
            require(abs(scale) < float("inf"), "too large")
        elif part:
            name, colon, value = part.partition(":")
            require(name, "name")
            prefix = f"{namespace}." if namespace else ""
            if colon:
                is_number = NUMBER.fullmatch(value) is not None
                is_text = re.match(r"([0-9+.-]|nan|inf)", value, re.IGNORECASE) is None and ":" not in value
                require(value and (is_number or (is_text and scale == 1)), "value")
                if is_number:
                    require(abs(float(value)) < float("inf"), "too large")
                if is_number:
                    value = Written(value) if float(value) * scale == float(value) else float(value) * scale
                found.setdefault(prefix + name, []).append((value, False))
            elif scale != 1:
                found.setdefault(prefix + name, []).append((scale, False))
            elif "=" in name[1:]:
                place = name.index("=", 1)
                found.setdefault(prefix + name[:place], []).append((name[place + 1 :], False))
            else:
                found.setdefault(namespace or "words", []).append((name, True))
    return found


def text_line(line):
    """Words of the label, a tag, and features; None of an empty line."""
    line = line.rstrip(b"\r")
    if not line:
        return None
    try:
        line = line.decode()
    except UnicodeDecodeError as error:
        raise NoRoundError("UTF-8") from error
    require(line.strip(" \t\r") != "", "blanks")
    label, bar, rest = line.partition("|")
    label = label.partition("\t")[2] if "\t" in label else label
    words = [word for word in label.split(" ") if word]
    tag = None
    if words and (label.endswith(words[-1]) or words[-1].startswith("'")):
        tag = words.pop().removeprefix("'")
    return words, tag, text_features(bar + rest)


def label(word, form):
    """An action, and a cost and a probability where it has them."""
    action, *rest = word.split(":")
    require(re.fullmatch(form, action) is not None, "action")
    require(all(NUMBER.fullmatch(each) for each in rest), "label")
    require(len(rest) in (0, 2), "cost without probability")
    if rest:
        require(0 < float(rest[1]) <= 1 and abs(float(rest[0])) < float("inf"), "probability")
    return (int(action), *map(float, rest))


def cb(line):
    """A round: the actions listed, that taken, cost, propensity and features."""
    words, _, found = text_line(line)
    labels = [label(word, "[1-9][0-9]{0,8}") for word in words]
    taken = [each for each in labels if len(each) == 3]
    require(len(taken) == 1, "one cost")
    listed = [each[0] for each in labels]
    require(len(set(listed)) == len(listed), "twice")
    return listed, *taken[0], found


def cb_adf(lines):
    """A round: place of the action taken, cost, propensity, shared features, the actions' features, their tags."""
    read = [text_line(line) for line in lines]
    shared = {}
    if "shared" in read[0][0]:
        require(read[0][0] == ["shared"], "shared")
        shared, read = read[0][2], read[1:]
    require(read and not any("shared" in words for words, _, _ in read), "shared")
    taken = []
    for place, (words, _, _) in enumerate(read):
        require(len(words) <= 1, "several labels")
        each = label(words[0], "[0-9]{1,9}") if words else ()
        taken += [(place, *each[1:])] if len(each) == 3 else []
    require(len(taken) == 1, "one cost")
    return *taken[0], shared, [found for _, _, found in read], [tag for _, tag, _ in read]
