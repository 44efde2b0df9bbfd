"""What is particular to the sibling ranker; the contract is tested in test_registry."""

import json
import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.models.contract import KINDS, fitted, graph_rows, instance_table, saved
from xlarank.data.errors import ModelError
from xlarank.features.instances.graph_instances import LazyInstances
from xlarank.features.rows import GraphRows
from xlarank.models.base import Ranker
from xlarank.models.objectives import mean_rank
from xlarank.models.rankers import sibling
from xlarank.models.rankers.ensemble import Ensemble
from xlarank.models.rankers.sibling import Sibling, SiblingRanker, nearness
from xlarank.models.training_data import TrainingData
from xlarank.models.validation.folds import out_of_fold_scores
from xlarank.models.validation.metrics import kendall_tau

NODES, INSTANCES = 5, 4
#: Row 0 sets nothing.
LAYOUTS = ((-1, -1, -1), (2, 1, 0), (0, 1, 2), (1, 0, 2))
GENERAL = {"weight_sum_pooled": 0.0}
QUICK = {"general": GENERAL, "folds": 2, "sibling_weight": 1.0, "prior_weight": 0.5}


def graph_of(name: str, structure: int, seed: int, *, configs: int = 60, batch: int = 8) -> GraphRows:
    """Runtime is a sum over nodes of what a row costs there: drawn per structure, so that only siblings tell."""
    effect = np.random.default_rng(structure).integers(0, 100, NODES * INSTANCES)
    codes = np.random.default_rng([seed, 1]).integers(0, INSTANCES, (configs, NODES)).astype(np.uint8)
    first = np.arange(0, NODES * INSTANCES, INSTANCES)
    rows = np.full((NODES * INSTANCES, 18), -1, np.int8)
    rows[:, :3] = np.tile(np.array(LAYOUTS, np.int8), (NODES, 1))
    cost = 1000 * batch + batch * effect[first + codes].sum(axis=1)
    instances = instance_table(
        ["noise"], np.random.default_rng(seed).random((NODES * INSTANCES, 1)), codes, rows,
        np.tile([batch, 4, 4, 0, 0, 0], (NODES, 1)), first_node=3, structure=structure,
    )  # fmt: skip
    wide = graph_rows(name, cost.tolist(), features=np.random.default_rng(seed).random((configs, 3)))
    return replace(wide, instances=LazyInstances(lambda: instances))


def known(count: int = 4) -> TrainingData:
    return TrainingData.from_graphs([graph_of(f"f{number}__a", number, number) for number in range(count)])


def scores(ranker: Ranker[Any], graph: GraphRows) -> np.ndarray:
    return ranker.predict(graph.matrix(), graph.columns, graph.instances)


@pytest.fixture(scope="module")
def siblings() -> SiblingRanker:
    found = fitted("sibling", known(), rounds=5, **QUICK)
    assert isinstance(found, SiblingRanker)
    return found


def tau(ranker: Ranker[Any], graph: GraphRows) -> float:
    return kendall_tau(scores(ranker, graph), graph.row_cost)


def test_siblings_correct_the_general_ranker_where_there_are_any(siblings: SiblingRanker) -> None:
    assert tau(siblings, graph_of("f2__b", 2, 99, batch=16)) > 0.8
    graph = graph_of("new__a", 77, 99)
    assert abs(tau(siblings, graph)) < 0.4, "of no known structure: the rows are noise"
    assert np.array_equal(scores(siblings, graph), scores(siblings._general, graph))
    for kind in KINDS:
        assert SiblingRanker(kind=kind).params.general == Ensemble(kind=kind).params


def test_priors_are_learned_when_a_sibling_is_asked_for(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked: list[int] = []
    monkeypatch.setattr(sibling, "out_of_fold_scores", lambda *of: asked.append(1) or out_of_fold_scores(*of))
    first, second = known(3), known(3)
    made = ((first, 0), (second, 0), (first, 1))
    early, late, other_seed = (fitted("sibling", data, rounds=5, seed=seed, **QUICK) for data, seed in made)
    tau(early, graph_of("new__a", 77, 99))
    assert not asked, "no family held out has siblings among the others"
    tau(early, graph_of("f2__b", 2, 99))
    tau(early, graph_of("f1__b", 1, 99))
    other_seed.finish()
    assert len(asked) == 1, "all seeds have the same priors"
    late.finish()
    before, after = (saved(one, tmp_path / name)["siblings.json"] for one, name in ((early, "0"), (late, "1")))
    assert before == after and len(asked) == 2, "whenever they are learned, they are the same"


def test_the_solution_is_that_of_kernel_ridge_regression(siblings: SiblingRanker) -> None:
    """Against the formula entry by entry: f = K* (K + ridge I)^-1 t, K = w p p' + k + 1."""
    graph = graph_of("f1__b", 1, 50, configs=7)
    (one,) = siblings.siblings_of(graph.instances.value)
    prior = 2 * mean_rank(scores(siblings._general, graph)) - 1
    asked, size = graph.instances.value.outputs(), len(one.target)

    def kernel(a: np.ndarray, b: np.ndarray, p: float, q: float) -> float:
        same = sum(0.5 * (x[0] == y[0]) + 0.5 * (x == y).all() for x, y in zip(a, b, strict=True))
        return float(0.5 * same / NODES + 0.5 * np.exp(-(NODES - same) / 2) + 0.5 * p * q + 1)

    full = np.array([
        [kernel(one.outputs[i], one.outputs[j], one.prior[i], one.prior[j]) for j in range(size)]
        for i in range(size)
    ])  # fmt: skip
    solution = np.linalg.inv(full + 0.03 * np.eye(size)) @ one.target
    expected = [
        sum(kernel(asked[c], one.outputs[i], prior[c], one.prior[i]) * solution[i] for i in range(size))
        for c in range(7)
    ]
    assert scores(siblings, graph) == pytest.approx(mean_rank(np.array(expected)))


def test_siblings_of_like_shapes_count_more() -> None:
    asked = graph_of("f0__a", 0, 0, batch=8).instances.value
    for batch, expected in ((8, 1.0), (16, 0.5), (4, 0.5), (32, 0.25)):
        other = graph_of("f0__b", 0, 0, batch=batch).instances.value
        known = Sibling(0, other.node, other.sizes, other.outputs(), np.zeros(60), np.zeros(60))
        assert nearness(known, asked) == pytest.approx(expected)


def test_what_was_pickled_or_saved_is_what_is_loaded(tmp_path: Path) -> None:
    ranker = fitted("sibling", known(), rounds=5, **QUICK)
    pickled = pickle.loads(pickle.dumps(ranker))  # before its priors are fitted, from graphs that cannot be pickled
    ranker.save(tmp_path)
    graph = graph_of("f3__b", 3, 12)
    for again in (pickled, SiblingRanker.load(tmp_path)):
        assert np.array_equal(scores(again, graph), scores(ranker, graph))
    damaged = json.loads((tmp_path / "siblings.json").read_text())
    damaged[0]["target"].pop()
    (tmp_path / "siblings.json").write_text(json.dumps(damaged))
    with pytest.raises(ModelError, match="differ in number"):
        SiblingRanker.load(tmp_path)
