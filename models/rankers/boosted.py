"""What the rankers on boosted trees share: parameters, columns to look at, the initial score, saving."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Self

import numpy as np

from xlarank.data.errors import ModelError
from xlarank.data.graph import Kind
from xlarank.features.block import Scope
from xlarank.features.catalogue import every_block
from xlarank.features.instances.graph_instances import LazyInstances
from xlarank.features.instances.pair_blocks import InstanceGraph
from xlarank.features.targets import CPU, Target, foreign_columns
from xlarank.models.arrays import Floats, Indices, Matrix
from xlarank.models.base import Learned, P, Ranker
from xlarank.models.explanation.parts import Parts, Rows
from xlarank.models.objectives import GRAPH_WEIGHTS
from xlarank.models.params import Among, Between, Number, OneOf, RankerParams, Whole, param
from xlarank.models.training_data import TrainingData

#: ``all``: every column; ``no_graph``: without those that are constant within a graph (they cannot order
#: anything alone and tell graphs apart); ``no_candidates``: without the transductive ones; ``alone``: neither.
CHOICES: Final = ("all", "no_graph", "no_candidates", "alone")


def chosen_columns(columns: list[str], choice: str, target: Target | None = None) -> Indices:
    """Indices into ``columns`` of those that a choice of `CHOICES` and the target leave, ascending.

    >>> chosen_columns(["size__nodes__log", "candidates__hamming__mean", "mine"], "alone").tolist()
    [2]
    """
    graph, candidates = choice in ("no_graph", "alone"), choice in ("no_candidates", "alone")
    left_out: set[str] = {*foreign_columns(target)}
    for block in [*every_block("layout"), *every_block("tile")]:
        of_graph = block.scope is Scope.GRAPH or isinstance(block, InstanceGraph)
        if (graph and of_graph) or (candidates and block.transductive):
            left_out.update(block.columns)
    return np.array([i for i, name in enumerate(columns) if name not in left_out], np.intp)


def checked_indices(value: Any, columns: int) -> Indices:
    """Indices of chosen columns as they were saved; raises `ValueError` unless they ascend within the columns."""
    if not isinstance(value, list) or not all(type(index) is int and 0 <= index < columns for index in value):
        raise ValueError(f"the chosen columns are not among its {columns}")
    found = np.array(value, np.intp)
    if (np.diff(found) <= 0).any():
        raise ValueError("the chosen columns do not ascend")
    return found


#: Tolerances worth trying, shares of a cost: none, the repeats of a configuration on a TPU, those on a busy CPU.
_TIE_TOLERANCES: Final = (0.0, 0.001, 0.003, 0.01, 0.03)
#: Error of a sum of contributions, relative to the largest, that rounding explains (XGBoost's are float32).
_ROUNDING: Final = 1e-3
_MOST_LEAVES: Final = 131_072  # LightGBM's limit


def leaves_param(layout: int, *, tile: int | None = None) -> Any:
    """``num_leaves``: most leaves of a tree."""
    return param(layout, Whole(2, _MOST_LEAVES), Between(4, 48, log=True), tile=tile)


def columns_param() -> Any:
    """``columns``: which are looked at, one of `CHOICES`.

    Tile collections hold few candidates a kernel: a rank among them does not carry over to other families.
    """
    return param("all", OneOf(CHOICES), Among(CHOICES), tile="no_candidates")


def init_score_param() -> Any:
    """``init_score_weight``: see `InitScore`; searched for tiles alone."""
    return param(0.0, Number(0), Among((0.0, 1.0, 2.0, 4.0)), tile=2.0, searched_for=("tile",))


def tie_tolerance_param(default: float = 0.0) -> Any:
    """``tie_tolerance``: costs that differ by no more than this share are equal."""
    return param(default, Number(0), Among(_TIE_TOLERANCES))


def graph_weight_param() -> Any:
    """``graph_weight``: how much a graph counts by its size, one of `GRAPH_WEIGHTS`."""
    return param("equal", OneOf(tuple(GRAPH_WEIGHTS)), Among(tuple(GRAPH_WEIGHTS)))


@dataclass(frozen=True, kw_only=True)
class PairLossParams(RankerParams):
    """Parameters of a loss on sampled pairs, of which ``pairs`` partners are drawn for each row and round."""

    init_score_weight: float = init_score_param()
    pairs: int = param(8, Whole(1), Between(2, 32, log=True))
    tie_tolerance: float = tie_tolerance_param()
    graph_weight: str = graph_weight_param()
    columns: str = columns_param()


@dataclass(frozen=True)
class InitScore:
    """Initial relevance of a row: -weight * log2(estimated time). Trees learn the rest.

    Attributes:
        columns: indices of the columns whose sum is the estimate, log2 of a time.
        weight: relevance for each factor of two in time.
    """

    columns: tuple[int, ...]
    weight: float

    @classmethod
    def find(cls, columns: Sequence[str], weight: float, target: Target | None = None) -> Self | None:
        """Return None for a weight of 0, or without an estimate for the target; an unknown one counts as a CPU."""
        for names in (target or CPU).estimate.values() if weight else ():
            if set(names) <= set(columns):
                return cls(tuple(columns.index(name) for name in names), weight)
        return None

    def relevance(self, rows: Matrix) -> Floats:
        """Return the initial relevance, ``(rows,)``, higher is faster."""
        return np.asarray(-self.weight * rows[:, self.columns].astype(np.float64).sum(axis=1))

    def of_all(self, data: TrainingData) -> Floats:
        """Return the `relevance` of all rows of training data, ``(rows,)``, without their other columns."""
        used = np.sort(np.array(self.columns, np.intp))
        return np.asarray(-self.weight * data.matrix(used).astype(np.float64).sum(axis=1))

    def centred(self, data: TrainingData) -> Floats:
        """Return the `relevance` of all rows minus its mean over each graph, ``(rows,)``."""
        return centred(self.of_all(data), data)


def centred(values: Floats, data: TrainingData) -> Floats:
    """Return values of all rows minus their mean over each graph, ``(rows,)``."""
    sizes = np.diff(data.indptr)
    return values - np.repeat(np.add.reduceat(values, data.indptr[:-1]) / sizes, sizes)


class BoostedTrees(Ranker[P]):
    """Gradient-boosted trees whose sum is a relevance, higher is faster; a score is its negative."""

    row_by_row = True

    def __init__(self, params: P | Mapping[str, Any] | None = None, *, kind: Kind) -> None:
        super().__init__(params, kind=kind)
        self._used: Indices = np.empty(0, np.intp)  # among `_tree_columns`, ascending
        self._init_score: InitScore | None = None
        self._booster: Any = None  # of either library

    @property
    def _tree_columns(self) -> list[str]:
        """Names of the columns that `_used` indexes."""
        return self.columns

    @abstractmethod
    def _grown(self, values: Matrix) -> Floats:
        """``(rows,)`` sum of the trees."""

    @abstractmethod
    def _grown_parts(self, values: Matrix) -> Floats:
        """``(rows, columns + 1)`` what each column adds to the sum, and last what all rows share."""

    @abstractmethod
    def _total_gain(self) -> Floats:
        """``(columns of the trees,)``."""

    @abstractmethod
    def _text(self) -> str:
        """The booster as text."""

    @abstractmethod
    def _read(self, text: str, features: int) -> None:
        """Restore the booster, of so many columns; raises `ValueError` for what is damaged."""

    def _started(self, rows: Matrix) -> Floats:
        """``(rows,)`` relevance before the first tree."""
        return self._init_score.relevance(rows) if self._init_score else np.zeros(len(rows))

    def _scores(self, rows: Matrix, instances: LazyInstances | None) -> Floats:
        return -(self._started(rows) + self._grown(rows[:, self._used]))

    def _checked_parts(self, values: Matrix) -> Floats:
        """`_grown_parts`; raises `ModelError` where they do not add up to the sum of the trees."""
        parts, total = self._grown_parts(values), self._grown(values)
        error = float(np.abs(parts.sum(axis=1) - total).max(initial=0.0))
        if not error <= _ROUNDING * float(np.abs(total).max(initial=1.0)):
            raise ModelError(
                f"the trees of {self.name} are too deep for their contributions (off by {error:.3g})",
                do="train with fewer leaves; rank works with it as it is",
            )
        return parts

    def _row_parts(self, values: Matrix) -> Floats:
        """``(rows, columns)`` what each column adds to each row's score, up to what all rows share."""
        found = np.zeros(values.shape)
        found[:, self._used] = -self._checked_parts(values[:, self._used])[:, :-1]
        if self._init_score is not None:
            for column in self._init_score.columns:
                found[:, column] += self._init_score.weight * values[:, column]
        return found

    def _parts(self, rows: Rows, now: int, then: int, difference: float) -> Parts:
        matrix = self._row_parts(rows.matrix[[now, then]])
        nodes = rows.walk.by_node(self.predict(rows.walk.matrix, rows.columns)) if rows.walk else {}
        return Parts(difference, by_name(matrix[0] - matrix[1], rows.columns), nodes=nodes)

    def _gains(self) -> dict[str, float]:
        gain, names, shares = self._total_gain(), self._tree_columns, dict[str, float]()
        total = max(float(gain.sum()), 1e-12)
        for index, value in zip(self._used, gain, strict=True):
            shares[names[index]] = shares.get(names[index], 0.0) + float(value) / total
        return shares

    def _learned(self) -> Learned:
        start = self._init_score
        state: dict[str, Any] = {"used": self._used.tolist(), "init_score_weight": start.weight if start else 0.0}
        if start:
            state["init_score_columns"] = [self.columns[column] for column in start.columns]
        return Learned(state, {self.file_names[0]: self._text()})

    def _restore(self, learned: Learned) -> None:
        state, (name,) = learned.state, self.file_names
        self._used = checked_indices(state["used"], len(self._tree_columns))
        weight = Number(0)("init_score_weight", state["init_score_weight"])
        start = [self.columns.index(name) for name in state["init_score_columns"]] if weight else []
        self._init_score = InitScore(tuple(start), weight) if start else None
        try:
            self._read(learned.files[name], len(self._used))
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from error


def by_name(values: Floats, columns: list[str]) -> dict[str, float]:
    """Column -> value, those of 0 left out."""
    return {columns[index]: float(values[index]) for index in np.flatnonzero(values)}
