"""Contract of every ranker as test classes to subclass, and training data that needs no graph
file.
"""

import json
import pickle
import re
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path

import numpy as np
import optuna
import pytest

from xlarank.data.errors import ModelError
from xlarank.data.schema import MAX_RANK, TILE_SLOTS
from xlarank.features.instances.graph_instances import Instances
from xlarank.features.rows import GraphRows
from xlarank.models.trained import RANKERS, ranker_class
from xlarank.models.training_data import FitSettings, TrainingData
from xlarank.models.validation.metrics import kendall_tau

ROUNDS = 20
KINDS = ("layout", "tile")


def fitted(model, data, *, seed=0, rounds=ROUNDS, kind="layout", **params):
    """Return a fitted ranker; one thread, as more would only wait for each other on data this
    small.
    """
    return ranker_class(model)(params, kind=kind).fit(data, FitSettings(rounds, seed, threads=1))


def saved(ranker, folder):
    folder.mkdir()
    ranker.save(folder)
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def scores_of(ranker, data):
    return ranker.predict(data.matrix(), COLUMNS)


class CombinedRankerContract:
    """Promises that rankers made of others keep, too; a subclass is parametrized with ``model``."""

    @pytest.fixture(scope="class")
    @classmethod
    def data(cls):
        return easy_data()

    @pytest.fixture(scope="class")
    @classmethod
    def ranker(cls, model, data):
        return fitted(model, data)

    def test_pickled_and_saved_as_text_it_gives_equal_scores(self, ranker, data, tmp_path):
        scores = scores_of(ranker, data)
        assert np.array_equal(scores_of(pickle.loads(pickle.dumps(ranker)), data), scores)
        files = saved(ranker, tmp_path / "model")
        for name, content in files.items():
            assert Path(name).suffix in (".json", ".txt") and b"\0" not in content
            assert not name.endswith(".json") or json.loads(content) is not None
        loaded = type(ranker).load(tmp_path / "model")
        assert (loaded.params, loaded.kind, loaded.columns) == (ranker.params, ranker.kind, COLUMNS)
        assert np.array_equal(scores_of(loaded, data), scores)
        assert loaded.importance() == pytest.approx(ranker.importance())
        assert saved(loaded, tmp_path / "again").keys() == files.keys()

    def test_stages_are_shorter_models_and_end_with_predict(self, ranker, data):
        """The number of rounds is chosen on a stage, then a model of that many rounds is fitted."""
        after_8, after_16, after_20 = [*ranker.staged(data.matrix(), 8)][
            ranker.ranks_without_trees :
        ]
        *_, only = ranker.staged(data.matrix(), ROUNDS + 5)
        scores = scores_of(ranker, data)
        short = scores_of(fitted(ranker.name, data, rounds=8), data)
        for stage, expected in ((after_8, short), (after_20, scores), (only, scores)):
            assert np.allclose(stage, expected, rtol=1e-6, atol=1e-9)
        assert not np.allclose(after_8, after_16)


class RankerContract(CombinedRankerContract):
    """All promises of `xlarank.models.base.Ranker`, for rankers that are not made of others."""

    def test_it_learns_an_easy_order_and_the_lower_score_is_the_faster(self, model, data):
        grown = fitted(model, data, rounds=100)
        graphs = [easy_graph(f"unseen{number}__a", 60, seed=900 + number) for number in range(3)]
        taus = [
            kendall_tau(grown.predict(graph.matrix(), graph.columns), graph.row_cost)
            for graph in graphs
        ]
        assert min(taus) > 0.8, f"on graphs that it never saw: {taus}"
        names, shares = zip(*grown.importance().items(), strict=True)
        assert names[0] == "waste" and set(names) <= set(COLUMNS), "it decides most of the runtime"
        assert (
            sum(shares) == pytest.approx(1)
            and [*shares] == sorted(shares, reverse=True)
            and min(shares) > 0
        )

    def test_one_seed_gives_one_model_on_any_cores_and_grown_in_steps(self, ranker, data, tmp_path):
        again = fitted(ranker.name, easy_data())
        other = fitted(ranker.name, data, seed=1)
        two = ranker.clone().fit(data, FitSettings(ROUNDS, 0, threads=2))
        first = saved(ranker, tmp_path / "first")
        assert first == saved(again, tmp_path / "again") == saved(two, tmp_path / "two")
        few = ranker.clone().fit(data, FitSettings(3, 0, 1, grows=True))
        for rounds in (7, 5):  # and fitted again for fewer
            few.grow(data, FitSettings(rounds, 0, 1, grows=True))
            assert len([*few.staged(data.matrix(), 1)]) == rounds + ranker.ranks_without_trees
        grown = few.grow(data, FitSettings(ROUNDS, 0, 1))
        assert grown.importance() == ranker.importance()
        same = [
            np.array_equal(scores_of(ranker, data), scores_of(model, data))
            for model in (two, grown, other)
        ]
        assert same == [True, True, False]

    def test_scores_are_one_finite_number_a_row_in_any_order_of_rows(self, ranker, data):
        scores = scores_of(ranker, data)
        rows = data.matrix()
        assert (scores.dtype, scores.shape) == (np.float64, (len(rows),))
        assert np.isfinite(scores).all() and np.unique(scores).size > 10
        assert np.array_equal(
            ranker.predict(np.ascontiguousarray(rows[::-1]), COLUMNS)[::-1], scores
        )
        assert ranker.predict(rows[7:8], COLUMNS) == scores[7], "each row is scored by itself"

    def test_graphs_larger_than_lightgbm_takes_and_of_two_rows(self, model):
        large = easy_data(graphs=1, configs=10_001)
        small = easy_data(graphs=2, configs=2)
        assert (
            kendall_tau(scores_of(fitted(model, large, rounds=2), large)[:400], large.cost[:400])
            > 0.5
        )
        ranker = fitted(model, small, rounds=3)
        assert np.isfinite(scores_of(ranker, small)).all()
        assert np.allclose(list(ranker.staged(small.matrix(), 1))[-1], scores_of(ranker, small))

    def test_rows_with_other_columns_are_refused_with_the_difference(self, ranker):
        for columns, said in (
            ([*COLUMNS[:-1], "new"], r"lack 1 \(noise\) and add 1 \(new\)"),
            ([*COLUMNS, *(f"x{i}" for i in range(8))], r"add 8 \(x0, x1, x2, x3, x4 and 3 more\)"),
            (COLUMNS[::-1], "the same columns in another order"),
        ):
            with pytest.raises(ModelError, match=said):
                ranker.predict(np.zeros((3, len(columns)), np.float32), columns)

    def test_before_fit_it_says_that_it_was_not_trained(self, model, tmp_path):
        ranker = ranker_class(model)(kind="layout")
        rows = np.zeros((3, 4), np.float32)
        predictions = [partial(r.predict, rows, COLUMNS) for r in (ranker, ranker.clone())]

        def stages():
            return [*ranker.staged(rows, 5)]

        save = partial(ranker.save, tmp_path)
        for call in (*predictions, stages, ranker.importance, save):
            with pytest.raises(ModelError, match="was not trained"):
                call()

    def test_a_damaged_model_is_an_error_not_a_crash(self, ranker, tmp_path):
        files = saved(ranker, tmp_path / "model")
        state = json.loads(files["ranker.json"])
        wrong = {
            "ranker": "other",
            "kind": "program",
            "params": {"depth": 3},
            "parts": ["../model"],
            "columns": 3,
        }
        damaged = [
            ("ranker.json", json.dumps({**state, name: value}).encode())
            for name, value in wrong.items()
        ]
        for name, content in files.items():
            damaged += [
                (name, text)
                for text in (b"", b"{", b"[]", b"tree\n", content[: len(content) // 2], None)
            ]
        for name, content in damaged:
            path = tmp_path / "model" / name
            path.unlink() if content is None else path.write_bytes(content)
            with pytest.raises(ModelError, match=re.escape(f"{tmp_path / 'model'} cannot be read")):
                type(ranker).load(tmp_path / "model")
            path.write_bytes(files[name])

    def test_parameters_are_those_of_the_kind_and_survive_json_and_a_study(self, model, data):
        made = ranker_class(model)
        params = made.params_class
        assert made.name == params.ranker == model and params.of("layout") != params.of("tile")
        for kind, other in (KINDS, KINDS[::-1]):
            defaults = params.of(kind)
            assert made(kind=kind).params == defaults
            assert params.of(other, json.loads(json.dumps(defaults.values()))) == defaults
            assert params.suggest(optuna.trial.FixedTrial(defaults.values()), kind) == defaults, (
                "tried first"
            )
        study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
        for _ in range(3):
            values = params.suggest(study.ask(), "layout").values()
            assert json.loads(json.dumps(values)) == values
            assert np.isfinite(scores_of(fitted(model, data, rounds=2, **values), data)).all()

    def test_nonsense_is_refused_by_name(self, model):
        ranker = ranker_class(model)
        other = next(name for name in RANKERS if name != model)
        *_, last = declared = [*ranker.params_class.declared()]
        with pytest.raises(
            ModelError, match=f"'{last}s' is not a parameter of {model}; .*did you mean {last}"
        ):
            ranker({f"{last}s": 1}, kind="layout")
        for name, nonsense in product(
            declared, (None, "nonsense", -1, float("nan"), float("inf"), object())
        ):
            with pytest.raises(ModelError):
                ranker({name: nonsense}, kind="tile")
        with pytest.raises(
            ModelError, match=f"the parameters are of {other}; expected those of {model}"
        ):
            ranker(ranker_class(other).params_class.of("layout"), kind="layout")


COLUMNS = ["size", "waste", "clash", "noise"]


def graph_rows(name, costs, *, features=None, copies=None, columns=COLUMNS):
    """Return a stored graph: row ``i`` costs ``costs[i]`` ns and is repeated ``copies[i]`` times
    after all rows.

    A repeat is one nanosecond slower than the one before. The first column is constant within the
    graph.
    """
    distinct = len(costs)
    repeats = [
        (row, slower) for row, count in enumerate(copies or ()) for slower in range(1, count + 1)
    ]
    group, delay = np.array([*((row, 0) for row in range(distinct)), *repeats], np.int64).T
    runtime = np.array(costs, np.int64)[group] + delay
    values = (
        np.tile(np.array(costs)[:, None], len(columns) - 1)
        if features is None
        else np.asarray(features)
    )
    ids = np.arange(len(group), dtype=np.int64)
    ones = np.ones(len(group), np.int64)
    size = np.array([distinct], np.float32)
    values = values.astype(np.float32)
    return GraphRows(name, list(columns), size, values, group, ids, runtime, ones)


def instance_table(columns, values, codes, rows, sizes, *, first_node=0, structure=0):
    """Return instances without pairs, as many for each node; ``codes (configs, nodes)`` choose
    among them.
    """
    nodes = codes.shape[1]
    return Instances(
        columns=list(columns),
        values=values.astype(np.float32),
        codes=codes.astype(np.uint8),
        node=np.arange(first_node, first_node + nodes),
        opcode=np.zeros(nodes, np.int16),
        first=np.arange(0, len(values), len(values) // nodes),
        rows=rows,
        row_instance=np.arange(len(values)),
        request=np.zeros((len(values), 3), np.int32),
        pairs=np.zeros((0, 5), np.int32),
        structure=np.array([structure], np.uint64),
        sizes=sizes,
        **{f"pair_{what}": np.zeros(0, np.int32) for what in ("first", "width", "instance")},
    )


def easy_graph(name, configs, seed):
    """Return a graph whose runtime grows with waste and clash, on a scale of its own; the last
    column is noise.
    """
    rng = np.random.default_rng(seed)
    features = rng.random((configs, 3))
    unit = 10.0 ** rng.integers(4, 8)
    costs = np.rint(unit * (1 + 3 * features[:, 0] + features[:, 1])).astype(np.int64)
    return graph_rows(name, costs.tolist(), features=features)


def easy_data(graphs=6, configs=60, seed=0):
    """Return data of graphs of ``easy_graph``, two of each family."""
    names = [f"family{number // 2}__{'ab'[number % 2]}" for number in range(graphs)]
    return TrainingData.from_graphs(
        [easy_graph(name, configs, 100 * seed + i) for i, name in enumerate(names)]
    )


#: As stored: log2(1 + bound), 0 for a whole dimension.
BOUNDS = [f"bounds__{slot}_{i}__log" for slot in TILE_SLOTS for i in range(MAX_RANK)]


def kernel(name, logs, costs, *, kinds=("dot",)):
    """Return a kernel whose row ``i`` has log2(1 + output bound 0) of ``logs[i]`` and costs
    ``costs[i]``.
    """
    features = np.zeros((len(logs), len(BOUNDS)))
    features[:, BOUNDS.index("bounds__output_0__log")] = logs
    return replace(
        graph_rows(name, costs, features=features, columns=["size", *BOUNDS]), kinds=tuple(kinds)
    )
