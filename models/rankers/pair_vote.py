"""Trees that say which of two configurations is faster; all pairs of a graph vote."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any, ClassVar, Final, Self

import lightgbm as lgb
import numpy as np
from scipy.special import expit

from xlarank.data.graph import Kind
from xlarank.data.ranges import MAX_SEED
from xlarank.features.instances.graph_instances import LazyInstances
from xlarank.features.rows import GraphRows
from xlarank.models.arrays import Floats, Indices, Matrix
from xlarank.models.base import Learned, Ranker
from xlarank.models.explanation.parts import Parts, Rows
from xlarank.models.objectives import RankNetLoss, faster_by_sign, row_weights
from xlarank.models.params import Between, Number, Whole, param
from xlarank.models.rankers.boosted import InitScore, PairLossParams, by_name, checked_indices, chosen_columns
from xlarank.models.rankers.booster_text import narrowed_text
from xlarank.models.rankers.lightgbm import LightGBMRanker, TreeParams
from xlarank.models.rankers.lightgbm_data import Batches, RowTargets
from xlarank.models.training_data import FitSettings, TrainingData, in_batches

#: A graph, and the rows of each pair, ``(pairs,)``.
PairsOfGraph = tuple[GraphRows, Indices, Indices]
#: `PairVote.chances`.
Chances = Callable[[Matrix, Matrix, Sequence[int]], Floats]

#: Pairs that are asked for in one call.
_BATCH: Final = 1 << 13


@dataclass(frozen=True, kw_only=True)
class PairVoteParams(PairLossParams, TreeParams):
    """Parameters of `PairVote`.

    Attributes:
        pairs: partners drawn for each row, once.
        max_pairs: maximum number of training pairs over all graphs; each row keeps at least one partner.
        all_pairs: maximum number of rows of a graph for which all pairs vote.
        opponents: voters per row in larger graphs.
    """

    ranker: ClassVar[str] = "pair-vote"

    feature_fraction: float = param(0.7, Number(0, 1, above=True), Between(0.1, 1.0), tile=0.5)
    max_pairs: int = param(1_000_000, Whole(1))
    all_pairs: int = param(2000, Whole(2))
    opponents: int = param(200, Whole(1))


class PairVote(LightGBMRanker[PairVoteParams]):
    """A binary classifier of sampled pairs: the columns of one configuration and their difference to another's.

    A score is the share of votes against a configuration, 0 to 1 (`vote_shares`), of all configurations of the
    graph or of a random sample. It depends on the other rows, but not on their order. The 11th place of the Kaggle
    competition ranked layouts like this. With an initial score, a pair starts at the difference of the relevances.
    """

    params_class = PairVoteParams
    row_by_row = False

    def __init__(self, params: PairVoteParams | Mapping[str, Any] | None = None, *, kind: Kind) -> None:
        super().__init__(params, kind=kind)
        self._differences: Indices = np.empty(0, np.intp)
        self._seed = 0

    @property
    def _source(self) -> Indices:
        return np.concatenate([self._used, self._differences])

    def continuing(self, rate: float = 1.0) -> Self:
        return Ranker.continuing(self, rate)  # it cannot: what its trees look at is drawn anew

    def _fit(self, data: TrainingData, settings: FitSettings) -> None:
        own = self.params
        self._threads, self._seed = settings.threads, settings.seed
        self._used = chosen_columns(data.columns, own.columns, data.target)
        self._differences = self._used[self._used >= len(data.parts[0].graph_values)]
        self._init_score = InitScore.find(data.columns, own.init_score_weight, data.target)
        groups, ahead, weight = self._drawn(data, np.random.default_rng(settings.seed))
        ordered = bool(weight.any())
        start: Floats | None = None
        if ordered and self._init_score:
            each = ((self._init_score.relevance(rows.matrix()), one, other) for rows, one, other in groups)
            start = np.concatenate([of[one] - of[other] for of, one, other in each])
        targets = RowTargets(label=ahead, weight=weight if ordered else None, start=start)
        rows: Any = [Batches(len(group[1]), partial(self._pair_matrix, *group)) for group in groups]
        if not in_batches(len(ahead), len(self._source)):
            rows = np.concatenate([self._pair_matrix(*group) for group in groups])
        train = targets.binned(rows, settings.threads)
        # Without an intercept: it would say that whoever is asked first is the faster, and blur what a stage is.
        # Where all pairs are ties a regression of 0 grows stumps of nothing; classes of weight 0 give no numbers.
        objective = "binary" if ordered else "regression"
        params = {"objective": objective, "boost_from_average": False}
        # Of this many pairs histograms by rows are 1.5 times as fast, and in one thread the same to the last bit.
        params |= {"force_col_wise": settings.threads != 1, "force_row_wise": settings.threads == 1}
        self._narrow(lgb.train({**self._tree_settings(settings), **params}, train, settings.rounds))

    def _narrow(self, booster: lgb.Booster) -> None:
        """Keep the columns that trees split by, mostly a fifth: a vote takes as long as it has columns."""
        kept = np.flatnonzero(booster.feature_importance("split"))
        kept = kept if kept.size else np.arange(1)
        self._booster = lgb.Booster(model_str=narrowed_text(booster.model_to_string(), kept.tolist()))
        own = len(self._used)
        self._used, self._differences = self._used[kept[kept < own]], self._differences[kept[kept >= own] - own]

    def _drawn(self, data: TrainingData, rng: np.random.Generator) -> tuple[list[PairsOfGraph], Floats, Floats]:
        """Pairs of each graph, and of all pairs whether the first is the faster (0 or 1) and the weights.

        Ties teach nothing and are left out; where there is nothing else they stay, at weight 0.
        """
        own = self.params
        row_weight = row_weights(data.indptr, own.graph_weight, data.group_weight)
        pairs = max(1, min(own.pairs, own.max_pairs // max(1, len(data.cost))))
        loss = RankNetLoss(data.cost, data.indptr, row_weight, pairs, own.tie_tolerance)
        second = np.stack([loss.partners(rng) for _ in range(pairs)], axis=1).reshape(-1)
        first = np.repeat(np.arange(len(data.cost)), pairs)
        sign = faster_by_sign(data.cost[first], data.cost[second], own.tie_tolerance)
        kept = np.flatnonzero(sign) if sign.any() else np.arange(len(sign))
        bounds = np.searchsorted(first[kept], data.indptr)
        groups = [
            (rows, first[kept[a:b]] - row, second[kept[a:b]] - row)
            for rows, row, a, b in zip(data.parts, data.indptr[:-1], bounds[:-1], bounds[1:], strict=True)
            if a < b
        ]
        weight = np.where(sign[kept] != 0, row_weight[first[kept]], 0.0)
        return groups, (sign[kept] > 0).astype(np.float64), weight

    def _pair_matrix(self, rows: GraphRows, first: Indices, second: Indices, which: slice = slice(None)) -> Matrix:
        """``(pairs, columns of a pair)``: the first's columns, and how much its differences exceed the second's."""
        one, other = first[which], second[which]
        difference = rows.matrix(one, self._differences) - rows.matrix(other, self._differences)
        return np.concatenate([rows.matrix(one, self._used), difference], axis=1)

    def _pairs(self, first: Matrix, second: Matrix) -> Matrix:
        """``(a * b, columns of a pair)`` of each of ``(a, columns)`` with each of ``(b, columns)`` wide rows."""
        found = np.empty((len(first), len(second), len(self._source)), np.float32)
        found[:, :, : len(self._used)] = first[:, None, self._used]
        found[:, :, len(self._used) :] = first[:, None, self._differences] - second[:, self._differences]
        return found.reshape(-1, len(self._source))

    def chances(self, first: Matrix, second: Matrix, stages: Sequence[int]) -> Floats:
        """``(stages, a, b)`` that each of ``(a, columns)`` is faster than each of ``(b, columns)`` rows.

        ``stages`` are numbers of trees, ascending.
        """
        pairs = self._pairs(first, second)
        started = (self._started(first)[:, None] - self._started(second)).reshape(-1)
        predict = partial(self._booster.predict, pairs, raw_score=True, num_threads=self._threads)
        grown = [predict(start_iteration=a, num_iteration=b - a) for a, b in pairwise([0, *stages])]
        margins = np.cumsum([started, *grown], axis=0)[1:]
        return expit(margins).reshape(len(stages), len(first), len(second))

    def _margin_parts(self, first: Matrix, second: Matrix) -> Floats:
        """``(a, b, columns + 1)`` what each column of wide rows adds to log odds, and last what all share."""
        grown = self._checked_parts(self._pairs(first, second))
        added = np.zeros((len(grown), first.shape[1] + 1))
        own = len(self._used)
        added[:, self._used] = grown[:, :own]
        added[:, self._differences] += grown[:, own:-1]
        added[:, -1] = grown[:, -1]
        if self._init_score is not None:
            for column in self._init_score.columns:
                started = second[:, column] - first[:, column][:, None]
                added[:, column] += self._init_score.weight * started.reshape(-1)
        return added.reshape(len(first), len(second), -1)

    def _parts(self, rows: Rows, now: int, then: int, difference: float) -> Parts:
        """Follow the columns through the slopes of the voters' chances.

        A voter's chance differs between the two rows by the difference of their margins times the slope of the
        logistic function between them. Margins are sums of exact contributions of columns, so these, times the
        slopes and averaged over voters, add up exactly.
        """
        two, voters = rows.matrix[[now, then]], self.voters(rows.matrix)
        ahead = _change(self._margin_parts(two, voters))
        behind = _change(self._margin_parts(voters, two).swapaxes(0, 1))
        change = -(ahead - behind) / (2 * len(voters))
        nodes: dict[int, float] = {}
        if rows.walk is not None:
            nodes = rows.walk.by_node(vote_shares(self.chances, rows.walk.matrix, voters, [self._rounds])[0])
        return Parts(difference, by_name(change, self.columns), nodes=nodes)

    def _scores(self, rows: Matrix, instances: LazyInstances | None) -> Floats:
        return np.asarray(self._votes(rows, [self._rounds])[0])

    def _staged(self, rows: Matrix, every: int, instances: LazyInstances | None) -> Iterator[Floats]:
        yield from self._votes(rows, [*range(every, self._rounds, every), self._rounds])

    @property
    def _rounds(self) -> int:
        return max(1, int(self._booster.num_trees()))

    def _votes(self, rows: Matrix, stages: Sequence[int]) -> Floats:
        """``(stages, rows)`` shares of votes against each."""
        order, found = _order(rows), np.empty((len(stages), len(rows)))
        ordered = rows[order]
        voters = self._sample(ordered) if len(rows) > self.params.all_pairs else None
        found[:, order] = vote_shares(self.chances, ordered, voters, stages)
        return found

    def voters(self, rows: Matrix) -> Matrix:
        """The rows of a graph that all are compared with: all, or a sample that does not depend on their order."""
        return self._sample(rows[_order(rows)]) if len(rows) > self.params.all_pairs else rows

    def _sample(self, ordered: Matrix) -> Matrix:
        most = min(len(ordered), self.params.opponents)
        return ordered[np.sort(np.random.default_rng(self._seed).choice(len(ordered), most, replace=False))]

    def _learned(self) -> Learned:
        learned = super()._learned()
        learned.state.update(differences=self._differences.tolist(), seed=self._seed)
        return learned

    def _restore(self, learned: Learned) -> None:
        self._differences = checked_indices(learned.state["differences"], len(self.columns))
        self._seed = Whole(0, MAX_SEED)("its seed", learned.state["seed"])
        super()._restore(learned)


def _order(rows: Matrix) -> Indices:
    """``(rows,)`` an order that is the same however they came: the sums of votes, and who votes, follow it."""
    whole = np.ascontiguousarray(rows)
    order: Indices = np.argsort(whole.view((np.void, whole.itemsize * whole.shape[1])).reshape(-1), kind="stable")
    return order


def _change(parts: Floats) -> Floats:
    """``(columns,)`` what columns add to the sum over voters of the chances of the first minus the second's.

    ``parts (2, voters, columns + 1)`` are those of the margins.
    """
    margin = parts.sum(axis=2)
    first, second = expit(margin)
    apart = margin[0] - margin[1]
    near = np.abs(apart) < 1e-9
    slope = np.where(near, first * (1 - first), (first - second) / np.where(near, 1.0, apart))
    found: Floats = slope @ (parts[0] - parts[1])[:, :-1]
    return found


def vote_shares(chances: Chances, rows: Matrix, voters: Matrix | None, stages: Sequence[int]) -> Floats:
    """``(stages, rows)`` the share of votes against each row, 0 to 1, lower is faster.

    The vote of a pair is v(a, b) = (p(a, b) + 1 - p(b, a)) / 2, p the chance that is asked for: whatever p says,
    v(a, b) + v(b, a) = 1. The share is 1 minus the mean of v over all ``voters (voters, columns)``; who votes on
    itself gives 1/2. Without voters all rows vote, and each p is asked for once.
    """
    asked = rows if voters is None else voters
    ahead: list[Floats] = []
    behind: list[Floats] = []
    step = max(1, _BATCH // max(1, len(asked)))
    for at in range(0, len(rows), step):
        batch = rows[at : at + step]
        found = chances(batch, asked, stages)
        ahead.append(found.sum(axis=2))
        # where all vote, what the first's ahead ask for is what the second's behind do
        behind.append((found if voters is None else chances(voters, batch, stages)).sum(axis=1))
    against = sum(behind) if voters is None else np.concatenate(behind, axis=1)
    shares: Floats = 0.5 - (np.concatenate(ahead, axis=1) - against) / (2 * len(asked))
    return shares
