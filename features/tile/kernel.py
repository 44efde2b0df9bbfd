"""What the kernel computes."""

from __future__ import annotations

import numpy as np

from xlarank.data.schema import MAX_RANK, OPCODE
from xlarank.features.block import Block, Scope
from xlarank.features.program.opcode_classes import OPCODE_CLASSES
from xlarank.features.program.tensors import Floats, log2p
from xlarank.features.tile.tile_context import TileContext


class Kernel(Block):
    """Class, sizes and work of the kernel's main node; sizes as log2(1 + x)."""

    kinds = ("tile",)
    scope = Scope.GRAPH
    columns = {
        **{f"kernel__is_{name}__flag": f"1 where the main node is {name}" for name in OPCODE_CLASSES},
        **{
            f"kernel__extent_{i}__log": f"extent of dimension {i} that the output bounds divide"
            for i in range(MAX_RANK)
        },
        **{f"kernel__extent_last{i}__log": f"extent of the dimension {i} before the last" for i in range(3)},
        "kernel__contracted__log": "elements summed over for one output element",
        "kernel__work__log": "multiply-adds",
        "kernel__read_bytes__log": "bytes of the parameters",
        "kernel__intensity__log": "multiply-adds over bytes of parameters and the output",
        "kernel__parameters__log": "number of parameters",
        "kernel__fan_in__log": "number of operands of the main node",
        "kernel__largest_operand__log": "bytes of the main node's largest operand",
        "kernel__smallest_operand__log": "bytes of the main node's smallest operand",
        "kernel__reduces_minor__flag": "1 where a reduction sums along the minor-most dimension of its operand",
        "kernel__physical__flag": "1 where bounds count hardware tiles in physical order",
    }

    def compute(self, context: TileContext) -> Floats:
        main = context.main
        extents = context.extents["output"]
        rank = int((extents > 0).sum())
        inner = context.contracted[context.contracted > 0]
        operands = context.bytes[context.main_operands]
        parameters = context.graph.opcode == OPCODE["parameter"]
        reads = context.bytes[parameters].sum()
        moved = reads + context.bytes[main]
        last = [extents[rank - 1 - i] if rank > i else 0.0 for i in range(3)]
        values = [
            *(float(context.opcode_class[main] == number) for number in range(len(OPCODE_CLASSES))),
            *log2p(extents),
            *log2p(np.array(last)),
            *log2p(
                np.array(
                    [
                        np.prod(inner) if len(inner) else 0.0,
                        context.main_work,
                        reads,
                        context.main_work / max(1.0, moved),
                        float(parameters.sum()),
                        float(len(operands)),
                        operands.max(initial=0.0),
                        operands.min(initial=np.inf) if len(operands) else 0.0,
                    ]
                )
            ),
            float(context.reduces_minor),
            float(context.physical),
        ]
        return np.array(values)
