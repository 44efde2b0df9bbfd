"""Rows on their way into XGBoost's binned data, few enough at once."""

from __future__ import annotations

from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from models import wide_rows
from models.ranking_data import RankingData

if TYPE_CHECKING:
    import xgboost


def quantiles(
    xgb: ModuleType,
    data: RankingData,
    label: NDArray[np.float64],
    weight: NDArray[np.float64],
    used: NDArray[np.intp],
    *,
    bins: int,
    threads: int,
) -> xgboost.QuantileDMatrix:
    """XGBoost's data of some columns with the groups of ``data``.

    Args:
        xgb: the module ``xgboost``.
        label: ``(rows,)``.
        weight: ``(groups,)``; XGBoost weighs groups.
        used: columns, ascending.
    """
    few = len(label) * len(used) < wide_rows.BATCHED
    rows = data.matrix(used=used) if few else _batches(xgb, data, used)
    found: xgboost.QuantileDMatrix = xgb.QuantileDMatrix(rows, max_bin=bins, nthread=threads)
    found.set_info(label=label, group=np.diff(data.indptr), weight=weight)
    return found


def _batches(xgb: ModuleType, data: RankingData, used: NDArray[np.intp]) -> Any:
    """The graphs' rows one graph after the other; XGBoost asks for them several times."""

    class Batches(xgb.DataIter):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__(release_data=True)
            self.reset()

        def next(self, input_data: Any) -> bool:
            if self.at == data.groups:
                return False
            input_data(data=data.parts[self.at].matrix(used=used))
            self.at += 1
            return True

        def reset(self) -> None:
            self.at = 0

    return Batches()
