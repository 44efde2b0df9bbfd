"""Storages of studies: several processes, kills, locks left behind, servers, addresses and their passwords."""

import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import optuna
import pytest
from optuna.trial import TrialState

from tests.graphs import save_npz
from tests.pipelines.test_tune import (  # noqa: F401
    CLIMB,
    _no_pictures,
    by_learning_rate,
    folder,
    made_up,
    run,
    states,
    trials_of,
)
from tests.pipelines.trees import TILE, build, graph_path, tile_graph
from xlarank.data.errors import WorkspaceError, XlarankError
from xlarank.pipelines import tune
from xlarank.pipelines.training import studies
from xlarank.pipelines.training.studies import FINISHED, StudyOptions, open_storage

ROOT = Path(__file__).parents[2]
TRIALS = 6


def storages_of(now):
    """One kind of storage now, the others before a release."""
    others = [name for name in ("own", "postgresql", "sqlite", "journal") if name != now]
    marked = [pytest.param(name, marks=pytest.mark.exhaustive) for name in others]
    return pytest.mark.parametrize("storage", [now, *marked], indirect=True)


@pytest.fixture
def storage(request, tmp_path):
    """The address of an empty storage of each kind; None is the workspace's."""
    if request.param == "postgresql":
        server = request.getfixturevalue("postgres_server")
        return server.remote(request.getfixturevalue("database"))
    return {"sqlite": f"sqlite:///{tmp_path}/study.db", "journal": f"journal:{tmp_path}/s.log"}.get(request.param)


def start(workspace, storage, seconds):
    """A process that tunes: a trial takes so many seconds, prints a line and scores its learning rate."""
    words = [str(workspace), storage or "", str(seconds)]
    command = [sys.executable, "-m", __name__, *words]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def points(workspace, storage, *states):
    trials = trials_of(workspace, storage)
    return Counter(json.dumps(trial.params, sort_keys=True) for trial in trials if trial.state in states)


def test_an_entry_that_another_process_left_unfinished_costs_no_trial(tmp_path):
    path = tmp_path / "journal.log"
    with open_storage(StudyOptions(f"journal:{path}"), tmp_path) as storage:
        study = optuna.create_study(storage=storage)
        for _ in range(2):
            study.optimize(lambda trial: trial.suggest_float("x", 0, 1), n_trials=1)
            with path.open("a") as file:
                file.write('{"op_code": 4, "wor')
        assert [trial.state for trial in study.trials] == [TrialState.COMPLETE] * 2


@pytest.mark.slow
@storages_of("postgresql")
def test_processes_share_a_study(built, storage, monkeypatch):
    """Together they run as many trials as were asked for, none twice, and then there is nothing left to do."""
    processes = [start(built, storage, 0.3) for _ in range(2)]
    outputs = [process.communicate(timeout=200)[0] for process in processes]
    assert [process.returncode for process in processes] == [0, 0], outputs
    assert all("trial" in output and "Traceback" not in output for output in outputs), "both had some"
    assert [*points(built, storage, *FINISHED).values()] == [1] * TRIALS
    by_learning_rate(monkeypatch)
    assert run(built, TRIALS, study=StudyOptions(storage))[0].fresh == 0


@pytest.mark.slow
@storages_of("own")
def test_a_killed_process_is_made_up_for(built, storage, monkeypatch):
    """Its point is run again: on the same machine at once, in a database from anywhere after a time without
    heartbeats."""
    process = start(built, storage, 60 if storage else 0.2)
    for _ in range(1 if storage else 3):
        assert process.stdout.readline() == "trial\n"
    process.kill()
    process.communicate()
    by_learning_rate(monkeypatch)
    if storage and storage.startswith("postgresql"):
        monkeypatch.setattr("socket.gethostname", lambda: "elsewhere")
        monkeypatch.setattr(studies, "GRACE", 1)
        time.sleep(1.5)
    (result,) = run(built, TRIALS, study=StudyOptions(storage))
    over, lost = points(built, storage, *FINISHED), points(built, storage, TrialState.FAIL)
    assert [*over.values()] == [1] * TRIALS and result.trials == TRIALS
    assert sum(lost.values()) == 1 and set(lost) <= set(over)
    assert not points(built, storage, TrialState.RUNNING, TrialState.WAITING)


def test_a_point_at_which_processes_are_lost_again_and_again_is_given_up(built, monkeypatch):
    """Its rows may be too large for the memory; the study goes on without it."""
    calls = []

    def killed(params):
        calls.append(params["learning_rate"])
        if len(calls) > 1 and calls[-1] == calls[1]:
            raise SystemExit  # leaves the trial as a SIGKILL would
        return 0.5

    monkeypatch.setattr(CLIMB, made_up(killed))
    for _ in range(4):
        with pytest.raises(SystemExit):
            run(built, 3)
    run(built, 3)
    assert calls[1:5] == [calls[1]] * 4 and calls[1] not in calls[5:]
    assert states(built) == "CFFFFCC"


@pytest.mark.slow
def test_a_lock_left_by_a_kill_and_journals_that_were_cut_or_are_none(built, tmp_path, monkeypatch):
    """A link would have any file of the user's truncated after its last line, a pipe be waited for without end."""
    by_learning_rate(monkeypatch)
    run(built, 2)
    path = folder(built) / "journal.log"
    path.write_bytes(path.read_bytes()[:-9])
    path.with_name("journal.log.lock").touch()
    monkeypatch.setattr(studies, "LOCK_GRACE", 3)
    search = threading.Thread(target=run, args=(built, 4), daemon=True)
    search.start()
    search.join(60)
    assert not search.is_alive() and states(built).count("C") == 4
    path.write_text("{ no journal\n" + path.read_text())
    with pytest.raises(XlarankError, match=r"study storage .*journal\.log cannot be used"):
        run(built, 5)
    victim = tmp_path / "victim"
    victim.write_text("no end of line")
    for make in (lambda: path.symlink_to(victim), lambda: os.mkfifo(path)):
        path.unlink()
        make()
        with pytest.raises(WorkspaceError, match=r"study storage .*journal\.log cannot be used"):
            run(built)
    assert victim.read_text() == "no end of line"
    shutil.rmtree(built / "studies")
    (built / "studies").write_text("in the way")
    with pytest.raises(WorkspaceError, match=r"cannot be used .*another `workspace`"):
        run(built)


@pytest.mark.slow
def test_addresses_that_cannot_be_used(built, tmp_path):
    (tmp_path / "file").write_text("")
    for address, why in (
        ("nonsense", "is not an address"),
        (f"sqlite:///{tmp_path}/no/such/study.db", "cannot be used .*unable to open.*check `storage`"),
        ("journal:", "expected .* journal:PATH"),
        (f"journal:{tmp_path}/file/study.log", "study storage .*/file/study.log cannot be used"),
        ("postgresql+nodriver://host/db", "cannot be used .*nodriver"),
        ("postgresql://me:s3@cret@host/db", "write the @ of a password as %40"),
        ("postgresql://me:s3cret@host:port/db", "is not an address"),
        ("postgresql://me:s3cret@localhost:1/db", "cannot be used .*refused"),
    ):
        with pytest.raises(XlarankError, match=why) as caught:
            run(built, study=StudyOptions(address))
        assert "cret" not in str(caught.value) and len(str(caught.value).splitlines()) == 1


@pytest.mark.slow
def test_a_worker_joins_only_a_study_of_its_own_rows_and_settings(tree, built, tmp_path, monkeypatch):
    by_learning_rate(monkeypatch)
    for own in (None, f"sqlite:///{tmp_path}/study.db"):
        with pytest.raises(XlarankError, match=r"`worker` cannot share .*journal:PATH"):
            StudyOptions(own, worker=True)
    worker = StudyOptions(f"journal:{tmp_path}/study.log", worker=True)
    run(built, 1, study=worker)
    with pytest.raises(XlarankError, match=r"cannot join the study tile:cpu/.*: other `rounds`;"):
        run(built, 2, rounds=20, study=worker)
    save_npz(graph_path(tree, TILE, "train", "dot__a"), tile_graph(50))
    build(tree, tmp_path / "other", collections=[TILE])
    with pytest.raises(XlarankError, match=r"cannot join the study .*: other graphs, rows or runtimes;"):
        run(tmp_path / "other", 2, study=worker)
    assert run(built, 2, study=worker)[0].fresh == 1
    for other in ({"rounds": 20}, {"study": StudyOptions(worker.storage, select="robust")}):
        assert run(built, 1, **{"study": StudyOptions(worker.storage), **other})[0].fresh == 1, "another study"
    save_npz(graph_path(tree, TILE, "train", "dot__a"), tile_graph(51))
    build(tree, built, collections=[TILE])
    assert run(built, 1, study=StudyOptions(worker.storage))[0].fresh == 1, "graphs measured again"


@pytest.mark.slow
def test_a_server_that_goes_away(built, postgres_server, database, monkeypatch):
    """Between two trials it may; within one it is an error in one line, and the study goes on when it is back."""
    options = StudyOptions(postgres_server.remote(database), worker=True)
    calls = []

    def away(params):
        calls.append(0)
        if len(calls) in (2, 4):
            postgres_server.stop()
        if len(calls) == 2:
            postgres_server.start()
        return float(params["learning_rate"])

    monkeypatch.setattr(CLIMB, made_up(away))
    with pytest.raises(XlarankError, match=r"\*\*\*.*cannot be used .*run the same command again") as caught:
        run(built, study=options, trials=TRIALS)
    postgres_server.start()
    assert "s3cret" not in str(caught.value) and len(calls) == 4
    assert run(built, study=options, trials=TRIALS)[0].fresh == 3


@pytest.mark.slow
def test_the_password_is_nowhere(built, postgres_server, database):
    """Neither in what is printed nor in any file of the workspace: the log, the record of commands, the study."""
    command = [
        sys.executable, "run.py", "tune", "--worker", "--trials", "1", "--rounds", "3", "--threads", "1",
        "--collection", TILE, "--workspace", str(built), "--log-file", str(built / "log"), "--verbose", "--storage",
    ]  # fmt: skip
    right, wrong = postgres_server.remote(database), postgres_server.remote(database, "s3cretive")
    for address, code, text in ((right, 0, ""), (wrong, 1, "password authentication failed")):
        done = subprocess.run([*command, address], cwd=ROOT, capture_output=True, text=True, check=False)
        assert done.returncode == code, done.stderr
        assert text in done.stderr
        assert "s3cret" not in done.stdout + done.stderr and "Traceback" not in done.stderr
    kept = {path: path.read_bytes() for path in built.rglob("*") if path.is_file()}
    assert [path for path, content in kept.items() if b"s3cret" in content] == []
    assert b":***@" in kept[built / "reports" / "runs.jsonl"]


if __name__ == "__main__":
    workspace, address, seconds = sys.argv[1:]

    def score(params):
        print("trial", flush=True)
        time.sleep(float(seconds))
        return float(params["learning_rate"])

    tune.climb = made_up(score)
    run(Path(workspace), TRIALS, study=StudyOptions(address or None))
