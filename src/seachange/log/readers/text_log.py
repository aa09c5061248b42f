"""Logs in text files that follow each other, in formats that have a fixed place for everything."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from seachange.log.readers.places import require_no_columns
from seachange.log.readers.sources import names_of
from seachange.log.readers.text_blocks import Block, blocks_of

if TYPE_CHECKING:
    from seachange.log.features import FeatureSpec


class TextLog:
    """One log of one file or of several, in their order.

    ``features`` say whether the actions of a round's list are told by their names or by their features.
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
        """What the files are called, in few words."""
        more = len(self.files) - 1
        return self.files[0].name + (f" and {more} more" if more else "")

    def blocks(self, after: bytes = b"") -> Iterator[Block]:
        """The files in blocks of whole lines; ``after`` is put behind each."""
        names = names_of(self.files)
        for file in self.files:
            for block in blocks_of(file, after):
                yield block._replace(source=names[file])
