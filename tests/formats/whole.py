"""A raw log in one piece, for tests."""

import polars


def whole(log, rows=1 << 17):
    """All rounds as a table with the words of the places as names, the lines they stand in, and what was rejected."""
    frames, lines, rejected = [], [], []
    for part in log.parts(rows):
        places = {word: getattr(part, word) for word in ("action", "reward", "propensity", "time", "sequence")}
        columns = [column.alias(word) for word, column in places.items() if column is not None]
        frames.append(polars.DataFrame([*columns, *part.features.get_columns()]))
        lines += part.lines.tolist()
        rejected += part.rejected
        assert len(part) <= rows
    return polars.concat(frames, how="vertical_relaxed"), lines, rejected
