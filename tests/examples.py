"""How many random examples a test goes through: all of them, or a few where the slow tests are left out."""

from __future__ import annotations

from hypothesis import settings

#: Most examples of a property in the quick set.
FEW = 8


def examples(most: int) -> settings:
    """At most so many; to decorate a property that is dearer than others."""
    assert settings.default is not None
    return settings(max_examples=min(most, FEW) if settings.default.max_examples == FEW else most)
