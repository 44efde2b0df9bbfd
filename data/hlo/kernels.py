"""Kernels of a compiled program, each extracted as a module, with the tile that the compiler chose.

XLA:TPU writes the tile of every fusion, convolution, reduction, copy, ... into its backend configuration: window
bounds of kernel, output and input, with the two minor dimensions in hardware tiles as in TpuGraphs, and the
estimated cycles of the whole operation.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from xlarank.data.errors import HloError
from xlarank.data.hlo.encoding import Arrays, encode_kernel, fused_computations
from xlarank.data.hlo.messages import HloModuleProto, Message
from xlarank.data.schema import OPCODE

#: Cycles from here on mean no estimate: the compiler writes 2^63 - 1, or adds 2^60 to a sum.
NO_ESTIMATE: Final = 2**60


@dataclass(frozen=True, eq=False)
class Kernel:
    """One operation of a compiled program with its tile.

    Attributes:
        program: encoding of the operation as a module.
        digest: hash of ``program``.
        kernel, output: tile bounds; input bounds follow from them and are 0 in TpuGraphs' files.
        cycles: the compiler's estimate; `NO_ESTIMATE` or more means none.
    """

    opcode: str
    program: Arrays
    digest: str
    kernel: tuple[int, ...]
    output: tuple[int, ...]
    cycles: int


def cut_kernels(module: Message) -> Iterator[Kernel]:
    """Yield every operation with a tile, in program order.

    Operations on arrays in vector memory are skipped: they cost less, which no feature of the format could explain.
    """
    inside = fused_computations(module)
    for computation in module.computations:
        if computation.id in inside:
            continue
        shapes = {instruction.id: instruction.shape for instruction in computation.instructions}
        for instruction in computation.instructions:
            window = _window(instruction)
            around = [instruction.shape, *(shapes[operand] for operand in instruction.operand_ids)]
            if window is None or any(map(_in_vector_memory, around)):
                continue
            with suppress(HloError):  # beyond the limits of the format
                program = encode_kernel(_cut_out(module, computation, instruction))
                bounds = (window.get(f"{slot}_window_bounds", ()) for slot in ("kernel", "output"))
                kernel, output = (tuple(map(int, sizes)) for sizes in bounds)
                cycles = int(window["estimated_cycles"])
                yield Kernel(instruction.opcode, program, _digest(program), kernel, output, cycles)


def _cut_out(module: Message, computation: Message, instruction: Message) -> Message:
    """Return a module with one instruction, the computations it calls, and a parameter per operand."""
    computations = {computation.id: computation for computation in module.computations}
    waiting, needed = list(instruction.called_computation_ids), set[int]()
    while waiting:
        if (number := waiting.pop()) not in needed:
            needed.add(number)
            waiting += [id for inner in computations[number].instructions for id in inner.called_computation_ids]
    cut = HloModuleProto(name=instruction.name)
    cut.computations.extend(computations[number] for number in computations if number in needed)
    entry = cut.computations.add(name="main", id=1 + max(computations, default=0))
    cut.entry_computation_id, cut.entry_computation_name = entry.id, entry.name
    operands = {operand.id: operand for operand in computation.instructions}
    for number, operand in enumerate(dict.fromkeys(instruction.operand_ids)):
        parameter = entry.instructions.add(
            name=f"parameter.{number}", opcode="parameter", id=operand, parameter_number=number
        )
        parameter.shape.CopyFrom(operands[operand].shape)
    root = entry.instructions.add()
    root.CopyFrom(instruction)
    root.ClearField("control_predecessor_ids")
    entry.root_id = root.id
    return cut


def _window(instruction: Message) -> dict[str, Any] | None:
    """Return the tile from the backend configuration; None if missing or if the format has no such opcode."""
    if instruction.opcode not in OPCODE or b"estimated_cycles" not in instruction.backend_config:
        return None
    try:
        window = json.loads(instruction.backend_config)["window_config"]
    except (ValueError, KeyError, UnicodeDecodeError):
        return None
    return window if window.get("output_window_bounds") and int(window["estimated_cycles"]) > 0 else None


def _in_vector_memory(shape: Message) -> bool:
    return shape.layout.memory_space != 0 or any(map(_in_vector_memory, shape.tuple_shapes))


def _digest(program: Arrays) -> str:
    content = b"".join(program[name].tobytes() for name in ("node_feat", "node_opcode", "edge_index"))
    return hashlib.sha256(content).hexdigest()[:12]
