"""The interface of boosters: grown trees of a library, as a value that rankers have."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, ClassVar, Self

from xlarank.models.arrays import Floats, Indices, Matrix
from xlarank.models.training_data import FitSettings, Targets, TrainingData


class Booster(ABC):
    """Grown trees whose sum is a relevance: the higher, the faster."""

    file_name: ClassVar[str]

    @classmethod
    @abstractmethod
    def fit(
        cls, data: TrainingData, used: Indices, targets: Targets, params: dict[str, Any], settings: FitSettings,
        base: Self | None = None,
    ) -> Self:  # fmt: skip
        """Grow a tree per round on the columns ``used``, ascending, and append them to the trees of ``base``.

        ``params`` are parameters of the library, the objective among them.
        """

    @property
    @abstractmethod
    def rounds(self) -> int:
        """Number of trees without those of ``base``."""

    def grow(self, settings: FitSettings) -> Self | None:
        """Return the trees after more rounds on the same data; None if that takes another `fit`."""
        return None

    def first(self, trees: int | None = None) -> Self:
        """Return the first trees or all, to be continued; raises `ValueError` if the library cannot do that."""
        raise ValueError(f"{type(self).__name__} cannot be continued")

    @abstractmethod
    def relevance(self, values: Matrix, threads: int | None = None) -> Floats:
        """Return the sum of the trees, ``(rows,)``, by default on the threads of `fit`."""

    @abstractmethod
    def stages(self, values: Matrix, scores: Floats, every: int, *, from_zero: bool) -> Iterator[Floats]:
        """Yield ``scores`` minus `relevance` after each ``every`` rounds, the last after all of them.

        The trees of ``base`` always count. ``from_zero`` starts with the stage of 0 rounds.
        """

    @abstractmethod
    def contributions(self, values: Matrix) -> Floats:
        """Return the contribution of each column to `relevance`, and last a common term, ``(rows, used + 1)``."""

    @abstractmethod
    def gains(self) -> Floats:
        """Return the total gain of the splits on each column, ``(used columns,)``."""

    @abstractmethod
    def text(self) -> str:
        """Return the trees as text for `read`."""

    @classmethod
    @abstractmethod
    def read(cls, text: str, features: int, base: int = 0) -> Self:
        """Restore the trees on ``features`` columns, of which the first ``base`` were continued.

        Raises `ValueError` for a damaged text.
        """
