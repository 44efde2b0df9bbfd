"""Inputs and outputs of a program, and which of them a loop passes from one step to the next."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Final

from xlarank.data.hlo.encoding import shape_text
from xlarank.data.hlo.messages import Message
from xlarank.pipelines.programs.compiler.constrain import Order, entry_shapes

#: Opcodes that pass a weight on to the operation that uses it.
_RESHAPING: Final = frozenset(
    "convert copy reshape transpose bitcast reverse broadcast slice".split()
)
_WEIGHT_NAME: Final = re.compile(r"weight|param|kernel|embed|\bbias", re.IGNORECASE)


@dataclass(frozen=True)
class Leaf:
    """An input, weight or output, and its new layout, if any.

    Attributes:
        path: its `jax.tree_util.keystr`, empty if not traced from a function.
        looped: whether a loop passes it from one step to the next.
    """

    kind: str
    name: str
    path: str
    shape: str
    before: Order = ()
    minor_to_major: Order = ()
    looped: bool = False


def leaves_of(module: Message, paths: Sequence[Sequence[str]]) -> tuple[list[Leaf], list[Leaf]]:
    """Return inputs and outputs of a module; with ``paths`` if a function was traced."""
    entry = next(part for part in module.computations if part.id == module.entry_computation_id)
    input_paths, output_paths = paths
    parameters = [node for node in entry.instructions if node.opcode == "parameter"]
    parameters.sort(key=lambda parameter: parameter.parameter_number)
    inputs = []
    for at, parameter in enumerate(parameters):
        name = parameter.metadata.op_name or parameter.name
        is_weight = _WEIGHT_NAME.search(name) or _used_as_weight(entry, parameter.id)
        path = input_paths[at] if input_paths else ""
        kind = "weight" if is_weight else "input"
        inputs.append(Leaf(kind, name, path, shape_text(parameter.shape)))
    outputs = []
    for at, shape in enumerate(map(shape_text, entry_shapes(module)[1])):
        path = output_paths[at] if output_paths else ""
        name = f"result{path}" if output_paths else f"output {at}"
        outputs.append(Leaf("output", name, path, shape))
    return inputs, outputs


def ties_of(module: Message, inputs: Sequence[Leaf], outputs: Sequence[Leaf]) -> dict[int, int]:
    """Return which inputs a loop takes from outputs of its previous step, input -> output.

    Pairs are aliased (donated), or agree in shape and path. Full paths are compared first, then
    paths without the index of the argument: ``[0]['w']`` matches ``[1]['w']`` or ``['w']``.
    """
    aliases = module.input_output_alias.entries
    ties = {int(alias.parameter_number): int(sum(alias.output_shape_index)) for alias in aliases}
    for attempt in (0, 1):
        free: dict[tuple[str, str], int] = {}
        for at, leaf in enumerate(outputs):
            if at not in ties.values():
                paths = [leaf.path, leaf.path.partition("]")[2]][: attempt + 1]
                free = {(leaf.shape, path): at for path in paths if path} | free
        for at, leaf in enumerate(inputs):
            key = leaf.shape, [leaf.path, leaf.path.partition("]")[2]][attempt]
            if at not in ties and free.get(key, -1) not in (-1, *ties.values()):
                ties[at] = free[key]
    return ties


def _used_as_weight(entry: Message, parameter: int) -> bool:
    """Return whether a parameter is a product's second operand or the table of a gather."""
    users = defaultdict[int, list[Message]](list)
    for instruction in entry.instructions:
        for operand in set(instruction.operand_ids):
            users[operand].append(instruction)
    values = [parameter]
    for value in values:  # extended by results of operations that only change the form of a value
        for user in users[value]:
            if user.opcode in ("convolution", "dot", "gather"):
                return bool((user.operand_ids[0] == value) == (user.opcode == "gather"))
            if user.opcode in _RESHAPING and user.id not in values:
                values.append(user.id)
    return False


def changed_leaves(
    leaves: list[Leaf], before: list[Order], after: list[Order], looped: Collection[int]
) -> list[Leaf]:
    """Return the inputs or outputs whose layout changes."""
    changed = []
    for at, (leaf, old, new) in enumerate(zip(leaves, before, after, strict=True)):
        if old != new:
            changed.append(replace(leaf, before=old, minor_to_major=new, looped=at in looped))
    return changed
