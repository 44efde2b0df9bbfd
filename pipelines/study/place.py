"""Storages that several machines can share: a journal file, or a PostgreSQL server."""

from __future__ import annotations

import importlib.util
import warnings
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from xlarank.data.errors import XlarankError
from xlarank.data.passwords import passwords_of, without, without_passwords
from xlarank.pipelines.study.steady import PATIENCE, Patience, steady
from xlarank.pipelines.study.storage import beside_others
from xlarank.pipelines.study.turns import JournalTurn, PostgresTurn, journal_lock

if TYPE_CHECKING:
    from optuna.storages import BaseStorage, RDBStorage

_JOURNAL: Final = "journal:"
_POSTGRES: Final = ("postgresql", "postgres")
#: Of libpq, in seconds: a server that does not answer is noticed, one that vanished without a word, too.
_NOTICE: Final[dict[str, Any]] = {
    "connect_timeout": 10,
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
    "application_name": "xlarank",
}


@dataclass(frozen=True)
class OpenPlace:
    """An opened storage.

    Attributes:
        storage: waits for a server that is away for a while.
        bare: the same one, which does not.
        shown: its address without a password.
    """

    storage: BaseStorage
    bare: BaseStorage
    shown: str
    _patience: Patience
    _engine: Any = None
    _journal: Path | None = None

    def turn(self, name: str) -> AbstractContextManager[None]:
        """A block that one worker at a time is in, of all workers that ask for a turn of this name."""
        if self._journal is not None:
            return JournalTurn(self._journal, self._patience)
        return PostgresTurn(self._engine, name, self._patience)

    def close(self) -> None:
        """Close its connections."""
        if self._engine is not None:
            self._engine.dispose()


def shareable(address: str) -> bool:
    """Whether workers of several machines can share the storage at this address.

    >>> [shareable(text) for text in ("journal:/shared/study.log", "postgresql+psycopg://host/db", "sqlite:///x")]
    [True, True, False]
    """
    return address.startswith(_JOURNAL) or _scheme(address).split("+")[0] in _POSTGRES


def open_place(address: str) -> OpenPlace:
    """Open a shareable storage; its tables or its file are made where they are missing.

    Raises `XlarankError` where it cannot be opened, without a password in the message.
    """
    shown, passwords = without_passwords(address), passwords_of(address)

    def told(error: BaseException) -> str:
        while error.__cause__ is not None:  # Optuna and SQLAlchemy wrap what the server said
            error = error.__cause__
        return without(f"{type(error).__name__}: {' '.join(str(error).split())}", passwords)

    patience = Patience(shown, told, PATIENCE)
    try:
        if address.startswith(_JOURNAL):
            return _journal(journal_path(address), shown, patience)
        return _postgres(_with_driver(address), shown, patience)
    except XlarankError:
        raise
    except Exception as error:  # of many libraries
        raise XlarankError(
            f"the study storage {shown} cannot be opened ({told(error)})",
            expected="journal:PATH in a folder that all workers see, or postgresql+psycopg://USER@HOST/DATABASE of "
            "a server that runs",
            do="check --storage",
        ) from None  # the error's own text may hold the password


def journal_path(address: str) -> Path:
    """The file of a journal's address.

    >>> [str(journal_path(text)) for text in ("journal:/a/b.log", "journal:///a/b.log")]
    ['/a/b.log', '/a/b.log']
    """
    name = address.removeprefix(_JOURNAL)
    path = Path(name.removeprefix("//"))
    if not path.name or path.is_dir():
        raise XlarankError(
            f"--storage is {address}", expected="journal:PATH, the name of a file that may not be there yet"
        )
    return path.absolute()


def _journal(path: Path, shown: str, patience: Patience) -> OpenPlace:
    import optuna
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend

    path.parent.mkdir(parents=True, exist_ok=True)
    lock = journal_lock(path, mend=True)
    lock.acquire()
    lock.release()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        bare = JournalStorage(JournalFileBackend(str(path), lock))
    return OpenPlace(steady(bare, patience), bare, shown, patience, _journal=path)


def _postgres(address: str, shown: str, patience: Patience) -> OpenPlace:
    from optuna.storages import RDBStorage, get_storage
    from sqlalchemy.engine import make_url

    url = make_url(address)
    if "@" in (url.host or ""):
        raise XlarankError(f"the address {shown} has two @", do="write the @ of a password as %40")
    engine: dict[str, Any] = {"pool_pre_ping": True}
    if url.get_driver_name() in ("psycopg", "psycopg2"):
        engine["connect_args"] = {name: value for name, value in _NOTICE.items() if name not in url.query}

    def opened() -> RDBStorage:
        return RDBStorage(address, engine_kwargs=dict(engine))

    relational = beside_others(opened)
    bare = get_storage(relational)  # with Optuna's cache of finished trials, as `create_study` would
    return OpenPlace(steady(bare, patience), bare, shown, patience, _engine=relational.engine)


def _with_driver(address: str) -> str:
    """An address that names its driver, psycopg unless told otherwise."""
    scheme = _scheme(address)
    if "+" not in scheme:
        address = f"postgresql+psycopg{address[len(scheme) :]}"
    driver = _scheme(address).split("+")[1]
    if importlib.util.find_spec(driver) is None:
        raise XlarankError(
            f"the driver {driver} of PostgreSQL is not installed", do="run: pip install 'xlarank[postgres]'"
        )
    return address


def _scheme(address: str) -> str:
    return address.partition("://")[0] if "://" in address else ""
