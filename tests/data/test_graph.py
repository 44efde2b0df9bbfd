"""Reading and writing graphs: values outside the format are refused, unusual ones are not."""

from collections.abc import Callable
from contextlib import nullcontext
from operator import attrgetter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import graphs
from tests.features.helpers import SCRAMBLED_GRAPHS, SCRAMBLED_KERNELS, graph_of, layout_file
from tests.graphs import (
    Arrays,
    Node,
    arrays_of,
    dot_arrays,
    examples,
    layout_arrays,
    layout_row,
    parameter,
    program_arrays,
    save_npz,
    tile_arrays,
)
from xlarank.data.errors import GraphFileError
from xlarank.data.graph import MAX_RUNTIME, LayoutGraph, config_count, read_graph
from xlarank.data.npz import NpzReader
from xlarank.data.schema import MAX_RANK, NODE_COLUMN, NODE_COLUMNS, OPCODE
from xlarank.data.structure import tensor_ranks
from xlarank.data.writing import write_graph

CONV, RESHAPE = 0, 1  # positions of the configurable nodes 2 and 4 in the layout graph
GOOD = {"layout": layout_arrays, "tile": tile_arrays}
Change = Callable[[np.ndarray], object]


def put(at: object, value: object, dtype: str | None = None) -> Change:
    def change(array: np.ndarray) -> np.ndarray:
        array = array.astype(dtype or array.dtype)
        array[at] = value
        return array

    return change


def column(name: str, value: float) -> Change:
    return put((1, NODE_COLUMN[name]), value)


def row(node: int, config: int, **slots: tuple[int, ...]) -> Change:
    return put((config, node), layout_row(**slots))


def changed(kind: str, key: str, change: Change) -> Arrays:
    return {**GOOD[kind](), key: np.asarray(change(GOOD[kind]()[key]))}


NORMALIZERS = "config_runtime_normalizers"
ROLE = "convolution_dim_numbers_kernel_spatial_dims_0"
#: Changes by array, with words of the message.
DEFECTS: dict[str, list[tuple[Change, *tuple[str, ...]]]] = {
    "node_feat": [
        (put((1, 5), np.nan), "nan"),
        (column("shape_dimensions_2", -7), "-7"),
        (lambda a: a[:0], "node_opcode has shape"),
        (lambda a: np.hstack([a, a[:, :1]]), "141"),
        (np.ravel, "any, 140"),
        (column("layout_minor_to_major_0", 6), "6"),
        (column("shape_dimensions_1", 0.5), "0.5", "whole"),
        (column(ROLE, 0.5), "0.5", "whole numbers"),
        (column(ROLE, -2), "the convolution's dimension numbers in node_feat holds -2"),
        (column("shape_dimensions_5", -1), "the dimensions in node_feat holds -1"),
        (column(ROLE, 6), "the convolution's dimension numbers in node_feat holds 6"),
        # numbers that no tensor has: costs computed from them would be inf and NaN in the stored
        # rows
        (lambda a: a.astype("f8") + 1e300, "node_feat"),
        (column("feature_group_count", -1e30), "-1e+18 to 1e+18"),
        (column("shape_dimensions_0", 1e30), "node_feat holds 1.0"),
        (put((1, slice(21, 24)), 1e5), "node 1 in node_feat has", "elements"),
    ],
    "node_opcode": [(put(1, 121), "121", "0 to 120"), (lambda a: a[:-1], "shape")],
    "edge_index": [
        (lambda a: np.vstack([a, [[a.max() + 1, 0]]]), "edge_index holds"),
        (put((0, 1), 2**40 + 1), "edge_index holds 1099511627777"),  # in full
        (put((0, 1), 2**63 + 5, "u8"), "edge_index holds -"),
        (put((0, 1), 2**63 - 1, "u8"), "9223372036854775807", "0 to "),
        (lambda a: np.hstack([a, a[:, :1]]), ", 3)"),
        (put(0, (2, 2)), "cycle"),
        (lambda a: np.vstack([a, [[0, 3]]]), "cycle"),
    ],
    "config_runtime": [
        (lambda a: a / 1e6, "whole nanoseconds", "1,000,000"),
        (put(0, MAX_RUNTIME + 1), "holds 86400000000001", "write 0 for a configuration without"),
    ],
    "node_config_ids": [(put(1, 5), "5", "0 to 4"), (put(1, 2), "twice")],
    "node_splits": [(put((0, 1), 6), "6", "0 to 5"), (lambda a: [[0, 3, 2, 5]], "down")],
    "node_config_feat": [
        (put((1, 0, 0), 6), "6", "0-5"),
        (put((1, 0, 0), 2**40, "i8"), str(2**40)),
        (lambda a: a[..., :-1], "17", "18"),
        (lambda a: a[:, :1], "(6, 1, 18)"),
        (np.asfortranarray, "Fortran"),
        (row(CONV, 1, output=(3, 3)), "output layout (3, 3) of node 2", "twice"),
        (row(CONV, 1, output=(0, 0)), "output layout (0, 0) of node 2", "twice"),
        (row(RESHAPE, 2, output=(2,)), "output layout (2) of node 4", "rank"),
        (row(CONV, 2, kernel=(5, 0)), "kernel layout (5, 0) of node 2", "rank"),
        (row(CONV, 0, output=(1, -1, 0)), "output layout (1, 0) of node 2", "-1 before"),
    ],
    "config_feat": [
        (put((4, 23), -1), "-1"),
        (lambda a: a[:, :-1], "23", "24"),
        (lambda a: a[:-1], "(4, 24)"),
    ],
    NORMALIZERS: [(put(3, 0), "holds 0")],
}


@pytest.mark.parametrize("kind", GOOD)
def test_padding_of_minus_one_is_that_of_zero(graph_file, kind):
    """As in copies of the dataset that others re-packed."""
    arrays = GOOD[kind]()
    feat = arrays["node_feat"].astype(np.float32)
    expected = read_graph(graph_file(arrays)).node_feat
    beyond = np.arange(6) >= tensor_ranks(feat)[:, None]
    assert beyond.any()
    feat[:, 134:140][beyond] = -1
    roles = [name.startswith("convolution_dim_numbers") for name in NODE_COLUMNS]
    feat[:, roles] = np.where(feat[:, roles] == 0, -1, feat[:, roles])
    read = read_graph(graph_file({**arrays, "node_feat": feat})).node_feat
    np.testing.assert_array_equal(read, expected)


@pytest.mark.parametrize("kind", GOOD)
def test_bad_values_are_refused_by_name(graph_file, kind):
    for key, array in GOOD[kind]().items():
        cases = [*DEFECTS[key]]
        negative = put((0,) * array.ndim, -1, "i8")
        if array.dtype.kind in "iu":
            cases.append((lambda a: a.astype("f8") + 0.5, "float64", "integers"))
            cases.append((negative, "holds -1"))
        for number, (change, *words) in enumerate(cases):
            with pytest.raises(GraphFileError, match=r"^broken\.4x4\.npz: ") as caught:
                read_graph(graph_file(changed(kind, key, change), "broken.4x4"), kind)
            text = str(caught.value)
            assert caught.value.got.count("broken.4x4") == 1 and caught.value.expected
            named = key in text or words[0].startswith(("node_", "output", "input", "kernel"))
            assert named and all(word in text for word in words), (key, number, text)


@pytest.mark.parametrize("kind", GOOD)
def test_bombs_are_refused_by_their_headers(tmp_path, monkeypatch, kind):
    """No array is unpacked. The limits are smaller here, and so are the files."""
    for limit in ("MAX_NODES", "MAX_EDGES", "MAX_CONFIGS"):
        monkeypatch.setattr(f"xlarank.data.graph.{limit}", 200)
    for method in ("read", "stream"):
        monkeypatch.setattr(NpzReader, method, lambda *_: pytest.fail("an array was unpacked"))
    of_configs = (NORMALIZERS, "node_config_feat", "config_feat")
    for name, fitting, shape, message in (
        ("config_runtime", (), (100,), "shape"),
        ("config_runtime", of_configs, (300,), "300 configurations; expected 1 to 200"),
        ("config_runtime", of_configs, (0,), "0 configurations"),
        ("node_feat", ("node_opcode",), (300, 140), "300 nodes"),
        ("node_feat", ("node_opcode",), (0, 140), "0 nodes"),
        ("edge_index", (), (300, 2), "300 edges"),
    ):
        arrays = GOOD[kind]()
        for key in (key for key in fitting if key in arrays):
            arrays[key] = np.broadcast_to(arrays[key][:1], (*shape[:1], *arrays[key].shape[1:]))
        arrays[name] = np.broadcast_to(arrays[name].reshape(-1)[:1], shape)
        path = graphs.save_npz(tmp_path / "bomb.npz", arrays)
        for read in (read_graph, config_count):
            with pytest.raises(GraphFileError, match=message):
                read(path, kind)


@pytest.mark.parametrize("kind", GOOD)
def test_other_encodings_of_the_same_graph_read_the_same(graph_file, kind):
    plain = read_graph(graph_file(GOOD[kind](), "plain"))
    arrays = GOOD[kind]()
    runtime = arrays["config_runtime"]  # one apart beyond 2**24: not through float32
    assert plain.cost.tolist() == (runtime / arrays.get(NORMALIZERS, 1)).tolist()
    assert plain.runtime.tolist() == runtime.tolist()
    dtypes = {
        "node_opcode": "u1 i4 >i8",
        "edge_index": "i4 u8",
        "node_feat": "f8 >f4 i8",
        "config_runtime": "u8 i4",
        "node_config_feat": "i1 i2 i8 f2 f8 >f4 >i2",
        "node_config_ids": "i4 u1",
        "node_splits": "i4",
        "config_feat": "f8 i4",
        NORMALIZERS: "i4",
    }
    changes = [(key, np.asfortranarray) for key in ("node_feat", "edge_index", "config_feat")]
    for key, names in dtypes.items():
        changes += [(key, lambda a, d=dtype: a.astype(d)) for dtype in names.split()]
    # -0.0 in one of two equal configurations
    minus = np.where(np.arange(5)[:, None] == 4, np.float32(-1), 1)
    changes.append(("config_feat", lambda a: np.where(a == 0, minus * 0, a)))
    changes.append(("node_splits", np.ravel))
    variants = [changed(kind, key, change) for key, change in changes if key in arrays]
    variants += [{**arrays, "notes": np.array(["measured on a Tuesday"]), "scalar": np.float64(3)}]
    names = {
        "layout": "splits configurable table.codes table.rows table.node",
        "tile": "config_feat normalizers",
    }
    shared = "node_feat opcode edges runtime cost first group"
    names = f"{shared} {names[kind]}".split()
    for number, variant in enumerate(variants):
        graph = read_graph(graph_file(variant, f"variant{number}", compressed=number % 2 == 0))
        assert graph.name == f"variant{number}"
        for get in map(attrgetter, names):
            assert get(graph).dtype == get(plain).dtype and get(graph).dtype.isnative
            assert np.array_equal(get(graph), get(plain))


def test_an_input_layout_may_name_any_dimension_of_the_widest_operand(graph_file):
    """The format does not say which operand a slot describes."""
    nodes = [Node("parameter", (8,)), Node("parameter", (2, 3, 5)), Node("dot", (8,), (0, 1))]
    wrong = pytest.raises(GraphFileError, match="input layout")
    for dimension, refused in ((2, nullcontext()), (3, wrong)):
        with refused:
            graph_of(layout_file(nodes, (2,), [[layout_row(input=(dimension, 1))]]))
    alone = changed("layout", "node_config_feat", row(CONV, 0, input=(5,), kernel=(5, 4)))
    alone["edge_index"] = np.zeros((0, 2), np.int64)
    assert read_graph(graph_file(alone)).edges.shape == (0, 2)


def test_a_graph_may_have_no_configurable_nodes_and_retired_and_unknown_opcodes(graph_file):
    arrays = layout_arrays()
    arrays["node_opcode"] = np.array([0, OPCODE["trace"], OPCODE["tuple-select"], 120, 2], np.uint8)
    arrays["node_config_ids"] = np.zeros(0, np.int64)
    arrays["node_config_feat"] = np.zeros((6, 0, 18), np.float32)
    graph = read_graph(graph_file(arrays))
    assert graph.opcode.tolist() == [0, 97, 101, 120, 2] and graph.table.codes.shape == (6, 0)
    assert len(graph.first) == 1, "all configurations are identical"
    set_to_0 = changed("layout", "node_config_feat", row(CONV, 1, output=(0,)))
    assert read_graph(graph_file(set_to_0)).unset.tolist() == [0]


def with_dots(dimensions, operands=((0, 1),)):
    """x[8,4] @ w[4,4] with these dimension numbers; the output has the rank 2."""
    dot = Node("dot", (8, 4), (0, 1), columns={"is_root": 1})
    arrays = layout_file((parameter(8, 4), parameter(4, 4), dot), (2,), [[layout_row()]])
    return arrays | dot_arrays(operands, dimensions)


def test_dimension_numbers_of_dots_are_read(tmp_path):
    numbers = [[(1,), (0,), (), ()]]
    graph = read_graph(save_npz(tmp_path / "d.npz", with_dots(numbers)))
    assert graph.dot_operands.tolist() == [[0, 1]]
    assert graph.dot_dimensions[0, :, 0].tolist() == [1, 0, -1, -1]
    unknown = with_dots([[()] * 4], ((-1, -1),))
    assert read_graph(save_npz(tmp_path / "u.npz", unknown)).dot_operands.tolist() == [[-1, -1]]
    with pytest.raises(GraphFileError, match="node_dot_operands holds 3; expected -1 to 2"):
        read_graph(save_npz(tmp_path / "w.npz", with_dots(numbers, ((0, 3),))))


@examples(60)
@given(arrays=st.one_of(SCRAMBLED_GRAPHS, SCRAMBLED_KERNELS))
def test_random_graphs_read_as_written(next_path, arrays):
    graph = read_graph(graphs.save_npz(next_path(), arrays))
    if isinstance(graph, LayoutGraph):
        order = np.argsort(arrays["node_config_ids"])
        arrays["node_config_ids"] = arrays["node_config_ids"][order]
        arrays["node_config_feat"] = choices = arrays["node_config_feat"][:, order]
    else:
        choices = arrays["config_feat"]
        expected = arrays["config_runtime"] / arrays[NORMALIZERS]
        assert graph.cost.tolist() == pytest.approx(expected.tolist(), rel=1e-15)
    np.testing.assert_equal(arrays_of(graph), arrays)
    assert len(graph.first) == len({choice.tobytes() for choice in choices})


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


@pytest.mark.parametrize("kind", GOOD)
def test_a_graph_comes_back_and_the_same_arrays_give_the_same_bytes(tmp_path, kind):
    path = tmp_path / "npz/layout/my-gpu/a.npz"  # in new folders
    arrays = GOOD[kind]()
    assert write_graph(path, **arrays).name == "a" and [*path.parent.iterdir()] == [path]
    with np.load(path) as saved:
        np.testing.assert_equal(dict(saved), arrays)
        assert all(saved[key].dtype == array.dtype for key, array in arrays.items())
    # `read_graph` refuses layout configurations in Fortran order, so it is not written.
    fortran = {key: np.asfortranarray(array) for key, array in arrays.items()}
    write_graph(tmp_path / "b.npz", **fortran)
    assert (tmp_path / "b.npz").read_bytes() == path.read_bytes()


def test_an_invalid_graph_is_refused_and_the_old_file_stays(tmp_path):
    # `numpy.savez` would pickle objects.
    key = "node_config_feat"
    wrong = {key: changed("layout", key, lambda a: np.full_like(a, 9))}
    wrong["array notes holds Python objects"] = {**layout_arrays(), "notes": np.array([object()])}
    for before in ({}, {"a.npz": b"old"}):
        for name, content in before.items():
            (tmp_path / name).write_bytes(content)
        for words, arrays in wrong.items():
            with pytest.raises(GraphFileError, match=rf"^a\.npz: .*{words}") as caught:
                write_graph(tmp_path / "a.npz", **arrays)
            assert "partial" not in str(caught.value)
            assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == before
