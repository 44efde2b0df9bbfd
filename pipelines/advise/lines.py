"""Changes of layouts, and the lines that make them in a JAX program."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from xlarank.data.hlo.compiler.constrain import Order
from xlarank.data.hlo.messages import Message
from xlarank.pipelines.advise.diagnosis import Leaf, shape_text

_FORMATS = """\
from jax.experimental.layout import Format, Layout

def formats(tree, orders):  # of the arrays named, the others as they are
    named = lambda path, x: Format(Layout(major_to_minor=orders[jax.tree_util.keystr(path)]), sharding)
    plain = lambda path: jax.tree_util.keystr(path) not in orders
    return jax.tree_util.tree_map_with_path(lambda path, x: sharding if plain(path) else named(path, x), tree)

sharding = jax.sharding.SingleDeviceSharding(jax.devices()[0])"""
_COMPILED = """\
in_formats = formats(arguments, inputs)
out_formats = formats(jax.eval_shape(step, *arguments), outputs)
step = jax.jit(step, in_shardings=in_formats, out_shardings=out_formats)
arguments = jax.device_put(arguments, in_formats)  # once: weights when they are loaded, then each batch"""


def major_to_minor(minor_to_major: Sequence[int]) -> Order:
    """Return JAX's order of an XLA layout: the same dimensions from the other end.

    >>> major_to_minor([1, 0]), major_to_minor([0, 2, 1])
    ((0, 1), (1, 2, 0))
    """
    return tuple(int(dimension) for dimension in reversed(minor_to_major))


@dataclass(frozen=True)
class Change:
    """A layout to set on an operation of the program before layout assignment.

    Attributes:
        source: where the program's author wrote it, as far as the module says.
    """

    node: int
    name: str
    opcode: str
    shape: str
    source: str
    minor_to_major: Order
    major_to_minor: Order


@dataclass(frozen=True)
class EntryChange(Leaf):
    """An input or output that lies otherwise by the advice than ``before``, minor to major."""

    before: Order
    minor_to_major: Order
    major_to_minor: Order


def operation_lines(
    layouts: Sequence[tuple[Message, Order]], written: Collection[tuple[int, ...]] | None = None
) -> list[str]:
    """Return the calls that set layouts ``(instruction, minor to major)``, each below a comment naming the value.

    A value is known by the shape it has in the compiler. ``written`` are the dimensions of the values of the
    program itself; an operation that has none of them was rewritten by the compiler, and no line of JAX reaches it.
    """
    lines = ["from jax.experimental.layout import Layout, with_layout_constraint"] if layouts else []
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


def entry_lines(inputs: Sequence[EntryChange], outputs: Sequence[EntryChange]) -> list[str]:
    """Return lines that lay out arguments and compile for them, after ``step, arguments = module.function()``."""
    if not inputs and not outputs:
        return []
    lines = _FORMATS.splitlines()
    for title, changes in (("inputs", inputs), ("outputs", outputs)):
        lines.append(f"{title} = {{" + ("}" if not changes else ""))
        for one in changes:
            note = f"{one.kind} {one.name}, {one.shape}"
            lines.append(f"    {one.path!r}: {one.major_to_minor},  # {note}")
        lines += ["}"] if changes else []
    return [*lines, *_COMPILED.splitlines()]
