"""Which of the columns a ranker looks at."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from xlarank.data.schema import LAYOUT_SLOTS
from xlarank.features.block import Scope
from xlarank.features.catalogue import blocks_of
from xlarank.features.targets import Target, foreign_columns
from xlarank.models.param_checks import OneOf

#: ``all``: every column; ``no_graph``: without those that are constant within a graph (they cannot order
#: anything alone and tell graphs apart); ``no_candidates``: without the transductive ones; ``alone``: neither.
CHOICES: Final = ("all", "no_graph", "no_candidates", "alone")

#: Slots of operands, as words of columns' names.
_OPERANDS: Final = frozenset(LAYOUT_SLOTS[1:])


def speaks_of_operands(column: str) -> bool:
    """Whether a column of configurations is about the layout of an operand, which programs may not let one set.

    >>> speaks_of_operands("padding__input_waste__mean"), speaks_of_operands("padding__output_waste__mean")
    (True, False)
    """
    return not _OPERANDS.isdisjoint(column.replace("__", "_").split("_"))


def chosen_columns(columns: list[str], choice: str, target: Target | None = None) -> NDArray[np.intp]:
    """Indices into ``columns`` of those that the choice and the target leave, ascending; raises `ModelError`."""
    graph, candidates = leaves_out(choice)
    left_out: set[str] = {*foreign_columns(target)}
    for block in [*blocks_of("layout"), *blocks_of("tile")]:
        if (graph and block.scope is Scope.GRAPH) or (candidates and block.transductive):
            left_out.update(block.columns)
    return np.array([i for i, name in enumerate(columns) if name not in left_out], np.intp)


def leaves_out(choice: str) -> tuple[bool, bool]:
    """Whether a choice leaves out the columns that are constant within a graph, and the transductive ones.

    >>> leaves_out("no_graph")
    (True, False)
    """
    OneOf(CHOICES)("columns", choice)
    return choice in ("no_graph", "alone"), choice in ("no_candidates", "alone")


def checked_indices(value: Any, columns: int) -> NDArray[np.intp]:
    """Indices of chosen columns as they were saved; raises `ValueError` unless they ascend within the columns."""
    if not isinstance(value, list) or not all(type(index) is int and 0 <= index < columns for index in value):
        raise ValueError(f"the chosen columns are not among its {columns}")
    found = np.array(value, np.intp)
    if (np.diff(found) <= 0).any():
        raise ValueError("the chosen columns do not ascend")
    return found
