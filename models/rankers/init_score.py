"""The initial score: trees begin at an estimate of the time instead of at nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from xlarank.features.targets import CPU, Target
from xlarank.models.arrays import Floats, Indices, Matrix
from xlarank.models.params import Number
from xlarank.models.training_data import TrainingData


@dataclass(frozen=True)
class InitScore:
    """Relevance that a row has before the first tree: minus ``weight`` times its estimate.

    Few kernels teach trees little about a family that they have not seen. What is known of the hardware holds
    there too, and the trees have only to learn where the estimate is wrong.
    """

    column: int  # index of the estimate, log2 of a time, among the columns; only rows of tiles have one
    weight: float  # relevance for each factor of two in time

    @classmethod
    def find(cls, columns: Sequence[str], weight: float, target: Target | None = None) -> Self | None:
        """None for a weight of 0, and for rows without an estimate for the target; an unknown one counts as a CPU.

        Raises `ModelError` for a negative weight.
        """
        checked = Number(0)("init_score_weight", weight)
        name = (target or CPU).estimate
        return cls(columns.index(name), checked) if checked and name in columns else None

    @classmethod
    def restored(cls, columns: Sequence[str], state: Mapping[str, Any]) -> Self | None:
        """What `init_score_state` was made of; raises `ValueError` or `ModelError` for what is damaged."""
        weight = Number(0)("init_score_weight", state["init_score_weight"])
        return cls(columns.index(state["init_score_column"]), weight) if weight else None

    def relevance(self, rows: Matrix) -> Floats:
        """``(rows,)``, higher is faster."""
        return -self.weight * rows[:, self.column].astype(np.float64)

    def of(self, data: TrainingData, orders: Sequence[Indices] | None = None) -> Floats:
        """`relevance` of all rows minus its mean over each graph, ``(rows,)``: what is learned has mean 0, too.

        ``orders`` as for `TrainingData.matrix`.
        """
        estimate = data.matrix(orders, np.array([self.column]))[:, 0].astype(np.float64)
        sizes = np.diff(data.indptr)
        mean = np.add.reduceat(estimate, data.indptr[:-1]) / sizes
        return -self.weight * (estimate - np.repeat(mean, sizes))


def score_contributions(grown: Floats, used: Indices, values: Matrix, init_score: InitScore | None) -> Floats:
    """``(rows, columns + 1)`` what columns of ``values`` add to scores, and last what all rows share.

    ``grown`` ``(rows, used + 1)`` are the contributions of the columns ``used`` to trees that sum to a relevance.
    """
    found = np.zeros((len(values), values.shape[1] + 1))
    found[:, used] = -grown[:, :-1]
    found[:, -1] = -grown[:, -1]
    if init_score is not None:
        found[:, init_score.column] -= init_score.relevance(values)
    return found


def init_score_state(init_score: InitScore | None, columns: Sequence[str]) -> dict[str, Any]:
    """What `InitScore.restored` takes, as JSON takes it."""
    if init_score is None:
        return {"init_score_weight": 0.0}
    return {"init_score_weight": init_score.weight, "init_score_column": columns[init_score.column]}
