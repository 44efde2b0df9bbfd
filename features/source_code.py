"""Hashes of source code, without docstrings, comments and line breaks: these are free to change."""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, Final

_ROOT: Final = Path(__file__).parent.parent
#: Where the computation of columns starts.
_START: Final = "features/assemble.py"
#: Documents and messages: nothing here can change a number.
_PRESENTATION: Final = ("data/errors.py", "features/attribution.py", "features/meanings.py")
#: Fields of syntax trees that say nothing, or not the same in every version of Python.
_SILENT: Final = ("kind", "type_comment", "ctx")


@cache
def source_hash(root: Path = _ROOT) -> str:
    """Hash of the code below ``root`` that turns a file into numbers, the same in every version of Python.

    That is all of ``features/`` but what only shows columns, and what of ``data/`` their computation imports,
    directly or not.
    """
    own = [path.relative_to(root).as_posix() for path in root.joinpath("features").rglob("*.py")]
    texts: dict[str, str] = {}
    reached = [_START]
    while reached:
        name = reached.pop()
        if name not in texts and name not in _PRESENTATION:
            tree = ast.parse(root.joinpath(name).read_bytes())
            texts[name] = _text(tree)
            reached += _imported(tree, root)
    texts |= {name: text_of(root.joinpath(name).read_bytes()) for name in {*own} - {*texts, *_PRESENTATION}}
    return hashlib.sha256("".join(f"{name}\0{texts[name]}\0" for name in sorted(texts)).encode()).hexdigest()


def text_of(source: bytes | str) -> str:
    """Return what a hash of a module is made of; raises `SyntaxError` or `ValueError` for what is no Python."""
    return _text(ast.parse(source))


def _imported(tree: ast.Module, root: Path) -> Iterator[str]:
    """Files of ``data`` and ``features`` that a module imports."""
    names: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names += [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
    for name in names:
        package, _, rest = name.partition(".")
        file = rest.replace(".", "/") + ".py"
        if package == "xlarank" and rest.startswith(("data.", "features.")) and root.joinpath(file).exists():
            yield file


def _text(value: Any) -> str:
    """A syntax tree as text, without docstrings and without what is empty (other versions have other fields)."""
    if isinstance(value, list):
        return f"[{','.join(map(_text, value))}]"
    if not isinstance(value, ast.AST):
        return ascii(value)
    fields = {name: getattr(value, name, None) for name in value._fields if name not in _SILENT}
    documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    if isinstance(value, documented) and ast.get_docstring(value, clean=False) is not None:
        fields["body"] = value.body[1:]
    texts = [f"{name}={_text(part)}" for name, part in fields.items() if part is not None and part != []]
    return f"{type(value).__name__}({','.join(texts)})"
