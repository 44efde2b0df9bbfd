"""Scores of graphs by collection, and what they say."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from xlarank.data.collection import Collection
from xlarank.data.errors import counted
from xlarank.data.family import program_family
from xlarank.data.workspace import Workspace
from xlarank.features.rows import GraphRows
from xlarank.features.store import Manifest, each_graph
from xlarank.models.trained import TrainedModel
from xlarank.models.validation.evaluation import RANDOM, GraphEvaluation
from xlarank.models.validation.metrics import bootstrap_interval

Floats = NDArray[np.float64]
#: Scores of graphs, by name.
Scores = Mapping[str, GraphEvaluation]

#: What the model's ranking is called beside those that need no model.
MODEL: Final = "model"
#: How a verdict begins.
BETTER, WORSE, UNSURE, ONE = "better than", "worse than", "too close to tell from", "on one graph alone, beside"


@dataclass
class Evaluation:
    """Scores by collection.

    Attributes:
        judged: description of the scored graphs: a split, or what was held out.
        report: ``{collection: {metric: {mean, std, low, high, graphs: {name: value}}}}``, by
            `xlarank.models.validation.metrics.summarise`.
        speedups: ``{collection: {speedup: {mean, std, low, high, graphs}}}`` over the compiler's default, of the
            graphs where its runtime is known.
        verdicts: collection -> whether the model is better than the best rule, by `verdict`.
        left_out: collection (or ``collection graph``) -> why it has no score.
        notes: what a reader must know to trust a number.
        rankers: ``{collection: {ranker: {metric: {mean, std, low, high, graphs, difference}}}}`` where several are
            compared (`xlarank.models.validation.metrics.compare_rankers`); ``report`` is of the first.
        results: everything that was evaluated, as tables of `xlarank.pipelines.support.results.SCHEMA`.
    """

    judged: str
    report: dict[str, dict[str, dict[str, Any]]] = field(default_factory=dict)
    speedups: dict[str, dict[str, dict[str, Any]]] = field(default_factory=dict)
    verdicts: dict[str, str] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    rankers: dict[str, dict[str, dict[str, dict[str, Any]]]] = field(default_factory=dict)
    results: list[pl.DataFrame] = field(default_factory=list)


def measure(collection: Collection) -> str:
    """Name of the score of a collection."""
    return "Kendall tau" if collection.kind == "layout" else "1 - slowdown@5"


def interval(values: Floats) -> str:
    """Mean and its 95 % interval; the mean alone of a single value.

    >>> interval(np.array([0.25]))
    '0.250'
    """
    low, high = bootstrap_interval(values)
    spread = f" ({low:.3f} to {high:.3f})" if len(values) > 1 else ""
    return f"{values.mean():.3f}{spread}".replace("-0.000", "0.000")


def graphs_to_score(
    workspace: Workspace, collection: Collection, split: str, manifest: Manifest, left_out: dict[str, str],
    refuse: Callable[[str], str] = lambda name: "",
) -> Iterator[GraphRows]:  # fmt: skip
    """Graphs that have a score; ``left_out`` gets why others have none, also as ``refuse`` says of their names."""
    for rows in each_graph(workspace, collection, split, manifest):
        why = "all its configurations cost the same" if not rows.rankable else refuse(rows.name)
        if not rows.labelled:
            why = "its labels are withheld"
        if why:
            left_out[rows.name] = why
        else:
            yield rows


def column(scores: Scores, metric: str = "score", ranking: str = MODEL) -> Floats:
    """``(graphs,)`` values of a metric, of the model or of a ranking that needs none."""
    each = (one.metrics if ranking == MODEL else one.baselines[ranking] for one in scores.values())
    return np.array([metrics[metric] for metrics in each])


def baselines_of(scores: Scores) -> list[str]:
    """Names of the rankings that need no model."""
    return list(next(iter(scores.values())).baselines)


def ceilings_of(scores: Scores) -> dict[str, float]:
    """Return the largest tau that repeated measurements allow, of graphs that have them."""
    return {name: one.ceiling for name, one in scores.items() if one.ceiling is not None}


def of_unseen_families(model: TrainedModel, names: Iterable[str]) -> int:
    """How many graphs are of families outside the training set of a model."""
    known = {program_family(name) for name in model.card.known_graphs}
    return sum(program_family(name) not in known for name in names)


def verdict(collection: Collection, scores: Scores) -> str:
    """One sentence: the model's score, whether it beats the best rule without learning, and how sure that is.

    >>> layouts = Collection.parse("layout:cpu:random")
    >>> one, two = (GraphEvaluation({"score": x}, {}, {"rule": {"score": x - 0.25}}, {}) for x in (0.5, 0.75))
    >>> verdict(layouts, {"a": one, "b": two})
    'better than the best rule without learning (rule, 0.375): Kendall tau 0.625 (0.500 to 0.750), ahead on
    2 of 2 graphs, by +0.250 (+0.250 to +0.250) on average'
    """
    model = column(scores)
    own = f"{measure(collection)} {interval(model)}"
    rules = {name: column(scores, ranking=name) for name in baselines_of(scores) if name != RANDOM}
    rule = max(rules, key=lambda name: rules[name].mean())
    difference = model - rules[rule]
    low, high = bootstrap_interval(difference)
    beside = f"the best rule without learning ({rule}, {rules[rule].mean():.3f})"
    if len(scores) == 1:
        return f"{ONE} {beside}: {own}"
    sure = BETTER if low > 0 else WORSE if high < 0 else UNSURE
    ahead = f"ahead on {(difference > 0).sum()} of {counted(len(scores), 'graph')}, by {difference.mean():+.3f}"
    return f"{sure} {beside}: {own}, {ahead} ({low:+.3f} to {high:+.3f}) on average"


def summary(verdicts: Iterable[str]) -> str:
    """Count models by what `verdict` says of each.

    >>> summary([f"{BETTER} ...", f"{UNSURE} ..."])
    'Beside the best rule without learning, of 2 models: 1 better, 0 worse, 1 too close to tell.'
    """
    texts = list(verdicts)
    better, worse = (sum(text.startswith(word) for text in texts) for word in (BETTER, WORSE))
    counts = f"{better} better, {worse} worse, {len(texts) - better - worse} too close to tell"
    return f"Beside the best rule without learning, of {counted(len(texts), 'model')}: {counts}."
