"""The best parameters of a study as a file."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from xlarank.data.errors import ModelError
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


def test_each_ranker_has_its_file_and_what_was_saved_is_read_back(tmp_path: Path) -> None:
    folder = tmp_path / "studies" / "cpu"
    defaults = {name: RANKERS[name].params_class.of("tile") for name in ("lambdarank", "ranknet")}
    assert load_best(folder, "lambdarank") is None
    assert params_for(folder, "lambdarank", "tile") == (defaults["lambdarank"], False)
    BEST.save(folder)
    assert load_best(folder, "lambdarank") == BEST
    assert [path.name for path in folder.iterdir()] == ["best-lambdarank.json"]
    tuned = replace(defaults["lambdarank"], learning_rate=0.125, labels="log")
    assert params_for(folder, "lambdarank", "tile") == (tuned, True), "the others keep their defaults"
    assert params_for(folder, "ranknet", "tile") == (defaults["ranknet"], False)


def test_members_of_an_ensemble_take_their_own(tmp_path: Path) -> None:
    defaults = RANKERS["ensemble"].params_class.of("layout")
    assert params_for(tmp_path, "ensemble", "layout") == (defaults, False)
    BEST.save(tmp_path)
    lambdarank = params_for(tmp_path, "lambdarank", "layout")[0]
    members = {**defaults.members, "lambdarank": lambdarank}  # type: ignore[attr-defined]
    assert params_for(tmp_path, "ensemble", "layout") == (replace(defaults, members=members), True)
    stale = {"ranknet": {"pairs": 3}, "lambdarank": {"num_leaves": 3}}
    replace(BEST, model="ensemble", params={"members": stale, "weight_ranknet": 0.5}).save(tmp_path)
    members["ranknet"] = RANKERS["ranknet"].params_class.of("layout", {"pairs": 3})
    expected = replace(defaults, members=members, weight_ranknet=0.5)
    assert params_for(tmp_path, "ensemble", "layout") == (expected, True)


def test_files_that_cannot_be_used_are_named(tmp_path: Path) -> None:
    path = tmp_path / "best-lambdarank.json"
    for params in ({"head_start": 2.0}, {"num_leaves": 0}):
        replace(BEST, params=params).save(tmp_path)
        with pytest.raises(ModelError, match=r"best-lambdarank\.json cannot be used: .*tune again"):
            params_for(tmp_path, "lambdarank", "tile")
    replace(BEST, params=[1, 2]).save(tmp_path)  # type: ignore[arg-type]
    for content in (
        path.read_bytes(),
        b"",
        b"{",
        b"[]",
        b'{"model": "lambdarank"}',
        b'{"surprise": 1}',
        b"\xff\xfe",
    ):
        path.write_bytes(content)
        with pytest.raises(ModelError, match=r"best-lambdarank\.json cannot be read .*remove it, or tune again"):
            load_best(tmp_path, "lambdarank")
    BEST.save(tmp_path)
    path.rename(tmp_path / "best-ranknet.json")
    with pytest.raises(ModelError, match="it is about 'lambdarank'"):
        load_best(tmp_path, "ranknet")
