"""Entry layouts as lines for a JAX program."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from xlarank.data.hlo.compiler.constrain import Order
from xlarank.pipelines.programs.jax_lines import major_to_minor
from xlarank.pipelines.programs.leaves import Leaf

_HEAD = """\
from jax.experimental.layout import Format, Layout

def formats(tree, orders):  # of the arrays named, the others as they are
    named = lambda path, x: Format(Layout(major_to_minor=orders[jax.tree_util.keystr(path)]), sharding)
    plain = lambda path: jax.tree_util.keystr(path) not in orders
    return jax.tree_util.tree_map_with_path(lambda path, x: sharding if plain(path) else named(path, x), tree)

sharding = jax.sharding.SingleDeviceSharding(jax.devices()[0])"""


@dataclass(frozen=True)
class EntryChange:
    """One input or output that lies otherwise by the advice than ``before``, minor to major both."""

    leaf: Leaf
    before: Order
    minor_to_major: Order

    @property
    def major_to_minor(self) -> Order:
        """JAX's order."""
        return major_to_minor(self.minor_to_major)

    def as_json(self) -> dict[str, Any]:
        return asdict(self.leaf) | {
            "before": self.before,
            "minor_to_major": self.minor_to_major,
            "major_to_minor": self.major_to_minor,
        }


def entry_lines(inputs: Sequence[EntryChange], outputs: Sequence[EntryChange]) -> list[str]:
    """Lines that lay out arguments once and compile a function for them; ``step`` and ``arguments`` stand for what
    ``module:function`` returned.
    """
    if not inputs and not outputs:
        return []
    lines = _HEAD.splitlines()
    for title, changes in (("inputs", inputs), ("outputs", outputs)):
        lines.append(f"{title} = {{" + ("}" if not changes else ""))
        for one in changes:
            note = f"{one.leaf.kind} {one.leaf.name}, {one.leaf.shape}"
            lines.append(f"    {one.leaf.path!r}: {one.major_to_minor},  # {note}")
        lines += ["}"] if changes else []
    return [
        *lines,
        "in_formats = formats(arguments, inputs)",
        "out_formats = formats(jax.eval_shape(step, *arguments), outputs)",
        "step = jax.jit(step, in_shardings=in_formats, out_shardings=out_formats)",
        "arguments = jax.device_put(arguments, in_formats)  # once: weights when they are loaded, then each batch",
    ]
