"""Workers that share a study: totals, killed workers, servers that go away, and who is refused."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from optuna.trial import FrozenTrial, TrialState

from tests.graphs import save_npz
from tests.pipelines.postgres import PostgresServer
from tests.pipelines.test_tune import FOLD, made_up, study_folder
from tests.pipelines.trees import TILE, build, graph_path, tile_graph
from xlarank.data.errors import XlarankError
from xlarank.data.workspace import Workspace
from xlarank.models.registry import DEFAULT
from xlarank.models.validation.best_params import load_best
from xlarank.pipelines.study.place import open_place
from xlarank.pipelines.tune import TuneResult, tune

ROOT = Path(__file__).parents[2]
TRIALS = 8


@pytest.fixture(params=["journal", "postgresql"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of an empty storage of each kind."""
    if request.param == "journal":
        return f"journal:{tmp_path / 'shared' / 'study.log'}"
    server: PostgresServer = request.getfixturevalue("postgres_server")
    return server.local(request.getfixturevalue("database"))


@pytest.fixture
def scored(monkeypatch: pytest.MonkeyPatch) -> None:
    """Folds of this process score the learning rate, as those of `tune_worker` do."""
    monkeypatch.setattr(FOLD, made_up(lambda params: params["learning_rate"]))


def run(workspace: Path, storage: str, trials: int = TRIALS, **options: Any) -> TuneResult:
    given = {"collections": [TILE], "rounds": 10, "threads": 1, "worker": True, "heartbeat": 0.2, **options}
    (result,) = tune(Workspace(workspace), trials=trials, storage=storage, **given)
    return result


def trials_at(storage: str) -> list[FrozenTrial]:
    with closing(open_place(storage)) as place:
        (study,) = place.storage.get_all_studies()
        return place.storage.get_all_trials(study._study_id)


def points(trials: list[FrozenTrial], *states: TrialState) -> Counter[str]:
    """How often each point was tried."""
    chosen = [trial for trial in trials if trial.state in states]
    return Counter(json.dumps(trial.params, sort_keys=True) for trial in chosen)


OVER = (TrialState.COMPLETE, TrialState.PRUNED)


class Worker:
    """A worker process, and what it said so far."""

    def __init__(self, workspace: Path, storage: str, seconds: float, trials: int = TRIALS, heartbeat: float = 1.0):
        self.said: list[str] = []
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.pipelines.tune_worker", str(workspace), storage, str(trials),
             str(seconds), str(heartbeat)],
            cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )  # fmt: skip
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for line in lines:
                self.said.append(line)

    def wait_for_folds(self, folds: int) -> None:
        until = time.monotonic() + 100
        while len(self.said) < folds:
            assert time.monotonic() < until and self._process.poll() is None, "".join(self.said)
            time.sleep(0.02)

    def kill(self) -> None:
        self._process.send_signal(signal.SIGKILL)
        self.over()

    def over(self) -> int:
        try:
            return self._process.wait(200)
        finally:
            self._process.kill()
            self._reader.join(30)

    @property
    def output(self) -> str:
        return "".join(self.said)


@pytest.fixture
def workers() -> Iterator[list[Worker]]:
    started: list[Worker] = []
    yield started
    for worker in started:
        worker._process.kill()
        worker.over()


@pytest.mark.slow
def test_a_killed_worker_leaves_no_trace_in_the_result(
    built: Path, shared_built: Path, tmp_path: Path, storage: str, workers: list[Worker], scored: None
) -> None:
    """One of two workers is killed within its second trial; undisturbed is one worker alone."""
    undisturbed = Path(shutil.copytree(shared_built, tmp_path / "undisturbed"))
    alone = run(undisturbed, f"journal:{tmp_path / 'alone.log'}")
    workers += [Worker(built, storage, 0.3), Worker(built, storage, 0.3)]
    workers[0].wait_for_folds(4)  # three folds a trial
    workers[0].kill()
    assert workers[1].over() == 0, workers[1].output

    trials = trials_at(storage)
    over, expected = points(trials, *OVER), points(trials_at(f"journal:{tmp_path / 'alone.log'}"), *OVER)
    assert sum(over.values()) == TRIALS
    assert over == expected, "the same points, none twice"
    lost = points(trials, TrialState.FAIL)
    assert sum(lost.values()) == 1, "the killed worker's"
    assert set(lost) <= set(over)
    assert not points(trials, TrialState.RUNNING, TrialState.WAITING)
    best = load_best(study_folder(built), DEFAULT)
    assert best is not None
    assert (best.params, best.mean) == (alone.params, alone.mean)
    assert run(built, storage).fresh == 0


@pytest.mark.slow
def test_workers_share_the_trials(built: Path, storage: str, workers: list[Worker]) -> None:
    """The total is the study's, not each worker's; both had some of it."""
    workers += [Worker(built, storage, 0.2), Worker(built, storage, 0.2)]
    for worker in workers:
        assert worker.over() == 0, worker.output
        assert len(worker.said) >= 3, "a trial at least"
    trials = trials_at(storage)
    assert len(trials) == TRIALS
    assert set(points(trials, *OVER).values()) == {1}
    assert sum(len(worker.said) for worker in workers) <= 3 * TRIALS


@pytest.mark.slow
def test_a_server_that_comes_back(
    built: Path, postgres_server: PostgresServer, database: str, workers: list[Worker]
) -> None:
    """Stopped as by a crash while two workers run their trials: they wait, and nothing is lost or run twice."""
    storage = postgres_server.remote(database)
    workers += [Worker(built, storage, 0.3), Worker(built, storage, 0.3)]
    for worker in workers:
        worker.wait_for_folds(2)
    postgres_server.stop()
    time.sleep(1.5)
    postgres_server.start()
    for worker in workers:
        assert worker.over() == 0, worker.output
        assert "Traceback" not in worker.output
    over = points(trials_at(storage), *OVER)
    assert sum(over.values()) == TRIALS
    assert set(over.values()) == {1}


@pytest.mark.slow
def test_a_server_that_does_not_come_back(
    built: Path, postgres_server: PostgresServer, database: str, scored: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = postgres_server.remote(database)
    run(built, storage, trials=2)
    calls = []

    def away(*rest: Any) -> Any:
        calls.append(rest)
        if len(calls) == 1:
            postgres_server.stop()
        return made_up(lambda params: params["learning_rate"])(*rest)

    monkeypatch.setattr(FOLD, away)
    monkeypatch.setattr("xlarank.pipelines.study.place.PATIENCE", 1.0)
    try:
        began = time.monotonic()
        with pytest.raises(XlarankError, match=r"has not answered for 1 s .*finished trials are kept") as caught:
            run(built, storage)
        assert time.monotonic() - began < 20, "given up once, not for each operation again"
    finally:
        postgres_server.start()
    require_no_password(str(caught.value))
    monkeypatch.setattr(FOLD, made_up(lambda params: params["learning_rate"]))
    result = run(built, storage)
    assert (result.trials, result.fresh) == (TRIALS, TRIALS - 2)


def require_no_password(text: str) -> None:
    assert "s3cret" not in text
    assert "***" in text


@pytest.mark.slow
def test_servers_that_cannot_be_reached(built: Path, postgres_server: PostgresServer, database: str) -> None:
    wrong = postgres_server.remote(database, "s3cretive")
    nowhere = wrong.replace(f":{postgres_server.port}/", ":1/")
    unknown = postgres_server.remote("no-such-database")
    for address, why in (
        (wrong, "password authentication failed"),
        (nowhere, "refused"),
        (unknown, "does not exist"),
    ):
        with pytest.raises(XlarankError, match=rf"cannot be opened .*{why}.*check --storage") as caught:
            run(built, address)
        require_no_password(str(caught.value))
        assert len(str(caught.value).splitlines()) == 1


@pytest.mark.slow
def test_the_password_is_nowhere(built: Path, postgres_server: PostgresServer, database: str) -> None:
    """Neither in what is printed nor in any file of the workspace: the log, the record of commands, the study."""
    command = [
        sys.executable, "run.py", "tune", "--worker", "--trials", "1", "--rounds", "3", "--threads", "1",
        "--collection", TILE, "--workspace", str(built), "--log-file", str(built / "log"), "--verbose", "--storage",
    ]  # fmt: skip
    for address, code in (
        (postgres_server.remote(database), 0),
        (postgres_server.remote(database, "s3cretive"), 1),
    ):
        done = subprocess.run([*command, address], cwd=ROOT, capture_output=True, text=True, check=False)
        assert done.returncode == code, done.stderr
        assert "s3cret" not in done.stdout + done.stderr
        assert "Traceback" not in done.stderr
    kept = {path: path.read_bytes() for path in built.rglob("*") if path.is_file()}
    assert [path for path, content in kept.items() if b"s3cret" in content] == []
    assert b":***@" in kept[built / "reports" / "runs.jsonl"]


def test_a_storage_that_others_cannot_reach_is_refused(built: Path, tmp_path: Path) -> None:
    for storage in (None, f"sqlite:///{tmp_path}/study.db", "mysql://me:s3cret@host/db"):
        with pytest.raises(XlarankError, match=r"--worker cannot share .*journal:PATH") as caught:
            run(built, storage)  # type: ignore[arg-type]
        assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize("heartbeat", [0.0, -1.0, float("nan"), float("inf")])
def test_a_heart_that_never_beats(built: Path, tmp_path: Path, heartbeat: float) -> None:
    with pytest.raises(XlarankError, match=r"heartbeat is .* expected seconds, more than 0"):
        run(built, f"journal:{tmp_path}/study.log", heartbeat=heartbeat)


@pytest.mark.parametrize(
    ("storage", "why"),
    [
        ("journal:", "expected journal:PATH"),
        ("journal:{here}", "expected journal:PATH"),
        ("journal:{here}/file/study.log", "cannot be opened"),
        ("postgresql+nodriver://host/db", "driver nodriver of PostgreSQL is not installed"),
        ("postgresql://me:s3@cret@host/db", "write the @ of a password as %40"),
        ("postgresql://me:s3cret@host:port/db", "cannot be opened"),
    ],
)
def test_addresses_that_are_none(built: Path, tmp_path: Path, storage: str, why: str) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(XlarankError, match=why) as caught:
        run(built, storage.format(here=tmp_path))
    assert "cret" not in str(caught.value)


def test_a_worker_of_other_rows_is_refused(tree: Path, built: Path, tmp_path: Path, scored: None) -> None:
    """Graphs measured again: scores on them are no trials of that study."""
    storage = f"journal:{tmp_path / 'study.log'}"
    run(built, storage, trials=2)
    save_npz(graph_path(tree, TILE, "train", "dot__a"), tile_graph(50))
    other = tmp_path / "other"
    build(tree, other, collections=[TILE])
    with pytest.raises(XlarankError, match=r"cannot join the study tile:cpu/.*graphs, rows or runtimes are others"):
        run(other, storage, trials=3)
    assert len(trials_at(storage)) == 2
    assert run(other, storage, trials=1, worker=False).fresh == 1, "a study of its own"
    assert run(other, storage, trials=2).fresh == 1, "which its workers join"
    assert run(built, storage, trials=3).fresh == 1


@pytest.mark.parametrize(("setting", "why"), [("rounds", "--rounds is 7, the study's 10"), ("seed", "--seed is 7")])
def test_a_worker_of_other_settings_is_refused(
    built: Path, tmp_path: Path, scored: None, setting: str, why: str
) -> None:
    storage = f"journal:{tmp_path / 'study.log'}"
    run(built, storage, trials=1)
    with pytest.raises(XlarankError, match=why):
        run(built, storage, trials=2, **{setting: 7})
    assert run(built, storage, trials=2).fresh == 1
