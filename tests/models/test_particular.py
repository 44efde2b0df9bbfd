"""What is particular to pair-vote and the sibling ranker; the contract is tested in test_registry."""

from __future__ import annotations

import json
import math
import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import lightgbm as lgb
import numpy as np
import pytest

from tests.models.contract import COLUMNS, easy_data, easy_graph, fitted, graph_rows, instance_table, saved
from tests.models.test_boosters import kernel
from xlarank.data.errors import ModelError
from xlarank.features.instances.graph_instances import LazyInstances
from xlarank.features.rows import GraphRows
from xlarank.features.targets import CPU
from xlarank.models.base import Ranker
from xlarank.models.explanation.parts import Rows
from xlarank.models.objectives import mean_rank
from xlarank.models.rankers import pair_vote, sibling
from xlarank.models.rankers.booster_text import checked_text, narrowed_text
from xlarank.models.rankers.pair_vote import PairVote, vote_shares
from xlarank.models.rankers.sibling import Sibling, SiblingRanker, nearness
from xlarank.models.training_data import TrainingData
from xlarank.models.validation.curves import out_of_fold_scores
from xlarank.models.validation.metrics import kendall_tau

ROWS = easy_graph("unseen__a", 15, seed=3).matrix()


def made(data: TrainingData | None = None, **params: Any) -> PairVote:
    ranker = fitted("pair-vote", easy_data() if data is None else data, **params)
    assert isinstance(ranker, PairVote)
    return ranker


def unfitted(own: list[int], differences: list[int], **params: Any) -> PairVote:
    ranker = PairVote(params, kind="layout")
    ranker._used, ranker._differences = np.array(own), np.array(differences)
    return ranker


@pytest.fixture(scope="module")
def ranker() -> PairVote:
    return made()


def test_a_row_is_one_configuration_and_its_difference_to_another() -> None:
    ranker = unfitted([0, 1, 3], [1, 3])
    graph = graph_rows("a", [1, 2, 3], features=np.array([[1, 10, 100], [2, 20, 300], [4, 30, 700]]))
    found = ranker._pairs(graph.matrix()[[2, 0]], graph.matrix()[[1]])
    assert found.tolist() == [[3, 4, 700, 4 - 2, 700 - 300], [3, 1, 100, 1 - 2, 100 - 300]]
    pairs = graph, np.array([2, 0, 1]), np.array([1, 1, 1])
    whole = ranker._pair_matrix(*pairs)
    assert np.array_equal(whole, ranker._pairs(graph.matrix()[[2, 0, 1]], graph.matrix()[[1]]))
    assert np.array_equal(ranker._pair_matrix(*pairs, slice(1, 3)), whole[1:])


def test_pairs_leave_out_ties_and_keep_to_their_bound_and_weights() -> None:
    def drawn(data: TrainingData, **params: Any) -> tuple[list[Any], np.ndarray, np.ndarray]:
        return unfitted([0, 1, 2, 3], [1, 2, 3], **params)._drawn(data, np.random.default_rng(0))

    # 30 rows cost 100, 30 cost 200: of the pairs only those across are ordered
    two = TrainingData.from_graphs([graph_rows("a", [100] * 30 + [200] * 30)])
    ((_, first, second),), ahead, weight = drawn(two)
    assert ((first < 30) != (second < 30)).all() and np.array_equal(ahead, first < 30)
    assert 0.4 < len(first) / (60 * 8) < 0.6 and (weight > 0).all()
    many = TrainingData.from_graphs([graph_rows("a", list(range(1, 61)))])
    counts = [len(drawn(many, max_pairs=most)[1]) / 60 for most in (1000, 200, 10)]
    assert counts == [8, 3, 1], "as many as are asked for, as the bound allows, one at least"
    data = TrainingData.from_graphs([easy_graph("a__a", 50, 0), easy_graph("b__a", 200, 1)])
    parts, _, weight = drawn(data, graph_weight="equal")
    count = len(parts[0][1])
    assert weight[:count].sum() == pytest.approx(weight[count:].sum(), rel=0.01)


@pytest.mark.parametrize("batch", [1 << 13, 1])
def test_votes_by_hand(batch: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """v(0, 1) = (0.9 + 1 - 0.2) / 2 = 0.85, v(0, 2) = (0.6 + 1 - 0.3) / 2 = 0.65, v(1, 2) = 0.65."""
    monkeypatch.setattr(pair_vote, "_BATCH", batch)
    table = np.array([[[0.5, 0.9, 0.6], [0.2, 0.5, 0.7], [0.3, 0.4, 0.5]]])
    rows = np.arange(3, dtype=np.float32)[:, None]

    def chances(first: np.ndarray, second: np.ndarray, _: object) -> np.ndarray:
        return table[:, first[:, 0].astype(int)][:, :, second[:, 0].astype(int)]

    # against 0: 1 - (0.5 + 0.85 + 0.65) / 3; 1: 1 - (0.15 + 0.5 + 0.65) / 3; 2: 1 - (0.35 + 0.35 + 0.5) / 3
    assert vote_shares(chances, rows, None, [1])[0] == pytest.approx([1 / 3, 1.7 / 3, 0.6])
    # only 1 and 2: 1 - (0.85 + 0.65) / 2; 1 - (0.5 + 0.65) / 2; 1 - (0.35 + 0.5) / 2
    assert vote_shares(chances, rows, rows[1:], [1])[0] == pytest.approx([0.25, 0.425, 0.575])


def test_scores_are_the_votes_of_all_pairs_one_by_one(ranker: PairVote) -> None:
    """A loop over pairs: the trees are asked for one row at a time."""

    def chance(one: np.ndarray, other: np.ndarray) -> float:
        pair = np.concatenate([one[ranker._used], (one - other)[ranker._differences]])
        return 1 / (1 + math.exp(-float(ranker._booster.predict(pair[None], raw_score=True)[0])))

    expected = [1 - np.mean([(chance(one, other) + 1 - chance(other, one)) / 2 for other in ROWS]) for one in ROWS]
    assert ranker.predict(ROWS, COLUMNS) == pytest.approx(expected, abs=1e-12)


def test_ranks_do_not_depend_on_the_order_of_rows(ranker: PairVote, monkeypatch: pytest.MonkeyPatch) -> None:
    shuffled = np.random.default_rng(0).permutation(len(ROWS))
    few = made(all_pairs=4, opponents=6)
    for one, batch in ((ranker, 1 << 13), (few, 1 << 13), (few, 10)):
        monkeypatch.setattr(pair_vote, "_BATCH", batch)
        assert np.array_equal(one.predict(ROWS[shuffled], COLUMNS), one.predict(ROWS, COLUMNS)[shuffled])
    scores = ranker.predict(np.concatenate([ROWS, ROWS[:3]]), COLUMNS)
    assert scores[:3].tolist() == scores[-3:].tolist()


def test_a_sample_of_opponents_drawn_by_the_seed_votes_where_there_are_many_rows(tmp_path: Path) -> None:
    rows, given = easy_graph("unseen__a", 400, seed=3).matrix(), ((400, 0), (399, 0), (399, 1))
    everyone, few, other = (made(seed=seed, all_pairs=most, opponents=60) for most, seed in given)
    assert (len(everyone.voters(rows)), len(few.voters(rows))) == (400, 60)
    full, sampled = (one.predict(rows, COLUMNS) for one in (everyone, few))
    assert kendall_tau(full, sampled) > 0.9 and not np.array_equal(full, sampled)
    assert not np.array_equal(few.voters(rows), other.voters(rows))
    saved(other, tmp_path / "model")
    assert np.array_equal(PairVote.load(tmp_path / "model").predict(rows, COLUMNS), other.predict(rows, COLUMNS))


def test_a_booster_on_fewer_columns_gives_the_same_scores() -> None:
    values = np.random.default_rng(0).random((300, 9))
    label = values[:, 2] + np.sin(9 * values[:, 5]) + values[:, 8]
    params = {"verbose": -1, "num_threads": 1, "objective": "regression", "boost_from_average": False}
    grown = lgb.train({**params, "interaction_constraints": [[2, 5, 8]]}, lgb.Dataset(values, label), 7)
    kept = np.flatnonzero(grown.feature_importance("split"))
    text = narrowed_text(grown.model_to_string(), kept.tolist())
    assert kept.tolist() == [2, 5, 8] and text.startswith(checked_text(text, 3))
    assert np.array_equal(lgb.Booster(model_str=text).predict(values[:, kept]), grown.predict(values))


def test_damaged_states_are_refused(ranker: PairVote, tmp_path: Path) -> None:
    path, state = tmp_path / "model" / "ranker.json", json.loads(saved(ranker, tmp_path / "model")["ranker.json"])
    for change, said in (
        ({"differences": [1, 9]}, "not among its 4"), ({"differences": []}, r"not of \d columns"),
        ({"seed": -1}, "its seed is -1"), ({"seed": "0"}, "its seed is '0'"),
    ):  # fmt: skip
        path.write_text(json.dumps({**state, **change}))
        with pytest.raises(ModelError, match=said):
            PairVote.load(tmp_path / "model")


def test_explanations_add_up_with_sampled_opponents_and_with_an_initial_score() -> None:
    graph = easy_graph("unseen__a", 40, seed=5)
    best, worst = int(graph.row_cost.argmin()), int(graph.row_cost.argmax())
    few = made(easy_data(), rounds=50, all_pairs=10, opponents=8)
    data = TrainingData.from_graphs([kernel(f"f{number}__a", number) for number in range(4)])
    tiles = made(data, kind="tile", columns="all", init_score_weight=2.0)
    for ranker, rows, now, then, column in (
        (few, graph, best, worst, "waste"), (tiles, kernel("unseen__a", 9), 0, 1, *CPU.estimate["tile"]),
    ):  # fmt: skip
        scores, parts = ranker.predict(rows.matrix(), rows.columns), ranker.contributions(Rows.of(rows), now, then)
        assert sum(parts.columns.values()) == pytest.approx(scores[now] - scores[then], abs=1e-9)
        assert max(parts.columns, key=lambda name: abs(parts.columns[name])) == column


NODES, INSTANCES = 5, 4
#: Row 0 sets nothing.
LAYOUTS = ((-1, -1, -1), (2, 1, 0), (0, 1, 2), (1, 0, 2))
GENERAL = {"weight_sum_pooled": 0.0, "weight_pair_vote": 0.0}
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
    for kind, weight in (("layout", 1.0), ("tile", 0.0)):
        default = SiblingRanker({}, kind=kind).params.general
        assert (default.weight_pair_vote, default.weight_ranknet) == (weight, 1.0), "pairs vote on layouts"


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
    assert siblings._read_off(one, graph.instances.value, prior) == pytest.approx(expected, abs=1e-8)


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
