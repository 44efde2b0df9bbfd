"""Several processes open one new storage."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import optuna
import pytest
from sqlalchemy.exc import OperationalError

from xlarank.pipelines.study.storage import open_study

CREATE = optuna.create_study


def collision() -> OperationalError:
    return OperationalError("CREATE TABLE studies", {}, Exception("table studies already exists"))


@pytest.mark.slow
def test_a_database_that_others_create_at_the_same_moment(tmp_path: Path) -> None:
    """Without trying again, most of these fail."""
    for number in range(2):
        url, ready, failed = f"sqlite:///{tmp_path}/{number}.db", threading.Barrier(6), []

        def work(name: str, url: str = url, ready: threading.Barrier = ready, failed: list[Any] = failed) -> None:
            ready.wait()
            try:
                open_study(name, url)
            except Exception as error:
                failed.append(error)

        threads = [threading.Thread(target=work, args=[name]) for name in "aabbcd"]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failed == []
        assert sorted(optuna.get_all_study_names(url)) == ["a", "b", "c", "d"]


def test_tries_again_until_it_works(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    errors = [collision(), optuna.exceptions.StorageInternalError(), collision()]

    def create(**asked: Any) -> optuna.Study:
        if errors:
            raise errors.pop()
        return CREATE(**asked)

    monkeypatch.setattr(optuna, "create_study", create)
    monkeypatch.setattr("xlarank.pipelines.study.storage._PAUSE", 0.0)
    study = open_study("mine", f"sqlite:///{tmp_path}/study.db")
    assert (errors, study.study_name, study.direction) == ([], "mine", optuna.study.StudyDirection.MAXIMIZE)


@pytest.mark.parametrize(("error", "tries"), [(collision(), 6), (ValueError("a bad URL"), 1)])
def test_gives_up(monkeypatch: pytest.MonkeyPatch, error: Exception, tries: int) -> None:
    calls = []

    def create(**asked: Any) -> optuna.Study:
        calls.append(asked)
        raise error

    monkeypatch.setattr(optuna, "create_study", create)
    monkeypatch.setattr("xlarank.pipelines.study.storage._PAUSE", 0.0)
    with pytest.raises(type(error)) as caught:
        open_study("mine", "sqlite://")
    assert caught.value is error
    assert len(calls) == tries
