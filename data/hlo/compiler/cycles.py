"""The compiler's own estimate: the cycles of all operations, read from the text of a compiled program.

XLA:TPU writes ``"estimated_cycles":"N"`` into the backend configuration of fusions, convolutions, copies, ... once
their code is generated. Reshape, select-and-scatter and collectives carry none and count as nothing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from xlarank.data.errors import CompilerError
from xlarank.data.hlo.compiler.loops import split_line, trip_count

_HEADER: Final = re.compile(r"(ENTRY )?%?([\w.\-]+) \(")
_CYCLES: Final = re.compile(r'"estimated_cycles":"(\d+)"')
_CALLED: Final = {
    "while": re.compile(r"\bbody=%?([\w.\-]+)"),
    "call": re.compile(r"\bto_apply=%?([\w.\-]+)"),
}
_BRANCHES: Final = re.compile(r"\b(?:branch_computations=\{([^}]*)\}|(?:true|false)_computation=%?([\w.\-]+))")


@dataclass(frozen=True)
class Estimate:
    """The compiler's estimate of one compiled program.

    Attributes:
        cycles: of all operations with an estimate: the program's label before the clock.
        unknown_loops: loops without a known trip count; their bodies are counted once.
    """

    cycles: int = 0
    unknown_loops: int = 0


@dataclass
class _Computation:
    cycles: int = 0
    #: (computation, times); a list of several is a choice of which one runs.
    calls: list[tuple[list[str], int | None]] = field(default_factory=list)


def read_estimate(text: str) -> Estimate:
    """The cycles of a compiled program's text.

    Bodies of ``while`` count by their known trip count (once where it is unknown), the dearest branch of a
    ``conditional`` counts, and what a ``fusion`` calls is part of the fusion.
    Raises `CompilerError` when the text has no entry computation.
    """
    lines: dict[str, list[str]] = {}
    entry = current = ""
    for line in text.splitlines():
        header = None if line.startswith(" ") else _HEADER.match(line)
        if header:
            current = header[2]
            entry = current if header[1] else entry
            lines[current] = []
        elif current and " = " in line:
            lines[current].append(line)
    if not entry:
        raise CompilerError("the compiled program has no entry computation", expected="HLO text")
    computations = {name: _Computation() for name in lines}
    for name, own in lines.items():
        for line in own:
            _read_line(line, computations[name], own, lines)
    return _run(entry, computations)


def _read_line(
    text: str, computation: _Computation, around: Sequence[str], lines: Mapping[str, Sequence[str]]
) -> None:
    cycles = sum(int(number) for number in _CYCLES.findall(text))
    if not cycles and not any(word in text for word in (" while(", " call(", " conditional(")):
        return
    line = split_line(text)
    if line is None:
        return
    computation.cycles += cycles
    if line.opcode in _CALLED and (called := _CALLED[line.opcode].search(line.rest)):
        times = 1 if line.opcode == "call" else trip_count(line, around, lines)
        computation.calls.append(([called[1]], times))
    elif line.opcode == "conditional":
        names = [one for many, single in _BRANCHES.findall(line.rest) for one in (many or single).split(",")]
        computation.calls.append(([one.strip().lstrip("%") for one in names], 1))


def _run(name: str, computations: dict[str, _Computation]) -> Estimate:
    """One run of a computation with all it calls; HLO has no recursion."""
    computation = computations[name]
    cycles, unknown = computation.cycles, 0
    for names, times in computation.calls:
        called = max((_run(one, computations) for one in names), key=lambda run: run.cycles)
        cycles += called.cycles * (1 if times is None else times)
        unknown += called.unknown_loops + (times is None)
    return Estimate(cycles, unknown)
