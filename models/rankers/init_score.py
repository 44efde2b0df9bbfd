"""Where trees begin: at an estimate of the time instead of at nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Self

import numpy as np
from numpy.typing import NDArray

from xlarank.data.errors import ModelError
from xlarank.models.ranking_data import RankingData

if TYPE_CHECKING:
    import optuna

#: The estimate, log2 of a time; only rows of tiles have it.
ESTIMATE: Final = "estimate__sum__log"
#: Weights worth trying, in units of a ranker's default.
_FACTORS: Final = (0.0, 0.5, 1.0, 2.0)


@dataclass(frozen=True)
class HeadStart:
    """Relevance that a row has before the first tree: minus ``weight`` times its estimate.

    Few kernels teach trees little about a family that they have not seen. What is known of the hardware holds
    there too, and the trees have only to learn where the estimate is wrong.

    Attributes:
        column: place of the estimate among the columns.
        weight: relevance for each factor of two in time.
    """

    column: int
    weight: float

    @classmethod
    def find(cls, columns: Sequence[str], weight: float) -> Self | None:
        """None for a weight of 0 or rows without the estimate; raises `ModelError` for a negative weight."""
        if not 0 <= weight < np.inf:
            raise ModelError(f"head_start is {weight}", expected="a number from 0; 0 for none")
        return cls(columns.index(ESTIMATE), float(weight)) if weight and ESTIMATE in columns else None

    def relevance(self, rows: NDArray[np.float32]) -> NDArray[np.float64]:
        """``(rows,)``, higher is faster."""
        return -self.weight * rows[:, self.column].astype(np.float64)

    def of(self, data: RankingData, orders: Sequence[NDArray[np.intp]] | None = None) -> NDArray[np.float64]:
        """`relevance` of all rows minus its mean over each graph, ``(rows,)``: what is learned has mean 0, too.

        ``orders`` as for `RankingData.matrix`.
        """
        estimate = data.matrix(orders, np.array([self.column]))[:, 0].astype(np.float64)
        sizes = np.diff(data.indptr)
        mean = np.add.reduceat(estimate, data.indptr[:-1]) / sizes
        found: NDArray[np.float64] = -self.weight * (estimate - np.repeat(mean, sizes))
        return found


def suggest_head_start(trial: optuna.trial.BaseTrial, default: float) -> dict[str, float]:
    """A weight from the search space, as ``head_start``; none where the default is none."""
    if not default:
        return {"head_start": 0.0}
    return {"head_start": trial.suggest_categorical("head_start", [factor * default for factor in _FACTORS])}
