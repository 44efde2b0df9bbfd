"""Ensemble of rankers: the weighted mean of their ranks within a graph."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any, ClassVar, Final, Self

import numpy as np

from xlarank.data.errors import ParameterError
from xlarank.data.graph import Kind
from xlarank.features.attribution import Walk
from xlarank.features.rows import GraphRows, LazyInstances
from xlarank.models.arrays import Floats, Matrix
from xlarank.models.base import Parts, Ranker, mean_importance
from xlarank.models.objectives import mean_rank
from xlarank.models.params import Between, Number, RankerParams, nested_params, param
from xlarank.models.rankers.boosted import LambdaRank, RankNet, XGBPairwise
from xlarank.models.rankers.sum_pooled import SumPooled
from xlarank.models.training_data import FitSettings, TrainingData

#: Possible members of an ensemble.
MEMBERS: Final[dict[str, type[Ranker[Any]]]] = {
    ranker.name: ranker for ranker in (LambdaRank, RankNet, XGBPairwise, SumPooled)
}


def _complete_members(kind: Kind, values: Mapping[str, Any]) -> dict[str, RankerParams]:
    for name in dict(values):
        if name not in MEMBERS:
            raise ParameterError(
                f"{name!r} is not a member of an ensemble", expected=", ".join(MEMBERS)
            )
    return {name: MEMBERS[name](values.get(name), kind=kind).params for name in MEMBERS}


@dataclass(frozen=True, kw_only=True)
class EnsembleParams(RankerParams):
    """Parameters of `Ensemble`: each member's parameters and weight; at least one weight is
    positive.
    """

    ranker: ClassVar[str] = "ensemble"

    members: Mapping[str, RankerParams] = nested_params(_complete_members)
    # On leave-family-out folds of layout:cpu:random and layout:cpu:default, an even mix of trees on
    # rows and on instances is as good as more members (tau 0.649 and 0.487; rows alone: 0.640,
    # 0.469). Tiles have no instances.
    weight_lambdarank: float = param(0.0, Number(0), Between(0.0, 1.0), tile=1.0)
    weight_ranknet: float = param(1.0, Number(0), Between(0.0, 1.0), tile=1.0)
    weight_xgb_pairwise: float = param(0.0, Number(0), Between(0.0, 1.0), tile=1.0)
    weight_sum_pooled: float = param(1.0, Number(0), Between(0.0, 1.0), tile=0.0)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.positive_weights():
            raise ParameterError("the weights are all 0", expected="one member that counts")

    def positive_weights(self) -> dict[str, float]:
        weights = {name: getattr(self, f"weight_{name.replace('-', '_')}") for name in MEMBERS}
        return {name: weight for name, weight in weights.items() if weight > 0}


class Ensemble(Ranker[EnsembleParams]):
    """Weighted rank average of the members with positive weight, each fitted for the same number of
    rounds.
    """

    params_class = EnsembleParams
    part_names = tuple(MEMBERS)

    def __init__(
        self, params: EnsembleParams | Mapping[str, Any] | None = None, *, kind: Kind
    ) -> None:
        super().__init__(params, kind=kind)
        self._weights = self.params.positive_weights()
        self._members: dict[str, Ranker[Any]] = {}
        self._warm_start: dict[str, Ranker[Any]] = {}  # unfitted members

    def continuing(self, rate: float = 1.0) -> Self:
        self._require_fitted()
        ranker = self.clone()
        ranker._warm_start = {
            name: member.continuing(rate) for name, member in self._members.items()
        }
        return ranker

    def fit(self, data: TrainingData, settings: FitSettings) -> Self:
        self._require_rounds(settings)
        params = self.params.members
        unfitted = self._warm_start or {
            name: MEMBERS[name](params[name], kind=self.kind) for name in self._weights
        }
        self._members = {name: unfitted[name].clone().fit(data, settings) for name in self._weights}
        self.columns = data.columns
        return self

    def grow(self, data: TrainingData, settings: FitSettings) -> Self:
        self._members = {
            name: member.grow(data, settings) for name, member in self._members.items()
        }
        return self

    def predict(
        self, rows: Matrix, columns: list[str], instances: LazyInstances | None = None
    ) -> Floats:
        self._require_fitted(columns)
        scores = [member.predict(rows, columns, instances) for member in self._members.values()]
        return blend(scores, [*self._weights.values()])

    def staged(
        self, rows: Matrix, every: int, instances: LazyInstances | None = None
    ) -> Iterator[Floats]:
        self._require_fitted()
        latest: list[Floats] = []
        for stage in zip_longest(
            *(member.staged(rows, every, instances) for member in self._members.values())
        ):
            # members that stopped early keep their last scores
            latest = [old if new is None else new for new, old in zip_longest(stage, latest)]
            yield blend(latest, [*self._weights.values()])

    def contributions(
        self, graph: GraphRows, now: int, then: int, walk: Walk | None = None
    ) -> Parts:
        """Sum the members' contributions, scaled from differences of scores to weighted differences
        of ranks.
        """
        rows = graph.matrix()
        total = sum(self._weights.values())
        parts = []
        for name, member in self._members.items():
            ranks = mean_rank(member.predict(rows, graph.columns, graph.instances))
            step = float(ranks[now] - ranks[then]) * self._weights[name] / total
            parts.append(member.contributions(graph, now, then, walk).scaled_to(step))
        return Parts.total(parts)

    def importance(self) -> dict[str, float]:
        self._require_fitted()
        return mean_importance([*self._members.values()], [*self._weights.values()])

    def _write(self, folder: Path) -> dict[str, Any]:
        for name, member in self._members.items():
            (folder / name).mkdir()
            member.save(folder / name)
        return {"parts": [*self._members]} | ({"continued": True} if self._warm_start else {})

    def _read(self, folder: Path, state: Mapping[str, Any]) -> None:
        if self._weights.keys() != {*state["parts"]}:
            raise ValueError(f"its members are {', '.join(state['parts']) or 'none'}")
        self._members = {name: MEMBERS[name].load(folder / name) for name in self._weights}
        if any(member.columns != self.columns for member in self._members.values()):
            raise ValueError("its members were trained on different columns")
        if state.get("continued"):
            self._warm_start = {name: member.clone() for name, member in self._members.items()}


def blend(scores: Sequence[Floats], weights: Sequence[float] | Floats) -> Floats:
    """Return the weighted mean of the within-graph ranks of several rankers' scores, ``(rows,)``,
    from 0 to 1.

    >>> blend([np.array([0.1, 0.2, 0.3]), np.array([70.0, 50.0, 60.0])], [1.0, 3.0]).tolist()
    [0.75, 0.125, 0.625]
    """
    return np.average([mean_rank(score) for score in scores], axis=0, weights=weights)
