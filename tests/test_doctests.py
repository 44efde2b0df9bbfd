"""Every example in a docstring of the package runs.

The rooms are collected by walking the package: pytest's own `--doctest-modules` would load their files a second
time under another name.
"""

from __future__ import annotations

import doctest
import importlib
import pkgutil

import pytest

#: Modules beside the rooms.
API = ("xlarank.api", "xlarank.graph_ranker")
OPTIONS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
ROOMS = ("data", "features", "models", "pipelines", "cli")


def modules() -> list[str]:
    """Every module of the package, in order."""
    found = ["xlarank", *API]
    for room in ROOMS:
        package = importlib.import_module(f"xlarank.{room}")
        found += [package.__name__]
        found += [m.name for m in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")]
    return found


@pytest.mark.parametrize("name", modules())
def test_examples_of_docstrings(name: str) -> None:
    result = doctest.testmod(importlib.import_module(name), optionflags=OPTIONS)
    assert result.failed == 0


def test_there_are_examples() -> None:
    finder = doctest.DocTestFinder(exclude_empty=True)
    examples = [t for name in modules() for t in finder.find(importlib.import_module(name)) if t.examples]
    assert len(examples) > 20
