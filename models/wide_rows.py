"""The rows of one graph, with the columns that are constant within it kept once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

#: Numbers from which on a booster gets rows in batches, 0.5 GB: below, one copy costs less than many calls.
BATCHED: Final = 2**27


@dataclass(frozen=True, eq=False)
class WideRows:
    """Rows that are written out in full only where, and as many at a time, as they are looked at.

    Nearly half of a layout's columns are about the graph. A million rows of full width take 4.2 GB, kept like
    this 2.3 GB.

    Attributes:
        constant: ``(constant columns,)`` float32; these come first.
        varying: ``(rows, varying columns)`` float32.
    """

    constant: NDArray[np.float32]
    varying: NDArray[np.float32]

    def __len__(self) -> int:
        return len(self.varying)

    @property
    def width(self) -> int:
        return len(self.constant) + int(self.varying.shape[1])

    def matrix(
        self, which: NDArray[np.intp] | slice | None = None, used: NDArray[np.intp] | None = None
    ) -> NDArray[np.float32]:
        """``(rows, columns)`` float32, a copy: all rows or ``which``, all columns or ``used``, ascending."""
        varying = self.varying if which is None else self.varying[which]
        constant = self.constant
        if used is not None and len(used) < self.width:
            first = used < len(constant)
            constant, varying = constant[used[first]], varying[:, used[~first] - len(constant)]
        wide = np.empty((len(varying), len(constant) + varying.shape[1]), np.float32)
        wide[:, : len(constant)] = constant
        wide[:, len(constant) :] = varying
        return wide
