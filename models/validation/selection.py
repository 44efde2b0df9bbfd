"""What a choice between parameters or numbers of rounds goes by."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from xlarank.models.param_checks import OneOf

#: ``mean``: the mean score over graphs. ``robust``: that minus `SPREAD` times its standard deviation over graphs,
#: for those who would rather have no graph ranked badly than some ranked best.
SELECTIONS: Final = ("mean", "robust")
#: A quarter: of two settings that differ by 0.04 in standard deviation, the even one may lose 0.01 of mean.
#: More would let a setting win by ranking its best graphs worse.
SPREAD: Final = 0.25


def require_selection(how: str) -> None:
    """Raise `ModelError` unless ``how`` is one of `SELECTIONS`."""
    OneOf(SELECTIONS)("select", how)


def objective_value(scores: NDArray[np.float64], how: str) -> NDArray[np.float64]:
    """What a choice makes as large as it can: ``(...)`` of ``(graphs, ...)`` scores; raises `ModelError`.

    >>> objective_value(np.array([[0.2], [0.6]]), "mean").tolist()
    [0.4]
    >>> objective_value(np.array([[0.2], [0.6]]), "robust").round(3).tolist()
    [0.35]
    """
    require_selection(how)
    mean: NDArray[np.float64] = scores.mean(axis=0)
    return mean - SPREAD * scores.std(axis=0) if how == "robust" else mean


def paired_difference(
    challenger: dict[str, float], incumbent: dict[str, float], how: str = "mean"
) -> tuple[float, float]:
    """The challenger's `objective_value` over the incumbent's graphs minus the incumbent's, and its standard error.

    The error is the jackknife's: of the spread of what each graph adds to the difference; with ``mean`` that is
    the usual one of paired differences. It is inf for one graph.

    >>> [round(value, 2) for value in paired_difference({"a": 0.5, "b": 0.7}, {"a": 0.4, "b": 0.4})]
    [0.2, 0.1]
    """
    both = np.array([[challenger[graph], score] for graph, score in incumbent.items()])
    graphs, whole = len(both), objective_value(both, how)
    if graphs == 1:
        return float(whole[0] - whole[1]), float("inf")
    without = np.array([objective_value(np.delete(both, graph, axis=0), how) for graph in range(graphs)])
    added = graphs * whole - (graphs - 1) * without  # (graphs, 2) pseudo-values
    error = (added[:, 0] - added[:, 1]).std(ddof=1) / np.sqrt(graphs)
    return float(whole[0] - whole[1]), float(error)
