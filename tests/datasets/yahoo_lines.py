"""Invented visits in the formats of R6A and R6B, and a slow reader of them that shares nothing with the fast one."""

import re

ORDER = (2, 3, 4, 5, 6, 1)
DECIMAL = re.compile(r"-?(?=[0-9.]*[0-9])[0-9]*\.?[0-9]*", re.ASCII)


def pairs(values):
    """Six values, by index from 1 on, as the files have them."""
    return " ".join(f"{index}:{values[index - 1]:.6f}" for index in ORDER)


def r6a_line(time, shown, click, user, pool):
    """A visit; ``pool`` maps article ids to their six values."""
    articles = " ".join(f"|{name} {pairs(values)}" for name, values in pool.items())
    return f"{time} {shown} {click} |user {pairs(user)} {articles}"


def r6b_line(time, shown, click, user, pool):
    features = " ".join(map(str, user))
    return f"{time} id-{shown} {click} |user {features} {' '.join(f'|id-{name}' for name in pool)}"


def invented_r6a(n, rng, n_articles=4):
    values = [[1.0, *rng.dirichlet([1.0] * 5)] for _ in range(n_articles + 3)]
    lines = []
    for t in range(n):
        ids = rng.choice(n_articles + 3, size=n_articles, replace=False)
        pool = {900_000 + i: values[i] for i in ids}
        user = [1.0, *rng.dirichlet([1.0] * 5)]
        lines.append(r6a_line(1_241_000_000 + t, 900_000 + rng.choice(ids), int(rng.random() < 0.3), user, pool))
    return lines


def invented_r6b(n, rng, n_articles=5):
    lines = []
    for t in range(n):
        ids = 900_000 + rng.choice(n_articles + 4, size=n_articles, replace=False)
        user = [1, *rng.choice(range(2, 137), size=rng.integers(0, 9), replace=False)]
        rng.shuffle(user)
        lines.append(r6b_line(1_317_000_000 + t, rng.choice(ids), int(rng.random() < 0.3), user, ids))
    return lines


def whole(text):
    if not re.fullmatch("[0-9]{1,18}", text, re.ASCII):
        raise ValueError(text)
    return int(text)


def decimal(text):
    if not DECIMAL.fullmatch(text):
        raise ValueError(text)
    return float(text)


def six(words):
    found = {}
    for word in words:
        index, value = word.split(":", 1)
        if whole(index) in found or not 1 <= whole(index) <= 6 or len(index) > 1:
            raise ValueError(word)
        found[whole(index)] = decimal(value)
    if len(found) != 6:
        raise ValueError(words)
    return [found[i] for i in range(1, 7)]


def click(text):
    if text not in ("0", "1"):
        raise ValueError(text)
    return int(text)


def read_r6a(line):
    """(time, place, click, user, ids, articles); ValueError where the line is no visit."""
    words = line.replace("\t", " ").split(" ")
    words = [word for word in words if word]
    if len(words) < 17 or (len(words) - 10) % 7 or words[3] != "|user":
        raise ValueError(line)
    ids, articles = [], []
    for start in range(10, len(words), 7):
        if not words[start].startswith("|"):
            raise ValueError(line)
        ids.append(whole(words[start][1:]))
        articles.append(six(words[start + 1 : start + 7]))
    if len(set(ids)) < len(ids):
        raise ValueError(line)
    return whole(words[0]), ids.index(whole(words[1])), click(words[2]), six(words[4:10]), ids, articles


def read_r6b(line):
    words = [word for word in line.replace("\t", " ").split(" ") if word]
    if len(words) < 6 or words[3] != "|user" or not words[1].startswith("id-"):
        raise ValueError(line)
    first = next(i for i in range(4, len(words) + 1) if i == len(words) or words[i].startswith("|"))
    user, ids = [whole(word) for word in words[4:first]], []
    for word in words[first:]:
        if not word.startswith("|id-"):
            raise ValueError(line)
        ids.append(whole(word[4:]))
    if len(set(user)) < len(user) or 1 not in user or not all(1 <= i <= 136 for i in user) or len(set(ids)) < len(ids):
        raise ValueError(line)
    return whole(words[0]), ids.index(whole(words[1][3:])), click(words[2]), sorted(user), ids


def read_slowly(content, release):
    """Rounds by line number, and the numbers of the lines that hold none."""
    rounds, rejected = {}, []
    for number, line in enumerate(content.split(b"\n"), 1):
        line = line.removesuffix(b"\r").decode("latin-1")
        if not line.strip(" \t"):
            continue
        try:
            rounds[number] = (read_r6a if release == "yahoo-r6a" else read_r6b)(line)
        except ValueError:
            rejected.append(number)
    return rounds, rejected


def rounds_of(parts, release):
    """What the fast reader read, in the same form."""
    rounds, rejected = {}, []
    for part in parts:
        rejected += [each.line for each in part.rejected]
        bounds, names = part.pool.offsets.tolist(), part.pool.names.to_list()
        articles, users = part.pool.features.rows(), part.features.rows()
        heads = zip(part.lines.tolist(), part.time, part.action, part.reward, part.propensity, strict=True)
        for t, (line, time, place, clicked, propensity) in enumerate(heads):
            pool = slice(bounds[t], bounds[t + 1])
            assert propensity == 1 / (bounds[t + 1] - bounds[t])
            if release == "yahoo-r6a":
                seen = list(users[t]), names[pool], [list(row) for row in articles[pool]]
            else:
                seen = [i for i, there in enumerate(users[t], 1) if there], names[pool]
            rounds[line] = (time, place, clicked, *seen)
    return rounds, rejected
