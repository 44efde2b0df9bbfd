"""How far a ranking can be trusted: counted by hand, and on scores whose errors are known."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from xlarank.data.errors import ModelError
from xlarank.models.explanation.calibration import CERTAIN, Calibration, ScoredGraph, seed_noise


def judged(family: str, seed: int, *, noise: float, rows: int = 40, seeds: int = 3) -> ScoredGraph:
    """Costs that the mean score follows up to noise, which the seeds share half of."""
    rng = np.random.default_rng(seed)
    cost = rng.random(rows)
    shared = rng.normal(0, noise, rows)
    scores = np.stack([cost + shared + rng.normal(0, noise, rows) for _ in range(seeds)])
    return ScoredGraph(family, scores, cost)


def many(noise: float, graphs: int = 24) -> list[ScoredGraph]:
    return [judged(f"family{number % 6}", number, noise=noise) for number in range(graphs)]


def test_noise_is_the_spread_over_seeds() -> None:
    # seeds differ by a constant (no disagreement), then by +-1 at two of two rows: variance 2 (ddof 1) of (1, -1)
    assert seed_noise(np.array([[0.0, 1.0], [5.0, 6.0]])) == 0.0
    assert seed_noise(np.array([[1.0, -1.0], [-1.0, 1.0]])) == pytest.approx(np.sqrt(2.0))


def test_what_is_called_certain_is_right_as_often_as_promised_on_graphs_not_counted() -> None:
    found = Calibration.of(many(0.15))
    assert 0.05 < found.certain < 0.9
    assert found.right_low <= found.right <= found.right_high
    right, certain = 0, 0
    for number in range(30):
        one = judged("new", 1000 + number, noise=0.15)
        mean = one.scores.mean(axis=0)
        least = found.threshold * np.sqrt(2) * seed_noise(one.scores)
        sure = mean[None, :] - mean[:, None] >= least
        certain += int(sure.sum())
        right += int((sure & (one.cost[None, :] > one.cost[:, None])).sum())
    assert right / certain == pytest.approx(CERTAIN, abs=0.02)


def test_pure_noise_is_never_certain() -> None:
    rng = np.random.default_rng(3)
    graphs = [ScoredGraph(f"f{n % 5}", rng.random((3, 60)), rng.random(60)) for n in range(20)]
    found = Calibration.of(graphs)
    assert found.threshold == np.inf and found.certain == 0.0 and np.isnan(found.right)
    assert found.certainly_slower(graphs[0].scores).tolist() == [0] * 60
    assert found.certainly_slower(np.zeros((3, 60))).tolist() == [0] * 60, "seeds that agree: inf * 0"
    assert found.first > 0.8


def test_the_first_hold_the_best_of_as_many_graphs_as_promised() -> None:
    found = Calibration.of(many(0.3, graphs=60))
    assert found.first_nearly <= found.first < 1
    few = Calibration.of(many(0.1, graphs=8))  # the worst of 8 is at most the 8/9 quantile of the next one's place
    assert few.first == 1.0 and few.first_of(17) == 17


def test_certainly_slower_counts_rows_beyond_the_threshold() -> None:
    scores = np.array([[0.0, 1.0, 10.0], [0.1, 0.9, 10.1]])
    found = Calibration.of(many(0.15))
    least = found.threshold * np.sqrt(2) * seed_noise(scores)
    mean = scores.mean(axis=0)
    by_hand = [sum(other - one >= least for other in mean if other != one) for one in mean]
    assert found.certainly_slower(scores).tolist() == by_hand
    assert by_hand[0] >= 1 and by_hand[2] == 0


def test_one_family_or_one_seed_cannot_be_calibrated() -> None:
    with pytest.raises(ModelError, match="1 families and 3 seeds"):
        Calibration.of([judged("a", 0, noise=0.1), judged("a", 1, noise=0.1)])
    with pytest.raises(ModelError, match="2 families and 1 seeds"):
        Calibration.of([judged("a", 0, noise=0.1, seeds=1), judged("b", 1, noise=0.1, seeds=1)])


@pytest.mark.parametrize("noise", [0.15, 3.0])
def test_it_is_read_back_for_the_same_model_only(noise: float, tmp_path: Path) -> None:
    found = Calibration.of(many(noise))
    found.save(tmp_path, "this")
    again = Calibration.load(tmp_path, "this")
    assert again is not None and again.as_json() == found.as_json()
    assert Calibration.load(tmp_path, "another") is None
    tmp_path.joinpath("calibration.json").write_text("{", encoding="utf-8")
    assert Calibration.load(tmp_path, "this") is None
