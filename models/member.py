"""A member of a model: trees of one loss, fitted with one seed."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from xlarank.data.errors import ModelError
from xlarank.data.files import read_text
from xlarank.data.graph import Kind
from xlarank.features.attribution import ChangePath
from xlarank.features.rows import GraphRows
from xlarank.models.arrays import Floats, Indices, Matrix
from xlarank.models.boosters.lightgbm import LightGBMBooster
from xlarank.models.boosters.xgboost import XGBoostBooster
from xlarank.models.column_sum import ColumnSum
from xlarank.models.columns import chosen_columns, column_indices
from xlarank.models.contributions import Contributions, largest_first, sum_by_key
from xlarank.models.params import Interval, Specs, complete_params
from xlarank.models.training_data import FitSettings, Target, Task, TrainingData

#: Maximum number of rows scored at once.
PIECE: Final = 16_384
_STATE: Final = "member.json"

Booster = LightGBMBooster | XGBoostBooster


@dataclass(frozen=True)
class Loss:
    """How the trees of a member are grown: an entry of `xlarank.models.losses.LOSSES`.

    Attributes:
        task: function that returns labels and objective.
        params: parameters with their defaults, checks and search space.
        booster: library of the trees.
        predicts_times: whether scores are logarithms of times if they start from an estimated time,
            to which labels are then relative.
    """

    name: str
    task: Callable[[Member, TrainingData, FitSettings], Task]
    params: Specs
    booster: type[LightGBMBooster] | type[XGBoostBooster] = LightGBMBooster
    predicts_times: bool = False

    @property
    def about(self) -> str:
        """Documentation of ``task``."""
        return self.task.__doc__ or ""


@dataclass(frozen=True, eq=False)
class Member:
    """Trees of one loss; unfitted without a ``booster``.

    Attributes:
        weight: weight of its ranks in a model of several losses.
        seed: seed that it was fitted with.
        columns: columns of the training rows.
        used: ascending indices into ``columns``.
        init_score: score before the first tree; None for 0.
        warm_start: earlier trees, on the columns ``used``, that those of ``booster`` continue.
        rate: factor of the learning rate of trees that continue a warm start.
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
    warm_start: Sequence[LightGBMBooster] = ()
    rate: float = 1.0

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
        if data.target and self.kind not in data.target.starts and not self.loss.predicts_times:
            weight = 0.0
        # also of trees that continue those for other hardware: CPU tiles score 0.96 out of fold
        # from the estimate for a CPU and the shipped trees, and 0.36 from that for a TPU
        init_score = ColumnSum.find(data.columns, weight, data.target, self.kind)
        prepared = replace(
            self,
            seed=settings.seed,
            columns=data.columns,
            used=self._choose_columns(data.columns, data.target),
            init_score=init_score,
            warm_start=[replace(earlier, threads=settings.threads) for earlier in self.warm_start],
        )
        if not settings.rounds and not prepared.ranks_without_trees:
            raise ModelError(f"{self.loss.name} has 0 rounds", expected="1 or more")
        return replace(prepared, booster=prepared._grown(data, settings))

    def _grown(self, data: TrainingData, settings: FitSettings) -> Booster:
        """Grow trees from the initial score and the warm start, if any."""
        task = self.loss.task(self, data, settings)
        params = {**self.loss.booster.tree_params(self.params, settings), **task.params}
        params["learning_rate"] *= self.rate
        task = replace(task, params=params, start=self._start(task))
        return self.loss.booster.fit(task, self.used, settings)

    def _start(self, task: Task) -> Floats | None:
        """Return the relevance to which new trees are added, ``(rows,)``; None if it is 0."""
        data = task.data
        starts = []
        if self.init_score and not self.loss.predicts_times:
            starts.append(data.centred(-self.init_score.training_values(data)))
        for earlier in self.warm_start:
            matrices = (data.group_matrix(group, used=self.used) for group in range(data.groups))
            relevance = np.concatenate([earlier.relevance(matrix) for matrix in matrices])
            starts.append(data.centred(relevance) if task.centred else relevance)
        return np.sum(starts, axis=0) if starts else None

    def grow(self, data: TrainingData, settings: FitSettings) -> Member:
        """Return a copy with ``settings.rounds`` rounds; equivalent to `fit` on the same data and
        seed.
        """
        booster = self.booster and self.booster.grow(settings)
        return replace(self, booster=booster) if booster else self.fit(data, settings)

    def continued(self, rate: float) -> Member:
        """Return an unfitted, warm-started copy; raises `ModelError` unless trees are LightGBM's.

        Rounds and stages count the added trees only; their learning rate is multiplied by ``rate``.
        Columns are matched by name; extra columns are ignored.
        """
        if self.loss.booster is not LightGBMBooster:
            raise ModelError(
                f"{self.loss.name} cannot be fine-tuned",
                expected="trees of LightGBM",
                do="fine-tune another model, or train with `also_from`",
            )
        rate = Interval(0, above=True)("rate", rate)
        with_trees = [booster for booster in self._boosters if booster.rounds]
        return replace(self, booster=None, warm_start=with_trees, rate=rate)

    @property
    def _boosters(self) -> list[Any]:
        return [*self.warm_start, self.booster]

    def _choose_columns(self, columns: Sequence[str], target: Target | None) -> Indices:
        """Return the columns of the warm start if it has trees, else those that the parameters
        choose.
        """
        if self.warm_start:
            do = "build features with the settings of that model, or fine-tune another"
            return column_indices(self.used_columns, columns, "the model to fine-tune", do)
        return chosen_columns(columns, self.params.get("columns", "all"), target)

    def score(self, rows: GraphRows) -> Floats:
        """Return ``(rows,)`` scores of a graph; lower is faster."""
        return np.concatenate([self.score_matrix(piece) for piece in _pieces(rows)])

    def score_matrix(self, matrix: Matrix) -> Floats:
        """Return ``(rows,)`` scores of a matrix with all ``columns``."""
        values = matrix[:, self.used]
        return np.asarray(self._first_scores(matrix, values) - self.booster.relevance(values))

    def staged(self, rows: GraphRows, every: int) -> Iterator[Floats]:
        """Yield scores every ``every`` rounds and after the last, of 0 rounds if these rank."""
        from_zero = self.ranks_without_trees
        stages = []
        for piece in _pieces(rows):
            values = piece[:, self.used]
            scores = self._first_scores(piece, values)
            stages.append([*self.booster.stages(values, scores, every, from_zero=from_zero)])
        yield from map(np.concatenate, zip(*stages, strict=True))

    def _first_scores(self, matrix: Matrix, values: Matrix) -> Floats:
        """Return the scores before the first new tree; ``values`` are those of the used columns."""
        scores = np.zeros(len(matrix))
        if self.init_score:
            scores = self.init_score.values(matrix, self.columns)
        for earlier in self.warm_start:
            scores = scores - earlier.relevance(values)
        return scores

    def contributions(
        self, rows: GraphRows, now: int, then: int, walk: ChangePath | None = None
    ) -> Contributions:
        """Decompose the difference of the scores of two rows, ``now`` minus ``then``.

        With a ``walk``, contributions are also given by node.
        """
        matrix = rows.matrix(np.array([now, then]))
        scores = self.score_matrix(matrix)
        values = self._tree_contributions(matrix[:, self.used])
        columns = nonzero_by_name(values[0] - values[1], self.used_columns)
        if self.init_score:
            start = self.init_score.column_contributions(matrix, self.columns)
            columns = sum_by_key([columns, start])
        difference = float(scores[0] - scores[1])
        nodes = walk.by_node(self.score_matrix(walk.matrix)) if walk else {}
        losses = {self.loss.name: difference}
        return Contributions(difference, columns, losses=losses, nodes=nodes)

    def _tree_contributions(self, values: Matrix) -> Floats:
        """Return the contributions of the used columns to the scores, ``(rows, used columns)``, up
        to a constant; raise `ModelError` if they do not add up.
        """
        parts = sum(booster.contributions(values) for booster in self._boosters)
        total = sum(booster.relevance(values) for booster in self._boosters)
        error = float(np.abs(parts.sum(axis=1) - total).max(initial=0.0))
        if not error <= 1e-3 * float(np.abs(total).max(initial=1.0)):  # XGBoost uses float32
            name = self.loss.name
            got = f"the trees of {name} are too deep for their contributions (off by {error:.3g})"
            raise ModelError(got, do="train with fewer leaves; rank works with it as it is")
        return np.asarray(-parts[:, :-1])

    def importance(self) -> dict[str, float]:
        """Return the share of the total gain by used column, largest first."""
        gains = sum(booster.gains() for booster in self._boosters)
        shares = gains / max(gains.sum(), 1e-12)
        named = nonzero_by_name(shares, self.used_columns)
        return largest_first(named)

    def save(self, folder: Path) -> None:
        """Write the member into an empty folder as text and JSON, never pickles."""
        names = [*_warm_start_files(len(self.warm_start)), self.loss.booster.file_name]
        for name, booster in zip(names, self._boosters, strict=True):
            folder.joinpath(name).write_text(booster.text(), encoding="utf-8")
        state: dict[str, Any] = {
            "loss": self.loss.name,
            "params": dict(self.params),
            "weight": self.weight,
            "seed": self.seed,
            "used": self.used.tolist(),
            "init_score": self.init_score and [*self.init_score.columns],
            "init_score_weight": self.init_score and self.init_score.weight,
            "warm_starts": len(self.warm_start),
            "rate": self.rate,
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
        used = state["used"]
        valid = all(type(index) is int and 0 <= index < len(columns) for index in used)
        if not valid or used != sorted({*used}):
            raise ValueError(f"the chosen columns do not ascend within its {len(columns)}")
        init_score = None
        if state["init_score"] is not None:
            estimate = tuple(columns[columns.index(name)] for name in state["init_score"])
            weight = Interval(0)("init_score_weight", state["init_score_weight"])
            init_score = ColumnSum(estimate, weight)
        # absent from members of earlier versions
        count = Interval(0, whole=True)("warm_starts", state.get("warm_starts", 0))
        boosters: list[Any] = []
        for file in (*_warm_start_files(count), loss.booster.file_name):
            try:
                boosters.append(loss.booster.read(read_text(folder / file), len(used)))
            except ValueError as error:
                raise ValueError(f"{file}: {error}") from error
        *warm_start, booster = boosters
        return cls(
            loss,
            complete_params(loss.name, loss.params, kind, state["params"]),
            kind,
            Interval(0, above=True)("weight", state["weight"]),
            Interval(0, whole=True)("seed", state["seed"]),
            columns,
            np.array(used, np.intp),
            booster,
            init_score,
            warm_start,
            Interval(0, above=True)("rate", state.get("rate", 1.0)),
        )


def _warm_start_files(count: int) -> list[str]:
    return [f"warm-start-{number}.txt" for number in range(count)]


def nonzero_by_name(values: Floats, columns: Sequence[str]) -> dict[str, float]:
    """Return the nonzero values by the names of their columns."""
    return {columns[int(index)]: float(values[index]) for index in np.flatnonzero(values)}


def _pieces(rows: GraphRows) -> Iterator[Matrix]:
    """Yield the matrix of a graph in pieces of at most `PIECE` rows."""
    for start in range(0, len(rows), PIECE):
        yield rows.matrix(slice(start, start + PIECE))
