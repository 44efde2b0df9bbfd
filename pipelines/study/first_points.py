"""Points that a study tries before it draws any."""

from __future__ import annotations

import warnings
from typing import Any

from xlarank.data.collection import Collection
from xlarank.data.errors import ModelError
from xlarank.data.graph import Kind
from xlarank.data.workspace import Workspace
from xlarank.features.store import stored_collections
from xlarank.models.registry import ranker_class
from xlarank.models.validation.best_params import load_best


def searched_part(model: str, kind: Kind, values: dict[str, Any]) -> dict[str, Any]:
    """Of whole parameters those that a study of a ranker varies."""
    import optuna

    probe = optuna.trial.FixedTrial(values)
    ranker_class(model).params_class.suggest(probe, kind)
    return {name: values[name] for name in probe.params}


def tuned_elsewhere(workspace: Workspace, collection: Collection, model: str) -> list[dict[str, Any]]:
    """The best parameters of the workspace's other collections of the same kind of graphs, without repeats.

    Parameters that cannot be read, lack one that is searched, or lie outside the space are left out: they are no
    more than a place to begin.
    """
    kind = collection.kind
    found: list[dict[str, Any]] = []
    for other in stored_collections(workspace):
        if other == collection or other.kind != kind:
            continue
        try:
            best = load_best(workspace.study(other), model)
            if best is None:
                continue
            with warnings.catch_warnings():
                warnings.simplefilter("error", UserWarning)  # a value outside the space
                point = searched_part(model, kind, best.params)
        except (ModelError, UserWarning, KeyError, ValueError, TypeError):
            continue
        if point not in found:
            found.append(point)
    return found
