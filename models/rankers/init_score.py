"""The initial score: trees begin at an estimate of the time instead of at nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Self

import numpy as np
from numpy.typing import NDArray

from xlarank.features.targets import CPU, Target
from xlarank.models.param_checks import Number
from xlarank.models.ranking_data import RankingData

#: The estimate, log2 of a time; only rows of tiles have it, and it holds for CPUs alone.
ESTIMATE: Final = CPU.estimate


@dataclass(frozen=True)
class InitScore:
    """Relevance that a row has before the first tree: minus ``weight`` times its estimate.

    Few kernels teach trees little about a family that they have not seen. What is known of the hardware holds
    there too, and the trees have only to learn where the estimate is wrong.

    Attributes:
        column: index of the estimate among the columns.
        weight: relevance for each factor of two in time.
    """

    column: int
    weight: float

    @classmethod
    def find(cls, columns: Sequence[str], weight: float, target: Target | None = None) -> Self | None:
        """None for a weight of 0, rows without the estimate, or a target that it does not hold for.

        A target that is not known has the estimate where its rows have. Raises `ModelError` for a negative weight.
        """
        checked = Number(0)("init_score_weight", weight)
        if target is not None and target.estimate != ESTIMATE:
            return None
        return cls(columns.index(ESTIMATE), checked) if checked and ESTIMATE in columns else None

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
