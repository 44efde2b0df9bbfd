"""Draws that depend on the trial's number."""

from __future__ import annotations

from typing import Any

import optuna

from xlarank.pipelines.study.sampler import TrialSampler


def objective(trial: optuna.Trial) -> float:
    return -abs(trial.suggest_float("x", 0, 1) - 0.3) + 0.1 * (trial.suggest_categorical("c", ["a", "b"]) == "a")


def draws(*calls: int, seed: int = 0) -> list[dict[str, Any]]:
    """Parameters of one study after several calls, each with a sampler of its own."""
    study = optuna.create_study(direction="maximize")
    for trials in calls:
        study.sampler = TrialSampler(seed)
        study.optimize(objective, n_trials=trials)
    return [trial.params for trial in study.trials]


def test_a_study_in_two_calls_is_the_study_in_one() -> None:
    assert draws(25, 15) == draws(40) == draws(40)


def test_another_seed_draws_others() -> None:
    assert draws(5) != draws(5, seed=1)
    assert len(draws(5, seed=-1)) == 5


def test_no_two_first_draws_are_the_same() -> None:
    assert len({params["x"] for params in draws(20)}) == 20


def test_it_learns_from_what_it_tried() -> None:
    late = [abs(params["x"] - 0.3) for params in draws(60)][40:]
    assert sum(late) / len(late) < 0.2, "a random draw is 0.29 away on average"
