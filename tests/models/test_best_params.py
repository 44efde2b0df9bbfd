"""The best parameters of a study as a file."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from xlarank.data.errors import ModelError
from xlarank.data.graph import Kind
from xlarank.models.rankers.ensemble import Ensemble
from xlarank.models.rankers.lambdarank import LambdaRank
from xlarank.models.registry import RANKERS
from xlarank.models.validation.best_params import BestParams, load_best, params_for

BEST = BestParams(
    model="lambdarank",
    params={"learning_rate": 0.125, "labels": "log"},
    rounds=75,
    mean=0.5,
    std=0.25,
    select="robust",
    graphs={"cnn__a": 0.25, "mlp__a": 0.75},
    trial=3,
    folds=[["cnn"], ["mlp"]],
    code_hash="0123456789abcdef",
)


def test_what_was_saved_is_read_back(tmp_path: Path) -> None:
    BEST.save(tmp_path / "studies" / "cpu")
    assert load_best(tmp_path / "studies" / "cpu", "lambdarank") == BEST
    assert [path.name for path in (tmp_path / "studies" / "cpu").iterdir()] == ["best-lambdarank.json"]


@pytest.mark.parametrize("kind", ["layout", "tile"])
def test_nothing_was_tuned(tmp_path: Path, kind: Kind) -> None:
    assert load_best(tmp_path / "absent", "lambdarank") is None
    assert params_for(tmp_path / "absent", "lambdarank", kind) == (LambdaRank.params_class.of(kind), False)


@pytest.mark.parametrize("kind", ["layout", "tile"])
def test_tuned_parameters_complete_the_defaults(tmp_path: Path, kind: Kind) -> None:
    """A parameter that came with a newer version keeps its default."""
    BEST.save(tmp_path)
    params, tuned = params_for(tmp_path, "lambdarank", kind)
    assert tuned
    assert params == LambdaRank.params_class.of(kind, {"learning_rate": 0.125, "labels": "log"})


def test_each_ranker_has_its_own(tmp_path: Path) -> None:
    BEST.save(tmp_path)
    replace(BEST, model="pair-vote", params={"num_leaves": 7}).save(tmp_path)
    assert load_best(tmp_path, "lambdarank") == BEST
    params, tuned = params_for(tmp_path, "pair-vote", "tile")
    assert (params, tuned) == (RANKERS["pair-vote"].params_class.of("tile", {"num_leaves": 7}), True)
    assert params_for(tmp_path, "ranknet", "tile") == (RANKERS["ranknet"].params_class.of("tile"), False)


@pytest.mark.parametrize("kind", ["layout", "tile"])
def test_members_of_an_ensemble_take_their_own(tmp_path: Path, kind: Kind) -> None:
    defaults = Ensemble.params_class.of(kind)
    assert params_for(tmp_path, "ensemble", kind) == (defaults, False)
    BEST.save(tmp_path)
    lambdarank = params_for(tmp_path, "lambdarank", kind)[0]
    whole = params_for(tmp_path, "ensemble", kind)
    assert whole == (replace(defaults, members={**defaults.members, "lambdarank": lambdarank}), True)
    stale = {"ranknet": {"pairs": 3}, "lambdarank": {"num_leaves": 3}}
    replace(BEST, model="ensemble", params={"members": stale, "weight_ranknet": 0.5}).save(tmp_path)
    ranknet = RANKERS["ranknet"].params_class.of(kind, {"pairs": 3})
    members = {**defaults.members, "lambdarank": lambdarank, "ranknet": ranknet}
    assert params_for(tmp_path, "ensemble", kind) == (replace(defaults, members=members, weight_ranknet=0.5), True)


@pytest.mark.parametrize("params", [{"head_start": 2.0}, {"num_leaves": 0}])
def test_parameters_that_the_ranker_does_not_have_are_refused(tmp_path: Path, params: dict[str, float]) -> None:
    replace(BEST, params=params).save(tmp_path)
    with pytest.raises(ModelError, match=r"best-lambdarank\.json cannot be used: .*tune again"):
        params_for(tmp_path, "lambdarank", "tile")


@pytest.mark.parametrize(
    "content",
    ["", "{", "[]", "7", '{"model": "lambdarank"}', '{"surprise": 1}', b"\xff\xfe"],
    ids=repr,
)
def test_a_damaged_file_is_named(tmp_path: Path, content: str | bytes) -> None:
    path = tmp_path / "best-lambdarank.json"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(ModelError, match=r"best-lambdarank\.json cannot be read .*remove it, or tune again"):
        load_best(tmp_path, "lambdarank")


def test_parameters_that_are_not_a_mapping_are_refused(tmp_path: Path) -> None:
    replace(BEST, params=[1, 2]).save(tmp_path)  # type: ignore[arg-type]
    with pytest.raises(ModelError, match=r"best-lambdarank\.json cannot be read"):
        params_for(tmp_path, "lambdarank", "layout")


def test_a_file_about_another_ranker_is_refused(tmp_path: Path) -> None:
    BEST.save(tmp_path)
    (tmp_path / "best-lambdarank.json").rename(tmp_path / "best-ranknet.json")
    with pytest.raises(ModelError, match="it is about 'lambdarank'"):
        load_best(tmp_path, "ranknet")
