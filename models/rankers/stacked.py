"""A wide-row ranker that also sees what the sums over instances say."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

import numpy as np
from numpy.typing import NDArray

from xlarank.data.errors import ModelError
from xlarank.data.graph import Kind
from xlarank.features.instances.instances import LazyInstances
from xlarank.models.base import Params, Ranker
from xlarank.models.objectives.labels import mean_rank
from xlarank.models.rankers.ranknet import RankNet
from xlarank.models.rankers.sum_pooled import SumPooled
from xlarank.models.ranking_data import RankingData
from xlarank.models.validation.out_of_fold import out_of_fold_scores

if TYPE_CHECKING:
    import optuna

#: The column that is added to the wide row.
COLUMN: Final = "pooled__score__rank"

_STATE: Final = "stacked.json"
_POOLED, _WIDE = "pooled", "wide"


class Stacked(Ranker):
    """`RankNet` on wide rows with one more column: the rank that `SumPooled` gives a row within its graph.

    To learn from, that rank comes from folds of families within the data (never from a model that saw the graph's
    family); to score, from a model of all of them. A row's score depends on the others of its graph.
    """

    name = "stacked"

    def __init__(self) -> None:
        super().__init__()
        self._pooled = SumPooled()
        self._wide = RankNet()

    @classmethod
    def default_params(cls, kind: Kind = "layout") -> Params:
        return {
            **RankNet.default_params(kind),
            "pooled": SumPooled.default_params(kind),
            "pooled_rounds": 100,
            "pooled_folds": 5,
        }

    @classmethod
    def suggest(cls, trial: optuna.trial.BaseTrial, kind: Kind = "layout") -> Params:
        return {**cls.default_params(kind), **RankNet.suggest(trial, kind)}

    def fit(self, data: RankingData, params: Params, *, rounds: int, seed: int, threads: int = 0) -> Self:
        own = {**self.default_params(), **params}
        if own["pooled_rounds"] < 1 or own["pooled_folds"] < 2:
            raise ModelError(
                f"pooled_rounds is {own['pooled_rounds']}, pooled_folds is {own['pooled_folds']}",
                expected="1 or more rounds, 2 or more folds",
            )
        of_pooled: Params = own.pop("pooled")
        pooled_rounds, folds = int(own.pop("pooled_rounds")), int(own.pop("pooled_folds"))
        scores = out_of_fold_scores(
            SumPooled, data, of_pooled, folds=folds, rounds=pooled_rounds, seed=seed, threads=threads
        )
        widened = [
            part.with_column(COLUMN, mean_rank(scores[a:b]))
            for part, a, b in zip(data.parts, data.indptr[:-1], data.indptr[1:], strict=True)
        ]
        self.columns = data.columns
        self._pooled = SumPooled().fit(data, of_pooled, rounds=pooled_rounds, seed=seed, threads=threads)
        stacked = replace(data, parts=widened, columns=[*data.columns, COLUMN])
        self._wide = RankNet().fit(stacked, own, rounds=rounds, seed=seed, threads=threads)
        return self

    def _widened(self, rows: NDArray[np.float32], instances: LazyInstances | None) -> NDArray[np.float32]:
        return _with(rows, mean_rank(self._pooled._scores(rows, instances)))

    def _scores(self, rows: NDArray[np.float32], instances: LazyInstances | None = None) -> NDArray[np.float64]:
        return self._wide._scores(self._widened(rows, instances))

    def staged(
        self, rows: NDArray[np.float32], every: int, instances: LazyInstances | None = None
    ) -> Iterator[NDArray[np.float64]]:
        return self._wide.staged(self._widened(rows, instances), every)

    def importance(self) -> dict[str, float]:
        """Shares of the wide row's columns; that of the added column is dealt to what its ranker looks at."""
        shares = self._wide.importance()
        added = shares.pop(COLUMN, 0.0)
        for name, share in self._pooled.importance().items():
            shares[name] = shares.get(name, 0.0) + added * share
        return dict(sorted(((n, s) for n, s in shares.items() if s > 0), key=lambda item: (-item[1], item[0])))

    def save(self, folder: Path) -> None:
        for name, part in ((_POOLED, self._pooled), (_WIDE, self._wide)):
            part._fitted()
            place = folder / name
            place.mkdir()
            part.save(place)
        folder.joinpath(_STATE).write_text(json.dumps({"columns": self.columns}), encoding="utf-8")

    @classmethod
    def load(cls, folder: Path) -> Self:
        ranker = cls()
        try:
            ranker.columns = json.loads(folder.joinpath(_STATE).read_text(encoding="utf-8"))["columns"]
            ranker._pooled, ranker._wide = SumPooled.load(folder / _POOLED), RankNet.load(folder / _WIDE)
            if ranker._wide.columns != [*ranker.columns, COLUMN] or ranker._pooled.columns != ranker.columns:
                raise ValueError("its two rankers learned from different columns")
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ModelError(
                f"{folder} cannot be read ({error})", expected="a trained model", do="run train again"
            ) from error
        return ranker


def _with(rows: NDArray[np.float32], column: NDArray[np.float64]) -> NDArray[np.float32]:
    """Rows with one more column."""
    return np.concatenate([rows, column[:, None].astype(np.float32)], axis=1)
