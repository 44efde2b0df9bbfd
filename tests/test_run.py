"""What may import what."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import run

ROOT = Path(run.__file__).parent

#: A room may import itself and the rooms before it.
ROOMS = ("data", "features", "models", "pipelines", "xlarank")
#: What runs other pipelines; nothing imports these but each other, in this order.
CONDUCTORS = ("budgeting.first_model", "run_all")


def sources(room: str) -> list[Path]:
    return sorted((ROOT / room).rglob("*.py"))


def imports(path: Path) -> Iterator[tuple[int, str]]:
    """Line and dotted name of everything imported, also within functions and for types alone."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: a relative import hides its room"
            yield from ((node.lineno, f"{node.module}.{alias.name}") for alias in node.names)


def found(room: str) -> list[tuple[str, Path, str]]:
    listed = [
        (f"{path.relative_to(ROOT)}:{line}", path, name) for path in sources(room) for line, name in imports(path)
    ]
    assert listed
    return listed


@pytest.mark.parametrize("room", ROOMS)
def test_imports_point_one_way(room: str) -> None:
    above = tuple(f"xlarank.{'cli' if name == 'xlarank' else name}" for name in ROOMS[ROOMS.index(room) + 1 :])
    assert [f"{place} imports {name}" for place, _, name in found(room) if name.startswith(above)] == []


def test_no_pipeline_imports_another() -> None:
    """The verbs are the files on the surface of the room; what they share lies in folders below."""
    verbs = {path.stem for path in (ROOT / "pipelines").glob("*.py")} - {"__init__"}
    assert {"build_features", "tune", "train", "evaluate", "submit", "rank", "info"} <= verbs
    sideways = []
    for place, path, name in found("pipelines"):
        own = ".".join(path.relative_to(ROOT / "pipelines").with_suffix("").parts)
        verb = name.removeprefix("xlarank.pipelines.").split(".")[0]
        if name.startswith("xlarank.pipelines.") and verb in verbs and verb != own and own not in CONDUCTORS:
            sideways.append(f"{place} imports {name}")
    assert sideways == []


def test_pipelines_know_nothing_of_the_terminal() -> None:
    for room in ROOMS[:-1]:
        printing = [
            f"{place} imports {name}" for place, _, name in found(room) if name.split(".")[0] in ("typer", "rich")
        ]
        assert printing == []


def test_models_know_nothing_of_files_of_the_dataset() -> None:
    hidden = (
        "xlarank.data.npz",
        "xlarank.data.root",
        "xlarank.data.workspace",
        "xlarank.data.submission",
        "xlarank.data.config_table",
        "xlarank.data.graph.read_graph",
    )
    assert [f"{place} imports {name}" for place, _, name in found("models") if name.startswith(hidden)] == []


def test_the_import_test_sees_imports() -> None:
    names = {name for _, _, name in found("xlarank")}
    assert "xlarank.pipelines.tune.tune" in names, "inside a function"
    assert "xlarank.data.root.DataRoot" in names, "for types alone"
