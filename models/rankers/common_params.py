"""Parameters that several rankers share."""

from __future__ import annotations

from typing import Any, Final

from xlarank.models.objectives.graph_weights import GRAPH_WEIGHTS
from xlarank.models.param_checks import Number, OneOf, Whole
from xlarank.models.params import param
from xlarank.models.rankers.columns import CHOICES
from xlarank.models.search_space import Among, Between

#: Tolerances worth trying, shares of a cost: none, the repeats of a configuration on a TPU, those on a busy CPU.
_TIE_TOLERANCES: Final = (0.0, 0.001, 0.003, 0.01, 0.03)
#: Weights of the initial score worth trying, in units of a ranker's default.
_INIT_SCORE_FACTORS: Final = (0.0, 0.5, 1.0, 2.0)

#: LightGBM's limit.
_MOST_LEAVES: Final = 131_072


def leaves_param(layout: int, *, tile: int | None = None) -> Any:
    """``num_leaves``: most leaves of a tree."""
    check, search = Whole(2, _MOST_LEAVES), Between(4, 48, log=True)
    return param(layout, check, search, tile=layout if tile is None else tile)


def columns_param() -> Any:
    """``columns``: which are looked at, one of `xlarank.models.rankers.columns.CHOICES`.

    Tile collections hold few candidates a kernel: a rank among them does not carry over to other families.
    """
    return param("all", OneOf(CHOICES), Among(CHOICES), tile="no_candidates")


def init_score_param(tile: float) -> Any:
    """``init_score_weight``: see `xlarank.models.rankers.init_score.InitScore`; only rows of tiles have one."""
    search = Among(tuple(factor * tile for factor in _INIT_SCORE_FACTORS))
    return param(0.0, Number(0), search, tile=tile, searched_for=("tile",))


def tie_tolerance_param(default: float) -> Any:
    """``tie_tolerance``: costs that differ by no more than this share are equal."""
    return param(default, Number(0), Among(_TIE_TOLERANCES))


def graph_weight_param() -> Any:
    """``graph_weight``: how much a graph counts by its size, one of `GRAPH_WEIGHTS`."""
    return param("equal", OneOf(tuple(GRAPH_WEIGHTS)), Among(tuple(GRAPH_WEIGHTS)))


def pairs_param(search: Between) -> Any:
    """``pairs``: partners drawn for each row and round."""
    return param(8, Whole(1), search)
