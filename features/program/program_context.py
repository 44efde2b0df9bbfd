"""Quantities of the nodes of a program graph, and classes of opcodes."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from xlarank.data.graph import Graph
from xlarank.data.schema import ELEMENT_BYTES, MAX_RANK, NODE_COLUMN, OPCODE, OPCODES
from xlarank.data.structure import node_levels, tensor_ranks
from xlarank.features.program.tensors import Floats, Ints

if TYPE_CHECKING:  # slow to import; not all columns need it
    from scipy import sparse

T = TypeVar("T")
_CLASSES: Final[dict[str, str]] = {
    **{name: name for name in ("convolution", "dot")},
    "reshape": "reshape bitcast bitcast-convert dynamic-reshape",
    "transpose": "transpose copy reverse",
    "reduce": "reduce reduce-window select-and-scatter sort batch-norm-grad batch-norm-inference "
    "batch-norm-training",
    "broadcast": "broadcast iota constant rng rng-bit-generator rng-get-and-update-state",
    "slice": "slice dynamic-slice dynamic-update-slice concatenate pad gather scatter",
    "elementwise": "abs add atan2 ceil clamp count-leading-zeros compare complex convert cosine "
    "divide exponential exponential-minus-one floor imag is-finite log log-plus-one and not "
    "or xor maximum minimum multiply negate popcnt power real reduce-precision remainder "
    "round-nearest-afz rsqrt select shift-left shift-right-arithmetic shift-right-logical "
    "sign sine sqrt subtract tanh cbrt logistic round-nearest-even stochastic-convert tan map",
}
#: Class names in column order; "other" has all else: parameters, tuples, fusions, control flow,
#: collectives, ...
OPCODE_CLASSES: Final[tuple[str, ...]] = (*_CLASSES, "other")
#: Classes of configurable nodes; the first three classes are in TPU files.
COARSE_CLASSES: Final = ("convolution", "dot", "reshape", "other")
#: Index into `OPCODE_CLASSES` of each opcode.
CLASS_OF_OPCODE: Final = np.full(len(OPCODES), len(_CLASSES))
for _number, _names in enumerate(_CLASSES.values()):
    CLASS_OF_OPCODE[[OPCODE[name] for name in _names.split()]] = _number
#: Opcodes, by what matters to a fusing compiler.
_BROADCASTS: Final = "broadcast iota rng rng-bit-generator rng-get-and-update-state".split()
_EXPENSIVE: Final = (
    "atan2 cosine exponential exponential-minus-one log log-plus-one logistic power rsqrt sine "
    "sqrt tan tanh cbrt divide remainder"
).split()
#: Operations that run as loops over elements.
_LOOPS: Final = ("reshape", "transpose", "slice", "elementwise")
_FUSIBLE: Final = [*_BROADCASTS, *" ".join(_CLASSES[name] for name in _LOOPS).split()]


class ProgramContext:
    """Per-node quantities of one graph, each computed at most once.

    Attributes:
        rank, dims: ``(nodes,)`` and ``(nodes, 6)`` rank and shape of each output, 0 past the rank.
        element_type: ``(nodes,)`` index into `xlarank.data.schema.ELEMENT_BYTES`.
        element_bytes, volume: ``(nodes,)`` bytes of one element, and elements of each output.
        bytes: ``(nodes,)`` bytes of each output, without padding; 0 for tuples.
        opcode_class: ``(nodes,)`` index into `OPCODE_CLASSES`.
        columns: columns that earlier blocks have computed.
    """

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.rank = tensor_ranks(graph.node_feat)
        self.dims: Ints = self.column("shape_dimensions_0", MAX_RANK).astype(np.int64)
        first_type = f"shape_element_type_is_{next(iter(ELEMENT_BYTES))}"
        self.element_type: Ints = self.column(first_type, len(ELEMENT_BYTES)).argmax(axis=1)
        self.element_bytes: Floats = np.array([*ELEMENT_BYTES.values()], np.float64)[
            self.element_type
        ]
        sizes = np.where(np.arange(MAX_RANK) < self.rank[:, None], self.dims, 1)
        self.volume: Floats = sizes.astype(np.float64).prod(axis=1)
        self.bytes = self.volume * self.element_bytes
        self.opcode_class: Ints = CLASS_OF_OPCODE[graph.opcode]
        self.columns: dict[str, NDArray[np.float32]] = {}
        self._shared: dict[Callable[[Self], Any], Any] = {}

    def shared(self, make: Callable[[Self], T]) -> T:
        """Return ``make(self)``, computed once for all blocks."""
        if make not in self._shared:
            self._shared[make] = make(self)
        return cast(T, self._shared[make])

    def column(self, name: str, count: int = 1) -> NDArray[np.float32]:
        """Return ``count`` node columns from ``name`` on: ``(nodes,)`` or ``(nodes, count)``."""
        at = NODE_COLUMN[name]
        return (
            self.graph.node_feat[:, at] if count == 1 else self.graph.node_feat[:, at : at + count]
        )

    def convolution_dimension(self, role: str) -> Ints:
        """Return the dimension in a role such as ``input_batch``, ``(nodes,)``, of convolutions."""
        return self.column(f"convolution_dim_numbers_{role}_dim").astype(np.int64)

    def describe(self, node: int) -> tuple[str, str]:
        """Return opcode and output shape of a node, such as ``dot`` and ``f32[8,32]``."""
        element = [*ELEMENT_BYTES][self.element_type[node]]
        sizes = ",".join(map(str, self.dims[node, : self.rank[node]]))
        return OPCODES[int(self.graph.opcode[node])], f"{element}[{sizes}]"

    @cached_property
    def default_layout(self) -> Ints:
        """``(nodes, 6)`` the compiler's default, minor-to-major, -1 past the rank.

        Row-major if the entries are not a permutation. The file pads with 0, which is also a
        dimension.
        """
        entries = self.column("layout_minor_to_major_0", MAX_RANK).astype(np.int64)
        inside = np.arange(MAX_RANK) < self.rank[:, None]
        layout = np.where(inside, entries, -1)
        row_major = np.where(inside, self.rank[:, None] - 1 - np.arange(MAX_RANK), -1)
        valid = (np.sort(layout, axis=1) == np.sort(row_major, axis=1)).all(axis=1, keepdims=True)
        return np.where(valid, layout, row_major)

    @cached_property
    def level(self) -> Ints:
        """``(nodes,)`` edges on the longest path down to a node without operands."""
        return node_levels(self.graph.edges, self.graph.nodes)

    @cached_property
    def operands(self) -> sparse.csr_array:
        """Sparse ``(nodes, nodes)`` float64: 1 at (consumer, operand)."""
        from scipy import sparse

        nodes = self.graph.nodes
        edges = self.graph.edges
        matrix = sparse.csr_array((np.ones(len(edges)), tuple(edges.T)), shape=(nodes, nodes))
        matrix.sum_duplicates()
        matrix.data[:] = 1.0  # also for an operand used twice
        return matrix

    @cached_property
    def consumers(self) -> sparse.csr_array:
        """Sparse ``(nodes, nodes)`` float64: 1 at (operand, consumer)."""
        consumers: sparse.csr_array = self.operands.T.tocsr()
        return consumers

    @cached_property
    def neighbours(self) -> sparse.csr_array:
        """Sparse ``(nodes, nodes)`` float64: 1 if two nodes share an edge, either way."""
        matrix: sparse.csr_array = self.operands + self.consumers
        matrix.data[:] = 1.0
        return matrix

    @cached_property
    def fused(self) -> NDArray[np.bool_]:
        """``(nodes,)`` whether a fusing compiler would not store the output.

        The operation has consumers and is no root, and it and they all run as loops over elements.
        With several consumers, which recompute it, it must be cheap and read at most one operand of
        at least half the output's size. An expensive operation is not fused into a broadcast.
        """
        fusible, expensive, broadcast = (
            np.isin(self.graph.opcode, [OPCODE[name] for name in names])
            for names in (_FUSIBLE, _EXPENSIVE, _BROADCASTS)
        )
        fan_out = np.diff(self.consumers.indptr)
        edges = self.operands.tocoo()
        size = self.volume[edges.col]
        large = (size > 1) & (size >= self.volume[edges.row] / 2)
        large_operands = np.bincount(edges.row[large], minlength=self.graph.nodes)
        fused = fusible & (self.column("is_root") == 0) & (fan_out > 0)
        fused &= self.consumers @ fusible.astype(np.float64) == fan_out
        fused &= (fan_out == 1) | (~expensive & (large_operands <= 1))
        return np.asarray(
            fused & ~(expensive & (self.consumers @ broadcast.astype(np.float64) > 0))
        )
