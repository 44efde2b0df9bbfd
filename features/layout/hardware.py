"""Hardware that relayouts are priced for, and what its compiler's layout assignment demands.

Back ends and machines are data: a new GPU is one entry of `HARDWARE`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from xlarank.data.collection import GPUS
from xlarank.features.layout.time_model import BANDWIDTH, PEAK_FLOPS


class Demand(Enum):
    """Order in which an operation reads its operands and writes its output."""

    ROW_MAJOR = "row-major"
    PREFERRED = "the layouts that the compiler chooses for parameters"
    CHANNELS_LAST = (
        "batch, spatial dimensions, features; kernels: output features, spatial, input features"
    )
    FEATURES_IN_TILES = (
        "features and batch (kernels: output and input features) minor-most, in the cheaper order"
    )
    MATRICES = "batch, rows and columns each contiguous; batch dimensions not minor-most"


@dataclass(frozen=True)
class Backend:
    """Rules of a back end in XLA's layout assignment.

    Attributes:
        demands: opcode -> the order of its tensors.
        operands: order in which all other operations read operands if nothing else asks for one.
        rounds: number of times that layouts are assigned; a later round sees the layouts of the one before.
        compacts: whether parameters and results have the layouts that take the fewest tiles; else they are row-major.
        swaps_outputs: whether a batched dot writes its last two dimensions in either order.
    """

    name: str
    demands: Mapping[str, Demand]
    operands: Demand | None = None
    rounds: int = 1
    compacts: bool = False
    fuses_activations: bool = False
    swaps_outputs: bool = False


# Sources: xla/service/{cpu,gpu}/*_layout_assignment.cc of openxla/xla; for the TPU, compiled modules.
CPU_BACKEND: Final = Backend(
    "cpu",
    {"dot": Demand.ROW_MAJOR, "convolution": Demand.ROW_MAJOR},
    Demand.ROW_MAJOR,
    swaps_outputs=True,
)
GPU_BACKEND: Final = Backend(
    "gpu",
    {"dot": Demand.MATRICES, "convolution": Demand.CHANNELS_LAST},
    fuses_activations=True, rounds=2,
    swaps_outputs=True,
)
TPU_BACKEND: Final = Backend(
    "tpu",
    {"dot": Demand.PREFERRED, "convolution": Demand.FEATURES_IN_TILES},
    compacts=True,
    swaps_outputs=True,
)


@dataclass(frozen=True)
class Hardware:
    """A machine, with the cost of relayouts.

    Attributes:
        bandwidth, peak: bytes and floating-point operations per second, of data sheets.
        costs: nanoseconds per unit of quantities (`xlarank.features.layout.relayouts.QUANTITIES`).
        lanes, sublanes, word: extents of the tiles of tensors, and bytes of an element that is not packed.
    """

    name: str
    backend: Backend
    bandwidth: float
    peak: float
    costs: Mapping[str, float] = field(hash=False)
    lanes: int = 128
    sublanes: int = 8
    word: int = 4


#: Share of the bytes that a copy which keeps the minor-most dimension costs on a GPU: fused, it is nearly free.
_STRAIGHT: Final = 0.2
#: Additional time of a dot that reads neither operand along its contracted dimension, over its time at the peak.
_STRIDED_DOT: Final = 0.87
#: Nanoseconds to launch a kernel: measured 0.76 us on an H200.
_LAUNCH: Final = 1000.0
#: Nanoseconds of a CPU core for each byte moved and doubling of the stride, and for each byte written in an order
#: that the reader does not expect (measured on an AMD EPYC: 0.03 and 0.3 ns for 4 bytes).
_CPU_STRIDE, _CPU_TURNED = 0.03 / 4, 0.3 / 4


def _gpu(name: str, bandwidth: float, peak: float) -> Hardware:
    byte = 1e9 / bandwidth
    costs = {
        "transposed": byte,
        "straight": _STRAIGHT * byte,
        "column_reduced": byte,
        "transposes": _LAUNCH,
        "strided_dots": _STRIDED_DOT * 1e9 / peak,
    }
    return Hardware(name, GPU_BACKEND, bandwidth, peak, costs)


#: Data sheets: memory bandwidth, and dense TF32 operations (XLA's default for float32). NVIDIA A100 80 GB SXM, H100
#: SXM, H200 SXM, L4. CPU: one core of an AMD EPYC, two AVX2 multiply-adds a cycle. TPU v3: see `time_model`.
HARDWARE: Final[dict[str, Hardware]] = {
    hardware.name: hardware
    for hardware in (
        _gpu("nvidia-a100", 2.039e12, 156e12),
        _gpu("nvidia-h100", 3.35e12, 494.7e12),
        _gpu("nvidia-h200", 4.8e12, 494.7e12),
        _gpu("nvidia-l4", 0.3e12, 60e12),
        Hardware(
            "cpu",
            CPU_BACKEND,
            20e9,
            96e9,
            {"strided": _CPU_STRIDE, "constrained_turned": _CPU_TURNED},
        ),
        Hardware("tpu-v3", TPU_BACKEND, BANDWIDTH, PEAK_FLOPS, {"padded": 1e9 / BANDWIDTH}),
    )
}


def hardware_of(source: str) -> str | None:
    """Return the hardware whose relayouts explain the labels of a collection's source; None if they do not.

    Measured layouts of TPUs follow the work of the matrix unit, not relayouts. An unknown GPU is taken as an A100.

    >>> [hardware_of(source) for source in ("nvidia-h200", "amd-mi300x", "cpu", "tpu-estimate", "xla")]
    ['nvidia-h200', 'nvidia-a100', 'cpu', 'tpu-v3', None]
    """
    if source.startswith(GPUS):
        return source if source in HARDWARE else "nvidia-a100"
    if source == "cpu" or source.startswith("cpu-"):
        return "cpu"
    return "tpu-v3" if "estimate" in source else None
