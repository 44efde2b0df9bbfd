"""Hashes of source code that ignore docstrings, comments and line breaks."""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, Final

_ROOT: Final = Path(__file__).parent.parent
#: Files that do not affect computed columns.
_PRESENTATION: Final = ("data/errors.py", "features/attribution.py", "features/meanings.py")


@cache
def source_hash(root: Path = _ROOT) -> str:
    """Return a hash of the code below ``root`` that computes columns, equal for all versions of Python.

    Covers ``features/`` without presentation, and the modules of ``data/`` that `features.assemble` imports,
    directly or not.
    """
    features = {path.relative_to(root).as_posix() for path in root.joinpath("features").rglob("*.py")}
    texts: dict[str, str] = {}
    reached = ["features/assemble.py"]
    while reached:
        if (name := reached.pop()) not in texts and name not in _PRESENTATION:
            tree = ast.parse(root.joinpath(name).read_bytes())
            texts[name] = _text(tree)
            reached += _imported(tree, root)
    texts |= {name: text_of(root.joinpath(name).read_bytes()) for name in features - {*texts, *_PRESENTATION}}
    return hashlib.sha256("".join(f"{name}\0{texts[name]}\0" for name in sorted(texts)).encode()).hexdigest()


def text_of(source: bytes | str) -> str:
    """Return the part of a module that is hashed; raises `SyntaxError` or `ValueError` for malformed source."""
    return _text(ast.parse(source))


def _imported(tree: ast.Module, root: Path) -> Iterator[str]:
    """Yield the files of ``data`` and ``features`` that a module imports."""
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
    """Return a syntax tree as text, without docstrings and fields that are empty or differ by version of Python."""
    if isinstance(value, list):
        return f"[{','.join(map(_text, value))}]"
    if not isinstance(value, ast.AST):
        return ascii(value)
    fields = {
        name: getattr(value, name, None) for name in value._fields if name not in ("kind", "type_comment", "ctx")
    }
    documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    if isinstance(value, documented) and ast.get_docstring(value, clean=False) is not None:
        fields["body"] = value.body[1:]
    texts = [f"{name}={_text(part)}" for name, part in fields.items() if part is not None and part != []]
    return f"{type(value).__name__}({','.join(texts)})"
