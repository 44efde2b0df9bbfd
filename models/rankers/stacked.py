"""A wide-row ranker that also sees what the sums over instances say."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from xlarank.data.graph import Kind
from xlarank.features.instances.instances import LazyInstances
from xlarank.models.base import Learned, Ranker
from xlarank.models.fit_settings import FitSettings
from xlarank.models.objectives.labels import mean_rank
from xlarank.models.param_checks import Whole
from xlarank.models.params import nested_params, param
from xlarank.models.rankers.ranknet import RankNet, RankNetParams
from xlarank.models.rankers.sum_pooled import SumPooled, SumPooledParams
from xlarank.models.ranking_data import RankingData
from xlarank.models.validation.out_of_fold import out_of_fold_scores

#: The column that is added to the wide row.
COLUMN: Final = "pooled__score__rank"

_POOLED, _WIDE = "pooled", "wide"


def _whole_pooled(kind: Kind, given: SumPooledParams | Mapping[str, Any]) -> SumPooledParams:
    """Those given, or some of them, else the defaults of the kind."""
    return SumPooled(given, kind=kind).params


@dataclass(frozen=True, kw_only=True)
class StackedParams(RankNetParams):
    """Parameters of `Stacked`: those of its `RankNet`, and of its `SumPooled`.

    Attributes:
        pooled: parameters of the `SumPooled`.
        pooled_rounds: its trees.
        pooled_folds: most folds of families that its ranks to learn from come from.
    """

    ranker: ClassVar[str] = "stacked"

    pooled: SumPooledParams = nested_params(_whole_pooled)
    pooled_rounds: int = param(100, Whole(1))
    pooled_folds: int = param(5, Whole(2))

    def of_wide(self) -> RankNetParams:
        """Those of the `RankNet`."""
        return RankNetParams(**{one.name: getattr(self, one.name) for one in fields(RankNetParams)})


class Stacked(Ranker[StackedParams]):
    """`RankNet` on wide rows with one more column: the rank that `SumPooled` gives a row within its graph.

    To learn from, that rank comes from folds of families within the data (never from a model that saw the graph's
    family); to score, from a model of all of them. A row's score depends on the others of its graph.
    """

    name = StackedParams.ranker
    params_class = StackedParams
    part_classes: ClassVar[Mapping[str, type[Ranker[Any]]]] = {_POOLED: SumPooled, _WIDE: RankNet}

    def __init__(self, params: StackedParams | Mapping[str, Any] | None = None, *, kind: Kind) -> None:
        super().__init__(params, kind=kind)
        self._pooled = SumPooled(self.params.pooled, kind=kind)
        self._wide = RankNet(self.params.of_wide(), kind=kind)

    def _fit(self, data: RankingData, settings: FitSettings) -> None:
        pooled_settings = replace(settings, rounds=self.params.pooled_rounds)
        scores = out_of_fold_scores(self._pooled, data, self.params.pooled_folds, pooled_settings)
        widened = [
            part.with_column(COLUMN, mean_rank(scores[a:b]))
            for part, a, b in zip(data.parts, data.indptr[:-1], data.indptr[1:], strict=True)
        ]
        self._pooled.fit(data, pooled_settings)
        self._wide.fit(replace(data, parts=widened, columns=[*data.columns, COLUMN]), settings)

    def _widened(self, rows: NDArray[np.float32], instances: LazyInstances | None) -> NDArray[np.float32]:
        return _with(rows, mean_rank(self._pooled.predict(rows, self.columns, instances)))

    def _scores(self, rows: NDArray[np.float32], instances: LazyInstances | None) -> NDArray[np.float64]:
        return self._wide.predict(self._widened(rows, instances), self._wide.columns, instances)

    def _staged(
        self, rows: NDArray[np.float32], every: int, instances: LazyInstances | None
    ) -> Iterator[NDArray[np.float64]]:
        return self._wide.staged(self._widened(rows, instances), every, instances)

    def _gains(self) -> dict[str, float]:
        """Shares of the wide row's columns; that of the added column is dealt to what its ranker looks at."""
        shares = self._wide.importance()
        added = shares.pop(COLUMN, 0.0)
        for name, share in self._pooled.importance().items():
            shares[name] = shares.get(name, 0.0) + added * share
        return shares

    def _learned(self) -> Learned:
        return Learned(parts={_POOLED: self._pooled, _WIDE: self._wide})

    def _restore(self, learned: Learned) -> None:
        pooled, wide = learned.parts[_POOLED], learned.parts[_WIDE]
        assert isinstance(pooled, SumPooled) and isinstance(wide, RankNet)
        if wide.columns != [*self.columns, COLUMN] or pooled.columns != self.columns:
            raise ValueError("its two rankers learned from different columns")
        self._pooled, self._wide = pooled, wide


def _with(rows: NDArray[np.float32], column: NDArray[np.float64]) -> NDArray[np.float32]:
    """Rows with one more column."""
    return np.concatenate([rows, column[:, None].astype(np.float32)], axis=1)
