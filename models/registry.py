"""Rankers by name."""

from __future__ import annotations

from typing import Any, Final

from xlarank.data.errors import ParameterError, did_you_mean
from xlarank.models.base import Ranker
from xlarank.models.rankers.ensemble import MEMBERS, Ensemble
from xlarank.models.rankers.sibling import SiblingRanker
from xlarank.models.rankers.time_trees import TimeTrees
from xlarank.models.rankers.wide_rows import LambdaRank

RANKERS: Final[dict[str, type[Ranker[Any]]]] = {
    **MEMBERS,
    **{ranker.name: ranker for ranker in (Ensemble, SiblingRanker, TimeTrees)},
}
DEFAULT: Final = LambdaRank.name


def ranker_class(name: str) -> type[Ranker[Any]]:
    """Return the class of a ranker; raises `ParameterError` for an unknown name."""
    if name not in RANKERS:
        do = did_you_mean(str(name), RANKERS)
        raise ParameterError(f"{name!r} is not a model", expected=", ".join(RANKERS), do=do)
    return RANKERS[name]
