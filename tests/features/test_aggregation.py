"""Sums and maxima over nodes and pairs, against loops over the configurations; how they are cut must not show."""

from __future__ import annotations

from fnmatch import fnmatch

import numpy as np
import pytest

from tests.features.helpers import SAMPLE, by_name, layout_file, layout_of, load
from tests.features.programs import fitting_graph
from tests.graphs import Node, layout_arrays, layout_row
from xlarank.data.graph import LayoutGraph
from xlarank.data.schema import OPCODE
from xlarank.features.assemble import assemble
from xlarank.features.catalogue import blocks_of
from xlarank.features.layout import aggregation
from xlarank.features.layout.aggregation import Aggregation, LayoutBlock
from xlarank.features.layout.layout_context import LayoutContext
from xlarank.features.recipe import FeatureSettings

SEEDS = range(200, 212)
NAMES = FeatureSettings().config_columns("layout")
BLOCKS = [block for block in blocks_of("layout") if isinstance(block, LayoutBlock)]


@pytest.fixture(scope="module")
def contexts() -> list[LayoutContext]:
    graphs = [layout_of(fitting_graph(seed)) for seed in range(300, 312)]
    return [LayoutContext(graph) for graph in graphs if len(graph.configurable)]


def quantities(context: LayoutContext, count: int, *, types: bool) -> list[np.ndarray]:
    """Some of them 0 for all rows, or for the rows of most nodes."""
    random = np.random.default_rng(1)
    kinds = context.type_coarse_class if types else context.coarse_class[context.table.node]
    values = [random.normal(size=len(kinds)) for _ in range(count)]
    values[1] = np.zeros(len(kinds))
    values[2] = values[2] * (kinds == kinds[0])
    return values


def test_sums_and_maxima_over_nodes(contexts, monkeypatch):
    for dear in (0.0, 1e9):  # sparse, dense
        monkeypatch.setattr(aggregation, "_SPARSE_NS", dear)
        for context in contexts:
            codes = context.table.codes
            for types in (True, False):
                values = quantities(context, 5, types=types)
                aggregated = Aggregation(context)
                first = aggregated.sum(values[:3], over=2.0, each_node=not types)
                second = aggregated.sum(values[3:], over=[1.0, 4.0], each_node=not types)
                shifted = [np.array(values) + shift for shift in (-5.0, 0.0, 5.0)]
                largest = [aggregated.maximum(list(table), each_node=not types) for table in shifted]
                batch = aggregated.plan()(codes)
                assert len(batch) == len(codes) and (batch[first][:, 1] == 0).all(), "not even noise"
                for number, config in enumerate(codes.tolist()):
                    rows = context.row_type[config] if types else np.array(config)
                    sums = [value[rows].sum() / over for value, over in zip(values, (2, 2, 2, 1, 4), strict=True)]
                    found = [*batch[first][number], *batch[second][number]]
                    np.testing.assert_allclose(found, sums, rtol=1e-9, atol=1e-9)
                    for request, table in zip(largest, shifted, strict=True):
                        assert batch[request][number].tolist() == pytest.approx(table[:, rows].max(axis=1).clip(0))


def test_sums_over_pairs(contexts):
    """Quantities that differ for every combination; each is computed once a graph."""
    for context in contexts:
        pairs = context.siblings if len(context.siblings) else context.pairs[0]
        keys, calls = np.stack([rows.key for rows in context.slots.values()]), []

        def of_pair(pair, left, right, pairs=pairs, keys=keys, calls=calls):
            calls.append(len(pair))
            wanted, made = keys[pairs.left_slot[pair], left], keys[pairs.right_slot[pair], right]
            return np.stack([pairs.bytes[pair], np.sin(wanted) * pairs.bytes[pair], wanted + 3.0 * made], axis=1)

        aggregated = Aggregation(context)
        request = aggregated.sum_pairs(pairs, of_pair, [1.0, 1.0, 2.0])
        quarter = aggregated.sum_pairs(pairs, lambda *sides, of=of_pair: of(*sides)[:, :1], [4.0])
        plan = aggregated.plan()
        found = np.concatenate([plan(codes[None])[request] for codes in context.table.codes])
        assert len(calls) == 2 * (len(pairs) > 0)
        for number, codes in enumerate(context.table.codes):
            types, every = context.row_type[codes], np.arange(len(pairs))
            total = of_pair(every, types[pairs.left], types[pairs.right]).sum(axis=0)
            np.testing.assert_allclose(found[number], total / [1, 1, 2], rtol=1e-9, atol=1e-9)
            assert plan(codes[None])[quarter][0, 0] == pytest.approx(total[0] / 4)


# The one pass over the configurations -----------------------------------------------------------------------


@pytest.fixture(scope="module")
def whole() -> list[tuple[LayoutGraph, np.ndarray]]:
    """Graphs and their columns of configurations."""
    sample = load(SAMPLE / "layout" / "cpu" / "default" / "train" / "dlrm__a.npz")
    graphs = [layout_of(arrays) for arrays in (sample, *map(fitting_graph, SEEDS))]
    return [(graph, assemble(graph).config_values) for graph in graphs]


def test_batches_and_ways_to_add_up_do_not_show(whole, monkeypatch):
    one = {(aggregation, "_CODES"): 1, (aggregation, "_CONFIGS"): (1, 1)}
    for settings in (
        {**one, (aggregation, "_COMBINATIONS"): 0},  # of the pairs taken only
        {(aggregation, "_CODES"): 20, (aggregation, "_CONFIGS"): (2, 3)},
        {(aggregation, "_SPARSE_NS"): 0.0},
        {(aggregation, "_SPARSE_NS"): 1e9},
    ):
        with monkeypatch.context() as patch:
            for (module, name), value in settings.items():
                patch.setattr(module, name, value)
            for graph, rows in whole[:: 2 if settings.keys() & one.keys() else 1]:
                np.testing.assert_allclose(assemble(graph).config_values, rows, rtol=1e-5, atol=1e-6)


def test_batches_are_as_large_as_they_are_said_to_be(monkeypatch):
    monkeypatch.setattr(aggregation, "_CONFIGS", (2, 4))
    context, seen = LayoutContext(layout_of(layout_arrays())), []  # 5 distinct configurations of 2 nodes
    plan = Aggregation.plan

    def noted(self):
        batch_of = plan(self)
        return lambda codes: seen.append(len(codes)) or batch_of(codes)

    monkeypatch.setattr(Aggregation, "plan", noted)
    for codes in (12, 2):
        monkeypatch.setattr(aggregation, "_CODES", codes)
        BLOCKS[0].compute(context)
    assert seen == [4, 1, 2, 2, 1]


def test_a_block_alone_gives_what_it_gives_among_others(whole):
    for block in BLOCKS:
        at = NAMES.index(next(iter(block.columns)))
        for graph, rows in whole[:4]:
            alone = block.compute(LayoutContext(graph))
            assert (alone.dtype, alone.shape) == (np.float32, (len(rows), len(block.columns)))
            np.testing.assert_allclose(alone, rows[:, at : at + len(block.columns)], rtol=1e-5, atol=1e-6)


def test_columns_of_what_a_graph_does_not_have_are_exactly_0(whole):
    for kind in ("convolution", "dot", "reshape"):
        about = [number for number, name in enumerate(NAMES) if f"__{kind}_" in name]
        opcodes = [OPCODE[name] for name in ((kind, "bitcast") if kind == "reshape" else (kind,))]
        without = [rows for graph, rows in whole if not np.isin(graph.opcode[graph.configurable], opcodes).any()]
        assert len(about) > 20 and len(without) > 2
        assert not any(rows[:, about].any() for rows in without)


#: What says how a tensor lies, whoever chose it.
STATE = (
    *("padding__*", "packed__*", "types__*", "roles__*", "violation__*", "candidates__*", "rank__*", "zscore__*"),
    *("disagreement__mismatch_*", "disagreement__consumer_*", "disagreement__producer_*", "siblings__mismatch_*"),
    "change__*_unlike_*",
)


def test_without_any_layout_set_nothing_is_changed():
    for seed in SEEDS:
        arrays = fitting_graph(seed)
        unset = {**arrays, "node_config_feat": np.full_like(arrays["node_config_feat"], -1)}
        for name, values in by_name(assemble(layout_of(unset))).items():
            if not any(fnmatch(name, pattern) for pattern in STATE) or "_waste_change_" in name:
                assert values.tolist() == [0.0], name


# Nodes that are alike ---------------------------------------------------------------------------------------


def test_nodes_of_one_shape_and_element_type_share_their_types_of_rows():
    nodes = (
        Node("parameter", (8, 16)),
        *[Node("tanh", (8, 16), (0,))] * 2,
        Node("tanh", (8, 16), (0,), element="bf16"),
        Node("exponential", (8, 16), (0,)),
    )
    rows = [[layout_row(output=(0, 1))] * 4, [layout_row()] * 4]
    context = LayoutContext(layout_of(layout_file(nodes, (1, 2, 3, 4), rows)))
    assert context.signature[0] == context.signature[1] and len(set(context.signature.tolist())) == 3
    assert len(context.table.rows) == 8 and len(context.type_node) == 6


def test_convolutions_of_one_shape_with_other_dimension_numbers_are_not_alike():
    """[4,4,4] with the features last or first: the same layout puts features or a batch along the lanes."""
    stem = "convolution_dim_numbers"
    nodes = [Node("parameter", (4, 4, 4)), Node("parameter", (3, 4, 4))]
    for batch, feature in ((0, 2), (2, 0)):
        numbers = {f"{stem}_output_batch_dim": batch, f"{stem}_output_feature_dim": feature}
        nodes.append(Node("convolution", (4, 4, 4), (0, 1), window=(3,), columns=numbers))
    found = by_name(assemble(layout_of(layout_file(nodes, (2, 3), [[layout_row(output=(2, 1, 0))] * 2]))))
    assert found["roles__convolution_output_feature_minor__share"].tolist() == [0.5]
    assert found["roles__convolution_output_batch_minor__share"].tolist() == [0.5]
