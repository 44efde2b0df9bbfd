"""What a fusing compiler never stores: by hand, and against plain loops."""

from __future__ import annotations

import pytest

from tests.features.helpers import SAMPLE, graph_of, load, tile_file
from tests.features.oracle_fusion import fused_away
from tests.features.oracle_program import Program
from tests.features.programs import fitting_graph
from tests.graphs import Arrays, Node, tile_row
from xlarank.features.program.context import ProgramContext

ROOT = {"is_root": 1.0}


def fused(nodes: list[Node]) -> list[bool]:
    return ProgramContext(graph_of(tile_file(nodes, [tile_row()]))).fused.tolist()


def test_a_chain_is_one_loop() -> None:
    nodes = [
        Node("parameter", (64, 128)),
        Node("add", (64, 128), operands=(0,)),
        Node("tanh", (64, 128), operands=(1,)),
        Node("negate", (64, 128), operands=(2,), columns=ROOT),
    ]
    assert fused(nodes) == [False, True, True, False]


def test_what_is_no_loop_needs_its_operands_stored() -> None:
    nodes = [
        Node("parameter", (64, 64)),
        Node("add", (64, 64), operands=(0,)),
        Node("dot", (64, 64), operands=(1, 0)),
        Node("negate", (64, 64), operands=(2,)),
        Node("add", (64, 64), operands=(3,), columns=ROOT),
    ]
    assert fused(nodes) == [False, False, False, True, False]


@pytest.mark.parametrize(
    ("opcode", "operands", "expected"),
    [("negate", (0,), True), ("tanh", (0,), False), ("add", (0, 1), False), ("multiply", (0, 2), True)],
)
def test_two_consumers_compute_it_twice(opcode: str, operands: tuple[int, ...], expected: bool) -> None:
    nodes = [
        Node("parameter", (8, 8)),
        Node("parameter", (8, 8)),
        Node("parameter", (8,)),
        Node(opcode, (8, 8), operands=operands),
        Node("negate", (8, 8), operands=(3,), columns=ROOT),
        Node("abs", (8, 8), operands=(3,), columns=ROOT),
    ]
    assert fused(nodes)[3] is expected


def test_a_broadcast_does_not_repeat_what_is_expensive() -> None:
    def of(opcode: str) -> bool:
        return fused(
            [
                Node("parameter", (8,)),
                Node(opcode, (8,), operands=(0,)),
                Node("broadcast", (64, 8), operands=(1,)),
                Node("negate", (64, 8), operands=(2,), columns=ROOT),
            ]
        )[1]

    assert of("negate")
    assert not of("exponential")


def compare(arrays: Arrays) -> int:
    program = Program(arrays)
    found = ProgramContext(graph_of(arrays)).fused.tolist()
    assert found == [fused_away(program, node) for node in program.nodes]
    return sum(found)


def test_programs_that_make_sense() -> None:
    assert sum(compare(fitting_graph(seed, steps=14)) for seed in range(60)) > 20


def test_the_sample() -> None:
    some = sorted(SAMPLE.glob("layout/cpu/*/train/*.npz"))[::4]
    assert min(compare(load(path)) for path in some if "gan" not in path.name) > 0
