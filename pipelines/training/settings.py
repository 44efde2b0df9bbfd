"""Settings of training."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from xlarank.data.errors import require_ranges
from xlarank.models.rankers import DEFAULT
from xlarank.models.validation.metrics import require_selection

#: Name that selects the ranker with the best out-of-fold score, for each collection.
AUTO: Final = "auto"


@dataclass(frozen=True, kw_only=True)
class TrainSettings:
    """Settings of `xlarank.pipelines.train.train`; invalid ones raise `XlarankError`.

    Attributes:
        also_from: extra training collections of the same kind, not scored: ``NAME`` or
            ``NAME=WEIGHT``, the weight of each graph (default 1). Families held out by a fold are
            held out in them, too.
        model: ranker, or "auto" for the best out of fold.
        with_valid: also train on the valid split; afterwards, scores on it are meaningless.
        rounds: maximum number of boosting rounds; cross-validation chooses.
        select: criterion by which cross-validation chooses, one of
            `xlarank.models.validation.metrics.SELECTIONS`.
        threads: cores, 0 for all.
        max_rows: training rows of a collection, sampled evenly from its graphs; 0: all, None: the
            default of the kind of graphs, `xlarank.pipelines.training.training_sets.MAX_ROWS`.
    """

    collections: Sequence[str] = ()
    also_from: Sequence[str] = ()
    model: str = DEFAULT
    seeds: int = 3
    with_valid: bool = False
    rounds: int = 300
    select: str = "mean"
    seed: int = 0
    threads: int = 0
    max_rows: int | None = None

    @property
    def splits(self) -> tuple[str, ...]:
        return ("train", "valid") if self.with_valid else ("train",)

    def __post_init__(self) -> None:
        require_ranges(seeds=self.seeds, rounds=self.rounds, seed=self.seed, threads=self.threads)
        require_ranges(max_rows=self.max_rows or 0)
        require_selection("select", self.select)
