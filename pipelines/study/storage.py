"""Opening an Optuna storage that other processes may be creating at the same moment."""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import optuna

#: Attempts, and seconds before the second one; the pause doubles from one to the next, 1.5 s in all.
_ATTEMPTS: Final = 6
_PAUSE: Final = 0.05


def open_study(name: str, storage: optuna.storages.BaseStorage | str) -> optuna.Study:
    """The study of this name, created where it is missing; scores are maximised.

    A database creates its tables when it is opened first. Two processes that do so at once find a table that was
    not there a moment ago, or the file locked; the later one tries again. Raises what the storage raised last.
    """
    import optuna
    from sqlalchemy.exc import SQLAlchemyError

    for attempt in range(_ATTEMPTS):
        try:
            return optuna.create_study(study_name=name, storage=storage, direction="maximize", load_if_exists=True)
        except (SQLAlchemyError, optuna.exceptions.StorageInternalError):
            if attempt + 1 == _ATTEMPTS:
                raise
        time.sleep(_PAUSE * 2**attempt * random.uniform(0.5, 1.0))  # else two would collide again
    raise AssertionError("the last attempt returns or raises")
