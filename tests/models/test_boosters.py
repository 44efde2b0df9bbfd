"""Losses on LightGBM and XGBoost: labels, query groups, bins, parameters, initial scores."""

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from types import SimpleNamespace
from unittest.mock import Mock

import lightgbm as lgb
import numpy as np
import pytest
import xgboost as xgb

from tests.models.helpers import easy_data, easy_graph, fitted, graph_rows, saved, scores_of
from xlarank.data.errors import ModelError
from xlarank.models.boosters import lightgbm
from xlarank.models.boosters.lightgbm import bin_rows, bin_sample
from xlarank.models.column_sum import ColumnSum
from xlarank.models.losses import LOSSES, params_of
from xlarank.models.member import Member
from xlarank.models.model import Model
from xlarank.models.objectives import ranknet_gradients, row_weights
from xlarank.models.training_data import (
    CPU,
    DATASET,
    GPU,
    TPU,
    UNKNOWN,
    Dataset,
    FitSettings,
    TrainingData,
)
from xlarank.models.validation.metrics import kendall_tau

MODELS = ("lambdarank", "ranknet", "xgb-pairwise")


def lambdarank(data, seed=0, **params):
    """Return labels and objective of lambdarank."""
    member = Member(LOSSES["lambdarank"], params_of("lambdarank", "layout", params), "layout")
    return member.loss.dataset(member, data, FitSettings(1, seed))


def test_one_thread_at_a_time_constructs_a_booster(monkeypatch):
    """LightGBM replaces the label gains of the whole process: folds crashed it at times."""
    construct = lgb.Booster.__init__
    running = []
    counts = []

    def counted(self, *args, **more):
        inside = ["train_set"] if "train_set" in more else []
        running.extend(inside)
        counts.append(len(running))
        time.sleep(0.02 * len(inside))
        construct(self, *args, **more)
        del running[: len(inside)]

    monkeypatch.setattr(lgb.Booster, "__init__", counted)
    data = [TrainingData.from_graphs([easy_graph(f"g{n}", 20 + n, n)]) for n in range(4)]
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda graph: fitted("lambdarank", graph, rounds=4), data))
    assert max(counts) == 1


def test_every_data_set_sets_the_number_of_threads(monkeypatch):
    """Otherwise it sets the number of the process, and predictions of other threads crash."""
    dataset = Mock(wraps=lgb.Dataset)
    monkeypatch.setattr(lgb, "Dataset", dataset)
    monkeypatch.setattr(lightgbm, "_SAMPLED", 60)
    fitted("lambdarank", easy_data(), rounds=4)
    threads = [call.kwargs["params"]["num_threads"] for call in dataset.call_args_list]
    assert threads == [1, 1]


def test_labels_gains_and_truncation_are_those_for_kendall_tau():
    # the last configuration was not measured, so it is not fitted
    graphs = [graph_rows("a", [30, 10, 20, 10, 0]), graph_rows("b", [5, 6, 7, 8, 9])]
    dataset = lambdarank(TrainingData.from_graphs(graphs))
    assert (dataset.params["objective"], dataset.group) == ("lambdarank", [4, 5])
    assert dataset.label.tolist() == [0, 2, 1, 2, 4, 3, 2, 1, 0]
    assert dataset.params["label_gain"] == [0, 1, 2, 3, 4], "linear, one for every label"
    assert dataset.params["lambdarank_truncation_level"] == 5, "no pair is cut off"


def test_larger_graphs_are_dealt_into_query_groups_by_the_seed():
    """100 and 30 rows: parts of at most the limit, labels still those of the whole graph."""
    data = TrainingData.from_graphs([easy_graph("big__a", 100, 0), easy_graph("small__a", 30, 1)])
    dataset = lambdarank(data, max_group=27)
    assert dataset.group == [25] * 4 + [15, 15]
    assert lambdarank(data, max_group=50).group == [50, 50, 30]
    assert dataset.params["lambdarank_truncation_level"] == 25
    labels = {}
    for graph in data.parts:
        for row, cost in zip(graph.matrix(), graph.row_cost, strict=True):
            labels[tuple(row)] = len({*graph.row_cost[graph.row_cost > cost]})
    rows = dataset.data.matrix()
    assert [labels[tuple(row)] for row in rows] == dataset.label.tolist()
    assert np.array_equal(lambdarank(data, max_group=27).data.matrix(), rows)
    assert not np.array_equal(lambdarank(data, 1, max_group=27).data.matrix(), rows)
    alone = TrainingData(data.parts[1:]).shuffled(3).orders[0]
    assert np.array_equal(data.shuffled(3).orders[1], alone), "by the seed and the graph alone"


@pytest.mark.parametrize("model", MODELS)
def test_ties_within_the_tolerance_teach_nothing(model):
    """The slowest is 1 % slower than the fastest."""
    data = TrainingData.from_graphs([graph_rows("a", list(range(10_000, 10_101)))])
    for tolerance, learned in ((0.0101, False), (0.0, True)):
        scores = scores_of(fitted(model, data, rounds=2, tie_tolerance=tolerance), data)
        assert (np.ptp(scores) > 0) == learned


def test_the_first_tree_of_ranknet_is_a_newton_step_on_the_loss():
    """Two leaves: each moves by -rate * sum of gradients / sum of hessians."""
    costs = [10, 20, 30, 40, 50, 60, 70, 80]
    data = TrainingData.from_graphs([graph_rows("a", costs), graph_rows("b", costs[:5])])
    plain = {"num_leaves": 2, "min_data_in_leaf": 1, "lambda_l2": 0.0, "bagging_fraction": 1.0}
    plain |= {"learning_rate": 0.5, "feature_fraction": 1.0}
    model = fitted("ranknet", data, rounds=1, seed=4, pairs=3, graph_weight="sqrt", **plain)
    scores = scores_of(model, data)
    weight = row_weights(data.indptr, "sqrt")
    rng = np.random.default_rng(4)
    start = np.zeros(len(scores))
    gradient, hessian = ranknet_gradients(start, data.cost, data.indptr, weight, 3, 0.0, rng)
    leaves, leaf = np.unique(scores, return_inverse=True)
    step = 0.5 * np.bincount(leaf, gradient) / np.bincount(leaf, hessian)
    assert len(leaves) == 2 and leaves == pytest.approx(step, rel=1e-5)


def test_batches_teach_what_one_matrix_teaches(monkeypatch):
    data = TrainingData.from_graphs([easy_graph(f"f{n}__a", 20 + 15 * n, n) for n in range(4)])
    monkeypatch.setattr(lightgbm, "_SAMPLED", 100)
    expected = fitted("lambdarank", data, max_group=25).members[0].booster.text()
    monkeypatch.setattr(lightgbm, "_BATCHED", 0)
    monkeypatch.setattr(TrainingData, "matrix", None)  # nothing may ask for all rows
    assert fitted("lambdarank", data, max_group=25).members[0].booster.text() == expected


def test_bins_come_from_rows_of_all_graphs(monkeypatch):
    """Sorted files would otherwise give edges for the first graphs alone."""
    monkeypatch.setattr(lightgbm, "_SAMPLED", 60)
    data = easy_data(graphs=6, configs=40)
    sample = bin_sample(data, np.arange(1, 4))
    assert sample is not None and len(sample) == 60
    found = []
    for part in data.parts:
        equal = (part.config_values == sample[:, None]).all(axis=2)
        found.append(equal.any(axis=1).sum())
    assert sum(found) == 60 and min(found) >= 4, "10 of each graph on average"
    assert bin_sample(TrainingData(data.parts[:1]), np.arange(4)) is None


def test_boosters_print_nothing(monkeypatch, capfd):
    """Too few rows to split, no column to split by, and a thread that LightGBM is new to."""
    graph = graph_rows("a", [*range(1, 61)], features=np.ones((60, 3)))
    constant = TrainingData.from_graphs([graph])
    few = easy_data(graphs=2, configs=3)
    for model in MODELS:
        assert np.isfinite(scores_of(fitted(model, few, rounds=3), few)).all()
        assert np.ptp(scores_of(fitted(model, constant, rounds=3), constant)) == 0
    monkeypatch.setattr(lightgbm, "_SAMPLED", 20)
    data = easy_data(graphs=2)
    dataset = Dataset(data, np.zeros(len(data.cost)), {})
    with ThreadPoolExecutor(1) as pool:
        binned = pool.submit(bin_rows, dataset, np.arange(4), 1).result()
    assert binned.data is None, "a copy of the rows stays in memory while trees grow"
    assert capfd.readouterr() == ("", "")


def test_parameters_labels_and_weights_of_xgboost(monkeypatch):
    train = Mock(wraps=xgb.train)
    monkeypatch.setattr(xgb, "train", train)
    graphs = [graph_rows("a", [300, 100, 101, 200]), graph_rows("b", [5, 6])]
    data = TrainingData.from_graphs(graphs)
    fitted("xgb-pairwise", data, rounds=4, seed=7, pairs=5, tie_tolerance=0.05)
    params, matrix, rounds = train.call_args.args
    assert rounds == 4 and "eval_metric" in params
    wanted = {
        "objective": "rank:pairwise",
        "lambdarank_pair_method": "mean",  # no pair is cut off
        "lambdarank_num_pair_per_sample": 5,
        "lambdarank_score_normalization": False,  # all pairs count the same
        "tree_method": "hist",
        "seed": 7,
        "nthread": 1,
    }
    assert params.items() >= wanted.items()
    labels = [0, 5 / 6, 5 / 6, 1 / 3, 1, 0]  # higher is faster, near costs tie
    assert matrix.get_label() == pytest.approx(labels)
    assert matrix.get_uint_info("group_ptr").tolist() == [0, 4, 6]
    assert matrix.get_weight() == pytest.approx([0.75, 1.5]), "a weight a graph: 3 in all for each"


(ESTIMATE,) = CPU.estimate["tile"]
(CYCLES,) = TPU.estimate["tile"]
NAMES = ["size", ESTIMATE, "wrong"]
TPU_NAMES = ["size", CYCLES, "wrong"]


def kernel(name, seed, shift=0.0, columns=NAMES):
    """Return a kernel whose estimate is off by a shift, and by 2 to the last column."""
    rng = np.random.default_rng(seed)
    estimate = rng.uniform(0, 4, 60)
    wrong = rng.uniform(0, 2, 60)
    cost = np.rint(1e5 * 2 ** (estimate + wrong)).astype(np.int64)
    features = np.stack([estimate + shift, wrong], 1)
    return graph_rows(name, cost.tolist(), features=features, columns=columns)


def kernels(graphs, target=CPU, *, columns=NAMES, shift=0.0):
    rows = [kernel(f"f{n}__a", n, shift * n, columns) for n in range(graphs)]
    return TrainingData.from_graphs(rows, target)


DATA = kernels(5, shift=5.0)


def on_tiles(model, data, rounds, **params):
    return fitted(model, data, rounds=rounds, kind="tile", columns="all", **params)


def test_relevance_falls_with_the_estimate_and_has_mean_0_in_each_graph():
    rows = np.array([[9, 3, 0], [9, 5, 0], [8, 1, 0]], np.float32)
    estimate = ColumnSum((ESTIMATE,), 2.0)
    assert estimate.values(rows, NAMES).tolist() == [6, 10, 2]
    features = ([[3, 0], [5, 0]], [[8, 0], [2, 0]])
    graphs = [graph_rows("a", [1, 2], features=rows, columns=NAMES) for rows in features]
    data = TrainingData.from_graphs(graphs, CPU)
    assert estimate.score(graphs[0]).tolist() == [6, 10]
    assert data.centred(estimate.score(data)).tolist() == [-2, 2, 6, -6]
    turned = replace(data, orders=[np.array([1, 0]), np.array([0, 1])])
    assert turned.centred(estimate.score(turned)).tolist() == [2, -2, 6, -6]
    for columns, weight, target, found in (
        (NAMES, 2.0, CPU, estimate),
        (NAMES, 2.0, UNKNOWN, None),
        (NAMES, 0.0, CPU, None),
        (["size", "wrong"], 2.0, CPU, None),
        (NAMES, 2.0, TPU, None),
        ([CYCLES, *NAMES], 2.0, TPU, ColumnSum((CYCLES,), 2.0)),
    ):
        assert ColumnSum.find(columns, weight, target, "tile") == found


@pytest.mark.parametrize("name", MODELS)
def test_trees_start_from_the_estimate_saved_and_in_every_stage(name, tmp_path):
    """After one round the order is still the estimate's, and after many it is better."""
    unseen = kernel("unseen__a", 99)
    rows = DATA.parts[0]
    estimate = kendall_tau(unseen.config_values[:, 0].astype(np.float64), unseen.row_cost)
    first, many = (on_tiles(name, DATA, rounds, init_score_weight=2.0) for rounds in (1, 100))
    taus = [kendall_tau(model.score(unseen), unseen.row_cost) for model in (first, many)]
    assert taus[0] > estimate - 0.02 and taus[1] > estimate + 0.05
    scores = many.score(rows)
    assert np.allclose([*many.staged(rows, 40)][-1], scores, rtol=1e-6, atol=1e-9)
    saved(many, tmp_path)
    assert np.array_equal(Model.load(tmp_path).score(rows), scores)


def test_time_trees_without_an_estimate_are_never_without_trees():
    """Otherwise a constant would win if trees are worse than chance."""
    bare = kernels(3, columns=["size", "x", "wrong"])
    model = fitted("time-trees", bare, rounds=5)
    assert not model.ranks_without_trees and not model.is_time_model
    assert len([*model.staged(bare.parts[0], 2)]) == 3
    for name in ("time-trees", "lambdarank"):
        with pytest.raises(ModelError, match=f"{name} has 0 rounds; expected 1 or more"):
            fitted(name, bare, rounds=0)


@pytest.mark.parametrize("kind", ["layout", "tile"])
def test_without_trees_the_estimate_ranks_saved_and_fitted_again(kind, tmp_path):
    """Cross-validation may choose 0 rounds: the model has no members then."""
    estimate = DATASET.estimate[kind]
    names = [*estimate, "wrong"][:2]
    data = kernels(4, DATASET, columns=["size", *names])
    rows = data.parts[0]
    model = fitted("time-trees", data, rounds=0, kind=kind)
    scores = model.score(rows)
    assert (model.members, model.rule) == ((), ColumnSum(estimate, 1.0))
    assert scores == pytest.approx(rows.config_values[:, : len(estimate)].sum(axis=1))
    with_trees = fitted("time-trees", data, rounds=5, kind=kind)
    assert np.array_equal(next(with_trees.staged(rows, 5)), scores)
    assert [stage.tolist() for stage in model.staged(rows, 5)] == [scores.tolist()]
    difference, columns = model.contributions(rows, 3, 1)
    assert set(columns) == set(estimate)
    assert sum(columns.values()) == pytest.approx(scores[3] - scores[1])
    assert difference == scores[3] - scores[1]
    assert model.is_time_model == (kind == "layout"), "tiles are estimated in cycles"
    times = model.nanoseconds(model.score(rows))
    assert np.array_equal(times, 2**scores) if kind == "layout" else times is None
    half = fitted("time-trees", data, rounds=0, kind=kind, init_score_weight=0.5)
    assert half.nanoseconds(half.score(rows)) is None, "the square root of a time"
    saved(half, tmp_path / "half")
    assert Model.load(tmp_path / "half").rule == half.rule == ColumnSum(estimate, 0.5)
    card = saved(model, tmp_path).card
    loaded = Model.load(tmp_path)
    assert (card.members, card.rule, card.seeds) == ({}, [*estimate], 1)
    assert np.array_equal(loaded.score(rows), scores) and loaded.importance() == {}
    assert loaded.fit(data, FitSettings(3, 0, 1)).members[0].booster.rounds == 3


def test_trees_of_layouts_begin_at_the_relayout_time_but_not_on_measured_tpus():
    names = [*NAMES[:1], *CPU.estimate["layout"], *DATASET.estimate["layout"]]
    wide = []
    for graph in kernels(3).parts:
        values = np.repeat(graph.config_values, 2, axis=1)[:, :3]
        wide.append(replace(graph, columns=names, config_values=values))
    for target in (CPU, GPU, TPU, DATASET, UNKNOWN):
        starts = target not in (DATASET, UNKNOWN)
        data = TrainingData.from_graphs(wide, target)
        (member,) = fitted("lambdarank", data, rounds=2).members
        assert (member.init_score is not None) == starts, target
        (member,) = fitted("time-trees", data, rounds=2).members
        is_estimated = target is not UNKNOWN  # its trees learn the ratio to the estimate
        assert (member.init_score is not None) == is_estimated


def test_time_trees_predict_times_of_kernels_larger_than_any_learned_from(tmp_path):
    """Times of a kernel are 3/2 of the estimate, a third less if the last column says so."""

    def timed(name, seed, level):
        rng = np.random.default_rng(seed)
        estimate = rng.uniform(level, level + 3, 40)
        wrong = rng.integers(0, 2, 40)
        cost = np.rint(1.5 * 2**estimate * np.where(wrong, 2 / 3, 1)).astype(np.int64)
        features = np.stack([estimate, wrong], 1)
        rows = graph_rows(name, cost.tolist(), features=features, columns=TPU_NAMES)
        return replace(rows, normalizer=np.full(40, 500 * seed + 7))

    data = TrainingData.from_graphs([timed(f"f{n}__a", n, 12 + n) for n in range(5)], TPU)
    model = on_tiles("time-trees", data, 150, min_data_in_leaf=5)
    unseen = timed("unseen__a", 9, 20.0)
    saved(model, tmp_path)
    models = model, Model.load(tmp_path)
    times, loaded = (one.nanoseconds(one.score(unseen)) for one in models)
    assert np.array_equal(times, loaded)
    assert 2**21 < times.max() < 2**24, "the largest that it learned from takes a tenth of it"
    assert np.median(np.abs(times / unseen.runtime - 1)) < 0.05, "its level counts once"


def test_little_data_is_trained_with_one_thread_unless_more_are_requested(monkeypatch):
    monkeypatch.setattr("os.cpu_count", lambda: 8)
    used = np.arange(500)
    for rows, threads, useful in ((1_000, 0, 1), (50_000, 0, 3), (1_000_000, 0, 8), (1_000, 4, 4)):
        task = SimpleNamespace(data=SimpleNamespace(cost=np.empty(rows)))
        assert lightgbm._useful_threads(threads, task, used) == useful
