"""Relayouts in the text of an optimised HLO module."""

from __future__ import annotations

import re
from math import prod
from typing import Final

from xlarank.data.schema import ELEMENT_BYTES

#: Name, element type, sizes, layout, opcode and first operand of an instruction.
_INSTRUCTION: Final = re.compile(
    r"^\s*(?:ROOT )?%?([\w.\-]+) = (\w+)\[([\d,]*)\]\{([\d,]*)[^}]*\} "
    r"([\w\-]+)\((?:[^%)]*)%?([\w.\-]+)?"
)
_DIMENSIONS: Final = re.compile(r"dimensions=\{([\d,]*)\}")
_BYTES: Final = ELEMENT_BYTES | {"f8e4m3fn": 1, "f8e5m2": 1, "s4": 1, "u4": 1}


def _numbers(text: str) -> list[int]:
    return [int(part) for part in text.split(",") if part]


def relayout_bytes(text: str) -> int:
    """Return the bytes read and written by copies and transposes, without padding.

    Instructions within fusions count as well. A copy to the same order, or a transpose that only
    renames dimensions, moves nothing; dimensions of size 1 have no order.
    """
    total = 0
    layouts: dict[str, tuple[list[int], list[int]]] = {}
    for line in text.splitlines():
        match = _INSTRUCTION.match(line)
        if not match:
            continue
        name, element, sizes, order, opcode, operand = match.groups()
        dims = _numbers(sizes)
        layout = _numbers(order)
        layouts[name] = dims, layout
        if opcode not in ("copy", "transpose") or operand not in layouts:
            continue
        operand_dims, operand_layout = layouts[operand]
        if opcode == "transpose":
            listed = _DIMENSIONS.search(line)
            permutation = _numbers(listed[1]) if listed else []
            layout = [permutation[dimension] for dimension in layout]
        before, after = (
            [d for d in order if operand_dims[d] != 1] for order in (operand_layout, layout)
        )
        if before != after:
            total += 2 * prod(dims) * _BYTES.get(element, 4)
    return total
