"""A storage that waits for its server: an answer that fails is asked for again until patience is over."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TypeVar

from xlarank.data.errors import XlarankError

if TYPE_CHECKING:
    import optuna

#: Seconds that a server may be away before a study gives up.
PATIENCE: Final = 300.0
#: Seconds before the second attempt; they double up to the longest pause.
_FIRST: Final = 0.25
_LONGEST: Final = 15.0

_T = TypeVar("_T")


class Patience:
    """Attempts at what may fail because a server (or a file system over the network) is away.

    Given up once, it does not wait again: whatever else wants the storage then fails at once, with the same error.
    """

    def __init__(self, shown: str, told: Callable[[BaseException], str], seconds: float) -> None:
        self._shown, self._told, self._seconds = shown, told, seconds
        self._over: XlarankError | None = None

    def until_done(self, attempt: Callable[[], _T]) -> _T:
        """What the attempt returns; raises `XlarankError` where it failed for too long."""
        started, pause = time.monotonic(), _FIRST
        while True:
            try:
                return attempt()
            except Exception as error:
                if not _away(error):
                    raise
                if self._over is None and time.monotonic() - started > self._seconds:
                    self._over = XlarankError(
                        f"the study storage {self._shown} has not answered for {self._seconds:.0f} s "
                        f"({self._told(error)})",
                        do="run the same command again when it does: finished trials are kept, and the one "
                        "under way is run again",
                    )
                if self._over is not None:
                    raise self._over from error
            time.sleep(pause * random.uniform(0.5, 1.0))
            pause = min(2 * pause, _LONGEST)


def steady(storage: optuna.storages.BaseStorage, patience: Patience) -> optuna.storages.BaseStorage:
    """The same storage, each of whose operations is tried again where it failed for lack of a server.

    An operation whose confirmation got lost is done twice. That writes the same value again, with two exceptions,
    both harmless: a trial that was made twice is never worked on and ends as one of a lost worker, and a trial that
    was finished already says so.
    """
    from optuna.storages import BaseStorage

    def of(name: str) -> Callable[..., Any]:
        return lambda self, *values, **named: patience.until_done(lambda: getattr(storage, name)(*values, **named))

    names = [name for name, value in vars(BaseStorage).items() if callable(value) and not name.startswith("_")]
    kind = type("SteadyStorage", (BaseStorage,), {name: of(name) for name in names})
    made: BaseStorage = kind()
    return made


def _away(error: BaseException) -> bool:
    """Whether the server, not the request, is the trouble. Optuna wraps what its database layer raised."""
    from optuna.exceptions import StorageInternalError
    from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError
    from sqlalchemy.exc import TimeoutError as PoolTimeout

    if isinstance(error, StorageInternalError) and error.__cause__ is not None:
        error = error.__cause__
    if isinstance(error, DBAPIError) and error.connection_invalidated:
        return True
    return isinstance(error, OperationalError | InterfaceError | PoolTimeout | OSError)
