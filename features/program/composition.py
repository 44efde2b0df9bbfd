"""Which operations and element types a program is made of."""

from __future__ import annotations

import numpy as np

from xlarank.data.schema import ELEMENT_BYTES, OPCODES, RETIRED_OPCODES
from xlarank.features.block import Block, Scope, Tier
from xlarank.features.program.context import ProgramContext
from xlarank.features.program.tensors import Floats

_COUNTED = [number for number in range(len(OPCODES)) if number not in RETIRED_OPCODES]


def _columns(how: str, meaning: str) -> dict[str, str]:
    names = {number: OPCODES[number] for number in _COUNTED}
    return {f"opcodes__{name.replace('-', '_')}{how}": meaning.format(name) for name in names.values()}


class OpcodeHistogram(Block):
    """Share of nodes with each opcode: count(opcode) / nodes; no unit, sums to 1."""

    kinds = ("layout", "tile")
    scope = Scope.GRAPH
    columns = _columns("__share", "share of nodes that are {}")

    def compute(self, context: ProgramContext) -> Floats:
        counts = np.bincount(context.graph.opcode, minlength=len(OPCODES))[_COUNTED]
        return counts / context.graph.nodes


class OpcodeCounts(Block):
    """Number of nodes with each opcode, log2(1 + count)."""

    kinds = ("layout", "tile")
    scope = Scope.GRAPH
    tier = Tier.FULL
    columns = _columns("__log", "number of {} nodes, log2(1 + x)")

    def compute(self, context: ProgramContext) -> Floats:
        counts = np.bincount(context.graph.opcode, minlength=len(OPCODES))[_COUNTED]
        logs: Floats = np.log2(1.0 + counts)
        return logs


class OpcodeBytes(Block):
    """Share of all output bytes that each opcode writes; no unit, sums to 1."""

    kinds = ("layout", "tile")
    scope = Scope.GRAPH
    tier = Tier.FULL
    columns = _columns("_bytes__share", "share of the bytes written by {} nodes")

    def compute(self, context: ProgramContext) -> Floats:
        written = np.bincount(context.graph.opcode, context.bytes, minlength=len(OPCODES))[_COUNTED]
        return np.divide(written, max(context.bytes.sum(), 1.0))


class ElementTypes(Block):
    """Shares of nodes and of output bytes by element type; each sums to 1 (bytes to 0 without any)."""

    kinds = ("layout", "tile")
    scope = Scope.GRAPH
    columns = {
        **{f"elements__{name}__share": f"share of nodes with elements of type {name}" for name in ELEMENT_BYTES},
        **{f"elements__{name}_bytes__share": f"share of the bytes in type {name}" for name in ELEMENT_BYTES},
    }

    def compute(self, context: ProgramContext) -> Floats:
        nodes = np.bincount(context.element_type, minlength=len(ELEMENT_BYTES))
        written = np.bincount(context.element_type, context.bytes, minlength=len(ELEMENT_BYTES))
        return np.concatenate([nodes / context.graph.nodes, written / max(context.bytes.sum(), 1.0)])
