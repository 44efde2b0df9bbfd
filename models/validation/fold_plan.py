"""Folds that suit a kind of graphs: what is held out together when parameters, rounds and rankers are chosen."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from xlarank.models.base import Ranker
from xlarank.models.fallback import Fallback
from xlarank.models.fit_settings import FitSettings
from xlarank.models.training_data import TrainingData
from xlarank.models.validation.curves import Curves, validate_folds
from xlarank.models.validation.folds import Fold, family_folds, kind_folds, whole_folds

FAMILY, KIND = "family", "kind"
#: Leave-one-out up to this many families or kinds; more are dealt into as many folds.
MOST_FOLDS: Final = 10
#: In words, what folds hold out.
FOLDS_OF: Final = {FAMILY: "families", KIND: "kinds of kernels"}


@dataclass(frozen=True)
class FoldPlan:
    """Which graphs are held out together."""

    by: str  # a key of `FOLDS_OF`
    folds: list[Fold]  # empty where nothing can be held out

    @classmethod
    def of(cls, data: TrainingData, most: int = MOST_FOLDS) -> FoldPlan:
        """At most so many folds: kinds of kernels for tiles of two kinds or more, else program families.

        Folds of families leave a kind of kernel in training under another family's name, and so tell nothing of
        kernels that are new.
        """
        kinds = kind_folds([graph.kinds for graph in data.parts], most)  # none of layouts
        return cls(KIND, kinds) if len(kinds) > 1 else cls.of_families(family_folds(data.families, most))

    @classmethod
    def of_families(cls, folds: Sequence[Sequence[int]]) -> FoldPlan:
        """Folds that hold out whole program families, and score all that they hold out."""
        return cls(FAMILY, whole_folds(folds))

    @property
    def held(self) -> list[list[int]]:
        """Graphs that each fold holds out."""
        return [fold.held for fold in self.folds]

    @property
    def chosen_by(self) -> str:
        """In words, what a choice by them goes by."""
        return f"{len(self.folds)} folds by {self.by}"

    def curves(
        self,
        data: TrainingData,
        ranker: Ranker[Any],
        settings: FitSettings,
        step: Callable[[Fold], None] = lambda fold: None,
    ) -> Curves:
        """Out-of-fold curves of the graphs that folds score, in the order of the data; there must be one fold.

        Everything that a ranker learns, the bins of its rows included, comes from the graphs that its fold does not
        hold out. ``step`` is called after each fold.
        """
        fallback = Fallback() if self.by == KIND else None
        found: dict[str, list[dict[str, float]]] = {}
        rounds: list[int] = []
        for fold, part in zip(self.folds, validate_folds(data, self.held, ranker, settings, fallback), strict=True):
            found |= {data.names[group]: part.metrics[data.names[group]] for group in fold.scored}
            rounds = part.rounds
            step(fold)
        return Curves(rounds, {name: found[name] for name in data.names if name in found})
