"""Opcodes by class, and what a fusing compiler never stores: by hand, and against plain loops."""

from __future__ import annotations

import numpy as np

from tests.features.helpers import SAMPLE, graph_of, load, tile_file
from tests.features.oracle_program import CLASS_OF, CLASSES, Program, fused_away
from tests.features.programs import fitting_graph
from tests.graphs import Arrays, Node, tile_row
from xlarank.data.schema import OPCODE, OPCODES
from xlarank.features.program.opcode_classes import OPCODE_CLASSES, opcode_class
from xlarank.features.program.program_context import ProgramContext

ROOT = {"is_root": 1.0}


def test_classes_of_opcodes() -> None:
    """The slow reference has its list of the common ones; what no class names is other."""
    classes = opcode_class(np.arange(len(OPCODES)))
    names = {opcode: OPCODE_CLASSES[classes[OPCODE[opcode]]] for opcode in OPCODES if opcode in OPCODE}
    assert OPCODE_CLASSES == CLASSES
    assert {opcode: names[opcode] for opcode in CLASS_OF} == CLASS_OF
    others = ("unknown", "all-gather", "send", "recv-done", "infeed", "trace", "partition-id")
    assert {names[opcode] for opcode in others} == {"other"}


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


def compare(arrays: Arrays) -> int:
    program = Program(arrays)
    found = ProgramContext(graph_of(arrays)).fused.tolist()
    assert found == [fused_away(program, node) for node in program.nodes]
    return sum(found)


def test_fusion_as_the_slow_reference_has_it() -> None:
    assert sum(compare(fitting_graph(seed, steps=14)) for seed in range(40)) > 20
    some = sorted(SAMPLE.glob("layout/cpu/*/train/*.npz"))[::4]
    assert min(compare(load(path)) for path in some if "gan" not in path.name) > 0
