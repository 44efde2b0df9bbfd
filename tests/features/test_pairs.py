"""Which slots lay out one tensor: followed down by hand, graph by graph."""

from __future__ import annotations

from tests.features.helpers import layout_file, layout_of
from tests.graphs import Node, layout_row
from xlarank.features.layout.layout_context import LayoutContext
from xlarank.features.layout.slot_pairs import FARTHEST, HOPS, Pairs, connected_pairs, operand_starts, sibling_pairs

SLOT = ("output", "input", "kernel")
SAME = [0, 1, 2, 3, 4, 5]
NONE: list[list] = [[], [], []]


def context_of(nodes, configurable, rows=None, edges=None):
    rows = rows or [[layout_row()] * len(configurable)]
    return LayoutContext(layout_of(layout_file(nodes, configurable, rows, edges)))


def listed(context: LayoutContext, pairs: Pairs) -> list[tuple[int, str, int, str]]:
    """Node and slot of the left side, node and slot of the right one."""
    ids = context.graph.configurable
    sides = zip(ids[pairs.left], pairs.left_slot, ids[pairs.right], pairs.right_slot, strict=True)
    return [(int(left), SLOT[at], int(right), SLOT[other]) for left, at, right, other in sides]


def by_hop(context: LayoutContext) -> list[list[tuple[int, str, int, str]]]:
    return [listed(context, pairs) for pairs in connected_pairs(context)]


def chain(*between: Node | str, dims=(4, 8)) -> list[Node]:
    """A parameter, operations of one operand, and a reduction of the last one."""
    nodes = [Node("parameter", dims)]
    for node in between:
        operand = (len(nodes) - 1,)
        nodes.append(Node(node, dims, operand) if isinstance(node, str) else node)
    return [*nodes, Node("reduce", dims[:1], (len(nodes) - 1,))]


def turning(dims, operand, *order) -> Node:
    return Node("transpose", dims, operand, columns={f"dimensions_{i}": dim for i, dim in enumerate(order)})


def test_which_operations_hand_a_layout_on():
    for opcode in ("tanh", "convert", "select", "copy", "reverse", "all-reduce", "collective-permute"):
        assert by_hop(context_of(chain(opcode), (0, 2))) == [[], [(2, "input", 0, "output")], []], opcode
    for opcode in ("reshape", "bitcast", "broadcast", "sort", "concatenate", "pad", "fusion", "dot"):
        assert by_hop(context_of(chain(opcode), (0, 2))) == NONE, opcode
    for node in (
        turning((8, 4), (0,), 0, 1),  # says that nothing is turned
        Node("transpose", (4, 8), (0,)),  # says nothing: dimensions 0, 0
        turning((4, 4), (0,), 1, 0),  # another shape
        turning((8, 4, 1), (0,), 1, 0, 2),  # another rank
        Node("tanh", (8, 4), (0,)),
    ):
        assert by_hop(context_of(chain(node), (0, 2))) == NONE, node
    square = chain(Node("transpose", (4, 4), (0,)), dims=(4, 4))
    assert by_hop(context_of(square, (0, 2))) == NONE, "a square is turned only where the transpose says how"
    square = chain(turning((4, 4), (0,), 1, 0), dims=(4, 4))
    assert connected_pairs(context_of(square, (0, 2)))[1].permutation.tolist() == [[1, 0, 2, 3, 4, 5]]


def test_distance():
    assert (HOPS, FARTHEST) == (3, 8)
    for edges in range(1, FARTHEST + 3):
        expected = [[], [], []]
        if edges <= FARTHEST:
            expected[min(edges, HOPS) - 1] = [(edges, "input", 0, "output")]
        assert by_hop(context_of(chain(*["tanh"] * (edges - 1)), (0, edges))) == expected, edges
    between = context_of(chain("tanh", "tanh"), (0, 2, 3))  # a configurable node between stands for itself
    assert by_hop(between) == [[(3, "input", 2, "output")], [(2, "input", 0, "output")], []]


def test_of_several_ways_the_shortest_counts_and_of_two_as_long_the_straight_one():
    """transpose(x) + x, and transpose(x) + copy(x), whichever has the smaller number and stands first."""
    turned = turning((4, 4), (0,), 1, 0)
    nodes = [Node("parameter", (4, 4)), turned, Node("add", (4, 4), (1, 0)), Node("reduce", (4,), (2,))]
    context = context_of(nodes, (0, 3))
    assert by_hop(context) == [[], [(3, "input", 0, "output")], []]
    assert connected_pairs(context)[1].permutation.tolist() == [SAME]
    for edges in ([(3, 1), (3, 2)], [(3, 2), (3, 1)]):
        for between in ([turned, Node("copy", (4, 4), (0,))], [Node("copy", (4, 4), (0,)), turned]):
            nodes = [Node("parameter", (4, 4)), *between, Node("add", (4, 4), (1, 2)), Node("reduce", (4,), (3,))]
            context = context_of(nodes, (0, 4), edges=[(1, 0), (2, 0), *edges, (4, 3)])
            *_, far = connected_pairs(context)
            assert listed(context, far) == [(4, "input", 0, "output")] and far.permutation.tolist() == [SAME]


def test_scalars_and_graphs_without_configurable_nodes_have_no_pairs():
    context = context_of([Node("parameter", ()), Node("tanh", (), (0,)), Node("tanh", (), (1,))], (0, 1, 2))
    assert by_hop(context) == NONE and len(sibling_pairs(context)) == 0
    assert [part.tolist() for part in operand_starts(context)] == NONE
    context = context_of(chain("tanh"), ())
    assert by_hop(context) == NONE and len(context.siblings) == len(context.straight_pairs) == 0


def test_readers_of_one_tensor_stand_in_a_row():
    """Node 1 twice (x * x, by the kernel's layout), then 2 and 4; 3 reads another tensor."""
    nodes = [Node("parameter", (4, 8)), Node("multiply", (4, 8), (0,)), Node("tanh", (4, 8), (0,))]
    nodes += [Node("tanh", (4, 8), (1,)), Node("add", (4, 8), (3, 0))]
    context = context_of(nodes, (1, 2, 3, 4), [[layout_row(kernel=(0, 1)), *[layout_row()] * 3]])
    expected = [(1, "input", 1, "kernel"), (1, "kernel", 2, "input"), (2, "input", 4, "kernel")]
    assert listed(context, sibling_pairs(context)) == expected
    assert sibling_pairs(context).bytes.tolist() == [128.0] * 3
    assert len(sibling_pairs(context_of(nodes, (2, 3)))) == 0, "over another operation they are no siblings"
