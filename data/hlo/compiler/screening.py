"""Estimates of programs before their code is generated, from kernels met before."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from xlarank.data.hlo.compiler.operations import FREE, Operation

#: Of the cycles a byte that kernels of an opcode took, the quantile that a new one is taken to need, and what new
#: kernels are taken to need of that, or of one that is alike: few, because a program that is given up too early is
#: lost, one that goes on costs a compilation.
_QUANTILE, _HOPE = 0.25, 0.7


@dataclass
class Kernels:
    """Cycles of kernels: exactly alike, alike but for layouts, and per byte of an opcode."""

    exact: dict[str, int] = field(default_factory=dict)
    alike: dict[str, int] = field(default_factory=dict)
    rates: dict[str, list[float]] = field(default_factory=dict)

    def learn(self, operations: Iterable[Operation]) -> None:
        """Remember the kernels of a compiled program."""
        for one in operations:
            if one.opcode in FREE or one.kernel in self.exact:
                continue
            self.exact[one.kernel] = one.cycles
            self.alike[one.likeness] = min(one.cycles, self.alike.get(one.likeness, one.cycles))
            self.rates.setdefault(one.opcode, []).append(one.cycles / max(1, one.bytes))

    def add(self, other: Kernels) -> None:
        """Remember those of another one, too."""
        self.exact |= other.exact
        for likeness, cycles in other.alike.items():
            self.alike[likeness] = min(cycles, self.alike.get(likeness, cycles))
        for opcode, rates in other.rates.items():
            self.rates.setdefault(opcode, []).extend(rates)

    def predict(self, operations: Iterable[Operation]) -> float:
        """Return the cycles of an optimised program, rather too few than too many."""
        return sum(one.runs * self._cycles(one) for one in operations if one.opcode not in FREE)

    def _cycles(self, one: Operation) -> float:
        if one.kernel in self.exact:
            return self.exact[one.kernel]
        if one.likeness in self.alike:
            return _HOPE * self.alike[one.likeness]
        rates = self.rates.get(one.opcode)
        return _HOPE * one.bytes * float(np.quantile(rates, _QUANTILE)) if rates else 0.0
