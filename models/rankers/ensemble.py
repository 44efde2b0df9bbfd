"""Several rankers as one: the weighted mean of the ranks that they give within a graph."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any, ClassVar, Final, Self

import numpy as np

from xlarank.data.errors import ParameterError
from xlarank.data.graph import Kind
from xlarank.features.instances.graph_instances import LazyInstances
from xlarank.models.arrays import Floats, Matrix
from xlarank.models.base import Learned, Ranker
from xlarank.models.explanation.parts import Parts, Rows
from xlarank.models.objectives import mean_rank
from xlarank.models.params import Between, Number, RankerParams, nested_params, param
from xlarank.models.rankers.sum_pooled import SumPooled
from xlarank.models.rankers.wide_rows import LambdaRank, RankNet
from xlarank.models.rankers.xgb_pairwise import XGBPairwise
from xlarank.models.training_data import FitSettings, TrainingData

#: What an ensemble can be made of.
MEMBERS: Final[dict[str, type[Ranker[Any]]]] = {
    ranker.name: ranker for ranker in (LambdaRank, RankNet, XGBPairwise, SumPooled)
}


def _whole_members(kind: Kind, given: Mapping[str, Any]) -> dict[str, RankerParams]:
    """Parameters of every member: those given, or some of them, else the defaults of the kind."""
    unknown = [name for name in dict(given) if name not in MEMBERS]
    if unknown:
        raise ParameterError(f"{unknown[0]!r} is not a member of an ensemble", expected=", ".join(MEMBERS))
    return {name: MEMBERS[name](given.get(name), kind=kind).params for name in MEMBERS}


@dataclass(frozen=True, kw_only=True)
class EnsembleParams(RankerParams):
    """Parameters of `Ensemble`: those of each of `MEMBERS`, and how much each counts, not all 0."""

    ranker: ClassVar[str] = "ensemble"

    members: Mapping[str, RankerParams] = nested_params(_whole_members)
    # By leave-family-out folds of the sample's layouts an even mix of both kinds of rows is as good as any mix with
    # more members (tau 0.649 and 0.487; rankers of wide rows alone 0.640 and 0.469). Tiles have one kind of rows.
    weight_lambdarank: float = param(0.0, Number(0), Between(0.0, 1.0), tile=1.0)
    weight_ranknet: float = param(1.0, Number(0), Between(0.0, 1.0), tile=1.0)
    weight_xgb_pairwise: float = param(0.0, Number(0), Between(0.0, 1.0), tile=1.0)
    weight_sum_pooled: float = param(1.0, Number(0), Between(0.0, 1.0), tile=0.0)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.positive_weights():
            raise ParameterError("the weights are all 0", expected="one member that counts")

    def positive_weights(self) -> dict[str, float]:
        """Weights of the members that have any."""
        weights: dict[str, float] = {name: getattr(self, weight_name(name)) for name in MEMBERS}
        return {name: weight for name, weight in weights.items() if weight > 0}


def weight_name(member: str) -> str:
    """The parameter of an ensemble that says how much a member counts, such as ``weight_xgb_pairwise``."""
    return f"weight_{member.replace('-', '_')}"


class Ensemble(Ranker[EnsembleParams]):
    """Weighted rank average of the members with positive weight, each fitted for the same number of rounds.

    A score depends on which other rows it is predicted with: these must be the configurations of one graph.
    """

    params_class = EnsembleParams
    part_classes = MEMBERS

    def __init__(self, params: EnsembleParams | Mapping[str, Any] | None = None, *, kind: Kind) -> None:
        super().__init__(params, kind=kind)
        self._members: dict[str, Ranker[Any]] = {}
        self._weights = self.params.positive_weights()
        self._starts: dict[str, Ranker[Any]] = {}  # unfitted members of a warm-started ensemble

    def clone(self) -> Self:
        twin = super().clone()
        twin._starts = self._starts
        return twin

    def continuing(self, rate: float = 1.0) -> Self:
        self._require_fitted()
        twin = self.clone()
        twin._starts = {name: member.continuing(rate) for name, member in self._members.items()}
        return twin

    def _fit(self, data: TrainingData, settings: FitSettings) -> None:
        own = self.params.members.items()
        each = self._starts or {name: MEMBERS[name](params, kind=self.kind) for name, params in own}
        self._members = {name: each[name].clone().fit(data, settings) for name in self._weights}

    def grow(self, data: TrainingData, settings: FitSettings) -> Self:
        self._members = {name: member.grow(data, settings) for name, member in self._members.items()}
        return self

    def _scores(self, rows: Matrix, instances: LazyInstances | None) -> Floats:
        scores = [member.predict(rows, self.columns, instances) for member in self._members.values()]
        return blend(scores, [*self._weights.values()])

    def _staged(self, rows: Matrix, every: int, instances: LazyInstances | None) -> Iterator[Floats]:
        latest: list[Floats] = []
        for stage in zip_longest(*(member.staged(rows, every, instances) for member in self._members.values())):
            # a member that ran out of splits stays where it is
            latest = [old if new is None else new for new, old in zip_longest(stage, latest)]
            yield blend(latest, [*self._weights.values()])

    def contributions(self, rows: Rows, now: int, then: int) -> Parts:
        return self._parts(rows, now, then, 0.0)

    def _parts(self, rows: Rows, now: int, then: int, difference: float) -> Parts:
        """Scale the contributions of each member to the difference of the ranks that it gives.

        A rank has no parts of its own. A member's contributions add up to its own difference of scores; times
        (difference of ranks) / (difference of scores) they add up to what it brings to the ensemble's score.
        """
        total, found = sum(self._weights.values()), []
        for name, member in self._members.items():
            rank = mean_rank(member.predict(rows.matrix, rows.columns, rows.instances))
            step = float(rank[now] - rank[then]) * self._weights[name] / total
            part = member.contributions(rows, now, then)
            found.append(part.scaled(step / part.difference if step else 0.0))
        return Parts.total(found)

    def _gains(self) -> dict[str, float]:
        """The weighted mean of the members' shares."""
        total, shares = sum(self._weights.values()), dict[str, float]()
        for name, member in self._members.items():
            for column, share in member.importance().items():
                shares[column] = shares.get(column, 0.0) + share * self._weights[name] / total
        return shares

    def _learned(self) -> Learned:
        return Learned({"continued": True} if self._starts else {}, parts=self._members)

    def _restore(self, learned: Learned) -> None:
        if self._weights.keys() != learned.parts.keys():
            raise ValueError(f"its members are {', '.join(learned.parts) or 'none'}")
        self._members = {name: learned.parts[name] for name in self._weights}
        if any(member.columns != self.columns for member in self._members.values()):
            raise ValueError("its members were trained on different columns")
        if learned.state.get("continued"):
            self._starts = {name: member.clone() for name, member in self._members.items()}


def blend(scores: Sequence[Floats], weights: Sequence[float] | Floats) -> Floats:
    """Weighted mean of the within-graph ranks of several rankers' scores, ``(rows,)`` of one graph, 0 to 1.

    Scores of different losses have different units, and one ranker's scores spread differently in every
    graph; ranks do not.

    >>> blend([np.array([0.1, 0.2, 0.3]), np.array([70.0, 50.0, 60.0])], [1.0, 3.0]).tolist()
    [0.75, 0.125, 0.625]
    """
    return np.average([mean_rank(score) for score in scores], axis=0, weights=weights)
