"""What every ranker must do: a test class to subclass with a fixture ``model``, the name of a ranker."""

from __future__ import annotations

import json
import pickle
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import optuna
import pytest

from tests.models.rows import COLUMNS, easy_data, easy_graph
from xlarank.data.errors import ModelError
from xlarank.data.graph import Kind
from xlarank.models.base import Ranker
from xlarank.models.fit_settings import FitSettings
from xlarank.models.ranking_data import RankingData
from xlarank.models.registry import RANKERS, ranker_class
from xlarank.models.validation.metrics import kendall_tau

ROUNDS = 20
KINDS: tuple[Kind, ...] = ("layout", "tile")


def fitted(
    model: str, data: RankingData, *, seed: int = 0, rounds: int = ROUNDS, kind: Kind = "layout", **params: Any
) -> Ranker[Any]:
    """One thread: on data this small more threads only wait for each other."""
    return ranker_class(model)(params, kind=kind).fit(data, FitSettings(rounds, seed, threads=1))


def saved(ranker: Ranker[Any], folder: Path) -> dict[str, bytes]:
    folder.mkdir()
    ranker.save(folder)
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


class RankerContract:
    """Promises of `xlarank.models.base.Ranker`. What several tests look at is fitted once, and none changes it."""

    @pytest.fixture(scope="class")
    @classmethod
    def model(cls) -> str:
        raise NotImplementedError("a subclass names the model")

    @pytest.fixture(scope="class")
    @classmethod
    def data(cls) -> RankingData:
        return easy_data()

    @pytest.fixture(scope="class")
    @classmethod
    def ranker(cls, model: str, data: RankingData) -> Ranker[Any]:
        return fitted(model, data)

    @pytest.fixture(scope="class")
    @classmethod
    def grown(cls, model: str, data: RankingData) -> Ranker[Any]:
        """A ranker of many rounds."""
        return fitted(model, data, rounds=100)

    def test_is_registered_under_its_name(self, model: str) -> None:
        assert ranker_class(model).name == ranker_class(model).params_class.ranker == model

    def test_learns_an_easy_order_and_the_lower_score_is_the_faster(self, grown: Ranker[Any]) -> None:
        taus = []
        for number in range(3):
            graph = easy_graph(f"unseen{number}__a", 60, seed=900 + number)
            taus.append(kendall_tau(grown.predict(graph.matrix(), graph.columns), graph.row_cost))
        assert min(taus) > 0.8, f"on graphs that it never saw: {taus}"

    def test_same_seed_same_bytes(self, ranker: Ranker[Any], data: RankingData, tmp_path: Path) -> None:
        again = fitted(ranker.name, data)
        assert saved(ranker, tmp_path / "first") == saved(again, tmp_path / "again")

    def test_growing_on_is_the_same_as_more_rounds_at_once(self, ranker: Ranker[Any], data: RankingData) -> None:
        few = ranker_class(ranker.name)(kind="layout")
        few.fit(data, FitSettings(3, 0, 1, grows=True))
        few.grow(data, FitSettings(7, 0, 1, grows=True))
        assert len([*few.staged(data.rows, 1)]) == 7
        few.grow(data, FitSettings(ROUNDS, 0, 1))
        assert np.array_equal(few.predict(data.rows, COLUMNS), ranker.predict(data.rows, COLUMNS))
        assert few.importance() == ranker.importance()

    def test_another_seed_is_another_model(self, ranker: Ranker[Any], data: RankingData) -> None:
        other = fitted(ranker.name, data, seed=1)
        assert not np.array_equal(ranker.predict(data.rows, COLUMNS), other.predict(data.rows, COLUMNS))

    def test_pickled_and_saved_it_gives_equal_scores(
        self, ranker: Ranker[Any], data: RankingData, tmp_path: Path
    ) -> None:
        pickled = pickle.loads(pickle.dumps(ranker))
        assert np.array_equal(pickled.predict(data.rows, COLUMNS), ranker.predict(data.rows, COLUMNS))
        files = saved(ranker, tmp_path / "model")
        loaded = type(ranker).load(tmp_path / "model")
        assert type(loaded) is type(ranker)
        assert (loaded.params, loaded.kind, loaded.columns) == (ranker.params, ranker.kind, COLUMNS)
        assert np.array_equal(loaded.predict(data.rows, COLUMNS), ranker.predict(data.rows, COLUMNS))
        assert loaded.importance() == pytest.approx(ranker.importance())
        assert saved(loaded, tmp_path / "again").keys() == files.keys()

    def test_saves_text_and_json_never_pickles(self, ranker: Ranker[Any], tmp_path: Path) -> None:
        files = saved(ranker, tmp_path / "model")
        assert files
        for name, content in files.items():
            assert Path(name).suffix in (".json", ".txt"), name
            text = content.decode("utf-8")
            assert "\0" not in text
            if name.endswith(".json"):
                json.loads(text)

    def test_scores_are_one_finite_number_a_row_in_any_order_of_rows(
        self, ranker: Ranker[Any], data: RankingData
    ) -> None:
        scores = ranker.predict(data.rows, COLUMNS)
        assert (scores.dtype, scores.shape) == (np.float64, (len(data.rows),))
        assert np.isfinite(scores).all()
        assert np.unique(scores).size > 10
        backwards = ranker.predict(np.ascontiguousarray(data.rows[::-1]), COLUMNS)
        assert np.array_equal(backwards[::-1], scores)
        assert np.isfinite(ranker.predict(data.rows[7:8], COLUMNS)).all()

    @pytest.mark.parametrize(
        ("columns", "said"),
        [
            pytest.param(COLUMNS[:-1], r"lack 1 \(noise\)", id="one missing"),
            pytest.param([*COLUMNS, "new"], r"add 1 \(new\)", id="one too many"),
            pytest.param(["size", "waste", "clash", "new"], r"lack 1 \(noise\) and add 1 \(new\)", id="renamed"),
            pytest.param(
                [*COLUMNS, *(f"x{i}" for i in range(8))], r"add 8 \(x0, x1, x2, x3, x4 and 3 more\)", id="many"
            ),
            pytest.param(COLUMNS[::-1], "the same columns in another order", id="reordered"),
        ],
    )
    def test_refuses_rows_with_other_columns_and_says_the_difference(
        self, ranker: Ranker[Any], columns: list[str], said: str
    ) -> None:
        with pytest.raises(ModelError, match=said):
            ranker.predict(np.zeros((3, len(columns)), np.float32), columns)

    def test_staged_scores_end_with_those_of_predict(self, ranker: Ranker[Any], data: RankingData) -> None:
        stages = list(ranker.staged(data.rows, 8))
        assert len(stages) == 3  # after 8, 16 and 20 rounds
        assert np.allclose(stages[-1], ranker.predict(data.rows, COLUMNS), rtol=1e-6, atol=1e-9)
        assert not np.allclose(stages[0], stages[1])

    def test_stages_are_shorter_models(self, ranker: Ranker[Any], data: RankingData) -> None:
        """The number of rounds is chosen on a stage, then a model of that many rounds is fitted."""
        stage = next(iter(ranker.staged(data.rows, 8)))
        short = fitted(ranker.name, data, rounds=8).predict(data.rows, COLUMNS)
        assert np.allclose(stage, short, rtol=1e-6, atol=1e-9)

    def test_one_stage_where_there_are_fewer_rounds(self, ranker: Ranker[Any], data: RankingData) -> None:
        (only,) = ranker.staged(data.rows, ROUNDS + 5)
        assert np.allclose(only, ranker.predict(data.rows, COLUMNS), rtol=1e-6, atol=1e-9)

    @pytest.mark.parametrize("use", ["predict", "staged", "importance", "save", "clone"])
    def test_before_fit_it_says_that_it_was_not_trained(
        self, model: str, data: RankingData, tmp_path: Path, use: str, request: pytest.FixtureRequest
    ) -> None:
        ranker = ranker_class(model)(kind="layout")
        if use == "clone":
            ranker = request.getfixturevalue("ranker").clone()
        calls: dict[str, Callable[[], object]] = {
            "predict": lambda: ranker.predict(data.rows, COLUMNS),
            "clone": lambda: ranker.predict(data.rows, COLUMNS),
            "staged": lambda: list(ranker.staged(data.rows, 5)),
            "importance": ranker.importance,
            "save": lambda: ranker.save(tmp_path),
        }
        with pytest.raises(ModelError, match="was not trained"):
            calls[use]()

    def test_load_from_an_empty_folder(self, model: str, tmp_path: Path) -> None:
        with pytest.raises(ModelError, match="cannot be read"):
            ranker_class(model).load(tmp_path)

    @pytest.mark.parametrize(
        ("name", "value"),
        [
            ("ranker", "other"),
            ("kind", "program"),
            ("params", {"depth": 3}),
            ("parts", ["../model"]),
            ("columns", 3),
        ],
    )
    def test_a_damaged_state_is_refused(
        self, ranker: Ranker[Any], tmp_path: Path, name: str, value: object
    ) -> None:
        saved(ranker, tmp_path / "model")
        path = tmp_path / "model" / "ranker.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), name: value}))
        with pytest.raises(ModelError, match=re.escape(f"{tmp_path / 'model'} cannot be read")):
            type(ranker).load(tmp_path / "model")

    def test_fit_leaves_its_data_alone(self, ranker: Ranker[Any], data: RankingData) -> None:
        same = easy_data()
        assert ranker.columns == same.columns
        for field in ("rows", "cost", "indptr", "names", "families", "columns"):
            assert np.array_equal(getattr(data, field), getattr(same, field)), field

    def test_importance_is_the_share_of_each_column_largest_first(self, grown: Ranker[Any]) -> None:
        shares = grown.importance()
        assert set(shares) <= set(COLUMNS)
        assert sum(shares.values()) == pytest.approx(1)
        assert list(shares.values()) == sorted(shares.values(), reverse=True)
        assert next(iter(shares)) == "waste", "it decides most of the runtime"
        assert all(share > 0 for share in shares.values())

    # Parameters.

    @pytest.mark.parametrize("kind", KINDS)
    def test_defaults_are_those_of_the_kind_of_graphs(self, model: str, kind: Kind) -> None:
        params = ranker_class(model).params_class
        assert ranker_class(model)(kind=kind).params == params.of(kind)
        assert params.of("layout") != params.of("tile")

    @pytest.mark.parametrize("kind", KINDS)
    def test_defaults_lie_inside_the_search_space(self, model: str, kind: Kind) -> None:
        """So a study can try them first."""
        params = ranker_class(model).params_class
        defaults = params.of(kind)
        assert params.suggest(optuna.trial.FixedTrial(defaults.values()), kind) == defaults

    @pytest.mark.parametrize("kind", KINDS)
    def test_values_are_json_and_give_the_parameters_again(self, model: str, kind: Kind) -> None:
        params = ranker_class(model).params_class.of(kind)
        values = json.loads(json.dumps(params.values()))
        assert values == params.values()
        assert type(params).of("tile" if kind == "layout" else "layout", values) == params

    def test_an_unknown_parameter_is_refused_with_those_close_to_it(self, model: str) -> None:
        name = [*ranker_class(model).params_class.declared()][-1]
        with pytest.raises(ModelError, match=f"'{name}s' is not a parameter of {model}; .*did you mean {name}"):
            ranker_class(model)({f"{name}s": 1}, kind="layout")

    def test_no_parameter_takes_nonsense(self, model: str) -> None:
        declared = ranker_class(model).params_class.declared()
        for name in declared:
            for nonsense in (None, "nonsense", -1, float("nan"), float("inf"), object()):
                with pytest.raises(ModelError):
                    ranker_class(model)({name: nonsense}, kind="tile")

    def test_parameters_of_another_ranker_are_refused(self, model: str) -> None:
        other = next(name for name in RANKERS if name != model)
        params = ranker_class(other).params_class.of("layout")
        with pytest.raises(ModelError, match=f"the parameters are of {other}; expected those of {model}"):
            ranker_class(model)(params, kind="layout")

    def test_suggestions_can_be_fitted_and_kept_as_json(self, model: str, data: RankingData) -> None:
        study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
        tried: list[dict[str, Any]] = []
        for _ in range(4):
            params = ranker_class(model).params_class.suggest(study.ask(), "layout").values()
            assert json.loads(json.dumps(params)) == params
            assert np.isfinite(fitted(model, data, rounds=2, **params).predict(data.rows, COLUMNS)).all()
            tried.append(params)
        assert len({json.dumps(params) for params in tried}) == 4

    # Sizes.

    def test_more_levels_than_lightgbms_default_of_31(self, model: str) -> None:
        data = easy_data(graphs=2, configs=200)
        assert len(np.unique(data.cost[:200])) > 100
        ranker = fitted(model, data, rounds=50)
        assert kendall_tau(ranker.predict(data.rows[:200], COLUMNS), data.cost[:200]) > 0.8

    def test_more_rows_in_a_graph_than_lightgbm_takes(self, model: str) -> None:
        data = easy_data(graphs=1, configs=10_001)
        ranker = fitted(model, data, rounds=2)
        assert kendall_tau(ranker.predict(data.rows, COLUMNS), data.cost) > 0.5

    def test_two_rows_a_graph_are_enough_to_run(self, model: str) -> None:
        data = easy_data(graphs=2, configs=2)
        ranker = fitted(model, data, rounds=3)
        assert np.isfinite(ranker.predict(data.rows, COLUMNS)).all()
        assert np.allclose(list(ranker.staged(data.rows, 1))[-1], ranker.predict(data.rows, COLUMNS))
