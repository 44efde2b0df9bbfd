"""Interface of rankers, and contributions to the difference between two scores."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Final, Generic, Self, TypeVar, cast

import numpy as np

from xlarank.data.errors import ModelError
from xlarank.data.files import read_text
from xlarank.data.graph import Kind
from xlarank.features.attribution import Walk
from xlarank.features.rows import GraphRows, LazyInstances
from xlarank.models.arrays import Floats, Indices, Matrix
from xlarank.models.params import OneOf, RankerParams
from xlarank.models.training_data import FitSettings, TrainingData

_Key = TypeVar("_Key")
P = TypeVar("P", bound=RankerParams)

_STATE: Final = "ranker.json"


@dataclass(frozen=True)
class Place:
    """Contribution of a node, or of a pair of nodes that share a tensor, to the difference between
    two scores.

    ``nodes`` of a pair are consumer and producer, or one reader and the next; ``now`` and ``then``
    are the layouts.
    """

    nodes: tuple[int, ...]
    now: str
    then: str
    value: float


@dataclass(frozen=True)
class Parts:
    """Contributions to the difference between two scores of a graph; negative if the first is
    faster.

    They are exact TreeSHAP contributions of columns (Lundberg et al. 2018, *Consistent
    Individualized Feature Attribution for Tree Ensembles*), or differences of instance scores if a
    score is the sum of these. Up to rounding, ``difference == sum(columns) + sum(places)``,
    ``sum(places) == sum(instance_columns)`` and, if there is a walk, ``sum(columns) ==
    sum(nodes)``.

    Attributes:
        columns: nonzero contributions by column of the rows.
        places: nodes and pairs whose instance differs.
        instance_columns: contributions of ``places``, by column of the instances.
        members: part of the difference by member of an `Ensemble`; other rankers have one entry,
            their own.
        nodes: contributions of ``columns``, by node of the graph; empty without a walk.
    """

    difference: float
    columns: dict[str, float] = field(default_factory=dict)
    places: tuple[Place, ...] = ()
    instance_columns: dict[str, float] = field(default_factory=dict)
    members: dict[str, float] = field(default_factory=dict)
    nodes: dict[int, float] = field(default_factory=dict)

    @classmethod
    def total(cls, parts: Iterable[Parts], factor: float = 1.0) -> Parts:
        """Sum the parts, scaled by ``factor``, and merge equal places."""
        parts = list(parts)
        places = sum_by_key(
            ({(p.nodes, p.now, p.then): p.value} for part in parts for p in part.places), factor
        )
        return cls(
            sum(part.difference * factor for part in parts),
            sum_by_key((part.columns for part in parts), factor),
            tuple(Place(*key, value) for key, value in places.items()),
            sum_by_key((part.instance_columns for part in parts), factor),
            sum_by_key((part.members for part in parts), factor),
            sum_by_key((part.nodes for part in parts), factor),
        )

    def scaled_to(self, difference: float) -> Parts:
        """Return the contributions scaled to another difference; all 0 if they add up to 0."""
        return Parts.total(
            [self], difference / self.difference if abs(self.difference) > 1e-12 else 0.0
        )


class Ranker(ABC, Generic[P]):
    """Model fitted to query groups; a lower score means a faster configuration.

    `predict` and `staged` take the rows of one graph, and its instances, if any: a score may depend
    on other rows. Scores are deterministic given the data, parameters and seed.

    Attributes:
        row_by_row: whether a score depends on its row alone, neither on other rows nor on
            instances.
        part_names: possible names of nested rankers and of their folders.
        columns: column names of the training rows; empty before `fit`.
    """

    name: ClassVar[str]
    params_class: ClassVar[type[RankerParams]]
    row_by_row: ClassVar[bool] = False
    min_rounds: ClassVar[int] = 1
    part_names: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls) -> None:
        if "params_class" in vars(cls):
            cls.name = cls.params_class.ranker

    def __init__(self, params: P | Mapping[str, Any] | None = None, *, kind: Kind) -> None:
        """Fill in the default parameters of ``kind``; raises `ModelError` for invalid ones."""
        if isinstance(params, RankerParams):
            if type(params) is not self.params_class:
                raise ModelError(
                    f"the parameters are of {params.ranker}", expected=f"those of {self.name}"
                )
        else:
            params = cast(P, self.params_class.of(kind, params))
        self.params: P = params
        self.kind: Kind = kind
        self.columns: list[str] = []
        self._warm_start: Any = None  # set by `continuing`

    @property
    def ranks_without_trees(self) -> bool:
        """Whether scores are useful after 0 rounds, so that cross-validation may choose 0."""
        return False

    @property
    def is_time_model(self) -> bool:
        """Whether scores are logarithms of estimated times, without trees."""
        return False

    def clone(self) -> Self:
        """Return an unfitted copy."""
        ranker = type(self)(self.params, kind=self.kind)
        ranker._warm_start = self._warm_start
        return ranker

    def continuing(self, rate: float = 1.0) -> Self:
        """Return an unfitted, warm-started copy; raises `ModelError` for a ranker that cannot be
        continued.

        Rounds and stages count the added trees only; their learning rate is multiplied by ``rate``.
        Columns are matched by name; extra columns are ignored.
        """
        self._require_fitted()
        got = f"{self.name} cannot be fine-tuned"
        do = "fine-tune another model, or train with `also_from`"
        raise ModelError(got, expected="trees of LightGBM, or an ensemble of them", do=do)

    @abstractmethod
    def fit(self, data: TrainingData, settings: FitSettings) -> Self:
        """Fit, discarding any earlier fit; raises `ModelError` for unsuitable data or number of
        rounds.
        """

    def grow(self, data: TrainingData, settings: FitSettings) -> Self:
        """Add rounds up to ``settings.rounds`` on the same data and seed; equivalent to `fit`."""
        return self.fit(data, settings)

    def finish(self) -> Self:
        """Run deferred fitting, as `save` does."""
        return self

    @abstractmethod
    def predict(
        self, rows: Matrix, columns: list[str], instances: LazyInstances | None = None
    ) -> Floats:
        """Return scores, ``(rows,)``, of one graph's rows; raises `ModelError` for columns other
        than in `fit`.
        """

    @abstractmethod
    def staged(
        self, rows: Matrix, every: int, instances: LazyInstances | None = None
    ) -> Iterator[Floats]:
        """Yield scores every ``every`` rounds and after the last, starting at 0 rounds if
        `ranks_without_trees`.
        """

    @abstractmethod
    def contributions(
        self, graph: GraphRows, now: int, then: int, walk: Walk | None = None
    ) -> Parts:
        """Decompose the score difference of two rows, ``now`` minus ``then``; with a ``walk``, also
        by node.
        """

    def nanoseconds(self, scores: Floats) -> Floats | None:
        """Convert scores to predicted times; return None if scores only rank."""
        return None

    @abstractmethod
    def importance(self) -> dict[str, float]:
        """Return the share of the total gain by used column, largest first."""

    def save(self, folder: Path) -> None:
        """Write the ranker into an empty folder as text and JSON, never pickles."""
        self._require_fitted()
        state = {
            "ranker": self.name,
            "kind": self.kind,
            "params": self.params.values(),
            "columns": self.columns,
            "parts": [],
            **self._write(folder),
        }
        folder.joinpath(_STATE).write_text(json.dumps(state), encoding="utf-8")

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Read a ranker that `save` wrote; raises `ModelError`."""
        try:
            state = json.loads(read_text(folder.joinpath(_STATE)))
            if state["ranker"] != cls.name:
                raise ValueError(f"it is of the ranker {state['ranker']!r}")
            OneOf(("layout", "tile"))("kind", state["kind"])
            if unknown := set(state["parts"]) - set(cls.part_names):
                raise ValueError(f"it has the parts {sorted(unknown)}")
            ranker = cls(state["params"], kind=state["kind"])
            ranker.columns = [str(name) for name in state["columns"]]
            ranker._read(folder, state)
        except (OSError, ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
            got = f"{folder} cannot be read ({getattr(error, 'got', error)})"
            raise ModelError(got, expected="a trained model", do="run train again") from error
        return ranker

    @abstractmethod
    def _write(self, folder: Path) -> dict[str, Any]:
        """Write the large parts of the fitted state into files and return the rest."""

    @abstractmethod
    def _read(self, folder: Path, state: Mapping[str, Any]) -> None:
        """Restore the state that `_write` saved; raises if it is damaged."""

    def _require_rounds(self, settings: FitSettings) -> None:
        if settings.rounds < self.min_rounds:
            raise ModelError(f"{self.name} has 0 rounds", expected="1 or more")

    def _require_fitted(self, columns: list[str] | None = None) -> None:
        """Raise `ModelError` unless the ranker was fitted, and on ``columns`` if given."""
        if not self.columns:
            raise ModelError("the ranker was not trained", do="call fit or load first")
        if columns is not None:
            require_columns(columns, self.columns)


def sum_by_key(mappings: Iterable[Mapping[_Key, float]], factor: float = 1.0) -> dict[_Key, float]:
    """Sum the values by key, multiplied by ``factor``."""
    total: dict[_Key, float] = {}
    for mapping in mappings:
        for key, value in mapping.items():
            total[key] = total.get(key, 0.0) + value * factor
    return total


def largest_first(shares: Mapping[str, float]) -> dict[str, float]:
    """Sort shares by size, then by name."""
    return dict(sorted(shares.items(), key=lambda item: (-item[1], item[0])))


def mean_importance(
    rankers: Sequence[Ranker[Any]], weights: Sequence[float] | None = None
) -> dict[str, float]:
    """Return the weighted mean of the rankers' shares of the total gain by column, largest
    first.
    """
    weights = weights or [1.0] * len(rankers)
    shares = (
        {name: share * weight / sum(weights) for name, share in ranker.importance().items()}
        for ranker, weight in zip(rankers, weights, strict=True)
    )
    return largest_first(sum_by_key(shares))


def require_columns(got: list[str], expected: list[str]) -> None:
    """Raise `ModelError`, naming the differences, unless both lists are equal."""
    if got == expected:
        return
    differences = []
    for label, names, other_names in (("lack", expected, {*got}), ("add", got, {*expected})):
        if extra := [name for name in names if name not in other_names]:
            rest = f" and {len(extra) - 5} more" if len(extra) > 5 else ""
            differences.append(f"{label} {len(extra)} ({', '.join(extra[:5])}{rest})")
    problem = f"the rows {' and '.join(differences) or 'have the same columns in another order'}"
    do = "run build-features with the settings of the model, or train again"
    raise ModelError(
        problem, expected=f"the {len(expected)} columns that the model was trained on", do=do
    )


def column_indices(names: list[str], columns: Sequence[str], owner: str, do: str) -> Indices:
    """Return the indices of ``names`` in ``columns``; raises `ModelError` if any is missing or out
    of order.
    """
    index = {name: number for number, name in enumerate(columns)}
    missing = [name for name in names if name not in index]
    if missing:
        raise ModelError(
            f"the rows lack {len(missing)} columns of {owner} ({missing[0]}, ...)", do=do
        )
    indices = np.array([index[name] for name in names], np.intp)
    if (np.diff(indices) <= 0).any():
        raise ModelError(f"the rows have the columns of {owner} in another order", do=do)
    return indices
