"""Blocks of instances: one number per node with its row, or per pair with its rows."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from xlarank.features.block import Block, Scope
from xlarank.features.instances.context import InstanceContext
from xlarank.features.layout.context import LayoutContext

#: What a column holds where it does not apply; all others are 0 or more.
ABSENT: Final = -1.0


class InstanceBlock(Block, abstract=True):
    """Columns of instances: `compute` gives ``(instances, columns)``, in the order of `InstanceContext`."""

    kinds = ("layout",)
    scope = Scope.INSTANCE

    @abstractmethod
    def compute(self, context: InstanceContext) -> NDArray[np.floating[Any]]:
        """``(instances, columns)``."""


class NodeBlock(InstanceBlock, abstract=True):
    """Columns of nodes and the rows they take; `ABSENT` for pairs."""

    @abstractmethod
    def of_rows(self, context: LayoutContext) -> Mapping[str, NDArray[Any]]:
        """``(R,)`` each column for every distinct row of the table, by name."""

    def compute(self, context: InstanceContext) -> NDArray[np.float32]:
        values = self.of_rows(context.layout)
        columns = np.full((len(context), len(self.columns)), ABSENT, np.float32)
        for number, name in enumerate(self.columns):
            columns[: len(context.rows), number] = values[name][context.rows]
        return columns
