"""Text files in blocks of whole lines, decompressed while they are read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from seachange.errors import LogError
from seachange.formats.column_roles import require_no_columns
from seachange.formats.sources import BYTE_ORDER_MARK, DAMAGE, names_of, opened

if TYPE_CHECKING:
    from seachange.log.features import FeatureSpec

# A block ends when it reaches either size. The limit on lines bounds the memory that many short lines take.
BLOCK_BYTES, BLOCK_LINES = 1 << 23, 1 << 16
PIECE_BYTES = 1 << 16
LONGEST_LINE = 1 << 24
SHOWN = 200  # characters of a rejected line that are kept


class Block(NamedTuple):
    """Consecutive lines of a file; the last one ends with a newline, too."""

    source: str
    text: bytearray


def blocks_of(path: Path, after: bytes = b"") -> Iterator[Block]:
    """Yield a file in blocks of whole lines, each followed by ``after``.

    A truncated or damaged file yields its whole lines and then raises a LogError. A byte order mark is removed.
    """
    with opened(path) as stream:
        text, n_lines, first, damage = bytearray(), 0, True, None
        piece = b"?"
        while piece:
            try:
                # read1 makes one read of the compressed file, so nothing before the damage is lost.
                piece = stream.read1(min(PIECE_BYTES, BLOCK_BYTES))  # type: ignore[attr-defined]
            except DAMAGE as error:
                piece, damage = b"", error
            text += piece
            if not piece and text and not text.endswith(b"\n") and damage is None:
                text += b"\n"
                n_lines += 1
            n_lines += piece.count(b"\n")
            if len(text) < BLOCK_BYTES and n_lines < BLOCK_LINES and piece:
                continue
            if first:
                text, first = text.removeprefix(BYTE_ORDER_MARK), False
            if n_lines:
                cut = text.rfind(b"\n") + 1
                block, text, n_lines = text[:cut], text[cut:], 0
                block += after
                yield Block(path.name, block)
            if len(text) > LONGEST_LINE:
                raise LogError(f"{str(path)!r} has a line of more than {LONGEST_LINE:,} bytes; that is not a text log.")
        if damage is not None:
            raise LogError(
                f"{str(path)!r} breaks off or is damaged: {getattr(damage, 'strerror', None) or damage}. "
                "Download or copy the file again."
            ) from damage


def line_blocks(path: Path) -> Iterator[bytes]:
    """Yield the bytes of a file in blocks of whole lines."""
    return (bytes(block.text) for block in blocks_of(path))


def shown(content: bytes) -> str:
    """Return bytes as text that is short enough for a message."""
    return content[: 4 * SHOWN].decode(errors="replace").rstrip("\r\n")[:SHOWN]


class TextLog:
    """A log in one or several text files, in a format without named columns.

    ``features`` tell whether the actions in a round's list are identified by name or by features.
    """

    format: str
    columns: dict[str, str]
    description: str  # of the format, for errors

    def __init__(
        self,
        path: str | Path | Sequence[str | Path],
        columns: Mapping[str, str | Sequence[str]] | None = None,
        *,
        features: FeatureSpec | None = None,
    ) -> None:
        require_no_columns(columns, self.description)
        self.files = [Path(file) for file in ([path] if isinstance(path, str | Path) else path)]
        self.named = features.named if features is not None and features.listed else None

    @property
    def name(self) -> str:
        """The name of the first file, and how many more there are."""
        more = len(self.files) - 1
        return self.files[0].name + (f" and {more} more" if more else "")

    def blocks(self, after: bytes = b"") -> Iterator[Block]:
        """Yield all files in blocks of whole lines, each followed by ``after``."""
        names = names_of(self.files)
        for file in self.files:
            for block in blocks_of(file, after):
                yield block._replace(source=names[file])
