"""Rows on their way into XGBoost's binned data, few enough at once."""

from __future__ import annotations

from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from xlarank.models.ranking_data import RankingData

if TYPE_CHECKING:
    import xgboost


def quantiles(
    xgb: ModuleType,
    data: RankingData,
    label: NDArray[np.float64],
    weight: NDArray[np.float64],
    used: NDArray[np.intp],
    *,
    start: NDArray[np.float64] | None = None,
    bins: int,
    threads: int,
) -> xgboost.QuantileDMatrix:
    """XGBoost's data of some columns with the groups of ``data``.

    Weights also decide where it draws the bounds of its bins, a little differently for rows that come in batches.

    Args:
        xgb: the module ``xgboost``.
        label: ``(rows,)``.
        weight: ``(groups,)``; XGBoost weighs groups.
        used: columns, ascending.
        start: ``(rows,)`` what trees add to.
    """
    if data.batched(len(used)):
        batched: xgboost.QuantileDMatrix = xgb.QuantileDMatrix(
            _batches(xgb, data, label, weight, used, start), max_bin=bins, nthread=threads
        )
        return batched
    whole: xgboost.QuantileDMatrix = xgb.QuantileDMatrix(
        data.matrix(used=used), label, group=np.diff(data.indptr), weight=weight, base_margin=start, max_bin=bins,
        nthread=threads,
    )  # fmt: skip
    return whole


def _batches(
    xgb: ModuleType,
    data: RankingData,
    label: NDArray[np.float64],
    weight: NDArray[np.float64],
    used: NDArray[np.intp],
    start: NDArray[np.float64] | None,
) -> Any:
    """The graphs' rows one graph after the other; XGBoost asks for them several times."""

    class Batches(xgb.DataIter):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__(release_data=True)
            self.reset()

        def next(self, input_data: Any) -> bool:
            if self.at == data.groups:
                return False
            g = self.at
            part = slice(int(data.indptr[g]), int(data.indptr[g + 1]))
            group = np.full(part.stop - part.start, g)
            rows = data.parts[g].matrix(used=used)
            margin = None if start is None else start[part]
            input_data(data=rows, label=label[part], qid=group, weight=weight[g : g + 1], base_margin=margin)
            self.at += 1
            return True

        def reset(self) -> None:
            self.at = 0

    return Batches()
