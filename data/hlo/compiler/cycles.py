"""The compiler's own estimate: the cycles of all operations, read from the text of a compiled program.

XLA:TPU writes ``"estimated_cycles":"N"`` into the backend configuration of fusions, convolutions, copies, ... once
their code is generated. Reshape, select-and-scatter and collectives carry none and count as nothing.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from xlarank.data.errors import CompilerError

#: Version of the way in which cycles are counted: labels of two versions never meet in one file.
COUNTING: Final = 2

_HEADER: Final = re.compile(r"(ENTRY )?%?([\w.\-]+) \(")
_CYCLES: Final = re.compile(r'"estimated_cycles":"(\d+)"')
_CALLED: Final = {"while": re.compile(r"\bbody=%?([\w.\-]+)"), "call": re.compile(r"\bto_apply=%?([\w.\-]+)")}
_BRANCHES: Final = re.compile(r"\b(?:branch_computations=\{([^}]*)\}|(?:true|false)_computation=%?([\w.\-]+))")

_KNOWN: Final = re.compile(r'known_trip_count\\?":\s*\{\\?"n\\?":\\?"(\d+)')
_ROLES: Final = re.compile(r"\b(condition|body)=%?([\w.\-]+)")
_CONSTANT: Final = re.compile(r"\((-?\d+)\)")
_OPERANDS: Final = re.compile(r"%([\w.\-]+)")
_INDEX: Final = re.compile(r"\bindex=(\d+)")
_DIRECTION: Final = re.compile(r"\bdirection=([LG])([TE])")
#: Opcodes that return a counter unchanged.
_SAME: Final = frozenset({"copy", "bitcast", "copy-done", "copy-start"})


@dataclass(frozen=True)
class Estimate:
    """Cycles of all operations that have some; bodies of loops without a known trip count are counted once."""

    cycles: int = 0
    unknown_loops: int = 0


class Compiled(NamedTuple):
    """Lines of every computation of a compiled program, runs of those that are no fusion's, and the estimate."""

    lines: Mapping[str, Sequence[str]]
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
    estimate, runs = _run(entry, lines)
    return Compiled(lines, runs, estimate)


def _run(name: str, lines: Mapping[str, Sequence[str]]) -> tuple[Estimate, Counter[str]]:
    """Return the estimate of one run of a computation with all it calls, and their runs; HLO has no recursion."""
    cycles, unknown, runs = 0, 0, Counter({name: 1})
    for text in lines[name]:
        line_cycles = cycles_of(text)
        if not line_cycles and not any(word in text for word in (" while(", " call(", " conditional(")):
            continue
        if (line := split_line(text)) is None:
            continue
        cycles += line_cycles
        if branches := _called(line):
            called, inner = max((_run(branch, lines) for branch in branches), key=lambda run: run[0].cycles)
            trips = trip_count(line, lines[name], lines) if line.opcode == "while" else 1
            times = 1 if trips is None else trips
            cycles += called.cycles * times
            unknown += called.unknown_loops + (trips is None)
            runs.update({computation: count * times for computation, count in inner.items()})
    return Estimate(cycles, unknown), runs


def _called(line: Line) -> list[str]:
    """Return the computation that an operation runs, or those of which a ``conditional`` runs one."""
    if line.opcode in _CALLED:
        return _CALLED[line.opcode].findall(line.rest)[:1]
    if line.opcode != "conditional":
        return []
    names = [name for many, single in _BRANCHES.findall(line.rest) for name in (many or single).split(",")]
    return [name.strip().lstrip("%") for name in names]


def cycles_of(line: str) -> int:
    """Return the estimated cycles of one line, 0 if it has none."""
    return sum(int(number) for number in _CYCLES.findall(line))


@dataclass(frozen=True)
class Line:
    """One instruction of HLO text: ``name = shape opcode(rest``."""

    name: str
    shape: str
    opcode: str
    rest: str

    @property
    def operands(self) -> list[str]:
        return _OPERANDS.findall(self.rest.partition(")")[0])


def split_line(line: str) -> Line | None:
    """Return the instruction of a line of HLO text; None for any other line.

    >>> split_line("  ROOT %add.1 = f32[8]{0:T(128)} add(%a, %b), metadata={}")
    Line(name='add.1', shape='f32[8]{0:T(128)}', opcode='add', rest='(%a, %b), metadata={}')
    """
    left, equals, right = line.strip().partition(" = ")
    if not equals:
        return None
    depth = 0
    for at, letter in enumerate(right):
        depth += (letter in "({[") - (letter in ")}]")
        if letter == " " and depth == 0:
            opcode, paren, rest = right[at + 1 :].partition("(")
            name = left.removeprefix("ROOT ").lstrip("%")
            return Line(name, right[:at], opcode, paren + rest) if paren else None
    return None


def trip_count(loop: Line, around: Sequence[str], computations: Mapping[str, Sequence[str]]) -> int | None:
    """Return the trip count of a ``while`` among the lines ``around``; None if unknown.

    The compiler's note comes first; else the usual form is recognized: a counter that starts at a constant, grows
    or shrinks by a constant and is compared with a constant.
    """
    if known := _KNOWN.search(loop.rest):
        return int(known[1])
    called = dict(_ROLES.findall(loop.rest))
    condition, body = (_lines(computations.get(called.get(role, ""), ())) for role in ("condition", "body"))
    if not condition or not body or not loop.operands:
        return None
    test = list(condition.values())[-1]
    direction = _DIRECTION.search(test.rest)
    if test.opcode != "compare" or direction is None or len(test.operands) != 2:
        return None
    index, end = _tuple_index(test.operands[0], condition), _constant(test.operands[1], condition)
    if index is None or end is None:
        return None
    outside = _lines(around)
    start, step = _constant(_element(outside.get(loop.operands[0]), index), outside), _step(index, body)
    if start is None or not step or (step > 0) != (direction[1] == "L"):
        return None
    if direction[2] == "E":
        end += 1 if step > 0 else -1
    return max(0, -(-(end - start) // step))


def _step(index: int, body: Mapping[str, Line]) -> int | None:
    added = _behind_copies(_element(list(body.values())[-1], index), body)
    if added is None or added.opcode != "add" or len(added.operands) != 2:
        return None
    pairs = (added.operands, added.operands[::-1])
    steps = [_constant(step, body) for counter, step in pairs if _tuple_index(counter, body) == index]
    return next((step for step in steps if step is not None), None)


def _lines(text: Sequence[str]) -> dict[str, Line]:
    return {line.name: line for line in map(split_line, text) if line is not None}


def _behind_copies(name: str, lines: Mapping[str, Line]) -> Line | None:
    line = lines.get(name)
    while line is not None and line.opcode in _SAME and line.operands:
        line = lines.get(line.operands[0])
    return line


def _constant(name: str, lines: Mapping[str, Line]) -> int | None:
    line = _behind_copies(name, lines)
    number = _CONSTANT.match(line.rest) if line is not None and line.opcode == "constant" else None
    return int(number[1]) if number else None


def _element(line: Line | None, index: int) -> str:
    return line.operands[index] if line and line.opcode == "tuple" and index < len(line.operands) else ""


def _tuple_index(name: str, lines: Mapping[str, Line]) -> int | None:
    """Return the index of a value of a loop's condition or body in the loop's tuple, if it is an element."""
    line = _behind_copies(name, lines)
    if line is None or line.opcode != "get-tuple-element":
        return None
    made, index = _behind_copies(line.operands[0], lines), _INDEX.search(line.rest)
    return int(index[1]) if index and made is not None and made.opcode == "parameter" else None
