"""How much each graph counts in a loss over many."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from xlarank.models.param_checks import OneOf

#: Exponent of a graph's size that its total weight is proportional to. ``equal`` is what the metric does, a
#: mean over graphs; ``rows`` lets a graph of 100,000 configurations drown one of 1000; ``sqrt`` lies between:
#: a small graph's few rows are noisy, and at equal weight each of them pulls hard.
GRAPH_WEIGHTS: Final = {"equal": 0.0, "sqrt": 0.5, "rows": 1.0}


def graph_weights(indptr: NDArray[np.int64], how: str) -> NDArray[np.float64]:
    """Weights of graphs, ``(graphs,)``, 1 on average: for a loss that is a mean over each graph's pairs.

    ``indptr`` is ``(graphs + 1,)`` row boundaries; raises `ModelError` unless ``how`` is one of `GRAPH_WEIGHTS`.

    >>> graph_weights(np.array([0, 1, 4]), "rows").tolist()
    [0.5, 1.5]
    """
    total = _totals(indptr, how)
    weights: NDArray[np.float64] = total / total.mean()
    return weights


def row_weights(
    indptr: NDArray[np.int64], how: str, factor: NDArray[np.float64] | None = None
) -> NDArray[np.float64]:
    """Weights of rows, ``(rows,)``, equal within a graph and 1 on average over all rows: for a sum over rows.

    ``factor`` ``(graphs,)`` then multiplies those of each graph.

    >>> row_weights(np.array([0, 1, 4]), "equal").round(3).tolist()
    [2.0, 0.667, 0.667, 0.667]
    >>> row_weights(np.array([0, 1, 4]), "rows", np.array([1.0, 0.5])).tolist()
    [1.0, 0.5, 0.5, 0.5]
    """
    sizes, total = np.diff(indptr).astype(np.float64), _totals(indptr, how)
    weights: NDArray[np.float64] = np.repeat(total / sizes, np.diff(indptr)) * (sizes.sum() / total.sum())
    return weights if factor is None else weights * np.repeat(factor, np.diff(indptr))


def _totals(indptr: NDArray[np.int64], how: str) -> NDArray[np.float64]:
    """``(graphs,)`` what each graph counts, up to a factor."""
    OneOf(tuple(GRAPH_WEIGHTS))("graph_weight", how)
    total: NDArray[np.float64] = np.diff(indptr).astype(np.float64) ** GRAPH_WEIGHTS[how]
    return total
