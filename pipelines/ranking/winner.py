"""Choice between a trained model, the shipped ranker and rules, by their scores out of fold."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from xlarank.models.model import Model
from xlarank.models.rules import RULE, rules_of
from xlarank.models.stored import pretrained_model
from xlarank.models.training_data import TPU, target_named
from xlarank.models.validation.metrics import paired_difference
from xlarank.pipelines.support.baselines import SHIPPED_RANKER

#: Rules that cannot rank a graph by its columns, so that no model can be made of them.
_NOT_COLUMNS = ("random", "file order", "nearest to the first configuration")


def scores_of_untrained(
    rankings: Mapping[tuple[str, int | None], Mapping[str, Mapping[str, float]]],
) -> dict[str, dict[str, float]]:
    """Return the scores by graph of the shipped ranker and of the rules that models can follow."""
    scores = {}
    for (name, _), metrics in rankings.items():
        if name.removeprefix(RULE) not in _NOT_COLUMNS:
            scores[name] = {graph: values["score"] for graph, values in metrics.items()}
    return scores


def best_of(model: Model) -> tuple[Model, str]:
    """Return the best ranker out of fold for the collection of a trained model, and why it is not
    the model itself ("" if it is).

    Where the model leads the best rule, or the shipped ranker, by no more than the standard error
    of the paired difference, the latter ranks: it is simpler. Without folds, or if the folds scored
    other graphs than the rules, the model is taken.
    """
    card = model.require_card()
    own = {graph: values["score"] for graph, values in card.folds.items()}
    others = {name: scores for name, scores in card.others.items() if scores.keys() == own.keys()}
    if not own or not others or not model.members:
        return model, ""
    name = max(others, key=lambda other: np.mean([*others[other].values()]))
    lead, error = paired_difference(own, others[name], card.select)
    chosen = _ranker(model, name) if lead <= error else None
    if chosen is None:
        return model, ""
    mean = float(np.mean([*own.values()]))
    other_mean = float(np.mean([*others[name].values()]))
    gap = f"{lead:+.3f} ± {error:.3f}" if np.isfinite(error) else f"{lead:+.3f} on one graph"
    reason = "is better" if lead < -error else "is simpler, and not clearly worse"
    return chosen, (
        f"{name} {reason} out of fold: {other_mean:.3f}, the trained {model.name} "
        f"{mean:.3f} ({gap})"
    )


def _ranker(model: Model, name: str) -> Model | None:
    """Return the ranker with this name for the collection of a model; None if it does not fit."""
    target = target_named(model.require_card().target)
    if name == SHIPPED_RANKER:
        shipped: Model = pretrained_model(model.kind)
        return shipped if target is TPU and {*shipped.columns} <= {*model.columns} else None
    for rule in rules_of(model.kind, model.columns, target):
        if rule.name == name:
            card = replace(model.require_card(), fallback=False)  # rules know no kernel families
            changes: dict[str, Any] = {"members": (), "calibration": None, "name": name}
            return replace(model, rule=rule.rule, card=card, **changes)
    return None
