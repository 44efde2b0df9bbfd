"""The best parameters of a study as a file."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from data.errors import ModelError
from data.graph import Kind
from models.best_params import BestParams, load_best, params_for
from models.lambdarank import LambdaRank
from models.zoo import RANKERS

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
    assert load_best(tmp_path / "studies" / "cpu") == BEST
    assert [path.name for path in (tmp_path / "studies" / "cpu").iterdir()] == ["best.json"]


@pytest.mark.parametrize("kind", ["layout", "tile"])
def test_nothing_was_tuned(tmp_path: Path, kind: Kind) -> None:
    assert load_best(tmp_path / "absent") is None
    assert params_for(tmp_path / "absent", "lambdarank", kind) == (LambdaRank.default_params(kind), False)


@pytest.mark.parametrize("kind", ["layout", "tile"])
def test_tuned_parameters_complete_the_defaults(tmp_path: Path, kind: Kind) -> None:
    """A parameter that came with a newer version keeps its default."""
    BEST.save(tmp_path)
    params, tuned = params_for(tmp_path, "lambdarank", kind)
    assert tuned
    assert params == {**LambdaRank.default_params(kind), "learning_rate": 0.125, "labels": "log"}


def test_a_study_about_another_model_does_not_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(RANKERS, "other", LambdaRank)
    replace(BEST, model="other").save(tmp_path)
    assert params_for(tmp_path, "lambdarank", "tile") == (LambdaRank.default_params("tile"), False)
    assert params_for(tmp_path, "other", "tile")[1] is True


@pytest.mark.parametrize(
    "content", ["", "{", "[]", "7", '{"model": "lambdarank"}', '{"surprise": 1}', b"\xff\xfe"], ids=repr
)
def test_a_damaged_file_is_named(tmp_path: Path, content: str | bytes) -> None:
    (tmp_path / "best.json").write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(ModelError, match=r"best\.json cannot be read .*remove it, or tune again"):
        load_best(tmp_path)


def test_parameters_that_are_not_a_mapping_are_refused(tmp_path: Path) -> None:
    replace(BEST, params=[1, 2]).save(tmp_path)  # type: ignore[arg-type]
    with pytest.raises(ModelError, match=r"best\.json cannot be read"):
        params_for(tmp_path, "lambdarank", "layout")


def test_an_unknown_model_in_the_file_is_an_error(tmp_path: Path) -> None:
    replace(BEST, model="gone").save(tmp_path)
    with pytest.raises(ModelError, match="'gone' is not a model"):
        load_best(tmp_path)
