"""How to fit, whatever the ranker and its parameters."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from xlarank.data.ranges import MAX_ROUNDS, MAX_SEED, MAX_THREADS
from xlarank.models.params import Whole

if TYPE_CHECKING:  # it loads LightGBM
    from xlarank.models.rankers.tree_cluster import TreeCluster


@dataclass(frozen=True)
class FitSettings:
    """How long, from which random numbers and on how many cores; raises `ModelError` for what makes no sense."""

    rounds: int  # trees to learn
    seed: int = 0  # of every random draw. The same data, parameters and seed give the same scores.
    threads: int = 0  # 0 takes all cores, and -1, which becomes 0
    # cluster: grows LightGBM's trees in place of this process; only for what it has objectives for itself.
    cluster: TreeCluster | None = field(default=None, compare=False, repr=False)
    grows: bool = False  # keep what `xlarank.models.base.Ranker.grow` needs, mostly the binned rows.

    def __post_init__(self) -> None:
        for name, low, high in (("rounds", 1, MAX_ROUNDS), ("seed", 0, MAX_SEED), ("threads", -1, MAX_THREADS)):
            object.__setattr__(self, name, Whole(low, high)(name, getattr(self, name)))
        object.__setattr__(self, "threads", max(0, self.threads))
