"""The block of pair instances."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from xlarank.features.instances.block import ABSENT, InstanceBlock
from xlarank.features.instances.context import InstanceContext
from xlarank.features.instances.pairs import COLUMNS


class InstancePair(InstanceBlock):
    """Two rows that speak of one tensor, and what follows from both: -1 for nodes."""

    columns = COLUMNS

    def compute(self, context: InstanceContext) -> NDArray[np.float32]:
        found = np.full((len(context), len(self.columns)), ABSENT, np.float32)
        found[len(context.rows) :] = context.combinations.values(context.layout, context.taken)
        return found
