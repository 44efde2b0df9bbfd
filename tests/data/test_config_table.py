"""The configuration table against the full array that it encodes; loops are the oracle."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from tests.graphs import layout_arrays
from xlarank.data import config_table
from xlarank.data.config_table import ConfigTable, code_counts, group_codes, group_minimum
from xlarank.data.errors import GraphFileError

WIDTH = 18


@st.composite
def full_arrays(
    draw: st.DrawFn, *, max_configs: int = 8, max_nodes: int = 5, pool: int = 6
) -> np.ndarray:
    """``(configs, nodes, 18)`` int8; nodes share a pool of rows, so values repeat."""
    shape = st.tuples(st.integers(1, pool), st.just(WIDTH))
    rows = draw(hnp.arrays(np.int8, shape, elements=st.integers(-1, 5)))
    shape = (draw(st.integers(1, max_configs)), draw(st.integers(0, max_nodes)))
    return rows[draw(hnp.arrays(np.int64, shape, elements=st.integers(0, len(rows) - 1)))]


def build(full: np.ndarray, cuts: tuple[int, ...] = ()) -> ConfigTable:
    """Return the table of a full array that arrives in blocks cut at ``cuts``."""
    return ConfigTable.from_blocks(np.split(full, cuts), configs=full.shape[0], nodes=full.shape[1])


def assert_equal_tables(table: ConfigTable, expected: ConfigTable) -> None:
    for name in ("codes", "rows", "node", "start"):
        np.testing.assert_array_equal(getattr(table, name), getattr(expected, name), name)
        assert getattr(table, name).dtype == getattr(expected, name).dtype, name


@given(full=full_arrays(), data=st.data())
def test_the_table_encodes_the_full_array(full, data):
    table = build(full)
    assert (table.configs, table.nodes) == full.shape[:2]
    assert np.array_equal(table.rows[table.codes], full)
    assert (table.node[table.codes] == np.arange(table.nodes)).all()
    unique = [np.unique(full[:, node], axis=0) for node in range(table.nodes)]
    assert table.start.tolist() == np.cumsum([0, *map(len, unique)]).tolist()
    # Within a node rows ascend as numbers in base 7 whose last entry counts most.
    keys = np.column_stack([table.node, table.rows[:, ::-1]]).tolist()
    expected = []
    for node, rows in enumerate(unique):
        expected += [[node, *reversed(row.tolist())] for row in rows]
    assert keys == sorted(expected)
    chosen = np.array(data.draw(st.lists(st.integers(0, len(full) - 1))), np.intp)
    part = table.select(chosen)
    assert np.array_equal(part.rows[part.codes], full[chosen]) and part.rows is table.rows
    counts = np.bincount(table.codes[chosen].reshape(-1), minlength=len(table.rows))
    assert np.array_equal(part.frequency, counts)


@given(
    full=full_arrays(pool=12),
    dtype=st.sampled_from("i1 i2 i8 u1 f2 f4 f8 >f4 >i4".split()),
    data=st.data(),
)
def test_order_blocks_types_and_pieces_change_nothing_but_the_order_of_codes(full, dtype, data):
    full = np.maximum(full, 0) if dtype == "u1" else full
    table = build(full)
    with pytest.MonkeyPatch.context() as patched:
        for piece in (1, 0):  # few configurations, or nodes, at once
            patched.setattr(config_table, "_PIECE", piece)
            assert_equal_tables(build(full), table)
            assert build(full).frequency.tolist() == table.frequency.tolist()
    cuts = data.draw(st.lists(st.integers(0, len(full)), max_size=4).map(sorted))
    assert_equal_tables(build(full.astype(dtype), tuple(cuts)), table)
    order = [*data.draw(st.permutations(range(len(full)))), *range(len(full))]
    permuted = ConfigTable(table.codes[order], table.rows, table.node, table.start)
    assert_equal_tables(build(full[order]), permuted)


def test_bad_entries_and_missing_configurations_are_refused():
    wrong = (np.nan, np.inf, -np.inf, 6.0, -2.0, 0.5, -0.25)
    for value, position in product(wrong, ((0, 0, 0), (5, 1, 17))):
        full = layout_arrays()["node_config_feat"].astype(np.float64)
        full[position] = value
        with pytest.raises(GraphFileError) as caught:
            build(full, (2, 4))
        assert caught.value.got == f"node_config_feat holds {value}"
    with pytest.raises(GraphFileError, match="6 configurations were read; expected 7"):
        ConfigTable.from_blocks([layout_arrays()["node_config_feat"]], configs=7, nodes=2)


@given(
    codes=hnp.arrays(
        np.int32, st.tuples(st.integers(0, 9), st.integers(0, 5)), elements=st.integers(0, 2)
    ),
    data=st.data(),
)
def test_equal_codes_add_up_equal_rows_are_grouped_and_the_fastest_repeat_counts(codes, data):
    expected = np.array([np.bincount(row, minlength=4) for row in codes]).reshape(len(codes), 4)
    assert np.array_equal(code_counts(codes, 4).toarray(), expected)
    first, group = group_codes(codes)
    rows = [*map(tuple, codes.tolist())]
    distinct = [*dict.fromkeys(rows)]
    assert group.tolist() == [distinct.index(row) for row in rows]
    assert first.tolist() == [rows.index(row) for row in distinct]
    assert first.dtype == group.dtype == np.int64
    # 2**53 + 1 would not survive a detour through floats.
    times = st.lists(st.integers(2**53, 2**60), min_size=len(codes), max_size=len(codes))
    values = np.array(data.draw(times), np.int64)
    fastest = [min(values[group == number]) for number in range(len(first))]
    assert group_minimum(values, group, len(first)).tolist() == fastest
    assert group_minimum(values / 2, group, len(first)).dtype == np.float64
