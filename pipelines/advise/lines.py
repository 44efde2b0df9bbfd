"""Layout changes, and the code that applies them in a JAX program."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import NamedTuple

from xlarank.data.hlo.compiler.constrain import Order
from xlarank.data.hlo.compiler.cycles import read_estimate
from xlarank.data.hlo.compiler.functions import Pasted, Place
from xlarank.data.hlo.compiler.outcome import Outcome
from xlarank.data.hlo.compiler.session import Compiler
from xlarank.data.hlo.messages import Message, instructions
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
    """Convert an XLA layout to JAX's major-to-minor order.

    >>> major_to_minor([1, 0]), major_to_minor([0, 2, 1])
    ((0, 1), (1, 2, 0))
    """
    return tuple(int(dimension) for dimension in reversed(minor_to_major))


@dataclass(frozen=True)
class Change:
    """A layout to set on an operation of the program before layout assignment.

    Attributes:
        source, file, line: the operation's name and location in the program's source, if the module has them.
        code: source expression to constrain; empty if unknown.
    """

    node: int
    name: str
    opcode: str
    shape: str
    source: str
    file: str
    line: int
    minor_to_major: Order
    major_to_minor: Order
    code: str = ""

    @property
    def place(self) -> Place | None:
        """Location of the value to constrain; None if unknown or if it belongs to a gradient."""
        if not self.file or "transpose(" in self.source:
            return None
        sizes = self.shape.partition("[")[2].rstrip("]").split(",")
        return Place(self.file, self.line, tuple(int(size) for size in sizes if size), self.major_to_minor)


@dataclass(frozen=True)
class EntryChange(Leaf):
    """An input or output with a new layout; ``looped``: an output that becomes an input of the next step."""

    before: Order
    minor_to_major: Order
    major_to_minor: Order
    looped: bool = False


def changes_of(module: Message, layouts: Mapping[int, Order]) -> list[Change]:
    """Return a change for each node in ``layouts``."""
    nodes = [instruction for _, instruction in instructions(module)]
    return [
        Change(at, node.name, node.opcode, shape_text(node.shape), node.metadata.op_name,
               *source_line(module, node), order, major_to_minor(order))
        for at, order in layouts.items() for node in (nodes[at],)
    ]  # fmt: skip


def source_line(module: Message, instruction: Message) -> tuple[str, int]:
    """Return file and line of an instruction's innermost frame outside installed packages, if known."""
    index, frame = module.stack_frame_index, instruction.metadata.stack_frame_id
    with suppress(IndexError):  # a damaged module has invalid ids
        for _ in index.stack_frames:
            if not frame:
                break
            call = index.stack_frames[frame - 1]
            location = index.file_locations[call.file_location_id - 1]
            file = index.file_names[location.file_name_id - 1]
            if "-packages/" not in file:
                return file, location.line
            frame = call.parent_frame_id
    return instruction.metadata.source_file, instruction.metadata.source_line


def operation_lines(changes: Sequence[Change]) -> list[str]:
    """Return comments that show, for each operation, its location and the call that sets its layout."""
    lines = ["from jax.experimental.layout import Layout, with_layout_constraint"] if changes else []
    for change in changes:
        line = f"{change.file}:{change.line}, " if change.file else ""
        name = f", {change.source}" if change.source else ""
        lines.append(_comment(f"{line}{change.opcode} {change.shape}{name}"))
        layout = f"Layout(major_to_minor={change.major_to_minor})"
        lines.append(f"#   with_layout_constraint({change.code or 'VALUE'}, {layout})")
    return lines


def _comment(text: str) -> str:
    """Return the text as a one-line comment; names in a module may contain line breaks."""
    return f"# {repr(text)[1:-1]}"


def entry_lines(inputs: Sequence[EntryChange], outputs: Sequence[EntryChange]) -> list[str]:
    """Return code, to follow ``step, arguments = module.function()``, that sets entry layouts and compiles."""
    if not inputs and not outputs:
        return []
    lines = _FORMATS.splitlines()
    for title, changes in (("inputs", inputs), ("outputs", outputs)):
        lines.append(f"{title} = {{" + ("}" if not changes else ""))
        for leaf in changes:
            note = _comment(f"{leaf.kind} {leaf.name}, {leaf.shape}")
            lines.append(f"    {leaf.path!r}: {leaf.major_to_minor},  {note}")
        lines += ["}"] if changes else []
    return [*lines, *_COMPILED.splitlines()]


class Code(NamedTuple):
    """Lines to paste (empty if nothing is gained), and the cycles and text of the program compiled with them."""

    cycles: int
    text: str
    lines: list[str]
    changes: list[Change]
    pasted: Pasted | None = None


def pasted_code(compiler: Compiler, entry: Pasted, changes: list[Change], best: Code) -> Code:
    """Return the fastest code, with or without constraints in the source; ``best`` if none is faster."""
    places = {(at.file, at.line, at.dimensions): at for change in changes if (at := change.place)}
    for chosen in [list(places.values())] * bool(places) + [[]] * bool(entry.lines):
        pasted = replace(entry, places=chosen)
        if isinstance(answer := compiler.compile_pasted(pasted), Outcome):
            continue
        text, reached = answer
        cycles = read_estimate(text).cycles if compiler.target.estimated else 0
        if cycles < best.cycles:
            named = [
                replace(change, code=reached.get(change.place, "") if change.place else "") for change in changes
            ]
            lines = [*entry.lines, *operation_lines([change for change in named if change.code])]
            best = Code(cycles, text, lines, named, pasted)
    return best
