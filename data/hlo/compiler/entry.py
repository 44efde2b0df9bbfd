"""Entry layouts: how inputs and outputs of a program lie in memory.

A module says it by two attributes that XLA's clients read, one mode for each input and output: ``default``,
``auto`` (the compiler chooses) or an order such as ``{0,1}``, minor to major.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from xlarank.data.hlo.messages import HloModuleProto, Message

DEFAULT: Final = "default"
AUTO: Final = "auto"
#: Attributes of the module, and those of arguments and results in its MLIR form.
MODES: Final = ("arg_layout_modes", "out_layout_modes")
_HEADER: Final = re.compile(r"entry_computation_layout=\{(.*?)\}(?:, \w+=|\n|$)")
_ARRAY: Final = re.compile(r"\w+\[[\d,]*\](?:\{([\d,]*)[^}]*\})?|token\[\]")

Order = tuple[int, ...]


def entry_shapes(module: Message) -> tuple[list[Message], list[Message]]:
    """Return the shapes of inputs and outputs; those of a tuple that is the result count one by one."""
    result = module.host_program_shape.result
    return list(module.host_program_shape.parameters), list(result.tuple_shapes or [result])


def with_entry_modes(module: Message, inputs: Sequence[str], outputs: Sequence[str]) -> Message:
    """Return a copy of the module with a mode for each input and output; orders stand in its entry layout too."""
    edited = HloModuleProto()
    edited.CopyFrom(module)
    drop_entry_modes(edited)
    for key, modes, shapes in zip(MODES, (inputs, outputs), entry_shapes(edited), strict=True):
        edited.frontend_attributes.map.add(key=key, value=";".join(modes))
        for mode, shape in zip(modes, shapes, strict=True):
            if mode not in (DEFAULT, AUTO):
                shape.layout.Clear()
                shape.layout.minor_to_major.extend(order_of(mode))
    return edited


def drop_entry_modes(module: Message) -> None:
    """Remove the modes that a module names."""
    others = [one for one in module.frontend_attributes.map if one.key not in MODES]
    del module.frontend_attributes.map[:]
    module.frontend_attributes.map.extend(others)


def entry_modes(module: Message) -> list[list[str]] | None:
    """Return the modes of inputs and of outputs that the module names; None where all are the default."""
    given = {one.key: one.value.split(";") for one in module.frontend_attributes.map if one.key in MODES}
    modes = [given.get(key, []) for key in MODES]
    return modes if any(one != DEFAULT for part in modes for one in part) else None


def mode_of(order: Order) -> str:
    """Return the mode that asks for an order.

    >>> mode_of((0, 2, 1))
    '{0,2,1}'
    """
    return "{" + ",".join(map(str, order)) + "}"


def order_of(mode: str) -> Order:
    """Return the order that a mode asks for.

    >>> order_of("{0,2,1}")
    (0, 2, 1)
    """
    return tuple(map(int, mode.strip("{}").split(",")))


def compiled_entry_layouts(text: str) -> tuple[list[Order], list[Order]]:
    """Return how inputs and outputs lie in a compiled program, minor to major, from its text.

    >>> compiled_entry_layouts("HloModule m, entry_computation_layout={(f32[8,4]{0,1:T(8)}, s32[])->bf16[8]{0}}")
    ([(0, 1), ()], [(0,)])
    """
    found = _HEADER.search(text.partition("\n")[0])
    inputs, _, outputs = (found[1] if found else "").partition("->")
    return _orders(inputs), _orders(outputs)


def _orders(shapes: str) -> list[Order]:
    return [tuple(int(one) for one in (part[1] or "").split(",") if one) for part in _ARRAY.finditer(shapes)]
