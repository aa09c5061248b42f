"""How kernels are compiled: once for a machine, without the interpreter's lock, 1 / 0 being infinite.

``compiled`` does the arithmetic as it is written. ``fused`` may round a product and a sum once instead of twice, which
is the same wherever it is done. ``reordered`` may sum in any order, too. ``inlined`` functions become part of those
that call them, whatever their size.
"""

from __future__ import annotations

from functools import partial

from numba import njit

_njit = partial(njit, cache=True, nogil=True, error_model="numpy")

compiled = _njit()
inlined = _njit(forceinline=True)
fused = _njit(fastmath={"contract"})
reordered = _njit(fastmath={"reassoc", "contract", "nsz"})
