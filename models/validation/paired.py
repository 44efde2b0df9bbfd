"""Comparisons of rankers, parameters and numbers of rounds, graph by graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

import numpy as np

from xlarank.data.graph import Kind
from xlarank.models.arrays import Floats
from xlarank.models.params import OneOf
from xlarank.models.validation.metrics import bootstrap_interval, summarise

#: ``mean``: the mean score over graphs. ``robust``: that minus `SPREAD` times its standard deviation over graphs,
#: for those who would rather have no graph ranked badly than some ranked best.
SELECTIONS: Final = ("mean", "robust")
#: A quarter: of two settings that differ by 0.04 in standard deviation, the even one may lose 0.01 of mean.
#: More would let a setting win by ranking its best graphs worse.
SPREAD: Final = 0.25


def require_selection(how: str) -> None:
    """Raise `ModelError` unless ``how`` is one of `SELECTIONS`."""
    OneOf(SELECTIONS)("select", how)


def objective_value(scores: Floats, how: str) -> Floats:
    """The objective of a choice, ``(...)`` of ``(graphs, ...)`` scores; raises `ModelError`.

    >>> objective_value(np.array([[0.2], [0.6]]), "mean").tolist()
    [0.4]
    >>> objective_value(np.array([[0.2], [0.6]]), "robust").round(3).tolist()
    [0.35]
    """
    require_selection(how)
    mean: Floats = scores.mean(axis=0)
    return mean - SPREAD * scores.std(axis=0) if how == "robust" else mean


def paired_difference(
    challenger: dict[str, float], incumbent: dict[str, float], how: str = "mean"
) -> tuple[float, float]:
    """The challenger's `objective_value` over the incumbent's graphs minus the incumbent's, and its standard error.

    The error is the jackknife's, with ``mean`` the usual one of paired differences; inf for one graph.

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


#: ``{graph: {metric: value}}``
Scores = Mapping[str, Mapping[str, float]]

#: What comparisons show. Where runtimes are nearly equal a difference of tau may be worth nothing: hence slowdowns.
COMPARED: Final[dict[Kind, tuple[str, ...]]] = {
    "layout": ("tau", "slowdown@1", "slowdown@5"),
    "tile": ("score", "tau", "slowdown@1", "slowdown@5"),
}


@dataclass(frozen=True)
class Difference:
    """A metric of one ranker minus that of another, the mean over the graphs that both were evaluated on."""

    mean: float
    # low, high: `bootstrap_interval` of the mean: what makes a graph hard for both rankers is no part of its width.
    low: float
    high: float
    graphs: int  # how many

    def __str__(self) -> str:
        """Such as ``+0.012 (-0.010 to +0.031)``.

        >>> str(Difference(0.0124, -0.0101, 0.0311, 30))
        '+0.012 (-0.010 to +0.031)'
        """
        return f"{self.mean:+.3f} ({self.low:+.3f} to {self.high:+.3f})"


def difference(challenger: Scores, incumbent: Scores, metric: str) -> Difference | None:
    """The challenger's ``metric`` minus the incumbent's; None where no graph was evaluated by both.

    >>> one, two = {"a": {"tau": 0.5}, "b": {"tau": 0.7}}, {"a": {"tau": 0.4}, "b": {"tau": 0.6}, "c": {"tau": 0.9}}
    >>> str(difference(one, two, "tau"))
    '+0.100 (+0.100 to +0.100)'
    """
    both = [graph for graph in challenger if graph in incumbent]
    if not both:
        return None
    values = np.array([challenger[graph][metric] - incumbent[graph][metric] for graph in both])
    return Difference(float(values.mean()), *bootstrap_interval(values), len(both))


def compare_rankers(scores: Mapping[str, Scores]) -> dict[str, dict[str, Any]]:
    """``{ranker: {metric: {mean, std, low, high, graphs, difference}}}`` of rankers, the first being compared with.

    ``difference`` is that to the first, as plain values, and missing of the first itself. Metrics are those of
    `summarise`.
    """
    first = next(iter(scores.values()), {})
    found = {name: summarise({graph: dict(values) for graph, values in of.items()}) for name, of in scores.items()}
    for name, report in [*found.items()][1:]:
        for metric, about in report.items():
            between = difference(scores[name], first, metric)
            about["difference"] = None if between is None else asdict(between)
    return found


def graph_scores(report: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, float]]:
    """``{graph: {metric: value}}`` from what `summarise` made of it."""
    graphs: Sequence[str] = list(next(iter(report.values()))["graphs"]) if report else []
    return {graph: {metric: about["graphs"][graph] for metric, about in report.items()} for graph in graphs}
