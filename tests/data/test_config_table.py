"""The configuration table against the full array it stands for, and `numpy.unique` as the oracle."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from tests.graphs import layout_arrays
from xlarank.data import config_table
from xlarank.data.config_table import ConfigTable, code_counts
from xlarank.data.errors import GraphFileError

WIDTH = 18
DTYPES = ("i1", "i2", "i8", "f2", "f4", "f8", ">f4", ">i4")


@st.composite
def full_arrays(draw: st.DrawFn, *, max_configs: int = 8, max_nodes: int = 5, pool: int = 6) -> np.ndarray:
    """``(configs, nodes, 18)`` int8 with any entries; nodes share a pool of rows, so values repeat.

    Layouts need not make sense here: the table must keep whatever is in -1..5.
    """
    rows = draw(hnp.arrays(np.int8, st.tuples(st.integers(1, pool), st.just(WIDTH)), elements=st.integers(-1, 5)))
    shape = (draw(st.integers(1, max_configs)), draw(st.integers(0, max_nodes)))
    return rows[draw(hnp.arrays(np.int64, shape, elements=st.integers(0, len(rows) - 1)))]


def build(full: np.ndarray, cuts: tuple[int, ...] = ()) -> ConfigTable:
    """The table of a full array that arrives in blocks cut at ``cuts``."""
    return ConfigTable.from_blocks(np.split(full, cuts), configs=full.shape[0], nodes=full.shape[1])


def assert_equal_tables(one: ConfigTable, other: ConfigTable) -> None:
    for name in ("codes", "rows", "node", "start"):
        got, want = getattr(one, name), getattr(other, name)
        assert got.dtype == want.dtype and np.array_equal(got, want), name


# What the table is --------------------------------------------------------------------------------------


def test_a_table_by_hand():
    """Two nodes, three configurations; node 0 takes a, b, a and node 1 always takes a."""
    a, b = np.full(WIDTH, -1), np.arange(WIDTH) % 6
    table = build(np.array([[a, a], [b, a], [a, a]], np.float32))
    assert table.codes.tolist() == [[0, 2], [1, 2], [0, 2]]
    assert table.node.tolist() == [0, 0, 1]
    assert table.start.tolist() == [0, 2, 3]
    assert table.frequency.tolist() == [2, 1, 3]
    assert np.array_equal(table.rows, [a, b, a])
    # All 5 is the largest key, 7**18 - 1 - all 6; the others differ in its least and most significant digit.
    full = np.full((4, 1, WIDTH), 5, np.int8)
    full[1], full[2, 0, 0], full[3, 0, 17] = -1, 4, 4
    table = build(full)
    assert len(table.rows) == 4 and np.array_equal(table.rows[table.codes], full)


@given(full=full_arrays(), data=st.data())
def test_the_table_stands_for_the_full_array(full, data):
    """Oracle: `numpy.unique` of one node at a time."""
    table = build(full)
    assert (table.configs, table.nodes) == full.shape[:2]
    assert (table.codes.dtype, table.rows.dtype, table.node.dtype) == (np.int32, np.int8, np.int32)
    assert np.array_equal(table.rows[table.codes], full)
    assert np.array_equal(table.node[table.codes], np.broadcast_to(np.arange(table.nodes), table.codes.shape))
    rows = [np.unique(full[:, node], axis=0) for node in range(table.nodes)]
    assert table.start.tolist() == np.cumsum([0, *map(len, rows)]).tolist()
    assert table.node.tolist() == [node for node, own in enumerate(rows) for _ in own]
    # Within a node rows ascend as numbers in base 7 whose last entry counts most.
    keys = [(int(node), *reversed(row.tolist())) for node, row in zip(table.node, table.rows, strict=True)]
    assert keys == sorted((node, *reversed(row.tolist())) for node, own in enumerate(rows) for row in own)
    chosen = np.array(data.draw(st.lists(st.integers(0, len(full) - 1))), np.intp)
    part = table.select(chosen)
    assert (part.configs, part.nodes) == (len(chosen), table.nodes) and part.rows is table.rows
    assert np.array_equal(part.rows[part.codes], full[chosen])
    assert np.array_equal(part.frequency, np.bincount(table.codes[chosen].reshape(-1), minlength=len(table.rows)))


# Ways to read the same configurations -------------------------------------------------------------------


@given(full=full_arrays(), dtype=st.sampled_from([*DTYPES, "u1"]), data=st.data())
def test_order_blocks_and_types_change_nothing_but_the_order_of_codes(full, dtype, data):
    full = np.maximum(full, 0) if dtype == "u1" else full
    table = build(full)
    cuts = data.draw(st.lists(st.integers(0, len(full)), max_size=4).map(sorted))
    assert_equal_tables(build(full.astype(dtype), tuple(cuts)), table)

    def reused():  # as the stream does: nothing of a block may be kept
        buffer = np.empty((1, *full.shape[1:]), full.dtype)
        for config in full:
            buffer[...] = config
            yield buffer

    got = ConfigTable.from_blocks(reused(), configs=full.shape[0], nodes=full.shape[1])
    assert_equal_tables(got, table)
    order = [*data.draw(st.permutations(range(len(full)))), *range(len(full))]
    assert_equal_tables(build(full[order]), ConfigTable(table.codes[order], table.rows, table.node, table.start))
    nodes = np.array(data.draw(st.permutations(range(full.shape[1]))), int)
    permuted = build(full[:, nodes])
    for place, node in enumerate(nodes):
        theirs = permuted.rows[permuted.start[place] : permuted.start[place + 1]]
        assert np.array_equal(theirs, table.rows[table.start[node] : table.start[node + 1]])


# The branches of the renumbering ------------------------------------------------------------------------


@given(full=st.one_of(full_arrays(max_configs=12), full_arrays(max_configs=2, max_nodes=8, pool=12)))
def test_small_pieces_or_no_lookup_give_the_same_table(full):
    """Few configurations of many distinct rows leave the lookup, once its allowance is taken away."""
    expected = build(full)
    counts = code_counts(expected.codes, len(expected.rows)).sum(axis=0)
    with pytest.MonkeyPatch.context() as patched:
        for piece in (1, 0):
            patched.setattr(config_table, "_PIECE", piece)
            got = build(full)
            assert_equal_tables(got, expected)
            assert got.frequency.tolist() == np.asarray(counts).reshape(-1).tolist()


def test_the_fallback_is_taken_when_hardly_any_row_repeats(monkeypatch):
    """8 x 12 combinations of node and row for 8 codes; the lookup must not be allocated."""
    full = np.random.default_rng(0).integers(-1, 6, (1, 8, WIDTH)).astype(np.int8)
    unique, called = np.unique, []

    def watched(*arguments, **options):
        called.append(options.get("return_inverse", False))
        return unique(*arguments, **options)

    monkeypatch.setattr(config_table.np, "unique", watched)
    build(full)
    assert True not in called, "the lookup is small here, so it is used"
    monkeypatch.setattr(config_table, "_PIECE", 0)
    build(full)
    assert True in called


# Refusals and sums --------------------------------------------------------------------------------------


def test_bad_entries_and_missing_configurations_are_refused():
    texts = {np.nan: "nan", np.inf: "inf", -np.inf: "-inf", 6: "6.0", -2: "-2.0", 0.5: "0.5", -0.25: "-0.25"}
    for value, text in texts.items():
        for place in ((0, 0, 0), (5, 1, 17)):
            full = layout_arrays()["node_config_feat"].astype(np.float64)
            full[place] = value
            with pytest.raises(GraphFileError) as caught:
                build(full, (2, 4))
            assert caught.value.got == f"node_config_feat holds {text}"
    with pytest.raises(GraphFileError, match="6 configurations were read; expected 7"):
        ConfigTable.from_blocks([layout_arrays()["node_config_feat"]], configs=7, nodes=2)


@given(codes=hnp.arrays(np.int32, st.tuples(st.integers(0, 6), st.integers(0, 5)), elements=st.integers(0, 3)))
def test_equal_codes_of_a_configuration_add_up(codes):
    expected = np.array([np.bincount(row, minlength=4) for row in codes]).reshape(len(codes), 4)
    counts = code_counts(codes, 4)
    assert counts.shape == expected.shape
    assert np.array_equal(counts.toarray(), expected)
