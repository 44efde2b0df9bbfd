"""A member of a model: trees of one loss, fitted with one seed."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, TypeVar

import numpy as np

from xlarank.data.errors import ModelError
from xlarank.data.files import read_text
from xlarank.data.graph import Kind
from xlarank.features.catalogue import BLOCKS
from xlarank.features.rows import GraphRows
from xlarank.models.arrays import Floats, Indices, Matrix
from xlarank.models.boosters.lightgbm import LightGBMBooster
from xlarank.models.column_sum import ColumnSum
from xlarank.models.params import Specs, complete_params
from xlarank.models.training_data import (
    TARGETS,
    UNKNOWN,
    Dataset,
    FitSettings,
    Target,
    TrainingData,
)

#: Choices of columns: ``no_graph`` omits those that are constant within a graph, ``no_listwise``
#: the listwise ones, ``alone`` both.
CHOICES: Final = ("all", "no_graph", "no_listwise", "alone")
#: Maximum number of rows scored at once.
PIECE: Final = 16_384
_STATE: Final = "member.json"

Key = TypeVar("Key", int, str, tuple[int, ...])


@dataclass(frozen=True)
class Loss:
    """How the trees of a member are grown: an entry of `xlarank.models.losses.LOSSES`.

    Attributes:
        dataset: function that returns rows, labels and objective.
        params: parameters with their defaults, checks and search space.
        booster: library of the trees, or what fits an estimator (`xlarank.models.estimators`).
        predicts_times: whether scores are logarithms of times if they start from an estimated time,
            to which labels are then relative.
    """

    name: str
    dataset: Callable[[Member, TrainingData, FitSettings], Dataset]
    params: Specs
    booster: Any = LightGBMBooster
    predicts_times: bool = False


@dataclass(frozen=True, eq=False)
class Member:
    """Trees of one loss; unfitted without a ``booster``.

    Attributes:
        weight: weight of its ranks in a model of several losses.
        seed: seed that it was fitted with.
        columns: columns of the training rows.
        used: ascending indices into ``columns``.
        init_score: score before the first tree; None for 0.
    """

    loss: Loss
    params: Mapping[str, Any]
    kind: Kind
    weight: float = 1.0
    seed: int = 0
    columns: list[str] = field(default_factory=list)
    used: Indices = field(default_factory=lambda: np.empty(0, np.intp))
    booster: Any = None
    init_score: ColumnSum | None = None

    @property
    def used_columns(self) -> list[str]:
        return [self.columns[index] for index in self.used]

    @property
    def predicts_times(self) -> bool:
        """Whether scores are logarithms of times, not of times up to a factor."""
        init_score = self.init_score
        return self.loss.predicts_times and init_score is not None and init_score.weight == 1

    @property
    def ranks_without_trees(self) -> bool:
        """Whether 0 rounds are a valid choice, because the initial score alone ranks."""
        return self.loss.predicts_times and self.init_score is not None

    def fit(self, data: TrainingData, settings: FitSettings) -> Member:
        """Return a fitted copy; raises `ModelError` for unsuitable data or number of rounds."""
        weight = self.params.get("init_score_weight", 0.0)
        if self.kind not in data.target.starts and not self.loss.predicts_times:
            weight = 0.0
        loss = self.loss
        unfitted = replace(
            self,
            seed=settings.seed,
            columns=data.columns,
            used=chosen_columns(data.columns, self.params.get("columns", "all"), data.target),
            init_score=ColumnSum.find(data.columns, weight, data.target, self.kind),
        )
        if not settings.rounds and not unfitted.ranks_without_trees:
            raise ModelError(f"{loss.name} has 0 rounds", expected="1 or more")
        dataset = loss.dataset(unfitted, data, settings)
        params = {**loss.booster.tree_params(self.params, settings), **dataset.params}
        start = None
        if unfitted.init_score and not loss.predicts_times:
            start = dataset.data.centred(-unfitted.init_score.score(dataset.data))
        dataset = replace(dataset, params=params, init_score=start)
        return replace(unfitted, booster=loss.booster.fit(dataset, unfitted.used, settings))

    def score(self, rows: GraphRows) -> Floats:
        """Return ``(rows,)`` scores of a graph; lower is faster."""
        return np.concatenate([self.score_matrix(piece) for piece in _pieces(rows)])

    def score_matrix(self, matrix: Matrix) -> Floats:
        """Return ``(rows,)`` scores of a matrix with all ``columns``."""
        values = matrix[:, self.used]
        return np.asarray(self._first_scores(matrix) - self.booster.relevance(values))

    def staged(self, rows: GraphRows, every: int) -> Iterator[Floats]:
        """Yield scores every ``every`` rounds and after the last, of 0 rounds if these rank."""
        from_zero = self.ranks_without_trees
        stages = []
        for piece in _pieces(rows):
            values = piece[:, self.used]
            scores = self._first_scores(piece)
            stages.append([*self.booster.stages(values, scores, every, from_zero=from_zero)])
        yield from map(np.concatenate, zip(*stages, strict=True))

    def _first_scores(self, matrix: Matrix) -> Floats:
        """Return the scores before the first tree."""
        if self.init_score is None:
            return np.zeros(len(matrix))
        return self.init_score.values(matrix, self.columns)

    def contributions(
        self, rows: GraphRows, first: int, second: int
    ) -> tuple[float, dict[str, float]]:
        """Return the score of ``first`` minus ``second``'s, and its nonzero parts by column."""
        matrix = rows.matrix(np.array([first, second]))
        scores = self.score_matrix(matrix)
        relevance = self.booster.contributions(matrix[:, self.used])[:, :-1]
        columns = nonzero_by_name(relevance[1] - relevance[0], self.used_columns)
        if self.init_score:
            start = self.init_score.contributions(matrix, self.columns)
            columns = sum_by_key([columns, start])
        return float(scores[0] - scores[1]), columns

    def importance(self) -> dict[str, float]:
        """Return the share of the total gain by used column, largest first."""
        gains = self.booster.gains()
        shares = gains / max(gains.sum(), 1e-12)
        named = nonzero_by_name(shares, self.used_columns)
        return largest_first(named)

    def save(self, folder: Path) -> None:
        """Write the member into an empty folder as text and JSON, never pickles."""
        trees = folder / self.booster.file_name
        trees.write_text(self.booster.text(), encoding="utf-8")
        state: dict[str, Any] = {
            "loss": self.loss.name,
            "params": dict(self.params),
            "weight": self.weight,
            "seed": self.seed,
            "used": self.used.tolist(),
            "init_score": self.init_score and [*self.init_score.columns],
            "init_score_weight": self.init_score and self.init_score.weight,
        }
        folder.joinpath(_STATE).write_text(json.dumps(state), encoding="utf-8")

    @classmethod
    def load(
        cls, folder: Path, losses: Mapping[str, Loss], kind: Kind, columns: list[str]
    ) -> Member:
        """Read a member that `save` wrote; raises `ValueError` or `OSError` if it is damaged."""
        state = json.loads(read_text(folder / _STATE))
        if state["loss"] not in losses:
            raise ValueError(f"{state['loss']!r} is not a loss")
        loss = losses[state["loss"]]
        used = np.array(state["used"], np.intp)
        if len(used) and used.max() >= len(columns):
            raise ValueError(f"it was trained on more columns than its {len(columns)}")
        init_score = None
        if state["init_score"] is not None:
            init_score = ColumnSum(tuple(state["init_score"]), state["init_score_weight"])
        file = loss.booster.file_name
        try:
            booster = loss.booster.read(read_text(folder / file), len(used))
        except ValueError as error:
            raise ValueError(f"{file}: {error}") from error
        params = complete_params(loss.name, loss.params, kind, state["params"])
        unfitted = cls(loss, params, kind, state["weight"], state["seed"])
        return replace(unfitted, columns=columns, used=used, booster=booster, init_score=init_score)


def sum_by_key(mappings: Iterable[Mapping[Key, float]], factor: float = 1.0) -> dict[Key, float]:
    """Sum the values by key, multiplied by ``factor``."""
    total: dict[Key, float] = {}
    for mapping in mappings:
        for key, value in mapping.items():
            total[key] = total.get(key, 0.0) + value * factor
    return total


def largest_first(values: Mapping[Key, float]) -> dict[Key, float]:
    """Sort values by absolute size, then by key."""
    return dict(sorted(values.items(), key=lambda item: (-abs(item[1]), item[0])))


def nonzero_by_name(values: Floats, columns: Sequence[str]) -> dict[str, float]:
    """Return the nonzero values by the names of their columns."""
    return {columns[int(index)]: float(values[index]) for index in np.flatnonzero(values)}


def _pieces(rows: GraphRows) -> Iterator[Matrix]:
    """Yield the matrix of a graph in pieces of at most `PIECE` rows."""
    for start in range(0, len(rows), PIECE):
        yield rows.matrix(slice(start, start + PIECE))


def chosen_columns(columns: Sequence[str], choice: str, target: Target = UNKNOWN) -> Indices:
    """Return the ascending indices of the columns that ``choice``, one of `CHOICES`, keeps.

    Columns of tiles that describe other hardware than the target are omitted, too; those of layouts
    are not: padding to a TPU's tiles also indicates the locality of a CPU's loops.

    >>> chosen_columns(["size__nodes__log", "candidates__hamming__mean", "other"], "alone").tolist()
    [2]
    """
    omitted = set[str]()
    if target is not UNKNOWN:
        omitted.update(*(other.columns - target.columns for other in TARGETS.values()))
    for block in BLOCKS:
        if block.scope == "graph" and choice in ("no_graph", "alone"):
            omitted.update(block.columns)
        if block.listwise and choice in ("no_listwise", "alone"):
            omitted.update(block.columns)
    return np.array([i for i, name in enumerate(columns) if name not in omitted], np.intp)
