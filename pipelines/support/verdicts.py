"""Scores and comparisons of rankings in words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from xlarank.data.errors import counted
from xlarank.data.families import program_family
from xlarank.models.model import Model
from xlarank.models.validation.metrics import bootstrap_interval, summary
from xlarank.pipelines.support.baselines import (
    RANDOM,
    UNTRAINED,
    Metrics,
    Rankings,
    column,
    untrained,
)

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
    'mean over tile:cpu and layout:cpu:random, equally weighted: 0.500'
    >>> mean_over_collections({"tile:cpu": one, **dict.fromkeys(_KAGGLE, other)})
    "mean over Kaggle's five collections, equally weighted: 0.250"
    """
    is_complete = metrics.keys() >= {*_KAGGLE}
    names = _KAGGLE if is_complete else tuple(metrics)
    if len(names) < 2:
        return ""
    mean = np.mean([column(metrics[name]).mean() for name in names])
    label = (
        "Kaggle's five collections"
        if is_complete
        else " and ".join([", ".join(names[:-1]), names[-1]])
    )
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


def count_unseen(model: Model, names: Iterable[str]) -> int:
    """Count the graphs of families outside the training set of a model."""
    known = {program_family(name) for name in model.require_card().known_graphs}
    return sum(program_family(name) not in known for name in names)


def known_families(related: int, graphs: int) -> str:
    """Say how many graphs are of families in the training set of a model.

    >>> known_families(1, 1), known_families(0, 2)
    ('1 of 1 graph is of a family in the training set of the model', '0 of 2 graphs are of \
families in the training set of the model')
    """
    one = "is of a family" if related == 1 else "are of families"
    return f"{related} of {counted(graphs, 'graph')} {one} in the training set of the model"


def verdict(collection: str, rankings: Rankings, ranker: str = "") -> str:
    """Compare a ranker, by default the first, with the best simple count.

    >>> model, rule = ({"a": {"score": x}, "b": {"score": x + 0.25}} for x in (0.5, 0.25))
    >>> verdict("layout:cpu:random", {("lambdarank", None): model, ("rule: file order",
    ...     None): rule})
    'better than the best simple count (file order, 0.375): Kendall tau 0.625 (0.500 to 0.750),
    ahead on 2 of 2 graphs, by +0.250 (95 % interval +0.250 to +0.250) on average'
    """
    metrics = rankings[ranker or next(iter(rankings))[0], None]
    score = f"{score_name(collection)} {_mean_score(metrics)}"
    rules = {}
    for name, scored in untrained(rankings).items():
        if name not in (RANDOM, *UNTRAINED) and metrics.keys() <= scored.keys():
            rules[name] = np.array([scored[graph]["score"] for graph in metrics])
    rule = max(rules, key=lambda name: rules[name].mean())
    leads = column(metrics) - rules[rule]
    low, high = bootstrap_interval(leads)
    best_rule = f"the best simple count ({rule}, {rules[rule].mean():.3f})"
    if len(metrics) == 1:
        return f"on one graph alone, beside {best_rule}: {score}"
    if not leads.any():
        return f"level with {best_rule} on every graph: {score}"
    count = f"ahead on {(leads > 0).sum()} of {counted(len(metrics), 'graph')}"
    lead = f"by {leads.mean():+.3f} (95 % interval {low:+.3f} to {high:+.3f}) on average"
    if low > 0 or high < 0:
        compared_with = f"{'better' if low > 0 else 'worse'} than {best_rule}"
    else:
        place = "ahead of" if leads.mean() > 0 else "behind"
        compared_with = f"{place} {best_rule}, but not significantly"
    return f"{compared_with}: {score}, {count}, {lead}"


def count_verdicts(verdicts: Iterable[str]) -> str:
    """Count models by their verdicts.

    >>> count_verdicts(["better than ...", "behind ..., but not significantly: ..."])
    'Beside the best simple count, of 2 models: 1 better, 0 worse, 1 not significantly \
different.'
    """
    count = Counter(text.split()[0] for text in verdicts)
    better, worse, alone = (count.pop(start, 0) for start in ("better", "worse", "on"))
    counts = f"{better} better, {worse} worse, {count.total()} not significantly different"
    counts += f", {alone} on one graph alone" if alone else ""
    models = counted(better + worse + alone + count.total(), "model")
    return f"Beside the best simple count, of {models}: {counts}."


def _mean_score(metrics: Metrics) -> str:
    scores = {graph: values["score"] for graph, values in metrics.items()}
    return with_interval(summary(scores))
