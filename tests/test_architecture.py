"""Which file may import which: read off the source, imports within functions and for types alone included."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import networkx as nx
import pytest

import run

ROOT = Path(run.__file__).parent
#: A package may import itself and those before it; the folder xlarank holds the API and the command line.
PACKAGES = ("data", "features", "models", "pipelines", "xlarank")
#: What runs other pipelines; no pipeline imports it.
ORCHESTRATORS = ("run_all",)


@dataclass(frozen=True)
class Import:
    """One imported name: ``module`` as written, ``name`` what is taken from it (empty for a whole module)."""

    file: Path
    line: int
    module: str
    name: str

    @property
    def dotted(self) -> str:
        return f"{self.module}.{self.name}".rstrip(".")

    def __str__(self) -> str:
        return f"{self.file.relative_to(ROOT)}:{self.line} imports {self.dotted}"


def imports_in(source: str, file: Path) -> Iterator[Import]:
    """Everything that a file imports, wherever the statement stands."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (Import(file, node.lineno, alias.name, "") for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0 and node.module, f"{file}:{node.lineno}: a relative import hides its package"
            yield from (Import(file, node.lineno, node.module, alias.name) for alias in node.names)


@cache
def imports_of(package: str) -> list[Import]:
    """Everything that the files of a package import."""
    files = sorted((ROOT / package).rglob("*.py"))
    found = [one for file in files for one in imports_in(file.read_text(encoding="utf-8"), file)]
    assert found
    return found


def module_of(file: Path) -> str:
    """``xlarank.features.store`` for ``features/store.py``; a folder stands for its ``__init__.py``."""
    parts = [part for part in file.relative_to(ROOT).with_suffix("").parts if part != "__init__"]
    return ".".join(parts if parts[0] == "xlarank" else ["xlarank", *parts])


def import_graph() -> nx.DiGraph:
    """An edge from each module of the package to each module that it imports."""
    files = [file for package in PACKAGES for file in (ROOT / package).rglob("*.py")]
    modules = {module_of(file) for file in files}
    graph = nx.DiGraph()
    graph.add_nodes_from(modules)
    for package in PACKAGES:
        for one in imports_of(package):
            target = one.dotted if one.dotted in modules else one.module
            if target in modules:
                graph.add_edge(module_of(one.file), target, place=str(one))
    return graph


def cycles(graph: nx.DiGraph) -> list[list[str]]:
    """One cycle of each knot of modules that all import each other, directly or not; none is what is wanted."""
    knots = [part for part in nx.strongly_connected_components(graph) if len(part) > 1]
    knots += [{module} for module in nx.nodes_with_selfloops(graph)]
    return [[edge[0] for edge in nx.find_cycle(graph.subgraph(knot))] for knot in knots]


def test_no_import_leads_back_to_where_it_came_from() -> None:
    graph = import_graph()
    assert graph.number_of_nodes() > 100 and graph.number_of_edges() > 300
    assert [" -> ".join([*cycle, cycle[0]]) for cycle in cycles(graph)] == []


def test_imports_point_one_way() -> None:
    for number, package in enumerate(PACKAGES):
        above = tuple(f"xlarank.{'cli' if name == 'xlarank' else name}" for name in PACKAGES[number + 1 :])
        assert [str(one) for one in imports_of(package) if one.dotted.startswith(above)] == []
        if package != "xlarank":
            assert [str(one) for one in imports_of(package) if one.module.split(".")[0] in ("typer", "rich")] == []


def test_no_pipeline_imports_another() -> None:
    """Commands are the files in pipelines/ itself; what they share lies in folders below."""
    commands = {path.stem for path in (ROOT / "pipelines").glob("*.py")} - {"__init__"}
    assert {"build_features", "tune", "train", "evaluate", "submit", "rank", "info"} <= commands
    sideways = []
    for one in imports_of("pipelines"):
        own = module_of(one.file).removeprefix("xlarank.pipelines.")
        command = one.dotted.removeprefix("xlarank.pipelines.").split(".")[0]
        if (
            one.dotted.startswith("xlarank.pipelines.")
            and command in commands
            and command != own
            and own not in ORCHESTRATORS
        ):
            sideways.append(str(one))
    assert sideways == []


def test_models_know_nothing_of_files_of_the_dataset() -> None:
    hidden = (
        "xlarank.data.npz",
        "xlarank.data.root",
        "xlarank.data.submission",
        "xlarank.data.config_table",
        "xlarank.data.graph.read_graph",
    )
    assert [str(one) for one in imports_of("models") if one.dotted.startswith(hidden)] == []


def test_imports_are_seen_wherever_they_stand() -> None:
    source = """
import a.b
from typing import TYPE_CHECKING
if TYPE_CHECKING:
    from c import d as e
def late():
    from f.g import h, i
"""
    found = [one.dotted for one in imports_in(source, Path("x.py"))]
    assert sorted(found) == ["a.b", "c.d", "f.g.h", "f.g.i", "typing.TYPE_CHECKING"]
    names = {one.dotted for one in imports_of("xlarank")}
    assert "xlarank.pipelines.tune.tune" in names, "inside a function"
    assert "xlarank.data.root.DataRoot" in names, "for types alone"
    with pytest.raises(AssertionError, match="a relative import hides its package"):
        list(imports_in("from . import store", Path("x.py")))
    graph = nx.DiGraph([("a", "b"), ("b", "c"), ("c", "b"), ("c", "d"), ("e", "e")])
    assert sorted(map(sorted, cycles(graph))) == [["b", "c"], ["e"]]
