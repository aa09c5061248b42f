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
    text: bytearray


def blocks_of(path: Path, after: bytes = b"") -> Iterator[Block]:
    """A file in blocks of whole lines; ``after`` is put behind each."""
    with opened(path) as stream:
        rest, begun = b"", False
        while True:
            text = bytearray(len(rest) + BLOCK_BYTES)
            text[: len(rest)] = rest
            filled = len(rest)
            with memoryview(text) as view:
                while filled < len(text) and (more := stream.readinto(view[filled:])):  # type: ignore[attr-defined]
                    filled += more
            at_end = filled < len(text)
            del text[filled:]
            if not begun and text.startswith(BYTE_ORDER_MARK):
                del text[: len(BYTE_ORDER_MARK)]
            begun = True
            if at_end and text and not text.endswith(b"\n"):
                text += b"\n"
            cut = text.rfind(b"\n") + 1
            rest = bytes(text[cut:])
            del text[cut:]
            if text:
                text += after
                yield Block(path.name, text)
            if at_end:
                return


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
