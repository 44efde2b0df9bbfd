"""Hardware that copies are priced for, and what its compiler's layout assignment demands.

Machines are data: a new GPU is one entry of `HARDWARE`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

from xlarank.data.hardware import GPUS
from xlarank.features.layout.time_model import BANDWIDTH, PEAK_FLOPS

#: Order in which an operation reads its operands and writes its output, major to minor:
#: ``batch-major``: batch dimensions, then the others in the order that pads least;
#: ``channels-last``: batch, spatial, features (kernels: output features, spatial, input features);
#: ``features-in-tiles``: spatial dimensions, then batch and features in the order that pads less;
#: ``matrices``: batch, rows and columns, each contiguous, and batch dimensions not minor-most.
Demand = Literal["row-major", "batch-major", "channels-last", "features-in-tiles", "matrices"]


@dataclass(frozen=True)
class Hardware:
    """A machine: the rules of its back end in XLA's layout assignment, and the costs of copies.

    Sources of the rules: openxla/xla, xla/service/cpu/cpu_layout_assignment.cc, dot_merger.cc, and
    in xla/service/gpu/transforms layout_assignment.cc and move_copy_to_users.cc; for the TPU,
    layouts in compiled modules (`benchmarks.relayout_fixtures`).

    Attributes:
        bandwidth, peak: bytes and floating-point operations per second, from data sheets.
        costs: nanoseconds per unit of `xlarank.features.layout.relayout_quantities.QUANTITIES`.
        demands: order of the tensors of an operation, by opcode.
        row_major_operands: whether other operations read row-major operands, unless another order
            is asked for.
        demands_last: whether demands are propagated after parameters and results.
        readers_last: whether demands of an operation are propagated before its readers' demands.
        reduces_forward: whether the order of a reduction's operand determines the order of its
            result.
        compacts: whether parameters and results take the fewest tiles; else they are row-major.
        simplifies: whether copies in a chain of copies, transposes and reshapes are merged.
        swapped_rank: least rank of a row-major dot that can exchange its last two dimensions.
        merged_bytes: most bytes of a dot that is merged with others of one operand; 0 for none.
        sinks_copies: whether copies move behind the operations that read them.
        fuses_activations: whether a convolution computes the activation that reads it.
    """

    bandwidth: float
    peak: float
    costs: Mapping[str, float]
    demands: Mapping[str, Demand]
    row_major_operands: bool = False
    demands_last: bool = False
    readers_last: bool = False
    reduces_forward: bool = False
    compacts: bool = False
    simplifies: bool = True
    swapped_rank: int = 3
    merged_bytes: int = 0
    sinks_copies: bool = False
    fuses_activations: bool = False


def _gpu(bandwidth: float, peak: float) -> Hardware:
    byte = 1e9 / bandwidth
    costs = {
        "transposed": byte,
        "straight": 0.2 * byte,  # mostly fused
        "column_reduced": byte,
        "transposes": 1000.0,  # launch of a kernel; an H200 takes 0.76 us
        "strided_dots": 0.87 * 1e9 / peak,
    }
    return Hardware(
        bandwidth,
        peak,
        costs,
        {"dot": "matrices", "convolution": "channels-last"},
        readers_last=True,
        swapped_rank=2,
        merged_bytes=32 << 20,
        sinks_copies=True,
        fuses_activations=True,
    )


def _tpu(bandwidth: float, peak: float) -> Hardware:
    return Hardware(
        bandwidth,
        peak,
        {"padded": 1e9 / bandwidth},
        {"dot": "batch-major", "convolution": "features-in-tiles"},
        demands_last=True,
        compacts=True,
        reduces_forward=True,
    )


#: Data sheets of NVIDIA A100 80 GB SXM, H100 SXM, H200 SXM and L4: memory bandwidth and dense TF32
#: operations, XLA's default for float32. CPU: a core of an AMD EPYC with two AVX2 multiply-adds a
#: cycle at 3 GHz. TPU v3: a core, `xlarank.features.layout.time_model`; v4, v5e and v6e: a chip,
#: memory bandwidth and bfloat16 operations (Google Cloud, *TPU versions*).
HARDWARE: Final[dict[str, Hardware]] = {
    "nvidia-a100": _gpu(2.039e12, 156e12),
    "nvidia-h100": _gpu(3.35e12, 494.7e12),
    "nvidia-h200": _gpu(4.8e12, 494.7e12),
    "nvidia-l4": _gpu(0.3e12, 60e12),
    "cpu": Hardware(
        20e9,
        96e9,
        {"strided": 0.03 / 4, "constrained_turned": 0.3 / 4},
        {"dot": "row-major", "convolution": "row-major"},
        row_major_operands=True,
        simplifies=False,
    ),
    "tpu-v3": _tpu(BANDWIDTH, PEAK_FLOPS),
    "tpu-v4": _tpu(1.2e12, 275e12),
    "tpu-v5e": _tpu(819e9, 197e12),
    "tpu-v6e": _tpu(1.64e12, 918e12),
}


def substitution_note(hardware: str) -> str:
    """Return a note if another chip stands for unknown hardware; else empty.

    >>> substitution_note("nvidia-h200")
    ''
    >>> substitution_note("amd-mi300x").partition(";")[0]
    'amd-mi300x is unknown and taken as nvidia-a100: the order may hold, the microseconds do not'
    """
    priced = copy_hardware(hardware)
    if priced in (None, hardware):
        return ""
    family = GPUS if hardware.startswith(GPUS) else "tpu-"
    known = ", ".join(name for name in HARDWARE if name.startswith(family))
    taken = f"{hardware} is unknown and taken as {priced}"
    return f"{taken}: the order may hold, the microseconds do not; known: {known}"


def copy_hardware(hardware: str) -> str | None:
    """Return the entry of `HARDWARE` that prices the copies of hardware; None if none does.

    An entry stands for GPUs and TPUs that have none. Layouts in files of the dataset follow the
    work of the matrix unit instead.

    >>> names = ("nvidia-h200", "amd-mi300x", "cpu", "tpu-v4", "tpu-v9", "tpugraphs", "")
    >>> [copy_hardware(name) for name in names]
    ['nvidia-h200', 'nvidia-a100', 'cpu', 'tpu-v4', 'tpu-v3', None, None]
    """
    if hardware in HARDWARE:
        return hardware
    if hardware.startswith(GPUS):
        return "nvidia-a100"
    return "tpu-v3" if hardware.startswith("tpu-") else None
