"""Several rankers as one: the weighted mean of the ranks that they give within a graph."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

import numpy as np
from numpy.typing import NDArray

from xlarank.data.errors import ModelError
from xlarank.data.graph import Kind
from xlarank.features.instances.instances import LazyInstances
from xlarank.models.base import Params, Ranker
from xlarank.models.rankers.ensemble_weights import blend, ensemble_weights
from xlarank.models.rankers.lambdarank import LambdaRank
from xlarank.models.rankers.ranknet import RankNet
from xlarank.models.rankers.rankreg import RankRegression
from xlarank.models.rankers.sum_pooled import SumPooled
from xlarank.models.rankers.xgb_pairwise import XGBPairwise
from xlarank.models.ranking_data import RankingData
from xlarank.models.validation.out_of_fold import out_of_fold_scores

if TYPE_CHECKING:
    import optuna

#: What an ensemble can be made of.
MEMBERS: Final[dict[str, type[Ranker]]] = {
    ranker.name: ranker for ranker in (LambdaRank, RankNet, RankRegression, XGBPairwise, SumPooled)
}
#: ``given``: the weights of the parameters; ``out_of_fold``: `ensemble_weights.ensemble_weights` of
#: folds within the data learned from, for several times the work.
WEIGHTS: Final = ("given", "out_of_fold")

#: Members that count unless weights say otherwise. By leave-family-out folds of the sample's layouts an even mix of
#: both kinds of rows is as good as any mix with more members (tau 0.649 on layout:cpu:random, 0.487 on
#: layout:cpu:default; the four wide-row rankers 0.640 and 0.469). Tiles have one kind of rows only.
_USUAL: Final[dict[Kind, tuple[str, ...]]] = {
    "layout": (SumPooled.name, RankNet.name),
    "tile": (LambdaRank.name, RankNet.name, RankRegression.name, XGBPairwise.name),
}
_STATE: Final = "ensemble.json"
_FOLDS: Final = 3


class Ensemble(Ranker):
    """Rank average of the `MEMBERS` of positive weight; each learns the same number of rounds.

    A score depends on which other rows it is predicted with: these must be the configurations of one graph.
    """

    name = "ensemble"

    def __init__(self) -> None:
        super().__init__()
        self._members: dict[str, Ranker] = {}
        self._weights: dict[str, float] = {}

    @classmethod
    def default_params(cls, kind: Kind = "layout") -> Params:
        return {
            "members": {name: member.default_params(kind) for name, member in MEMBERS.items()},
            "weights": "given",
            **{f"weight_{name}": float(name in _USUAL[kind]) for name in MEMBERS},
        }

    @classmethod
    def suggest(cls, trial: optuna.trial.BaseTrial, kind: Kind = "layout") -> Params:
        return {
            **cls.default_params(kind),
            **{f"weight_{name}": trial.suggest_float(f"weight_{name}", 0.0, 1.0) for name in MEMBERS},
        }

    def fit(self, data: RankingData, params: Params, *, rounds: int, seed: int, threads: int = 0) -> Self:
        own = {**self.default_params(), **params}
        weights = {name: float(own[f"weight_{name}"]) for name in MEMBERS}
        if not min(weights.values()) >= 0 or not 0 < sum(weights.values()) < np.inf:
            raise ModelError(f"the weights are {weights}", expected="numbers from 0, not all 0")
        if own["weights"] not in WEIGHTS:
            raise ModelError(f"weights is {own['weights']!r}", expected=", ".join(WEIGHTS))
        weights = {name: weight for name, weight in weights.items() if weight > 0}
        of_members: Mapping[str, Params] = own["members"]
        if own["weights"] == "out_of_fold":
            held_out = [
                out_of_fold_scores(
                    MEMBERS[name], data, of_members.get(name, {}),
                    folds=_FOLDS, rounds=rounds, seed=seed, threads=threads,
                )
                for name in weights
            ]  # fmt: skip
            found = ensemble_weights(held_out, data)
            weights = {name: float(weight) for name, weight in zip(weights, found, strict=True) if weight > 0}
        self.columns, self._weights = data.columns, weights
        self._members = {
            name: MEMBERS[name]().fit(data, of_members.get(name, {}), rounds=rounds, seed=seed, threads=threads)
            for name in weights
        }
        return self

    def _fitted(self) -> dict[str, Ranker]:
        if not self._members:
            raise ModelError("the ranker was not trained", do="call fit or load first")
        return self._members

    def _scores(self, rows: NDArray[np.float32], instances: LazyInstances | None = None) -> NDArray[np.float64]:
        scores = [member.predict(rows, self.columns, instances) for member in self._fitted().values()]
        return blend(scores, list(self._weights.values()))

    def staged(
        self, rows: NDArray[np.float32], every: int, instances: LazyInstances | None = None
    ) -> Iterator[NDArray[np.float64]]:
        latest: list[NDArray[np.float64]] = []
        for stage in zip_longest(*(member.staged(rows, every, instances) for member in self._fitted().values())):
            # a member that ran out of splits stays where it is
            latest = [old if new is None else new for new, old in zip_longest(stage, latest)]
            yield blend(latest, list(self._weights.values()))

    def importance(self) -> dict[str, float]:
        """The weighted mean of the members' shares."""
        total = sum(self._weights.values())
        shares: dict[str, float] = {}
        for name, member in self._fitted().items():
            for column, share in member.importance().items():
                shares[column] = shares.get(column, 0.0) + share * self._weights[name] / total
        return dict(sorted(shares.items(), key=lambda item: (-item[1], item[0])))

    def save(self, folder: Path) -> None:
        for name, member in self._fitted().items():
            place = folder / name
            place.mkdir()
            member.save(place)
        folder.joinpath(_STATE).write_text(json.dumps({"weights": self._weights}), encoding="utf-8")

    @classmethod
    def load(cls, folder: Path) -> Self:
        ranker = cls()
        try:
            weights = json.loads(folder.joinpath(_STATE).read_text(encoding="utf-8"))["weights"]
            if not weights or not set(weights) <= set(MEMBERS):
                raise ValueError(f"its members are {', '.join(weights) or 'none'}")
            ranker._weights = {name: float(weight) for name, weight in weights.items()}
            ranker._members = {name: MEMBERS[name].load(folder / name) for name in weights}
            ranker.columns, *others = (member.columns for member in ranker._members.values())
            if any(columns != ranker.columns for columns in others):
                raise ValueError("its members learned from different columns")
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise ModelError(
                f"{folder} cannot be read ({error})", expected="a trained model", do="run train again"
            ) from error
        return ranker
