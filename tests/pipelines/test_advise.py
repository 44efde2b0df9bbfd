"""What advise needs beside a compiler: the ranker of the workspace, and refusals before anything is compiled."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.data.hlo.programs import matmul_module
from xlarank.data.errors import CollectionError, CompilerError
from xlarank.data.hlo.candidates import Candidates, Codes, candidate_rows, random_configurations
from xlarank.data.workspace import Workspace
from xlarank.models.pretrained import pretrained_model
from xlarank.pipelines.advise import (
    Advice,
    AdviceSettings,
    Change,
    Verified,
    advise,
    first_proposals,
    layout_model,
    next_batch,
)
from xlarank.pipelines.programs.sources import configuration_key, graph_of, model_score
from xlarank.pipelines.support.workspace_collections import trained_collections


def test_the_shipped_model_orders_configurations(tmp_path: Path) -> None:
    module = matmul_module()
    graph = graph_of(module, "matmul")
    rng = np.random.default_rng(0)
    candidates = candidate_rows(graph, rng)
    assert layout_model(Workspace(tmp_path), None) is None and layout_model(None, None) is None
    score = model_score(graph, candidates, pretrained_model())
    codes = random_configurations(candidates, 9, rng)
    found = score(codes)
    assert found.shape == (9,) and np.isfinite(found).all()
    twice = score(np.concatenate([codes, codes[:1]]))
    assert twice[0] == twice[9]  # equal configurations, equal scores


def test_what_cannot_be_advised_is_refused_at_once() -> None:
    with pytest.raises(CompilerError, match="cpu has no estimates"):
        advise("program.pb", AdviceSettings("cpu"))
    with pytest.raises(CompilerError, match="'tpu-v9' is not a target"):
        advise("program.pb", AdviceSettings("tpu-v9"))
    with pytest.raises(CompilerError, match="a budget of 0"):
        advise("program.pb", AdviceSettings("tpu-v3", budget=0))


@pytest.mark.parametrize("ranker", [False, True])
def test_batches_never_repeat_and_follow_the_costs(ranker: bool) -> None:
    """Costs fall with every node that takes its second row; half of a batch is bred from the fastest so far."""
    rng = np.random.default_rng(0)
    candidates = Candidates(tuple(np.arange(-1, 3, dtype=np.int8)[:, None].repeat(18, 1) for _ in range(12)))

    def cost(codes: Codes) -> NDArray[np.float64]:
        return 20.0 - (codes == 1).sum(axis=1) + 0.5 * (codes > 1).sum(axis=1)

    proposals = first_proposals(candidates, cost if ranker else None, 80, rng)
    tried = np.zeros((1, candidates.nodes), np.int32)
    for _ in range(20):
        codes = next_batch(candidates, proposals, tried, cost(tried), 4, rng)
        assert len(codes) == 4
        tried = np.concatenate([tried, codes])
    assert len(np.unique(tried, axis=0)) == len(tried)  # nothing twice, never the default again
    proposed, bred = (cost(tried[1:].reshape(40, 2, -1)[half::2].reshape(40, -1)) for half in (0, 1))
    assert bred[20:].mean() < 18 and (proposed.mean() < 15) == ranker  # 20 at random
    small = Candidates(candidates.rows[:1])
    first = np.zeros((1, 1), np.int32)
    assert sorted(next_batch(small, first, first, np.full(1, np.inf), 4, rng).ravel().tolist()) == [1, 2, 3]


def test_advice_as_json_has_both_orders() -> None:
    change = Change(3, "dot.1", "dot", "f32[8,16,4]", "", (2, 0, 1))
    one = Verified(900, 1, "ok")
    advice = Advice("p", "tpu-v4", {}, None, 1000, 900, [one], [change], [], {"3": [2, 0, 1]}, [])
    value = advice.as_json()
    assert value["changes"][0]["minor_to_major"] == (2, 0, 1)
    assert value["changes"][0]["major_to_minor"] == [1, 0, 2]
    assert value["speedup"] == pytest.approx(10 / 9)
    assert "estimated" in value["labels"]


def test_a_configurations_key_speaks_of_its_layouts() -> None:
    module = matmul_module()
    graph = graph_of(module, "matmul")
    candidates = candidate_rows(graph, np.random.default_rng(0))
    assert configuration_key(candidates, np.zeros(2, np.int32)) == ""
    order = candidates.rows[0][1][:2]
    assert configuration_key(candidates, np.array([1, 0], np.int32)) == f"0:{order[0]}{order[1]}" + "-" * 16


def test_models_of_estimates_are_taken_those_of_a_cpu_only_when_asked_for(trained: Path) -> None:
    workspace = Workspace(trained)
    assert layout_model(workspace, None) is None
    (own,) = [one for one in trained_collections(workspace) if one.kind == "layout"]
    asked = layout_model(workspace, str(own))
    assert asked is not None and not asked.shipped
    with pytest.raises(CollectionError, match="not in the models"):
        layout_model(workspace, "layout:tpu-estimate:random")
    place = workspace.root / "models" / "layout" / "tpu-estimate" / "random"
    place.parent.mkdir()
    shutil.copytree(workspace.model(own), place)
    card = place / "model.json"
    card.write_text(card.read_text().replace(str(own), "layout:tpu-estimate:random"))
    found = layout_model(workspace, None)
    assert found is not None and found.card.collection == "layout:tpu-estimate:random"
