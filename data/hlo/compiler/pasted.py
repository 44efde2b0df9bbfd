"""Code of an advice as its reader pastes it: constraints in the program's source, lines below it.

Only ever imported in a child of `xlarank.data.hlo.compiler.service`, whose modules are not yet loaded.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.machinery import SourceFileLoader
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from xlarank.data.hlo.compiler.xla import Xla

_HOOK: Final = "__xlarank_constrain__"


@dataclass(frozen=True)
class Place:
    """A value to constrain: the innermost expression on a line whose value has these dimensions."""

    file: str
    line: int
    dimensions: tuple[int, ...]
    major_to_minor: tuple[int, ...]


@dataclass(frozen=True)
class Pasted:
    """Lines to run after ``step, arguments = function()``, and values to constrain in its source."""

    function: str
    lines: Sequence[str]
    places: Sequence[Place]
    one_hot: bool

    def load(self, device: Any) -> tuple[Any, Any, Any, dict[Place, str]]:
        """Return the compiled step, its arguments, their formats, and by place the expression constrained."""
        import jax

        from xlarank.data.hlo.compiler.xla import imported

        reached = _constrain_sources(self.places)
        step, arguments = imported(self.function, self.one_hot)
        sharding = jax.sharding.SingleDeviceSharding(device)
        scope = {"jax": jax, "device": device, "step": step, "arguments": arguments}
        scope["in_formats"] = jax.tree.map(lambda _: sharding, arguments)
        if self.lines:  # the last one makes arrays of arguments
            code = "\n".join(self.lines[:-1]).replace("jax.devices()[0]", "device")
            exec(code.replace("jax.jit(step", "jax.jit(step, keep_unused=True"), scope)
        else:
            scope["step"] = jax.jit(step, keep_unused=True, in_shardings=sharding, out_shardings=sharding)
        return scope["step"], arguments, scope["in_formats"], reached


def compile_pasted(xla: Xla, folder: Path, *, pasted: Pasted) -> tuple[str, dict[Place, str]]:
    """Return the compiled program's text, and by place the expression constrained."""
    import jax

    step, arguments, formats, reached = pasted.load(xla.device)
    shapes = jax.tree.map(
        lambda x, place: jax.ShapeDtypeStruct(jax.numpy.shape(x), jax.numpy.result_type(x), sharding=place),
        arguments, formats,
    )  # fmt: skip
    return step.lower(*shapes).compile().as_text(), reached


def _constrain_sources(places: Sequence[Place]) -> dict[Place, str]:
    """Constrain values in modules from now on imported; return expressions, filled as they are evaluated."""
    import builtins

    import jax
    from jax.experimental.layout import Layout, with_layout_constraint

    reached: dict[Place, str] = {}

    def hook(value: Any, file: str, first: int, last: int, text: str) -> Any:
        for place in places if isinstance(value, jax.core.Tracer) else ():
            here = place.file == file and first <= place.line <= last and value.shape == place.dimensions
            if here and reached.setdefault(place, text) == text:
                value = with_layout_constraint(value, Layout(place.major_to_minor))
        return value

    def get_code(loader: SourceFileLoader, name: str) -> Any:
        path = loader.get_filename(name)
        lines = [place.line for place in places if place.file == path]
        source = loader.get_source(name) if lines else None
        if source is None:
            return plain(loader, name)
        tree = ast.fix_missing_locations(_Hooks(source, path, lines).visit(ast.parse(source)))
        return compile(tree, path, "exec", dont_inherit=True)

    plain = SourceFileLoader.get_code
    setattr(builtins, _HOOK, hook)
    setattr(SourceFileLoader, "get_code", get_code)  # noqa: B010, mypy
    return reached


class _Hooks(ast.NodeTransformer):
    """Pass the values of calls and operators on some lines through the hook."""

    def __init__(self, source: str, path: str, lines: Sequence[int]) -> None:
        self.source, self.path, self.lines = source, path, lines

    def generic_visit(self, node: ast.AST) -> ast.AST:
        super().generic_visit(node)
        if not isinstance(node, ast.Call | ast.BinOp):
            return node
        first, last = node.lineno, node.end_lineno or node.lineno
        if not any(first <= line <= last for line in self.lines):
            return node
        text = " ".join((ast.get_source_segment(self.source, node) or "").split())
        arguments = [ast.Constant(value) for value in (self.path, first, last, text)]
        return ast.copy_location(ast.Call(ast.Name(_HOOK, ast.Load()), [node, *arguments], []), node)
