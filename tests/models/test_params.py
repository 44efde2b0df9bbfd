"""Parameters of rankers: defaults by kind, refusals, and the search space that studies go on in."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import optuna
import pytest

from xlarank.data.errors import ModelError
from xlarank.features.block import Scope
from xlarank.features.catalogue import blocks_of
from xlarank.features.recipe import FeatureSettings
from xlarank.features.targets import CPU, TPU
from xlarank.models.params import Number, Whole
from xlarank.models.rankers.boosted import chosen_columns
from xlarank.models.rankers.sibling import SiblingParams
from xlarank.models.rankers.wide_rows import LambdaRank
from xlarank.models.registry import RANKERS, BestParams, load_best, params_for
from xlarank.models.training_data import FitSettings

#: What a study draws, in the order in which it draws it. A study goes on only in the space that it began in:
#: after a change every study begins anew, and this file is to be written again.
SEARCH_SPACE = Path(__file__).parent / "search_space.txt"


def test_the_search_space_is_the_one_that_studies_began_in() -> None:
    """``ranker kind name distribution``, one line a parameter."""
    lines = []
    for name, ranker in RANKERS.items():
        for kind in ("layout", "tile"):
            trial = optuna.create_study().ask()
            ranker.params_class.suggest(trial, kind)
            lines += [f"{name} {kind} {one} {found}" for one, found in trial.distributions.items()]
    assert lines == SEARCH_SPACE.read_text(encoding="utf-8").splitlines()


def test_what_is_not_understood_is_refused() -> None:
    for name, value, said in (
        ("labels", "nope", "labels is 'nope'; expected rank, log"),
        ("learning_rate", 0, "learning_rate is 0; expected a number above 0"),
        ("feature_fraction", 1.5, "feature_fraction is 1.5; expected a number above 0 to 1"),
        ("num_leaves", 1, "num_leaves is 1; expected a whole number, 2 to 131072"),
        ("num_leaves", 15.5, r"num_leaves is 15.5; expected a whole number"),
        ("num_leaves", True, "num_leaves is True; expected a whole number"),
        ("lambda_l2", "1", "lambda_l2 is '1'; expected a number from 0"),
        ("lambdarank_norm", 1, "lambdarank_norm is 1; expected True, False"),
        ("labls", "rank", "'labls' is not a parameter of lambdarank; .*; did you mean labels"),
    ):
        with pytest.raises(ModelError, match=said):
            LambdaRank({name: value}, kind="layout")
    for value in (3, None, [], "nope"):
        with pytest.raises(ModelError, match=r"general is .*; expected parameters by name"):
            SiblingParams.of("layout", {"general": value})
    with pytest.raises(ModelError, match=r"'leaf_l3' is not a parameter of sum-pooled; .*did you mean leaf_l2"):
        SiblingParams.of("layout", {"general": {"members": {"sum-pooled": {"leaf_l3": 1.0}}}})
    rounds = {"rounds": 5}
    for values in ({"rounds": -1}, {"rounds": 2.5}, rounds | {"seed": -1}, rounds | {"threads": -2}):
        with pytest.raises(ModelError, match=r"(rounds|seed|threads) is .*; expected a whole number"):
            FitSettings(**values)


def test_checks_make_plain_values_for_json() -> None:
    found = Number(0)("one", np.float32(0.5)), Number()("one", -3), Whole(1)("one", np.int64(3))
    assert found == (0.5, -3.0, 3) and [*map(type, found)] == [float, float, int]


@pytest.mark.parametrize("kind", ["layout", "tile"])
def test_choices_leave_out_what_they_say(kind: str) -> None:
    columns = FeatureSettings().columns(kind)
    for choice, graph, candidates in (
        ("all", True, True), ("no_graph", False, True), ("no_candidates", True, False), ("alone", False, False),
    ):  # fmt: skip
        kept = [
            block
            for block in blocks_of(kind)
            if (graph or block.scope is not Scope.GRAPH) and (candidates or not block.transductive)
        ]
        expected = [name for block in kept for name in block.columns]
        assert [columns[i] for i in chosen_columns(columns, choice)] == expected
        assert expected and (choice == "all") == (expected == columns)


def test_a_target_leaves_out_the_columns_of_others() -> None:
    columns, layouts = FeatureSettings().columns("tile"), FeatureSettings().columns("layout")
    for target, dropped in ((TPU, CPU), (CPU, TPU)):
        for choice in ("all", "alone"):
            both = {columns[i] for i in chosen_columns(columns, choice)}
            found = {columns[i] for i in chosen_columns(columns, choice, target)}
            assert both - found == both & dropped.columns != set()
            assert both & target.columns <= found
        assert chosen_columns(layouts, "all", target).tolist() == list(range(len(layouts)))


BEST = BestParams(
    model="lambdarank", params={"learning_rate": 0.125, "labels": "log"}, rounds=75, mean=0.5, std=0.25,
    select="robust", graphs={"cnn__a": 0.25, "mlp__a": 0.75}, trial=3, folds=[["cnn"], ["mlp"]],
    code_hash="0123456789abcdef",
)  # fmt: skip


def test_each_ranker_has_its_file_and_members_of_an_ensemble_take_their_own(tmp_path: Path) -> None:
    folder = tmp_path / "studies" / "cpu"
    one, other, defaults = (
        RANKERS[name].params_class.of("layout") for name in ("lambdarank", "ranknet", "ensemble")
    )
    assert load_best(folder, "lambdarank") is None
    assert params_for(folder, "lambdarank", "layout") == (one, False)
    assert params_for(folder, "ensemble", "layout") == (defaults, False)
    BEST.save(folder)
    assert load_best(folder, "lambdarank") == BEST
    assert [path.name for path in folder.iterdir()] == ["best-lambdarank.json"]
    tuned = replace(one, learning_rate=0.125, labels="log")
    assert params_for(folder, "lambdarank", "layout") == (tuned, True), "the others keep their defaults"
    assert params_for(folder, "ranknet", "layout") == (other, False)
    members = {**defaults.members, "lambdarank": tuned}  # type: ignore[attr-defined]
    assert params_for(folder, "ensemble", "layout") == (replace(defaults, members=members), True)
    stale = {"ranknet": {"pairs": 3}, "lambdarank": {"num_leaves": 3}}
    replace(BEST, model="ensemble", params={"members": stale, "weight_ranknet": 0.5}).save(folder)
    expected = {"members": {**members, "ranknet": replace(other, pairs=3)}, "weight_ranknet": 0.5}
    assert params_for(folder, "ensemble", "layout") == (replace(defaults, **expected), True)


def test_files_that_cannot_be_used_are_named(tmp_path: Path) -> None:
    path = tmp_path / "best-lambdarank.json"
    for params in ({"head_start": 2.0}, {"num_leaves": 0}):
        replace(BEST, params=params).save(tmp_path)
        with pytest.raises(ModelError, match=r"best-lambdarank\.json cannot be used: .*tune again"):
            params_for(tmp_path, "lambdarank", "tile")
    replace(BEST, model="ranknet").save(tmp_path)
    other = (tmp_path / "best-ranknet.json").read_bytes()
    for content in (other, b"", b"{", b"[]", b'{"model": "lambdarank"}', b"\xff\xfe"):
        path.write_bytes(content)
        with pytest.raises(ModelError, match=r"best-lambdarank\.json cannot be read .*remove it, or tune again"):
            load_best(tmp_path, "lambdarank")
