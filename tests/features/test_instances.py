"""Instances against the slow reference, and the sparse counts against loops."""

from __future__ import annotations

from collections import Counter
from math import log2

import numpy as np
import pytest
from hypothesis import given

from tests.examples import examples
from tests.features.helpers import SAMPLE, layout_of, load
from tests.features.oracle_configs import SLOTS, Configuration, Configured
from tests.features.oracle_copies import Copies, Pair, unlike
from tests.features.oracle_program import fused_away
from tests.features.programs import fitting_graph
from tests.graphs import Arrays, layout_arrays, layout_graphs, layout_row
from xlarank.data.schema import OPCODE
from xlarank.features.assemble import instance_table
from xlarank.features.catalogue import INSTANCE_BLOCKS
from xlarank.features.instances.graph_instances import Instances
from xlarank.features.instances.pair_blocks import InstanceRarity
from xlarank.features.layout.layout_context import LayoutContext
from xlarank.features.program.opcode_classes import OPCODE_GROUPS, opcode_group

COLUMNS = {name: text for block in INSTANCE_BLOCKS for name, text in block.columns.items()}
NODE = (
    "node__opcode__group",
    "node__rank__dims",
    "node__bytes__log2",
    "node__fused__flag",
    "node__fanout__count",
    "node__flops__log2",
    "row__given__count",
    "row__changed__count",
    *(
        f"{slot}__{what}__row"
        for slot in SLOTS
        for what in ("given", "changed", "distance", "contiguity", "minor", "kept")
    ),
)
PAIR = (
    "pair__kind__number",
    "pair__unlike__flag",
    "pair__given__count",
    "pair__slot__left",
    "pair__bytes__log2",
    *(f"pair__{what}__{side}" for side in ("left", "right") for what in ("given", "changed", "distance", "opcode")),
)


def group_of(opcode: str) -> int:
    return int(opcode_group(np.array([OPCODE[opcode]]))[0])


def node_values(graph: Configured, config: Configuration, place: int) -> list[float]:
    """The columns `NODE` of one node in one configuration."""
    node = graph.configurable[place]
    choices = config.choices[place]
    found: list[float] = [
        group_of(graph.opcodes[node]),
        graph.tensors[node].rank,
        log2(1 + graph.tensors[node].bytes),
        fused_away(graph, node),
        sum(operand == node for _, operand in graph.edges),
        log2(1 + graph.flops(node)),
        sum(bool(choice.given) for choice in choices if choice is not None),
        sum(choice.changed for choice in choices if choice is not None),
    ]
    stored = sum(graph.tensors[n].bytes for n in graph.nodes if not fused_away(graph, n))
    for choice, tensor_node in zip(choices, graph.slot_tensor[place], strict=True):
        if choice is None:
            found += [-1] * 6
            continue
        tensor, layout = choice.tensor, choice.layout
        minor = tensor.dims[layout[0]] if layout else 0
        found += [bool(choice.given), choice.changed, tensor.distance(layout), tensor.contiguity(layout)]
        kept = tensor.bytes if choice.given and fused_away(graph, tensor_node) else 0
        found += [log2(1 + minor), log2(1 + 1e6 * kept / max(stored, 1))]
    return found


def pair_values(graph: Configured, config: Configuration, pair: Pair) -> list[float]:
    """The columns `PAIR` of one pair in one configuration."""
    sides = pair.sides(config)
    found: list[float] = [
        3 if pair.distance == 0 else min(pair.distance, 3) - 1,
        unlike(pair, config),
        sum(bool(side.given) for side in sides),
        pair.left_slot,
        log2(1 + pair.bytes),
    ]
    for side, place in zip(sides, (pair.left, pair.right), strict=True):
        found += [bool(side.given), side.changed, side.tensor.distance(side.layout)]
        found.append(group_of(graph.opcodes[graph.configurable[place]]))
    return found


def rounded(values: object) -> tuple[float, ...]:
    return tuple(np.round(np.asarray(values, np.float64), 4).tolist())


def compare(arrays: Arrays) -> None:
    """Every configuration's instances, as a bag of rows."""
    graph = layout_of(arrays)
    context = LayoutContext(graph)
    instances = instance_table(context)
    oracle = Configured(arrays, context.slot_tensor.tolist())
    copies = Copies(oracle)
    rows = [{oracle.full[c, place].tobytes() for c in oracle.distinct} for place in oracle.places]
    place_of = {name: number for number, name in enumerate(instances.columns)}
    counts = instances.counts().toarray()
    assert counts.shape == (len(oracle.distinct), len(instances))
    of_pairs = instances.values[:, place_of["pair__kind__number"]] >= 0
    for number, c in enumerate(oracle.distinct):
        config = Configuration(oracle, c)
        nodes = Counter(
            rounded(node_values(oracle, config, place)) for place in oracle.places if len(rows[place]) > 1
        )
        pairs = Counter(
            rounded(pair_values(oracle, config, pair))
            for pair in [*copies.pairs, *copies.siblings]
            if len(rows[pair.left]) > 1 or len(rows[pair.right]) > 1
        )
        for expected, names, kind in ((nodes, NODE, ~of_pairs), (pairs, PAIR, of_pairs)):
            found: Counter[tuple[float, ...]] = Counter()
            for instance in np.flatnonzero((counts[number] > 0) & kind):
                found[rounded(instances.values[instance, [place_of[name] for name in names]])] += int(
                    counts[number, instance]
                )
            assert found == expected


def test_programs_that_make_sense() -> None:
    for seed in range(20):
        compare(fitting_graph(seed))


@given(arrays=layout_graphs())
@examples(25)
def test_graphs_of_unrelated_shapes(arrays: Arrays) -> None:
    compare(arrays)


@pytest.fixture(scope="module")
def instances() -> Instances:
    return instance_table(LayoutContext(layout_of(load(SAMPLE / "layout/cpu/default/train/dlrm__a.npz"))))


def test_sums_and_counts(instances: Instances, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sums are counts times scores; batches and a choice of configurations change nothing; no two are equal."""
    counts, scores = instances.counts().toarray(), np.random.default_rng(0).normal(size=(len(instances), 3))
    sums = instances.sums(scores)
    assert sums == pytest.approx(counts @ scores)
    assert instances.sums(scores[:, 0]) == pytest.approx(counts @ scores[:, 0])
    assert (counts.sum(axis=0) > 0).all() and len(np.unique(instances.values, axis=0)) == len(instances)
    some = np.array([5, 2, 9])
    assert np.array_equal(instances.counts(some).toarray(), counts[some])
    assert np.array_equal(instances.take(some).counts().toarray(), counts[some])
    assert instances.counts(np.zeros(0, np.int64)).shape == (0, len(instances))
    monkeypatch.setattr("xlarank.features.instances.graph_instances._BATCH", 1)
    assert np.array_equal(instances.counts().toarray(), counts) and np.array_equal(instances.sums(scores), sums)


def test_parts_are_the_counts_in_words(instances: Instances) -> None:
    for config in (0, 7):
        counts = instances.counts(np.array([config])).toarray()[0].astype(int)
        assert Counter(part.instance for part in instances.parts(config)) == +Counter(dict(enumerate(counts)))
    nodes = [part for part in instances.parts(7) if len(part.nodes) == 1]
    assert all(str(part.nodes[0]) in part.text for part in nodes)
    assert any("output {" in part.text for part in nodes)
    assert any("against" in part.text for part in instances.parts(7))


def instances_of(choices: list[tuple[np.ndarray, ...]], *, candidates: bool = True) -> Instances:
    """Of the layout graph of the tests, whose convolution and reshape are configurable."""
    arrays = {**layout_arrays(), "node_config_feat": np.array(choices, np.float32)}
    arrays["config_runtime"] = np.arange(1, len(choices) + 1)
    return instance_table(LayoutContext(layout_of(arrays)), candidates=candidates)


def test_rarity_by_hand() -> None:
    """Of four distinct configurations three leave the reshape as it is, and two the convolution."""
    unset, first, second = layout_row(), layout_row(output=(1, 0)), layout_row(output=(0, 3))
    choices = [(unset, unset), (unset, first), (second, unset), (layout_row(output=(3, 0)), unset)]
    found = instances_of(choices)
    names = ["node__opcode__group", "output__given__row", *InstanceRarity.columns]
    table = found.values[:, [found.columns.index(name) for name in names]]
    for opcode, given_, shares in (
        ("convolution", 0, (1, 0)),
        ("convolution", 1, (2, 1)),
        ("reshape", 1, (2, log2(3))),
    ):
        rows = table[(table[:, 0] == group_of(opcode)) & (table[:, 1] == given_)][:, 2:]
        assert len(rows) and rows == pytest.approx(np.tile(shares, (len(rows), 1)))
    inductive = instances_of(choices, candidates=False)
    assert inductive.columns == [name for name in COLUMNS if name not in InstanceRarity.columns]


def test_one_distinct_configuration_has_no_instances() -> None:
    found = instances_of([(layout_row(), layout_row())] * 3)
    assert (len(found), found.counts().shape) == (0, (1, 0))
    assert found.sums(np.zeros(0)).tolist() == [0.0]


def test_groups_cover_what_classes_call_elementwise() -> None:
    groups = [OPCODE_GROUPS[group_of(opcode)] for opcode in ("exponential", "maximum", "while")]
    assert groups == ["transcendental", "elementwise", "other"]
