"""Marks that tell which node of a graph a compiled operation stands for."""

from xlarank.data.hlo.compiler.cycles import read_estimate
from xlarank.data.hlo.compiler.node_marks import marked, unmarked
from xlarank.data.hlo.messages import HloModuleProto


def test_every_instruction_is_marked_with_its_node_across_computations():
    module = HloModuleProto()
    for names in (["add"], ["", "jit(f)/dot_general"]):
        computation = module.computations.add()
        for name in names:
            computation.instructions.add().metadata.op_name = name
    found = marked(module)
    names = [one.metadata.op_name for part in found.computations for one in part.instructions]
    assert [unmarked(name) for name in names] == [("add", 0), ("", 1), ("jit(f)/dot_general", 2)]
    assert module.computations[0].instructions[0].metadata.op_name == "add"


def test_of_merged_origins_the_first_counts():
    assert unmarked("a/xlarank.node7;b/xlarank.node12") == ("a;b", 7)


def test_an_operation_knows_its_node_and_keeps_its_plain_name():
    text = (
        "ENTRY %main (a: f32[8]) -> f32[8] {\n"
        '  %one = f32[8]{0} fusion(%a), metadata={op_name="jit(f)/mul/xlarank.node5"}, '
        'backend_config={"estimated_cycles":"10"}\n'
        '  %two = f32[8]{0} copy(%one), backend_config={"estimated_cycles":"3"}\n'
        "}\n"
    )
    assert [(one.source, one.node) for one in read_estimate(text).operations] == [("jit(f)/mul", 5), ("", -1)]
