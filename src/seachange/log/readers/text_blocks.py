"""Text files in blocks of whole lines, worked on by all cores, in the order of the file."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple, TypeVar

from seachange.engine.threads import cores
from seachange.log.readers.streams import opened

BLOCK_BYTES = 1 << 22
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
Made = TypeVar("Made")


class Block(NamedTuple):
    """Lines that follow each other; the last ends with a line feed, too."""

    source: str
    first_line: int  # in the file, from 1 on
    text: bytes


def blocks_of(path: Path, end: bytes = b"\n") -> Iterator[Block]:
    """A file in blocks that end where ``end`` does; only lines longer than a block make one larger."""
    first_line, rest, begun = 1, b"", False
    with opened(path) as stream:
        while more := stream.read(BLOCK_BYTES):
            if not begun:
                begun, more = True, more.removeprefix(BYTE_ORDER_MARK)
            rest += more
            if (cut := rest.rfind(end) + len(end)) >= len(end):
                yield Block(path.name, first_line, rest[:cut])
                first_line += rest.count(b"\n", 0, cut)
                rest = rest[cut:]
    if rest:
        yield Block(path.name, first_line, rest if rest.endswith(b"\n") else rest + b"\n")


def worked_on(blocks: Iterator[Block], work: Callable[[Block], Made]) -> Iterator[Made]:
    """What ``work`` makes of each block; a few blocks ahead of whoever asks."""
    waiting: deque[Future[Made]] = deque()
    with ThreadPoolExecutor(cores()) as pool:
        try:
            for block in blocks:
                waiting.append(pool.submit(work, block))
                if len(waiting) > cores():
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()
