"""Several rankers as one: the weighted mean of the ranks that they give within a graph."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any, ClassVar, Final, Self

import numpy as np
from numpy.typing import NDArray

from xlarank.data.errors import ModelError
from xlarank.data.graph import Kind
from xlarank.features.instances.graph_instances import LazyInstances
from xlarank.models.base import Learned, Ranker
from xlarank.models.explanation.parts import Parts, Rows
from xlarank.models.fit_settings import FitSettings
from xlarank.models.objectives import mean_rank
from xlarank.models.params import Between, Number, OneOf, RankerParams, nested_params, param
from xlarank.models.rankers.lambdarank import LambdaRank
from xlarank.models.rankers.pair_vote import PairVote
from xlarank.models.rankers.ranknet import RankNet
from xlarank.models.rankers.sum_pooled import SumPooled
from xlarank.models.rankers.xgb_pairwise import XGBPairwise
from xlarank.models.ranking_data import RankingData
from xlarank.models.validation.curves import out_of_fold_scores
from xlarank.models.validation.folds import family_folds, whole_folds
from xlarank.models.validation.metrics import kendall_tau

Floats = NDArray[np.float64]

#: Weights are multiples of one over this; a finer grid would only fit noise.
STEPS: Final = 10
#: Standard errors over graphs by which other weights must beat equal ones.
_ERRORS: Final = 2.0
#: What an ensemble can be made of.
MEMBERS: Final[dict[str, type[Ranker[Any]]]] = {
    ranker.name: ranker for ranker in (LambdaRank, RankNet, XGBPairwise, SumPooled, PairVote)
}
#: ``given``: the weights of the parameters; ``out_of_fold``: `ensemble_weights` of
#: folds within the data learned from, for several times the work.
WEIGHTS: Final = ("given", "out_of_fold")

_FOLDS: Final = 3


def _weight(layout: float, tile: float) -> Any:
    """How much a member counts."""
    return param(layout, Number(0), Between(0.0, 1.0), tile=tile)


def _whole_members(kind: Kind, given: Mapping[str, Any]) -> dict[str, RankerParams]:
    """Parameters of every member: those given, or some of them, else the defaults of the kind."""
    unknown = [name for name in dict(given) if name not in MEMBERS]
    if unknown:
        raise ModelError(f"{unknown[0]!r} is not a member of an ensemble", expected=", ".join(MEMBERS))
    return {name: MEMBERS[name](given.get(name), kind=kind).params for name in MEMBERS}


@dataclass(frozen=True, kw_only=True)
class EnsembleParams(RankerParams):
    """Parameters of `Ensemble`.

    Attributes:
        members: parameters of each of `MEMBERS`.
        weights: one of `WEIGHTS`.
        weight_lambdarank, weight_ranknet, weight_xgb_pairwise, weight_sum_pooled, weight_pair_vote:
            how much each member counts, not all 0; with weights "out_of_fold" only which ones do.
    """

    ranker: ClassVar[str] = "ensemble"

    members: Mapping[str, RankerParams] = nested_params(_whole_members)
    weights: str = param("given", OneOf(WEIGHTS))
    # By leave-family-out folds of the sample's layouts an even mix of both kinds of rows is as good as any mix with
    # more members (tau 0.649 on layout:cpu:random, 0.487 on layout:cpu:default; the four wide-row rankers 0.640 and
    # 0.469). Tiles have one kind of rows only.
    weight_lambdarank: float = _weight(0.0, tile=1.0)
    weight_ranknet: float = _weight(1.0, tile=1.0)
    weight_xgb_pairwise: float = _weight(0.0, tile=1.0)
    weight_sum_pooled: float = _weight(1.0, tile=0.0)
    # Not searched: better than ranknet beside sum-pooled where labels are estimates, level with it on a CPU, and a
    # graph of 1000 configurations takes it three seconds. For those who can wait.
    weight_pair_vote: float = param(0.0, Number(0))

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.positive_weights():
            raise ModelError("the weights are all 0", expected="one member that counts")

    def positive_weights(self) -> dict[str, float]:
        """Weights of the members that have any."""
        weights: dict[str, float] = {name: getattr(self, weight_name(name)) for name in MEMBERS}
        return {name: weight for name, weight in weights.items() if weight > 0}


def weight_name(member: str) -> str:
    """The parameter of an ensemble that says how much a member counts.

    >>> weight_name("xgb-pairwise")
    'weight_xgb_pairwise'
    """
    return f"weight_{member.replace('-', '_')}"


class Ensemble(Ranker[EnsembleParams]):
    """Rank average of the `MEMBERS` of positive weight; each learns the same number of rounds.

    A score depends on which other rows it is predicted with: these must be the configurations of one graph.
    """

    name = EnsembleParams.ranker
    params_class = EnsembleParams
    part_classes = MEMBERS

    def __init__(self, params: EnsembleParams | Mapping[str, Any] | None = None, *, kind: Kind) -> None:
        super().__init__(params, kind=kind)
        self._members: dict[str, Ranker[Any]] = {}
        self._weights: dict[str, float] = {}
        self._starts: dict[str, Ranker[Any]] = {}  # unfitted members that go on, where it does

    def clone(self) -> Self:
        twin = super().clone()
        twin._starts = self._starts
        twin._weights = self._weights if self._starts else {}
        return twin

    def continuing(self, rate: float = 1.0) -> Self:
        """Every member goes on; their weights stay."""
        self._require_fitted()
        twin = self.clone()
        twin._starts = {name: member.continuing(rate) for name, member in self._members.items()}
        twin._weights = self._weights
        return twin

    def _member(self, name: str) -> Ranker[Any]:
        """An unfitted member."""
        if self._starts:
            return self._starts[name].clone()
        return MEMBERS[name](self.params.members[name], kind=self.kind)

    def _fit(self, data: RankingData, settings: FitSettings) -> None:
        weights = self._weights if self._starts else self.params.positive_weights()
        if not self._starts and self.params.weights == "out_of_fold":
            folds = whole_folds(family_folds(data.families, _FOLDS))
            held_out = [out_of_fold_scores(self._member(name), data, folds, settings) for name in weights]
            found = ensemble_weights(held_out, data)
            weights = {name: float(weight) for name, weight in zip(weights, found, strict=True) if weight > 0}
        self._weights = weights
        self._members = {name: self._member(name).fit(data, settings) for name in weights}

    def _grow_on(self, data: RankingData, settings: FitSettings) -> None:
        if self.params.weights == "out_of_fold":  # the weights depend on the rounds
            self._fit(data, settings)
        else:
            self._members = {name: member.grow(data, settings) for name, member in self._members.items()}

    def _scores(self, rows: NDArray[np.float32], instances: LazyInstances | None) -> NDArray[np.float64]:
        scores = [member.predict(rows, self.columns, instances) for member in self._members.values()]
        return blend(scores, list(self._weights.values()))

    def _staged(
        self, rows: NDArray[np.float32], every: int, instances: LazyInstances | None
    ) -> Iterator[NDArray[np.float64]]:
        latest: list[NDArray[np.float64]] = []
        for stage in zip_longest(*(member.staged(rows, every, instances) for member in self._members.values())):
            # a member that ran out of splits stays where it is
            latest = [old if new is None else new for new, old in zip_longest(stage, latest)]
            yield blend(latest, list(self._weights.values()))

    def contributions(self, rows: Rows, now: int, then: int) -> Parts:
        """Scale the contributions of each member to the difference of the ranks that it gives.

        A rank has no parts of its own. A member's contributions add up to its own difference of scores; times
        (difference of ranks) / (difference of scores) they add up to what it brings to the ensemble's score.
        """
        total = sum(self._weights.values())
        found = []
        for name, member in self._members.items():
            rank = mean_rank(member.predict(rows.matrix, rows.columns, rows.instances))
            step = float(rank[now] - rank[then]) * self._weights[name] / total
            part = member.contributions(rows, now, then)
            found.append(part.scaled(step / part.difference if step else 0.0))
        return Parts.total(found)

    def _gains(self) -> dict[str, float]:
        """The weighted mean of the members' shares."""
        total = sum(self._weights.values())
        shares: dict[str, float] = {}
        for name, member in self._members.items():
            for column, share in member.importance().items():
                shares[column] = shares.get(column, 0.0) + share * self._weights[name] / total
        return shares

    def _learned(self) -> Learned:
        state: dict[str, Any] = {"weights": self._weights}
        return Learned(state | ({"continued": True} if self._starts else {}), parts=self._members)

    def _restore(self, learned: Learned) -> None:
        self._weights = {name: float(weight) for name, weight in learned.state["weights"].items()}
        self._members = learned.parts
        if not np.isfinite([*self._weights.values()]).all():
            raise ValueError("its weights are no numbers")
        if not self._members or self._weights.keys() != self._members.keys():
            raise ValueError(f"its members are {', '.join(self._members) or 'none'}")
        if any(member.columns != self.columns for member in self._members.values()):
            raise ValueError("its members learned from different columns")
        if learned.state.get("continued"):
            self._starts = {name: member.clone() for name, member in self._members.items()}


def blend(scores: Sequence[Floats], weights: Sequence[float] | Floats) -> Floats:
    """Weighted mean of the within-graph ranks of several rankers' scores, ``(rows,)`` of one graph, 0 to 1.

    Scores of different losses have different units, and one ranker's scores spread differently in every
    graph; ranks do not.

    >>> blend([np.array([0.1, 0.2, 0.3]), np.array([70.0, 50.0, 60.0])], [1.0, 3.0]).tolist()
    [0.75, 0.125, 0.625]
    """
    mixed: Floats = np.average([mean_rank(score) for score in scores], axis=0, weights=weights)
    return mixed


def ensemble_weights(out_of_fold: Sequence[Floats], data: RankingData) -> Floats:
    """Weights of rankers, ``(rankers,)`` from 0, summing to 1, by Kendall's tau of their `blend`.

    Every split of the whole into tenths is tried; of the best the most even. It must beat equal weights,
    graph by graph, by two standard errors of the mean over graphs; else equal weights stay.

    Args:
        out_of_fold: ``(rows,)`` scores of each ranker on graphs that it did not learn from.
    """
    parts = [slice(a, b) for a, b in zip(data.indptr[:-1], data.indptr[1:], strict=True)]
    ranks = [np.stack([mean_rank(scores[part]) for scores in out_of_fold]) for part in parts]

    def taus(weights: Floats) -> Floats:
        return np.array(
            [kendall_tau(_even(weights @ rank), data.cost[part]) for rank, part in zip(ranks, parts, strict=True)]
        )

    rankers = len(out_of_fold)
    equal = np.full(rankers, 1 / rankers)
    grid = np.array(list(_compositions(STEPS, rankers))) / STEPS
    grid = grid[np.argsort(((grid - equal) ** 2).sum(axis=1), kind="stable")]
    found = np.array([taus(weights) for weights in grid])
    best = int(np.argmax(found.mean(axis=1)))
    difference = found[best] - taus(equal)
    graphs = len(difference)
    error = difference.std(ddof=1) / np.sqrt(graphs) if graphs > 1 else np.inf
    chosen: Floats = grid[best] if difference.mean() > _ERRORS * error else equal
    return chosen


def _even(values: Floats) -> Floats:
    """Without the last bits, in which sums that are equal on paper differ."""
    return values.round(12)


def _compositions(total: int, parts: int) -> Iterator[tuple[int, ...]]:
    """Every way to write ``total`` as a sum of ``parts`` whole numbers from 0, in order."""
    if parts == 1:
        yield (total,)
        return
    for first in range(total + 1):
        for rest in _compositions(total - first, parts - 1):
            yield (first, *rest)
