"""Describe columns, from the blocks that compute them."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import get_args

from xlarank.data.errors import XlarankError, did_you_mean
from xlarank.data.graph import Kind
from xlarank.features.catalogue import every_block


@dataclass(frozen=True)
class ColumnDescription:
    """A column and the class that computes it (``block``); ``about`` has the formula and its source."""

    name: str
    meaning: str
    kinds: tuple[str, ...]
    block: str
    about: str
    scope: str
    tier: str
    transductive: bool


def describe_columns(pattern: str) -> list[ColumnDescription]:
    """Return the columns that match ``pattern``, which may hold ``*`` and ``?``; raises `XlarankError` for none."""
    columns = {
        name: ColumnDescription(
            name, meaning, block.kinds, type(block).__name__, inspect.cleandoc(block.__doc__ or ""),
            block.scope.value, block.tier.value, block.transductive,
        )
        for kind in get_args(Kind)
        for block in every_block(kind)
        for name, meaning in block.columns.items()
    }  # fmt: skip
    if matching := [columns[name] for name in columns if fnmatchcase(name, pattern)]:
        return matching
    hint = did_you_mean(pattern, columns, cutoff=0.5) or "ask for several with a pattern such as 'padding__*'"
    raise XlarankError(f"{pattern!r} is not a column", expected=f"one of {len(columns)} columns", do=hint)
