"""Operations of a compiled program, and cycle predictions from kernels already compiled."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from xlarank.data.hlo.compiler.cycles import Line, Lines, read_compiled
from xlarank.data.hlo.compiler.outcome import NAME, ORIGIN, numbered

#: Opcodes in the body of a fusion that only moves data.
_MOVES: Final = frozenset({"parameter", "copy", "transpose", "bitcast", "convert", "reshape", "tuple"})
#: Opcodes without a kernel.
FREE: Final = frozenset({"bitcast", "get-tuple-element", "parameter", "constant", "tuple", "opt-barrier", "while"})
_SHAPE: Final = re.compile(r"(\w+)\[([\d,]*)\](?:\{([\d,]*)([^}]*)\})?")
_CALLS: Final = re.compile(r"\bcalls=%?([\w.\-]+)")
_ORIGIN: Final = re.compile(r'\bop_name="((?:[^"\\]|\\.)*)"')
_FRAME: Final = re.compile(r"\bstack_frame_id=(\d+)")
_SOURCE: Final = re.compile(r'\bsource_file="([^"]*)" source_line=(\d+)')
_NUMBER: Final = re.compile(r"\((\d+)\)")
_BACKEND: Final = re.compile(r", backend_config=\{.*")
_TILE: Final = re.compile(r"T\(([\d,]+)\)")
#: Quantile of an opcode's cycles per byte used for an unseen kernel, and factor applied to predictions. Both are
#: low: a program screened out by mistake is lost, one kept by mistake only costs a compilation.
_QUANTILE, _HOPE = 0.25, 0.7


@dataclass(frozen=True)
class Operation:
    """One operation of a compiled program.

    Attributes:
        shape, layout: first result's shape, such as ``f32[8,128]``, and minor-to-major layout.
        before: layout of the first operand.
        cycles: estimated cycles per run; 0 without an estimate.
        runs: number of executions.
        origin, source: name in the framework's program, and ``file:line``, if known.
        relayout: whether it only changes a value's layout or order of dimensions.
        kernel, likeness: hash of opcodes, shapes and layouts, including its body's; the same without layouts.
        bytes: size of result and operands, padded to tiles.
        number: parameter number; -1 for other operations.
    """

    name: str
    opcode: str
    computation: str
    shape: str
    layout: tuple[int, ...]
    operands: tuple[str, ...]
    before: tuple[int, ...]
    cycles: int
    runs: int
    origin: str
    source: str
    relayout: bool
    kernel: int
    likeness: int
    bytes: int
    number: int
    root: bool

    @property
    def dimensions(self) -> tuple[int, ...]:
        return tuple(int(size) for size in self.shape.partition("[")[2].rstrip("]").split(",") if size)

    @property
    def total(self) -> int:
        """Cycles of all runs."""
        return self.cycles * self.runs


def read_operations(text: str) -> list[Operation]:
    """Parse the operations of a compiled or optimised program; bodies of fusions are skipped."""
    compiled, sources = read_compiled(text), _sources(text)
    operations = []
    for computation, runs in compiled.runs.items():
        lines = compiled.computations[computation]
        for line in lines.values():
            operands = [name for name in line.operands if name in lines]
            inputs = [lines[name].shape for name in operands]
            called = _CALLS.search(line.rest)
            body = compiled.computations.get(called[1], {}) if called else {}
            layouts = " ".join([NAME.sub("%", _plain(line).partition(" = ")[2]), *inputs])
            layouts += "\n" + numbered("\n".join(map(_plain, body.values())))
            after, before = _parts(line.shape), _parts(inputs[0]) if inputs else ("", ())
            origin, number = _ORIGIN.search(line.rest), _NUMBER.match(line.rest)
            operations.append(Operation(
                line.name, line.opcode, computation, *after, tuple(operands), before[1], line.cycles, runs,
                origin[1] if origin else "", _source(line.rest, sources), _relayout(line, body, before, after),
                hash(layouts), hash(_SHAPE.sub(r"\1[\2]", layouts)),
                sum(map(padded_bytes, (line.shape, *inputs))),
                int(number[1]) if number and line.opcode == "parameter" else -1,
                line.text.lstrip().startswith("ROOT "),
            ))  # fmt: skip
    return operations


def _relayout(
    line: Line, body: Lines, before: tuple[str, tuple[int, ...]], after: tuple[str, tuple[int, ...]]
) -> bool:
    moved = before[1] != after[1]
    if line.opcode in ("copy", "transpose"):
        return line.opcode == "transpose" or moved
    opcodes = {inner.opcode for inner in body.values()}
    if line.opcode != "fusion" or not opcodes <= _MOVES or not opcodes & {"copy", "transpose"}:
        return False
    return moved or "transpose" in opcodes or before[0].partition("[")[2] != after[0].partition("[")[2]


def _parts(shape: str) -> tuple[str, tuple[int, ...]]:
    """Return shape and layout of the first array of a shape, such as ``f32[8,128]`` and ``(0, 1)``."""
    if not (array := _SHAPE.search(shape)):
        return shape, ()
    return f"{array[1]}[{array[2]}]", tuple(map(int, filter(None, (array[3] or "").split(","))))


def padded_bytes(shape: str) -> int:
    """Return the bytes of all arrays of a shape, with minor-most dimensions padded to the first tile.

    >>> padded_bytes("f32[16,3]{1,0:T(8,128)}"), padded_bytes("bf16[3,200]{0,1:T(8,128)(2,1)}")
    (8192, 51200)
    """
    total = 0
    for kind, dimensions, order, rest in _SHAPE.findall(shape):
        sizes = [int(size) for size in dimensions.split(",") if size]
        minor = [int(dimension) for dimension in order.split(",") if dimension]
        tile = _TILE.search(rest)
        sides = [int(side) for side in tile[1].split(",")] if tile else []
        for side, dimension in zip(reversed(sides), minor, strict=False):
            sizes[dimension] = -(-sizes[dimension] // side) * side
        bits = re.search(r"\d+", kind)
        total += math.prod(sizes) * max(1, int(bits[0]) // 8 if bits else 1)
    return total


def _plain(line: Line) -> str:
    return _CALLS.sub("", _BACKEND.sub("", ORIGIN.sub("", line.text))).strip()


def _sources(text: str) -> dict[str, str]:
    """Return ``file:line`` by stack frame id, from the tables above the computations."""

    def entries(name: str, pattern: str) -> list[Any]:
        _, _, rest = text.partition(f"\n{name}\n")
        return re.findall(pattern, rest.partition("\n\n")[0], re.MULTILINE)

    files = dict(entries("FileNames", r'^(\d+) "([^"]*)"$'))
    locations = entries("FileLocations", r"^(\d+) \{file_name_id=(\d+) .*?\bline=(\d+)")
    lines = {number: f"{files.get(file, '?')}:{line}" for number, file, line in locations}
    frames = entries("StackFrames", r"^(\d+) \{file_location_id=(\d+)")
    return {number: lines.get(location, "") for number, location in frames}


def _source(text: str, sources: Mapping[str, str]) -> str:
    if source := _SOURCE.search(text):
        return f"{source[1]}:{source[2]}"
    frame = _FRAME.search(text)
    return sources.get(frame[1], "") if frame else ""


@dataclass
class Kernels:
    """Cycles of known kernels.

    Attributes:
        exact: cycles by `Operation.kernel`.
        alike: lowest cycles by `Operation.likeness`.
        rates: cycles per byte by opcode.
    """

    exact: dict[int, int] = field(default_factory=dict)
    alike: dict[int, int] = field(default_factory=dict)
    rates: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))

    def learn(self, operations: Iterable[Operation]) -> None:
        """Remember the kernels of a compiled program."""
        for op in operations:
            if op.opcode not in FREE and op.kernel not in self.exact:
                self.exact[op.kernel] = op.cycles
                self.alike[op.likeness] = min(op.cycles, self.alike.get(op.likeness, op.cycles))
                self.rates[op.opcode].append(op.cycles / max(1, op.bytes))

    def predict(self, operations: Iterable[Operation]) -> float:
        """Predict the cycles of an optimised program, erring on the low side."""
        return sum(op.runs * self._cycles(op) for op in operations if op.opcode not in FREE)

    def _cycles(self, op: Operation) -> float:
        if op.kernel in self.exact:
            return self.exact[op.kernel]
        if op.likeness in self.alike:
            return _HOPE * self.alike[op.likeness]
        rates = self.rates[op.opcode]
        return _HOPE * op.bytes * float(np.quantile(rates, _QUANTILE)) if rates else 0.0
