"""How many examples a property is tried on."""

from hypothesis import settings

# ``make test`` tries the same examples every time; ``make test-long`` tries four times as many, and new ones.
# Neither has a deadline, which a busy machine would break.
settings.register_profile("short", max_examples=25, deadline=None, derandomize=True)
settings.register_profile("long", max_examples=100, deadline=None, print_blob=True)


def examples(n: int) -> int:
    """``n`` in ``make test-long``, a quarter of it in ``make test``."""
    return n * settings.default.max_examples // 100
