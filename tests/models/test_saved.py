"""Models on disk: whole, replaced as a whole, refused if damaged; fallbacks; the shipped ones."""

import shutil
from dataclasses import replace
from unittest.mock import Mock

import numpy as np
import pytest

from benchmarks.adopt import MEASURED
from tests.models.helpers import COLUMNS, RECIPE, easy_data, fitted, kernel, saved
from tests.pipelines.trees import edit_json
from xlarank.data.collection import SAMPLE
from xlarank.data.errors import ModelError, WorkspaceError
from xlarank.data.families import program_family
from xlarank.features.store import Manifest
from xlarank.models import files as module
from xlarank.models.card import CARD, blend_default, read_card
from xlarank.models.files import _checksum
from xlarank.models.model import Model
from xlarank.models.stored import SHIPPED_MODELS, SHIPPED_TREES, formula, shipped_trees
from xlarank.models.training_data import TrainingData
from xlarank.pipelines.rank import rank

DATA = easy_data(graphs=4, configs=20)


def small(seed=0, seeds=1):
    return fitted("lambdarank", DATA, seed=seed, seeds=seeds, rounds=3)


def scores(folder):
    return Model.load(folder).score(DATA.parts[0])


@pytest.fixture
def folder(tmp_path):
    saved(small(seeds=2), tmp_path / "model")
    return tmp_path / "model"


def test_a_saved_model_is_replaced_as_a_whole(folder, monkeypatch):
    before = scores(folder)
    cards = [read_card(folder)]
    card = Model.load(folder).card
    assert set(card.versions) >= {"python", "lightgbm", "numpy"} and card.kind == "layout"
    assert (card.model, card.columns, card.seeds) == ("lambdarank", COLUMNS, 2)
    assert card.params == small().params and len(card.members) == 2
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert len(files) == 5, "the card, and two files for each member"
    saved(small(seed=7), folder, rounds=4)
    (members,) = folder.glob("members-*")
    assert {path.name for path in folder.iterdir()} == {CARD, members.name}, "no stale folders"
    again = Model.load(folder)
    assert (len(again.members), again.card.rounds, again.card.seeds) == (1, 4, 1)
    assert not np.array_equal(scores(folder), before)
    monkeypatch.setattr(
        module, "read_card", lambda folder: cards.pop() if cards else read_card(folder)
    )
    loaded = Model.load(folder)
    assert loaded.card.rounds == 4, "one that is replaced while it is read is read again"


@pytest.mark.parametrize(
    ("step", "error", "raised"),
    [
        ("write_json", OSError(28, "No space left on device"), WorkspaceError),
        ("write_json", KeyboardInterrupt(), KeyboardInterrupt),
        ("read_members", ModelError("unreadable"), ModelError),
    ],
)
def test_a_failure_in_the_middle_keeps_the_old_model_whole(
    folder, monkeypatch, step, error, raised
):
    before = scores(folder)
    old_card = (folder / CARD).read_text()
    monkeypatch.setattr(module, step, Mock(side_effect=error))
    with pytest.raises(raised):
        saved(small(seed=5), folder)
    monkeypatch.undo()
    assert (folder / CARD).read_text() == old_card and len([*folder.glob("members-*")]) == 1
    assert np.array_equal(scores(folder), before)
    (folder.parent / "file").write_text("in the way")
    with pytest.raises(WorkspaceError, match=r"cannot write .*file"):
        saved(small(), folder.parent / "file" / "layout")


def test_a_card_cannot_name_a_folder_outside(folder, tmp_path):
    (inside, checksum), *_ = read_card(folder).members.items()
    outside = tmp_path / "other" / "00-lambdarank"
    shutil.copytree(folder / inside, outside)
    names = ("../other/00-lambdarank", "members-x/../../other/00-lambdarank", "..", str(outside))
    members = dict.fromkeys(names, checksum) | {"..": _checksum(tmp_path)}
    # whole, but packages and copies of the model would not be
    members[str(folder / inside)] = checksum
    for name, of_name in members.items():
        edit_json(folder / CARD, members={name: of_name})
        with pytest.raises(ModelError, match="lies outside the model"):
            Model.load(folder)
        assert (folder / name).resolve().exists(), "it is refused for its place"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"model": "sibling"}, "'sibling' is not a model.*run train again"),
        ({"params": {"depth": 3}}, "'depth' is not a parameter of lambdarank"),
        ({"continues": None}, "written by another version of xlarank.*run train again"),
        ({"members": {}}, "no members"),
        ({"members": {}, "rule": ["speed"]}, "its rule is of other columns"),
        ({"members": []}, r"cannot be used \(members is '\[\]', not dict"),
        ({"recipe": {"tier": "full"}}, "recipe got an unexpected keyword argument"),
        ({"recipe": {}}, "missing 3 required positional arguments"),
        ({"recipe": [3]}, "recipe is no JSON object"),
        ({"collection": 3}, "collection is '3', not str"),
        ({"rounds": True}, "rounds is 'True', not int"),
        ({"rows": "all"}, "rows is 'all', not"),
        ({"rule_weight": "0.5"}, "rule_weight is '0.5', not float"),
        ({"rule_weight": float("inf")}, "rule_weight is 'inf', not float"),
        ({"trained_on": {"train": [1]}}, "an entry of trained_on.train is '1', not str"),
        ({"columns": COLUMNS[:2]}, "trained on more columns than its 2"),
    ],
)
def test_a_damaged_card_is_refused(folder, change, said):
    edit_json(folder / CARD, **change)
    with pytest.raises(ModelError, match=said):
        Model.load(folder)


def test_a_card_that_is_no_json_or_missing_is_refused(folder):
    for broken in (b"", b"{", b"[]", b"null", b"\xff\xfe{}", b"[" * 100_000):
        (folder / CARD).write_bytes(broken)
        with pytest.raises(ModelError, match="cannot be used"):
            Model.load(folder)
    (folder / CARD).unlink()  # its members alone are no model
    with pytest.raises(ModelError, match=r"there is no model at .*run train first"):
        Model.load(folder)


def test_rows_of_other_columns_or_other_code_are_refused(folder):
    model = Model.load(folder)
    rows = DATA.parts[0]

    def stored(columns, code="a"):
        return Manifest(replace(RECIPE, columns_version=code * 16), "", columns)

    model.require(stored(COLUMNS))
    assert model.select(rows) is rows
    shipped = replace(model, shipped=True)
    more = stored([*COLUMNS, "new"], "b")
    shipped.require(more)
    values = np.c_[rows.config_values, rows.row_cost]
    wider = replace(rows, columns=[*COLUMNS, "new"], config_values=values)
    assert np.array_equal(shipped.score(wider), shipped.score(rows))
    assert shipped.contributions(wider, 0, 1) == shipped.contributions(rows, 0, 1)
    for fitting, manifest, said in (
        (model, stored(COLUMNS[:-1]), r"lack 1 \(noise"),
        (model, more, r"add 1 \(new"),
        (model, stored(COLUMNS, "b"), f"expected {'a' * 16}.*again"),
        (model, None, "lack 4 "),
        (shipped, stored(COLUMNS[:-1]), r"lack 1 \(noise"),
        (shipped, stored(COLUMNS[::-1]), "columns in another order"),
    ):
        with pytest.raises(ModelError, match=said):
            fitting.require(manifest)


def test_only_kinds_never_seen_fall_back(tmp_path):
    """A model of one kind: the greater the bound, the slower."""
    graphs = [kernel(f"{family}__a", range(1, 9), range(10, 90, 10)) for family in "ab"]
    data = TrainingData.from_graphs(graphs)
    plain = {"min_data_in_leaf": 1, "feature_fraction": 1.0}
    model = fitted("lambdarank", data, seeds=2, kind="tile", **plain)
    saved(model, tmp_path, kernel_families=["dot"], fallback=True)
    model = Model.load(tmp_path)
    assert (model.card.kernel_families, model.card.fallback, model.kind) == (["dot"], True, "tile")
    weights = "weight 0.5 on the compiler's default"
    perhaps = f"perhaps an unseen kernel family (dot left-transposed): {weights}"
    for kinds, order, fallback in (
        (("dot",), [1, 3, 2, 0], ""),
        (("dot", "dot left-transposed"), [0, 1, 3, 2], perhaps),
        (("copy",), [0, 1, 3, 2], f"unseen kernel family (copy): {weights}"),
    ):
        graph = kernel("c__a", [8, 1, 5, 3], [1, 1, 1, 1], families=kinds)
        assert np.argsort(model.score(graph), kind="stable").tolist() == order
        assert model.card.fallback_note(graph) == fallback
    trained_on = replace(graph, name="family0__a")
    assert model.card.fallback_note(trained_on) == ""
    assert np.argsort(model.score(trained_on), kind="stable").tolist() == [1, 3, 2, 0]
    without_default = graph.take(np.array([1, 2]))
    assert model.card.fallback_note(without_default) == "", "the compiler's choice is missing"


def test_the_compilers_own_choice_is_blended_with_the_models_order():
    """The model's ranks are 1, 1/3, 0, 2/3."""
    rows = kernel("a__a", [4.0, 1.0, 5.0, 6.0], [10, 20, 30, 40])
    scores = np.array([9.0, -1.0, -7.0, 2.0])
    blended = blend_default(rows, scores)
    assert blended == pytest.approx([1 / 2, 2 / 3, 1 / 2, 5 / 6])
    # first, the rest as the model has them
    assert np.argsort(blended, kind="stable").tolist() == [0, 2, 1, 3]
    third = replace(rows, group=np.array([2, 0, 1, 3]))  # is that of the first configuration
    assert blend_default(third, scores) == pytest.approx([1, 2 / 3, 0, 5 / 6])
    sampled = rows.take(np.array([1, 2, 3]))
    without_default = blend_default(sampled, scores[1:])
    assert without_default.tolist() == scores[1:].tolist(), "it is not among them"


def test_shipped_models_are_small_text_and_know_no_measurements():
    files = [path for path in SHIPPED_MODELS.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) < 1_500_000
    assert {path.suffix for path in files} <= {".json", ".txt", ".md"}
    tiles = shipped_trees().card
    assert formula("layout", "tpugraphs").is_time_model and formula("layout", "") is None
    assert not formula("layout", "tpu-v3").is_time_model
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
    ranking = rank(real_data / "npz/layout/xla" / f"{place}.npz", tmp_path)
    assert ranking.estimated is not None
    tau, tau_b = MEASURED_LAYOUTS[place]
    assert ranking.metrics["tau"] >= tau and ranking.metrics["tau_b"] >= tau_b, ranking.metrics
    assert ranking.metrics["slowdown@1"] < 0.002


def test_tiles_that_the_shipped_model_never_saw_are_ranked_with_times(tmp_path):
    paths = sorted((SAMPLE / "npz/tile/tpu-estimate/valid").glob("*.npz"))[:12]
    first, *others = rankings = [rank(path, tmp_path) for path in paths]
    assert len(others) == 11 and {one.ranked_by for one in rankings} == {SHIPPED_TREES}
    assert np.mean([ranking.metrics["tau"] for ranking in rankings]) > 0.9
    errors = [np.median(np.abs(one.estimated / one.runtime - 1)) for one in rankings]
    assert np.median(errors) < 0.2
    assert first.best(1)[0]["estimated_ns"] == first.estimated[first.order[0]]
