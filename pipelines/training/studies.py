"""Optuna studies: storage, sampler, pruner and retries of lost trials."""

from __future__ import annotations

import os
import random
import socket
import time
import warnings
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, Final

import optuna
from optuna.samplers import TPESampler
from optuna.storages import BaseStorage
from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState

from xlarank.data.errors import WorkspaceError, XlarankError, require_ranges
from xlarank.data.files import regular_no_link
from xlarank.data.passwords import UNREADABLE, hide_passwords, without_password
from xlarank.models.validation.folds import FACTOR
from xlarank.models.validation.metrics import require_selection

#: States of finished trials.
FINISHED: Final = (TrialState.COMPLETE, TrialState.PRUNED)
#: Attribute of a trial with its process, ``host:number``; trials of killed processes are run again.
PROCESS: Final = "process"
#: Rows of a trial, by default.
MAX_ROWS: Final = 20_000
#: Seconds between heartbeats of a trial in a database, and without heartbeats before the trial is
#: retried.
HEARTBEAT = 10
GRACE = 60
#: Seconds after which a journal's lock is taken from a killed process.
LOCK_GRACE: Final = 30
#: Maximum number of retries of a trial whose process was lost.
_MAX_RETRIES: Final = 3
#: Beginning of a journal.
_ENTRY: Final = b'{"op_code"'
#: Timeouts of libpq in seconds, and a count of probes; without them a vanished server blocks
#: forever.
_LIBPQ: Final = {
    "connect_timeout": "10",
    "keepalives_idle": "30",
    "keepalives_interval": "10",
    "keepalives_count": "3",
}


@dataclass(frozen=True)
class StudyOptions:
    """Storage of a study, and rows and comparison of its trials; raises `XlarankError`.

    ``storage`` is ``journal:PATH`` or a database URL, by default a journal in the workspace. A
    ``worker`` joins a study that several machines share. Trials use a sample of at most
    ``max_rows`` rows; 0: all.
    """

    storage: str | None = None
    worker: bool = False
    select: str = "mean"
    max_rows: int = MAX_ROWS

    def __post_init__(self) -> None:
        require_ranges(max_rows=self.max_rows)
        require_selection("select", self.select)
        if self.shown == UNREADABLE:
            got = "the study storage cannot be used (`storage` is not an address)"
            address = "journal:PATH, postgresql+psycopg://USER@HOST/DATABASE"
            do = "check `storage`; write the @ of a password as %40"
            raise XlarankError(got, expected=f"{address} or another SQLAlchemy URL", do=do)
        if self.worker and (self.storage is None or self.storage.startswith("sqlite")):
            expected = "`storage=journal:PATH` or `storage=postgresql+psycopg://USER@HOST/DATABASE`"
            got = f"`worker` cannot share {self.shown} with other machines"
            raise XlarankError(got, expected=expected)

    @property
    def shown(self) -> str:
        """The storage without its password."""
        if self.storage is None:
            return "the studies of the workspace"
        return without_password(self.storage)


@contextmanager
def open_storage(options: StudyOptions, folder: Path) -> Iterator[BaseStorage]:
    """Yield the storage; raises `XlarankError` without passwords."""
    from sqlalchemy.exc import SQLAlchemyError

    address = options.storage or f"journal:{folder / 'journal.log'}"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", category=optuna.exceptions.ExperimentalWarning)
            if address.startswith("journal:"):
                yield _journal(Path(address.removeprefix("journal:").removeprefix("//")))
                return
            storage = _database(address)
            try:
                yield storage
            finally:
                storage.remove_session()
                storage.engine.dispose()
    except (
        SQLAlchemyError,
        optuna.exceptions.OptunaError,
        ImportError,
        UnboundLocalError,
    ) as error:
        # `optimize` raises UnboundLocalError if a storage fails twice; its first cause has the
        # server's message
        cause: BaseException = error
        while (wrapped := cause.__cause__ or cause.__context__) is not None:
            cause = wrapped
        text = f"{type(cause).__name__}: {' '.join(str(cause).split())}"
        reason = hide_passwords(text, options.storage)
        got = f"the study storage {options.shown} cannot be used ({reason})"
        install = "for PostgreSQL pip install 'xlarank[postgres]'"
        expected = f"a journal or a database that can be reached; {install}"
        do = "check `storage`, or run the same command again: finished trials are kept"
        # The library's error may hold the password.
        raise XlarankError(got, expected=expected, do=do) from None


def _journal(path: Path) -> BaseStorage:
    """Return a journal; an incomplete last line is dropped, a link or a pipe is refused."""
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend, JournalFileOpenLock

    path = path.absolute()

    class Lock(JournalFileOpenLock):
        """Optuna's lock, which also drops an incomplete last line of another process."""

        def acquire(self) -> bool:
            super().acquire()
            try:
                with open(path, "ab+", opener=regular_no_link) as file:
                    if size := file.seek(0, os.SEEK_END):
                        file.seek(0)
                        if not _ENTRY.startswith(file.read(len(_ENTRY))):
                            raise ValueError("it is no journal")
                        file.seek(size - 1)
                        if file.read(1) != b"\n":
                            file.seek(0)
                            file.truncate(file.read().rfind(b"\n") + 1)
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
        got = f"the study storage {path} cannot be used ({error})"
        do = "remove it, or pass another `workspace`"
        expected = "an Optuna journal, or journal:PATH of a file that is not there yet"
        raise WorkspaceError(got, expected=expected, do=f"{do} or `storage`") from error


def _database(address: str) -> Any:
    """Return a database; trials have heartbeats except in SQLite, which machines cannot share."""
    from optuna import storages
    from sqlalchemy.engine import make_url
    from sqlalchemy.exc import DBAPIError

    class Storage(storages.RDBStorage):
        """Storage that ignores a failed heartbeat: the next one follows soon."""

        def record_heartbeat(self, trial_id: int) -> None:
            with suppress(Exception):
                super().record_heartbeat(trial_id)

    url = make_url(address)
    settings = dict[str, Any](engine_kwargs={"pool_pre_ping": True})
    if url.drivername in ("postgresql", "postgres"):
        url = url.set(drivername="postgresql+psycopg")
    if url.drivername.startswith("postgresql+psycopg"):
        url = url.set(query={**_LIBPQ, **url.query})
    if not url.drivername.startswith("sqlite"):
        settings |= {"heartbeat_interval": HEARTBEAT, "grace_period": GRACE, **_retry()}
    for attempt in count():
        try:
            return Storage(url.render_as_string(hide_password=False), **settings)
        except DBAPIError as error:
            # Without a statement, the server cannot be reached.
            if attempt == 5 or error.statement is None:
                raise
            time.sleep(random.uniform(0.1, 1.0))  # another process creates the same tables


def _retry() -> dict[str, Any]:
    """Return the callback for lost trials, as an argument of a storage."""
    from optuna import storages

    if hasattr(storages, "RetryHeartbeatStaleTrialCallback"):  # since Optuna 4.9
        retry = storages.RetryHeartbeatStaleTrialCallback(_MAX_RETRIES)
        return {"heartbeat_stale_trial_callback": retry}
    return {"failed_trial_callback": storages.RetryFailedTrialCallback(_MAX_RETRIES)}


class NumberedTPESampler(TPESampler):
    """TPE seeded for each trial by the number of earlier ones, so that calls do not repeat draws.

    Failed trials count only if their retries are exhausted: an interruption changes no draw.
    """

    def __init__(self, seed: int) -> None:
        self._study_seed = seed
        self._reseed(0)

    def _reseed(self, number: int) -> None:
        seed = zlib.crc32(f"{self._study_seed}/{number}".encode())
        super().__init__(seed=seed, multivariate=True, n_startup_trials=20)

    def before_trial(self, study: Study, trial: FrozenTrial) -> None:
        trials = study.get_trials(deepcopy=False)
        earlier = [other for other in trials if other.number < trial.number]
        failed = (other for other in earlier if other.state == TrialState.FAIL)
        retries = [len(other.system_attrs.get("retry_history", ())) for other in failed]
        self._reseed(len(earlier) - len(retries) + retries.count(_MAX_RETRIES))
        super().before_trial(study, trial)


def open_study(
    storage: BaseStorage,
    options: StudyOptions,
    family: str,
    identity: Mapping[str, str],
    defaults: Mapping[str, Any],
    seed: int,
) -> Study:
    """Load or create the study of these rows and settings; its first trial is the defaults.

    ``identity`` has the values that all trials share, by their description; ``family`` is the name
    prefix of studies that differ only in them. Raises `XlarankError` for a worker that finds only
    studies of other identities.
    """
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    name = family + "/".join(identity.values())
    names = [other for other in optuna.get_all_study_names(storage) if other.startswith(family)]
    if options.worker and names and name not in names:
        existing = names[-1].removeprefix(family).split("/")
        pairs = zip(identity.items(), existing, strict=False)
        differ = [title for (title, value), existing_value in pairs if value != existing_value]
        study_at = f"the study {names[-1]} at {options.shown}"
        got = f"this worker cannot join {study_at}: other {' and '.join(differ)}"
        expected = "the same rows and settings in all workers of a study"
        build = "build its rows as the others' were and pass the same options"
        raise XlarankError(got, expected=expected, do=f"{build}, or run it once without `worker`")
    arguments: dict[str, Any] = {
        "study_name": name,
        "storage": storage,
        "sampler": NumberedTPESampler(seed),
        "pruner": optuna.pruners.SuccessiveHalvingPruner(min_resource=1, reduction_factor=FACTOR),
    }
    created = True
    try:
        study = optuna.create_study(direction="maximize", **arguments)
    except optuna.exceptions.DuplicatedStudyError:
        study = optuna.load_study(**arguments)
        created = False
    _retry_lost(study)
    trials = study.get_trials(deepcopy=False)
    alive = [trial for trial in trials if trial.state != TrialState.FAIL]
    points = [(trial.params, trial.system_attrs.get("fixed_params")) for trial in alive]
    tried = any(defaults in point for point in points)
    # If several processes begin at once, the one that created the study tries the defaults.
    if created or (trials and not tried):
        study.enqueue_trial(dict(defaults))
    return study


def _retry_lost(study: Study) -> None:
    """Queue the trials of killed processes of this machine again."""
    # Copies: Optuna changes what it retries.
    for trial in study.get_trials(states=(TrialState.RUNNING,)):
        host, _, number = str(trial.user_attrs.get(PROCESS, "")).rpartition(":")
        if host == socket.gethostname() and os.name == "posix" and not _other_process(int(number)):
            # Retried by another process.
            with suppress(optuna.exceptions.UpdateFinishedTrialError, ValueError):
                study.tell(trial.number, state=TrialState.FAIL)
                (retry,) = _retry().values()
                retry(study, trial)


def _other_process(number: int) -> bool:
    """Return whether another process with this number is running."""
    try:
        os.kill(number, 0)  # signal 0 only checks
    except OSError as error:
        return isinstance(error, PermissionError)
    return number != os.getpid()
