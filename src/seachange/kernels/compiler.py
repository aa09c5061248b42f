"""How kernels are compiled: once per machine, without the interpreter's lock, and with 1 / 0 = ∞.

``compiled`` does the arithmetic as written. ``fused`` may round a product and a sum once instead of twice, which gives
the same result everywhere. ``reordered`` may also sum in any order. ``inlined`` functions become part of their callers.

Machine code is cached next to the package, in ``NUMBA_CACHE_DIR``, or in the user's cache folder. If none of them can
be written (a read-only container), a private temporary folder serves instead. A full or damaged cache costs time only.
"""

import os
import stat
import tempfile
from functools import cache
from pathlib import Path

from numba import config, njit
from numba.core.caching import FunctionCache

from seachange.errors import warn


class KernelCache(FunctionCache):
    """A cache of machine code that never stops a kernel from running."""

    def __init__(self, function):
        self._enabled, self._cache_path = False, None
        try:
            super().__init__(function)
        except (RuntimeError, OSError):
            folder = _private_folder()
            if folder is None:
                return
            given, config.CACHE_DIR = config.CACHE_DIR, folder
            try:
                super().__init__(function)
            except (RuntimeError, OSError):
                self._enabled = False
            finally:
                config.CACHE_DIR = given

    def load_overload(self, sig, target_context):
        """The machine code for a signature; None if there is none or it cannot be read."""
        try:
            return super().load_overload(sig, target_context)
        except Exception as error:
            _warn_of_cache(self._cache_path, type(error).__name__)
            try:
                # An empty index can be written again.
                self.flush()
            except Exception:
                self.disable()
            return None

    def save_overload(self, sig, data):
        """Keep machine code, if possible."""
        try:
            super().save_overload(sig, data)
        except Exception as error:
            _warn_of_cache(self._cache_path, getattr(error, "strerror", None) or type(error).__name__)


@cache
def _private_folder():
    """A temporary folder of this user alone; None if none can be made."""
    user = getattr(os, "getuid", lambda: 0)()
    try:
        folder = Path(tempfile.gettempdir()) / f"seachange-kernels-{user}"
        folder.mkdir(mode=0o700, exist_ok=True)
        found = folder.lstat()
        # Machine code from a folder that others can write to would be theirs.
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != user or found.st_mode & 0o022:
            folder = Path(tempfile.mkdtemp(prefix=f"seachange-kernels-{user}-"))
    except OSError:
        warn("compiled kernels cannot be cached, so every run compiles them again.")
        return None
    warn(
        f"compiled kernels are cached in {str(folder)!r}: neither the package nor the home folder can be written. "
        "Set NUMBA_CACHE_DIR to a folder that is kept.",
    )
    return str(folder)


@cache
def _warn_of_cache(folder, reason):
    warn(
        f"the cache of compiled kernels in {folder!r} cannot be used ({reason}), so they are compiled again. Free some "
        "disk space, or delete the .nbi and .nbc files in it.",
    )


def _njit(**options):
    """A decorator that compiles with ``options``."""

    def decorate(function):
        kernel = njit(nogil=True, error_model="numpy", **options)(function)
        if not config.DISABLE_JIT:
            kernel._cache = KernelCache(function)
        return kernel

    return decorate


compiled = _njit()
inlined = _njit(forceinline=True)
fused = _njit(fastmath={"contract"})
reordered = _njit(fastmath={"reassoc", "contract", "nsz"})
