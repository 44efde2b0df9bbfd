"""A storage whose server is away for a while, or for good."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import optuna
import pytest
from optuna.storages import BaseStorage, InMemoryStorage
from sqlalchemy.exc import IntegrityError, OperationalError

from xlarank.data.errors import XlarankError
from xlarank.pipelines.study.steady import Patience, steady


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("xlarank.pipelines.study.steady._FIRST", 0.001)
    monkeypatch.setattr("xlarank.pipelines.study.steady._LONGEST", 0.01)


def away() -> OperationalError:
    return OperationalError("SELECT", {}, Exception("server closed the connection"))


def failing(*errors: Exception) -> Callable[[], str]:
    left = list(errors)

    def attempt() -> str:
        if left:
            raise left.pop(0)
        return "done"

    return attempt


def test_what_fails_for_a_while_is_done_in_the_end() -> None:
    wrapped = optuna.exceptions.StorageInternalError()
    wrapped.__cause__ = away()
    assert Patience("x", str, 60.0).until_done(failing(away(), wrapped, OSError("stale handle"))) == "done"


@pytest.mark.parametrize(
    "error", [ValueError("a bug"), KeyError(7), IntegrityError("INSERT", {}, Exception("twice")),
              optuna.exceptions.UpdateFinishedTrialError()],
)  # fmt: skip
def test_what_is_not_the_server_s_fault_is_raised_at_once(error: Exception) -> None:
    with pytest.raises(type(error)) as caught:
        Patience("x", str, 60.0).until_done(failing(error))
    assert caught.value is error


def test_given_up_once_for_all() -> None:
    patience = Patience("db://host", lambda error: "why", 0.05)
    with pytest.raises(XlarankError, match=r"db://host has not answered for 0 s \(why\)"):
        patience.until_done(failing(*[away()] * 10_000))
    began = time.monotonic()
    with pytest.raises(XlarankError, match="has not answered"):
        patience.until_done(failing(away(), away()))
    assert time.monotonic() - began < 0.04
    assert patience.until_done(failing()) == "done", "a server that is back may be used"


def test_every_operation_is_tried_again() -> None:
    """All that Optuna asks of a storage goes through; each first attempt fails."""
    inner, failed = InMemoryStorage(), []

    class Shaky:
        def __getattr__(self, name: str) -> Any:
            def call(*values: Any, **named: Any) -> Any:
                failed.append(name)
                if failed.count(name) == 1:
                    raise away()
                return getattr(inner, name)(*values, **named)

            return call

    storage = steady(Shaky(), Patience("x", str, 60.0))  # type: ignore[arg-type]
    assert isinstance(storage, BaseStorage)
    study = optuna.create_study(storage=storage, direction="maximize", study_name="mine")
    study.optimize(lambda trial: trial.suggest_float("x", 0, 1), n_trials=3)
    study.set_user_attr("a", 1)
    assert len(study.trials) == 3
    assert study.best_trial.value == max(
        trial.value for trial in inner.get_all_trials(0) if trial.value is not None
    )
    assert {"create_new_trial", "set_trial_param", "set_trial_state_values", "get_all_trials"} <= set(failed)
