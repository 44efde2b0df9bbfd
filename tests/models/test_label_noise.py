"""What labels say of their own noise: by hand, and the measured layouts of TPUs."""

from math import log, sqrt
from pathlib import Path

import numpy as np
import pytest

from tests.features.helpers import graph_of
from tests.graphs import LAYOUT_PROGRAM, layout_arrays, layout_row, program_arrays
from xlarank.data.graph import read_graph
from xlarank.models.validation.label_noise import (
    additive_r2,
    describe_labels,
    relative_std,
    run_tau,
    set_tau,
    tau_ceiling,
    tied_groups,
)
from xlarank.models.validation.metrics import kendall_tau


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)


def test_noise_is_the_deviation_from_the_mean_of_equals() -> None:
    """Logarithms 0 and 2 around 1, three of 5 without deviation: squares 2 over 1 + 2 degrees of freedom."""
    logs = np.array([0.0, 2.0, 5.0, 5.0, 5.0, 9.0])
    assert relative_std(np.exp(logs), np.array([0, 0, 1, 1, 1, 2])) == pytest.approx(sqrt(2 / 3))
    assert relative_std(np.exp(logs), np.arange(6)) is None, "nothing repeats"


def test_runs_that_agree_allow_any_order_and_runs_at_random_none() -> None:
    once = np.arange(1.0, 41.0)
    twice, group = np.concatenate([once, once + 0.1]), np.tile(np.arange(40), 2)
    assert (run_tau(twice, group), tau_ceiling(twice, group)) == (1.0, 1.0)
    backwards = np.concatenate([once, once[::-1]])
    assert (run_tau(backwards, group), tau_ceiling(backwards, group)) == (-1.0, 0.0)
    some = twice.copy()
    some[40:42] = 2.1, 1.1  # one of 780 pairs changes places between the runs
    assert run_tau(some, group) == pytest.approx(1 - 2 / 780)
    assert tau_ceiling(some, group) == pytest.approx(sqrt(1 - 2 / 780))


def test_the_ceiling_needs_enough_repeats_that_were_measured(rng: np.random.Generator) -> None:
    group = np.tile(np.arange(40), 2)
    assert tau_ceiling(rng.random(80), np.arange(80)) is None
    assert tau_ceiling(np.tile(np.arange(40.0), 2), group) is None, "copied, not measured again"
    few = rng.random(80)
    few[:11] = np.inf  # 29 of 40 are left with two runs
    assert tau_ceiling(few, group) is None
    few[10] = 0.5
    assert tau_ceiling(few, group) is not None


@pytest.mark.parametrize("noise", [0.5, 1.0, 2.0])
def test_no_order_passes_the_ceiling_and_the_true_one_passes_one_run(
    noise: float, rng: np.random.Generator
) -> None:
    """The true order agrees with a run more than another run does, and less than the root of that."""
    true = rng.normal(size=4000)
    runs = np.exp(np.concatenate([true + noise * rng.normal(size=4000) for _ in range(2)]))
    group = np.tile(np.arange(4000), 2)
    between, most = run_tau(runs, group), tau_ceiling(runs, group)
    assert between is not None and most is not None
    assert between < kendall_tau(true[group], runs) < most < between + 0.3


def test_sets_are_judged_by_configurations_outside_their_fold(rng: np.random.Generator) -> None:
    """Two sets a factor of 3 apart. Left one out, the mean of the others orders each set backwards: tau 0."""
    sets = np.arange(200) % 2
    runtime = np.exp(log(3) * sets + 0.01 * rng.normal(size=200))
    # 1 - 2 * 45 / 190 pairs or so of a fold of 40 are of equal sets
    assert set_tau(runtime, np.arange(200), sets) == pytest.approx(0.5, abs=0.03)
    runtime[:10] *= 100  # few exceptions do not move the middle of a set
    assert set_tau(runtime, np.arange(200), sets) == pytest.approx(0.45, abs=0.05)
    assert set_tau(runtime, np.arange(200), np.arange(200)) is None, "no two are of one set"


def test_nodes_are_tied_whose_orders_change_together() -> None:
    codes = np.array([[7, 1, 4, 9], [8, 2, 4, 9], [7, 1, 4, 3], [8, 2, 4, 9]])
    assert tied_groups(codes).T.tolist() == [[0, 1, 0, 1], [0, 0, 1, 0]], "the third node never changes"


def test_additive_terms_explain_what_is_additive(rng: np.random.Generator) -> None:
    codes = rng.integers(3, size=(300, 2))
    additive = np.array([0.0, 0.5, 2.0])[codes[:, 0]] + np.array([1.0, 0.0, 0.3])[codes[:, 1]]
    assert additive_r2(additive, codes) == pytest.approx(1.0)
    either = 1.0 * (codes[:, 0] == codes[:, 1])
    r2 = additive_r2(either, codes)
    assert r2 is not None and r2 < 0.1
    assert additive_r2(additive[:8], codes[:8]) is None, "five terms and eight configurations"
    assert additive_r2(np.ones(300), codes) is None, "nothing to explain"


def test_a_small_graph_is_counted() -> None:
    """`layout_arrays`: of six configurations 1 and 3 are equal; the convolution has three orders.

    Its (3, 0) completes to (3, 0, 2, 1), unlike the default (3, 2, 1, 0); the reshape's (1,) is its default (1, 0).
    So configurations 0 and 4 are of one set: default and default. 2 and 5 differ in the reshape.
    """
    labels = describe_labels(graph_of(layout_arrays()))
    assert (labels.configurations, labels.measured, labels.distinct, labels.output_sets) == (6, 6, 5, 4)
    assert labels.repeat_std == pytest.approx(1 / 20000002 / sqrt(2), rel=1e-6)
    assert labels.set_std == pytest.approx(sqrt((log(2) ** 2 / 2) / 2), rel=1e-6)
    assert (labels.run_tau, labels.ceiling, labels.set_tau, labels.additive_r2) == (None,) * 4


def test_operands_make_no_set_and_no_labels_make_no_noise() -> None:
    row, operands = layout_row(output=(3, 0)), layout_row(output=(3, 0), input=(0, 3))
    arrays = layout_arrays() | program_arrays(LAYOUT_PROGRAM)
    arrays["node_config_feat"] = np.array([[row, layout_row()], [operands, layout_row()]], np.float32)
    arrays["config_runtime"] = np.zeros(2, np.int64)
    labels = describe_labels(graph_of(arrays))
    assert (labels.distinct, labels.output_sets, labels.model_times, labels.measured) == (2, 1, 1, 0)
    assert (labels.repeat_std, labels.set_std, labels.ceiling) == (None, None, None)


@pytest.mark.parametrize(
    ("place", "counts", "taus", "r2"),
    [
        ("default/train/alexnet_train_batch_32", (38009, 23924, 26, 26), (0.663, 0.814, 0.773), 0.9999),
        ("default/train/unet3d", (1159, 681, 8, 9), (0.824, 0.908, 0.55), 0.0),
        ("default/valid/unet_3d.4x4.bf16", (1965, 1469, 52, 12), (0.298, 0.546, 0.34), 0.9999),
        ("random/valid/unet_3d.4x4.bf16", (481, 442, 94, 16), (None, None, 0.74), 0.9999),
    ],
)
def test_measured_layouts_are_sums_over_few_sets(
    place: str, counts: tuple[int, ...], taus: tuple[float | None, ...], r2: float, real_data: Path
) -> None:
    """Only unet3d is no sum over outputs: the input of one kernel gradient makes 54 steps three times as long."""
    labels = describe_labels(read_graph(real_data / f"npz/layout/xla/{place}.npz", "layout"))
    assert (labels.configurations, labels.distinct, labels.output_sets, labels.model_times) == counts
    for value, expected in zip((labels.run_tau, labels.ceiling, labels.set_tau), taus, strict=True):
        assert value == (expected if expected is None else pytest.approx(expected, abs=0.02))
    assert labels.additive_r2 is not None and labels.additive_r2 >= r2
