"""The compiler's own estimate: cycles of every operation, read from the text of a compiled program.

XLA:TPU writes ``"estimated_cycles":"N"`` into the backend configuration of fusions, convolutions, copies, ... once
their code is generated. Reshape, select-and-scatter and collectives carry none and count as nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Final

from xlarank.data.errors import CompilerError

_HEADER: Final = re.compile(r"(ENTRY )?%?([\w.\-]+) \(")
_CYCLES: Final = re.compile(r'"estimated_cycles":"(\d+)"')
_TRIPS: Final = re.compile(r'known_trip_count\\?":\s*\{\\?"n\\?":\\?"(\d+)')
_SOURCE: Final = re.compile(r'op_name="((?:[^"\\]|\\.)*)"')
_CALLED: Final = {
    "while": re.compile(r"\bbody=%?([\w.\-]+)"),
    "call": re.compile(r"\bto_apply=%?([\w.\-]+)"),
}
_BRANCHES: Final = re.compile(r"\b(?:branch_computations=\{([^}]*)\}|(?:true|false)_computation=%?([\w.\-]+))")


@dataclass(frozen=True)
class Operation:
    """One operation of a compiled program.

    Attributes:
        name, opcode: of the compiled operation, such as ``fusion.3`` and ``fusion``.
        shape: with element type and layout, such as ``f32[8,128]{1,0:T(8,128)}``.
        source: name of the operation of the original program that XLA says it stands for, or empty.
        cycles: the compiler's estimate for all its runs together.
    """

    name: str
    opcode: str
    shape: str
    source: str
    cycles: int


@dataclass(frozen=True)
class Estimate:
    """What the compiler thinks of one compiled program.

    Attributes:
        operations: those with an estimate, in program order; bodies of loops come after the entry's.
        unknown_loops: loops without a known trip count; their bodies are counted once.
    """

    operations: tuple[Operation, ...]
    unknown_loops: int = 0

    @property
    def cycles(self) -> int:
        """The sum over the program: its label before the clock."""
        return sum(operation.cycles for operation in self.operations)


@dataclass
class _Computation:
    own: list[Operation] = field(default_factory=list)
    #: (computation, times); a list of several is a choice of which one runs.
    calls: list[tuple[list[str], int | None]] = field(default_factory=list)


def read_estimate(text: str) -> Estimate:
    """Operations of a compiled program's text with their cycles.

    Bodies of ``while`` count by their known trip count (once where it is unknown), the dearest branch of a
    ``conditional`` counts, and what a ``fusion`` calls is part of the fusion.
    Raises `CompilerError` when the text has no entry computation.
    """
    computations: dict[str, _Computation] = {}
    entry = ""
    current: _Computation | None = None
    for line in text.splitlines():
        if not line.startswith(" "):
            header = _HEADER.match(line)
            if header:
                current = computations.setdefault(header[2], _Computation())
                entry = header[2] if header[1] else entry
            continue
        if current is not None and " = " in line:
            _read_line(line, current)
    if not entry:
        raise CompilerError("the compiled program has no entry computation", expected="HLO text")
    return _run(entry, computations)


def split_line(line: str) -> tuple[str, str, str, str] | None:
    """Name, shape, opcode and the rest of one line of HLO text; None for anything else.

    >>> split_line("  ROOT %add.1 = f32[8]{0:T(128)} add(%a, %b), metadata={}")
    ('add.1', 'f32[8]{0:T(128)}', 'add', '(%a, %b), metadata={}')
    """
    left, found, right = line.strip().partition(" = ")
    if not found:
        return None
    name = left.removeprefix("ROOT ").lstrip("%")
    depth = 0
    for at, letter in enumerate(right):
        depth += (letter in "({[") - (letter in ")}]")
        if letter == " " and depth == 0:
            opcode, paren, rest = right[at + 1 :].partition("(")
            return (name, right[:at], opcode, paren + rest) if paren else None
    return None


def _read_line(line: str, computation: _Computation) -> None:
    cycles = sum(int(number) for number in _CYCLES.findall(line))
    if not cycles and not any(word in line for word in (" while(", " call(", " conditional(")):
        return
    parts = split_line(line)
    if parts is None:
        return
    name, shape, opcode, rest = parts
    if cycles:
        source = _SOURCE.search(rest)
        computation.own.append(Operation(name, opcode, shape, source[1] if source else "", cycles))
    if opcode in _CALLED and (called := _CALLED[opcode].search(rest)):
        trips = _TRIPS.search(rest)
        times = 1 if opcode == "call" else int(trips[1]) if trips else None
        computation.calls.append(([called[1]], times))
    elif opcode == "conditional":
        names = [one for many, single in _BRANCHES.findall(rest) for one in (many or single).split(",")]
        computation.calls.append(([one.strip().lstrip("%") for one in names], 1))


def _run(name: str, computations: dict[str, _Computation]) -> Estimate:
    """One run of a computation with all it calls; HLO has no recursion."""
    computation = computations.get(name, _Computation())
    operations, unknown = list(computation.own), 0
    for names, times in computation.calls:
        called = max((_run(one, computations) for one in names), key=lambda run: run.cycles)
        operations += _repeated(called.operations, 1 if times is None else times)
        unknown += called.unknown_loops + (times is None)
    return Estimate(tuple(operations), unknown)


def _repeated(operations: tuple[Operation, ...], times: int) -> Iterator[Operation]:
    for operation in operations:
        yield replace(operation, cycles=operation.cycles * times)
