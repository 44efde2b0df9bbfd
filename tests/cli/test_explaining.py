"""Cross-validation, explanations, calibration and the report from the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Job
from tests.cli.shell import FILES, LAYOUT, TILE, here, refused
from tests.pipelines.trees import graph_path

pytestmark = pytest.mark.slow


def test_explain_shows_nodes_and_causes_and_draws(job: Job, tmp_path: Path) -> None:
    graph = graph_path(job.tree, LAYOUT, "valid", "mlp__a")
    svg, values = tmp_path / "segment.svg", tmp_path / "explained.json"
    words = ["explain", graph, "--config", 3, "--against", "default", "--workspace", job.work]
    done = here(*words, "--svg", svg, "--json", values)
    assert done.code == 0, done.err
    assert "mlp__a: configuration 3 (rank" in done.out and "the compiler's default" in done.out
    result = json.loads(values.read_text())
    total = sum(node["value"] for node in result["nodes"]) + result["rest"]
    assert total == pytest.approx(result["difference"]) and result["configuration"] == 3
    assert svg.read_text().startswith("<svg") and f"wrote {svg}" in done.out
    said = "mlp__a has no configuration 9999; expected a number from 0 to 63"
    refused(["explain", graph, "--config", 9999, "--workspace", job.work], said)
    done = here("explain", graph_path(job.tree, TILE, "valid", "expsum__a"), "--workspace", job.work)
    assert done.code == 0 and "contribution" in done.out and " node " not in done.out, "tiles have causes only"


def test_calibrate_then_rank_and_report_tell(trained: Path, job: Job, tmp_path: Path) -> None:
    done = here("calibrate", "--workspace", trained, "--threads", 1)
    assert done.code == 1 and "has one seed, which cannot disagree with itself" in done.err
    assert here("train", "--workspace", trained, "--seeds", 2, "--rounds", 30, "--threads", 1).code == 0
    done = here("calibrate", "--workspace", trained, "--threads", 1, "--json", tmp_path / "found.json")
    assert done.code == 0, done.err
    assert set(json.loads((tmp_path / "found.json").read_text())) == {LAYOUT, TILE}
    ranked = here("rank", graph_path(job.tree, LAYOUT, "valid", "mlp__a"), "--workspace", trained)
    assert "the best is among the first" in ranked.out
    page = tmp_path / "page.html"
    done = here("report", "--workspace", trained, "--compare", job.work, "--out", page)
    assert done.code == 0, done.err
    assert f"wrote {page}: " in done.out and f"{TILE}: " in done.out
    text = page.read_text(encoding="utf-8")
    assert "Measured out of fold" in text


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
