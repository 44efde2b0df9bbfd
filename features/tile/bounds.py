"""Bounds of tiles, how they divide tensors, memory traffic, and the inner loop on a CPU core."""

from __future__ import annotations

from math import gcd
from typing import Final

import numpy as np

from xlarank.data.schema import MAX_RANK, OPCODE, TILE_SLOTS
from xlarank.features.block import Cause, Column, tile_block
from xlarank.features.program.program_context import OPCODE_CLASSES
from xlarank.features.program.tensors import LANES, SUBLANES, Floats, Ints, log2p
from xlarank.features.tile.tile_context import TileContext, run_length

#: On-chip vector memory of one TPU core, bytes.
VMEM_BYTES: Final = 16 * 2**20


@tile_block(
    cause=Cause.TILES,
    columns={
        f"bounds__{slot}_{what}__log": meaning.format(slot)
        for slot in TILE_SLOTS
        for what, meaning in (
            *((str(i), f"{{}} bound of dimension {i}") for i in range(MAX_RANK)),
            ("volume", "product of the {} bounds, a bound of 0 counting as the whole dimension"),
        )
    },
)
def tile_bounds(context: TileContext) -> Floats:
    """Bounds in the file and their product, log2(1 + x); a bound of 0 is the whole dimension."""
    parts: list[Floats] = []
    for slot in TILE_SLOTS:
        parts += [context.bounds[slot], context.tiles[slot].prod(axis=1)]
    return np.column_stack([*map(log2p, parts)])


_INSIDE: Final = "part of the last one along dimension {} that lies inside the tensor"


@tile_block(
    cause=Cause.TILES,
    columns={
        f"tiles__{slot}_{what}__{how}": f"{slot} tiles: {meaning}"
        for slot in ("output", "kernel")
        for what, how, meaning in (
            *((str(i), "log", f"number along dimension {i}, log2") for i in range(MAX_RANK)),
            ("all", "log", "number in all, log2"),
            ("edge_waste", "ratio", "volume covered beyond the edges over the true volume"),
            ("divides", "share", "share of dimensions whose bound divides the extent"),
            ("whole", "share", "share of dimensions that are not cut"),
            *((f"rest_{i}", "share", _INSIDE.format(i)) for i in range(3)),
        )
    },
)
def tile_counts(context: TileContext) -> Floats:
    """Number of tiles ceil(extent / bound), log2, and how evenly bounds divide extents.

    Edge waste is the volume covered by the tiles over the true volume, minus 1.
    """
    parts: list[Floats] = []
    for slot in ("output", "kernel"):
        tile = context.tiles[slot]
        extents = context.extents[slot]
        inside = extents > 0
        counts = np.where(inside, np.ceil(extents / tile), 1.0)
        covered = np.where(inside, counts * tile / np.where(inside, extents, 1.0), 1.0)
        parts += [np.log2(counts), np.log2(counts.prod(axis=1)), covered.prod(axis=1) - 1.0]
        for ratio in (covered, counts):
            parts.append((inside & (ratio == 1.0)).sum(axis=1) / max(1, inside.sum()))
        parts.append(np.where(inside, (extents - (counts - 1.0) * tile) / tile, 1.0)[:, :3])
    return np.column_stack(parts)


_PROPORTIONS: Final = {
    "output_last{}__log": "output bound of dimension {} from the last, log2(1 + x)",
    "output_last{}__ratio": "output bound over extent of dimension {} from the last",
    "input_last{}__log": "input (vector) bound of dimension {} from the last, log2(1 + x)",
    "output_over_input_last{}__log": "output over input bound of dimension {} from the last, log2",
    "input_last{}__ratio": "input (vector) bound over extent of dimension {} from the last",
    "kernel_{}__ratio": "kernel bound over extent of the kernel's dimension {}",
}
_ALIGNMENT: Final = "largest power of two (up to 64) in the {}, log2"


@tile_block(
    cause=Cause.TILES,
    columns={
        **{
            f"shape__{name.format(i)}": meaning.format(i)
            for name, meaning in _PROPORTIONS.items()
            for i in range(3)
        },
        "shape__kernel_volume__ratio": "volume of the kernel tile over its extents', at most 2^24",
        "shape__output_over_input__log": "volume of the output over the input (vector) tile, log2",
        "shape__skew__log": "last output bound over the one before, log2",
        "shape__input_last0_mod16__share": "input bound of the last dimension modulo 16, over 16",
        "shape__output_last0_mod16__share": "output bound of the last dimension modulo 16, over 16",
        "shape__input_last0_alignment__log": _ALIGNMENT.format("last input bound"),
        "shape__input_last1_alignment__log": _ALIGNMENT.format("input bound before the last"),
        "shape__output_last0_alignment__log": _ALIGNMENT.format("last output bound"),
        "shape__kernel_alignment__log": _ALIGNMENT.format("kernel tile's volume"),
        "shape__input_registers__log": "registers of 8 elements in the input (vector) tile, log2",
    },
)
def tile_shape(context: TileContext) -> Floats:
    """Proportions of a tile to the extents and to the inner (vector) tile.

    The last three dimensions, except the kernel's, are counted from the last one (0), which means
    the same at every rank.
    """
    rank = context.output_rank
    ones = np.ones((context.configs, 3))
    # the last three dimensions, the last one first; padded with 1
    bounds = context.tiles["output"], context.tiles["input"]
    output, input_ = (np.column_stack([ones, bound[:, :rank]])[:, :-4:-1] for bound in bounds)
    extents = np.maximum(np.append(np.ones(3), context.extents["output"][:rank])[:-4:-1], 1.0)
    by_dimension = [log2p(output), output / extents, log2p(input_)]
    by_dimension += [np.log2(output / input_), input_ / extents]
    last, inner_last = (bound[:, max(0, rank - 1)] for bound in bounds)
    kernel = context.tiles["kernel"]
    cut = kernel / np.maximum(context.extents["kernel"], 1.0)
    volume, vector = (bound.prod(axis=1) for bound in bounds)
    registers = vector / inner_last * np.ceil(inner_last / 8)  # 8 elements of 32 bits each
    scalars = [np.minimum(cut.prod(axis=1), 2.0**24), np.log2(volume / vector)]
    scalars += [np.log2(last / output[:, 1])]
    scalars += [inner_last % 16 / 16, last % 16 / 16]
    aligned = (inner_last, input_[:, 1], last, kernel.prod(axis=1))
    scalars += [np.log2(np.gcd(_integers(bound), 64)) for bound in aligned]
    return np.column_stack([*by_dimension, cut[:, :3], *scalars, np.log2(registers)])


def _integers(bound: Floats) -> Ints:
    return np.clip(np.rint(bound), 1, 2.0**53).astype(np.int64)


@tile_block(
    cause=Cause.TRAFFIC,
    columns={
        "traffic__tile_bytes__log": "bytes of one output tile, log2(1 + x)",
        "traffic__working_set__log": "bytes of one output tile and what it reads, log2(1 + x)",
        "traffic__vmem__ratio": "two working sets over 16 MiB, at most 4",
        "traffic__padded_tile__log": "bytes of one output tile padded to 8 x 128, log2(1 + x)",
        "traffic__padded_tile__ratio": "padded over true bytes of one output tile, minus 1",
        "traffic__padded_vmem__ratio": "two padded output tiles over 16 MiB, at most 4",
        "traffic__total__log": "bytes read and written by all tiles, log2(1 + x)",
        "traffic__total__ratio": "bytes of all tiles over those with one tile in all, log2",
        "traffic__intensity__log": "multiply-adds of one tile over its bytes moved, log2(1 + x)",
        "traffic__flops_per_tile__log": "multiply-adds of one tile, log2(1 + x)",
        "traffic__left_panel__log": "bytes of the m x K panel, log2(1 + x)",
        "traffic__right_panel__log": "bytes of the K x n panel, log2(1 + x)",
        "traffic__inner_left__log": "vector tile rows times the reduction tile, log2(1 + x)",
        "traffic__inner_right__log": "vector tile columns times the reduction tile, log2(1 + x)",
        "traffic__inner_step__log": "vector tile times the reduction tile, log2(1 + x)",
        "traffic__inner_balance__log": "multiply-adds over reads of an inner step, log2(1 + x)",
    },
)
def tile_traffic(context: TileContext) -> Floats:
    """Bytes that a tile holds, bytes that all tiles move, and work per byte.

    With output tile m x n (n along the last dimension) and K contracted elements, a tile reads m*K
    + K*n elements and writes m*n; without contraction, it reads and writes as many elements as
    it has. m, n and K are in
    elements, for ``traffic__inner_*`` in units of the bounds. Double buffering keeps two tiles in
    vector memory, padded to hardware tiles.
    """
    extents = context.extents["output"]
    unit = context.unit
    rank = max(1, context.output_rank)
    depth = context.depth
    tile = context.tiles["output"] * unit
    vector = context.tiles["input"]
    columns = tile[:, rank - 1]
    rows = tile[:, : rank - 1].prod(axis=1)
    inner_columns = vector[:, rank - 1]
    inner_rows = vector[:, : rank - 1].prod(axis=1)
    count = np.where(extents > 0, np.ceil(extents * unit / tile), 1.0).prod(axis=1)
    volume = rows * columns
    left = rows * depth if depth else volume
    right = columns * depth
    moved = volume + left + right
    full = np.where(extents > 0, extents * unit, 1.0)
    full_left = full[: rank - 1].prod() * depth
    full_right = full[rank - 1] * depth
    minimum = full.prod() + (full_left + full_right if depth else full.prod())
    work = volume * max(depth, 1.0)
    size = context.element_size
    padded = np.ceil(columns / LANES) * LANES * rows
    if rank > 1:
        second = tile[:, rank - 2]
        padded *= np.ceil(second / SUBLANES) * SUBLANES / second
    vmem, padded_vmem = (
        np.minimum(2 * elements * size / VMEM_BYTES, 4.0) for elements in (moved, padded)
    )
    columns_ = [log2p(volume * size), log2p(moved * size), vmem]
    columns_ += [log2p(padded * size), padded / volume - 1.0, padded_vmem]
    columns_ += [log2p(count * moved * size), np.log2(count * moved / max(minimum, 1.0))]
    logs = [work / (moved * size), work, left * size, right * size]
    inner = inner_rows * inner_columns
    logs += [part * context.step for part in (inner_rows, inner_columns, inner)]
    logs.append(inner / (inner_rows + inner_columns))
    return np.stack([*columns_, *map(log2p, logs)], axis=1)


@tile_block(
    scope="graph",
    columns={
        **{f"kernel__is_{name}__flag": f"1 if the main node is {name}" for name in OPCODE_CLASSES},
        **{f"kernel__extent_{i}__log": f"output extent of dimension {i}" for i in range(MAX_RANK)},
        **{f"kernel__extent_last{i}__log": f"output extent {i} from the last" for i in range(3)},
        "kernel__contracted__log": "elements summed over for one output element",
        "kernel__work__log": "multiply-adds",
        "kernel__read_bytes__log": "bytes of the parameters",
        "kernel__intensity__log": "multiply-adds over bytes of parameters and the output",
        "kernel__parameters__log": "number of parameters",
        "kernel__fan_in__log": "number of operands of the main node",
        "kernel__largest_operand__log": "bytes of the main node's largest operand",
        "kernel__smallest_operand__log": "bytes of the main node's smallest operand",
        "kernel__reduces_minor__flag": "1 if a reduction sums along the minor-most dimension",
        "kernel__physical__flag": "1 if bounds count hardware tiles in physical order",
    },
)
def tile_kernel(context: TileContext) -> Floats:
    """Class, sizes and work of the main node, and the extents that the output bounds divide.

    Sizes are log2(1 + x).
    """
    main = context.main
    extents = context.extents["output"]
    rank = context.output_rank
    operands = context.bytes[context.main_operands]
    parameters = context.graph.opcode == OPCODE["parameter"]
    reads = context.bytes[parameters].sum()
    work = float(context.volume[main] * (context.depth or 1.0))
    from_last = [extents[rank - 1 - i] if rank > i else 0.0 for i in range(3)]
    intensity = work / max(1.0, reads + context.bytes[main])
    sizes = [*extents, *from_last, context.depth, work]
    sizes += [reads, intensity, parameters.sum(), len(operands)]
    sizes += [operands.max(), operands.min()] if len(operands) else [0.0, 0.0]
    classes = [context.main_class == name for name in OPCODE_CLASSES]
    reduces_minor = False
    if context.graph.opcode[main] == OPCODE["reduce"] and len(operands):
        # trailing dimensions are summed if leading ones agree
        operand = context.main_operands[0]
        output_rank = int(context.rank[main])
        leading = context.dims[[operand, main], :output_rank]
        reduces_minor = (leading[0] == leading[1]).all()
        reduces_minor &= context.default_layout[operand, 0] >= output_rank
    flags = [reduces_minor, context.physical]
    return np.array([*classes, *log2p(np.array(sizes)), *flags], np.float64)


# A core of the AVX2 generation (Fog, *Instruction tables* and *The microarchitecture of Intel, AMD
# and VIA CPUs*).
#: Bytes and number of vector registers.
_REGISTER = 32
_REGISTERS = 16
#: Cycles from the start of a multiply-add to its result, and to spill and reload a register.
_LATENCY = 4.0
_SPILL = 1.5
#: Multiply-adds, and loads, issued per cycle.
_ISSUED: Final = 2.0
#: Bytes of a cache line; sets and ways of the first and the second cache.
_LINE = 64
_CACHES = ((64, 8), (1024, 8))
#: Cycles to fetch a line from the first cache, the second, and beyond.
_LINE_CYCLES: Final = (0.5, 2.0, 12.0)
#: Upper bound of a kernel's bytes -> bytes per cycle.
_BANDWIDTH: Final = ((2.0**20, 32.0), (2.0**24, 12.0), (np.inf, 4.0))
#: Cost of starting a contiguous run, in bytes read.
_RUN_START: Final = 256.0


class InnerLoop:
    """The innermost loop of every configuration; arrays are ``(configs,)``.

    A vector tile of m x n elements (n along the last dimension, m the product of the others) takes
    r = ceil(n / lanes) registers a row, and m * r of them hold partial sums.

    Attributes:
        lanes: elements of a register.
        n, elements, registers: n, m * n and m * r.
        divides: 1 if vector tiles divide the output tile; otherwise IREE computes element by
            element.
        depth: elements summed over for one output element; 1 for none.
        chains: independent multiply-adds: one per register if operands are shared (products,
            convolutions over input features), otherwise one per register and step of the reduction.
        loads: registers loaded for one step of the reduction: m + r if operands are shared, else m
            * r (plus r for the weights of a depthwise convolution).
        lines, line_cycles: cache lines per row of a vector tile, and cycles for each; 0 unless
            operands are shared.
        spilled: registers needed beyond the registers of the core.
    """

    def __init__(self, context: TileContext) -> None:
        rank = max(1, context.output_rank)
        output = context.tiles["output"]
        vector = np.minimum(context.tiles["input"], output)
        self.lanes = max(1.0, _REGISTER / context.element_size)
        n = vector[:, rank - 1]
        m = vector[:, : rank - 1].prod(axis=1)
        row = np.ceil(n / self.lanes)
        self.n = n
        self.elements = m * n
        self.registers = m * row
        self.divides = (np.fmod(output, vector) == 0).all(axis=1).astype(np.float64)
        self.depth = context.depth or 1.0
        convolution = context.main_class == "convolution"
        window = context.column("window_size_0", MAX_RANK)[context.main]
        shared = context.main_class == "dot" or (
            convolution and self.depth > np.prod(window[window > 0])
        )
        self.chains = m * row * (1.0 if shared else context.step)
        self.loads = m + row if shared else m * row + (row if convolution else 0.0)
        self.lines = np.ceil(n * context.element_size / _LINE)
        # the rows of a panel fall into sets / gcd(sets, stride) sets of a cache
        stride = max(1, round(context.extents["output"][rank - 1] * context.element_size / _LINE))
        fits = [self.depth <= ways * sets / gcd(sets, stride) for sets, ways in _CACHES]
        self.line_cycles = _LINE_CYCLES[[*fits, True].index(True)] if shared else 0.0
        self.spilled = np.maximum(0.0, m * row + row + 1 - _REGISTERS)

    @property
    def cycles(self) -> Floats:
        """Cycles per register of multiply-adds: the slowest of four limits, plus spilling.

        The quantities are defined in Low et al. 2016, *Analytical Modeling Is Enough for
        High-Performance BLIS*.
        """
        limits = [self.registers / _ISSUED, _LATENCY * self.registers / self.chains]
        limits += [self.loads / _ISSUED, self.lines * self.line_cycles]
        cycles = (np.maximum.reduce(limits) + _SPILL * self.spilled) * self.lanes / self.elements
        return np.where(self.divides > 0, cycles, _LATENCY * self.lanes)


@tile_block(
    cause=Cause.INNER,
    columns={
        "inner__divides__flag": "1 if the vector tile divides the output tile in every dimension",
        "inner__lanes__share": "share of the registers' lanes that a row of the vector tile fills",
        "inner__odd__log": "largest odd factor of the vector tile's last dimension, log2",
        "inner__chains__log": "8 over the independent multiply-adds, at least 1, log2",
        "inner__loads__log": "registers loaded per element for one step of the reduction, log2",
        "inner__lines__log": "cache lines that one row touches, per element that uses them, log2",
        "inner__spill__log": "registers needed beyond the core's 16, log2(1 + x)",
        "inner__cycles__log": "estimated cycles of one register (32 bytes) of multiply-adds, log2",
        **{
            f"estimate__{name}__log": Column(f"{meaning}, log2", Cause.ESTIMATE)
            for name, meaning in (
                ("run", "elements of a contiguous run of the output tile"),
                ("memory", "cycles to move an output element's share of the bytes"),
                ("longer", "cycles to compute or to move an output element, whichever is longer"),
                ("sum", "cycles to compute and then move an output element"),
            )
        },
    },
)
def tile_inner(context: TileContext) -> Floats:
    """Innermost loop of a vector tile on a core with AVX2, and the kernel's time by it.

    All columns are 0 without a vector tile. `InnerLoop` has the quantities and their sources. A
    multiply-add takes `InnerLoop.cycles` / ``lanes``. Memory time is the bytes of the main node and
    its operands, plus 256 for each run as long as the output tile's, over a bandwidth of 32, 12 or
    4 bytes a cycle (up to 1 MiB, up to 16 MiB, more). The longer of computing and memory time is
    the roofline (Williams et al. 2009, *Roofline: An Insightful Visual Performance Model*); their
    sum assumes no overlap.
    """
    if not context.vectorised:
        return np.zeros((context.configs, len(tile_inner.columns)))
    loop = InnerLoop(context)
    loop_length = _integers(loop.n)
    users = loop.elements if loop.line_cycles else loop.n
    filled = loop.n / (loop.lanes * np.ceil(loop.n / loop.lanes))
    odd = loop_length / (loop_length & -loop_length)
    waiting = _LATENCY * _ISSUED / loop.chains
    logs = [odd, np.maximum(1.0, waiting), loop.loads / loop.elements, loop.lines / users]
    main = context.main
    rank = context.output_rank
    run = run_length(context.tiles["output"][:, :rank], context.extents["output"][:rank])
    moved = float(context.bytes[main] + context.bytes[context.main_operands].sum())
    bandwidth = next(speed for limit, speed in _BANDWIDTH if moved < limit)
    starts = 1 + _RUN_START / (run * context.element_size)
    memory = moved / max(1.0, float(context.volume[main])) / bandwidth * starts
    computing = loop.cycles / loop.lanes * loop.depth
    # a node without elements moves nothing: at least a millionth of a cycle keeps logarithms
    # finite
    times = [memory, np.maximum(computing, memory), computing + memory]
    logs += [1.0 + loop.spilled, loop.cycles, run, *(np.maximum(time, 1e-6) for time in times)]
    return np.stack([loop.divides, filled, *map(np.log2, logs)], axis=1)
