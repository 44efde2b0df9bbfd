"""What rankers share: the choice of columns, and parameters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from xlarank.features.block import Scope
from xlarank.features.catalogue import every_block
from xlarank.features.instances.pair_blocks import InstanceGraph
from xlarank.features.targets import Target, foreign_columns
from xlarank.models.arrays import Indices
from xlarank.models.objectives import GRAPH_WEIGHTS
from xlarank.models.params import Among, Between, Number, OneOf, RankerParams, Whole, param

#: ``all``: every column; ``no_graph``: without those that are constant within a graph (they cannot order
#: anything alone and tell graphs apart); ``no_candidates``: without the transductive ones; ``alone``: neither.
CHOICES: Final = ("all", "no_graph", "no_candidates", "alone")


def chosen_columns(columns: list[str], choice: str, target: Target | None = None) -> Indices:
    """Indices into ``columns`` of those that a choice of `CHOICES` and the target leave, ascending.

    >>> chosen_columns(["size__nodes__log", "candidates__hamming__mean", "mine"], "alone").tolist()
    [2]
    """
    graph, candidates = choice in ("no_graph", "alone"), choice in ("no_candidates", "alone")
    left_out: set[str] = {*foreign_columns(target)}
    for block in [*every_block("layout"), *every_block("tile")]:
        of_graph = block.scope is Scope.GRAPH or isinstance(block, InstanceGraph)
        if (graph and of_graph) or (candidates and block.transductive):
            left_out.update(block.columns)
    return np.array([i for i, name in enumerate(columns) if name not in left_out], np.intp)


def checked_indices(value: Any, columns: int) -> Indices:
    """Indices of chosen columns as they were saved; raises `ValueError` unless they ascend within the columns."""
    if not isinstance(value, list) or not all(type(index) is int and 0 <= index < columns for index in value):
        raise ValueError(f"the chosen columns are not among its {columns}")
    found = np.array(value, np.intp)
    if (np.diff(found) <= 0).any():
        raise ValueError("the chosen columns do not ascend")
    return found


#: Tolerances worth trying, shares of a cost: none, the repeats of a configuration on a TPU, those on a busy CPU.
_TIE_TOLERANCES: Final = (0.0, 0.001, 0.003, 0.01, 0.03)
_MOST_LEAVES: Final = 131_072  # LightGBM's limit


def leaves_param(layout: int, *, tile: int | None = None) -> Any:
    """``num_leaves``: most leaves of a tree."""
    return param(layout, Whole(2, _MOST_LEAVES), Between(4, 48, log=True), tile=tile)


def columns_param() -> Any:
    """``columns``: which are looked at, one of `CHOICES`.

    Tile collections hold few candidates a kernel: a rank among them does not carry over to other families.
    """
    return param("all", OneOf(CHOICES), Among(CHOICES), tile="no_candidates")


def init_score_param() -> Any:
    """``init_score_weight``: see `xlarank.models.rankers.init_score.InitScore`; only rows of tiles have one."""
    return param(0.0, Number(0), Among((0.0, 1.0, 2.0, 4.0)), tile=2.0, searched_for=("tile",))


def tie_tolerance_param(default: float = 0.0) -> Any:
    """``tie_tolerance``: costs that differ by no more than this share are equal."""
    return param(default, Number(0), Among(_TIE_TOLERANCES))


def graph_weight_param() -> Any:
    """``graph_weight``: how much a graph counts by its size, one of `GRAPH_WEIGHTS`."""
    return param("equal", OneOf(tuple(GRAPH_WEIGHTS)), Among(tuple(GRAPH_WEIGHTS)))


@dataclass(frozen=True, kw_only=True)
class PairLossParams(RankerParams):
    """Parameters of a loss on sampled pairs, of which ``pairs`` partners are drawn for each row and round."""

    init_score_weight: float = init_score_param()
    pairs: int = param(8, Whole(1), Between(2, 32, log=True))
    tie_tolerance: float = tie_tolerance_param()
    graph_weight: str = graph_weight_param()
    columns: str = columns_param()
