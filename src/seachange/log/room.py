"""Memory for large arrays, asked for and given back a few rows at a time."""

from __future__ import annotations

import mmap
import sys
from contextlib import suppress
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

# Linux's MADV_POPULATE_WRITE, which Python has no name for.
POPULATE = 23


class Room:
    """An array of zeros, in pages of the usual size.

    NumPy asks for huge ones, which virtual machines that lend out their free memory can take seconds a gigabyte to get.
    """

    def __init__(self, shape: tuple[int, ...], dtype: npt.DTypeLike) -> None:
        size = prod(shape) * np.dtype(dtype).itemsize
        self._pages: mmap.mmap | None = None
        if sys.platform == "win32" or size == 0 or np.dtype(dtype).hasobject:
            self.array: npt.NDArray[Any] = np.zeros(shape, dtype=dtype)
            return
        self._pages = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self.array = np.frombuffer(self._pages, dtype=dtype).reshape(shape)

    def ask_for(self, start: int, end: int) -> None:
        """Have the memory of some rows all at once, which is quicker than page by page."""
        stride = self.array.strides[0]
        first, last = start * stride // mmap.PAGESIZE * mmap.PAGESIZE, end * stride
        if self._pages is not None and first < last:
            with suppress(OSError, AttributeError):  # of older systems
                self._pages.madvise(POPULATE, first, last - first)

    def let_go(self, start: int, end: int) -> None:
        """Give the memory of some rows back to the system, but for pages that others have a share in."""
        stride = self.array.strides[0]
        first, last = -(-start * stride // mmap.PAGESIZE) * mmap.PAGESIZE, end * stride // mmap.PAGESIZE * mmap.PAGESIZE
        if self._pages is not None and first < last:
            self._pages.madvise(mmap.MADV_DONTNEED, first, last - first)
