"""The shipped rankers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks.adopt import MEASURED
from tests.models.rows import easy_graph
from xlarank.data.collection import Collection
from xlarank.data.errors import ModelError
from xlarank.data.family import program_family
from xlarank.data.graph import read_graph
from xlarank.data.root import SAMPLE
from xlarank.data.workspace import Workspace
from xlarank.features.rows import GraphRows
from xlarank.models.trained import SHIPPED, SHIPPED_COLLECTION, pretrained_model
from xlarank.pipelines.rank import rank
from xlarank.pipelines.ranking.model_choice import model_for_collection

#: Family -> tau that it must keep: a third of a family's graphs may move, but not from good to bad. These families
#: are in no train split.
VALID = ("crossattn__a", "mlp_train__a", "unet__a")


def test_they_are_small_text_learned_from_estimates_of_the_train_split_alone() -> None:
    files = [path for path in SHIPPED.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) < 3_000_000
    assert {path.suffix for path in files} <= {".json", ".txt", ".md"}
    for kind, of in (("layout", SHIPPED_COLLECTION), ("tile", "tile:tpu-estimate")):
        card = pretrained_model(kind).card  # type: ignore[arg-type]
        known = {path.stem for path in (SAMPLE / "npz" / kind / "tpu-estimate").glob("**/train/*.npz")}
        assert card.collection == of and [*card.trained_on] == ["train"]
        assert set(card.trained_on["train"]) <= known
        assert not {program_family(name) for name in card.trained_on["train"]} & MEASURED, "that judge"


def test_it_still_ranks_what_it_never_saw(tmp_path: Path) -> None:
    """Columns that changed their meaning since it was made would show here."""
    taus = []
    for name in VALID:
        ranking = rank(Workspace(tmp_path), SAMPLE / f"npz/layout/tpu-estimate/random/valid/{name}.npz")
        assert ranking.shipped and ranking.collection == SHIPPED_COLLECTION and ranking.metrics is not None
        taus.append(ranking.metrics["tau"])
    assert np.mean(taus) > 0.3, taus


def test_tiles_are_ranked_for_tpus_alone(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"there is no trained tile model.* is for TPUs"):
        rank(Workspace(tmp_path), read_graph(SAMPLE / "npz" / "tile" / "cpu" / "valid" / "bmm_tb__a.npz"))
    found = model_for_collection(Workspace(tmp_path), Collection.parse("tile:xla"))
    assert found.shipped and found.card.collection == "tile:tpu-estimate"
    with pytest.raises(ModelError, match="is for TPUs"):
        model_for_collection(Workspace(tmp_path), Collection.parse("tile:cpu"))


def test_tiles_that_it_never_saw_are_ranked_with_times(tmp_path: Path) -> None:
    taus, errors = [], []
    for path in sorted((SAMPLE / "npz" / "tile" / "tpu-estimate").glob("valid/*.npz"))[:12]:
        ranking = rank(Workspace(tmp_path), path)
        assert ranking.shipped and ranking.metrics is not None and ranking.estimated is not None
        taus.append(ranking.metrics["tau"])
        errors.append(np.median(np.abs(ranking.estimated / ranking.runtime - 1)))
        assert ranking.best(1)[0].estimated_ns == ranking.estimated[ranking.order[0]]
    assert np.mean(taus) > 0.9 and np.median(errors) < 0.2, (taus, errors)


def test_columns_are_picked_by_name() -> None:
    rows, model = easy_graph("a__a", 5, 0), pretrained_model()

    def picked(*columns: str) -> GraphRows:
        return replace(model, card=replace(model.card, columns=[*columns])).own_columns(rows)

    assert picked("waste", "noise").columns == ["waste", "noise"]
    assert np.array_equal(picked("noise").matrix()[:, 0], rows.matrix()[:, 3])
    for columns, said in (
        (("waste", "gone"), r"lack 1 columns of the model \(gone"),
        (("noise", "waste"), "another order"),
    ):
        with pytest.raises(ModelError, match=said):
            picked(*columns)
