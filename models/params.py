"""Parameters of rankers: defaults, checks and search space, declared once each."""

from __future__ import annotations

import math
import numbers
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from xlarank.data.errors import ParameterError, did_you_mean
from xlarank.data.graph import Kind

if TYPE_CHECKING:
    import optuna

#: Largest integer that boosters store, in 32 bits.
INT_MAX: Final = 2**31 - 1
#: Maximum number of leaves of a tree.
MAX_LEAVES: Final = 131_072
#: Maximum number of splits from the root to a leaf: contributions recurse as deep and take
#: quadratic time.
MAX_DEPTH: Final = 128


@dataclass(frozen=True)
class Interval:
    """Numbers from ``low`` (exclusive if ``above``) to ``high``: a check and a distribution."""

    low: float = -math.inf
    high: float = math.inf
    above: bool = False
    whole: bool = False
    log: bool = False

    def __call__(self, name: str, value: Any) -> Any:
        number: Any = numbers.Integral if self.whole else numbers.Real
        high = min(self.high, INT_MAX) if self.whole else self.high
        if isinstance(value, number) and not isinstance(value, bool) and math.isfinite(value):
            if self.low <= value <= high and not (self.above and value == self.low):
                return int(value) if self.whole else float(value)
        upper = f" to {high:.12g}" if math.isfinite(high) else ""
        noun = "a whole number" if self.whole else "a number"
        expected = f"{noun} {'above' if self.above else 'from'} {self.low:g}{upper}"
        raise ParameterError(f"{name} is {value!r}", expected=expected)

    def suggest(self, trial: optuna.trial.BaseTrial, name: str) -> float:
        if self.whole:
            return trial.suggest_int(name, int(self.low), int(self.high), log=self.log)
        return trial.suggest_float(name, self.low, self.high, log=self.log)


@dataclass(frozen=True)
class OneOf:
    """Check of a value against ``choices``, and its categorical distribution in studies."""

    choices: tuple[Any, ...]

    def __call__(self, name: str, value: Any) -> Any:
        for choice in self.choices:
            if isinstance(value, type(choice)) and value == choice:
                return choice
        raise ParameterError(f"{name} is {value!r}", expected=", ".join(map(str, self.choices)))

    def suggest(self, trial: optuna.trial.BaseTrial, name: str) -> Any:
        return trial.suggest_categorical(name, list(self.choices))


@dataclass(frozen=True)
class ParamSpec:
    """Declaration of a parameter.

    Attributes:
        default: value for graphs of all kinds, or for layouts if there is one for ``tile``.
        check: valid values; None for nested parameters.
        search: distribution in studies; if None, studies keep the default.
        meaning: description in the documentation.
    """

    default: Any
    check: Interval | OneOf | None
    search: Interval | OneOf | None = None
    meaning: str = ""
    tile: Any = None

    def default_for(self, kind: Kind) -> Any:
        return self.default if self.tile is None or kind == "layout" else self.tile


#: Declarations by name, in the order in which studies sample them.
Specs = Mapping[str, ParamSpec]


def complete_params(
    owner: str, specs: Specs, kind: Kind, changes: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return the defaults for a kind of graphs, updated by ``changes``; raise `ParameterError`.

    ``owner`` is the name used in messages.

    >>> specs = {"leaves": ParamSpec(15, Interval(2, whole=True), tile=7)}
    >>> complete_params("ranknet", specs, "tile"), complete_params("ranknet", specs, "layout")
    ({'leaves': 7}, {'leaves': 15})
    """
    changes = dict(changes or {})
    for name in changes:
        if name not in specs:
            got = f"{name!r} is not a parameter of {owner}"
            do = did_you_mean(str(name), specs)
            raise ParameterError(got, expected=", ".join(specs), do=do)
    values: dict[str, Any] = {}
    for name, spec in specs.items():
        value = changes.get(name, spec.default_for(kind))
        values[name] = value if spec.check is None else spec.check(name, value)
    return values


def suggest_params(specs: Specs, trial: optuna.trial.BaseTrial) -> dict[str, Any]:
    """Sample the parameters that studies search, in the order of their declaration."""
    values = {}
    for name, spec in specs.items():
        if spec.search is not None:
            values[name] = spec.search.suggest(trial, name)
    return values
