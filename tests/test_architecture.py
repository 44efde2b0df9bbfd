"""Allowed imports, also within functions; installed packages; names in messages."""

import ast
import importlib.util
import re
import sys
import tomllib
from functools import cache
from pathlib import Path
from typing import NamedTuple

import networkx as nx

import run
from xlarank.cli.app import commands
from xlarank.cli.console import _PARAMETER, as_options

ROOT = Path(run.__file__).parent
#: A package may import itself and those before it; the folder xlarank holds the API and the command
#: line.
PACKAGES = ("data", "features", "models", "pipelines", "xlarank")


class Import(NamedTuple):
    """An import: ``dotted`` is ``module`` and the imported name, if any."""

    importer: str
    module: str
    dotted: str


@cache
def trees_of(package):
    """Return the syntax tree of each file of a package, by path."""
    return {
        path: ast.parse(path.read_text(encoding="utf-8"))
        for path in sorted((ROOT / package).rglob("*.py"))
    }


@cache
def imports_of(package):
    imports = []
    for path, tree in trees_of(package).items():
        relative = path.relative_to(ROOT).with_suffix("")
        parts = [part for part in relative.parts if part != "__init__"]
        importer = ".".join(parts if parts[0] == "xlarank" else ["xlarank", *parts])
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                imports += [Import(importer, name.name, name.name) for name in node.names]
            elif isinstance(node, ast.ImportFrom):
                assert not node.level, f"{path}:{node.lineno}: a relative import hides its package"
                of = str(node.module)
                imports += [Import(importer, of, f"{of}.{name.name}") for name in node.names]
    return imports


def test_imports_have_no_cycles():
    imports = [entry for package in PACKAGES for entry in imports_of(package)]
    modules = {entry.importer for entry in imports}
    targets = (
        (entry.importer, entry.dotted if entry.dotted in modules else entry.module)
        for entry in imports
    )
    graph = nx.DiGraph((importer, target) for importer, target in targets if target in modules)
    assert graph.number_of_nodes() > 100 and graph.number_of_edges() > 300
    assert next(nx.simple_cycles(graph), None) is None


def test_imports_point_one_way():
    files = (
        "npz collection.DataRoot collection.find_data_root submission config_table graph.read_graph"
    ).split()
    for number, package in enumerate(PACKAGES):
        forbidden = [
            f"xlarank.{'cli' if name == 'xlarank' else name}" for name in PACKAGES[number + 1 :]
        ]
        forbidden += ["typer", "rich"] if package != "xlarank" else []
        forbidden += [f"xlarank.data.{name}" for name in files] if package == "models" else []
        imports = imports_of(package)
        assert [entry for entry in imports if entry.dotted.startswith(tuple(forbidden))] == []
    names = {entry.dotted for entry in imports_of("xlarank")}
    assert "xlarank.pipelines.tune.tune" in names, "imports inside a function are seen"
    assert "xlarank.data.collection.DataRoot" in names, "imports for types alone are seen"


def test_imported_packages_are_dependencies_or_in_extras():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    known = {re.split("[^a-z0-9]", requirement)[0] for requirement in project["dependencies"]}
    known |= {"google", "sqlalchemy"} if {"protobuf", "optuna"} <= known else set()
    imported = {entry.module.split(".")[0] for package in PACKAGES for entry in imports_of(package)}
    # In the extras hlo, collect and dask.
    known |= {"jax", "jaxlib", "libtpu", "ml_dtypes", "dask", "distributed"}
    known |= {"sklearn"}  # imported only if the user did
    assert imported - known == {"xlarank"} | imported & sys.stdlib_module_names


def test_no_pipeline_imports_another():
    """Pipelines are the files in pipelines/ itself; shared code is in folders below."""
    pipelines = {f"xlarank.pipelines.{path.stem}" for path in (ROOT / "pipelines").glob("[!_]*.py")}
    assert {"xlarank.pipelines.tune", "xlarank.pipelines.train"} <= pipelines
    for entry in imports_of("pipelines"):
        others = pipelines & {entry.module, entry.dotted} - {entry.importer}
        assert not others, entry


def test_messages_name_parameters_and_the_command_line_their_options():
    parts = [part for command in commands().commands.values() for part in command.params]
    options = {option for part in parts for option in part.opts}
    parameters = set()
    for path, tree in (item for package in PACKAGES[:-1] for item in trees_of(package).items()):
        docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        for node in ast.walk(tree):
            is_text = isinstance(node, ast.Constant) and isinstance(node.value, str)
            if is_text and id(node) not in docstrings:
                words = {*re.findall(r"--[a-z-]+", node.value)} - {node.value}
                assert not words & options, f"{path}:{node.lineno} names {words & options}"
                parameters |= {match[1] for match in _PARAMETER.finditer(node.value)}
    assert len(parameters) > 15
    named = {as_options(f"`{name}`") for name in parameters if "__" not in name}
    assert named <= options


def test_benchmarks_import_what_exists():
    """They are run by hand, so a renamed function would be noticed late."""
    for path, tree in trees_of("benchmarks").items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and str(node.module).startswith("xlarank."):
                module = importlib.import_module(str(node.module))
                missing = [alias.name for alias in node.names if not hasattr(module, alias.name)]
                submodules = {f"{node.module}.{name}" for name in missing}
                assert all(map(importlib.util.find_spec, submodules)), (path, missing)
