"""Inputs and outputs of a program: their names, and which inputs are weights."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from xlarank.data.hlo.compiler.constrain import entry_shapes
from xlarank.data.hlo.messages import Message
from xlarank.pipelines.programs.jax_lines import shape_text

#: What hands the values of a weight on to the operation that multiplies by them.
_SAME: Final = frozenset({"convert", "copy", "reshape", "transpose", "bitcast", "reverse", "broadcast", "slice"})
_NAMED: Final = re.compile(r"weight|param|kernel|embed|\bbias", re.IGNORECASE)


@dataclass(frozen=True)
class Leaf:
    """An array that goes into a program or comes out of it.

    Attributes:
        kind: ``weight`` (an input that is one by its name, or by its use as second operand of a convolution or
            product or as a table), ``input`` or ``output``.
        name: for people, ``weights['w1']``.
        path: in the tuple of arguments, or in the result, as `jax.tree_util.keystr` has it; empty for a module that
            no function made.
        shape: such as ``f32[8,128]``.
    """

    kind: str
    name: str
    path: str
    shape: str


def leaves_of(module: Message, paths: Sequence[Sequence[str]]) -> tuple[list[Leaf], list[Leaf]]:
    """Return inputs and outputs of a module; ``paths`` are those of a function, empty for a module."""
    entry = next((one for one in module.computations if one.id == module.entry_computation_id), None)
    parameters = {
        one.parameter_number: one for one in (entry.instructions if entry else ()) if one.opcode == "parameter"
    }
    shapes, results = entry_shapes(module)
    inputs = []
    for at, shape in enumerate(shapes):
        one = parameters.get(at)
        name = (one.metadata.op_name or one.name) if one is not None else f"parameter {at}"
        weight = one is not None and (_NAMED.search(name) or _multiplies(entry, one.id))
        path = paths[0][at] if at < len(paths[0]) else ""
        inputs.append(Leaf("weight" if weight else "input", name, path, shape_text(shape)))
    outputs = []
    for at, shape in enumerate(results):
        path = paths[1][at] if at < len(paths[1]) else ""
        name = f"result{path}" if paths[1] else f"output {at}"
        outputs.append(Leaf("output", name, path, shape_text(shape)))
    return inputs, outputs


def _multiplies(entry: Message, parameter: int) -> bool:
    """Whether a parameter comes to a convolution or product as second operand, or is a table to gather from."""
    users: dict[int, list[Message]] = defaultdict(list)
    for one in entry.instructions:
        for operand in set(one.operand_ids):
            users[operand].append(one)
    waiting, seen = [parameter], set[int]()
    while waiting:
        value = waiting.pop(0)
        for user in users[value]:
            if user.opcode in ("convolution", "dot", "gather"):
                return bool((user.operand_ids[0] == value) == (user.opcode == "gather"))
            if user.opcode in _SAME and user.id not in seen:
                seen.add(user.id)
                waiting.append(user.id)
    return False
