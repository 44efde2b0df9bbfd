"""Values of rows that stay on disk until somebody looks at them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import numpy as np
from numpy.typing import DTypeLike, NDArray

Values = NDArray[np.float32]


class DiskValues:
    """Stands where an array ``(rows, columns)`` of a `xlarank.features.rows.GraphRows` would, read when indexed.

    The values that were read last stay in memory, of all graphs together: who looks at a graph piece by piece reads
    it once, who looks at one graph after the other holds one.

    Attributes:
        shape: ``(rows, columns)``.
        digest: `xlarank.models.row_digest.values_digest` of the values.
    """

    _latest: tuple[DiskValues, Values] | None = None

    def __init__(
        self, load: Callable[[], Values], shape: tuple[int, int], digest: str, keep: NDArray[np.intp] | None = None
    ) -> None:
        """``keep`` are the rows of what ``load`` reads that count, None for all."""
        self._load, self._keep = load, keep
        self.shape, self.digest = shape, digest

    def array(self) -> Values:
        """All values; raises what ``load`` raises."""
        latest = DiskValues._latest
        if latest is not None and latest[0] is self:
            return latest[1]
        DiskValues._latest = latest = None  # two graphs need not be in memory at once
        values = self._load()
        if self._keep is not None:
            values = values[self._keep]
        DiskValues._latest = (self, values)
        return values

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, key: Any) -> Any:
        return self.array()[key]

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> NDArray[Any]:
        return np.array(self.array(), dtype=dtype, copy=copy)

    def as_values(self) -> Values:
        """Itself, for the field of an array."""
        return cast(Values, self)
