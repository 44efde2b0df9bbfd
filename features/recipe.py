"""How rows are made: the settings that choose columns, the version of the code, and the file they are made from."""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Final

from xlarank.data.graph import Kind
from xlarank.features.block import Block, Scope, Tier
from xlarank.features.catalogue import blocks_of
from xlarank.features.program.tensors import TPU, Tiling

_ROOT: Final = Path(__file__).parent.parent
#: Where the computation of columns starts.
_START: Final = "features/assemble.py"
#: Documents and messages: nothing here can change a number.
_PRESENTATION: Final = ("data/errors.py", "features/attribution.py", "features/meanings.py")
#: Fields of syntax trees that say nothing, or not the same in every version of Python.
_SILENT: Final = ("kind", "type_comment", "ctx")


@dataclass(frozen=True)
class FeatureSettings:
    """What decides which columns there are and what they hold."""

    tier: Tier = Tier.FULL  # ``fast`` or ``full`` (see `xlarank.features.block.Tier`)
    candidates: bool = True  # with the transductive columns that look at the graph's candidate set
    tiling: Tiling = field(default=TPU)  # the hardware's tile

    def blocks(self, kind: Kind) -> list[Block]:
        """The blocks of one kind of graph, in column order."""
        return blocks_of(kind, self.tier, candidates=self.candidates)

    def graph_columns(self, kind: Kind) -> list[str]:
        """Names of the columns that are constant within a graph."""
        return [name for block in self.blocks(kind) if block.scope is Scope.GRAPH for name in block.columns]

    def config_columns(self, kind: Kind) -> list[str]:
        """Names of the columns that differ between configurations."""
        return [name for block in self.blocks(kind) if block.scope is Scope.CONFIG for name in block.columns]

    def columns(self, kind: Kind) -> list[str]:
        return self.graph_columns(kind) + self.config_columns(kind)

    def code_hash(self, kind: Kind) -> str:
        """Changes whenever the same file could give other numbers: code, settings or columns."""
        names = ",".join(self.columns(kind))
        text = f"{source_hash()}|{kind}|{self.tiling}|{names}"
        return hashlib.sha256(text.encode()).hexdigest()[:16]


@dataclass(frozen=True)
class Recipe:
    """Everything but the file that decides what is stored; rows of another recipe are built again."""

    code_hash: str  # `FeatureSettings.code_hash` of the kind
    tier: str  # with ``candidates`` and ``tiling``, the settings behind it
    candidates: bool
    max_configs: int  # rows kept per graph, 0 for all
    seed: int  # of the sample that ``max_configs`` draws
    tiling: Tiling = TPU

    @classmethod
    def of(cls, settings: FeatureSettings, kind: Kind, *, max_configs: int = 0, seed: int = 0) -> Recipe:
        """Today's recipe for one kind of graph; the seed counts only where rows are drawn."""
        choice = settings.tier.value, settings.candidates
        return cls(settings.code_hash(kind), *choice, max_configs, seed if max_configs else 0, settings.tiling)

    @classmethod
    def parse(cls, value: Mapping[str, Any]) -> Recipe:
        """From what `dataclasses.asdict` and JSON made of one; raises `TypeError` for anything else."""
        return cls(**{**value, "tiling": Tiling(**value.get("tiling", {}))})

    def settings(self) -> FeatureSettings:
        """The settings that the rows were made with."""
        return FeatureSettings(Tier(self.tier), self.candidates, self.tiling)


@dataclass(frozen=True)
class Source:
    """Identity of the npz file that rows were made from."""

    size: int
    mtime_ns: int

    @classmethod
    def of(cls, path: Path) -> Source:
        stat = path.stat()
        return cls(stat.st_size, stat.st_mtime_ns)


@cache
def source_hash(root: Path = _ROOT) -> str:
    """Hash of the code below ``root`` that turns a file into numbers, the same in every version of Python.

    That is all of ``features/`` but what only shows columns, and what of ``data/`` their computation imports,
    directly or not. Syntax trees are hashed without docstrings: those, comments and line breaks are free to change.
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
    texts |= {
        name: _text(ast.parse(root.joinpath(name).read_bytes())) for name in {*own} - {*texts, *_PRESENTATION}
    }
    return hashlib.sha256("".join(f"{name}\0{texts[name]}\0" for name in sorted(texts)).encode()).hexdigest()


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
