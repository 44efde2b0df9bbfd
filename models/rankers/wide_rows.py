"""Rankers on wide rows: LightGBM's lambdarank, RankNet's loss, and XGBoost's pairwise loss."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, ClassVar

import numpy as np

from xlarank.models.base import Ranker
from xlarank.models.objectives import LABELS, MAX_GROUP, RankNetLoss, mean_rank, merge_ties, relevance, row_weights
from xlarank.models.params import Between, Number, OneOf, Whole, param
from xlarank.models.rankers import boosted
from xlarank.models.rankers.booster_text import MAX_DEPTH
from xlarank.models.rankers.xgboost import XGBoostBooster
from xlarank.models.training_data import FitSettings, Task, TrainingData


@dataclass(frozen=True, kw_only=True)
class LambdaRankParams(boosted.TreeParams):
    """Parameters of `LambdaRank`.

    Attributes:
        lambdarank_norm: whether to normalise gradients per group.
        labels: one of `xlarank.models.objectives.LABELS`.
        max_group: maximum number of rows of a query group; larger graphs are split at random.
    """

    ranker: ClassVar[str] = "lambdarank"

    init_score_weight: float = boosted.init_score_param()
    lambdarank_norm: bool = param(True, OneOf((True, False)), OneOf((True, False)))
    labels: str = param("rank", OneOf(LABELS), OneOf(LABELS))
    columns: str = boosted.columns_param()
    # The cost of the loss is quadratic in the group size. On 5000 configurations of a real graph, groups of 250
    # reached the tau of groups of 1000 (0.855 and 0.851 after 100 rounds) in less than half the time.
    max_group: int = param(250, Whole(2, MAX_GROUP), OneOf((30, 100, 250, 1000)))
    tie_tolerance: float = boosted.tie_tolerance_param(0.0)


class LambdaRank(boosted.BoostedRanker[LambdaRankParams]):
    """Trees on the lambdarank loss, grouped by graph.

    LightGBM's default exponential gain, truncated to the top 30, suits web search. Kendall's tau counts every pair,
    so labels here have linear gains, without truncation.
    """

    params_class = LambdaRankParams

    def task(self, data: TrainingData, settings: FitSettings) -> Task:
        params = self.params
        # split larger graphs into as few query groups as possible, of even size
        counts = [(len(part), -(-len(part) // params.max_group)) for part in data.parts]
        sizes = [len(group) for rows, groups in counts for group in np.array_split(np.empty(rows), groups)]
        if len(sizes) > data.groups:
            data = data.shuffled(settings.seed)
        labels = data.per_group(lambda cost: relevance(merge_ties(cost, params.tie_tolerance), params.labels))
        weight = np.repeat(data.group_weight, np.diff(data.indptr))
        objective = {
            "objective": "lambdarank", "label_gain": list(range(int(labels.max()) + 1)),
            "lambdarank_truncation_level": max(sizes), "lambdarank_norm": params.lambdarank_norm,
        }  # fmt: skip
        return Task(data, labels, objective, weight, sizes)


@dataclass(frozen=True, kw_only=True)
class RankNetParams(boosted.PairLossParams, boosted.TreeParams):
    """Parameters of `RankNet`."""

    ranker: ClassVar[str] = "ranknet"

    learning_rate: float = param(0.03, Number(0, above=True), Between(0.02, 0.2, log=True), tile=0.07)
    num_leaves: int = boosted.leaves_param(15, tile=7)


class RankNet(boosted.BoostedRanker[RankNetParams]):
    """Trees with RankNet's loss; pairs are resampled each round, so graphs may have any size."""

    params_class = RankNetParams

    def task(self, data: TrainingData, settings: FitSettings) -> Task:
        params = self.params
        weight = row_weights(data.indptr, params.graph_weight, data.group_weight)
        loss = RankNetLoss(data.cost, data.indptr, weight, params.pairs, params.tie_tolerance)
        rng = np.random.default_rng(settings.seed)
        objective = {"objective": lambda relevance, _: loss.gradients(relevance, rng)}
        return Task(data, np.zeros(len(data.cost)), objective)


@dataclass(frozen=True, kw_only=True)
class XGBTreeParams(boosted.BoostedParams):
    """Parameters of XGBoost's trees, with XGBoost's names."""

    learning_rate: float = param(0.05, Number(0, above=True), Between(0.02, 0.2, log=True))
    max_leaves: int = boosted.leaves_param(15)
    min_child_weight: float = param(5.0, Number(0), Between(0.1, 30.0, log=True))
    colsample_bytree: float = param(0.5, Number(0, 1, above=True), Between(0.1, 1.0), tile=0.3)
    subsample: float = param(0.8, Number(0, 1, above=True), Between(0.5, 1.0), tile=0.6)
    reg_lambda: float = param(1.0, Number(0), Between(0.1, 100.0, log=True))

    def of_trees(self, settings: FitSettings) -> dict[str, Any]:
        return {
            **{declared.name: getattr(self, declared.name) for declared in fields(XGBTreeParams)},
            "base_score": 0.0, "tree_method": "hist", "grow_policy": "lossguide", "max_depth": MAX_DEPTH,
            "seed": settings.seed, "nthread": settings.threads, "verbosity": 0,
        }  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class XGBPairwiseParams(boosted.PairLossParams, XGBTreeParams):
    """Parameters of `XGBPairwise`."""

    ranker: ClassVar[str] = "xgb-pairwise"

    pairs: int = param(8, Whole(1), Between(4, 16))


class XGBPairwise(boosted.BoostedRanker[XGBPairwiseParams]):
    """XGBoost trees with ``rank:pairwise``; pairs are sampled, so graphs may have any size."""

    params_class = XGBPairwiseParams
    booster_type = XGBoostBooster
    continuing = Ranker.continuing

    def task(self, data: TrainingData, settings: FitSettings) -> Task:
        params = self.params
        labels = data.per_group(lambda cost: 1 - mean_rank(merge_ties(cost, params.tie_tolerance)))
        weight = row_weights(data.indptr, params.graph_weight, data.group_weight)[data.indptr[:-1]]
        objective = {
            "objective": "rank:pairwise",
            "lambdarank_pair_method": "mean",  # the default compares only the top 32 of a group
            "lambdarank_num_pair_per_sample": params.pairs,
            # By default a pair's gradient is divided by its score difference, which costs 0.02 to 0.03 tau.
            "lambdarank_score_normalization": False,
            "eval_metric": "auc",  # the default, NDCG, rejects labels other than small integers, even if unused
        }
        return Task(data, labels, objective, weight)
