"""Quantities of a tile graph: the dimensions and unit of its bounds, its kernel families.

Bounds in Google's TPU files are in physical order (major to minor), the two minor-most in hardware
tiles of 8 x 128: `copy` of ``[32, 5, 5, 256]`` with layout {3,0,2,1} has bounds up to ``(5, 5, 4,
2)``. Other bounds count elements of logical dimensions. Which of the two applies is inferred from
the extents, as bounds never exceed them. A bound of 0 is the whole dimension.
"""

from __future__ import annotations

from itertools import combinations, product
from typing import Final

import numpy as np

from xlarank.data.graph import TileGraph
from xlarank.data.schema import MAX_RANK, OPCODE, OPCODES, TILE_SLOTS
from xlarank.features.program.program_context import OPCODE_CLASSES, ProgramContext
from xlarank.features.program.slots import DOT_ROLES, dot_split, slot_roles, slot_tensors
from xlarank.features.program.tensors import LANES, SUBLANES, Floats, Ints

#: Classes of the main node, the most expensive one first.
_WORK_ORDER: Final = ("convolution", "dot", "reduce", "transpose", "slice", "reshape")
_BATCH, _ROWS, _CONTRACTED = range(len(DOT_ROLES))


class TileContext(ProgramContext):
    """Quantities of a kernel that tile blocks share, for its *distinct* configurations.

    Attributes:
        bounds: slot -> ``(configs, 6)`` bounds of the file.
        vectorised: whether input bounds describe a vector tile inside the output tile; they are 0
            in TPU files.
        main: most expensive node: by class (convolution first), then by bytes; the last one wins
            ties.
        main_operands: operands of the main node, larger ones first.
        kernel_tensor: node of a convolution's kernel or a dot's right operand; -1 for other
            operations.
        physical_extents: ``(nodes, 6)`` outputs major to minor, the two minor-most dimensions in
            hardware tiles.
        tiled_node, element_size: node whose output the output bounds divide, and bytes of one of
            its elements.
        physical: whether the output bounds count hardware tiles in physical order.
        depth: elements summed over for one output element; 0 for none.
        extents: slot -> ``(6,)`` sizes that the bounds divide, in the bounds' unit; 0 past the
            rank. Kernel bounds divide the kernel tensor on TPU and the contracted dimensions
            elsewhere.
        output_rank: number of dimensions that the output bounds divide.
        unit: ``(6,)`` elements per unit of the output bounds, by dimension.
        tiles: slot -> ``(configs, 6)`` bounds with 0 replaced by the extent; 1 past the rank.
        step: ``(configs,)`` volume of the kernel tile; 1 if nothing is summed over.
    """

    graph: TileGraph

    def __init__(self, graph: TileGraph) -> None:
        super().__init__(graph)
        self.configs = len(graph.first)
        self.bounds: dict[str, Floats] = {
            slot: graph.bounds(slot)[graph.first].astype(np.float64) for slot in TILE_SLOTS
        }
        self.vectorised = bool(self.bounds["input"].any())
        classes = map(OPCODE_CLASSES.index, _WORK_ORDER)
        members = (np.flatnonzero(self.opcode_class == number) for number in classes)
        nodes = next((nodes for nodes in members if len(nodes)), np.arange(graph.nodes))
        self.main = int(nodes[len(nodes) - 1 - np.argmax(self.bytes[nodes][::-1])])
        self.main_class = OPCODE_CLASSES[int(self.opcode_class[self.main])]
        operands = np.unique(graph.edges[graph.edges[:, 0] == self.main, 1])
        self.main_operands: Ints = operands[np.argsort(-self.bytes[operands], kind="stable")]
        has_kernel = self.main_class in ("convolution", "dot")
        self.kernel_tensor = int(self.slots_of(self.main)[2]) if has_kernel else -1
        self.physical_extents = self._physical_extents()
        self.tiled_node = self._tiled_node()
        self.element_size = max(1.0, float(self.element_bytes[self.tiled_node]))
        largest = self.bounds["output"].max(axis=0)
        self.physical = bool((largest <= self.physical_extents[self.tiled_node]).all())
        output = self.dims[self.tiled_node].astype(np.float64)
        kernel = self._contracted()
        self.depth = float(np.prod(kernel[kernel > 0])) if kernel.any() else 0.0
        if self.physical:
            output = self.physical_extents[self.tiled_node]
            kernel = np.zeros(MAX_RANK)
            if self.kernel_tensor >= 0:
                kernel = self.physical_extents[self.kernel_tensor]
        self.extents: dict[str, Floats] = {"output": output, "kernel": kernel, "input": output}
        self.output_rank = int((output > 0).sum())
        self.unit = np.ones(MAX_RANK)
        if self.physical:
            self.unit[: self.output_rank] = self.physical_unit(self.output_rank)
        self.tiles: dict[str, Floats] = {}
        for slot, bound in self.bounds.items():
            extents = self.extents[slot]
            self.tiles[slot] = np.where(bound > 0, bound, np.where(extents > 0, extents, 1.0))
        self.step = self.tiles["kernel"].prod(axis=1) if self.depth else np.ones(self.configs)

    def slots_of(self, node: int) -> Ints:
        """Return the `slot_tensors` of a node, ``(3,)``."""
        return np.asarray(slot_tensors(self, np.array([node]))[0])

    def operands_of(self, node: int) -> list[int]:
        """Return the operands of a node in the order of the edges."""
        edges = self.graph.edges
        return [int(operand) for operand in edges[edges[:, 0] == node, 1]]

    def physical_unit(self, rank: int) -> Floats:
        """Return elements per unit of the `physical_extents` of a tensor, ``(rank,)``."""
        unit = np.ones(rank)
        unit[-2:-1], unit[-1:] = SUBLANES, LANES
        return unit

    def _physical_extents(self) -> Floats:
        minor_first = np.maximum(self.default_layout, 0)
        sizes = np.take_along_axis(self.dims, minor_first, axis=1).astype(np.float64)
        sizes[:, 0] = np.ceil(sizes[:, 0] / LANES)
        sizes[:, 1] = np.ceil(sizes[:, 1] / SUBLANES)
        position = self.rank[:, None] - 1 - np.arange(MAX_RANK)
        major_first = np.take_along_axis(sizes, np.maximum(position, 0), axis=1)
        return np.where(position >= 0, major_first, 0.0)

    def _tiled_node(self) -> int:
        """Return the node whose output the output bounds divide.

        No bound may exceed its extents. With a vector tile, it is the last such root, else the main
        node. Otherwise it is the tensor with the most extents equal to the largest bounds; roots
        and larger tensors win ties.
        """
        roots = np.flatnonzero((self.column("is_root") > 0) & (self.rank > 0))
        tensors = np.flatnonzero(self.rank > 0)
        by_size = tensors[np.argsort(-self.bytes[tensors], kind="stable")]
        candidates = np.array([*roots[::-1], self.main, *by_size])
        largest_bounds = self.bounds["output"].max(axis=0)
        if self.vectorised:
            results = candidates[: len(roots) + 1]
            admitted = results[~(largest_bounds > self.dims[results]).any(axis=1)]
            if len(admitted):
                return int(admitted[0])
        bounded_rank = np.max(np.flatnonzero(largest_bounds > 0), initial=-1) + 1
        rank = self.rank[candidates][:, None]
        inside = np.arange(MAX_RANK) < rank
        scores: list[Floats] = []
        for extents in (self.physical_extents[candidates], self.dims[candidates]):
            fits = (rank[:, 0] >= bounded_rank) & ~(inside & (largest_bounds > extents)).any(axis=1)
            # the bounds of real searches reach the extents
            score = (inside & (largest_bounds == extents)).sum(axis=1)
            score += rank[:, 0] == bounded_rank
            scores.append(np.where(fits, score, -1.0))
        best = np.maximum(*scores)
        return int(candidates[best.argmax()]) if best.max() >= 0 else self.main

    def _contracted(self) -> Floats:
        """Return the sizes of the dimensions that the main node sums over, ``(6,)``."""
        sizes = np.zeros(MAX_RANK)
        if self.main_class == "convolution" and self.kernel_tensor >= 0:
            features = self.convolution_dimension("kernel_output_feature")[self.main]
            kernel = self.dims[self.kernel_tensor, : self.rank[self.kernel_tensor]]
            inner = np.delete(kernel, features)
            sizes[: len(inner)] = inner
        elif self.main_class == "dot" and len(self.main_operands) > 0:
            sizes[0] = dot_split(self, self.slots_of(self.main)[None])[2, 0]
        elif self.graph.opcode[self.main] == OPCODE["reduce-window"]:
            window = self.column("window_size_0", MAX_RANK)[self.main]
            sizes[: int((window > 1).sum())] = window[window > 1]
        elif self.main_class == "reduce" and len(self.main_operands) > 0:
            sizes[0] = self.volume[self.main_operands[0]] / max(1.0, self.volume[self.main])
        return sizes


def run_length(tile: Floats, extents: Floats) -> Floats:
    """Return the units in a contiguous run of tiles ``(configs, rank)``, ``(configs,)``."""
    run = np.ones(len(tile))
    uncut = np.ones(len(tile), bool)
    for at in reversed(range(len(extents))):
        run = np.where(uncut, run * tile[:, at], run)
        uncut &= tile[:, at] >= extents[at]
    return run


def kernel_families(context: TileContext) -> tuple[str, ...]:
    """Return the possible families of the kernel, sorted; usually one.

    Cross-validation holds out kernels by family. A family is a loop nest: sizes, names and
    operations around the main one are ignored. The file does not say which dimensions a dot
    contracts or a reduction sums along, so a kernel with a square operand may have several.

    Convolutions are depthwise (several feature groups), strided, dilated (input) or pointwise (a
    window of 1); dots are batched or transpose an operand (the left one from batch, rows,
    contracted, the right one from batch, contracted, columns); reductions sum along the minor
    dimension or not; windows, sorts and data movement are split by opcode; other classes of the
    main node (elementwise, broadcast, other) are one family each.

    >>> from xlarank.data.graph import read_graph
    >>> from xlarank.data.collection import SAMPLE
    >>> def families(name):
    ...     return kernel_families(TileContext(read_graph(SAMPLE / "npz/tile/cpu" / name)))
    >>> [families(f"valid/{name}.npz") for name in ("conv1x1_s2__a", "bmm_tb__b", "expsum__b")]
    [('convolution strided pointwise',), ('dot batched right-transposed',), ('reduce minor',)]
    >>> families("train/matmul__a.npz")  # 256 x 256 times 256 x 384
    ('dot', 'dot left-transposed')
    """
    main_class = context.main_class
    opcode = OPCODES[int(context.graph.opcode[context.main])]
    if main_class == "convolution":
        names = ("window_stride_0", "window_base_dilation_0", "window_size_0")
        windows = (context.column(name, MAX_RANK) for name in names)
        stride, dilation, size = (window[context.main].max() for window in windows)
        depthwise = context.column("feature_group_count")[context.main] > 1
        words = {"depthwise": depthwise, "strided": stride > 1, "dilated": dilation > 1}
        words["pointwise"] = size == 1
        return (" ".join([main_class, *(word for word, applies in words.items() if applies)]),)
    if main_class == "dot":
        return _dot_families(context)
    if opcode == "reduce":
        return _reduction_families(context)
    return (opcode if main_class in ("reduce", "transpose", "reshape", "slice") else main_class,)


def _dot_families(context: TileContext) -> tuple[str, ...]:
    """Return the families of a dot; an operand with equal sizes may be transposed or not."""
    tensors = context.slots_of(context.main)[None]
    roles = slot_roles(context, tensors)[0]
    words = [["dot batched" if (roles[0] == _BATCH).any() else "dot"]]
    left = (1, " left-transposed", _ROWS, _CONTRACTED)
    right = (2, " right-transposed", _CONTRACTED, _ROWS)
    for slot, word, *order in (left, right):
        first, second = (np.flatnonzero(roles[slot] == role) for role in order)
        sizes = context.dims[tensors[0, slot]]
        if len(first) and np.array_equal(np.sort(sizes[first]), np.sort(sizes[second])):
            words.append(["", word])
        else:
            words.append([word if len(first) and len(second) and first[0] > second[0] else ""])
    return tuple(sorted(map("".join, product(*words))))


def _reduction_families(context: TileContext) -> tuple[str, ...]:
    """Return the families of a reduction, by the dimensions whose removal gives the output."""
    if len(context.main_operands) == 0:
        return ("reduce",)
    operand = context.main_operands[0]
    output = context.dims[context.main, : context.rank[context.main]]
    families = {
        "reduce" if context.default_layout[operand, 0] in remaining else "reduce minor"
        for remaining in combinations(range(context.rank[operand]), len(output))
        if (context.dims[operand, list(remaining)] == output).all()
    }
    return tuple(sorted(families or {"reduce"}))
