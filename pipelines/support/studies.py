"""Optuna studies: where they are stored, their sampler and pruner, and what a trial scores."""

from __future__ import annotations

import json
import os
import random
import socket
import time
import warnings
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import optuna
from optuna.samplers import TPESampler
from optuna.trial import FrozenTrial, TrialState

from xlarank.data.errors import WorkspaceError, XlarankError
from xlarank.data.files import regular_no_link
from xlarank.data.passwords import UNREADABLE, hide_passwords, without_password
from xlarank.models.registry import ranker_class
from xlarank.models.training_data import FitSettings
from xlarank.models.validation.curves import FACTOR, FoldPlan, climb, rungs_of
from xlarank.models.validation.metrics import require_selection
from xlarank.pipelines.support.training_sets import StoredTrainingSet

if TYPE_CHECKING:
    from optuna.storages import BaseStorage
    from optuna.study import Study

#: Trials that are over and count.
FINISHED: Final = (TrialState.COMPLETE, TrialState.PRUNED)
#: The attributes of a trial that hold its process and its result.
_PROCESS, RESULT = "process", "result"
_JOURNAL: Final = "journal:"
#: Seconds between heartbeats of a trial in a database, and after how many without one it is run again.
HEARTBEAT, GRACE = 10, 60
#: Seconds after which a journal's lock is taken from a process that was killed while it held it.
LOCK_GRACE: Final = 30
#: How often tables are created that other processes create at the same moment.
_ATTEMPTS: Final = 5
#: How often the parameters of a trial are tried again when its process was lost.
_MOST_RETRIES: Final = 3
#: Of libpq, in seconds: otherwise a server that vanished is waited for without end.
_LIBPQ: Final = {
    "connect_timeout": "10", "keepalives_idle": "30", "keepalives_interval": "10", "keepalives_count": "3",
}  # fmt: skip


@dataclass(frozen=True)
class StudyOptions:
    """Where a study is stored and how its trials are compared; raises `XlarankError` for what cannot be used.

    Attributes:
        storage: ``journal:PATH`` or a database URL; None is a journal in the workspace.
        worker: join a study that several machines share.
        select: one of `xlarank.models.validation.metrics.SELECTIONS`.
    """

    storage: str | None = None
    worker: bool = False
    select: str = "mean"

    def __post_init__(self) -> None:
        require_selection(self.select)
        if self.shown == UNREADABLE:
            raise XlarankError(
                "the study storage cannot be used (--storage is not an address)",
                expected="journal:PATH, postgresql+psycopg://USER@HOST/DATABASE or another SQLAlchemy URL",
                do="check --storage; write the @ of a password as %40",
            )
        if self.worker and (self.storage is None or self.storage.startswith("sqlite")):
            raise XlarankError(
                f"--worker cannot share {self.shown} with other machines",
                expected="--storage journal:PATH or --storage postgresql+psycopg://USER@HOST/DATABASE",
            )

    @property
    def shown(self) -> str:
        """The storage without its password."""
        return "the studies of the workspace" if self.storage is None else without_password(self.storage)


@contextmanager
def open_storage(options: StudyOptions, folder: Path) -> Iterator[BaseStorage]:
    """The storage, created where it is missing; what it raises becomes one `XlarankError` without a password.

    ``folder`` holds the journal of the workspace.
    """
    from sqlalchemy.exc import SQLAlchemyError

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", category=optuna.exceptions.ExperimentalWarning)
            if options.storage is None or options.storage.startswith(_JOURNAL):
                named = (options.storage or "").removeprefix(_JOURNAL).removeprefix("//")
                yield _journal(folder / "journal.log" if options.storage is None else Path(named))
                return
            storage = _database(options.storage)
            try:
                yield storage
            finally:
                storage.remove_session()
                storage.engine.dispose()
    except (SQLAlchemyError, optuna.exceptions.OptunaError, ImportError, UnboundLocalError) as error:
        # `optimize` ends with the last of these where a storage fails twice; the cause is what the server said
        cause: BaseException = error
        while (wrapped := cause.__cause__ or cause.__context__) is not None:
            cause = wrapped
        text = f"{type(cause).__name__}: {' '.join(str(cause).split())}"
        raise XlarankError(
            f"the study storage {options.shown} cannot be used ({hide_passwords(text, options.storage)})",
            expected="a journal or a database that can be reached; for PostgreSQL pip install 'xlarank[postgres]'",
            do="check --storage, or run the same command again: finished trials are kept",
        ) from None  # the library's error may hold the password


def _journal(path: Path) -> BaseStorage:
    """A journal; a last line that a kill or a full disk cut short is dropped, a link or a pipe is refused."""
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend, JournalFileOpenLock

    path = path.absolute()

    class Lock(JournalFileOpenLock):
        """Optuna's lock, which also drops a last line that another process left unfinished."""

        def acquire(self) -> bool:
            super().acquire()
            try:
                _drop_cut_line(path)
            except BaseException:
                self.release()
                raise
            return True

    lock = Lock(str(path), grace_period=LOCK_GRACE)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock.acquire()
        lock.release()
        return JournalStorage(JournalFileBackend(str(path), lock))
    except (OSError, ValueError, KeyError) as error:
        raise WorkspaceError(
            f"the study storage {path} cannot be used ({error})",
            expected="an Optuna journal, or journal:PATH of a file that is not there yet",
            do="remove it, or pass another --workspace or --storage",
        ) from error


def _drop_cut_line(path: Path) -> None:
    with open(path, "ab+", opener=regular_no_link) as file:
        if size := file.seek(0, os.SEEK_END):
            file.seek(size - 1)
            if file.read(1) != b"\n":
                file.seek(0)
                file.truncate(file.read().rfind(b"\n") + 1)


def _database(address: str) -> Any:
    """A database; trials in one that several machines share have heartbeats."""
    from optuna import storages
    from sqlalchemy.engine import make_url
    from sqlalchemy.exc import DBAPIError

    class Storage(storages.RDBStorage):
        """A heartbeat that the server missed is no error: the next one comes soon."""

        def record_heartbeat(self, trial_id: int) -> None:
            with suppress(Exception):
                super().record_heartbeat(trial_id)

    url, settings = make_url(address), dict[str, Any](engine_kwargs={"pool_pre_ping": True})
    if url.drivername in ("postgresql", "postgres"):
        url = url.set(drivername="postgresql+psycopg")
    if url.drivername.startswith("postgresql+psycopg"):
        url = url.set(query={**_LIBPQ, **url.query})
    if not url.drivername.startswith("sqlite"):
        # Optuna 4.9 renamed both the argument and the callback.
        new = hasattr(storages, "RetryHeartbeatStaleTrialCallback")
        settings |= {"heartbeat_interval": HEARTBEAT, "grace_period": GRACE}
        settings["heartbeat_stale_trial_callback" if new else "failed_trial_callback"] = _retry()
    for _ in range(_ATTEMPTS):
        try:
            return Storage(url.render_as_string(hide_password=False), **settings)
        except DBAPIError as error:
            if error.statement is None:  # the server cannot be reached
                raise
            time.sleep(random.uniform(0.1, 1.0))  # another process creates the same tables
    return Storage(url.render_as_string(hide_password=False), **settings)


def _retry() -> Any:
    """Optuna's callback that queues the parameters of a lost trial, at most `_MOST_RETRIES` times."""
    from optuna import storages

    kind = getattr(storages, "RetryHeartbeatStaleTrialCallback", None) or storages.RetryFailedTrialCallback
    return kind(max_retry=_MOST_RETRIES)


@dataclass(frozen=True)
class Objective:
    """The mean score over held-out graphs of a ranker with the trial's parameters; call it with a trial.

    A trial grows few trees at first; successive halving lets the best quarter of the trials grow more. The defaults
    always grow all: the best trial is compared with them.

    Attributes:
        model, members: the ranker, and the parameters of its members that have studies of their own.
        settings: of every fit; its rounds are those of a whole trial.
        select: as `StudyOptions.select`.
    """

    training: StoredTrainingSet
    plan: FoldPlan
    model: str
    members: dict[str, dict[str, Any]]
    settings: FitSettings
    select: str

    @cached_property
    def defaults(self) -> dict[str, Any]:
        """The default values of the parameters that are searched."""
        params, kind = ranker_class(self.model).params_class, self.training.kind
        probe = optuna.trial.FixedTrial(params.of(kind).values())
        params.suggest(probe, kind)
        return {name: params.of(kind).values()[name] for name in probe.params}

    def __call__(self, trial: optuna.Trial) -> float:
        trial.set_user_attr(_PROCESS, f"{socket.gethostname()}:{os.getpid()}")
        kind = self.training.kind
        params = ranker_class(self.model).params_class.suggest(trial, kind).values()
        if self.members:
            params["members"] = {**params["members"], **self.members}
        ranker = ranker_class(self.model)(params, kind=kind)
        rungs = rungs_of(self.settings.rounds)
        scored = climb(rungs, self.training.data, self.plan.folds, ranker, self.settings)
        for number, curves in enumerate(scored):
            trial.report(float(curves.smooth_score(self.select).max()), FACTOR**number)
            poor = number + 1 < len(rungs) and trial.should_prune()  # asked for the defaults, too: they are rivals
            if poor and trial.params != self.defaults:
                scored.close()
                raise optuna.TrialPruned
        stage = curves.best_stage(self.select)
        scores = curves.column("score")[:, stage]
        graphs = dict(zip(curves.metrics, map(float, scores), strict=True))
        result = {"rounds": curves.rounds[stage], "mean": float(scores.mean()), "std": float(scores.std())}
        trial.set_user_attr(RESULT, {**result, "params": params, "graphs": graphs})
        return float(curves.smooth_score(self.select)[stage])

    def identity(self) -> dict[str, str]:
        """What all trials of a study have in common, by what a user may have to change."""
        data = self.training.data
        rows = repr((data.names, data.indptr.tolist())).encode() + data.cost.tobytes()
        members = json.dumps(self.members, sort_keys=True).encode()
        return {
            "feature columns": self.training.manifest.recipe.code_hash,
            "graphs, rows or runtimes": f"{zlib.crc32(rows):08x}", "folds": self.plan.by,
            "--rounds": str(self.settings.rounds), "parameters of members": f"{zlib.crc32(members):08x}",
        }  # fmt: skip


class NumberedTPESampler(TPESampler):
    """TPE seeded for each trial by the number of those before it that did not fail.

    With one seed for all, a second call or another process would repeat the first draws. Failed trials do not
    count: those of a killed process are run again, and the next draws are those of an uninterrupted study. A trial
    that is retried no more counts, else the next draw would be the same.
    """

    def __init__(self, seed: int) -> None:
        self._study_seed = seed
        self._start(0)

    def _start(self, number: int) -> None:
        numbered = zlib.crc32(f"{self._study_seed}/{number}".encode())
        super().__init__(seed=numbered, multivariate=True, n_startup_trials=20)

    def before_trial(self, study: Study, trial: FrozenTrial) -> None:
        before = [t for t in study.get_trials(deepcopy=False) if t.number < trial.number]
        retries = [len(t.system_attrs.get("retry_history", ())) for t in before if t.state == TrialState.FAIL]
        self._start(len(before) - len(retries) + retries.count(_MOST_RETRIES))
        super().before_trial(study, trial)


def open_study(objective: Objective, options: StudyOptions, storage: BaseStorage) -> Study:
    """The study of these rows and settings, created where it is missing; the defaults are its first trial.

    Raises `XlarankError` for a worker whose study nobody has created while there is one of other rows or settings.
    """
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    family = f"{objective.training.collection}/{objective.model}/{options.select}/"
    identity = objective.identity()
    name = family + "/".join(identity.values())
    names = [study for study in optuna.get_all_study_names(storage) if study.startswith(family)]
    if options.worker and names and name not in names:
        others = names[-1].removeprefix(family).split("/")
        differ = [what for (what, here), there in zip(identity.items(), others, strict=False) if here != there]
        raise XlarankError(
            f"this worker cannot join the study {names[-1]} at {options.shown}: other {' and '.join(differ)}",
            expected="the same rows and settings in all workers of a study",
            do="build its rows as the others' were and pass the same options, or run it once without --worker",
        )
    parts: dict[str, Any] = {
        "study_name": name, "storage": storage, "sampler": NumberedTPESampler(objective.settings.seed),
        "pruner": optuna.pruners.SuccessiveHalvingPruner(min_resource=1, reduction_factor=FACTOR),
    }  # fmt: skip
    created = True
    try:
        study = optuna.create_study(direction="maximize", **parts)
    except optuna.exceptions.DuplicatedStudyError:
        study, created = optuna.load_study(**parts), False
    _retry_lost(study)
    # Of several processes that begin at once the one that created the study tries the defaults.
    alive = [t for t in study.get_trials(deepcopy=False) if t.state != TrialState.FAIL]
    tried = any(objective.defaults in (t.params, t.system_attrs.get("fixed_params")) for t in alive)
    if created or (study.get_trials(deepcopy=False) and not tried):
        study.enqueue_trial(objective.defaults)
    return study


def _retry_lost(study: Study) -> None:
    """Run again what a process of this machine was at when it was killed; databases also have heartbeats."""
    for trial in study.get_trials(states=(TrialState.RUNNING,)):  # copies: Optuna changes what it retries
        host, _, number = str(trial.user_attrs.get(_PROCESS, "")).rpartition(":")
        if host == socket.gethostname() and os.name == "posix" and not _other_process(int(number)):
            with suppress(optuna.exceptions.UpdateFinishedTrialError, ValueError):  # another process did the same
                study.tell(trial.number, state=TrialState.FAIL)
                _retry()(study, trial)


def _other_process(number: int) -> bool:
    """Whether another process of this number runs."""
    try:
        os.kill(number, 0)  # asks, does not kill
    except OSError as error:
        return isinstance(error, PermissionError)
    return number != os.getpid()
