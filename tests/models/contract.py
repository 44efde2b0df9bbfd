"""What every ranker must do: a test class to subclass with a fixture ``model``, a name of the zoo."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import optuna
import pytest

from tests.models.rows import COLUMNS, easy_data, easy_graph
from xlarank.data.errors import ModelError
from xlarank.data.graph import Kind
from xlarank.models.base import Params, Ranker
from xlarank.models.ranking_data import RankingData
from xlarank.models.registry import ranker_class
from xlarank.models.validation.metrics import kendall_tau

ROUNDS = 20


def fitted(model: str, data: RankingData, *, seed: int = 0, rounds: int = ROUNDS, **params: Any) -> Ranker:
    """One thread: on data this small more threads only wait for each other."""
    return ranker_class(model)().fit(data, params, rounds=rounds, seed=seed, threads=1)


def saved(ranker: Ranker, folder: Path) -> dict[str, bytes]:
    folder.mkdir()
    ranker.save(folder)
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


class RankerContract:
    """Promises of `xlarank.models.base.Ranker`."""

    @pytest.fixture
    def model(self) -> str:
        raise NotImplementedError("a subclass names the model")

    @pytest.fixture
    def data(self) -> RankingData:
        return easy_data()

    def test_is_registered_under_its_name(self, model: str) -> None:
        assert ranker_class(model).name == model

    def test_learns_an_easy_order_and_the_lower_score_is_the_faster(self, model: str, data: RankingData) -> None:
        ranker = fitted(model, data, rounds=100)
        taus = []
        for number in range(3):
            graph = easy_graph(f"unseen{number}__a", 60, seed=900 + number)
            taus.append(kendall_tau(ranker.predict(graph.matrix(), graph.columns), graph.row_cost))
        assert min(taus) > 0.8, f"on graphs that it never saw: {taus}"

    def test_same_seed_same_bytes(self, model: str, data: RankingData, tmp_path: Path) -> None:
        first = saved(fitted(model, data), tmp_path / "first")
        again = saved(fitted(model, data), tmp_path / "again")
        assert first == again

    def test_another_seed_is_another_model(self, model: str, data: RankingData) -> None:
        first, second = (fitted(model, data, seed=seed).predict(data.rows, COLUMNS) for seed in (0, 1))
        assert not np.array_equal(first, second)

    def test_save_and_load_gives_equal_scores(self, model: str, data: RankingData, tmp_path: Path) -> None:
        ranker = fitted(model, data)
        saved(ranker, tmp_path / "model")
        loaded = ranker_class(model).load(tmp_path / "model")
        assert type(loaded) is type(ranker)
        assert np.array_equal(loaded.predict(data.rows, COLUMNS), ranker.predict(data.rows, COLUMNS))
        assert loaded.columns == COLUMNS
        assert loaded.importance() == pytest.approx(ranker.importance())
        assert saved(loaded, tmp_path / "again").keys() == saved(ranker, tmp_path / "first").keys()

    def test_saves_text_and_json_never_pickles(self, model: str, data: RankingData, tmp_path: Path) -> None:
        files = saved(fitted(model, data), tmp_path / "model")
        assert files
        for name, content in files.items():
            assert Path(name).suffix in (".json", ".txt"), name
            text = content.decode("utf-8")
            assert "\0" not in text
            if name.endswith(".json"):
                json.loads(text)

    def test_scores_are_one_finite_number_a_row_in_any_order_of_rows(self, model: str, data: RankingData) -> None:
        ranker = fitted(model, data)
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
        self, model: str, data: RankingData, columns: list[str], said: str
    ) -> None:
        ranker = fitted(model, data, rounds=2)
        with pytest.raises(ModelError, match=said):
            ranker.predict(np.zeros((3, len(columns)), np.float32), columns)

    def test_staged_scores_end_with_those_of_predict(self, model: str, data: RankingData) -> None:
        ranker = fitted(model, data, rounds=ROUNDS)
        stages = list(ranker.staged(data.rows, 8))
        assert len(stages) == 3  # after 8, 16 and 20 rounds
        assert np.allclose(stages[-1], ranker.predict(data.rows, COLUMNS), rtol=1e-6, atol=1e-9)
        assert not np.allclose(stages[0], stages[1])

    def test_stages_are_shorter_models(self, model: str, data: RankingData) -> None:
        """The number of rounds is chosen on a stage, then a model of that many rounds is fitted."""
        stage = next(iter(fitted(model, data, rounds=ROUNDS).staged(data.rows, 8)))
        short = fitted(model, data, rounds=8).predict(data.rows, COLUMNS)
        assert np.allclose(stage, short, rtol=1e-6, atol=1e-9)

    def test_one_stage_where_there_are_fewer_rounds(self, model: str, data: RankingData) -> None:
        ranker = fitted(model, data, rounds=3)
        (only,) = ranker.staged(data.rows, 25)
        assert np.allclose(only, ranker.predict(data.rows, COLUMNS), rtol=1e-6, atol=1e-9)

    @pytest.mark.parametrize("use", ["predict", "staged", "importance", "save"])
    def test_before_fit_it_says_that_it_was_not_trained(
        self, model: str, data: RankingData, tmp_path: Path, use: str
    ) -> None:
        ranker = ranker_class(model)()
        calls: dict[str, Callable[[], object]] = {
            "predict": lambda: ranker.predict(data.rows, COLUMNS),
            "staged": lambda: list(ranker.staged(data.rows, 5)),
            "importance": ranker.importance,
            "save": lambda: ranker.save(tmp_path),
        }
        with pytest.raises(ModelError, match="was not trained"):
            calls[use]()

    def test_load_from_an_empty_folder(self, model: str, tmp_path: Path) -> None:
        with pytest.raises(ModelError, match="cannot be read"):
            ranker_class(model).load(tmp_path)

    def test_fit_leaves_its_data_alone(self, model: str) -> None:
        data, same = easy_data(graphs=3), easy_data(graphs=3)
        fitted(model, data, rounds=2)
        for field in ("rows", "cost", "indptr", "names", "families", "columns"):
            assert np.array_equal(getattr(data, field), getattr(same, field)), field

    def test_importance_is_the_share_of_each_column_largest_first(self, model: str, data: RankingData) -> None:
        shares = fitted(model, data, rounds=100).importance()
        assert set(shares) <= set(COLUMNS)
        assert sum(shares.values()) == pytest.approx(1)
        assert list(shares.values()) == sorted(shares.values(), reverse=True)
        assert next(iter(shares)) == "waste", "it decides most of the runtime"
        assert all(share > 0 for share in shares.values())

    @pytest.mark.parametrize("kind", ["layout", "tile"])
    def test_defaults_lie_inside_the_search_space(self, model: str, kind: Kind) -> None:
        """So a study can try them first."""
        defaults = ranker_class(model).default_params(kind)
        assert ranker_class(model).suggest(optuna.trial.FixedTrial(defaults), kind) == defaults

    def test_suggestions_can_be_fitted_and_kept_as_json(self, model: str, data: RankingData) -> None:
        study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
        tried: list[Params] = []
        for _ in range(4):
            params = ranker_class(model).suggest(study.ask())
            assert json.loads(json.dumps(params)) == params
            assert np.isfinite(fitted(model, data, rounds=2, **params).predict(data.rows, COLUMNS)).all()
            tried.append(params)
        assert len({json.dumps(params) for params in tried}) == 4

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
