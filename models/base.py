"""What every ranker promises."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from xlarank.data.errors import ModelError
from xlarank.data.graph import Kind
from xlarank.features.instances.instances import LazyInstances
from xlarank.models.ranking_data import RankingData

if TYPE_CHECKING:
    import optuna

Params = dict[str, Any]


class Ranker(ABC):
    """Learns from query groups, scores rows: the lower the score, the faster the configuration.

    Scores are only comparable within a graph, so all rows of one call of `predict` or `staged` are of one graph:
    a ranker may look at a row's place among them. The same data, parameters and seed give the same scores.
    """

    name: ClassVar[str]

    def __init__(self) -> None:
        self.columns: list[str] = []

    @classmethod
    @abstractmethod
    def default_params(cls, kind: Kind = "layout") -> Params:
        """Parameters to use for a kind of graphs where nothing was tuned."""

    @classmethod
    @abstractmethod
    def suggest(cls, trial: optuna.trial.BaseTrial, kind: Kind = "layout") -> Params:
        """Parameters from the search space; what it does not vary stays at the default of the kind."""

    @abstractmethod
    def fit(self, data: RankingData, params: Params, *, rounds: int, seed: int, threads: int = 0) -> Self:
        """Learn ``rounds`` trees; ``threads`` 0 takes all cores."""

    @abstractmethod
    def _scores(self, rows: NDArray[np.float32], instances: LazyInstances | None = None) -> NDArray[np.float64]:
        """Scores of rows whose columns were checked."""

    @abstractmethod
    def staged(
        self, rows: NDArray[np.float32], every: int, instances: LazyInstances | None = None
    ) -> Iterator[NDArray[np.float64]]:
        """Scores of the rows of one graph after each ``every`` rounds, the last after all of them."""

    @abstractmethod
    def importance(self) -> dict[str, float]:
        """Share of the total gain by column, largest first; columns never used are left out."""

    @abstractmethod
    def save(self, folder: Path) -> None:
        """Write the ranker into an empty folder, or folders below it: text and JSON, never pickles."""

    @classmethod
    @abstractmethod
    def load(cls, folder: Path) -> Self:
        """Read back what `save` wrote; raises `ModelError`."""

    def predict(
        self, rows: NDArray[np.float32], columns: list[str], instances: LazyInstances | None = None
    ) -> NDArray[np.float64]:
        """``(rows,)`` scores of one graph's ``(rows, columns)``; raises `ModelError` for other columns.

        ``instances`` are those of the same configurations, where they have any; most rankers never look at them.
        """
        if not self.columns:
            raise ModelError("the ranker was not trained", do="call fit or load first")
        require_columns(columns, self.columns)
        return self._scores(rows, instances)


def require_columns(got: list[str], wanted: list[str]) -> None:
    """Raise `ModelError` with the difference unless both lists are equal."""
    if got == wanted:
        return
    missing = [name for name in wanted if name not in set(got)]
    added = [name for name in got if name not in set(wanted)]
    parts = []
    for label, names in (("lack", missing), ("add", added)):
        if names:
            shown = ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
            parts.append(f"{label} {len(names)} ({shown})")
    raise ModelError(
        f"the rows {' and '.join(parts) or 'have the same columns in another order'}",
        expected=f"the {len(wanted)} columns that the model was trained on",
        do="run build-features with the settings of the model, or train again",
    )
