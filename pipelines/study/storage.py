"""Opening an Optuna storage that other processes may be creating at the same moment."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    import optuna

#: Attempts, and seconds before the second one; the pause doubles from one to the next, 1.5 s in all.
_ATTEMPTS: Final = 6
_PAUSE: Final = 0.05
#: Seconds after which nobody waits for a server once more that did not even take the connection.
_UNREACHABLE: Final = 5.0

_T = TypeVar("_T")


def open_study(name: str, storage: optuna.storages.BaseStorage | str) -> optuna.Study:
    """The study of this name, created where it is missing; scores are maximised."""
    import optuna

    return beside_others(
        lambda: optuna.create_study(study_name=name, storage=storage, direction="maximize", load_if_exists=True)
    )


def beside_others(attempt: Callable[[], _T]) -> _T:
    """What the attempt returns, which may collide with the same attempt of another process.

    A database creates its tables when it is opened first. Two processes that do so at once find a table that was
    not there a moment ago, or the file locked; the later one tries again. Raises what the storage raised last.
    """
    import optuna
    from sqlalchemy.exc import DBAPIError, SQLAlchemyError

    for number in range(_ATTEMPTS):
        began = time.monotonic()
        try:
            return attempt()
        except (SQLAlchemyError, optuna.exceptions.StorageInternalError) as error:
            unconnected = isinstance(error, DBAPIError) and error.statement is None
            if number + 1 == _ATTEMPTS or (unconnected and time.monotonic() - began > _UNREACHABLE):
                raise
        time.sleep(_PAUSE * 2**number * random.uniform(0.5, 1.0))  # else two would collide again
    raise AssertionError("the last attempt returns or raises")
