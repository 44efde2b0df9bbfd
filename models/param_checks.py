"""Checks of parameters: each takes a name and a value and returns the value or raises `ParameterError`."""

from __future__ import annotations

import math
import numbers
from dataclasses import dataclass
from typing import Any, Final, Protocol

from xlarank.data.errors import ParameterError

#: The boosters hold whole numbers in 32 bits.
MOST_WHOLE: Final = 2**31 - 1


class Check(Protocol):
    """``check(name, value)``."""

    def __call__(self, name: str, value: Any) -> Any:
        """The value, as a plain Python number or text; raises `ParameterError`."""


@dataclass(frozen=True)
class Number:
    """A finite number from ``low`` (with ``above``: beyond it) to ``high``.

    >>> Number(0, 1, above=True)("subsample", 1)
    1.0
    """

    low: float = -math.inf
    high: float = math.inf
    above: bool = False

    def __call__(self, name: str, value: Any) -> float:
        if isinstance(value, numbers.Real) and not isinstance(value, bool):
            number = float(value)
            if (
                math.isfinite(number)
                and self.low <= number <= self.high
                and not (self.above and number == self.low)
            ):
                return number
        raise ParameterError(f"{name} is {value!r}", expected=self._expected())

    def _expected(self) -> str:
        beyond = "above" if self.above else "from"
        return f"a number {beyond} {self.low:g}" + (f" to {self.high:g}" if math.isfinite(self.high) else "")


@dataclass(frozen=True)
class Whole:
    """A whole number from ``low`` to ``high``.

    >>> Whole(1)("pairs", 8)
    8
    """

    low: int
    high: int = MOST_WHOLE
    why: str = ""

    def __call__(self, name: str, value: Any) -> int:
        if isinstance(value, numbers.Integral) and not isinstance(value, bool):
            number = int(value)
            if self.low <= number <= self.high:
                return number
        span = f"{self.low} or more" if self.high == MOST_WHOLE else f"{self.low} to {self.high}"
        raise ParameterError(
            f"{name} is {value!r}", expected=f"a whole number, {span}" + (f", {self.why}" if self.why else "")
        )


@dataclass(frozen=True)
class Flag:
    """True or False."""

    def __call__(self, name: str, value: Any) -> bool:
        if isinstance(value, bool):
            return value
        raise ParameterError(f"{name} is {value!r}", expected="True or False")


@dataclass(frozen=True)
class OneOf:
    """One of some texts.

    >>> OneOf(("rank", "log"))("labels", "nope")
    Traceback (most recent call last):
    xlarank.data.errors.ParameterError: labels is 'nope'; expected rank, log
    """

    choices: tuple[str, ...]

    def __call__(self, name: str, value: Any) -> str:
        if isinstance(value, str) and value in self.choices:
            return value
        raise ParameterError(f"{name} is {value!r}", expected=", ".join(self.choices))
