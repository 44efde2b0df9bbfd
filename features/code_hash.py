"""Hashes of the code that computes columns, equal for all versions of Python."""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, Final

_ROOT: Final = Path(__file__).parent.parent
#: Files that do not affect computed columns.
_PRESENTATION: Final = ("data/errors.py", "features/meanings.py")


def text_hash(source: str) -> str:
    """Return a hash of a file's code without comments and docstrings."""
    return hashlib.sha256(_text(ast.parse(source)).encode()).hexdigest()[:16]


@cache
def source_hash(root: Path = _ROOT) -> str:
    """Return a hash of the code below ``root`` that computes columns.

    Covers ``features/`` and the modules of ``data/`` that `xlarank.features.assembly` imports,
    directly or indirectly, except `_PRESENTATION`.
    """
    texts: dict[str, str] = {}
    pending = ["features/assembly.py"]
    while pending:
        if (name := pending.pop()) not in texts and name not in _PRESENTATION:
            tree = ast.parse(root.joinpath(name).read_bytes())
            texts[name] = _text(tree)
            pending += _imported(tree, root)
    for path in root.joinpath("features").rglob("*.py"):
        name = path.relative_to(root).as_posix()
        if name not in texts and name not in _PRESENTATION:
            texts[name] = _text(ast.parse(path.read_bytes()))
    code = "".join(f"{name}\0{texts[name]}\0" for name in sorted(texts))
    return hashlib.sha256(code.encode()).hexdigest()


def _imported(tree: ast.Module, root: Path) -> Iterator[str]:
    """Yield the files of ``data`` and ``features`` that a module imports."""
    names: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names += [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
    for name in names:
        file = name.removeprefix("xlarank.").replace(".", "/") + ".py"
        if name.startswith(("xlarank.data.", "xlarank.features.")) and root.joinpath(file).exists():
            yield file


def _text(value: Any) -> str:
    """Return a syntax tree as text, without docstrings and fields that do not affect values."""
    if isinstance(value, list):
        return f"[{','.join(map(_text, value))}]"
    if not isinstance(value, ast.AST):
        return ascii(value)
    names = [name for name in value._fields if name not in ("kind", "type_comment", "ctx")]
    fields = {name: getattr(value, name, None) for name in names}
    documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    if isinstance(value, documented) and ast.get_docstring(value, clean=False) is not None:
        fields["body"] = value.body[1:]
    texts = [
        f"{name}={_text(part)}" for name, part in fields.items() if part is not None and part != []
    ]
    return f"{type(value).__name__}({','.join(texts)})"
