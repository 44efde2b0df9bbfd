"""Losses (parameters, labels and objective of trees), and rankers: a loss, or an ensemble."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

import numpy as np

from xlarank.data.errors import ParameterError, did_you_mean
from xlarank.data.graph import Kind
from xlarank.models import objectives
from xlarank.models.arrays import Floats
from xlarank.models.boosters.lightgbm import LIGHTGBM
from xlarank.models.boosters.xgboost import XGBOOST, XGBoostBooster
from xlarank.models.estimators import ESTIMATORS
from xlarank.models.member import CHOICES, Loss, Member
from xlarank.models.params import Interval, OneOf, ParamSpec, Specs, complete_params
from xlarank.models.training_data import Dataset, FitSettings, TrainingData


def _choice(default: Any, choices: Sequence[Any], meaning: str, tile: Any = None) -> ParamSpec:
    """Declare a parameter of which studies try all valid values."""
    values = OneOf(tuple(choices))
    return ParamSpec(default, values, values, meaning, tile)


#: Tiles leave out ranks among a kernel's few candidates, which do not transfer to other kernels.
_COLUMNS = _choice(
    "all",
    CHOICES,
    "columns to use: all, without those that are constant within a graph, without those computed "
    "from all candidates, or without both",
    tile="no_listwise",
)
_INIT_SCORE_WEIGHT = ParamSpec(
    4.0,
    Interval(0),
    OneOf((0.0, 1.0, 2.0, 4.0)),
    "weight of the logarithm of the estimated time in the initial score; 0 for layouts measured on "
    "a TPU",
    tile=2.0,
)
_TIE_TOLERANCE = ParamSpec(
    0.0,
    Interval(0),
    OneOf((0.0, 0.001, 0.003, 0.01, 0.03)),
    "costs that differ by at most this share are ties; runs differ by 0.001 on a TPU, 0.03 on a "
    "busy CPU",
)
#: Parameters of a loss on sampled pairs.
PAIRS: Final[Specs] = {
    "init_score_weight": _INIT_SCORE_WEIGHT,
    "pairs": ParamSpec(
        8,
        Interval(1, whole=True),
        Interval(2, 32, whole=True, log=True),
        "number of partners drawn for a row in a round",
    ),
    "tie_tolerance": _TIE_TOLERANCE,
    "graph_weight": _choice(
        "equal",
        [*objectives.GRAPH_WEIGHTS],
        "weight of a graph: equal, or by the square root or the number of its rows",
    ),
    "columns": _COLUMNS,
}


def lambdarank(member: Member, data: TrainingData, settings: FitSettings) -> Dataset:
    """Return labels and objective of LightGBM's lambdarank, grouped by graph.

    LightGBM's default exponential gain, truncated to the top 30, suits web search. Kendall's tau
    counts every pair, so labels here have linear gains, without truncation.
    """
    params = member.params
    # split larger graphs into as few query groups as possible, of even size
    sizes: list[int] = []
    for part in data.parts:
        groups = -(-len(part) // params["max_group"])
        sizes += map(len, np.array_split(np.arange(len(part)), groups))
    if len(sizes) > data.groups:
        data = data.shuffled(settings.seed)

    def relevance(cost: Floats) -> Floats:
        merged = objectives.merge_ties(cost, params["tie_tolerance"])
        return objectives.relevance(merged, params["labels"])

    labels = data.per_group(relevance)
    objective = {
        "objective": "lambdarank",
        "label_gain": list(range(int(labels.max()) + 1)),
        "lambdarank_truncation_level": max(sizes),
        "lambdarank_norm": params["lambdarank_norm"],
    }
    return Dataset(data, labels, objective, group=sizes)


def ranknet(member: Member, data: TrainingData, settings: FitSettings) -> Dataset:
    """Return RankNet's objective on pairs drawn in each round; graphs may have any size."""
    params = member.params
    weight = objectives.row_weights(data.indptr, params["graph_weight"])
    gradients = partial(
        objectives.ranknet_gradients,
        cost=data.cost,
        indptr=data.indptr,
        weight=weight,
        pairs=params["pairs"],
        tie_tolerance=params["tie_tolerance"],
        rng=np.random.default_rng(settings.seed),
    )
    objective = {"objective": lambda relevance, _: gradients(relevance)}
    return Dataset(data, np.zeros(len(data.cost)), objective)


def pairwise(member: Member, data: TrainingData, settings: FitSettings) -> Dataset:
    """Return labels and objective of XGBoost's ``rank:pairwise``; graphs may have any size."""
    params = member.params

    def relevance(cost: Floats) -> Floats:
        return 1 - objectives.mean_rank(objectives.merge_ties(cost, params["tie_tolerance"]))

    labels = data.per_group(relevance)
    row_weight = objectives.row_weights(data.indptr, params["graph_weight"])
    objective = {
        "objective": "rank:pairwise",
        "lambdarank_pair_method": "mean",  # the default compares only the top 32 of a group
        "lambdarank_num_pair_per_sample": params["pairs"],
        # By default a pair's gradient is divided by its score difference, which costs 0.02 to 0.03
        # tau.
        "lambdarank_score_normalization": False,
        # The default, NDCG, rejects labels other than small integers, even if unused.
        "eval_metric": "auc",
    }
    return Dataset(data, labels, objective, row_weight[data.indptr[:-1]])


def log_time(member: Member, data: TrainingData, settings: FitSettings) -> Dataset:
    """Return labels and objective of least squares on log2 time, starting from the estimate.

    Trees learn the ratio of time to estimate. For layouts they learn it up to a factor per graph,
    because runtimes of different programs are not comparable. All graphs have equal weight. A score
    is log2 of the predicted nanoseconds; without an estimate of weight 1, it only ranks.
    """
    init_score = member.init_score
    # one normalizer per kernel: its median over the runs
    times = [part.row_cost * np.median(part.normalizer) for part in data.parts]
    label = -np.log2(np.concatenate(times))
    if init_score:
        label = label + init_score.score(data)
    if init_score is None or member.kind == "layout":
        label = data.centred(label)
    sizes = np.diff(data.indptr)
    weight = np.repeat(1 / sizes, sizes) * sizes.mean()
    params: dict[str, Any] = {"objective": "regression"}
    if member.params["monotone"] and data.target.times:
        columns = [data.columns[index] for index in member.used]
        params["monotone_constraints"] = [-(name in data.target.times) for name in columns]
    return Dataset(data, label, params, weight)


_LOSSES: Final = (
    Loss(
        "lambdarank",
        lambdarank,
        {
            **LIGHTGBM,
            "init_score_weight": _INIT_SCORE_WEIGHT,
            "lambdarank_norm": _choice(
                True, (True, False), "whether to normalise gradients per group"
            ),
            "labels": _choice("rank", ("rank", "log"), "relevance by rank or by log cost"),
            "columns": _COLUMNS,
            # The cost of the loss is quadratic in the group size. On 5000 configurations of a real
            # graph, groups of 250 reached the tau of groups of 1000 (0.855 and 0.851 after 100
            # rounds) in less than half the time.
            "max_group": ParamSpec(
                250,
                Interval(2, objectives.MAX_GROUP, whole=True),
                OneOf((30, 100, 250, 1000)),
                "maximum number of rows of a query group; larger graphs are split at random",
            ),
            "tie_tolerance": _TIE_TOLERANCE,
        },
    ),
    Loss(
        "ranknet",
        ranknet,
        {
            **LIGHTGBM,
            "learning_rate": replace(LIGHTGBM["learning_rate"], default=0.03),
            "num_leaves": replace(LIGHTGBM["num_leaves"], tile=7),
            **PAIRS,
        },
    ),
    Loss(
        "xgb-pairwise",
        pairwise,
        {**XGBOOST, **PAIRS, "pairs": replace(PAIRS["pairs"], search=Interval(4, 16, whole=True))},
        booster=XGBoostBooster,
    ),
    Loss(
        "time-trees",
        log_time,
        {
            **LIGHTGBM,
            "init_score_weight": ParamSpec(
                1.0,
                Interval(0, 1),
                OneOf((0.0, 0.5, 1.0)),
                "weight of the logarithm of the estimated time in the initial score",
            ),
            "monotone": _choice(
                True,
                (True, False),
                "whether scores are constrained to be non-decreasing in the columns of estimated "
                "times",
                tile=False,
            ),
            "columns": _COLUMNS,
        },
        predicts_times=True,
    ),
)
#: Losses by name; add an entry to define another.
LOSSES: Final[dict[str, Loss]] = {loss.name: loss for loss in _LOSSES}


DEFAULT: Final = "lambdarank"
ENSEMBLE: Final = "ensemble"
#: Losses of an ensemble, with the names of their weights.
_MEMBERS: Final = {
    "lambdarank": "weight_lambdarank",
    "ranknet": "weight_ranknet",
    "xgb-pairwise": "weight_xgb_pairwise",
}


_WEIGHT: Final = ParamSpec(1.0, Interval(0), Interval(0.0, 1.0), "weight of the ranks of this loss")
_ENSEMBLE: Final[Specs] = {
    "members": ParamSpec({}, None, meaning="parameters of each member, by loss"),
    **dict.fromkeys(_MEMBERS.values(), _WEIGHT),
}


def rankers() -> list[str]:
    """Return the names of all rankers, the default first."""
    return [*LOSSES, ENSEMBLE]


def specs_of(ranker: str) -> Specs:
    """Return the parameters of a ranker; raises `ParameterError` for an unknown name."""
    if ranker == ENSEMBLE:
        return _ENSEMBLE
    if ranker in ESTIMATORS:
        return ESTIMATORS[ranker].params
    if ranker not in LOSSES:
        do = did_you_mean(str(ranker), rankers())
        raise ParameterError(f"{ranker!r} is not a model", expected=", ".join(rankers()), do=do)
    return LOSSES[ranker].params


def params_of(ranker: str, kind: Kind, changes: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the parameters of a ranker: the defaults for a kind of graphs, updated by ``changes``.

    Raises `ParameterError` for unknown names and bad values.
    """
    params = complete_params(ranker, specs_of(ranker), kind, changes)
    if ranker == ENSEMBLE:
        params["members"] = _params_of_members(kind, params["members"])
        if not any(params[weight] > 0 for weight in _MEMBERS.values()):
            raise ParameterError("the weights are all 0", expected="one member that counts")
    return params


def _params_of_members(kind: Kind, changes: Any) -> dict[str, dict[str, Any]]:
    expected = ", ".join(_MEMBERS)
    if not isinstance(changes, Mapping):
        raise ParameterError(f"members is {changes!r}", expected=f"parameters by {expected}")
    for name in changes:
        if name not in _MEMBERS:
            raise ParameterError(f"{name!r} is not a member of an ensemble", expected=expected)
    return {name: params_of(name, kind, changes.get(name)) for name in _MEMBERS}


def members_of(ranker: str, kind: Kind, params: Mapping[str, Any]) -> list[Member]:
    """Return the unfitted members of a ranker; members of an ensemble have positive weights."""
    if ranker != ENSEMBLE:
        return [Member((LOSSES | ESTIMATORS)[ranker], params, kind)]
    members = []
    for name, weight in _MEMBERS.items():
        if params[weight] > 0:
            members.append(Member(LOSSES[name], params["members"][name], kind, params[weight]))
    return members
