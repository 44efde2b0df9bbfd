"""Pairs of slots, followed down by hand; sums and maxima over nodes and pairs, however they are added up."""

from fnmatch import fnmatch

import numpy as np
import pytest

from tests.features.helpers import SAMPLE, by_name, fitting_graph, graph_of, layout_file, load
from tests.graphs import Node, layout_row
from xlarank.features.assemble import assemble
from xlarank.features.layout import aggregation
from xlarank.features.layout.layout_context import LayoutContext
from xlarank.features.layout.slot_pairs import FARTHEST, HOPS, Pairs, connected_pairs, operand_starts, sibling_pairs

SLOT = ("output", "input", "kernel")
SAME = [0, 1, 2, 3, 4, 5]
NONE: list[list] = [[], [], []]


def context_of(nodes, configurable, rows=None, edges=None):
    rows = rows or [[layout_row()] * len(configurable)]
    return LayoutContext(graph_of(layout_file(nodes, configurable, rows, edges)))


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
    for node in (
        *("reshape", "bitcast", "broadcast", "sort", "concatenate", "pad", "fusion", "dot"),
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


SEEDS = range(200, 212)


@pytest.mark.slow
def test_batches_and_ways_to_add_up_do_not_show(monkeypatch):
    sample = load(SAMPLE / "layout" / "cpu" / "default" / "train" / "dlrm__a.npz")
    graphs = [graph_of(arrays) for arrays in (sample, *map(fitting_graph, SEEDS))]
    whole = [(graph, assemble(graph).config_values) for graph in graphs]
    for settings in (
        {"_CODES": 1, "_CONFIGS": (1, 1), "_COMBINATIONS": 0},  # of the pairs taken only
        {"_CODES": 20, "_CONFIGS": (2, 3)},
        {"_SPARSE_NS": 0.0},
        {"_SPARSE_NS": 1e9},
    ):
        with monkeypatch.context() as patch:
            for name, value in settings.items():
                patch.setattr(aggregation, name, value)
            for graph, rows in whole[:: 2 if "_CODES" in settings else 1]:
                np.testing.assert_allclose(assemble(graph).config_values, rows, rtol=1e-5, atol=1e-6)


#: What says how a tensor lies, whoever chose it.
STATE = (
    *("padding__*", "packed__*", "types__*", "roles__*", "violation__*", "candidates__*", "rank__*", "zscore__*"),
    *("disagreement__mismatch_*", "disagreement__consumer_*", "disagreement__producer_*", "siblings__mismatch_*"),
    *("change__*_unlike_*", "time__over_fastest__*", "time__idle__*", "time__slower_nodes__*"),
)


def test_without_any_layout_set_nothing_is_changed():
    for seed in SEEDS:
        arrays = fitting_graph(seed)
        unset = {**arrays, "node_config_feat": np.full_like(arrays["node_config_feat"], -1)}
        for name, values in by_name(assemble(graph_of(unset))).items():
            if not any(fnmatch(name, pattern) for pattern in STATE) or "_waste_change_" in name:
                assert values.tolist() == [0.0], name
    bare = {
        **arrays,
        "node_config_ids": arrays["node_config_ids"][:0],
        "node_config_feat": unset["node_config_feat"][:, :0],
    }
    found = by_name(assemble(graph_of(bare)))
    assert {n: v.tolist() for n, v in found.items()} == {n: [0.5 * n.startswith("rank__")] for n in found}


def test_convolutions_of_one_shape_with_other_dimension_numbers_are_not_alike():
    """[4,4,4] with the features last or first: the same layout puts features or a batch along the lanes."""
    stem = "convolution_dim_numbers"
    nodes = [Node("parameter", (4, 4, 4)), Node("parameter", (3, 4, 4))]
    for batch, feature in ((0, 2), (2, 0)):
        numbers = {f"{stem}_output_batch_dim": batch, f"{stem}_output_feature_dim": feature}
        nodes.append(Node("convolution", (4, 4, 4), (0, 1), window=(3,), columns=numbers))
    found = by_name(assemble(graph_of(layout_file(nodes, (2, 3), [[layout_row(output=(2, 1, 0))] * 2]))))
    assert found["roles__convolution_output_feature_minor__share"].tolist() == [0.5]
    assert found["roles__convolution_output_batch_minor__share"].tolist() == [0.5]
