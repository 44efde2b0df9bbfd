"""Blocks of columns; `xlarank.features.catalogue` lists them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from enum import Enum, StrEnum
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from xlarank.data.errors import BlockError
from xlarank.data.graph import Kind


class Tier(StrEnum):
    """Cost of a block. The fast tier computes FAST blocks only; the full tier computes all."""

    FAST = "fast"
    FULL = "full"


class Scope(Enum):
    """Entity that a column describes."""

    GRAPH = "graph"
    CONFIG = "configuration"
    INSTANCE = "instance"


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
    CANDIDATES = "how common the choice is among the candidates"
    PROGRAM = "the program itself"
    TILES = "tile sizes and counts"
    INNER = "the inner loop"
    TRAFFIC = "memory traffic"
    ESTIMATE = "estimated time"
    SIBLINGS = "what was measured of the program at another size"


class Column(str):
    """Meaning of a column, declared together with its cause (default: its block's) and its
    formula.
    """

    cause: Cause | None
    formula: Callable[..., Any] | None

    def __new__(
        cls, meaning: str, cause: Cause | None = None, formula: Callable[..., Any] | None = None
    ) -> Column:
        column = super().__new__(cls, meaning)
        column.cause = cause
        column.formula = formula
        return column


class Block(ABC):
    """A group of columns with one physical idea.

    A subclass sets the class attributes and `compute`. It is listed in `xlarank.features.catalogue`
    or defined in a user's file. Missing docstrings and meanings are refused, as are malformed and
    duplicate names.

    Attributes:
        transductive: whether the columns depend on all candidates of the graph (not on labels).
        cause: physical cause behind the columns that declare none.
        columns: name (``block__what__how``) -> meaning with its unit, in column order.
    """

    kinds: ClassVar[tuple[Kind, ...]] = ("layout",)
    scope: ClassVar[Scope] = Scope.CONFIG
    tier: ClassVar[Tier] = Tier.FAST
    transductive: ClassVar[bool] = False
    cause: ClassVar[Cause] = Cause.PROGRAM
    columns: ClassVar[dict[str, str]]

    @abstractmethod
    def compute(self, context: Any) -> NDArray[np.floating[Any]]:
        """Return the columns, ``(columns,)`` for a graph block, else ``(configs or instances,
        columns)``.
        """

    def require_shape(
        self, values: NDArray[np.floating[Any]], *shape: int
    ) -> NDArray[np.floating[Any]]:
        """Return the computed values; raise `BlockError` unless they have this shape."""
        if np.shape(values) != shape:
            raise BlockError(
                f"{type(self).__name__} gave values of shape {np.shape(values)}",
                expected=str(shape),
            )
        return values
