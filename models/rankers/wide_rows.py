"""LightGBM trees on wide rows: LightGBM's lambdarank and RankNet's loss."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Final

import numpy as np

from xlarank.models.objectives import LABELS, MAX_GROUP, RankNetLoss, merge_ties, relevance, row_weights
from xlarank.models.params import Among, Between, Number, OneOf, Whole, param
from xlarank.models.rankers.boosted import (
    PairLossParams,
    columns_param,
    init_score_param,
    leaves_param,
    tie_tolerance_param,
)  # fmt: skip
from xlarank.models.rankers.lightgbm import LightGBMRanker, TreeParams
from xlarank.models.rankers.lightgbm_data import RowTargets
from xlarank.models.training_data import FitSettings, TrainingData

#: Sizes of query groups worth trying; small ones are drawn from a graph of few configurations, too.
_GROUPS: Final = (30, 100, 250, 1000)


@dataclass(frozen=True, kw_only=True)
class LambdaRankParams(TreeParams):
    """Parameters of `LambdaRank`.

    Attributes:
        lambdarank_norm: normalise the gradients of a group.
        labels: one of `xlarank.models.objectives.LABELS`.
        max_group: maximum number of rows of a query group; larger graphs are split at random into several.
    """

    ranker: ClassVar[str] = "lambdarank"

    init_score_weight: float = init_score_param()
    lambdarank_norm: bool = param(True, OneOf((True, False)), Among((True, False)))
    labels: str = param("rank", OneOf(LABELS), Among(LABELS))
    columns: str = columns_param()
    # The loss costs the square of a group. Of 5000 configurations of a real graph, groups of 250 taught no less
    # than groups of 1000 (tau 0.855 and 0.851 after 100 rounds), in well under half the time.
    max_group: int = param(250, Whole(2, MAX_GROUP), Among(_GROUPS))
    tie_tolerance: float = tie_tolerance_param()


class LambdaRank(LightGBMRanker[LambdaRankParams]):
    """Trees on the lambdarank loss, grouped by graph, set up for Kendall tau.

    Out of the box lambdarank looks at the 30 best and weighs them exponentially, which suits web search. Here every
    row counts: labels are full ranks with a linear gain and no truncation.
    """

    params_class = LambdaRankParams

    def _fit(self, data: TrainingData, settings: FitSettings) -> None:
        params = self.params
        # a graph of more rows is dealt into several query groups, the fewest, even in size
        counts = [(len(part), -(-len(part) // params.max_group)) for part in data.parts]
        sizes = [len(group) for rows, parts in counts for group in np.array_split(np.empty(rows), parts)]
        if len(sizes) > data.groups:
            data = data.shuffled(settings.seed)
        labels = data.per_group(lambda cost: relevance(merge_ties(cost, params.tie_tolerance), params.labels))
        objective: dict[str, Any] = {
            "objective": "lambdarank",
            "label_gain": list(range(int(labels.max()) + 1)),
            "lambdarank_truncation_level": max(sizes),
            "lambdarank_norm": params.lambdarank_norm,
        }
        targets = RowTargets(label=labels, weight=np.repeat(data.group_weight, np.diff(data.indptr)), sizes=sizes)
        self._train(data, targets, objective, settings, params.columns, params.init_score_weight)


@dataclass(frozen=True, kw_only=True)
class RankNetParams(PairLossParams, TreeParams):
    """Parameters of `RankNet`: faster overfits layouts; beside an initial score trees of tiles need less depth."""

    ranker: ClassVar[str] = "ranknet"

    learning_rate: float = param(0.03, Number(0, above=True), Between(0.02, 0.2, log=True), tile=0.07)
    num_leaves: int = leaves_param(15, tile=7)


class RankNet(LightGBMRanker[RankNetParams]):
    """Trees on RankNet's pairwise loss: every pair counts the same, as in Kendall's tau.

    Pairs within a graph are drawn anew each round, so a graph may have any number of rows.
    """

    params_class = RankNetParams

    def _fit(self, data: TrainingData, settings: FitSettings) -> None:
        params = self.params
        weight = row_weights(data.indptr, params.graph_weight, data.group_weight)
        loss = RankNetLoss(data.cost, data.indptr, weight, params.pairs, params.tie_tolerance)
        rng = np.random.default_rng(settings.seed)
        objective = {"objective": lambda relevance, _: loss.gradients(relevance, rng)}
        targets = RowTargets(label=np.zeros(len(data.cost)))
        self._train(data, targets, objective, settings, params.columns, params.init_score_weight)
