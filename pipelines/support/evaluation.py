"""Scores by collection."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xlarank.data.collection import Collection
from xlarank.data.wording import counted
from xlarank.models.validation.evaluation import RANDOM
from xlarank.models.validation.metrics import bootstrap_interval

Floats = NDArray[np.float64]

#: How a verdict begins.
BETTER, WORSE, UNSURE, ONE = "better than", "worse than", "too close to tell from", "on one graph alone, beside"


@dataclass
class Evaluation:
    """Scores by collection.

    Attributes:
        judged: description of the scored graphs: a split, or what was held out.
        report: ``{collection: {metric: {mean, std, low, high, graphs: {name: value}}}}``, by
            `xlarank.models.validation.metrics.summarise`; with a level of rankers above the metrics where several
            are compared (`xlarank.models.validation.paired.compare_rankers`).
        speedups: ``{collection: {speedup: {mean, std, low, high, graphs}}}`` over the compiler's default, of the
            graphs where its runtime is known.
        verdicts: collection -> whether the model is better than the best rule, by `verdict`.
        left_out: collection (or ``collection graph``) -> why it has no score.
        notes: what a reader must know to trust a number.
    """

    judged: str
    report: dict[str, dict[str, dict[str, Any]]] = field(default_factory=dict)
    speedups: dict[str, dict[str, dict[str, Any]]] = field(default_factory=dict)
    verdicts: dict[str, str] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def measure(collection: Collection) -> str:
    """Name of the score of a collection."""
    return "Kendall tau" if collection.kind == "layout" else "1 - slowdown@5"


def interval(values: Floats) -> str:
    """Mean and its 95 % interval; the mean alone of a single value.

    >>> interval(np.array([0.25])), interval(np.array([]))
    ('0.250', '-')
    """
    if len(values) == 0:
        return "-"
    low, high = bootstrap_interval(values)
    spread = f" ({low:.3f} to {high:.3f})" if len(values) > 1 else ""
    return f"{values.mean():.3f}{spread}".replace("-0.000", "0.000")


def verdict(collection: Collection, scores: Floats, rankings: Mapping[str, Floats]) -> str:
    """One sentence: the model's score, whether it beats the best rule without learning, and how sure that is.

    ``scores`` ``(graphs,)`` are the model's, ``rankings`` those of orders that need no model.

    >>> layouts = Collection.parse("layout:cpu:random")
    >>> verdict(layouts, np.array([0.5, 0.75]), {"file order": np.array([0.25, 0.5])})
    'better than the best rule without learning (file order, 0.375): Kendall tau 0.625 (0.500 to 0.750), ahead on
    2 of 2 graphs, by +0.250 (+0.250 to +0.250) on average'
    """
    own = f"{measure(collection)} {interval(scores)}"
    rules = {name: values for name, values in rankings.items() if name != RANDOM}
    if not rules:
        return f"{own} on {counted(len(scores), 'graph')}"
    rule = max(rules, key=lambda name: rules[name].mean())
    difference = scores - rules[rule]
    low, high = bootstrap_interval(difference)
    sure = BETTER if low > 0 else WORSE if high < 0 else UNSURE
    beside = f"the best rule without learning ({rule}, {rules[rule].mean():.3f})"
    found = f"{sure if len(scores) > 1 else ONE} {beside}: {own}"
    if len(scores) == 1:
        return found
    found += f", ahead on {(difference > 0).sum()} of {len(scores)} graphs"
    return f"{found}, by {difference.mean():+.3f} ({low:+.3f} to {high:+.3f}) on average"


def summary(verdicts: Iterable[str]) -> str:
    """Count models by what `verdict` says of each.

    >>> summary([f"{BETTER} ...", f"{UNSURE} ..."])
    'Beside the best rule without learning, of 2 models: 1 better, 0 worse, 1 too close to tell.'
    """
    texts = list(verdicts)
    better, worse = (sum(text.startswith(word) for text in texts) for word in (BETTER, WORSE))
    counts = f"{better} better, {worse} worse, {len(texts) - better - worse} too close to tell"
    return f"Beside the best rule without learning, of {counted(len(texts), 'model')}: {counts}."
