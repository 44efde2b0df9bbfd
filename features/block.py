"""Blocks of columns; `xlarank.features.catalogue` lists them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import Any, Literal, NamedTuple

from numpy.typing import NDArray

from xlarank.data.graph import Kind

#: Entity that a column describes.
Scope = Literal["graph", "configuration"]


class Cause(StrEnum):
    """Physical cause behind a column, as shown by `explain` and the report.

    A set layout is a fusion barrier: its tensor cannot be fused away.
    """

    COPIES = "copies between unlike layouts"
    PADDING = "padding to hardware tiles"
    VIOLATION = "dimensions that misfit lanes and sublanes"
    FUSION = "fusion barriers"
    CHANGE = "layouts unlike the compiler's default"
    MINOR = "which dimension lies minor-most"
    SURROUNDINGS = "what surrounds the changed nodes"
    LISTWISE = "how common the choice is among the candidates"
    PROGRAM = "the program itself"
    TILES = "tile sizes and counts"
    INNER = "the inner loop"
    TRAFFIC = "memory traffic"
    ESTIMATE = "estimated time"


class Column(NamedTuple):
    """Meaning of a column with its unit, and the cause behind it."""

    meaning: str
    cause: Cause


@dataclass(frozen=True, eq=False)
class Block:
    """Columns with one physical idea and the function that computes them; made by `block`.

    Attributes:
        name, about: name of the function, and its docstring with the formula and its source.
        columns: name (``block__what__how``) -> meaning and cause, in column order.
        function: context -> values: ``(columns,)`` of a graph, else ``(configs, columns)``; if
            batched, context -> `xlarank.features.layout.aggregation.BatchFunction`.
        listwise: whether the columns depend on all configurations of the graph (not on labels).
    """

    name: str
    about: str
    columns: Mapping[str, Column]
    function: Callable[[Any], Any]
    kinds: tuple[Kind, ...]
    scope: Scope
    listwise: bool
    batched: bool

    def require_shape(self, values: NDArray[Any], shape: tuple[int, ...]) -> NDArray[Any]:
        """Return computed values; raises `ValueError` for another shape, as numpy broadcasts."""
        if values.shape != shape:
            raise ValueError(f"{self.name} returned shape {values.shape}, expected {shape}")
        return values


def block(
    columns: Mapping[str, str | Column],
    *,
    kinds: tuple[Kind, ...] = ("layout", "tile"),
    cause: Cause = Cause.PROGRAM,
    scope: Scope = "configuration",
    listwise: bool = False,
    batched: bool = False,
) -> Callable[[Callable[[Any], Any]], Block]:
    """Return a decorator that makes a `Block` of a function.

    ``columns`` are names and meanings; ``cause`` is the cause of all but those given as `Column`.
    """

    def declare(function: Callable[[Any], Any]) -> Block:
        if not function.__doc__:
            raise TypeError(f"the block {function.__name__} has no docstring")
        with_causes = {
            name: meaning if isinstance(meaning, Column) else Column(meaning, cause)
            for name, meaning in columns.items()
        }
        about = inspect.cleandoc(function.__doc__)
        name = function.__name__
        return Block(name, about, with_causes, function, kinds, scope, listwise, batched)

    return declare


#: Decorator for columns that aggregate the nodes and pairs of a configuration of layouts.
layout_block = partial(block, kinds=("layout",), batched=True)
#: Decorator for columns of tiles.
tile_block = partial(block, kinds=("tile",))
