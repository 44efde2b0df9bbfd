"""Trees on instances, whose sums are the scores; RankNet's loss."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.models.helpers import fitted, graph_rows, saved
from xlarank.data.errors import ModelError
from xlarank.features.instances.graph_instances import Instances
from xlarank.models.model import Model
from xlarank.models.objectives import HESSIAN_FLOOR, RankNetLoss, merge_ties, pair_sign, row_weights
from xlarank.models.summed import newton_step, pair_terms
from xlarank.models.training_data import TrainingData
from xlarank.models.validation.metrics import kendall_tau

NODES = 6
ROWS = 3


def pooled_graph(name, configs, seed, columns=("size", "penalty", "noise")):
    """Return a graph whose runtime is the sum of size * penalty of a row of each node, which no
    column tells.
    """
    rng = np.random.default_rng(seed)
    size = np.repeat(rng.integers(1, 9, NODES), ROWS)
    penalty = np.tile(np.arange(ROWS), NODES)
    values = np.stack([size, penalty, rng.random(len(size))], axis=1).astype(np.float32)
    codes = rng.integers(0, ROWS, (configs, NODES)).astype(np.uint8)
    cost = 1000 + 10 * (size * penalty)[np.arange(0, NODES * ROWS, ROWS) + codes].sum(axis=1)
    instances = Instances(
        columns=[*columns],
        values=values,
        codes=codes,
        node=np.arange(NODES),
        opcode=np.zeros(NODES, np.int16),
        first=np.arange(0, NODES * ROWS, ROWS),
        rows=np.full((NODES * ROWS, 18), -1, np.int8),
        row_instance=np.arange(NODES * ROWS),
        request=np.zeros((NODES * ROWS, 3), np.int32),
        pairs=np.zeros((0, 5), np.int32),
        pair_first=np.zeros(0, np.int32),
        pair_width=np.zeros(0, np.int32),
        pair_instance=np.zeros(0, np.int32),
    )
    graph = graph_rows(name, cost.tolist(), features=np.zeros((configs, 3)))
    return replace(graph, instances=lambda: instances)


def pooled_data(graphs=6, configs=40):
    pooled = [pooled_graph(f"f{i // 2}__{i}", configs, i) for i in range(graphs)]
    return TrainingData.from_graphs(pooled)


def trained(data=None, **params):
    return fitted("sum-pooled", data or pooled_data(), **{"min_data_in_leaf": 2, **params})


def test_it_learns_what_only_instances_tell():
    graph = pooled_graph("unseen__a", 60, 99)
    data = pooled_data(graphs=12, configs=60)
    quick = {"rounds": 60, "learning_rate": 0.3, "leaf_l2": 0.001, "feature_fraction": 1.0}
    sampled = {"configs": 40, "round_configs": 16}
    every, some = (trained(data, **quick, **few).score(graph) for few in ({}, sampled))
    assert min(kendall_tau(every, graph.row_cost), kendall_tau(some, graph.row_cost)) > 0.9
    assert not np.array_equal(every, some)


def test_the_first_tree_is_a_newton_step_on_the_sums():
    data = pooled_data(graphs=2)
    whole = {"bagging_fraction": 1.0, "feature_fraction": 1.0, "tie_tolerance": 0.0}
    model = trained(data, rounds=1, learning_rate=0.5, leaf_l2=0.2, **whole)
    tables = [graph.instances() for graph in data.parts]
    trees = model.members[0].booster.trees
    leaves = [trees.predict(table.values, pred_leaf=True).reshape(-1) for table in tables]
    eye = np.eye(int(np.max(leaves)) + 1)
    counts = [table.counts() @ eye[leaf] for table, leaf in zip(tables, leaves, strict=True)]
    terms = [terms_of(np.zeros(40), graph.row_cost) for graph in data.parts]
    values = 0.5 * newton_step(terms, counts, 0.2)
    for graph, held in zip(data.parts, counts, strict=True):
        assert model.score(graph) == pytest.approx(-held @ values)


def test_saved_and_loaded_it_keeps_scores_stages_and_instances(tmp_path):
    model = trained()
    graph = pooled_graph("unseen__a", 30, 99)
    saved(model, tmp_path)
    loaded = Model.load(tmp_path)
    scores = model.score(graph)
    assert np.array_equal(loaded.score(graph), scores)
    assert next(iter(loaded.importance())) in ("size", "penalty")
    stages = [*loaded.staged(graph, 8)]
    assert len(stages) == 3 and stages[-1] == pytest.approx(scores)


def test_rows_without_their_instances_and_other_instances_are_refused():
    model = trained(rounds=2)
    graph = pooled_graph("unseen__a", 30, 99)
    other = pooled_graph("unseen__a", 30, 99, ["size", "penalty", "other"])
    for rows in (replace(graph, instances=None), other):
        with pytest.raises(ModelError, match="without their instances, or with others"):
            model.score(rows)
    graphs = [pooled_graph("a", 9, 0), replace(pooled_graph("b", 9, 1), instances=None)]
    with pytest.raises(ModelError, match="b and a have different instances"):
        trained(TrainingData.from_graphs(graphs))


def terms_of(relevance, cost, tolerance=0.0, weight=1.0):
    return pair_terms(relevance, pair_sign(cost[:, None], cost, tolerance), weight)


def test_pairs_by_hand():
    """Relevances ln 3 apart the wrong way: p = 3/4. One row faster than two that tie: a mean of two
    pairs.
    """
    pair = np.array([[0, 1], [1, 0]])
    of_three = np.array([[0, 1, 1], [1, 0, 0], [1, 0, 0]])
    for relevance, cost, gradient, weight in (
        ([0.0, math.log(3)], [1, 2], [-0.75, 0.75], pair * 3 / 16),
        ([-1e6, 1e6], [1, 2], [-1, 1], pair * 0),
        ([0, 0, 0], [1, 2, 2], [-1 / 2, 1 / 4, 1 / 4], of_three / 8),
    ):
        for times in (1.0, 3.0):
            terms = terms_of(np.array(relevance, float), np.array(cost, float), weight=times)
            assert terms[0] == pytest.approx(times * np.array(gradient))
            assert terms[1] == pytest.approx(times * weight)
    ties = terms_of(np.arange(3.0), np.array([100.0, 101.0, 100.5]), 0.01)
    assert not ties[0].any() and not ties[1].any()


def test_leaves_in_one_step_by_hand():
    """gradient (-1/2, 1/2), L = [[1, -1], [-1, 1]] / 4.

    The slower one holds two instances of the only leaf: slope 1, curve 4 / 4 = 1, so v = -1 / (1 +
    ridge). If the faster holds one instance of a first leaf, the slower two of a second, S =
    diag(1, 2) gives slope (-1/2, 1) and curve [[1, -2], [-2, 4]] / 4. With ridge 1/4, [[2, -2],
    [-2, 5]] v = (2, -4): v = (1/3, -2/3).
    """
    terms = terms_of(np.zeros(2), np.array([1.0, 2.0]))
    held = np.array([[0.0], [2.0]])
    assert newton_step([terms], [held], 0.0) == pytest.approx([-1.0])
    assert newton_step([terms, terms], [held, held], 1.0) == pytest.approx([-0.5]), "a mean"
    assert newton_step([terms], [np.diag([1.0, 2.0])], 0.25) == pytest.approx([1 / 3, -2 / 3])


@given(
    st.lists(st.floats(0.1, 1e12), min_size=1, max_size=30).map(np.array),
    st.sampled_from((1e-4, 0.01, 0.5)),
)
def test_merged_costs_lie_within_the_tolerance_and_keep_their_order(cost, tolerance):
    merged = merge_ties(cost, tolerance)
    assert (np.diff(merged[np.argsort(cost, kind="stable")]) >= 0).all()
    for level in np.unique(merged):
        members = cost[merged == level]
        assert members.max() <= members.min() * (1 + tolerance) * (1 + 1e-9), "no chain"
    assert (merged <= cost * (1 + 1e-9)).all(), "a cost is rounded down to its step"
    assert merge_ties(cost, 0.0) is cost


def loss_of(graphs, *, pairs=1, how="rows"):
    indptr = np.cumsum([0, *map(len, graphs)])
    return RankNetLoss(np.concatenate(graphs), indptr, row_weights(indptr, how), pairs, 0.0)


def test_gradients_by_hand(monkeypatch):
    """Two rows draw each other, so their pair counts twice. p = 1 / (1 + e^(ln 3 - 0)) = 1/4."""
    rng = np.random.default_rng(0)
    relevance = np.array([math.log(3), 0.0])
    gradient, hessian = loss_of([[10.0, 20.0]]).gradients(relevance, rng)
    assert gradient == pytest.approx([-0.5, 0.5]) and hessian == pytest.approx([0.375, 0.375])
    # two graphs of equal total weight, 3 each: the pair of the first weighs 3/2, at relevance 0 p
    # is 1/2
    loss = loss_of([[10.0, 20.0], [7.0, 7.0, 7.0, 7.0]], pairs=5, how="equal")
    gradient, hessian = loss.gradients(np.zeros(6), rng)
    assert gradient == pytest.approx([-1.5, 1.5, 0, 0, 0, 0])
    assert hessian == pytest.approx([0.75, 0.75, *[0.75 * HESSIAN_FLOOR] * 4])
    gradient, _ = loss_of([[1.0, 2.0]]).gradients(np.array([-1e4, 1e4]), rng)
    assert gradient.tolist() == [-2.0, 2.0], "no overflow"
    # row 0, the fastest, draws 1; 1 and 2 draw 0: (0, 1) twice and (0, 2) once, so -3 p, 2 p, p,
    # and 3/4, 2/4, 1/4
    monkeypatch.setattr(RankNetLoss, "partners", lambda *_: np.array([1, 0, 0]))
    gradient, hessian = loss_of([[10.0, 20.0, 30.0]]).gradients(np.zeros(3), rng)
    assert gradient == pytest.approx([-1.5, 1.0, 0.5])
    assert hessian == pytest.approx([0.75, 0.5, 0.25])


def test_partners_are_others_of_the_same_graph_all_as_likely():
    loss = loss_of([[1.0] * size for size in (1, 2, 5)])
    rng = np.random.default_rng(0)
    graph = np.repeat([0, 1, 2], (1, 2, 5))
    drawn = np.array([loss.partners(rng) for _ in range(4000)])
    assert (graph[drawn] == graph).all()
    assert ((drawn == np.arange(8)) == (graph == 0)).all(), "itself only if it is alone"
    for row in range(3, 8):
        counts = np.bincount(drawn[:, row], minlength=8)[3:]
        assert np.delete(counts, row - 3) == pytest.approx([1000] * 4, rel=0.15)
