"""Open Bandit Pipeline without torch, which only its neural learners use.

Its modules import torch at their top. Here they find modules in which every name is an empty class, and these are gone
when the imports are done: a neural learner would fail, all else is the package as it is.
"""

from __future__ import annotations

import sys
from types import ModuleType

NAMES = ("torch", "torch.nn", "torch.nn.functional", "torch.optim", "torch.utils", "torch.utils.data")


class Absent(ModuleType):
    """A module that holds an empty class under every name."""

    __path__: tuple[str, ...] = ()

    def __getattr__(self, name: str) -> object:
        """The class, or the module of that name."""
        if name.startswith("__"):
            raise AttributeError(name)
        return sys.modules.get(f"{self.__name__}.{name}") or type(name, (), {})


def import_pipeline() -> None:
    """Import the parts of Open Bandit Pipeline that are measured, after which ``import obp.ope`` and the like work."""
    missing = [name for name in NAMES if name not in sys.modules]
    sys.modules.update({name: Absent(name) for name in missing})
    try:
        import obp.dataset
        import obp.ope
        import obp.policy  # noqa: F401
    finally:
        for name in missing:
            del sys.modules[name]
