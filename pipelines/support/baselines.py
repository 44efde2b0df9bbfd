"""Metrics of rankings, and rankings without training: rules, estimated times, random order."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from xlarank.data.collection import Collection
from xlarank.data.config_table import group_minimum
from xlarank.features.rows import GraphRows
from xlarank.models.arrays import Indices
from xlarank.models.model import RULE, Model
from xlarank.models.stored import ESTIMATED_TIME, SHIPPED_TREES, formula, rules_of, shipped_trees
from xlarank.models.training_data import DATASET, TPU, target_of
from xlarank.models.validation.metrics import graph_metrics

RANDOM: Final = "random"
#: Rankers that need no training, besides rules.
UNTRAINED: Final = (ESTIMATED_TIME, SHIPPED_TREES)
#: ``{graph: {metric: value}}``
Metrics = dict[str, dict[str, float]]
#: Metrics by ranker.
Rankings = dict[str, Metrics]


def mean_of(metrics: Metrics, metric: str = "score") -> float:
    """Return the mean of a metric over graphs."""
    return float(np.mean([values[metric] for values in metrics.values()]))


def is_untrained(name: str) -> bool:
    """Return whether a name is of a rule or of a ranker that needs no training."""
    return name.startswith(RULE) or name in UNTRAINED


def baselines(
    collection: Collection, rows: GraphRows, picked: Indices | slice = slice(None)
) -> dict[str, dict[str, float]]:
    """Return a graph's metrics by name: rules, the estimated time and the shipped trees.

    The shipped trees are left out if they do not fit the graph or were trained on it. Metrics of
    the random order are expected values.
    """
    kind = collection.kind
    cost = rows.cost[picked]
    group = rows.group[picked]
    file_order = np.arange(len(rows.ids), dtype=np.float64)
    numbers, at = np.unique(group, return_inverse=True)
    fastest = group_minimum(cost, at, len(numbers))  # a random order has each configuration once
    metrics = {
        f"{RULE}file order": graph_metrics(kind, file_order[picked], cost, group),
        f"{RULE}{RANDOM}": graph_metrics(kind, np.zeros(len(numbers)), fastest, numbers),
    }
    for model in untrained_models(collection, rows):
        score = model.score(rows)[rows.group]
        metrics[model.name] = graph_metrics(kind, score[picked], cost, group)
    used = [i for i, name in enumerate(rows.columns) if name.startswith("bounds__")]
    if kind == "tile" and used and rows.ids[0] == 0:
        bounds = rows.matrix(used=np.array(used))[rows.group].astype(np.float64)
        distance = np.abs(bounds - bounds[0]).sum(axis=1)[picked]
        metrics[f"{RULE}nearest to the first configuration"] = graph_metrics(
            kind, distance, cost, group
        )
    return metrics


def untrained_models(collection: Collection, rows: GraphRows) -> Iterator[Model]:
    """Yield the untrained rankers whose columns a graph has, and that were not taught by it."""
    kind = collection.kind
    models = rules_of(kind, rows.columns)
    if (estimate := formula(kind, collection.hardware)) is not None:
        models.append(estimate)
    if kind == "tile" and target_of(collection.hardware) in (DATASET, TPU):
        models.append(shipped_trees())
    for model in models:
        is_new = model.card is None or rows.name not in model.card.known_graphs
        if is_new and {*model.columns} <= {*rows.columns}:
            yield model
