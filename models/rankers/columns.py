"""Which of the columns a ranker looks at."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from xlarank.data.graph import Kind
from xlarank.features.block import Scope, Tier
from xlarank.features.catalogue import blocks_of

if TYPE_CHECKING:
    import optuna

#: ``all``: every column; ``no_graph``: without those that are constant within a graph (they cannot order
#: anything alone and tell graphs apart); ``no_candidates``: without the transductive ones; ``alone``: neither.
CHOICES: Final = ("all", "no_graph", "no_candidates", "alone")


def default_columns(kind: Kind) -> str:
    """The choice where nothing was tuned.

    Tile collections hold few candidates a kernel: a place among them does not carry over to other families.
    """
    return "no_candidates" if kind == "tile" else "all"


def suggest_columns(trial: optuna.trial.BaseTrial) -> str:
    """A choice from the search space, as ``columns``."""
    return str(trial.suggest_categorical("columns", list(CHOICES)))


def suggest_tier(trial: optuna.trial.BaseTrial) -> str:
    """Whether to look at the columns of the full tier too, as ``tier``."""
    return str(trial.suggest_categorical("tier", [tier.value for tier in Tier]))


def chosen_columns(columns: list[str], choice: str, tier: str = Tier.FULL.value) -> NDArray[np.intp]:
    """Indices into ``columns`` of those that the choice and the tier leave, ascending.

    Raises `ValueError` for another choice or tier.
    """
    if choice not in CHOICES:
        raise ValueError(f"columns={choice!r} is not one of {CHOICES}")
    left_out: set[str] = set()
    for block in [*blocks_of("layout"), *blocks_of("tile")]:
        graph = choice in ("no_graph", "alone") and block.scope is Scope.GRAPH
        candidates = choice in ("no_candidates", "alone") and block.transductive
        if graph or candidates or not Tier(tier).includes(block.tier):
            left_out.update(block.columns)
    return np.array([i for i, name in enumerate(columns) if name not in left_out], np.intp)
