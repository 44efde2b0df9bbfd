"""Which operations a program is made of."""

from __future__ import annotations

import numpy as np

from data.schema import OPCODES, RETIRED_OPCODES
from features.block import Block, Scope
from features.program import ProgramContext
from features.tensors import Floats

_COUNTED = [number for number in range(len(OPCODES)) if number not in RETIRED_OPCODES]


class OpcodeHistogram(Block):
    """Share of nodes with each opcode: count(opcode) / nodes; no unit, sums to 1."""

    kinds = ("layout", "tile")
    scope = Scope.GRAPH
    columns = {
        f"opcodes__{OPCODES[number].replace('-', '_')}__share": f"share of nodes that are {OPCODES[number]}"
        for number in _COUNTED
    }

    def compute(self, context: ProgramContext) -> Floats:
        counts = np.bincount(context.graph.opcode, minlength=len(OPCODES))[_COUNTED]
        return counts / context.graph.nodes
