"""The interface of rankers."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Final, Generic, Self, TypeVar

import numpy as np

from xlarank.data.errors import ModelError
from xlarank.data.files import read_text
from xlarank.data.graph import Kind
from xlarank.features.instances.graph_instances import LazyInstances
from xlarank.models.arrays import Floats, Indices, Matrix
from xlarank.models.explanation.parts import Parts, Rows
from xlarank.models.params import OneOf, RankerParams
from xlarank.models.training_data import FitSettings, TrainingData

_STATE: Final = "ranker.json"

P = TypeVar("P", bound=RankerParams)


@dataclass(frozen=True)
class Learned:
    """The saved state of a fitted ranker."""

    state: dict[str, Any] = field(default_factory=dict)  # numbers and names, as JSON takes them
    files: dict[str, str] = field(default_factory=dict)  # name -> text of files beside it
    parts: dict[str, Ranker[Any]] = field(default_factory=dict)  # folder -> ranker within the ranker


class Ranker(ABC, Generic[P]):
    """Learns from query groups, scores rows: the lower the score, the faster the configuration.

    All rows of one call of `predict` or `staged` are of one graph: a ranker may look at a row's rank among them.
    The same data, parameters and seed give the same scores.
    """

    name: ClassVar[str]  # that of its parameters
    params_class: ClassVar[type[RankerParams]]
    #: Whether the score of a row depends on that row alone, not on others of its graph or on its instances.
    row_by_row: ClassVar[bool] = False
    #: Whether it can be fitted with 0 rounds.
    takes_no_rounds: ClassVar[bool] = False
    file_names: ClassVar[tuple[str, ...]] = ()  # files that it is saved in, beside its state
    # part_classes: folder -> class of rankers that it may be made of
    part_classes: ClassVar[Mapping[str, type[Ranker[Any]]]] = {}

    def __init_subclass__(cls) -> None:
        if "params_class" in vars(cls):
            cls.name = cls.params_class.ranker

    def __init__(self, params: P | Mapping[str, Any] | None = None, *, kind: Kind) -> None:
        """Complete the parameters by the defaults of the kind of graphs; raises `ModelError` for others."""
        if isinstance(params, RankerParams):
            if type(params) is not self.params_class:
                raise ModelError(f"the parameters are of {params.ranker}", expected=f"those of {self.name}")
            whole: Any = params
        else:
            whole = self.params_class.of(kind, params)
        self.params: P = whole
        self.kind: Kind = kind
        self.columns: list[str] = []  # of the rows that it was fitted on; empty before

    @property
    def ranks_without_trees(self) -> bool:
        """Whether the fitted ranker has useful scores with 0 rounds, so that cross-validation may choose them."""
        return False

    @property
    def is_time_model(self) -> bool:
        """Whether scores are the logarithm of an estimated time, without trees."""
        return False

    def clone(self) -> Self:
        """Return an unfitted copy."""
        return type(self)(self.params, kind=self.kind)

    def continuing(self, rate: float = 1.0) -> Self:
        """Return an unfitted, warm-started copy; raises `ModelError` for a ranker that has none.

        Rounds and stages are then those that are added; new trees learn ``rate`` times as fast. Columns are matched
        by name, and others ignored.
        """
        self._require_fitted()
        do = "fine-tune another model, or train with --also-from"
        got, expected = f"{self.name} cannot be fine-tuned", "trees of LightGBM, or an ensemble of them"
        raise ModelError(got, expected=expected, do=do)

    def fit(self, data: TrainingData, settings: FitSettings) -> Self:
        """Fit anew; raises `ModelError` for data, or a number of rounds, that do not suit it."""
        if not settings.rounds and not self.takes_no_rounds:
            raise ModelError(f"{self.name} has 0 rounds", expected="1 or more")
        self._fit(data, settings)
        self.columns = data.columns
        return self

    def grow(self, data: TrainingData, settings: FitSettings) -> Self:
        """Continue to more rounds on the same data and seed, with the outcome of a `fit` of so many."""
        return self.fit(data, settings)

    def finish(self) -> Self:
        """Run deferred fitting; `save` does it, too."""
        return self

    def predict(self, rows: Matrix, columns: list[str], instances: LazyInstances | None = None) -> Floats:
        """``(rows,)`` scores of one graph's ``(rows, columns)``; raises `ModelError` for other columns.

        ``instances`` are those of the same configurations, where they have any; most rankers never look at them.
        """
        self._require_fitted()
        require_columns(columns, self.columns)
        return self._scores(rows, instances)

    def staged(self, rows: Matrix, every: int, instances: LazyInstances | None = None) -> Iterator[Floats]:
        """Scores of the rows of one graph after each ``every`` rounds, the last after all of them.

        If it `ranks_without_trees`, those of 0 rounds come first.
        """
        self._require_fitted()
        return self._staged(rows, every, instances)

    def contributions(self, rows: Rows, now: int, then: int) -> Parts:
        """Take apart the difference of the scores of two rows of a graph, ``now`` minus ``then``."""
        scores = self.predict(rows.matrix, rows.columns, rows.instances)
        difference = float(scores[now] - scores[then])
        return replace(self._parts(rows, now, then, difference), members={self.name: difference})

    def nanoseconds(self, scores: Floats) -> Floats | None:
        """Predicted times of scores; None for rankers whose scores only order."""
        return None

    def importance(self) -> dict[str, float]:
        """Share of the total gain by column, largest first; columns never used are left out."""
        self._require_fitted()
        shares = sorted(self._gains().items(), key=lambda item: (-item[1], item[0]))
        return {name: share for name, share in shares if share > 0}

    def save(self, folder: Path) -> None:
        """Write the ranker into an empty folder, and folders below it: text and JSON, never pickles."""
        self._require_fitted()
        learned = self._learned()
        for name, part in learned.parts.items():
            (folder / name).mkdir()
            part.save(folder / name)
        for name, text in learned.files.items():
            folder.joinpath(name).write_text(text, encoding="utf-8")
        state = {
            "ranker": self.name, "kind": self.kind, "params": self.params.values(), "columns": self.columns,
            "parts": [*learned.parts], **learned.state,
        }  # fmt: skip
        folder.joinpath(_STATE).write_text(json.dumps(state), encoding="utf-8")

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Read back what `save` wrote; raises `ModelError`."""
        try:
            state = json.loads(read_text(folder.joinpath(_STATE)))
            if state["ranker"] != cls.name:
                raise ValueError(f"it is of the ranker {state['ranker']!r}")
            OneOf(("layout", "tile"))("kind", state["kind"])
            if unknown := set(state["parts"]) - set(cls.part_classes):
                raise ValueError(f"it has the parts {sorted(unknown)}")
            ranker = cls(state["params"], kind=state["kind"])
            files = {name: read_text(folder.joinpath(name)) for name in cls.file_names}
            parts = {name: cls.part_classes[name].load(folder / name) for name in state["parts"]}
            ranker.columns = [str(name) for name in state["columns"]]
            ranker._restore(Learned(state, files, parts))
        except (OSError, ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
            got = f"{folder} cannot be read ({getattr(error, 'got', error)})"
            raise ModelError(got, expected="a trained model", do="run train again") from error
        return ranker

    def _require_fitted(self) -> None:
        if not self.columns:
            raise ModelError("the ranker was not trained", do="call fit or load first")

    @abstractmethod
    def _fit(self, data: TrainingData, settings: FitSettings) -> None:
        """`fit`."""

    @abstractmethod
    def _scores(self, rows: Matrix, instances: LazyInstances | None) -> Floats:
        """`predict` after its checks."""

    @abstractmethod
    def _staged(self, rows: Matrix, every: int, instances: LazyInstances | None) -> Iterator[Floats]:
        """`staged` after its checks."""

    @abstractmethod
    def _parts(self, rows: Rows, now: int, then: int, difference: float) -> Parts:
        """`contributions` to the difference, the members apart."""

    @abstractmethod
    def _gains(self) -> dict[str, float]:
        """Share of the total gain by column."""

    @abstractmethod
    def _learned(self) -> Learned:
        """What to save beside parameters and columns."""

    @abstractmethod
    def _restore(self, learned: Learned) -> None:
        """Restore what `_learned` returned; raises any error for what is damaged."""


def mean_importance(rankers: Sequence[Ranker[Any]]) -> dict[str, float]:
    """Return the mean over rankers of the share of the total gain by column, largest first."""
    shares: dict[str, float] = {}
    for ranker in rankers:
        for name, share in ranker.importance().items():
            shares[name] = shares.get(name, 0.0) + share / len(rankers)
    return dict(sorted(shares.items(), key=lambda item: (-item[1], item[0])))


def require_columns(got: list[str], wanted: list[str]) -> None:
    """Raise `ModelError` with the difference unless both lists are equal."""
    if got == wanted:
        return
    missing = [name for name in wanted if name not in set(got)]
    added = [name for name in got if name not in set(wanted)]
    parts = [
        f"{label} {len(names)} ({', '.join(names[:5])}{f' and {len(names) - 5} more' if len(names) > 5 else ''})"
        for label, names in (("lack", missing), ("add", added))
        if names
    ]
    rows = f"the rows {' and '.join(parts) or 'have the same columns in another order'}"
    do = "run build-features with the settings of the model, or train again"
    raise ModelError(rows, expected=f"the {len(wanted)} columns that the model was trained on", do=do)


def places_by_name(wanted: list[str], columns: Sequence[str], what: str, do: str) -> Indices:
    """Indices of the wanted ones among columns; raises `ModelError` where one is missing or the order differs."""
    place = {name: number for number, name in enumerate(columns)}
    missing = [name for name in wanted if name not in place]
    if missing:
        raise ModelError(f"the rows lack {len(missing)} columns of {what} ({missing[0]}, ...)", do=do)
    found = np.array([place[name] for name in wanted], np.intp)
    if (np.diff(found) <= 0).any():
        raise ModelError(f"the rows have the columns of {what} in another order", do=do)
    return found
