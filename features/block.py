"""What a block of columns is; `xlarank.features.catalogue` lists all there are."""

from __future__ import annotations

from abc import ABC, abstractmethod
from enum import Enum, StrEnum
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from xlarank.data.errors import BlockError
from xlarank.data.graph import Kind


class Tier(StrEnum):
    """What a block costs: FAST blocks make the cheap set, the full set has both."""

    FAST = "fast"
    FULL = "full"


class Scope(Enum):
    """What a column is a number of: a graph, a configuration, or an instance (see `features.instances`)."""

    GRAPH = "graph"
    CONFIG = "configuration"
    INSTANCE = "instance"


class Block(ABC):
    """A group of columns with one physical idea.

    A subclass sets the class attributes and `compute`. It is listed in `xlarank.features.catalogue` or stands in a
    user's file (`xlarank.features.block_files`). A missing docstring, a column without a meaning, and a malformed
    name or one used twice are refused.
    """

    kinds: ClassVar[tuple[Kind, ...]] = ("layout",)  # the kinds of graphs it is for
    scope: ClassVar[Scope] = Scope.CONFIG  # one number per graph, per configuration or per instance
    tier: ClassVar[Tier] = Tier.FAST  # its cost
    # transductive: it looks at the unlabelled candidate set of the graph, not at one configuration.
    transductive: ClassVar[bool] = False
    # columns: name (``block__what__how``) -> meaning with its unit; the order is the column order.
    columns: ClassVar[dict[str, str]]

    @abstractmethod
    def compute(self, context: Any) -> NDArray[np.floating[Any]]:
        """The columns: ``(len(columns),)`` for a graph block, else ``(configs or instances, len(columns))``."""

    def require_shape(self, values: NDArray[np.floating[Any]], *shape: int) -> None:
        """Raise `BlockError` for computed values of another shape."""
        if np.shape(values) != shape:
            raise BlockError(f"{type(self).__name__} gave values of shape {np.shape(values)}", expected=str(shape))
