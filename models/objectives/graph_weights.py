"""How much each graph counts in a loss that is a sum over rows."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from xlarank.data.errors import ModelError

#: Exponent of a graph's size that its total weight is proportional to. ``equal`` is what the metric does, a
#: mean over graphs; ``rows`` lets a graph of 100,000 configurations drown one of 1000; ``sqrt`` lies between:
#: a small graph's few rows are noisy, and at equal weight each of them pulls hard.
GRAPH_WEIGHTS: Final = {"equal": 0.0, "sqrt": 0.5, "rows": 1.0}


def row_weights(indptr: NDArray[np.int64], how: str) -> NDArray[np.float64]:
    """Weights of rows, ``(rows,)``, equal within a graph and 1 on average over all rows.

    ``indptr`` is ``(graphs + 1,)`` row boundaries; raises `ModelError` unless ``how`` is one of `GRAPH_WEIGHTS`.

    >>> row_weights(np.array([0, 1, 4]), "equal").round(3).tolist()
    [2.0, 0.667, 0.667, 0.667]
    """
    if how not in GRAPH_WEIGHTS:
        raise ModelError(f"graph_weight is {how!r}", expected=", ".join(GRAPH_WEIGHTS))
    sizes = np.diff(indptr).astype(np.float64)
    total = sizes ** GRAPH_WEIGHTS[how]
    weights: NDArray[np.float64] = np.repeat(total / sizes, np.diff(indptr)) * (sizes.sum() / total.sum())
    return weights
