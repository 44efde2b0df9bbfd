"""A trained model on disk: whole, replaced as one, and refused when it is damaged."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.models.contract import fitted
from tests.models.rows import COLUMNS, easy_data
from tests.models.tile_rows import kernel
from xlarank.data.errors import ModelError, WorkspaceError
from xlarank.features.recipe import Recipe
from xlarank.features.store import Manifest
from xlarank.models import trained
from xlarank.models.base import Ranker
from xlarank.models.fallback import Fallback
from xlarank.models.fit_settings import FitSettings
from xlarank.models.rankers.lambdarank import LambdaRank
from xlarank.models.ranking_data import RankingData
from xlarank.models.trained import CARD, ModelCard, load_model, save_model

DATA = easy_data(graphs=4, configs=20)
RECIPE = Recipe(code_hash="a" * 16, tier="full", candidates=True, max_configs=0, seed=0)


def card(**changes: Any) -> ModelCard:
    values: dict[str, Any] = {
        "collection": "layout:cpu:random",
        "model": "lambdarank",
        "params": {"learning_rate": 0.1},
        "rounds": 3,
        "tuned": False,
        "recipe": RECIPE,
        "columns": COLUMNS,
        "trained_on": {"train": DATA.names},
        "folds": {name: {"tau": 0.5} for name in DATA.names},
    }
    return ModelCard(**{**values, **changes})


def boosters(*seeds: int) -> list[Ranker]:
    return [fitted("lambdarank", DATA, seed=seed, rounds=3) for seed in seeds]


def scores(folder: Path) -> np.ndarray:
    return load_model(folder).score(DATA.parts[0]).mean


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    save_model(tmp_path / "model", card(), boosters(0, 1))
    return tmp_path / "model"


def test_a_saved_model_is_the_mean_of_its_seeds(folder: Path) -> None:
    expected = np.mean([ranker.predict(DATA.parts[0].matrix(), COLUMNS) for ranker in boosters(0, 1)], axis=0)
    assert np.array_equal(scores(folder), expected)
    assert len(load_model(folder).rankers) == 2


def test_a_model_that_is_replaced_while_it_is_read_is_read_again(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read_card, cards = trained.read_card, []

    def read_and_replace(folder: Path) -> ModelCard:
        cards.append(read_card(folder))
        if len(cards) == 1:
            save_model(folder, card(rounds=4), boosters(2))
        return cards[-1]

    monkeypatch.setattr(trained, "read_card", read_and_replace)
    assert load_model(folder).card.rounds == 4


def test_the_card_comes_back_as_it_was(folder: Path) -> None:
    loaded = load_model(folder).card
    assert loaded.recipe == RECIPE
    assert (loaded.columns, loaded.trained_on, loaded.rounds) == (COLUMNS, {"train": DATA.names}, 3)
    assert (loaded.kind, card(collection="tile:cpu").kind) == ("layout", "tile")
    assert set(loaded.versions) >= {"python", "lightgbm", "numpy"}
    assert len(loaded.seeds) == 2


def test_everything_on_disk_is_text(folder: Path) -> None:
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert len(files) == 5  # the card and two files for each seed
    for path in files:
        assert path.suffix in (".json", ".txt")
        path.read_text(encoding="utf-8")


def test_same_boosters_same_bytes(folder: Path, tmp_path: Path) -> None:
    """Apart from the name of the folder of boosters, which is new at every save."""

    def contents(own: Path) -> dict[str, str]:
        name = next(own.glob("boosters-*")).name
        files = [path for path in own.rglob("*") if path.is_file()]
        return {
            str(path.relative_to(own)).replace(name, "*"): path.read_text().replace(name, "*") for path in files
        }

    save_model(tmp_path / "again", card(), boosters(0, 1))
    assert contents(tmp_path / "again") == contents(folder)


def test_saving_again_replaces_all_of_it(folder: Path) -> None:
    before = scores(folder)
    old = next(folder.glob("boosters-*"))
    save_model(folder, card(rounds=4), boosters(7))
    assert not old.exists()
    (fresh,) = folder.glob("boosters-*")
    assert {path.name for path in folder.iterdir()} == {CARD, fresh.name}, "no stale folders"
    assert len(load_model(folder).rankers) == 1
    assert load_model(folder).card.rounds == 4
    assert not np.array_equal(scores(folder), before)


class _Stop(BaseException):
    """Stands for a kill: nothing may catch it."""


def _fail_in_a_booster(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    save, calls = LambdaRank.save, []

    def failing(self: LambdaRank, folder: Path) -> None:
        save(self, folder)
        calls.append(folder)
        if len(calls) == 2:
            raise error

    monkeypatch.setattr(LambdaRank, "save", failing)


def _fail_in_the_card(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    def failing(path: Path, value: Any) -> None:
        raise error

    monkeypatch.setattr(trained, "write_json", failing)


@pytest.mark.parametrize("fail", [_fail_in_a_booster, _fail_in_the_card])
@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), _Stop()], ids=["full disk", "kill"])
def test_a_failure_in_the_middle_keeps_the_old_model_whole(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    fail: Callable[[pytest.MonkeyPatch, BaseException], None],
    error: BaseException,
) -> None:
    before, old_card = scores(folder), (folder / CARD).read_text()
    with monkeypatch.context() as patch:
        fail(patch, error)
        with pytest.raises((WorkspaceError, OSError, _Stop)):
            save_model(folder, card(rounds=9), boosters(5, 6))
    assert (folder / CARD).read_text() == old_card
    assert np.array_equal(scores(folder), before)
    save_model(folder, card(), boosters(5))
    assert len(list(folder.iterdir())) == 2, "the next save clears what the failed one left"


def test_a_full_disk_leaves_no_half_written_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _fail_in_a_booster(monkeypatch, OSError(28, "No space left on device"))
    with pytest.raises(WorkspaceError, match="No space left on device"):
        save_model(folder, card(), boosters(5, 6))
    assert len(list(folder.glob("boosters-*"))) == 1


def test_a_file_in_the_way_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "models").write_text("in the way")
    with pytest.raises(WorkspaceError, match=r"cannot write .*models"):
        save_model(tmp_path / "models" / "layout", card(), boosters(0))


def test_a_ranker_of_several_folders_is_saved_and_guarded_as_one(tmp_path: Path) -> None:
    ranker = fitted("ensemble", DATA, rounds=2)
    save_model(tmp_path / "model", card(model="ensemble"), [ranker])
    assert np.array_equal(scores(tmp_path / "model"), ranker.predict(DATA.parts[0].matrix(), COLUMNS))
    member = sorted(tmp_path.rglob("ranknet/booster.txt"))[0]
    member.write_bytes(member.read_bytes().replace(b"leaf_value=", b"leaf_valuf=", 1))
    with pytest.raises(ModelError, match="has changed since it was written"):
        load_model(tmp_path / "model")


# Damage --------------------------------------------------------------------------------------------------


def booster_file(folder: Path) -> Path:
    return sorted(folder.rglob("booster.txt"))[0]


def edit_card(folder: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    value = json.loads((folder / CARD).read_text())
    change(value)
    (folder / CARD).write_text(json.dumps(value))


def checksum(own: Path) -> str:
    """What the card keeps of a folder of one booster: names and contents in order of name."""
    digest = hashlib.sha256()
    for path in sorted(own.iterdir()):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def accept_change(folder: Path) -> None:
    """Someone who knows the format also mends the checksums."""
    edit_card(folder, lambda value: value.update(seeds={name: checksum(folder / name) for name in value["seeds"]}))


def test_a_missing_model_says_to_train(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"there is no model at .*run train first"):
        load_model(tmp_path / "absent")


def test_a_missing_card_is_no_model_even_with_boosters(folder: Path) -> None:
    (folder / CARD).unlink()
    with pytest.raises(ModelError, match="there is no model"):
        load_model(folder)


@pytest.mark.parametrize("harm", ["bit", "cut", "grown", "extra file", "file gone", "folder gone"])
def test_a_changed_booster_is_refused(folder: Path, harm: str) -> None:
    path = booster_file(folder)
    content = path.read_bytes()
    if harm == "bit":
        path.write_bytes(content.replace(b"leaf_value=", b"leaf_valuf=", 1))
    elif harm == "cut":
        path.write_bytes(content[: len(content) // 2])
    elif harm == "grown":
        path.write_bytes(content + b"\n")
    elif harm == "extra file":
        (path.parent / "more.txt").write_text("")
    elif harm == "file gone":
        path.unlink()
    else:
        for file in path.parent.iterdir():
            file.unlink()
        path.parent.rmdir()
    with pytest.raises(ModelError, match=r"model\.json cannot be used .*run train again"):
        load_model(folder)


@pytest.mark.parametrize("content", ["", "tree\n", "{}"], ids=repr)
def test_a_broken_booster_with_the_right_checksum_is_refused(folder: Path, content: str) -> None:
    booster_file(folder).write_text(content)
    accept_change(folder)
    with pytest.raises(ModelError, match="cannot be read"):
        load_model(folder)


def test_the_test_can_mend_checksums(folder: Path) -> None:
    """Or the test above would only see the checksum again."""
    before = (folder / CARD).read_text()
    accept_change(folder)
    assert json.loads((folder / CARD).read_text()) == json.loads(before)
    load_model(folder)


@pytest.mark.parametrize("name", ["../other/seed-0", "boosters-x/../../other/seed-0", ".."])
def test_a_card_cannot_name_a_folder_outside(folder: Path, tmp_path: Path, name: str) -> None:
    own = tmp_path / "other" / "seed-0"
    own.mkdir(parents=True)
    boosters(0)[0].save(own)
    target = (folder / name).resolve()
    edit_card(folder, lambda value: value.update(seeds={name: checksum(own)}))
    with pytest.raises(ModelError, match="lies outside the model"):
        load_model(folder)
    assert target.exists(), "it is refused for where it is, not for being absent"


def test_a_card_cannot_name_an_absolute_folder(folder: Path, tmp_path: Path) -> None:
    own = tmp_path / "other"
    own.mkdir()
    boosters(0)[0].save(own)
    edit_card(folder, lambda value: value.update(seeds={str(own): checksum(own)}))
    with pytest.raises(ModelError, match="lies outside the model"):
        load_model(folder)


def test_an_unknown_ranker_is_refused_by_name(folder: Path) -> None:
    edit_card(folder, lambda value: value.update(model="pickle"))
    with pytest.raises(ModelError, match="'pickle' is not a model"):
        load_model(folder)


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda value: value.update(seeds={}), id="no boosters"),
        pytest.param(lambda value: value.update(seeds=list(value["seeds"])), id="seeds as a list"),
        pytest.param(lambda value: value.update(seeds=None), id="no seeds"),
        pytest.param(lambda value: value.pop("recipe"), id="no recipe"),
        pytest.param(lambda value: value.update(recipe=3), id="recipe is a number"),
        pytest.param(lambda value: value.update(recipe={"tier": "full"}), id="half a recipe"),
        pytest.param(lambda value: value.pop("columns"), id="no columns"),
        pytest.param(lambda value: value.update(surprise=1), id="something more"),
        pytest.param(lambda value: value.update(model=["lambdarank"]), id="model is a list"),
    ],
)
def test_a_damaged_card_is_refused(folder: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    edit_card(folder, change)
    with pytest.raises(ModelError):
        load_model(folder)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"null", b"\xff\xfe{}"], ids=repr)
def test_a_card_that_is_not_json_of_a_model_is_refused(folder: Path, content: bytes) -> None:
    (folder / CARD).write_bytes(content)
    with pytest.raises(ModelError, match="cannot be used"):
        load_model(folder)


# Rows of another making ---------------------------------------------------------------------------------


def manifest(columns: list[str], code_hash: str = RECIPE.code_hash) -> Manifest:
    recipe = Recipe(code_hash, "full", True, 0, 0)
    return Manifest(recipe, data_root="", graph_columns=columns[:1], config_columns=columns[1:])


def test_rows_of_the_same_making_are_taken(folder: Path) -> None:
    load_model(folder).require_rows_of(manifest(COLUMNS))


def test_rows_with_other_columns_are_refused_with_the_difference(folder: Path) -> None:
    with pytest.raises(ModelError, match=r"lack 1 \(noise\) and add 1 \(more\)"):
        load_model(folder).require_rows_of(manifest([*COLUMNS[:-1], "more"]))


def test_rows_of_other_code_are_refused_with_both_hashes(folder: Path) -> None:
    with pytest.raises(ModelError, match=f"{'b' * 16}.*expected {'a' * 16}.*train again"):
        load_model(folder).require_rows_of(manifest(COLUMNS, code_hash="b" * 16))


# Kinds of kernels --------------------------------------------------------------------------------------------


@pytest.fixture
def of_tiles(tmp_path: Path) -> Path:
    """A model of one kind: the greater the bound, the slower."""
    known = [kernel(f"{family}__a", range(1, 9), range(10, 90, 10)) for family in "ab"]
    data = RankingData.from_graphs(known)
    ranker = LambdaRank({"min_data_in_leaf": 1, "feature_fraction": 1.0}, kind="tile")
    rankers = [ranker.clone().fit(data, FitSettings(20, seed, 1)) for seed in range(2)]
    about = card(
        collection="tile:cpu", columns=data.columns, target="cpu", kinds=["dot"], folds_by="kind",
        fallback=Fallback(0.5),
    )  # fmt: skip
    save_model(tmp_path / "model", about, rankers)
    return tmp_path / "model"


def test_kinds_and_fallback_come_back(of_tiles: Path) -> None:
    loaded = load_model(of_tiles).card
    assert (loaded.kinds, loaded.fallback) == (["dot"], Fallback(0.5))
    assert (loaded.target, loaded.folds_by) == ("cpu", "kind")


def test_only_kinds_never_seen_fall_back(of_tiles: Path) -> None:
    model = load_model(of_tiles)
    seen, unseen, open_ = (
        kernel("c__a", [8, 1, 5, 3], [1, 1, 1, 1], kinds=kinds)
        for kinds in (("dot",), ("copy",), ("dot", "dot left-transposed"))
    )
    assert np.argsort(model.score(seen).mean).tolist() == [1, 3, 2, 0]
    assert model.score(seen).fallback == ""
    for graph in (unseen, open_):
        assert np.argsort(model.score(graph).mean, kind="stable").tolist() == [0, 1, 3, 2]
        assert model.score(graph).per_seed.shape == (2, 4)
    assert model.score(unseen).fallback == (
        "kind of kernel never seen (copy): weight 0.5 on the compiler's own choice, the rest on the model"
    )
    assert "never seen (dot left-transposed)" in model.score(open_).fallback


def test_without_the_compilers_own_choice_nothing_is_told(of_tiles: Path) -> None:
    unseen = kernel("c__a", [8, 1, 5], [1, 1, 1], kinds=("copy",)).take(np.array([1, 2]))
    assert load_model(of_tiles).score(unseen).fallback == ""


@pytest.mark.parametrize("edit", [{"weight": 1.5}, {"weight": "heavy"}, {"order": "luck"}, {"more": 1}])
def test_a_fallback_that_makes_no_sense_is_refused(of_tiles: Path, edit: dict[str, Any]) -> None:
    value = json.loads((of_tiles / CARD).read_text(encoding="utf-8"))
    value["fallback"] |= edit
    (of_tiles / CARD).write_text(json.dumps(value), encoding="utf-8")
    with pytest.raises(ModelError, match="cannot be used"):
        load_model(of_tiles)
