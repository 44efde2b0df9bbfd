"""Opcodes by class, and what a fusing compiler never stores."""

from __future__ import annotations

import numpy as np

from tests.features.helpers import graph_of, tile_file
from tests.graphs import Node, tile_row
from xlarank.data.schema import OPCODE
from xlarank.features.program.opcode_classes import OPCODE_CLASSES, opcode_class
from xlarank.features.program.program_context import ProgramContext

ROOT = {"is_root": 1.0}


def test_classes_of_opcodes() -> None:
    """What no class names is other."""
    for name, opcodes in {
        "convolution": "convolution",
        "dot": "dot",
        "reshape": "reshape bitcast",
        "transpose": "transpose copy reverse",
        "reduce": "reduce reduce-window select-and-scatter sort",
        "broadcast": "broadcast iota constant rng-bit-generator",
        "slice": "slice dynamic-slice dynamic-update-slice concatenate pad gather scatter",
        "elementwise": "add divide tanh exponential select compare convert power clamp logistic shift-left",
        "other": "parameter tuple fusion all-reduce call while collective-permute all-gather send infeed",
    }.items():
        classes = opcode_class(np.array([OPCODE[opcode] for opcode in opcodes.split()]))
        assert {OPCODE_CLASSES[each] for each in classes} == {name}


def fused(*nodes: Node) -> list[bool]:
    return ProgramContext(graph_of(tile_file(nodes, [tile_row()]))).fused.tolist()


def chain(first: Node, *opcodes: str) -> list[Node]:
    """Operations of one shape, each of the node before; the last is the root."""
    nodes = [first]
    for number, opcode in enumerate(opcodes):
        columns = ROOT if number == len(opcodes) - 1 else {}
        nodes.append(Node(opcode, first.dims, operands=(number,), columns=columns))
    return nodes


def test_fusion_by_hand() -> None:
    square = Node("parameter", (64, 64))
    assert fused(*chain(square, "add", "tanh", "negate")) == [False, True, True, False], "a chain is one loop"
    dot = chain(square, "add", "dot", "negate", "add")
    assert fused(*dot) == [False, False, False, True, False], "what is no loop needs its operands stored"
    for opcode, operands, expected in (
        ("negate", (0,), True),
        ("tanh", (0,), False),
        ("add", (0, 1), False),
        ("multiply", (0, 2), True),
    ):
        readers = [Node(reader, (8, 8), operands=(3,), columns=ROOT) for reader in ("negate", "abs")]
        nodes = [
            *[Node("parameter", (8, 8))] * 2,
            Node("parameter", (8,)),
            Node(opcode, (8, 8), operands),
            *readers,
        ]
        assert fused(*nodes)[3] is expected, f"two consumers compute {opcode} twice"
    for opcode, expected in (("negate", True), ("exponential", False)):
        small = [Node("parameter", (8,)), Node(opcode, (8,), (0,)), Node("broadcast", (64, 8), (1,))]
        assert fused(*small, Node("negate", (64, 8), (2,), columns=ROOT))[1] is expected, "repeated by a broadcast"
