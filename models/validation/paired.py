"""Rankers against one another, graph by graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

import numpy as np

from xlarank.data.graph import Kind
from xlarank.models.validation.bootstrap import bootstrap_interval
from xlarank.models.validation.metrics import summarise

#: ``{graph: {metric: value}}``
Scores = Mapping[str, Mapping[str, float]]

#: What comparisons show. Where runtimes are nearly equal a difference of tau may be worth nothing: hence slowdowns.
COMPARED: Final[dict[Kind, tuple[str, ...]]] = {
    "layout": ("tau", "slowdown@1", "slowdown@5"),
    "tile": ("score", "tau", "slowdown@1", "slowdown@5"),
}


@dataclass(frozen=True)
class Difference:
    """A metric of one ranker minus that of another, over the graphs that both were judged on.

    Attributes:
        mean: over graphs; a higher tau or score is better, a lower slowdown is.
        low, high: 95 % interval of the mean: graphs are drawn anew with their differences, so that what makes a
            graph hard for both rankers is no part of its width (`bootstrap_interval`).
        graphs: how many.
    """

    mean: float
    low: float
    high: float
    graphs: int

    def __str__(self) -> str:
        """Such as ``+0.012 (-0.010 to +0.031)``.

        >>> str(Difference(0.0124, -0.0101, 0.0311, 30))
        '+0.012 (-0.010 to +0.031)'
        """
        return f"{self.mean:+.3f} ({self.low:+.3f} to {self.high:+.3f})"


def difference(challenger: Scores, incumbent: Scores, metric: str) -> Difference | None:
    """The challenger's ``metric`` minus the incumbent's; None where no graph was judged by both.

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
    found: dict[str, dict[str, Any]] = {}
    for at, (name, of) in enumerate(scores.items()):
        report: dict[str, dict[str, Any]] = summarise({graph: dict(values) for graph, values in of.items()})
        for metric, about in report.items() if at else ():
            between = difference(of, first, metric)
            about["difference"] = None if between is None else asdict(between)
        found[name] = report
    return found


def graph_scores(report: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, float]]:
    """``{graph: {metric: value}}`` from what `summarise` made of it."""
    graphs: Sequence[str] = list(next(iter(report.values()))["graphs"]) if report else []
    return {graph: {metric: about["graphs"][graph] for metric, about in report.items()} for graph in graphs}
