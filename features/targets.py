"""The hardware that a collection's kernels run on: which columns speak of it, and what is estimated of it.

Columns are stored alike for every collection, so that workspaces and models can be compared; what a ranker looks at
depends on the target. The physics of one machine misleads on another.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from xlarank.data.collection import GPUS, Collection
from xlarank.data.graph import Kind
from xlarank.features.layout.estimated_time import FASTEST, OVER_FASTEST, TIMES
from xlarank.features.tile.inner_loop import TileInner
from xlarank.features.tile.tpu_time import TpuTime


@dataclass(frozen=True)
class Target:
    """Hardware that kernels run on."""

    name: str  # short, as the card of a model says it
    about: str  # in words
    columns: frozenset[str]  # those of tiles that speak of this hardware alone
    #: Columns whose sum is the logarithm (base 2) of an estimated time, by kind of graph.
    estimate: Mapping[Kind, tuple[str, ...]] = field(default_factory=dict, hash=False)
    #: Columns of estimated times: the larger, the slower.
    times: frozenset[str] = frozenset()


CPU: Final = Target(
    "cpu",
    "a CPU core with AVX2",
    frozenset([*TileInner.columns, "shape__input_registers__log"]),
    {"tile": ("estimate__sum__log",)},
    frozenset(["estimate__sum__log"]),
)
_PADDED: Final = "kernel__physical__flag", *(f"traffic__padded_{what}" for what in ("tile__log", "tile__ratio"))
TPU: Final = Target(
    "tpu",
    "a TPU core with 16 MiB of vector memory and tiles of 8 x 128",
    frozenset([*_PADDED, "traffic__padded_vmem__ratio", "traffic__vmem__ratio", *TpuTime.columns]),
    {"tile": ("tpu__cycles__log",), "layout": (FASTEST, OVER_FASTEST)},
    frozenset(["tpu__cycles__log", *TIMES]),
)
#: Only layouts are measured on GPUs.
GPU: Final = Target("gpu", "a GPU", frozenset())
TARGETS: Final = {target.name: target for target in (CPU, TPU)}


def target_of(collection: Collection) -> Target:
    """Return the hardware behind a collection: a CPU or GPU where its source begins with one, else a TPU.

    >>> [target_of(Collection.parse(name)).name for name in ("tile:cpu", "layout:nvidia-h100:random", "tile:xla")]
    ['cpu', 'gpu', 'tpu']
    """
    source = collection.parts[1]
    if source.startswith(GPUS):
        return GPU
    return CPU if source == "cpu" or source.startswith("cpu-") else TPU


def foreign_columns(target: Target | None) -> frozenset[str]:
    """Return the columns that describe other hardware than the target's; none if the target is not known.

    Layouts have none: what padding says of a TPU's tiles it says of the locality of a CPU's loops, too.
    """
    others = [other.columns for other in TARGETS.values() if target is not None and other is not target]
    return frozenset().union(*others)
