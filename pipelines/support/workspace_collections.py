"""Which collections the workspace holds rows or models of."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from xlarank.data.collection import Collection, choose
from xlarank.data.errors import CollectionError
from xlarank.data.workspace import Workspace
from xlarank.features.store import stored_collections
from xlarank.models.trained import CARD

#: The largest weight of another collection.
MOST_WEIGHT: Final = 1000.0


def chosen_collections(workspace: Workspace, asked: Sequence[str]) -> list[Collection]:
    """Collections with stored features; raises `CollectionError` for others."""
    return choose(asked, stored_collections(workspace), where=f"the workspace {workspace.root}")


def weighted_collections(asked: Sequence[str]) -> dict[str, float]:
    """Name -> weight of ``NAME`` (weight 1) or ``NAME=WEIGHT``; raises `CollectionError` for what is no weight.

    >>> weighted_collections(["layout:cpu:random", "layout:tpu-estimate:random=0.3"])
    {'layout:cpu:random': 1.0, 'layout:tpu-estimate:random': 0.3}
    """
    weights: dict[str, float] = {}
    for entry in asked:
        name, given, text = entry.partition("=")
        try:
            weight = float(text) if given else 1.0
        except ValueError:
            weight = math.nan
        if not 0 < weight <= MOST_WEIGHT:  # what is no number is not
            raise CollectionError(
                f"the weight of {name} is {text!r}",
                expected=f"a number above 0, at most {MOST_WEIGHT:g}",
                do=f"write {name}=0.5, or leave the collection out",
            )
        if weights.setdefault(name, weight) != weight:
            both = f"{weights[name]:g} and {weight:g}"
            raise CollectionError(f"{name} is given two weights, {both}", do="name it once")
    return weights


def trained_collections(workspace: Workspace) -> list[Collection]:
    """Collections that have a model in the workspace, sorted."""
    root = workspace.root / "models"
    return sorted(Collection(path.relative_to(root).parts[:-1]) for path in root.glob(f"*/**/{CARD}"))
