"""The hardware that a collection's kernels run on: which columns speak of it, and what is estimated of it.

Columns are stored alike for every collection, so that workspaces and models can be compared; what a ranker looks at
depends on the target. The physics of one machine misleads on another.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from xlarank.data.collection import Collection
from xlarank.features.tile.inner_loop import TileInner
from xlarank.features.tile.tpu_time import TpuTime


@dataclass(frozen=True)
class Target:
    """Hardware that kernels run on."""

    name: str  # short, as the card of a model says it
    about: str  # in words
    columns: frozenset[str]  # those of tiles that speak of this hardware alone
    estimate: str = ""  # the one of them that estimates a time, log2; empty where none does


CPU: Final = Target(
    "cpu",
    "a CPU core with AVX2",
    frozenset([*TileInner.columns, "shape__input_registers__log"]),
    "estimate__sum__log",
)
_PADDED: Final = "kernel__physical__flag", *(f"traffic__padded_{what}" for what in ("tile__log", "tile__ratio"))
TPU: Final = Target(
    "tpu",
    "a TPU core with 16 MiB of vector memory and tiles of 8 x 128",
    frozenset([*_PADDED, "traffic__padded_vmem__ratio", "traffic__vmem__ratio", *TpuTime.columns]),
    "tpu__cycles__log",
)
TARGETS: Final = {target.name: target for target in (CPU, TPU)}


def target_of(collection: Collection) -> Target:
    """The hardware behind a collection: a source ``cpu`` or ``cpu-...`` names a CPU, all others are TPUs.

    >>> target_of(Collection.parse("tile:cpu")).name, target_of(Collection.parse("tile:xla")).name
    ('cpu', 'tpu')
    """
    source = collection.parts[1]
    return CPU if source == "cpu" or source.startswith("cpu-") else TPU


def foreign_columns(target: Target | None) -> frozenset[str]:
    """Columns that speak of other hardware than the target's; none where the target is not known.

    Layouts have none: what padding says of a TPU's tiles it says of the locality of a CPU's loops, too.
    """
    others = [other.columns for other in TARGETS.values() if target is not None and other is not target]
    return frozenset().union(*others)
