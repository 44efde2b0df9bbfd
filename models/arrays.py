"""Type aliases of arrays."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

#: Feature values, ``(rows, columns)``.
Matrix = NDArray[np.float32]
Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
#: Indices into another array.
Indices = NDArray[np.intp]
