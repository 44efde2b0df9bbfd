"""Scores and comparisons of rankings in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from xlarank.pipelines.support.baselines import Metrics, column

#: Collections that the score of the competition averages.
_KAGGLE: Final = (
    *("layout:xla:random", "layout:xla:default", "layout:nlp:random", "layout:nlp:default"),
    "tile:xla",
)


def score_name(collection: str) -> str:
    return "Kendall tau" if collection.startswith("layout:") else "1 - slowdown@5"


def with_interval(summary: Mapping[str, Any]) -> str:
    """Format a `summary` as its mean, with the 95 % interval for several graphs.

    >>> with_interval({"mean": 0.25, "low": 0.2, "high": 0.3, "graphs": {"a": 0.2, "b": 0.3}})
    '0.250 (0.200 to 0.300)'
    """
    text = f"{summary['mean']:.3f}"
    if len(summary["graphs"]) > 1:
        text += f" ({summary['low']:.3f} to {summary['high']:.3f})"
    return text.replace("-0.000", "0.000")


def mean_over_collections(metrics: Mapping[str, Metrics]) -> str:
    """Describe the mean of the collections' mean scores, as Kaggle weights it; empty for one.

    If the five collections of the competition are among them, others do not count.

    >>> one, other = ({"a": {"score": score}} for score in (0.75, 0.25))
    >>> mean_over_collections({"tile:cpu": one, "layout:cpu:random": other})
    'mean over 2 collections, equally weighted: 0.500'
    >>> mean_over_collections({"tile:cpu": one, **dict.fromkeys(_KAGGLE, other)})
    "mean over Kaggle's five collections, equally weighted: 0.250"
    """
    is_complete = metrics.keys() >= {*_KAGGLE}
    names = _KAGGLE if is_complete else tuple(metrics)
    if len(names) < 2:
        return ""
    mean = np.mean([column(metrics[name]).mean() for name in names])
    label = "Kaggle's five collections" if is_complete else f"{len(names)} collections"
    return f"mean over {label}, equally weighted: {mean:.3f}"


def comparison_cells(
    rows: Sequence[Mapping[str, Any]], score: str = "score"
) -> list[dict[str, str]]:
    """Format the rows of `xlarank.pipelines.support.evaluation.compared` by column heading."""
    table = []
    for row in rows:
        gap = row["difference"]
        lead = f"{gap['mean']:+.3f}" if gap else "-"
        if gap and gap["graphs"] > 1:
            lead += f" ({gap['low']:+.3f}, {gap['high']:+.3f})"
        cells = {"ranker": row["ranker"], score: f"{row['score']['mean']:.3f}"}
        cells["to the first (95 %)"] = lead
        cells["slowdown@1"] = f"{row['slowdown@1']['mean']:.3f}"
        cells["@5"] = f"{row['slowdown@5']['mean']:.3f}"
        table.append(cells)
    return table
