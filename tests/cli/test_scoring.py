"""evaluate and cross-validate from the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.shell import FILES, LAYOUT, TILE, here


@pytest.mark.slow
def test_other_rankers_alone_and_side_by_side(trained: Path) -> None:
    words = ["cross-validate", "--workspace", trained, "--rounds", "5", "--threads", "1", "--json", "-"]
    done = here(*words, "--model", "ranknet", "--model", "lambdarank", "-c", LAYOUT)
    assert done.code == 0
    report = json.loads(done.out)[LAYOUT]
    assert list(report) == ["ranknet", "lambdarank"]
    between = report["lambdarank"]["slowdown@5"]["difference"]
    assert set(between) == {"mean", "low", "high", "graphs"}
    assert "lambdarank minus ranknet" in done.err and "slowdown@5" in done.err
    assert f"{between['low']:+.3f} to {between['high']:+.3f}" in done.err
    done = here(*words, "--model", "ranknet", "--by", "kind", "-c", TILE)
    assert done.code == 0 and set(json.loads(done.out)[TILE]["score"]["graphs"]) == set(FILES[TILE]["train"])
    assert f"{TILE}: ranknet with default parameters, 5 rounds" in done.err.replace("\n", " ")
