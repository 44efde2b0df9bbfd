"""Target hardware of a collection, and the columns that describe it.

All collections store the same columns; rankers drop those of other hardware, whose physics would mislead.
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
    """Hardware that kernels run on.

    Attributes:
        columns: columns of tiles that describe this hardware only.
        estimate: kind of graph -> columns whose sum is the log2 of an estimated time.
        times: columns of estimated times; larger is slower.
    """

    name: str
    columns: frozenset[str] = frozenset()
    estimate: Mapping[Kind, tuple[str, ...]] = field(default_factory=dict, hash=False)
    times: frozenset[str] = frozenset()


_SUM: Final = "estimate__sum__log"
_OF_CPU: Final = (*TileInner.columns, "shape__input_registers__log")
#: A core with AVX2.
CPU: Final = Target("cpu", frozenset(_OF_CPU), {"tile": (_SUM,)}, frozenset([_SUM]))
_OF_TPU: Final = (
    "kernel__physical__flag", "traffic__padded_tile__log", "traffic__padded_tile__ratio",
    "traffic__padded_vmem__ratio", "traffic__vmem__ratio", *TpuTime.columns,
)  # fmt: skip
#: A core with 16 MiB of vector memory and tiles of 8 x 128.
TPU: Final = Target(
    "tpu",
    frozenset(_OF_TPU),
    {"tile": ("tpu__cycles__log",), "layout": (FASTEST, OVER_FASTEST)},
    frozenset(["tpu__cycles__log", *TIMES]),
)
#: Only layouts are measured on GPUs.
GPU: Final = Target("gpu")
TARGETS: Final = {target.name: target for target in (CPU, TPU)}


def target_of(collection: Collection) -> Target:
    """Return the hardware of a collection: a CPU or GPU if its source begins with one, else a TPU.

    >>> [target_of(Collection.parse(name)).name for name in ("tile:cpu", "layout:nvidia-h100:random", "tile:xla")]
    ['cpu', 'gpu', 'tpu']
    """
    source = collection.parts[1]
    if source.startswith(GPUS):
        return GPU
    return CPU if source == "cpu" or source.startswith("cpu-") else TPU


def foreign_columns(target: Target | None) -> frozenset[str]:
    """Return the columns that describe other hardware than the target's; none if the target is not known.

    Layouts have none: padding to a TPU's tiles also indicates the locality of a CPU's loops.
    """
    if target is None:
        return frozenset()
    return frozenset().union(*(other.columns for other in TARGETS.values() if other is not target))
