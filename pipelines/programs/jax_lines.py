"""Layouts as lines for a JAX program."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from xlarank.data.hlo.messages import Message
from xlarank.data.schema import ELEMENT_BYTES

#: XLA's numbers of element types; the dataset's columns stand in another order.
_TYPES = {
    1: "pred", 2: "s8", 3: "s16", 4: "s32", 5: "s64", 6: "u8", 7: "u16", 8: "u32", 9: "u64",
    10: "f16", 11: "f32", 12: "f64", 15: "c64", 16: "bf16", 18: "c128",
}  # fmt: skip
assert set(_TYPES.values()) <= set(ELEMENT_BYTES)


def shape_text(shape: Message) -> str:
    """A shape as XLA writes it, such as ``f32[8,128]``."""
    name = _TYPES.get(shape.element_type, f"type{shape.element_type}")
    return f"{name}[{','.join(map(str, shape.dimensions))}]"


def major_to_minor(minor_to_major: Sequence[int]) -> tuple[int, ...]:
    """JAX's order of an XLA layout: the same dimensions from the other end.

    Row major is (1, 0) in XLA, minor-most first, and (0, 1) in JAX:

    >>> major_to_minor([1, 0]), major_to_minor([0, 2, 1])
    ((0, 1), (1, 2, 0))
    """
    return tuple(int(dimension) for dimension in reversed(minor_to_major))


def jax_lines(
    layouts: Sequence[tuple[Message, Sequence[int]]], written: Collection[tuple[int, ...]] | None = None
) -> list[str]:
    """The calls that set layouts ``(instruction, minor-to-major)``, each under a comment that says on which value.

    A value is known by the shape it has in the compiler. ``written`` are the dimensions of the values of the
    program itself; an operation that has none of them was rewritten by the compiler, and no line of JAX reaches it.
    """
    if not layouts:
        return []
    lines = ["from jax.experimental.layout import Layout, with_layout_constraint"]
    for instruction, order in layouts:
        place = instruction.metadata
        where = f", {place.source_file}:{place.source_line}" if place.source_file else ""
        named = f", {place.op_name}" if place.op_name else ""
        lines.append(f"# {instruction.opcode} {instruction.name}: {shape_text(instruction.shape)}{named}{where}")
        if written is not None and tuple(instruction.shape.dimensions) not in written:
            lines.append("# the compiler made this shape, no value of the program has it: use the edited module")
            continue
        lines.append(f"y = with_layout_constraint(y, Layout(major_to_minor={major_to_minor(order)}))")
    return lines
