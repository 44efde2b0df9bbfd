"""How many random examples a test goes through: all of them, or a few where the slow tests are left out."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import settings

#: Most examples of a property in the quick set.
FEW = 8


def examples(most: int) -> settings:
    """At most so many; to decorate a property that is dearer than others."""
    assert settings.default is not None
    return settings(max_examples=min(most, FEW) if settings.default.max_examples == FEW else most)


def first_is_quick(values: Iterable[Any], quick: int = 1) -> list[Any]:
    """Parameters of which all but the first are slow."""
    listed = list(values)
    return [*listed[:quick], *(pytest.param(value, marks=pytest.mark.slow) for value in listed[quick:])]
