"""Which file may import which: read off the source, imports within functions and for types alone included."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path
from typing import NamedTuple

import networkx as nx
import pytest

import run

ROOT = Path(run.__file__).parent
#: A package may import itself and those before it; the folder xlarank holds the API and the command line.
PACKAGES = ("data", "features", "models", "pipelines", "xlarank")
#: What runs other pipelines; no pipeline imports it.
ORCHESTRATORS = ("run_all",)


class Import(NamedTuple):
    """``dotted`` is ``module`` and the name taken from it, if any; ``place`` is for people."""

    importer: str
    module: str
    dotted: str
    place: str


def imports_in(source: str, importer: str, file: str) -> list[Import]:
    """Everything that a file imports, wherever the statement stands."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            pairs = [(alias.name, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0 and node.module, f"{file}:{node.lineno}: a relative import hides its package"
            pairs = [(node.module, f"{node.module}.{alias.name}") for alias in node.names]
        else:
            continue
        found += [Import(importer, *pair, f"{file}:{node.lineno} imports {pair[1]}") for pair in pairs]
    return found


@cache
def imports_of(package: str) -> dict[str, list[Import]]:
    """What each module of a package imports; ``xlarank.features.store`` is ``features/store.py``."""
    found = {}
    for path in sorted((ROOT / package).rglob("*.py")):
        file = path.relative_to(ROOT)
        parts = [part for part in file.with_suffix("").parts if part != "__init__"]
        module = ".".join(parts if parts[0] == "xlarank" else ["xlarank", *parts])
        found[module] = imports_in(path.read_text(encoding="utf-8"), module, str(file))
    assert found
    return found


def all_of(package: str) -> list[Import]:
    return [one for imports in imports_of(package).values() for one in imports]


def cycles(graph: nx.DiGraph) -> list[list[str]]:
    """One cycle of each knot of modules that all import each other, directly or not; none is what is wanted."""
    knots = [part for part in nx.strongly_connected_components(graph) if len(part) > 1]
    knots += [{module} for module in nx.nodes_with_selfloops(graph)]
    return [[edge[0] for edge in nx.find_cycle(graph.subgraph(knot))] for knot in knots]


@pytest.mark.slow
def test_no_import_leads_back_to_where_it_came_from() -> None:
    graph = nx.DiGraph()
    for package in PACKAGES:
        graph.add_nodes_from(imports_of(package))
    for one in (one for package in PACKAGES for one in all_of(package)):
        target = one.dotted if one.dotted in graph else one.module
        if target in graph:
            graph.add_edge(one.importer, target)
    assert graph.number_of_nodes() > 100 and graph.number_of_edges() > 300
    assert [" -> ".join([*cycle, cycle[0]]) for cycle in cycles(graph)] == []


def test_imports_point_one_way() -> None:
    for number, package in enumerate(PACKAGES):
        above = tuple(f"xlarank.{'cli' if name == 'xlarank' else name}" for name in PACKAGES[number + 1 :])
        assert [one.place for one in all_of(package) if one.dotted.startswith(above)] == []
        if package != "xlarank":
            assert [one.place for one in all_of(package) if one.module.split(".")[0] in ("typer", "rich")] == []


def test_no_pipeline_imports_another() -> None:
    """Commands are the files in pipelines/ itself; what they share lies in folders below."""
    commands = {f"xlarank.pipelines.{path.stem}" for path in (ROOT / "pipelines").glob("*.py")}
    assert {f"xlarank.pipelines.{name}" for name in ("build_features", "tune", "train", "rank")} <= commands
    orchestrators = {f"xlarank.pipelines.{name}" for name in ORCHESTRATORS}
    sideways = [
        one.place
        for one in all_of("pipelines")
        if one.importer not in orchestrators
        and commands & {one.module, one.dotted} - {one.importer, "xlarank.pipelines"}
    ]
    assert sideways == []


def test_models_know_nothing_of_files_of_the_dataset() -> None:
    names = ("npz", "root", "submission", "config_table", "graph.read_graph")
    hidden = tuple(f"xlarank.data.{name}" for name in names)
    assert [one.place for one in all_of("models") if one.dotted.startswith(hidden)] == []


def test_imports_are_seen_wherever_they_stand() -> None:
    source = """
import a.b
from typing import TYPE_CHECKING
if TYPE_CHECKING:
    from c import d as e
def late():
    from f.g import h, i
"""
    found = [one.dotted for one in imports_in(source, "x", "x.py")]
    assert sorted(found) == ["a.b", "c.d", "f.g.h", "f.g.i", "typing.TYPE_CHECKING"]
    names = {one.dotted for one in all_of("xlarank")}
    assert "xlarank.pipelines.tune.tune" in names, "inside a function"
    assert "xlarank.data.root.DataRoot" in names, "for types alone"
    with pytest.raises(AssertionError, match="a relative import hides its package"):
        imports_in("from . import store", "x", "x.py")
    graph = nx.DiGraph([("a", "b"), ("b", "c"), ("c", "b"), ("c", "d"), ("e", "e")])
    assert sorted(map(sorted, cycles(graph))) == [["b", "c"], ["e"]]
