"""Metrics of a ranked graph, orders that need no model, comparisons; noise of labels."""

from dataclasses import replace
from itertools import permutations
from math import sqrt

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import kendalltau

from tests.models.helpers import graph_rows
from tests.pipelines.trees import LAYOUTS, TILES
from xlarank.data.collection import Collection
from xlarank.models.validation import metrics
from xlarank.models.validation.metrics import LAYOUTS_SET, METRICS, graph_metrics
from xlarank.pipelines.info import file_info
from xlarank.pipelines.support.baselines import baselines

#: Few values, so that ties are common on both sides; costs are above 0, as runtimes are.
_SCORES = st.sampled_from((-1.5, -0.0, 0.0, 0.25, 3.0, 1e9))
_COSTS = st.sampled_from((0.5, 1.0, 2.0, 20_000_001.0, 20_000_002.0, 2.0**40))
#: ``(score, cost)`` of a few configurations.
RANKINGS = st.lists(st.tuples(_SCORES, _COSTS), min_size=1, max_size=12).map(
    lambda of: np.array(of).T
)


def taus_by_pairs(score, cost):
    """Return tau and accuracy, expected if ties of the score are broken at random, and tau-b."""
    i, j = np.triu_indices(len(cost), 1)
    by_score = np.sign(score[i] - score[j])
    by_cost = np.sign(cost[i] - cost[j])
    scores = np.count_nonzero(by_score)
    costs = np.count_nonzero(by_cost)
    if not scores or not costs:
        return 0.0, 0.5, 0.0
    surplus = by_score @ by_cost
    right = (0.5 + by_score * by_cost / 2)[by_cost != 0].mean()
    return surplus / sqrt(len(i) * costs), right, surplus / sqrt(scores * costs)


def tries_one_by_one(k, best_first, group):
    """Return the first k configurations, those identical to an earlier one after all others."""
    tried = []
    while len(tried) < min(k, len(best_first)):
        left = [config for config in best_first if config not in tried]
        tried.append(
            next((config for config in left if group[config] not in group[tried]), left[0])
        )
    return tried


@given(ranking=RANKINGS)
def test_pairs_are_counted_one_by_one(ranking):
    counts = metrics.pair_metrics(*ranking)
    assert counts == pytest.approx(taus_by_pairs(*ranking), abs=1e-12)


@pytest.mark.parametrize("size", [3, 64, 65, 1000, 3000])
@pytest.mark.parametrize("values", [2, 30, 10_000])
def test_tau_b_is_that_of_scipy(size, values):
    rng = np.random.default_rng(size + values)
    score = rng.integers(values, size=size).astype(float)
    cost = score + rng.integers(values, size=size)
    _, _, tau_b = metrics.pair_metrics(score, cost)
    assert tau_b == pytest.approx(kendalltau(score, cost).statistic, abs=1e-12)


@given(RANKINGS, st.integers(1, 14), st.lists(st.integers(0, 4), min_size=12, max_size=12))
def test_the_first_k_and_identical_configurations_after_all_distinct_ones(ranking, k, groups):
    (score, cost) = ranking
    group = np.array(groups[: ranking.shape[1]])
    best_first = sorted(range(len(cost)), key=lambda config: (score[config], config))
    assert metrics.top_of(k, score, group).tolist() == tries_one_by_one(k, best_first, group)
    assert metrics.order_of(score).tolist() == best_first, "equal scores in the order of their ids"
    untied = np.argsort(best_first).astype(float)  # the place of each
    slowdowns = [min(cost[tries_one_by_one(k, best_first, group)]) / min(cost) - 1 for k in (1, 5)]
    values = graph_metrics("layout", untied, cost, group)
    assert [values["slowdown@1"], values["slowdown@5"]] == slowdowns


def lowest_in_every_order(k, score, cost, group):
    """Return the lowest cost of the first k for each order of tied configurations."""
    found = []
    for order in permutations(range(len(cost))):
        best_first = sorted(order, key=lambda config: score[config])
        first = {group[config]: config for config in reversed(best_first)}
        rest = [config for config in best_first if first[group[config]] != config]
        for groups in permutations(first):
            distinct = sorted(map(first.get, groups), key=lambda config: score[config])
            found.append(min(cost[config] for config in (distinct + rest)[:k]))
    return found


@given(
    st.lists(
        st.tuples(st.integers(0, 1), st.integers(0, 2), st.sampled_from((1.0, 2.0, 5.0, 6.0))),
        min_size=1,
        max_size=5,
    ),
    st.integers(1, 5),
)
def test_tied_scores_are_in_random_order(configs, k):
    score, group, cost = np.array(configs, float).T
    lowest = lowest_in_every_order(k, score, cost, group)
    costs, probabilities = metrics.best_of_top(k, score, cost, group)
    assert probabilities.sum() == pytest.approx(1)
    for value in (1.0, 2.0, 5.0, 6.0):
        expected = lowest.count(value) / len(lowest)
        assert probabilities[costs == value].sum() == pytest.approx(expected, abs=1e-12)


def test_slowdowns_of_tied_scores_by_hand():
    """Ten tied runtimes 1 to 10: the first is 5.5, the lowest of five (10 + 1) / (5 + 1).

    A best-scored eleventh of 2 leaves four of ten: 1 if they include it,
    P = 0.4, else 2. Of two duplicates of 10 and 30 and one configuration of 20, each is the first
    with P = 1 / 4, 1 / 4 and 1 / 2.
    """
    cost = np.arange(1.0, 11.0)
    for order in (cost, cost[::-1], np.roll(cost, 3)):
        values = graph_metrics("tile", np.zeros(10), order, np.arange(10))
        assert values["slowdown@1"] == pytest.approx(4.5)
        assert values["slowdown@5"] == pytest.approx(11 / 6 - 1)
        score = np.append(np.zeros(10), -1)
        values = graph_metrics("tile", score, np.append(order, 2), np.arange(11))
        assert (values["slowdown@1"], values["score"]) == pytest.approx((1, 1 - 0.6))
    values = graph_metrics("layout", np.zeros(3), np.array([10.0, 30.0, 20.0]), np.array([7, 7, 3]))
    assert values["slowdown@1"] == pytest.approx((10 / 4 + 30 / 4 + 20 / 2) / 10 - 1)
    # two of three duplicates: without the lowest, P = 2 / 3 * 1 / 2
    costs, chances = metrics.best_of_top(2, np.zeros(3), np.array([6.0, 1.0, 5.0]), np.zeros(3))
    assert (costs.tolist(), chances.tolist()) == ([1.0, 5.0, 6.0], pytest.approx([2 / 3, 1 / 3, 0]))
    speedup = metrics.speedups(np.zeros(2), np.array([10.0, 20.0]), 20.0, np.arange(2))
    assert speedup == pytest.approx({"speedup@1": 1.5, "speedup@5": 2})


def test_score_is_tau_for_layouts_and_the_top_five_for_tiles():
    """Scored worst first: the five best-scored cost 7, 6, 5, 4, 3; the best costs 2."""
    cost = np.array([7.0, 6.0, 5.0, 4.0, 3.0, 2.5, 2.0])
    score = np.arange(7.0)
    layout, tile = (graph_metrics(kind, score, cost, np.arange(7)) for kind in ("layout", "tile"))
    assert tuple(layout) == tuple(tile) == METRICS
    assert layout["score"] == layout["tau"] == -1.0
    assert tile["slowdown@5"] == 0.5 == tile["score"]
    assert {**layout, "score": 0} == {**tile, "score": 0}
    assert {type(value) for value in tile.values()} == {float}, "plain ones, for JSON"


def test_summary_has_mean_spread_and_every_graph():
    graphs = {"alpha": dict.fromkeys(METRICS, 0.0), "beta": dict.fromkeys(METRICS, 2.0)}
    # the std is divided by 2: not the estimate for a larger population; a quarter of the resamples
    # is alpha twice
    expected = {"mean": 1, "std": 1, "low": 0, "high": 2, "graphs": {"alpha": 0, "beta": 2}}
    assert metrics.summarise(graphs) == dict.fromkeys(METRICS, expected)


def test_cost_of_the_compilers_own_choice():
    share = np.array([[0.5], [0.0], [1.0]])
    rows = graph_rows("a__a", [30, 20, 40], features=share, columns=["size", LAYOUTS_SET])
    plain = graph_rows("a__a", [30, 20])
    for kind, of, cost in (
        ("layout", rows, 20),
        ("layout", rows.take(np.array([0, 2])), None),  # it sets nothing; it is no candidate
        ("layout", replace(rows, runtime=np.array([30, 0, 40])), None),
        ("layout", plain, None),  # not measured
        ("tile", replace(plain, normalizer=np.array([25, 25])), 1),
        ("tile", plain, None),
    ):
        assert metrics.compiler_cost(kind, of) == cost


def test_speedups_count_the_best_of_the_first_and_average_geometrically():
    score = np.arange(7.0)
    cost = np.array([np.inf, 50.0, 40.0, 80.0, 30.0, 25.0, 1.0])  # the first was never measured
    distinct = metrics.speedups(score, cost, 100.0, np.arange(7))
    assert distinct == {"speedup@1": 2.0, "speedup@5": 4.0}
    # the second and third are one configuration: a sixth comes in
    repeated = metrics.speedups(score, cost, 100.0, np.array([0, 1, 1, 2, 3, 4, 5]))
    assert repeated["speedup@5"] == 100.0
    twice, half = (dict.fromkeys(metrics.SPEEDUPS, value) for value in (2.0, 0.5))
    summary = metrics.summarise({"a": twice, "b": half})["speedup@5"]
    assert (summary["mean"], summary["std"]) == pytest.approx((1.0, np.log(2)))
    assert summary["graphs"] == {"a": 2.0, "b": 0.5}
    assert metrics.summarise({}) == {}


def rows_of(column="size", values=(0, 2, 1, 0)):
    """Return a graph of four configurations of 10, 40 and 20 ns, the last not measured."""
    rows = graph_rows("graph", [10, 40, 20, 0], features=np.array(values)[:, None])
    return replace(rows, columns=[column], graph_values=np.empty(0, np.float32))


FILE_ORDER = "rule: file order"


def test_orders_that_need_no_model():
    """Only the pair (40, 20) is out of order: tau = (2 - 1) / 3; the first is the best.

    The mean slowdown of the first of a random order is (0 + 3 + 1) / 3; five tries find the best of
    three.
    """
    orders = baselines(TILES, rows_of())
    assert set(orders) == {FILE_ORDER, "rule: random"}
    assert [*orders["rule: random"]] == [*METRICS]
    assert orders[FILE_ORDER]["tau"] == pytest.approx(1 / 3)
    assert orders[FILE_ORDER]["slowdown@1"] == 0
    assert [*orders["rule: random"].values()] == pytest.approx([0, 0.5, 4 / 3, 0, 1, 0])
    repeated = baselines(TILES, graph_rows("graph", [10, 20], copies=[3, 0]))
    assert repeated["rule: random"]["slowdown@1"] == pytest.approx(1 / 2), "each once: (0 + 1) / 2"
    picked = baselines(LAYOUTS, rows_of(), np.array([2, 1]))
    assert picked[FILE_ORDER]["tau"] == -1, "by places in the file, not among the picked rows"
    for collection, column, order in (
        (LAYOUTS, LAYOUTS_SET, "rule: fewest layouts set"),
        (LAYOUTS, "outputs__all_padded__ratio", "rule: padded bytes of set outputs"),
        (TILES, "estimate__sum__log", "estimated time"),
    ):
        assert baselines(collection, rows_of(column))[order]["tau"] == pytest.approx(1)
    of_tpus = baselines(Collection.parse("tile:xla"), rows_of("estimate__sum__log"))
    assert "estimated time" not in of_tpus, "a CPU's"


def test_a_robust_difference_and_its_error_by_hand():
    """Robust mean of 0, 0, 0.8 against 0: 0.8 / 3 less a quarter of 0.8 * sqrt(2) / 3.

    Without one graph each it is 0.4 - 0.4 / 4 = 0.3, 0.3 and 0. The jackknife's squared error is
    2/3 of the sum of their squares about 0.2, 0.01 + 0.01 + 0.04. With the means 0.4, 0.4 and 0 the
    error would be 0.267.
    """
    ours = {"a": 0.0, "b": 0.0, "c": 0.8}
    mean, error, *_ = metrics.paired_difference(ours, dict.fromkeys("cab", 0.0), "robust")
    assert (mean, error) == pytest.approx((0.8 / 3 - 0.25 * 0.8 * np.sqrt(2) / 3, 0.2))


def test_rules_for_tiles():
    """Volumes 1, 3, 2, 0 of the output and 4, 0, 1, 0 of the kernel; costs 10, 40, 20.

    The largest has 5 elements on the logarithmic scale against 3 and 3; distances are 0, 6 and 4.
    """
    volumes = np.array([[1, 4], [3, 0], [2, 1], [0, 0]], np.float32)
    names = ["bounds__output_volume__log", "bounds__kernel_volume__log"]
    orders = baselines(TILES, replace(rows_of(), columns=names, config_values=volumes))
    assert orders["rule: largest output tile"]["tau"] == pytest.approx(-1.0)
    assert orders["rule: largest tile"]["slowdown@1"] == 0
    assert orders["rule: nearest to the first configuration"]["tau"] == pytest.approx(1.0)


def test_noise_is_the_deviation_from_the_mean_of_equals():
    """Logarithms 0 and 2 around 1, three of 5: squares 2 over 1 + 2 degrees of freedom."""
    runtime = np.exp([0.0, 2.0, 5.0, 5.0, 5.0, 9.0])
    assert metrics.relative_std(runtime, np.array([0, 0, 1, 1, 1, 2])) == pytest.approx(sqrt(2 / 3))
    assert metrics.relative_std(runtime, np.arange(6)) is None, "nothing repeats"


def test_the_ceiling_of_runs_that_agree_and_of_too_few_repeats():
    rng = np.random.default_rng(0)
    once = np.arange(1.0, 41.0)
    group = np.tile(np.arange(40), 2)
    swapped = once + 0.1
    swapped[:2] = 2.1, 1.1  # one of 780 pairs changes places between the runs
    for again, tau in ((once + 0.1, 1.0), (once[::-1], -1.0), (swapped, 1 - 2 / 780)):
        runtime = np.concatenate([once, again])
        assert metrics.tau_ceiling(runtime, group) == pytest.approx(sqrt(max(0, tau)))
    assert metrics.tau_ceiling(rng.random(80), np.arange(80)) is None
    assert metrics.tau_ceiling(np.tile(once, 2), group) is None, "copied, not measured again"
    few = rng.random(80)
    few[:11] = np.inf  # 29 of 40 are left with two runs
    assert metrics.tau_ceiling(few, group) is None
    few[10] = 0.5
    assert metrics.tau_ceiling(few, group) is not None


@pytest.mark.parametrize(
    ("place", "counts", "ceiling"),
    [
        ("default/train/alexnet_train_batch_32", (38009, 23924), 0.814),
        ("default/train/unet3d", (1159, 681), 0.908),
        ("default/valid/unet_3d.4x4.bf16", (1965, 1469), 0.546),
        ("random/valid/unet_3d.4x4.bf16", (481, 442), None),
    ],
)
def test_noise_of_measured_layouts(place, counts, ceiling, real_data):
    values = file_info(real_data / f"npz/layout/xla/{place}.npz")
    assert (values["configurations"], values["distinct"]) == counts
    assert values["ceiling"] == pytest.approx(ceiling, abs=0.001)
