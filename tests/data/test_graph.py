"""Reading one graph: every value outside the format is refused, every oddity inside it is accepted."""

from __future__ import annotations

import os
from collections.abc import Callable
from operator import attrgetter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given

from tests.examples import examples
from tests.graphs import (
    Arrays,
    Node,
    layout_arrays,
    layout_graphs,
    layout_row,
    program_arrays,
    save_npz,
    tile_arrays,
    tile_graphs,
)
from xlarank.data.errors import GraphFileError
from xlarank.data.graph import LayoutGraph, TileGraph, read_graph, tensor_ranks
from xlarank.data.npz import NpzReader
from xlarank.data.schema import MAX_RANK, NODE_COLUMN, OPCODE

CONV, RESHAPE = 0, 1  # positions of the configurable nodes 2 and 4 in the layout graph

GOOD = {"layout": layout_arrays, "tile": tile_arrays}


# Bad input ----------------------------------------------------------------------------------------------


def put(key: str, at: object, value: object, dtype: str | None = None) -> Callable[[Arrays], None]:
    """A defect: one entry of one array holds ``value``."""

    def damage(arrays: Arrays) -> None:
        array = arrays[key].astype(dtype or arrays[key].dtype)
        array[at] = value
        arrays[key] = array

    return damage


def become(key: str, change: Callable[[np.ndarray], object]) -> Callable[[Arrays], None]:
    """A defect: one array is replaced by what ``change`` makes of it."""

    def damage(arrays: Arrays) -> None:
        arrays[key] = np.asarray(change(arrays[key]))

    return damage


def column(name: str) -> tuple[int, int]:
    return (1, NODE_COLUMN[name])


def row(node: int, config: int, **slots: tuple[int, ...]) -> Callable[[Arrays], None]:
    return put("node_config_feat", (config, node), layout_row(**slots))


ROLE = "convolution_dim_numbers_kernel_spatial_dims_0"
#: (what is wrong, the damage, what the message must name).
SHARED_DEFECTS = [
    # node_feat
    ("node_feat nan", put("node_feat", (1, 5), np.nan), ["node_feat", "nan"]),
    ("dimension below 0", put("node_feat", column("shape_dimensions_2"), -7), ["node_feat", "-7"]),
    ("default layout 6", put("node_feat", column("layout_minor_to_major_0"), 6), ["node_feat", "6"]),
    ("no nodes", become("node_feat", lambda a: a[:0]), ["node_opcode has shape"]),
    ("141 columns", become("node_feat", lambda a: np.hstack([a, a[:, :1]])), ["node_feat", "141"]),
    ("flat node_feat", become("node_feat", np.ravel), ["node_feat", "any, 140"]),
    ("bool node_feat", become("node_feat", lambda a: a > 0), ["node_feat", "bool"]),
    # node_opcode
    ("opcode 121", put("node_opcode", 1, 121), ["node_opcode", "121", "0 to 120"]),
    ("opcode -1", put("node_opcode", 1, -1, "i4"), ["node_opcode", "-1"]),
    ("float opcodes", become("node_opcode", lambda a: a.astype("f4")), ["node_opcode", "float32"]),
    ("an opcode short", become("node_opcode", lambda a: a[:-1]), ["node_opcode", "shape"]),
    # edge_index
    ("edge to node n", become("edge_index", lambda a: np.vstack([a, [[a.max() + 1, 0]]])), ["edge_index holds"]),
    ("edge to -1", put("edge_index", (0, 1), -1), ["edge_index", "-1"]),
    ("edge beyond int64", put("edge_index", (0, 1), 2**63 + 5, "u8"), ["edge_index", "9223372036854775813"]),
    ("float edges", become("edge_index", lambda a: a.astype("f8")), ["edge_index", "float64"]),
    ("edges of three", become("edge_index", lambda a: np.hstack([a, a[:, :1]])), ["edge_index", ", 3)"]),
    ("self loop", put("edge_index", 0, (2, 2)), ["edge_index", "cycle"]),
    ("cycle", become("edge_index", lambda a: np.vstack([a, [[0, 3]]])), ["edge_index", "cycle"]),
    # config_runtime
    ("negative runtime", put("config_runtime", 2, -5), ["config_runtime", "-5"]),
    ("float runtime", become("config_runtime", lambda a: a / 2), ["config_runtime", "float64", "integers"]),
    ("milliseconds", become("config_runtime", lambda a: a / 1e6), ["whole nanoseconds", "1,000,000"]),
    ("runtime scalar", become("config_runtime", lambda a: a[0]), ["config_runtime", "()"]),
    ("runtime beyond int64", put("config_runtime", 0, 2**63, "u8"), ["config_runtime", "9223372036854775808"]),
    # numbers that no tensor has: costs computed from them would be inf and NaN in the stored rows
    ("large integer in full", put("edge_index", (0, 1), 2**40 + 1), ["edge_index holds 1099511627777"]),
    ("beyond float32", become("node_feat", lambda a: a.astype("f8") + 1e300), ["node_feat"]),
    ("fraction of a size", put("node_feat", column("shape_dimensions_1"), 0.5), ["0.5", "whole"]),
    ("giant dimension", put("node_feat", column("shape_dimensions_0"), 1e30), ["node_feat holds 1e+30"]),
    ("giant tensor", put("node_feat", (1, slice(21, 24)), 1e5), ["node 1 in node_feat has", "elements"]),
    ("giant group count", put("node_feat", column("feature_group_count"), -1e30), ["node_feat holds 1e+30"]),
    ("role 6", put("node_feat", column(ROLE), 6), ["the convolution's dimension numbers in node_feat holds 6"]),
    ("role 0.5", put("node_feat", column(ROLE), 0.5), ["0.5", "whole numbers"]),
]
LAYOUT_DEFECTS = [
    # node_config_ids
    ("configurable node n", put("node_config_ids", 1, 5), ["node_config_ids", "5", "0 to 4"]),
    ("configurable node -1", put("node_config_ids", 0, -1), ["node_config_ids", "-1"]),
    ("configurable node twice", put("node_config_ids", 1, 2), ["node_config_ids", "twice"]),
    ("float ids", become("node_config_ids", lambda a: a.astype("f4")), ["node_config_ids", "float32"]),
    # node_splits
    ("split beyond the end", put("node_splits", (0, 1), 6), ["node_splits", "6", "0 to 5"]),
    ("split -1", put("node_splits", (0, 0), -1), ["node_splits", "-1"]),
    ("splits go down", become("node_splits", lambda a: [[0, 3, 2, 5]]), ["node_splits", "down"]),
    ("float splits", become("node_splits", lambda a: a.astype("f8")), ["node_splits", "float64"]),
    # node_config_feat
    ("entry 6", put("node_config_feat", (1, 0, 0), 6), ["node_config_feat", "6", "0-5"]),
    ("entry 2**40", put("node_config_feat", (1, 0, 0), 2**40, "i8"), ["node_config_feat", str(2**40)]),
    ("17 columns", become("node_config_feat", lambda a: a[..., :-1]), ["node_config_feat", "17", "18"]),
    ("a node short", become("node_config_feat", lambda a: a[:, :1]), ["node_config_feat", "(6, 1, 18)"]),
    ("a configuration short", become("node_config_feat", lambda a: a[:5]), ["node_config_feat", "(5, 2, "]),
    ("fortran order", become("node_config_feat", np.asfortranarray), ["node_config_feat", "Fortran"]),
    # layouts
    ("output twice", row(CONV, 1, output=(3, 3)), ["output layout (3, 3) of node 2", "twice"]),
    ("output beyond rank", row(RESHAPE, 2, output=(2,)), ["output layout (2) of node 4", "rank"]),
    ("input beyond rank", row(RESHAPE, 2, input=(4,)), ["input layout (4) of node 4", "rank"]),
    ("kernel beyond rank", row(CONV, 2, kernel=(5, 0)), ["kernel layout (5, 0) of node 2", "rank"]),
    ("gap", row(CONV, 0, output=(1, -1, 0)), ["output layout (1, 0) of node 2", "-1 before"]),
]
NORMALIZERS = "config_runtime_normalizers"
OF_CONFIGS = (NORMALIZERS, "node_config_feat", "config_feat")
TILE_DEFECTS = [
    ("tile beyond float32", become("config_feat", lambda a: a.astype("f8") + 1e300), ["config_feat"]),
    ("tile nan", put("config_feat", (0, 3), np.nan), ["config_feat", "nan"]),
    ("tile -1", put("config_feat", (4, 23), -1), ["config_feat", "-1"]),
    ("23 columns", become("config_feat", lambda a: a[:, :-1]), ["config_feat", "23", "24"]),
    ("a tile short", become("config_feat", lambda a: a[:-1]), ["config_feat", "(4, 24)"]),
    ("normalizer 0", put(NORMALIZERS, 3, 0), [NORMALIZERS, "holds 0"]),
    ("normalizer -1", put(NORMALIZERS, 3, -1), [NORMALIZERS, "-1"]),
    ("normalizer short", become(NORMALIZERS, lambda a: a[1:]), [NORMALIZERS, "(4,)"]),
    ("float normalizer", become(NORMALIZERS, lambda a: a / 3), [NORMALIZERS, "float64"]),
]
DEFECTS = {"layout": SHARED_DEFECTS + LAYOUT_DEFECTS, "tile": SHARED_DEFECTS + TILE_DEFECTS}


@pytest.mark.parametrize("kind", GOOD)
def test_bad_values_are_refused_by_name(graph_file, kind):
    assert read_graph(graph_file(GOOD[kind](), "good")).configs == len(GOOD[kind]()["config_runtime"])
    wrong = {}
    for name, damage, fragments in DEFECTS[kind]:
        arrays = GOOD[kind]()
        damage(arrays)
        path = graph_file(arrays, "broken.4x4")
        try:
            read_graph(path, kind)
            wrong[name] = "was read"
        except GraphFileError as error:
            named = error.got.startswith("broken.4x4.npz: ") and error.got.count("broken.4x4") == 1
            if not named or not error.expected or any(fragment not in str(error) for fragment in fragments):
                wrong[name] = str(error)
    assert wrong == {}


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="no /proc to count open files in")
def test_a_refused_file_is_not_kept_open(graph_file):
    errors = []  # and with them the tracebacks, as in a program that collects all errors first
    for damage in (put("node_config_feat", (0, 0, 0), 6), put("node_opcode", 0, 121)):
        arrays = layout_arrays()
        damage(arrays)
        with pytest.raises(GraphFileError) as caught:
            read_graph(graph_file(arrays, "broken"))
        errors.append(caught.value)
    assert [fd for fd in Path("/proc/self/fd").iterdir() if os.path.realpath(fd).endswith("broken.npz")] == []


# Valid oddities -----------------------------------------------------------------------------------------


def cast(key: str, dtype: str) -> Callable[[Arrays], None]:
    return become(key, lambda array: array.astype(dtype))


def extra_keys(arrays: Arrays) -> None:
    arrays["notes"] = np.array(["measured on a Tuesday"])
    arrays["scalar"] = np.float64(3)


DTYPES = {
    "node_opcode": "u1 i4 >i8", "edge_index": "i4 u8", "node_feat": "f8 >f4 i8", "config_runtime": "u8 i4",
    "node_config_feat": "i1 i2 i8 f2 f8 >f4 >i2", "node_config_ids": "i4 u1", "node_splits": "i4",
    "config_feat": "f8 i4", NORMALIZERS: "i4",
}  # fmt: skip


@pytest.mark.parametrize("kind", GOOD)
def test_other_spellings_of_the_same_graph_read_the_same(graph_file, kind):
    plain = read_graph(graph_file(GOOD[kind](), "plain"))
    changes = [cast(key, dtype) for key, names in DTYPES.items() if key in GOOD[kind]() for dtype in names.split()]
    changes += [become(key, np.asfortranarray) for key in ("node_feat", "edge_index")]
    changes += [become("node_splits", np.ravel) if kind == "layout" else become("config_feat", np.asfortranarray)]
    for number, change in enumerate([*changes, extra_keys]):
        arrays = GOOD[kind]()
        change(arrays)
        odd = read_graph(graph_file(arrays, f"odd{number}", compressed=number % 2 == 0))
        assert_same_graph(odd, plain)
        assert odd.name == f"odd{number}"


def test_an_input_layout_may_name_any_dimension_of_the_widest_operand(graph_file):
    """The format does not say which operand a slot speaks of; without operands any dimension is allowed."""
    nodes = [Node("parameter", (8,)), Node("parameter", (2, 3, 5)), Node("dot", (8,), (0, 1))]
    arrays = {
        **program_arrays(nodes),
        "node_splits": np.array([[0, 3]]),
        "node_config_ids": np.array([2]),
        "node_config_feat": np.array([[layout_row(input=(2, 1))]]),
        "config_runtime": np.array([7]),
    }
    read_graph(graph_file(arrays))
    arrays["node_config_feat"] = np.array([[layout_row(input=(3, 1))]])
    with pytest.raises(GraphFileError, match="input layout"):
        read_graph(graph_file(arrays))
    arrays = layout_arrays()
    arrays["edge_index"] = np.zeros((0, 2), np.int64)
    row(CONV, 0, input=(5,), kernel=(5, 4))(arrays)
    assert read_graph(graph_file(arrays)).edges.shape == (0, 2)
    row(CONV, 0, output=(5,))(arrays)
    with pytest.raises(GraphFileError, match="output layout"):
        read_graph(graph_file(arrays))


def test_a_graph_without_configurable_nodes_and_of_retired_and_unknown_opcodes(graph_file):
    arrays = layout_arrays()
    arrays["node_opcode"] = np.array([0, OPCODE["trace"], OPCODE["tuple-select"], 120, 2], np.uint8)
    arrays["node_config_ids"] = arrays["node_config_ids"][:0]
    arrays["node_config_feat"] = arrays["node_config_feat"][:, :0]
    graph = read_graph(graph_file(arrays))
    assert isinstance(graph, LayoutGraph)
    assert graph.opcode.tolist() == [0, 97, 101, 120, 2]
    assert graph.table.codes.shape == (6, 0)
    assert len(graph.table.rows) == 0 and graph.table.start.tolist() == [0]
    assert graph.duplicates.distinct == 1, "all configurations are the same: nothing is chosen"


@pytest.mark.parametrize("kind", GOOD)
def test_a_configuration_that_was_not_measured_costs_more_than_any_that_was(graph_file, kind):
    """A failed compilation is ordinary: the rest of the graph is as good as before."""
    arrays = GOOD[kind]()
    whole = read_graph(graph_file(arrays))
    arrays["config_runtime"][2] = 0
    graph = read_graph(graph_file(arrays))
    assert graph.labelled and graph.measured.tolist() == [i != 2 for i in range(graph.configs)]
    assert np.isinf(graph.cost[2])
    assert (graph.cost[graph.measured] == whole.cost[graph.measured]).all()
    arrays["config_runtime"][:] = 0
    withheld = read_graph(graph_file(arrays))
    assert not withheld.labelled and np.isinf(withheld.cost).all()


@pytest.mark.parametrize("kind", GOOD)
def test_bombs_are_refused_by_their_headers(tmp_path, monkeypatch, kind):
    """Kilobytes that would unpack to gigabytes: not a byte is. The limits are smaller here, and so is the file."""
    for limit in ("MAX_NODES", "MAX_EDGES", "MAX_CONFIGS"):
        monkeypatch.setattr(f"xlarank.data.graph.{limit}", 200)
    for method in ("read", "stream"):
        monkeypatch.setattr(NpzReader, method, lambda *_: pytest.fail("an array was unpacked"))
    for name, fitting, shape, message in (
        ("config_runtime", (), (100,), "shape"),
        ("config_runtime", OF_CONFIGS, (300,), "300 configurations; expected 1 to 200"),
        ("config_runtime", OF_CONFIGS, (0,), "0 configurations"),
        ("node_feat", ("node_opcode",), (300, 140), "300 nodes"),
        ("node_feat", ("node_opcode",), (0, 140), "0 nodes"),
        ("edge_index", (), (300, 2), "300 edges"),
    ):
        arrays = GOOD[kind]()
        for key in (key for key in fitting if key in arrays):
            arrays[key] = np.broadcast_to(arrays[key][:1], (*shape[:1], *arrays[key].shape[1:]))
        arrays[name] = np.broadcast_to(arrays[name].reshape(-1)[:1], shape)
        with pytest.raises(GraphFileError, match=message):
            read_graph(save_npz(tmp_path / "bomb.npz", arrays), kind)


# What comes out -----------------------------------------------------------------------------------------


def test_the_layout_graph_and_the_tile_graph(graph_file):
    graph = read_graph(graph_file(layout_arrays(), "resnet.2x2.bf16"))
    assert isinstance(graph, LayoutGraph)
    assert graph.name == "resnet.2x2.bf16"
    assert (graph.nodes, graph.configs, graph.labelled) == (5, 6, True)
    assert graph.opcode.tolist() == [63, 63, 26, 2, 75] and graph.opcode.dtype == np.int64
    assert graph.edges.tolist() == [[2, 0], [2, 1], [3, 2], [3, 0], [4, 3]]
    assert graph.splits.tolist() == [0, 5]
    assert graph.configurable.tolist() == [2, 4]
    assert graph.runtime.dtype == np.int64
    # One apart beyond 2**24: equal if they had been through float32.
    assert graph.runtime.tolist() == [20000003, 20000001, 20000007, 20000002, 40000001, 40000000]
    assert graph.cost.tolist() == graph.runtime.tolist()
    assert graph.duplicates.group.tolist() == [0, 1, 2, 1, 3, 4]
    assert graph.duplicates.first.tolist() == [0, 1, 2, 4, 5]
    tile = read_graph(graph_file(tile_arrays()))
    assert isinstance(tile, TileGraph)
    assert (tile.nodes, tile.configs, tile.labelled) == (4, 5, True)
    assert tile.cost.tolist() == [2.0, 1.0, 0.5, 4.0, 1.25]
    assert tile.duplicates.group.tolist() == [0, 1, 2, 3, 1]
    assert tile.config_feat.dtype == np.float32


@examples(30)
@given(arrays=layout_graphs(relabel=True))
def test_random_layout_graphs_read_as_written(next_path, arrays):
    graph = read_graph(save_npz(next_path(), arrays))
    assert isinstance(graph, LayoutGraph)
    order = np.argsort(arrays["node_config_ids"])
    for got, want in (
        (graph.node_feat, arrays["node_feat"]),
        (graph.opcode, arrays["node_opcode"]),
        (graph.edges, arrays["edge_index"]),
        (graph.configurable, arrays["node_config_ids"][order]),
        (graph.splits, arrays["node_splits"][0]),
        (graph.runtime, arrays["config_runtime"]),
        (graph.table.rows[graph.table.codes], arrays["node_config_feat"][:, order]),
    ):
        assert np.array_equal(got, want)
    flat = arrays["node_config_feat"].reshape(graph.configs, -1)
    assert graph.duplicates.distinct == len({row.tobytes() for row in flat})


@examples(30)
@given(arrays=tile_graphs())
def test_random_tile_graphs_read_as_written(next_path, arrays):
    graph = read_graph(save_npz(next_path(), arrays))
    assert isinstance(graph, TileGraph)
    assert np.array_equal(graph.node_feat, arrays["node_feat"])
    assert np.array_equal(graph.config_feat, arrays["config_feat"])
    runtime, normalizer = (arrays[key].tolist() for key in ("config_runtime", NORMALIZERS))
    expected = [over / under for over, under in zip(runtime, normalizer, strict=True)]
    assert graph.cost.tolist() == pytest.approx(expected, rel=1e-15)


# Ranks --------------------------------------------------------------------------------------------------


def test_the_rank_is_the_place_of_the_last_dimension():
    cases = {((7,) * rank, tuple(range(rank))): rank for rank in range(MAX_RANK + 1)} | {
        ((8, 0), (1, 0)): 2,  # an empty tensor: only the layout names the second dimension
        ((8, 0), (0, 1)): 2,
        ((0,), (0,)): 0,  # looks like a scalar
        ((8, 0, 4), (0, 1, 2)): 3,
        ((0, 4), (1, 0)): 2,
    }
    nodes = [Node("parameter", dims, layout=layout) for dims, layout in cases]
    assert tensor_ranks(program_arrays(nodes)["node_feat"]).tolist() == list(cases.values())


def assert_same_graph(got: LayoutGraph | TileGraph, want: LayoutGraph | TileGraph) -> None:
    assert type(got) is type(want)
    names = "node_feat opcode edges runtime cost duplicates.first duplicates.group"
    layout = "splits configurable table.codes table.rows table.node table.start"
    for name in f"{names} {layout if isinstance(got, LayoutGraph) else 'config_feat normalizers'}".split():
        one, other = attrgetter(name)(got), attrgetter(name)(want)
        assert one.dtype == other.dtype and one.dtype.isnative and np.array_equal(one, other), name
