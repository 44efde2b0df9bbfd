"""Names and positions of the format; the sample; structure of graphs."""

from collections import Counter, defaultdict

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.graphs import arrays_of
from xlarank.data import schema
from xlarank.data.collection import SAMPLE, SPLITS, Collection, discover, find_data_root
from xlarank.data.graph import read_graph
from xlarank.data.structure import has_cycle, node_levels

#: Columns between which a missing or extra name would be seen; positions as in the description of
#: google-research-datasets/tpu_graphs, ids of opcodes as in its hlo_opcode.h.
POSITIONS = """
is_root 0 shape_element_type_is_invalid_type 2 shape_element_type_is_f32 13 parameter_number 30
shape_dimensions_product 28 shape_dimensions_0 21 dimensions_0 31 window_size_0 37
window_stride_0 45 window_padding_low_0 53 window_padding_high_0 61 window_window_dilation_0 69
window_base_dilation_0 77 window_window_reversal_0 85 window_window_reversal_false_count 92
convolution_dim_numbers_input_batch_dim 93 convolution_dim_numbers_kernel_input_feature_dim 99
convolution_dim_numbers_output_feature_dim 106 feature_group_count 107 slice_dims_start_0 109
slice_dims_stride_0 113 slice_dims_limit_0 117 dynamic_slice_sizes_0 121
padding_config_edge_padding_low_0 125 is_stable 133 layout_minor_to_major_5 139 window_size_sum 43
window_size_product 44 slice_dims_start_sum 111 slice_dims_start_product 112
convolution_dim_numbers_kernel_output_feature_dim 100 batch_group_count 108
"""
OPCODE_IDS = """
unknown 0 abs 1 add 2 broadcast 13 convolution 26 copy 27 dot 34 fusion 41 parameter 63 reduce 70
reshape 75 trace 97 transpose 98 tuple 100 tuple-select 101 while 102 tan 120
"""


def numbers_of(table: str) -> dict[str, int]:
    words = table.split()
    return dict(zip(words[::2], map(int, words[1::2]), strict=True))


def test_names_have_the_positions_of_the_format():
    names = schema.NODE_COLUMNS, schema.LAYOUT_COLUMNS, schema.TILE_COLUMNS, schema.OPCODES
    assert [len(columns) for columns in names] == [140, 18, 24, 121]
    assert [len(set(columns)) for columns in names] == [140, 18, 24, 121]
    assert numbers_of(POSITIONS).items() <= schema.NODE_COLUMN.items()
    assert numbers_of(OPCODE_IDS).items() <= schema.OPCODE.items()
    assert frozenset({97, 101}) == schema.RETIRED_OPCODES
    assert schema.LAYOUT_SLOTS == ("output", "input", "kernel")
    assert schema.TILE_SLOTS == ("kernel", "output", "input")
    assert schema.LAYOUT_COLUMNS[0::17] == ("output_layout_0", "kernel_layout_5")
    places = numbers_of("kernel_0 0 kernel_sum 6 kernel_product 7 output_0 8 input_product 23")
    for name, place in places.items():
        assert schema.TILE_COLUMNS[place] == name.replace("_", "_bounds_")
    types = [f"shape_element_type_is_{name}" for name in schema.ELEMENT_BYTES]
    assert list(schema.NODE_COLUMNS[2:21]) == types
    sizes = {"pred": 1, "s8": 1, "bf16": 2, "f32": 4, "s64": 8, "c128": 16, "tuple": 0}
    assert sizes.items() <= schema.ELEMENT_BYTES.items()


@pytest.mark.slow
def test_the_sample_is_as_its_readme_says():
    """Test graphs have no labels; no family is in two splits; ``__s`` is another batch size."""
    count = Counter[tuple[str, str]]()
    configs = defaultdict[str, set[int]](set)
    splits = defaultdict[tuple[Collection, str], set[str]](set)
    structures = dict[str, list[int]]()
    for file in discover(SAMPLE / "npz"):
        graph = read_graph(file.path, file.collection.kind)
        assert (graph.name, graph.labelled) == (file.name, file.split != "test")
        if file.collection.parts[:2] == ("layout", "tpu-estimate") and graph.labelled:
            assert len(np.unique(graph.runtime)) >= 8
        count[str(file.collection), file.split] += 1
        configs[str(file.collection)].add(graph.configs)
        if str(file.collection) == "layout:tpu-estimate:random":
            structures[file.name] = graph.opcode.tolist()
        if not file.name.endswith("__s"):
            splits[file.collection, file.family].add(file.split)
    assert len(splits) > 20 and [key for key, names in splits.items() if len(names) > 1] == []
    siblings = [name for name in structures if name.endswith("__s")]
    assert len(siblings) == 2
    for name in siblings:
        assert structures[name] == structures[name.replace("__s", "__a")]
    table = (SAMPLE / "README.md").read_text(encoding="utf-8")
    for collection, sizes in configs.items():
        graphs = " / ".join(str(count[collection, split]) for split in SPLITS)
        sizes = "-".join(map(str, sorted({min(sizes), max(sizes)})))
        assert f"| {collection} | {graphs} | {sizes} |" in table


def test_every_file_is_read_as_numpy_reads_it(real_data):
    npz = find_data_root(real_data).npz
    files = discover(npz)
    expected = {"layout:xla:default", "layout:xla:random", "tile:xla"}
    assert {str(file.collection) for file in files} >= expected
    assert len(files) == len(list(npz.rglob("*.npz"))), "discovery finds every file of the tree"
    for file in files:
        graph = read_graph(file.path, file.collection.kind)
        assert (graph.name, graph.labelled) == (file.name, file.split != "test")
        arrays = arrays_of(graph)
        with np.load(file.path) as archive:
            np.testing.assert_equal(arrays, dict(archive))
        configs = arrays.get("config_feat", arrays.get("node_config_feat"))
        assert len(graph.first) == len({config.tobytes() for config in configs})


@given(
    nodes=st.integers(1, 10),
    pairs=st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=20),
    names=st.none() | st.permutations(range(10)),
)
def test_levels_are_the_longest_paths_and_nodes_on_or_above_a_cycle_have_none(nodes, pairs, names):
    """For any directed graph, self loops included, or a DAG under random node ids."""
    edges = np.array(pairs, np.int64).reshape(-1, 2) % nodes
    if names is not None:
        edges = np.sort(edges[edges[:, 0] != edges[:, 1]], axis=1)[:, ::-1]
        edges = np.argsort(names[:nodes])[edges]
    flow = nx.DiGraph((operand, consumer) for consumer, operand in edges.tolist())
    flow.add_nodes_from(range(nodes))
    assert has_cycle(edges, nodes) == (not nx.is_directed_acyclic_graph(flow))
    parts = nx.strongly_connected_components(flow)
    on_cycle = set().union(*(part for part in parts if len(part) > 1))
    on_cycle |= set(nx.nodes_with_selfloops(flow))
    level = dict.fromkeys(on_cycle.union(*(nx.descendants(flow, n) for n in on_cycle)), -1)
    for node in nx.topological_sort(flow.subgraph(set(flow) - set(level))):
        level[node] = max((level[operand] + 1 for operand in flow.predecessors(node)), default=0)
    assert node_levels(edges, nodes).tolist() == [level[node] for node in range(nodes)]


def test_a_deep_chain_in_either_numbering():
    edges = np.stack([np.arange(1, 5001), np.arange(5000)], axis=1)
    for ordered in (edges, edges[::-1]):
        assert node_levels(ordered, 5001).tolist() == list(range(5001))
    assert not has_cycle(5000 - edges, 5001)
    assert has_cycle(np.vstack([5000 - edges, [[5000, 0]]]), 5001)
