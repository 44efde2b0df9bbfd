"""How much memory there is, and rows that do not fit into it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.pipelines.trees import TILE
from xlarank.data.errors import CollectionError
from xlarank.data.workspace import Workspace
from xlarank.pipelines.support import memory
from xlarank.pipelines.support.memory import machine_memory
from xlarank.pipelines.train import train


def test_a_container_has_what_it_is_allowed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "memory.max"
    monkeypatch.setattr(memory, "_LIMITS", (str(file),))
    whole = machine_memory()
    for limit, expected in (("1000000\n", 1e6), ("max", whole)):
        file.write_text(limit)
        assert machine_memory() == expected


def test_rows_that_do_not_fit_into_memory_are_refused(built: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("xlarank.pipelines.support.training_sets.machine_memory", lambda: 1000.0)
    with pytest.raises(CollectionError, match=r"take .* GB; expected no more than .*--max-configs"):
        train(Workspace(built), collections=[TILE])
