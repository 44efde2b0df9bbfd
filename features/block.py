"""Blocks of columns; `xlarank.features.catalogue` lists them."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from enum import StrEnum
from functools import cached_property
from typing import Any, Literal

import numpy as np
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


class Column(str):
    """Meaning of a column, declared together with its cause (default: its block's)."""

    cause: Cause | None

    def __new__(cls, meaning: str, cause: Cause | None = None) -> Column:
        column = super().__new__(cls, meaning)
        column.cause = cause
        return column


class Block(ABC):
    """A group of columns with one physical idea.

    A subclass sets the attributes (in ``__init__`` for a family of blocks) and `compute`, which
    cannot write into the graph. Blocks are listed in `xlarank.features.catalogue`.

    Attributes:
        listwise: whether the columns depend on all configurations of the graph (not on labels).
        cause: physical cause behind the columns that declare none.
        columns: name (``block__what__how``) -> meaning with its unit, in column order.
    """

    kinds: tuple[Kind, ...] = ("layout",)
    scope: Scope = "configuration"
    listwise: bool = False
    cause: Cause = Cause.PROGRAM
    columns: dict[str, str]

    @cached_property
    def title(self) -> str:
        """Name in documents, messages and options: the class's, unless a family sets another."""
        return type(self).__name__

    @property
    def about(self) -> str:
        """Docstring of the class, without its indentation."""
        return inspect.cleandoc(self.__doc__ or "")

    @abstractmethod
    def compute(self, context: Any) -> NDArray[np.floating[Any]]:
        """Return the columns, ``(columns,)`` for a graph block, else ``(configs, columns)``."""

    def require_shape(self, values: Any, *shape: int) -> NDArray[np.float32]:
        """Return the computed values; raise `ValueError` unless they have this shape."""
        array = np.asarray(values)
        if array.shape != shape:
            raise ValueError(f"{self.title} gave values of shape {array.shape}, not {shape}")
        with np.errstate(over="ignore"):  # infinite values are refused later
            return array.astype(np.float32, copy=False)
