"""One worker at a time, over all machines: locks that a killed holder does not keep."""

from __future__ import annotations

import hashlib
from contextlib import ExitStack, suppress
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from optuna.storages.journal import JournalFileOpenLock
    from sqlalchemy import Engine

    from xlarank.pipelines.study.steady import Patience

#: A turn takes less than a second: seconds after which its holder is no more, as a server sees it (files: 30).
GRACE: Final = 60


def journal_lock(path: Path, *, mend: bool = False) -> JournalFileOpenLock:
    """Optuna's lock by a file that only one process can create, which holds on NFS (version 3 or later), too.

    With ``mend`` whoever gets it drops a last line of the file at ``path`` that a kill or a full disk cut short:
    a line appended to it would spoil the journal.
    """
    from optuna.storages.journal import JournalFileOpenLock

    class Mending(JournalFileOpenLock):
        def acquire(self) -> bool:
            got: bool = super().acquire()
            try:
                if mend:
                    drop_cut_line(path)
            except BaseException:
                self.release()
                raise
            return got

    return Mending(str(path))


def drop_cut_line(path: Path) -> None:
    """Drop what stands behind the last end of line of a file; to be called with its lock held."""
    if not path.exists():
        return
    with path.open("rb+") as file:
        size = file.seek(0, 2)
        kept, step = size, 1 << 16
        while kept:
            start = max(0, kept - step)
            file.seek(start)
            found = file.read(kept - start).rfind(b"\n")
            if found >= 0:
                kept = start + found + 1
                break
            kept = start
        if kept < size:
            file.truncate(kept)


class JournalTurn:
    """A turn by a second lock file beside the journal."""

    def __init__(self, journal: Path, patience: Patience) -> None:
        self._lock, self._patience = journal_lock(journal.with_name(journal.name + ".turn")), patience

    def __enter__(self) -> None:
        self._patience.until_done(self._lock.acquire)

    def __exit__(self, *raised: object) -> None:
        with suppress(RuntimeError):  # taken away by others, who thought that its holder was dead
            self._lock.release()


class PostgresTurn:
    """A turn by an advisory lock of the server, which ends with the transaction, however that ends.

    A holder that is stopped, or whose machine is off, keeps it for `GRACE` seconds: then the server ends the
    transaction.
    """

    def __init__(self, engine: Engine, name: str, patience: Patience) -> None:
        self._engine, self._patience = engine, patience
        self._key = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big", signed=True)
        self._open = ExitStack()

    def __enter__(self) -> None:
        self._open = self._patience.until_done(self._begin)

    def _begin(self) -> ExitStack:
        from sqlalchemy import text

        with ExitStack() as stack:
            connection = stack.enter_context(self._engine.connect())
            stack.enter_context(connection.begin())
            connection.execute(text(f"SET LOCAL idle_in_transaction_session_timeout = {GRACE * 1000}"))
            connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": self._key})
            return stack.pop_all()
        raise AssertionError("the stack lets every error through")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        from sqlalchemy.exc import SQLAlchemyError

        with suppress(SQLAlchemyError):  # the server is away, and the lock with it
            self._open.close()
