"""Text files in blocks of whole lines, unpacked on the way."""

from __future__ import annotations

import lzma
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from seachange.errors import LogError
from seachange.log.readers.lines import BYTE_ORDER_MARK, LONGEST_LINE
from seachange.log.readers.streams import opened

BLOCK_BYTES = 1 << 23
PIECE_BYTES = 1 << 20
# What a file that breaks off or is damaged may raise while it is unpacked.
DAMAGE = (OSError, EOFError, zlib.error, lzma.LZMAError)


class Block(NamedTuple):
    """Lines that follow each other; the last ends with a line feed, too."""

    source: str
    text: bytearray


def blocks_of(path: Path, after: bytes = b"") -> Iterator[Block]:
    """A file in blocks of whole lines; ``after`` is put behind each.

    A file that breaks off gives the lines that are whole and then a LogError. A mark of byte order is no part of it.
    """
    with opened(path) as stream:
        text, begun, damage = bytearray(), False, None
        piece = b"not yet"
        while piece:
            try:
                # One read of what lies below: whatever was unpacked before the damage is not lost.
                piece = stream.read1(min(PIECE_BYTES, BLOCK_BYTES))  # type: ignore[attr-defined]
            except DAMAGE as error:
                piece, damage = b"", error
            text += piece
            if not piece and text and not text.endswith(b"\n") and damage is None:
                text += b"\n"
            if len(text) < BLOCK_BYTES and piece:
                continue
            if not begun:
                text, begun = text.removeprefix(BYTE_ORDER_MARK), True
            cut = text.rfind(b"\n") + 1
            if cut:
                block, text = text[:cut], text[cut:]
                yield Block(path.name, block + after)
            if len(text) > LONGEST_LINE:
                raise LogError(f"{str(path)!r} has a line of more than {LONGEST_LINE:,} bytes: it is no log of lines.")
        if damage is not None:
            raise LogError(
                f"{str(path)!r} breaks off or is damaged: {getattr(damage, 'strerror', None) or damage}. "
                "Fetch the file again."
            ) from damage


def line_blocks(path: Path) -> Iterator[bytes]:
    """The bytes of a file in blocks of whole lines."""
    return (bytes(block.text) for block in blocks_of(path))
