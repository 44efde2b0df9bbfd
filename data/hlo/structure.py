"""Validated structure of an HLO module: existing and unique ids, roots, opcodes, no recursion.

Every id in a file is checked before anything is computed from it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from xlarank.data.errors import HloError
from xlarank.data.hlo.messages import Message
from xlarank.data.schema import MAX_RANK

#: Operations whose layouts TpuGraphs chooses; the others follow them.
CONFIGURABLE_OPCODES: Final = frozenset({"convolution", "dot", "reshape"})
#: The largest real file that was looked at has 21,918 nodes; far more is a file made to fill the memory.
MAX_NODES: Final = 1_000_000
_OPCODE: Final = re.compile(r"[a-z][a-z0-9-]{0,63}")


@dataclass(frozen=True, eq=False)
class Structure:
    """Index of a validated module.

    Attributes:
        module: the ``HloModuleProto``.
        node_of: ``{computation id: {instruction id: node number}}``; nodes are numbered through the
            computations in the module's order, as the dataset does.
        root: ``{computation id: node number of its root}``.
        nodes: number of instructions.
    """

    module: Message
    node_of: dict[int, dict[int, int]]
    root: dict[int, int]
    nodes: int

    def instructions(self) -> Iterator[tuple[int, Message, Message]]:
        """Yield (node number, computation, instruction) in the dataset's order."""
        pairs = ((one, instruction) for one in self.module.computations for instruction in one.instructions)
        for node, (computation, instruction) in enumerate(pairs):
            yield node, computation, instruction


def check_structure(module: Message) -> Structure:
    """Check that everything a module names is in it, and number its nodes.

    Raises `HloError` for a module without instructions, with too many, an id that is missing or given twice,
    a root that is not there, or an opcode that cannot be one.
    """
    nodes = sum(len(computation.instructions) for computation in module.computations)
    if nodes == 0:
        raise HloError("the module has no instructions", expected="a program")
    if nodes > MAX_NODES:
        raise HloError(f"the module has {nodes:,} instructions", expected=f"at most {MAX_NODES:,}")
    node_of: dict[int, dict[int, int]] = {}
    root: dict[int, int] = {}
    node = 0
    for computation in module.computations:
        if computation.id in node_of:
            raise HloError(f"two computations have the id {computation.id}", expected="unique ids")
        numbers: dict[int, int] = {}
        for instruction in computation.instructions:
            if not _OPCODE.fullmatch(instruction.opcode):
                raise HloError(
                    f"{label(instruction)} has the opcode {instruction.opcode[:80]!r}", expected="a name like dot"
                )
            if numbers.setdefault(instruction.id, node) != node:
                same = f"two instructions of {label(computation)} have the id {instruction.id}"
                raise HloError(same, expected="unique ids")
            node += 1
        node_of[computation.id] = numbers
        if computation.root_id not in numbers:
            raise HloError(
                f"the root of {label(computation)} is instruction {computation.root_id}, which is not in it",
                expected="the id of one of its instructions",
            )
        root[computation.id] = numbers[computation.root_id]
    for computation in module.computations:
        for instruction in computation.instructions:
            for what, ids, known in (
                ("operand", instruction.operand_ids, node_of[computation.id]),
                ("control predecessor", instruction.control_predecessor_ids, node_of[computation.id]),
                ("called computation", instruction.called_computation_ids, root),
            ):
                for number in ids:
                    if number not in known:
                        got = f"{label(instruction)} names {what} {number}, which does not exist"
                        raise HloError(got, expected="a known id")
    return Structure(module, node_of, root, nodes)


def fused_computations(module: Message) -> set[int]:
    """Return ids of the bodies of fusions: one kernel each, whose inner operations have no layouts of their own."""
    fused = {computation.id for computation in module.computations if computation.is_fusion_computation}
    for computation in module.computations:
        for instruction in computation.instructions:
            if instruction.opcode == "fusion":
                fused.update(instruction.called_computation_ids)
    return fused


def configurable_nodes(structure: Structure) -> list[int]:
    """Return numbers of the nodes whose layouts can be configured.

    These are every convolution, dot and reshape outside the bodies of fusions, a rule that holds in all of Google's
    files that were looked at. Outputs of more dimensions than the format can name are left out.
    """
    fused = fused_computations(structure.module)
    return [
        node
        for node, computation, instruction in structure.instructions()
        if instruction.opcode in CONFIGURABLE_OPCODES
        and computation.id not in fused
        and len(instruction.shape.dimensions) <= MAX_RANK
    ]


def label(part: Message) -> str:
    """Return a display name of an instruction or computation; names from files are cut and quoted."""
    return f"%{part.name[:80]}" if part.name.isprintable() and part.name else f"the one with id {part.id}"
