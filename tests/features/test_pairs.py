"""Which slots speak of one tensor: followed down by hand, graph by graph."""

from __future__ import annotations

import numpy as np
import pytest

from tests.features.helpers import layout_file, layout_of
from tests.graphs import Node, layout_row
from xlarank.features.layout.context import LayoutContext
from xlarank.features.layout.pairs import FARTHEST, HOPS, Pairs, connected_pairs, operand_starts, sibling_pairs

SLOT = ("output", "input", "kernel")
SAME = (0, 1, 2, 3, 4, 5)


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


def chain(*between: Node | str, dims=(4, 8), reader: Node | None = None) -> list[Node]:
    """A parameter, operations of one operand, and a reader of the last one."""
    nodes = [Node("parameter", dims)]
    for node in between:
        operand = (len(nodes) - 1,)
        nodes.append(Node(node, dims, operand) if isinstance(node, str) else node)
    return [*nodes, reader or Node("reduce", dims[:1], (len(nodes) - 1,))]


@pytest.mark.parametrize(
    "opcode", ["tanh", "convert", "select", "copy", "reverse", "all-reduce", "collective-permute"]
)
def test_a_layout_passes_through(opcode):
    context = context_of(chain(opcode), (0, 2))
    assert by_hop(context) == [[], [(2, "input", 0, "output")], []]


@pytest.mark.parametrize(
    "opcode", ["reshape", "bitcast", "broadcast", "sort", "concatenate", "pad", "fusion", "dot"]
)
def test_a_layout_does_not_pass_through(opcode):
    assert by_hop(context_of(chain(opcode), (0, 2))) == [[], [], []]


def test_a_configurable_node_between_stands_for_itself():
    """What lies below it is its own affair."""
    context = context_of(chain("tanh", "tanh"), (0, 2, 3))
    assert by_hop(context) == [[(3, "input", 2, "output")], [(2, "input", 0, "output")], []]


@pytest.mark.parametrize("edges", range(1, FARTHEST + 3))
def test_pairs_are_told_apart_by_their_distance(edges):
    context = context_of(chain(*["tanh"] * (edges - 1)), (0, edges))
    found = by_hop(context)
    expected = [[], [], []]
    if edges <= FARTHEST:
        expected[min(edges, HOPS) - 1] = [(edges, "input", 0, "output")]
    assert found == expected and (HOPS, FARTHEST) == (3, 8)


def turning(dims, operand, *order) -> Node:
    return Node("transpose", dims, operand, columns={f"dimensions_{i}": dim for i, dim in enumerate(order)})


def test_two_transposes_one_after_the_other():
    """[2,3,5] -> [5,2,3] -> [5,3,2]: dimensions 0, 1, 2 of the last are 2, 1, 0 of the first."""
    nodes = chain(turning((5, 2, 3), (0,), 2, 0, 1), "copy", turning((5, 3, 2), (2,), 0, 2, 1), dims=(2, 3, 5))
    nodes[2] = Node("copy", (5, 2, 3), (1,))
    context = context_of(nodes, (0, 4))
    *_, far = connected_pairs(context)
    assert listed(context, far) == [(4, "input", 0, "output")]
    assert far.permutation.tolist() == [[2, 1, 0, 3, 4, 5]]
    assert len(context.straight_pairs) == 0


def test_a_transpose_and_its_inverse_are_straight():
    nodes = chain(turning((5, 2, 3), (0,), 2, 0, 1), turning((2, 3, 5), (1,), 1, 2, 0), dims=(2, 3, 5))
    context = context_of(nodes, (0, 3))
    assert context.straight_pairs.permutation.tolist() == [list(SAME)]


@pytest.mark.parametrize(
    "node",
    [
        turning((8, 4), (0,), 0, 1),  # says that nothing is turned
        Node("transpose", (4, 8), (0,)),  # says nothing: dimensions 0, 0
        turning((4, 4), (0,), 1, 0),  # another shape
        turning((8, 4, 1), (0,), 1, 0, 2),  # another rank
        Node("tanh", (8, 4), (0,)),
    ],
)
def test_what_does_not_fit_its_operand_hands_nothing_on(node):
    assert by_hop(context_of(chain(node), (0, 2))) == [[], [], []]


def test_a_square_is_turned_only_where_the_transpose_says_how():
    nodes = chain(Node("transpose", (4, 4), (0,)), dims=(4, 4))
    assert by_hop(context_of(nodes, (0, 2))) == [[], [], []]
    nodes = chain(turning((4, 4), (0,), 1, 0), dims=(4, 4))
    assert connected_pairs(context_of(nodes, (0, 2)))[1].permutation.tolist() == [[1, 0, 2, 3, 4, 5]]


def test_the_shortest_way_counts():
    """transpose(x) + x: one pair, two edges apart, straight although the longer way is not."""
    nodes = [
        Node("parameter", (4, 4)),
        turning((4, 4), (0,), 1, 0),
        Node("add", (4, 4), (1, 0)),
        Node("reduce", (4,), (2,)),
    ]
    context = context_of(nodes, (0, 3))
    assert by_hop(context) == [[], [(3, "input", 0, "output")], []]
    assert connected_pairs(context)[1].permutation.tolist() == [list(SAME)]


@pytest.mark.parametrize("edges", [[(3, 1), (3, 2)], [(3, 2), (3, 1)]])
@pytest.mark.parametrize("order", [(0, 1, 2, 3, 4), (0, 2, 1, 3, 4)])
def test_of_two_ways_as_long_the_straight_one_counts(edges, order):
    """transpose(x) + copy(x), whichever has the smaller number and stands first."""
    nodes = [Node("parameter", (4, 4))] * 5
    nodes[order[1]] = turning((4, 4), (0,), 1, 0)
    nodes[order[2]] = Node("copy", (4, 4), (0,))
    nodes[3:] = [Node("add", (4, 4), (1, 2)), Node("reduce", (4,), (3,))]
    context = context_of(nodes, (0, 4), edges=[(1, 0), (2, 0), *edges, (4, 3)])
    *_, far = connected_pairs(context)
    assert listed(context, far) == [(4, "input", 0, "output")]
    assert far.permutation.tolist() == [list(SAME)]


def test_a_sum_has_two_producers():
    nodes = [Node("parameter", (4, 8)), Node("parameter", (4, 8)), Node("add", (4, 8), (0, 1))]
    nodes += [Node("reduce", (4,), (2,))]
    assert by_hop(context_of(nodes, (0, 1, 3))) == [
        [],
        [(3, "input", 0, "output"), (3, "input", 1, "output")],
        [],
    ]


def test_bytes_are_those_of_the_tensor_that_the_reader_takes():
    """f64 converted to bf16: the copy is of the narrow one."""
    nodes = [Node("parameter", (4, 8), element="f64"), Node("convert", (4, 8), (0,), element="bf16")]
    nodes += [Node("reduce", (4,), (1,))]
    assert connected_pairs(context_of(nodes, (0, 2)))[1].bytes.tolist() == [2 * 32]


def test_scalars_have_no_layout_to_hand_on():
    nodes = [Node("parameter", ()), Node("tanh", (), (0,)), Node("tanh", (), (1,))]
    context = context_of(nodes, (0, 1, 2))
    assert by_hop(context) == [[], [], []]
    assert [part.tolist() for part in operand_starts(context)] == [[], [], []]
    assert len(sibling_pairs(context)) == 0


def test_without_configurable_nodes_there_are_no_pairs():
    context = context_of(chain("tanh"), ())
    assert by_hop(context) == [[], [], []] and len(context.siblings) == len(context.straight_pairs) == 0


# Readers of one tensor --------------------------------------------------------------------------------------


def test_readers_of_one_tensor_stand_in_a_row():
    """Node 1 twice (x * x, told by the kernel's layout), then 2 and 4; 3 reads another tensor."""
    nodes = [
        Node("parameter", (4, 8)),
        Node("multiply", (4, 8), (0,)),
        Node("tanh", (4, 8), (0,)),
        Node("tanh", (4, 8), (1,)),
        Node("add", (4, 8), (3, 0)),
    ]
    row = [layout_row(kernel=(0, 1)), *[layout_row()] * 3]
    context = context_of(nodes, (1, 2, 3, 4), [row])
    assert listed(context, sibling_pairs(context)) == [
        (1, "input", 1, "kernel"),
        (1, "kernel", 2, "input"),
        (2, "input", 4, "kernel"),
    ]
    assert sibling_pairs(context).bytes.tolist() == [128.0] * 3


def test_readers_over_another_operation_are_no_siblings():
    nodes = [Node("parameter", (4, 8)), Node("copy", (4, 8), (0,)), Node("tanh", (4, 8), (0,))]
    nodes += [Node("tanh", (4, 8), (1,))]
    assert len(sibling_pairs(context_of(nodes, (2, 3)))) == 0


# Requested layouts ------------------------------------------------------------------------------------------


def requested_of(context: LayoutContext, place: int, slot: int) -> list[int]:
    """Number of the layout that each row of a node requests."""
    types = context.row_type[context.table.node == place]
    return context.requested.number[slot * len(context.type_node) + types].tolist()


def test_rows_that_ask_for_one_layout_make_one_request():
    """Of the input: unset, set to the default, the same cut short, another one, again unset."""
    nodes = [Node("parameter", (2, 3, 5)), Node("tanh", (2, 3, 5), (0,))]
    inputs = ((), (2, 1, 0), (2,), (0, 1, 2), ())
    outputs = ((), (), (), (), (0,))
    rows = [[layout_row(*row)] for row in zip(outputs, inputs, strict=True)]
    context = context_of(nodes, (1,), rows)
    table = {tuple(row[6:9].tolist()): [] for row in context.table.rows}
    for row, number in zip(context.table.rows, requested_of(context, 0, 1), strict=True):
        table[tuple(row[6:9].tolist())].append(number)
    unset, full = table[(-1, -1, -1)], table[(2, 1, 0)]
    short, other = table[(2, -1, -1)], table[(0, 1, 2)]
    assert len(set(unset)) == 1 and len(unset) == 2, "the output does not matter"
    assert full == short != other and unset[:1] not in (full, other), "set to the default is not unset"
    assert len(set(requested_of(context, 0, 0))) == 2 and set(requested_of(context, 0, 2)) == {0}
    assert context.requested.count.tolist() == [2, 3, 1] and context.requested.first.tolist() == [0, 2, 5]


def test_every_requested_layout_has_a_row_that_requests_it():
    nodes = [Node("parameter", (2, 3)), Node("tanh", (2, 3), (0,)), Node("tanh", (2, 3), (0,))]
    choices = [layout_row(), layout_row((0, 1)), layout_row((0, 1), (0, 1)), layout_row((1, 0))]
    rows = [[one, other] for one in choices for other in choices]
    context = context_of(nodes, (1, 2), rows)
    assert context.requested.signatures == 1, "both are a tanh of one shape"
    for slot, name in enumerate(SLOT):
        seen = context.slots[name]
        for number, kind in enumerate(
            context.requested.types[context.requested.first[slot] :][: context.requested.count[slot]]
        ):
            holds = context.requested.number[slot * len(context.type_node) :][: len(context.type_node)] == number
            assert (seen.key[holds] == seen.key[kind]).all() and (seen.given[holds] == seen.given[kind]).all()
            assert np.count_nonzero(holds) > 0
