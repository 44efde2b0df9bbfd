"""The compiler's own estimate: the cycles of all operations, read from the text of a compiled program.

XLA:TPU writes ``"estimated_cycles":"N"`` into the backend configuration of fusions, convolutions, copies, ... once
their code is generated. Reshape, select-and-scatter and collectives carry none and count as nothing.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from xlarank.data.errors import CompilerError

#: Version of the way in which cycles are counted: labels of two versions never meet in one file.
COUNTING: Final = 2

_HEADER: Final = re.compile(r"(ENTRY )?%?([\w.\-]+) \(")
_LINE: Final = re.compile(r"\s*(?:ROOT )?%?(\S+) = (\(.*?\)|\S+) ([\w\-]+)(\(.*)")
_CYCLES: Final = re.compile(r'"estimated_cycles":"(\d+)"')
#: Computations that an operation calls, by opcode.
_CALLED: Final = {
    "while": re.compile(r"\bbody=%?[\w.\-]+"),
    "call": re.compile(r"\bto_apply=%?[\w.\-]+"),
    "conditional": re.compile(r"\b(?:branch_computations=\{[^}]*\}|(?:true|false)_computation=%?[\w.\-]+)"),
}
_NAME: Final = re.compile(r"[\w.\-]+")

_KNOWN: Final = re.compile(r'known_trip_count\\?":\s*\{\\?"n\\?":\\?"(\d+)')
_ROLES: Final = re.compile(r"\b(condition|body)=%?([\w.\-]+)")
_CONSTANT: Final = re.compile(r"\((-?\d+)\)")
_OPERANDS: Final = re.compile(r"%([\w.\-]+)")
_INDEX: Final = re.compile(r"\bindex=(\d+)")
_DIRECTION: Final = re.compile(r"\bdirection=([LG])([TE])")
#: Opcodes that return a counter unchanged.
_SAME: Final = frozenset({"copy", "bitcast", "copy-done", "copy-start"})


class Line(NamedTuple):
    """One instruction of HLO text: ``name = shape opcode(rest``."""

    text: str
    name: str
    shape: str
    opcode: str
    rest: str

    @property
    def operands(self) -> list[str]:
        return _OPERANDS.findall(self.rest.partition(")")[0])

    @property
    def cycles(self) -> int:
        """Estimated cycles, 0 if there are none."""
        return sum(map(int, _CYCLES.findall(self.rest)))


#: Instructions of one computation by name.
Lines = Mapping[str, Line]


@dataclass(frozen=True)
class Estimate:
    """Cycles of all operations that have some; bodies of loops without a known trip count are counted once."""

    cycles: int = 0
    unknown_loops: int = 0


class Compiled(NamedTuple):
    """Computations of a compiled program, the number of runs of those that are no fusion's, and the estimate."""

    computations: Mapping[str, Lines]
    runs: Mapping[str, int]
    estimate: Estimate


def read_estimate(text: str) -> Estimate:
    """Return the estimate in a compiled program's text.

    Bodies of ``while`` count by their trip count (once if unknown), a ``conditional`` by its dearest branch,
    computations of a ``fusion`` not. Raises `CompilerError` if the text has no entry computation.
    """
    return read_compiled(text).estimate


def read_compiled(text: str) -> Compiled:
    """Return the parts of a compiled program's text, as `read_estimate`."""
    computations: dict[str, dict[str, Line]] = {}
    entry, lines = "", dict[str, Line]()
    for row in text.splitlines():
        if not row.startswith(" ") and (header := _HEADER.match(row)):
            lines = computations[header[2]] = {}
            entry = header[2] if header[1] else entry
        elif parts := _LINE.match(row):
            lines[parts[1]] = Line(row, *parts.groups())
    if not entry:
        raise CompilerError("the compiled program has no entry computation", expected="HLO text")
    estimate, runs = _run(entry, computations)
    return Compiled(computations, runs, estimate)


def _run(name: str, computations: Mapping[str, Lines]) -> tuple[Estimate, Counter[str]]:
    """Return the estimate of one run of a computation with all it calls, and their runs; HLO has no recursion."""
    lines = computations[name]
    cycles, unknown, runs = 0, 0, Counter({name: 1})
    for line in lines.values():
        cycles += line.cycles
        if called := _called(line):
            branch, inner = max((_run(other, computations) for other in called), key=lambda run: run[0].cycles)
            trips = trip_count(line, lines, computations) if line.opcode == "while" else 1
            times = 1 if trips is None else trips
            cycles += branch.cycles * times
            unknown += branch.unknown_loops + (trips is None)
            runs.update({computation: count * times for computation, count in inner.items()})
    return Estimate(cycles, unknown), runs


def _called(line: Line) -> list[str]:
    """Return the computation that an operation runs, or those of which a ``conditional`` runs one."""
    attributes = _CALLED[line.opcode].findall(line.rest) if line.opcode in _CALLED else []
    branches = attributes if line.opcode == "conditional" else attributes[:1]
    return [name for attribute in branches for name in _NAME.findall(attribute.partition("=")[2])]


def trip_count(loop: Line, outside: Lines, computations: Mapping[str, Lines]) -> int | None:
    """Return the trip count of a ``while`` among the lines ``outside``; None if unknown.

    The compiler's note comes first; else the usual form is recognized: a counter that starts at a constant, grows
    or shrinks by a constant and is compared with a constant.
    """
    if known := _KNOWN.search(loop.rest):
        return int(known[1])
    called = dict(_ROLES.findall(loop.rest))
    condition, body = (computations[called[role]] for role in ("condition", "body"))
    test, result = (list(lines.values())[-1] for lines in (condition, body))
    direction = _DIRECTION.search(test.rest)
    if test.opcode != "compare" or direction is None:
        return None
    counter, limit = test.operands
    index, end = _tuple_index(counter, condition), _constant(limit, condition)
    if index is None or end is None:
        return None
    start = _constant(_element(outside.get(loop.operands[0]), index), outside)
    step = _step(_behind_copies(_element(result, index), body), index, body)
    if start is None or not step or (step > 0) != (direction[1] == "L"):
        return None
    if direction[2] == "E":
        end += 1 if step > 0 else -1
    return max(0, -(-(end - start) // step))


def _step(added: Line | None, index: int, body: Lines) -> int | None:
    """Return the constant that a line adds to a loop's counter, the element ``index`` of its tuple."""
    if added is None or added.opcode != "add":
        return None
    pairs = (added.operands, added.operands[::-1])
    steps = (_constant(step, body) for counter, step in pairs if _tuple_index(counter, body) == index)
    return next((step for step in steps if step is not None), None)


def _behind_copies(name: str, lines: Lines) -> Line | None:
    line = lines.get(name)
    while line is not None and line.opcode in _SAME:
        line = lines.get(line.operands[0])
    return line


def _constant(name: str, lines: Lines) -> int | None:
    line = _behind_copies(name, lines)
    number = _CONSTANT.match(line.rest) if line is not None and line.opcode == "constant" else None
    return int(number[1]) if number else None


def _element(line: Line | None, index: int) -> str:
    return line.operands[index] if line and line.opcode == "tuple" else ""


def _tuple_index(name: str, lines: Lines) -> int | None:
    """Return the index of a value of a loop's condition or body in the loop's tuple, if it is an element."""
    line = _behind_copies(name, lines)
    if line is None or line.opcode != "get-tuple-element":
        return None
    source, index = _behind_copies(line.operands[0], lines), _INDEX.search(line.rest)
    return int(index[1]) if index and source is not None and source.opcode == "parameter" else None
