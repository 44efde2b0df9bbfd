"""Sums and maxima over nodes and pairs, against loops over the configurations."""

from __future__ import annotations

import numpy as np
import pytest

from tests.features.helpers import layout_of
from tests.features.programs import fitting_graph
from xlarank.features.layout import aggregation
from xlarank.features.layout.aggregation import Aggregation, Request
from xlarank.features.layout.context import LayoutContext

SEEDS = [seed for seed in range(300, 330) if len(fitting_graph(seed)["node_config_ids"]) > 0]


@pytest.fixture(params=SEEDS[::3])
def context(request) -> LayoutContext:
    return LayoutContext(layout_of(fitting_graph(request.param)))


def quantities(context: LayoutContext, count: int, *, types: bool) -> list[np.ndarray]:
    """Some of them 0 for all rows, or for the rows of most nodes."""
    random = np.random.default_rng(1)
    rows = len(context.type_node) if types else len(context.table.rows)
    values = [random.normal(size=rows) for _ in range(count)]
    kinds = context.type_coarse_class if types else context.coarse_class[context.table.node]
    values[1] = np.zeros(rows)
    values[2] = values[2] * (kinds == kinds[0])
    return values


def expected_sum(context: LayoutContext, values: np.ndarray, *, types: bool) -> list[float]:
    found = []
    for codes in context.table.codes.tolist():
        found.append(sum(values[context.row_type[code] if types else code] for code in codes))
    return found


def answered(aggregated: Aggregation, codes: np.ndarray, *questions: Request) -> list[np.ndarray]:
    batch = aggregated.plan()(codes)
    assert len(batch) == len(codes)
    return [batch[question] for question in questions]


@pytest.mark.parametrize("types", [True, False], ids=["types", "each node"])
@pytest.mark.parametrize("dear", [0.0, 1e9], ids=["sparse", "dense"])
def test_sums_over_nodes(context, monkeypatch, types, dear):
    monkeypatch.setattr(aggregation, "_SPARSE_NS", dear)
    values = quantities(context, 5, types=types)
    aggregated = Aggregation(context)
    first = aggregated.sum(values[:3], over=2.0, each_node=not types)
    second = aggregated.sum(values[3:], over=[1.0, 4.0], each_node=not types)
    one, two = answered(aggregated, context.table.codes, first, second)
    scale = (2, 2, 2, 1, 4)
    for number, column in enumerate([*one.T, *two.T]):
        wanted = np.array(expected_sum(context, values[number], types=types)) / scale[number]
        np.testing.assert_allclose(column, wanted, rtol=1e-9, atol=1e-9)
    assert (one[:, 1] == 0).all(), "not even noise"


@pytest.mark.parametrize("types", [True, False], ids=["types", "each node"])
@pytest.mark.parametrize("shift", [-5.0, 0.0, 5.0])
def test_the_largest_over_nodes_and_at_least_0(context, types, shift):
    values = [quantity + shift for quantity in quantities(context, 3, types=types)]
    aggregated = Aggregation(context)
    (found,) = answered(aggregated, context.table.codes, aggregated.maximum(values, each_node=not types))
    for number, codes in enumerate(context.table.codes.tolist()):
        at = context.row_type[codes] if types else np.array(codes)
        wanted = [max(0.0, *(float(quantity[place]) for place in at)) for quantity in values]
        assert found[number].tolist() == pytest.approx(wanted)


def test_sums_over_pairs(context):
    """Quantities that tell every combination apart: bytes, and which layouts meet."""
    pairs = context.siblings if len(context.siblings) else context.pairs[0]
    slots = list(context.slots.values())

    def of_pair(pair, left, right):
        wanted = np.stack([rows.key for rows in slots])[pairs.left_slot[pair], left]
        made = np.stack([rows.key for rows in slots])[pairs.right_slot[pair], right]
        return np.stack([pairs.bytes[pair], np.sin(wanted) * pairs.bytes[pair], wanted + 3.0 * made], axis=1)

    aggregated = Aggregation(context)
    first = aggregated.sum_pairs(pairs, of_pair, [1.0, 1.0, 2.0])
    second = aggregated.sum_pairs(pairs, lambda *sides: of_pair(*sides)[:, :1], [4.0])
    found, quarter = answered(aggregated, context.table.codes, first, second)
    assert found.shape == (len(context.table.codes), 3)
    for number, codes in enumerate(context.table.codes):
        types = context.row_type[codes]
        total = np.zeros(3)
        for pair in range(len(pairs)):
            sides = types[pairs.left[pair]], types[pairs.right[pair]]
            total += of_pair(np.array([pair]), *(np.array([side]) for side in sides))[0]
        np.testing.assert_allclose(found[number], total / [1, 1, 2], rtol=1e-9, atol=1e-9)
        assert quarter[number, 0] == pytest.approx(total[0] / 4)


def test_quantities_are_computed_once_for_each_combination_of_requested_layouts():
    """However many configurations there are."""
    context = next(
        c for c in (LayoutContext(layout_of(fitting_graph(s))) for s in range(300)) if len(c.siblings) > 1
    )
    looked_at = []
    aggregated = Aggregation(context)

    def of_pair(pair, left, right):
        looked_at.append(len(pair))
        return np.ones((len(pair), 1))

    question = aggregated.sum_pairs(context.siblings, of_pair, [1.0])
    answer = aggregated.plan()
    for codes in context.table.codes:
        assert answer(codes[None])[question].tolist() == [[len(context.siblings)]]
    assert len(looked_at) == 1


def test_answers_stay_apart_however_they_are_asked_for(context):
    """Requests of all kinds, mixed; each index gets its own."""
    aggregated = Aggregation(context)
    ones, nodes = np.ones(len(context.type_node)), context.table.nodes
    everything = [
        (aggregated.sum([ones]), nodes),
        (aggregated.maximum([7 * ones]), 7),
        (aggregated.sum([np.ones(len(context.table.rows)), 0 * context.table.node], each_node=True), [nodes, 0]),
        (aggregated.sum([0 * ones, 3 * ones, 0 * ones], over=3.0), [0, nodes, 0]),
        (aggregated.maximum([0 * ones - 1], each_node=False), 0),
    ]
    batch = aggregated.plan()(context.table.codes[:1])
    for question, wanted in everything:
        assert batch[question][0].tolist() == np.atleast_1d(wanted).tolist()
    target = np.zeros((1, 6), np.float32)
    direct = [(question, at) for (question, _), at in zip(everything, (5, 4, 2, 1), strict=False) if at != 1]
    batch.write(direct, target)
    assert target.tolist() == [[0, 0, nodes, 0, 7, nodes]]
