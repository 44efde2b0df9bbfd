"""The text of a compiled program: operations, estimates of their cycles, predictions.

XLA:TPU writes ``"estimated_cycles":"N"`` into the backend configuration of fusions, convolutions,
copies, ... once their code is generated. Reshape, select-and-scatter and collectives have none and
count as 0.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any, Final

from xlarank.data.errors import CompilerError

_HEADER: Final = re.compile(r"(ENTRY )?%?([\w.\-]+) \(")
_INSTRUCTION: Final = re.compile(r"\s*(ROOT )?%?(\S+) = (\(.*?\)|\S+) ([\w\-]+)(\(.*)")
_BRANCHES: Final = re.compile(
    r"\bbranch_computations=\{([^}]*)\}|\b(?:true|false)_computation=%?([\w.\-]+)"
)
#: Attribute with the computation that an operation runs, by opcode.
_CALLED: Final = {"while": "body", "call": "to_apply"}
#: Opcodes that return a counter unchanged.
_IDENTITIES: Final = frozenset({"copy", "bitcast", "copy-done", "copy-start"})

#: Opcodes in the body of a fusion that only moves data.
_MOVES: Final = frozenset(
    {"parameter", "copy", "transpose", "bitcast", "convert", "reshape", "tuple"}
)
_SHAPE: Final = re.compile(r"(\w+)\[([\d,]*)\](?:\{([\d,]*)([^}]*)\})?")


@dataclass(eq=False)
class Operation:
    """An instruction of HLO text: ``name = result opcode``, and the rest from the bracket on.

    Attributes:
        inputs, users: operations of the same computation that it reads, and that read it.
        body: operations that a fusion runs.
        runs: number of runs of its computation, set by `read_operations`.
        source: ``file:line``, if known, set by `read_operations`.
    """

    computation: str
    root: bool
    name: str
    result: str
    opcode: str
    rest: str
    inputs: list[Operation] = field(init=False, repr=False, default_factory=list)
    users: list[Operation] = field(init=False, repr=False, default_factory=list)
    body: list[Operation] = field(init=False, repr=False, default_factory=list)
    runs: int = field(init=False, default=0)
    source: str = field(init=False, default="")

    def attribute(self, name: str) -> str:
        """Return the word after ``name=``, without a percent sign; empty if there is none."""
        match = re.search(rf"\b{name}=%?([\w.\-]+)", self.rest)
        return match[1] if match else ""

    @property
    def cycles(self) -> int:
        """Estimated cycles per run; 0 without an estimate."""
        return sum(map(int, re.findall(r'"estimated_cycles":"(\d+)"', self.rest)))

    @property
    def total(self) -> int:
        """Cycles of all runs."""
        return self.cycles * self.runs

    @property
    def origin(self) -> str:
        """Name in the framework's program, if known."""
        match = re.search(r'\bop_name="((?:[^"\\]|\\.)*)"', self.rest)
        return match[1] if match else ""

    @property
    def shape(self) -> str:
        """Shape of the first result, such as ``f32[8,128]``."""
        array = _SHAPE.search(self.result)
        return f"{array[1]}[{array[2]}]" if array else self.result

    @property
    def dimensions(self) -> tuple[int, ...]:
        return _numbers(self.shape.partition("[")[2].rstrip("]"))

    @property
    def layout(self) -> tuple[int, ...]:
        """Minor-to-major layout of the first result."""
        return next(iter(array_layouts(self.result)), ())

    @property
    def before(self) -> tuple[int, ...]:
        """Layout of the first operand."""
        return self.inputs[0].layout if self.inputs else ()

    @property
    def number(self) -> int:
        """Parameter number; -1 for other operations."""
        return int(self.rest[1:].partition(")")[0]) if self.opcode == "parameter" else -1

    @property
    def is_copy(self) -> bool:
        """True if the operation only changes layout or order (a fusion: also type and shape)."""
        moved = self.before != self.layout
        if self.opcode in ("copy", "transpose"):
            return self.opcode == "transpose" or moved
        opcodes = {inner.opcode for inner in self.body}
        if self.opcode != "fusion" or not opcodes <= _MOVES or not opcodes & {"copy", "transpose"}:
            return False
        reshaped = not self.inputs or self.inputs[0].dimensions != self.dimensions
        return moved or reshaped or "transpose" in opcodes


#: Operations by computation, the root last.
Computations = Mapping[str, Sequence[Operation]]


def read_estimate(text: str) -> tuple[int, int]:
    """Return the estimated cycles in a compiled program's text, and the loops that count once.

    The cycles of a ``while`` body are multiplied by its trip count; a loop of an unknown one counts
    once. A ``conditional`` counts as its most expensive branch, computations of a ``fusion`` are
    ignored. Raises `CompilerError` if the text has no entry computation.
    """
    cycles, unknown, _ = _estimate_run(*_read_computations(text))
    return cycles, unknown


def _read_computations(text: str) -> tuple[str, Computations]:
    """Return the name of the entry computation, and all computations."""
    computations: dict[str, dict[str, Operation]] = {}
    entry = name = ""
    for row in text.splitlines():
        if not row.startswith(" ") and (header := _HEADER.match(row)):
            name = header[2]
            computations[name] = {}
            entry = name if header[1] else entry
        elif name and (parts := _INSTRUCTION.match(row)):
            root, *fields = parts.groups()
            computations[name][fields[0]] = Operation(name, bool(root), *fields)
    if not entry:
        raise CompilerError("the compiled program has no entry computation", expected="HLO text")
    for lines in computations.values():
        for op in lines.values():
            names = re.findall(r"%([\w.\-]+)", op.rest.partition(")")[0])
            op.inputs = [lines[name] for name in names if name in lines]
            for operand in dict.fromkeys(op.inputs):
                operand.users.append(op)
            op.body = [*computations.get(op.attribute("calls"), {}).values()]
    return entry, {name: [*lines.values()] for name, lines in computations.items()}


def _estimate_run(name: str, computations: Computations) -> tuple[int, int, Counter[str]]:
    """Return the cycles of a computation, its loops counted once, and the runs of computations."""
    cycles = 0
    unknown = 0
    runs = Counter({name: 1})
    for op in computations[name]:
        cycles += op.cycles
        if called := _called(op):  # HLO has no recursion
            branches = (_estimate_run(branch, computations) for branch in called)
            most, inside, inner = max(branches, key=itemgetter(0))
            trips = trip_count(op, computations) if op.opcode == "while" else 1
            times = 1 if trips is None else trips
            cycles += most * times
            unknown += inside + (trips is None)
            runs.update({computation: count * times for computation, count in inner.items()})
    return cycles, unknown, runs


def _called(op: Operation) -> list[str]:
    """Return the computation that an operation runs, or the branches of a ``conditional``."""
    if op.opcode != "conditional":
        return [op.attribute(_CALLED[op.opcode])] if op.opcode in _CALLED else []
    names = list[str]()
    for branches, single in _BRANCHES.findall(op.rest):
        names += (branches or single).split(",")
    return [name.strip().lstrip("%") for name in names]


def trip_count(loop: Operation, computations: Computations) -> int | None:
    """Return the trip count of a ``while``; None if unknown. The TPU's compiler does not write it.

    In the usual form a counter starts at a constant, grows or shrinks by a constant and is compared
    with a constant.
    """
    test, result = (computations[loop.attribute(role)][-1] for role in ("condition", "body"))
    (initial,) = loop.inputs
    direction = test.attribute("direction")
    if test.opcode != "compare" or direction not in ("LT", "LE", "GT", "GE"):
        return None
    counter, limit = test.inputs
    index = _tuple_index(counter)
    end = _constant(limit)
    if index is None or end is None or not initial.opcode == result.opcode == "tuple":
        return None
    start = _constant(initial.inputs[index])
    step = _counter_step(_value(result.inputs[index]), index)
    if start is None or not step or (step > 0) != (direction[0] == "L"):
        return None
    if direction[1] == "E":
        end += 1 if step > 0 else -1
    return len(range(start, end, step))


def _counter_step(addition: Operation, index: int) -> int | None:
    """Return the constant that is added to a loop's counter, element ``index`` of its tuple."""
    if addition.opcode == "add":
        for counter, addend in (addition.inputs, addition.inputs[::-1]):
            step = _constant(addend)
            if step is not None and _tuple_index(counter) == index:
                return step
    return None


def _value(op: Operation) -> Operation:
    """Return the operation whose result is passed on unchanged."""
    while op.opcode in _IDENTITIES:
        op = op.inputs[0]
    return op


def _constant(op: Operation) -> int | None:
    value = _value(op)
    number = re.match(r"\((-?\d+)\)", value.rest)
    return int(number[1]) if number and value.opcode == "constant" else None


def _tuple_index(op: Operation) -> int | None:
    """Return the index of a value in the loop's tuple; None if it is no element."""
    element = _value(op)
    if element.opcode != "get-tuple-element" or _value(element.inputs[0]).opcode != "parameter":
        return None
    return int(element.attribute("index"))


def read_operations(text: str) -> list[Operation]:
    """Return the operations of all computations that a compiled or optimised program runs."""
    entry, computations = _read_computations(text)
    _, _, runs_of = _estimate_run(entry, computations)
    sources = _sources(text)
    operations = []
    for computation, runs in runs_of.items():
        for op in computations[computation]:
            op.runs = runs
            op.source = sources.get(op.attribute("stack_frame_id"), "")
            operations.append(op)
    return operations


def array_layouts(shapes: str) -> list[tuple[int, ...]]:
    """Return the minor-to-major layouts of arrays in HLO text; empty if there is none."""
    return [_numbers(array[3]) for array in _SHAPE.finditer(shapes)]


def _numbers(text: str | None) -> tuple[int, ...]:
    return tuple(map(int, filter(None, (text or "").split(","))))


def _sources(text: str) -> dict[str, str]:
    """Return ``file:line`` by stack frame id, from the tables above the computations."""

    def entries(name: str, pattern: str) -> list[Any]:
        table = text.partition(f"\n{name}\n")[2].partition("\n\n")[0]
        return re.findall(pattern, table, re.MULTILINE)

    files = dict(entries("FileNames", r'^(\d+) "([^"]*)"$'))
    locations = entries("FileLocations", r"^(\d+) \{file_name_id=(\d+) .*?\bline=(\d+)")
    lines = {number: f"{files.get(file, '?')}:{line}" for number, file, line in locations}
    frames = entries("StackFrames", r"^(\d+) \{file_location_id=(\d+)")
    return {number: lines.get(location, "") for number, location in frames}
