"""A trained model on disk: whole, replaced as a whole, refused if damaged; fallbacks; the shipped
models.
"""

import json
import os
import shutil
import stat
from dataclasses import replace
from functools import partial
from unittest.mock import Mock

import numpy as np
import pytest

from benchmarks.adopt import MEASURED
from tests.models.contract import COLUMNS, easy_data, fitted, graph_rows, kernel
from tests.pipelines.trees import FULL, edit_json
from xlarank.data.collection import SAMPLE
from xlarank.data.errors import ModelError, WorkspaceError
from xlarank.data.graph import program_family
from xlarank.data.workspace import Workspace
from xlarank.features.rows import Recipe
from xlarank.features.store import Manifest
from xlarank.models import trained
from xlarank.models.trained import (
    CARD,
    SHIPPED,
    ModelCard,
    load_model,
    pretrained_model,
    save_model,
)
from xlarank.models.training_data import TrainingData
from xlarank.models.validation.folds import Fallback
from xlarank.pipelines.rank import rank

DATA = easy_data(graphs=4, configs=20)
RECIPE = Recipe("a" * 16, FULL, max_configs=0, seed=0)


def card(**changes):
    values = {
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


def boosters(*seeds):
    return [fitted("lambdarank", DATA, seed=seed, rounds=3) for seed in seeds]


def scores(folder):
    return load_model(folder).score(DATA.parts[0]).mean


@pytest.fixture
def folder(tmp_path):
    save_model(tmp_path / "model", card(), boosters(0, 1))
    return tmp_path / "model"


def test_a_saved_model_is_the_mean_of_its_seeds_and_replaced_as_a_whole(folder, monkeypatch):
    before = scores(folder)
    cards = [trained.read_card(folder)]
    read_card = trained.read_card
    per_seed = [ranker.predict(DATA.parts[0].matrix(), COLUMNS) for ranker in boosters(0, 1)]
    assert np.array_equal(before, np.mean(per_seed, axis=0))
    loaded = load_model(folder).card
    assert set(loaded.versions) >= {"python", "lightgbm", "numpy"} and len(loaded.seeds) == 2
    assert replace(loaded, versions={}, seeds={}) == card() and loaded.kind == "layout"
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert len(files) == 5  # the card and two files for each seed
    assert all(
        path.suffix in (".json", ".txt") and path.read_text(encoding="utf-8") for path in files
    )
    save_model(folder, card(rounds=4), boosters(7))
    (fresh,) = folder.glob("boosters-*")
    assert {path.name for path in folder.iterdir()} == {CARD, fresh.name}, "no stale folders"
    again = load_model(folder)
    assert (len(again.rankers), again.card.rounds) == (1, 4) and not np.array_equal(
        scores(folder), before
    )
    monkeypatch.setattr(
        trained, "read_card", lambda folder: cards.pop() if cards else read_card(folder)
    )
    assert load_model(folder).card.rounds == 4, (
        "one that is replaced while it is read is read again"
    )


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_a_failure_in_the_middle_keeps_the_old_model_whole(folder, monkeypatch, error):
    before = scores(folder)
    old_card = (folder / CARD).read_text()
    monkeypatch.setattr(trained, "write_json", Mock(side_effect=error))
    with pytest.raises((WorkspaceError, KeyboardInterrupt)):
        save_model(folder, card(rounds=9), boosters(5, 6))
    assert (folder / CARD).read_text() == old_card and len([*folder.glob("boosters-*")]) == 1
    assert np.array_equal(scores(folder), before)
    (folder.parent / "file").write_text("in the way")
    with pytest.raises(WorkspaceError, match=r"cannot write .*file"):
        save_model(folder.parent / "file" / "layout", card(), [])


def accept_change(folder):
    """Correct the checksums, as someone would who knows the format."""
    names = json.loads((folder / CARD).read_text())["seeds"]
    edit_json(folder / CARD, seeds={name: trained._checksum(folder / name) for name in names})


def test_a_changed_booster_is_refused(folder):
    path = min(folder.rglob("booster.txt"))
    content = path.read_bytes()
    for damaged in (
        content.replace(b"leaf_value=", b"leaf_valuf=", 1),
        content[: len(content) // 2],
        None,
    ):
        path.unlink() if damaged is None else path.write_bytes(damaged)
        with pytest.raises(
            ModelError, match=r"json cannot be used .*has changed since it was written.*run train"
        ):
            load_model(folder)
        path.write_bytes(content)
    path.write_text("tree\n")  # other damage: `RankerContract`
    accept_change(folder)
    with pytest.raises(ModelError, match="cannot be read"):
        load_model(folder)
    path.write_bytes(content)
    accept_change(folder)
    for damage in ((path.parent / "more.txt").touch, partial(shutil.rmtree, path.parent)):
        damage()
        with pytest.raises(ModelError, match="cannot be used"):
            load_model(folder)


def test_a_card_cannot_name_a_folder_outside(folder, tmp_path):
    outside = tmp_path / "other" / "seed-0"
    outside.mkdir(parents=True)
    boosters(0)[0].save(outside)
    (inside, checksum), *_ = load_model(folder).card.seeds.items()
    names = ("../other/seed-0", "boosters-x/../../other/seed-0", "..", str(outside))
    seeds = dict.fromkeys(names, trained._checksum(outside))
    seeds[str(folder / inside)] = (
        checksum  # whole, but packages and copies of the model would not be
    )
    for name, checksum in seeds.items():
        edit_json(folder / CARD, seeds={name: checksum})
        with pytest.raises(ModelError, match="lies outside the model"):
            load_model(folder)
        assert (folder / name).resolve().exists(), (
            "it is refused for its place, not for being absent"
        )


def test_the_folder_of_boosters_follows_the_mask_of_the_process(folder):
    before = os.umask(0o027)
    try:
        save_model(folder, card(), boosters(0))
    finally:
        os.umask(before)
    (seeds,) = folder.glob("boosters-*")
    assert {stat.S_IMODE(path.stat().st_mode) for path in (seeds, *seeds.iterdir())} == {0o750}


def test_a_damaged_card_is_refused(folder):
    content = (folder / CARD).read_text()
    for change, said in (
        ({"model": "pickle"}, "'pickle' is not a model"),
        (
            {"model": "pair-vote"},
            "'pair-vote' is not a model; expected lambdarank, .*run train again",
        ),
        *(({"seeds": {}}, "no boosters"), *(({"seeds": seeds}, "") for seeds in ([], None))),
        *(({"recipe": recipe}, "") for recipe in (3, {"tier": "full"})),
        *(({"fallback": fallback}, "") for fallback in ({"weight": 1.5}, {"order": "luck"})),
        *(
            (change, "")
            for change in ({"model": ["lambdarank"]}, {"columns": None}, {"surprise": 1})
        ),
    ):
        (folder / CARD).write_text(content)
        edit_json(folder / CARD, **change)
        with pytest.raises(ModelError, match=said or None):
            load_model(folder)
    for broken in (b"", b"{", b"[]", b"null", b"\xff\xfe{}"):
        (folder / CARD).write_bytes(broken)
        with pytest.raises(ModelError, match="cannot be used"):
            load_model(folder)
    (folder / CARD).unlink()  # its boosters alone are no model
    with pytest.raises(ModelError, match=r"there is no model at .*run train first"):
        load_model(folder)


def test_rows_of_other_columns_or_other_code_are_refused(folder):
    model = load_model(folder)
    rows = DATA.parts[0]

    def stored(columns, code="a"):
        return Manifest(replace(RECIPE, code_hash=code * 16), "", [], columns)

    model.require(stored(COLUMNS))
    assert model.select(rows) is rows
    shipped = replace(model, shipped=True)
    more = stored([*COLUMNS, "new"], "b")
    shipped.require(more)
    wider = replace(
        rows, columns=[*COLUMNS, "new"], config_values=np.c_[rows.config_values, rows.row_cost]
    )
    assert np.array_equal(shipped.score(shipped.select(wider)).mean, shipped.score(rows).mean)
    for fitting, manifest, said in (
        (model, stored(COLUMNS[:-1]), r"lack 1 \(noise"),
        (model, more, r"add 1 \(new"),
        (model, stored(COLUMNS, "b"), f"expected {'a' * 16}.*again"),
        (model, None, "lack 4 "),
        (shipped, stored(COLUMNS[:-1]), r"lack 1 columns of the model \(noise, .*`tier=full`"),
        (shipped, stored(COLUMNS[::-1]), "columns of the model in another order"),
    ):
        with pytest.raises(ModelError, match=said):
            fitting.require(manifest)


def test_only_kinds_never_seen_fall_back(tmp_path):
    """A model of one kind: the greater the bound, the slower."""
    data = TrainingData.from_graphs(
        [kernel(f"{family}__a", range(1, 9), range(10, 90, 10)) for family in "ab"]
    )
    plain = {"min_data_in_leaf": 1, "feature_fraction": 1.0}
    rankers = [fitted("lambdarank", data, seed=seed, kind="tile", **plain) for seed in range(2)]
    about = {
        "collection": "tile:cpu",
        "columns": data.columns,
        "kinds": ["dot"],
        "fallback": Fallback(0.5),
    }
    save_model(tmp_path / "model", card(**about), rankers)
    model = load_model(tmp_path / "model")
    assert (model.card.kinds, model.card.fallback, model.card.kind) == (
        ["dot"],
        Fallback(0.5),
        "tile",
    )
    said = "unseen kernel family ({}): weight 0.5 on the compiler's default, the rest on the model"
    for kinds, order, fallback in (
        (("dot",), [1, 3, 2, 0], ""),
        (("dot", "dot left-transposed"), [0, 1, 3, 2], said.format("dot left-transposed")),
        (("copy",), [0, 1, 3, 2], said.format("copy")),
    ):
        graph = kernel("c__a", [8, 1, 5, 3], [1, 1, 1, 1], kinds=kinds)
        score = model.score(graph)
        assert np.argsort(score.mean, kind="stable").tolist() == order and score.per_seed.shape == (
            2,
            4,
        )
        assert score.fallback == fallback
    assert model.score(graph.take(np.array([1, 2]))).fallback == "", (
        "the compiler's choice is not among them"
    )


def test_the_compilers_own_choice_is_blended_with_the_models_order():
    """The model's ranks are 1, 1/3, 0, 2/3."""
    rows = kernel("a__a", [4.0, 1.0, 5.0, 6.0], [10, 20, 30, 40])
    scores = np.array([9.0, -1.0, -7.0, 2.0])
    assert Fallback().ranks(rows) == pytest.approx([0, 1, 1, 1])
    # 0.75 * rank + 0.25 * place
    assert Fallback(0.25).blend(rows, scores) == pytest.approx(
        [0.75, 0.25 + 0.25, 0 + 0.25, 0.5 + 0.25]
    )
    blended = Fallback(0.5).blend(rows, scores)
    assert np.argsort(blended, kind="stable").tolist() == [0, 2, 1, 3], (
        "first, the rest as the model has them"
    )
    # the first configuration has the values of the third row
    assert Fallback().ranks(replace(rows, group=np.array([2, 0, 1, 3]))).tolist() == [1, 1, 0, 1]
    assert Fallback(0.0).blend(rows, scores) is scores
    sampled = rows.take(np.array([1, 2, 3]))
    assert Fallback().blend(sampled, scores[1:]).tolist() == scores[1:].tolist(), (
        "it is not among them"
    )
    for weight in (-0.1, 1.1, float("nan")):
        with pytest.raises(ValueError, match=r"the weight of the fallback"):
            Fallback(weight)


def test_a_kernel_is_unseen_by_each_of_its_possible_families():
    kinds = (("dot", "dot left-transposed"), ("dot",), ("copy",))
    graphs = [*(kernel("a__a", [1], [1], kinds=of) for of in kinds), graph_rows("d__a", [1])]
    assert [graph.unseen_kinds(["copy", "dot"]) for graph in graphs] == [
        ("dot left-transposed",),
        (),
        (),
        (),
    ]


def test_shipped_models_are_small_text_and_know_no_measurements():
    files = [path for path in SHIPPED.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) < 1_500_000
    assert {path.suffix for path in files} <= {".json", ".txt", ".md"}
    layouts, tiles = (pretrained_model(kind).card for kind in ("layout", "tile"))
    assert (layouts.collection, layouts.rounds, layouts.known_graphs) == (
        trained.SHIPPED_COLLECTION,
        0,
        set(),
    )
    known = {path.stem for path in (SAMPLE / "npz/tile/tpu-estimate").glob("train/*.npz")}
    assert tiles.collection == "tile:tpu-estimate" and [*tiles.trained_on] == ["train"]
    assert set(tiles.trained_on["train"]) <= known
    assert not {program_family(name) for name in tiles.known_graphs} & MEASURED, "that judge"


#: Kendall's tau as a submission has it, and tau-b, of layouts measured on a TPU that nothing was
#: learned from.
MEASURED_LAYOUTS = {
    "default/train/alexnet_train_batch_32": (0.71, 0.79),
    "default/train/unet3d": (0.66, 0.77),
    "default/valid/unet_3d.4x4.bf16": (0.27, 0.31),
    "random/valid/unet_3d.4x4.bf16": (0.74, 0.77),
}


@pytest.mark.parametrize("place", MEASURED_LAYOUTS)
def test_the_time_model_ranks_measured_layouts(place, real_data, tmp_path):
    ranking = rank(Workspace(tmp_path), real_data / "npz/layout/xla" / f"{place}.npz")
    assert ranking.shipped and ranking.estimated is not None
    tau, tau_b = MEASURED_LAYOUTS[place]
    assert ranking.metrics["tau"] >= tau and ranking.metrics["tau_b"] >= tau_b, ranking.metrics
    assert ranking.metrics["slowdown@1"] < 0.002


def test_tiles_that_the_shipped_model_never_saw_are_ranked_with_times(tmp_path):
    paths = sorted((SAMPLE / "npz/tile/tpu-estimate/valid").glob("*.npz"))[:12]
    first, *others = rankings = [rank(Workspace(tmp_path), path) for path in paths]
    assert len(others) == 11 and all(ranking.shipped for ranking in rankings)
    assert np.mean([ranking.metrics["tau"] for ranking in rankings]) > 0.9
    assert (
        np.median(
            [np.median(np.abs(ranking.estimated / ranking.runtime - 1)) for ranking in rankings]
        )
        < 0.2
    )
    assert first.best(1)[0].estimated_ns == first.estimated[first.order[0]]
