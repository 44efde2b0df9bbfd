"""Physical estimate of a kernel's time on a TPU, from its loop over windows.

A kernel loops over the tiles of its output. For each of these tiles, a product (a convolution, or a
dot written as one) loops over the tiles of its kernel tensor. Every step computes while the next
windows are copied from memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from xlarank.data.schema import MAX_RANK, OPCODE
from xlarank.features.block import Cause, tile_block
from xlarank.features.program.tensors import LANES, WORD_BYTES, Floats, log2p
from xlarank.features.tile.tile_context import TileContext, run_length

#: Opcodes without vector work, and opcodes of data movement, reductions and copies.
_NAMES: Final = (
    "parameter constant broadcast bitcast tuple get-tuple-element fusion iota call reshape "
    "convolution dot",
    "copy transpose slice pad concatenate reverse dynamic-slice dynamic-update-slice gather "
    "convert bitcast-convert",
    "reduce reduce-window",
    "copy transpose",
)
_FREE, _MOVES, _REDUCTIONS, _COPIES = ([OPCODE[name] for name in names.split()] for names in _NAMES)
#: Elements of a vector register.
_REGISTER: Final = 1024.0


class WindowLoop:
    """Totals over all steps of a kernel; arrays are ``(configs,)``.

    Attributes:
        kind: "product", "reduction", "move" (nothing is computed) or "elementwise".
        steps, tiles: iterations of the loop, and output tiles.
        fused: steps of additional products that are fused into the kernel.
        moved: bytes between memory and vector memory, padded to hardware tiles.
        runs: contiguous runs of tiles of inputs and results of at least half the output's size.
        kernel_runs: contiguous runs of tiles of a product's kernel tensor.
        passes, rows: loads of 128 x 128 weights into the matrix unit, and rows of 128 elements
            multiplied by them.
        summed: output elements that a product of several steps accumulates in vector memory.
        computed, copied: padded elements of all operations with vector work, and of the output if
            the root copies.
        packed: elements of the output if an input or result of half its size has several elements
            in a word.
        tile: elements of one output tile, padded.
    """

    def __init__(self, context: TileContext) -> None:
        opcode = context.graph.opcode
        zeros = np.zeros(context.configs)
        product = _product(context)
        output = product.output if product else _TiledTensor(context, context.tiled_node, "output")
        inputs, results = _read_and_written(context)
        self.steps = self.tiles = output.count.prod(axis=1)
        self.tile = output.elements.prod(axis=1)
        if product is not None:
            self.kind = "product"
            limit = np.inf
            moved = product.moved
            shapes = {tuple(context.dims[tensor]) for tensor in product.operands}
            inputs = [tensor for tensor in inputs if tuple(context.dims[tensor]) not in shapes]
            self.steps = self.tiles * product.steps
            self.kernel_runs = product.kernel.runs() * self.steps
            self.passes = product.passes * self.steps
            self.rows = product.rows * self.steps
            self.summed = np.where(product.steps > 1, self.steps * self.tile, 0.0)
        else:
            moves = np.isin(opcode, [*_FREE, *_MOVES]).all()
            reduces = np.isin(opcode, _REDUCTIONS).any()
            self.kind = "reduction" if reduces else "move" if moves else "elementwise"
            limit = _padded_bytes(context, output.node) if context.main_class == "slice" else np.inf
            moved = self.kernel_runs = self.passes = self.rows = self.summed = zeros
        transferred = sum(min(_padded_bytes(context, tensor), limit) for tensor in inputs)
        transferred += sum(_padded_bytes(context, tensor) for tensor in results)
        half = context.volume[output.node] / 2
        large = [node for node in (*inputs, *results) if context.volume[node] >= half]
        packed = any(context.element_bytes[node] < WORD_BYTES for node in large)
        computed = context.volume[~np.isin(opcode, _FREE) & (context.volume > 1)].sum()
        padding = output.padded / max(1.0, float(context.volume[output.node]))
        self.moved = moved + transferred
        self.runs = output.runs() * self.tiles * len(large)
        self.fused = self.steps * max(0, int((opcode == OPCODE["convolution"]).sum()) - 1)
        self.computed = zeros + computed * padding
        self.packed = zeros + output.padded * packed
        self.copied = zeros + output.padded * (opcode[-1] in _COPIES)


class _TiledTensor:
    """The output of a node, cut into tiles; dimensions are ordered from major to minor.

    Attributes:
        logical: ``(rank,)`` logical dimensions.
        extents: ``(rank,)`` sizes in units of the bounds.
        padded: elements of the entire tensor in hardware tiles.
        tile, elements, count: ``(configs, rank)`` bounds in units and in elements, and number of
            tiles, along each dimension.
    """

    def __init__(self, context: TileContext, node: int, slot: str) -> None:
        rank = max(1, int(context.rank[node]))
        bounds = context.bounds[slot][:, :rank]
        self.node = node
        self.logical: list[int] = context.default_layout[node, :rank][::-1].tolist()
        self.extents = np.maximum(context.physical_extents[node, :rank], 1.0)
        unit = context.physical_unit(rank)
        self.padded = float((self.extents * unit).prod())
        self.tile = np.where(bounds > 0, np.minimum(bounds, self.extents), self.extents)
        self.elements = self.tile * unit
        self.count = np.ceil(self.extents / self.tile)

    def runs(self) -> Floats:
        """Return the number of contiguous runs in one tile, ``(configs,)``."""
        return np.asarray(self.tile.prod(axis=1) / run_length(self.tile, self.extents))


def _padded_bytes(context: TileContext, node: int) -> float:
    """Return the bytes of an output in complete hardware tiles."""
    rank = int(context.rank[node])
    if rank == 0:
        return 512.0  # a scalar is passed as one row of lanes
    elements = np.maximum(context.physical_extents[node, :rank], 1.0) * context.physical_unit(rank)
    return float(elements.prod() * max(1.0, context.element_bytes[node]))


def _read_and_written(context: TileContext) -> tuple[list[int], list[int]]:
    """Return the nodes that the kernel reads, and those that it writes (the root or its parts)."""
    root = context.graph.nodes - 1
    opcode = context.graph.opcode
    operands = context.operands_of(root)
    read = [tensor for tensor in operands if opcode[tensor] == OPCODE["parameter"]]
    called = [tensor for tensor in operands if tensor not in read]
    if context.rank[root] > 0 or not called:
        return read or operands, [root]
    body = called[-1]
    parts = context.operands_of(body) if opcode[body] == OPCODE["tuple"] else [body]
    return read or operands, [tensor for tensor in parts if context.rank[tensor] > 0] or [body]


def _product(context: TileContext) -> _Product | None:
    """Return the convolution whose output and kernel fit the bounds best, if any has bounds."""
    kernel_bounds = context.bounds["kernel"].max(axis=0)
    output_bounds = context.bounds["output"].max(axis=0)
    if not kernel_bounds.any():
        return None
    products = []
    for node in np.flatnonzero(context.graph.opcode == OPCODE["convolution"]).tolist():
        candidates = dict.fromkeys((int(context.slots_of(node)[2]), *context.operands_of(node)))
        if operands := [tensor for tensor in candidates if tensor >= 0]:
            fits = [_fit(context, tensor, kernel_bounds) for tensor in operands]
            at = int(np.argmax(fits))
            input_ = operands[1 - at] if len(operands) == 2 else operands[at]
            fit = _fit(context, node, output_bounds) + fits[at]
            products.append((fit, node, input_, operands[at]))
    return _Product(context, *max(products)[1:]) if products else None


def _fit(context: TileContext, node: int, largest_bounds: Floats) -> float:
    """Return 10 plus the number of bounds that equal their extent; -5 if one exceeds it."""
    extents = context.physical_extents[node]
    if (largest_bounds > extents).any():
        return -5.0
    return 10.0 + float((largest_bounds == extents).sum())


class _Product:
    """A convolution in tiles; arrays are ``(configs,)``.

    Axes of the window are paired if an output position meets a single kernel position, as in a
    dot's batch dimension.

    Attributes:
        operands: nodes of the input and the kernel.
        steps, moved: kernel tiles per output tile, and bytes fetched of both operands in all steps.
        passes, rows: as in `WindowLoop`, per step.
    """

    def __init__(self, context: TileContext, node: int, input_: int, kernel: int) -> None:
        self.operands = (input_, kernel)
        self.output = out = _TiledTensor(context, node, "output")
        self.kernel = weights = _TiledTensor(context, kernel, "kernel")
        self._set_window(context, node, input_)
        feature, kernel_feature = (
            context.convolution_dimension(role)[node]
            for role in ("output_feature", "kernel_output_feature")
        )
        summed = []
        for at, dim in enumerate(weights.logical):
            if dim != kernel_feature and self._kernel_axis.get(dim) not in self._paired:
                summed.append(at)
        columns: list[int] = []
        batches: list[int] = []
        rows: list[int] = []
        for at, dim in enumerate(out.logical):
            is_paired = self._output_axis.get(dim) in self._paired
            (columns if dim == feature else batches if is_paired else rows).append(at)
        self.steps = weights.count[:, summed].prod(axis=1)
        row_tiles = out.count[:, rows].prod(axis=1)
        column_tiles = out.count[:, columns].prod(axis=1)
        first = _padded_bytes(context, input_) * self._halo(rows, summed)
        second = _padded_bytes(context, kernel)
        # the cheaper of two loop orders: an operand that does not change between steps is not
        # fetched again
        again = self.steps > 1
        by_rows = first * np.where(again | (row_tiles > 1), column_tiles, 1.0)
        by_rows += second * np.where(again, row_tiles, 1.0)
        by_columns = first * np.where(again, column_tiles, 1.0)
        by_columns += second * np.where(again | (column_tiles > 1), row_tiles, 1.0)
        self.moved = np.minimum(by_rows, by_columns)
        sizes = np.maximum(context.dims[kernel, weights.logical], 1)
        depth = np.minimum(weights.elements, sizes)[:, summed].prod(axis=1)
        width = out.elements[:, columns].prod(axis=1)
        passes = np.ceil(depth / LANES) * np.ceil(width / LANES)
        self.passes = out.elements[:, batches].prod(axis=1) * passes
        self.rows = self.passes * out.elements[:, rows].prod(axis=1)

    def _set_window(self, context: TileContext, node: int, input_: int) -> None:
        """Set the spatial axis of dimensions of output and kernel, and the window of each axis."""
        excluded = [
            context.convolution_dimension(f"output_{role}")[node] for role in ("batch", "feature")
        ]
        outputs = [dim for dim in range(int(context.rank[node])) if dim not in excluded][:4]
        names = (f"convolution_dim_numbers_{side}_spatial_dims_0" for side in ("kernel", "input"))
        kernel, inputs = (
            context.column(name, 4)[node, : len(outputs)].astype(int).tolist() for name in names
        )
        self._output_axis = {dim: axis for axis, dim in enumerate(outputs)}
        self._kernel_axis = {dim: axis for axis, dim in enumerate(kernel)}
        size, self._stride, self._dilation, self._base = (
            np.maximum(context.column(f"window_{name}_0", MAX_RANK)[node].astype(np.float64), 1.0)
            for name in ("size", "stride", "window_dilation", "base_dilation")
        )
        self._extent = [max(1, context.dims[input_, min(dim, MAX_RANK - 1)]) for dim in inputs]
        self._paired = {
            axis
            for axis, extent in enumerate(self._extent)
            if size[axis] > 1 and (self._base[axis] >= size[axis] or extent == 1)
        }

    def _halo(self, rows: list[int], summed: list[int]) -> Floats:
        """Return the elements of the input that all tiles read, over those that there are."""
        halo = np.ones(len(self.output.tile))
        for at in rows:
            axis = self._output_axis.get(self.output.logical[at])
            if axis is None:
                continue
            inside = [k for k in summed if self._kernel_axis.get(self.kernel.logical[k]) == axis]
            window = self.kernel.tile[:, inside].prod(axis=1)
            reach = (self.output.elements[:, at] - 1) * self._stride[axis]
            reach += (window - 1) * self._dilation[axis] + 1
            span = np.minimum(np.ceil(reach / self._base[axis]) / self._extent[axis], 1.0)
            tiles = self.output.count[:, at] * self.kernel.count[:, inside].prod(axis=1)
            halo *= np.maximum(span * tiles, 1.0)
        return halo


@dataclass(frozen=True)
class Costs:
    """Cycles of TPU v3 (940 MHz) per unit of `WindowLoop`, fitted by `benchmarks.tile_time`.

    Attributes:
        fixed: cycles per kernel.
        fused: cycles per step and additional fused product.
        run, kernel_run, byte: cycles per contiguous run and byte that is moved.
        computed, summed, copied, packed: cycles per register of these elements; ``packed`` is not
            overlapped.
        drain: cycles per register of one output tile; not overlapped.
    """

    fixed: float
    step: float
    fused: float
    tile: float
    run: float
    kernel_run: float
    byte: float
    computed: float
    row: float
    summed: float
    copied: float
    packed: float
    drain: float

    def moving(self, loop: WindowLoop) -> Floats:
        """Return the cycles of copies from and to memory, ``(configs,)``."""
        return np.asarray(
            loop.moved * self.byte + loop.runs * self.run + loop.kernel_runs * self.kernel_run
        )

    def computing(self, loop: WindowLoop) -> Floats:
        """Return the cycles of the vector and matrix units, ``(configs,)``."""
        registers = loop.computed * self.computed + loop.summed * self.summed
        registers += loop.copied * self.copied
        return np.asarray(registers / _REGISTER + loop.rows * self.row)

    def cycles(self, loop: WindowLoop) -> Floats:
        """Return the longer of moving and computing, plus a step of the shorter and fixed costs."""
        moving = self.moving(loop)
        computing = self.computing(loop)
        overlapped = np.maximum(moving, computing) + np.minimum(moving, computing) / loop.steps
        steps = loop.steps * self.step + loop.fused * self.fused + loop.tiles * self.tile
        alone = (loop.tile * self.drain + loop.packed * self.packed) / _REGISTER
        return np.asarray(self.fixed + steps + overlapped + alone)


# fixed, step, fused, tile, run, kernel_run, byte, computed, row, summed, copied, packed, drain
COSTS: Final = {
    "product": Costs(
        750.0, 500.0, 352.0, 34.8, 5.43, 4.5, 0.00236, 0.128, 0.383, 0.998, 0.0, 6.06, 1.81
    ),
    "reduction": Costs(0.0, 180.0, 0.0, 49.7, 14.5, 0.0, 0.00425, 0.306, 0.0, 0.0, 0.0, 4.4, 3.03),
    "move": Costs(90.9, 223.0, 0.0, 54.5, 12.4, 0.0, 0.000174, 15.3, 0.0, 0.0, 2.21, 1.87, 2.15),
    "elementwise": Costs(
        122.0, 184.0, 0.0, 47.6, 6.2, 0.0, 0.00227, 0.452, 0.0, 0.0, 0.0, 9.19, 0.907
    ),
}


@tile_block(
    cause=Cause.ESTIMATE,
    columns={
        "tpu__cycles__log": "estimated cycles, log2",
        "tpu__moving__log": "cycles of copies between memory and vector memory, log2(1 + x)",
        "tpu__computing__log": "cycles of the vector and the matrix unit, log2(1 + x)",
        "tpu__balance__log": "cycles of moving over cycles of computing, log2, -10 to 10",
        "tpu__steps__log": "steps of the loop over windows, log2",
        "tpu__steps__share": "fixed cost of all steps over the estimated cycles",
        "tpu__output_tiles__log": "output tiles, log2",
        "tpu__step_moved__log": "bytes moved in a step, log2(1 + x)",
        "tpu__moved__ratio": "bytes moved over the fewest of any candidate, log2",
        "tpu__runs__log": "contiguous runs of memory that are copied, log2(1 + x)",
        "tpu__step_passes__log": "blocks of weights that a step loads, log2(1 + x)",
        "tpu__rows__log": "rows multiplied by each block of weights, log2(1 + x)",
        "tpu__vector__log": "registers of elementwise work in a step, log2(1 + x)",
        "tpu__summed__log": "registers accumulated in vector memory, log2(1 + x)",
        "tpu__tile__log": "registers of an output tile, log2(1 + x)",
    },
)
def tpu_time(context: TileContext) -> Floats:
    """Estimate of the kernel's cycles on TPU v3 and its parts; logarithms are log2.

    A kernel is a loop over windows (`xlarank.features.tile.tpu_time`) that overlaps moving with
    computing, so it takes the longer of the two plus one step of the shorter. Every step, tile and
    contiguous run has a fixed cost. Constants are fitted to the TPU compiler's estimates per kind
    of kernel. All columns are 0 with a vector tile.
    """
    if context.vectorised:
        return np.zeros((context.configs, len(tpu_time.columns)))
    loop = WindowLoop(context)
    costs = COSTS[loop.kind]
    moving = costs.moving(loop)
    computing = costs.computing(loop)
    cycles = costs.cycles(loop)
    balance = np.clip(np.log2((moving + 1) / (computing + 1)), -10, 10)
    times = [np.log2(cycles), log2p(moving), log2p(computing), balance]
    steps = [np.log2(loop.steps), loop.steps * costs.step / cycles, np.log2(loop.tiles)]
    moved = [log2p(loop.moved / loop.steps), np.log2(loop.moved / loop.moved.min())]
    moved.append(log2p(loop.runs + loop.kernel_runs))
    products = [loop.passes / loop.steps, loop.rows / np.maximum(loop.passes, 1.0)]
    vectors = [loop.computed / _REGISTER / loop.steps, loop.summed / _REGISTER]
    sizes = [*products, *vectors, loop.tile / _REGISTER]
    return np.stack([*times, *steps, *moved, *map(log2p, sizes)], axis=1)
