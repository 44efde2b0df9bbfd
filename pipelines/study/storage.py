"""Optuna storages of studies: a journal file, or a database with heartbeats."""

from __future__ import annotations

import importlib.util
import os
import random
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from xlarank.data.errors import WorkspaceError, XlarankError
from xlarank.data.files import regular_no_link
from xlarank.data.passwords import UNREADABLE, hide_passwords, without_password
from xlarank.models.validation.paired import require_selection

if TYPE_CHECKING:
    from optuna.storages import BaseStorage

_JOURNAL: Final = "journal:"
#: Seconds between heartbeats of a trial in a database, and after how many without one it is run again.
HEARTBEAT: Final = 10
GRACE: Final = 60
#: Seconds after which a journal's lock is taken from a process that was killed while it held it.
LOCK_GRACE: Final = 30
#: How often the parameters of a trial are tried again when its process was lost.
MOST_RETRIES: Final = 3
#: Attempts to open a database that another process may be creating.
_ATTEMPTS: Final = 6
#: Of libpq, in seconds: otherwise a server that vanished is waited for without end.
_LIBPQ: Final[dict[str, Any]] = {
    "connect_timeout": 10, "keepalives_idle": 30, "keepalives_interval": 10, "keepalives_count": 3,
}  # fmt: skip


@dataclass(frozen=True)
class StudyOptions:
    """Where a study is stored and how its trials are compared.

    Attributes:
        storage: ``journal:PATH`` or a database URL; None is a journal in the workspace.
        worker: join a study that another process has created.
        select: one of `xlarank.models.validation.paired.SELECTIONS`.
    """

    storage: str | None = None
    worker: bool = False
    select: str = "mean"

    @property
    def shown(self) -> str:
        """The storage without its password."""
        return "the studies of the workspace" if self.storage is None else without_password(self.storage)

    def require_valid(self) -> None:
        """Raise `XlarankError` for a storage that cannot be used."""
        require_selection(self.select)
        if self.storage is not None and self.shown == UNREADABLE:
            raise XlarankError(
                "the study storage cannot be used (--storage is not an address)",
                expected="journal:PATH, postgresql+psycopg://USER@HOST/DATABASE or another SQLAlchemy URL",
                do="check --storage; write the @ of a password as %40",
            )
        if self.worker and (self.storage is None or self.storage.startswith("sqlite")):
            raise XlarankError(
                f"--worker cannot share {self.shown} with other machines",
                expected="a storage that several machines can reach",
                do="pass --storage journal:PATH or --storage postgresql+psycopg://USER@HOST/DATABASE",
            )


@contextmanager
def open_storage(options: StudyOptions, folder: Path) -> Iterator[BaseStorage]:
    """The storage, created where it is missing; what it raises becomes one `XlarankError` without a password.

    ``folder`` holds the journal of the workspace.
    """
    from optuna.exceptions import ExperimentalWarning, OptunaError
    from sqlalchemy.exc import SQLAlchemyError

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", category=ExperimentalWarning)
            storage = _opened(options, folder)
            try:
                yield storage
            finally:
                if (engine := getattr(storage, "engine", None)) is not None:
                    storage.remove_session()
                    engine.dispose()
    except (SQLAlchemyError, OptunaError, AssertionError, UnboundLocalError) as error:
        # Optuna and SQLAlchemy wrap what the server said; `optimize` stumbles over a storage that fails twice.
        causes: list[BaseException] = [error]
        while (cause := causes[-1].__cause__ or causes[-1].__context__) is not None:
            causes.append(cause)
        for each in causes:
            if isinstance(each, OSError):
                raise each from None
        if not any(isinstance(each, SQLAlchemyError | OptunaError) for each in causes):
            raise
        text = f"{type(causes[-1]).__name__}: {' '.join(str(causes[-1]).split())}"
        raise XlarankError(
            f"the study storage {options.shown} cannot be used ({hide_passwords(text, options.storage)})",
            expected="a journal or a database that can be reached",
            do="check --storage, or run the same command again: finished trials are kept",
        ) from None  # the library's error may hold the password


def _opened(options: StudyOptions, folder: Path) -> BaseStorage:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if options.storage is None:
            return _journal(folder.absolute() / "journal.log")
        if options.storage.startswith(_JOURNAL):
            path = Path(options.storage.removeprefix(_JOURNAL).removeprefix("//"))
            if not path.name or path.is_dir():
                raise XlarankError(
                    f"--storage is {options.storage}",
                    expected="journal:PATH, the name of a file that may not be there yet",
                )
            path.resolve().parent.mkdir(parents=True, exist_ok=True)
            return _journal(path.resolve())
    except OSError as error:
        raise WorkspaceError(
            f"cannot write the study at {error.filename or folder} ({error.strerror or error})",
            do="pass another --workspace or --storage",
        ) from error
    return _database(options.storage)


def _journal(path: Path) -> BaseStorage:
    """A journal at an absolute path; a link or a pipe in its place is refused."""
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend, JournalFileOpenLock

    with suppress(FileNotFoundError):  # a lock that is a link is of an earlier version, whose process is gone:
        if (lock := path.with_name(path.name + ".lock")).is_symlink():  # Optuna would wait for it without end
            lock.unlink()

    class Lock(JournalFileOpenLock):
        """Optuna's lock, which also drops a last line that a kill or a full disk cut short."""

        def acquire(self) -> bool:
            super().acquire()
            try:
                _drop_cut_line(path)
            except BaseException:
                self.release()
                raise
            return True

    guard = Lock(str(path), grace_period=LOCK_GRACE)
    guard.acquire()
    guard.release()
    try:
        return JournalStorage(JournalFileBackend(str(path), guard))
    except (ValueError, KeyError) as error:
        raise XlarankError(
            f"the study storage {path} cannot be used ({error})", expected="an Optuna journal", do="remove it"
        ) from error


def _drop_cut_line(path: Path) -> None:
    with suppress(FileNotFoundError), open(path, "rb+", opener=regular_no_link) as file:
        if file.seek(0, os.SEEK_END):
            file.seek(-1, os.SEEK_END)
            if file.read(1) != b"\n":
                file.seek(0)
                file.truncate(file.read().rfind(b"\n") + 1)


def _database(address: str) -> BaseStorage:
    """A database; trials in one that several machines share have heartbeats."""
    from optuna import storages
    from sqlalchemy.engine import make_url
    from sqlalchemy.exc import DBAPIError, SQLAlchemyError

    class Storage(storages.RDBStorage):
        """A heartbeat that the server missed is no error: the next one comes soon."""

        def record_heartbeat(self, trial_id: int) -> None:
            with suppress(Exception):
                super().record_heartbeat(trial_id)

    url = make_url(address)
    if url.drivername in ("postgresql", "postgres"):
        url = url.set(drivername="postgresql+psycopg")
    name, _, driver = url.drivername.partition("+")
    if driver and importlib.util.find_spec(driver) is None:
        do = "run: pip install 'xlarank[postgres]'" if driver == "psycopg" else f"install {driver}"
        raise XlarankError(f"the driver {driver} of {name} is not installed", do=do)
    engine: dict[str, Any] = {"pool_pre_ping": True}
    settings: dict[str, Any] = {}
    if driver in ("psycopg", "psycopg2"):
        engine["connect_args"] = {key: value for key, value in _LIBPQ.items() if key not in url.query}
    if name != "sqlite":
        # Optuna 4.9 renamed both the argument and the callback.
        new = hasattr(storages, "RetryHeartbeatStaleTrialCallback")
        settings = {"heartbeat_interval": HEARTBEAT, "grace_period": GRACE}
        settings["heartbeat_stale_trial_callback" if new else "failed_trial_callback"] = retry()
    for attempt in range(_ATTEMPTS):
        try:
            return Storage(url.render_as_string(hide_password=False), engine_kwargs=engine, **settings)
        except ImportError as error:
            raise XlarankError(
                f"a driver of {name} is not installed", do="install it, or check --storage"
            ) from error
        except SQLAlchemyError as error:
            # Tables that another process creates at the same moment; not a server that cannot be reached.
            if attempt + 1 == _ATTEMPTS or (isinstance(error, DBAPIError) and error.statement is None):
                raise
        time.sleep(0.05 * 2**attempt * random.uniform(0.5, 1.0))
    raise AssertionError("the last attempt returns or raises")


def retry() -> Any:
    """Optuna's callback that queues the parameters of a lost trial, at most `MOST_RETRIES` times."""
    from optuna import storages

    kind = getattr(storages, "RetryHeartbeatStaleTrialCallback", None) or storages.RetryFailedTrialCallback
    return kind(max_retry=MOST_RETRIES)
