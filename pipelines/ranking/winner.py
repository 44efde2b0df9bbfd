"""Choice between a trained model, the shipped ranker and rules, by their scores out of fold."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from xlarank.models.model import RULE, Model
from xlarank.models.rules import rules_of
from xlarank.models.stored import pretrained_model
from xlarank.models.training_data import TPU, target_named
from xlarank.models.validation.metrics import objective_value, paired_difference
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

    def value(scores: dict[str, float]) -> float:
        return float(objective_value(np.array([*scores.values()]), card.select))

    name = max(others, key=lambda other: value(others[other]))
    lead, error = paired_difference(own, others[name], card.select)
    chosen = _untrained_model(model, name) if lead <= error else None
    if chosen is None:
        return model, ""
    gap = f"{lead:+.3f} ± {error:.3f}" if np.isfinite(error) else f"{lead:+.3f} on one graph"
    reason = "is better" if lead < -error else "is simpler, and not clearly worse"
    return chosen, (
        f"{name} {reason} out of fold: {value(others[name]):.3f}, the trained {model.name} "
        f"{value(own):.3f} ({gap})"
    )


def _untrained_model(model: Model, name: str) -> Model | None:
    """Return the rule or shipped ranker for the collection of a model; None if it does not fit."""
    card = model.require_card()
    target = target_named(card.target)
    if name == SHIPPED_RANKER:
        shipped: Model = pretrained_model(model.kind)
        return shipped if target is TPU and {*shipped.columns} <= {*model.columns} else None
    for rule in rules_of(model.kind, model.columns, target):
        if rule.name == name:
            return replace(rule, card=replace(card, fallback=False))  # rules know no families
    return None
