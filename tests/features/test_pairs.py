"""Pairs of slots by hand; sums over nodes and pairs, in any batches; types of nodes."""

import numpy as np
import pytest

from tests.features.helpers import SAMPLE, by_name, fitting_graph, graph_of, layout_file, load
from tests.features.test_relayouts import op
from tests.graphs import Node, layout_row
from xlarank.features.assembly import assemble
from xlarank.features.layout import aggregation
from xlarank.features.layout.layout_context import LayoutContext
from xlarank.features.layout.pairs import FARTHEST, HOPS, Pairs, connected_pairs

NONE: list[list] = [[], [], []]


def columns_of(nodes, configurable, configs) -> dict[str, np.ndarray]:
    return by_name(assemble(graph_of(layout_file(nodes, configurable, configs))))


def pairs_of(nodes, *configurable) -> list[Pairs]:
    rows = [[layout_row()] * len(configurable)]
    return connected_pairs(LayoutContext(graph_of(layout_file(nodes, configurable, rows))))


def ends(nodes, *configurable) -> list[list[tuple[int, int]]]:
    """Consumer and producer of the pairs of an input and an output, by hops."""
    ends = []
    for pairs in pairs_of(nodes, *configurable):
        assert {*pairs.left_slot} <= {1}
        both = np.array(configurable)[np.stack([pairs.left, pairs.right], axis=1)]
        ends.append([*map(tuple, both.tolist())])
    return ends


def chain(*between: Node | str, dims=(4, 8)) -> list[Node]:
    """A parameter, operations of one operand, and a reduction of the last one."""
    nodes = [Node("parameter", dims)]
    for node in between:
        operand = (len(nodes) - 1,)
        nodes.append(Node(node, dims, operand) if isinstance(node, str) else node)
    return [*nodes, Node("reduce", dims[:1], (len(nodes) - 1,))]


def test_operations_that_hand_a_layout_on():
    for opcode in "tanh convert select copy reverse all-reduce collective-permute".split():
        assert ends(chain(opcode), 0, 2) == [[], [(2, 0)], []], opcode
    for node in (
        *("reshape", "bitcast", "broadcast", "sort", "concatenate", "pad", "fusion", "dot"),
        op("transpose", (8, 4), (0,), 0, 1),  # says that nothing is turned
        Node("transpose", (4, 8), (0,)),  # says nothing: dimensions 0, 0
        op("transpose", (4, 4), (0,), 1, 0),  # another shape
        op("transpose", (8, 4, 1), (0,), 1, 0, 2),  # another rank
        Node("tanh", (8, 4), (0,)),
    ):
        assert ends(chain(node), 0, 2) == NONE, node
    square = chain(Node("transpose", (4, 4), (0,)), dims=(4, 4))
    assert ends(square, 0, 2) == NONE, "a square is turned only where the transpose says how"
    # dimensions 0, 1 and 2 are 2, 0 and 1 of the parameter; then 1, 0 and 2 of those
    turns = op("transpose", (16, 4, 8), (0,), 2, 0, 1), op("transpose", (4, 16, 8), (1,), 1, 0, 2)
    cube = chain(*turns, dims=(4, 8, 16))
    assert pairs_of(cube, 0, 3)[2].permutation.tolist() == [[0, 2, 1, 3, 4, 5]]


def test_distance():
    assert (HOPS, FARTHEST) == (3, 8)
    for edges in range(1, FARTHEST + 3):
        hops = min(edges, HOPS) if edges <= FARTHEST else 0
        expected = [[(edges, 0)] if hop == hops else [] for hop in (1, 2, 3)]
        assert ends(chain(*["tanh"] * (edges - 1)), 0, edges) == expected, edges
    between = chain("tanh", "tanh")  # a configurable node between stands for itself
    assert ends(between, 0, 2, 3) == [[(3, 2)], [(2, 0)], []]


def test_layouts_are_compared_in_the_dimensions_of_the_consumer():
    """Dimensions 0, 1, 2 of the reshaped are 2, 0, 1 of the parameter, whose 0,1,2 is 1,2,0."""
    start = chain(op("transpose", (16, 4, 8), (0,), 2, 0, 1), dims=(4, 8, 16))[:2]
    nodes = (*start, Node("reshape", (16, 32), (1,)))
    rows = [(layout_row((0, 1, 2)), layout_row(input=order)) for order in ((1, 2, 0), (2, 0, 1))]
    columns = columns_of(nodes, (0, 2), rows)
    assert columns["disagreement__agree_2hop__share"].tolist() == [1, 0]
    assert columns["disagreement__clash_2hop__share"].tolist() == [0, 1]
    # two readers alike, one of them behind a transpose
    sides = op("transpose", (4, 4), (0,), 1, 0), Node("copy", (4, 4), (0,))
    readers = [Node("reshape", (16,), (operand,)) for operand in (1, 2)]
    nodes = (Node("parameter", (4, 4)), *sides, *readers)
    columns = columns_of(nodes, (0, 3, 4), [(layout_row((0, 1)), *[layout_row(input=(1, 0))] * 2)])
    assert columns["disagreement__agree_2hop__share"] == 1 / 2
    assert columns["disagreement__clash_2hop__share"] == 1 / 2


@pytest.mark.slow
def test_batches_do_not_show(monkeypatch):
    sample = load(SAMPLE / "layout" / "cpu" / "default" / "train" / "dlrm__a.npz")
    graphs = [graph_of(arrays) for arrays in (sample, *map(fitting_graph, range(200, 212)))]
    whole = [(graph, assemble(graph).config_values) for graph in graphs]
    monkeypatch.setattr(aggregation, "_CONFIGS", (1, 1))
    for graph, rows in whole[::2]:
        np.testing.assert_allclose(assemble(graph).config_values, rows, rtol=1e-5, atol=1e-6)


def test_convolutions_of_one_shape_with_other_dimension_numbers_are_not_alike():
    """[4,4,4], features last or first: one layout puts features or a batch along the lanes."""
    nodes = [Node("parameter", (4, 4, 4)), Node("parameter", (3, 4, 4))]
    for batch, feature in ((0, 2), (2, 0)):
        stem = "convolution_dim_numbers_output"
        columns = {f"{stem}_batch_dim": batch, f"{stem}_feature_dim": feature}
        nodes.append(Node("convolution", (4, 4, 4), (0, 1), window=(3,), columns=columns))
    columns = columns_of(nodes, (2, 3), [[layout_row(output=(2, 1, 0))] * 2])
    for role in ("feature", "batch"):
        assert columns[f"roles__convolution_output_{role}_minor__share"].tolist() == [0.5]
