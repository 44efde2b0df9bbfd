"""Where a study looks for a parameter, as Optuna's distributions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import optuna


class Search(Protocol):
    """A distribution of values."""

    def suggest(self, trial: optuna.trial.BaseTrial, name: str) -> Any:
        """A value of the parameter from the trial."""


@dataclass(frozen=True)
class Between:
    """Numbers from ``low`` to ``high``, even on a logarithmic scale if ``log``; whole ones if both ends are."""

    low: float
    high: float
    log: bool = False

    def suggest(self, trial: optuna.trial.BaseTrial, name: str) -> float:
        if isinstance(self.low, int) and isinstance(self.high, int):
            return trial.suggest_int(name, self.low, self.high, log=self.log)
        return trial.suggest_float(name, self.low, self.high, log=self.log)


@dataclass(frozen=True)
class Among:
    """One of some values, without any order."""

    choices: tuple[Any, ...]

    def suggest(self, trial: optuna.trial.BaseTrial, name: str) -> Any:
        return trial.suggest_categorical(name, list(self.choices))
