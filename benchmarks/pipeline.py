"""Import Open Bandit Pipeline without torch, which only its neural learners use.

Its modules import torch at the top. During the import we provide stub modules in which every name is an empty class.
Neural learners do not work; everything else is the unmodified package.
"""

from __future__ import annotations

import sys
from types import ModuleType

NAMES = ("torch", "torch.nn", "torch.nn.functional", "torch.optim", "torch.utils", "torch.utils.data")


class Absent(ModuleType):
    """A stub module in which every name is an empty class."""

    __path__: tuple[str, ...] = ()

    def __getattr__(self, name: str) -> object:
        """An empty class, or the stub submodule of that name."""
        if name.startswith("__"):
            raise AttributeError(name)
        return sys.modules.get(f"{self.__name__}.{name}") or type(name, (), {})


def import_pipeline() -> None:
    """Import the parts of Open Bandit Pipeline that we use, so that later imports such as ``obp.ope`` work."""
    missing = [name for name in NAMES if name not in sys.modules]
    sys.modules.update({name: Absent(name) for name in missing})
    try:
        import obp.dataset
        import obp.ope
        import obp.policy  # noqa: F401
    finally:
        for name in missing:
            del sys.modules[name]
