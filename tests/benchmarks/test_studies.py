"""Which collected graphs join the sample, what arms of a study learn from, and a short run of the fuzzer."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import spearmanr

from benchmarks import tied_arms
from benchmarks.adopt import adopt
from benchmarks.fuzz_models import fuzz
from benchmarks.tied_arms import ARMS, Graphs, correlations, evaluated, fitted, kept_columns, trained_on
from tests.models.contract import easy_graph
from xlarank.data.family import program_family
from xlarank.data.root import SAMPLE
from xlarank.features.rows import GraphRows

_FILE = SAMPLE / "npz" / "layout" / "tpu-estimate" / "random" / "train" / "mixer__a.npz"


def _collected(folder: Path, search: str, name: str, source: str = "tpu-estimate", **more: np.ndarray) -> None:
    place = folder / "npz" / "layout" / source / search / "train" / f"{name}.npz"
    place.parent.mkdir(parents=True, exist_ok=True)
    with np.load(_FILE) as arrays:
        np.savez(place, **{**arrays, **more})


def test_what_is_taken(tmp_path: Path) -> None:
    folder, sample = tmp_path / "collected", tmp_path / "sample"
    configs = len(np.load(_FILE)["config_runtime"])
    _collected(folder, "random", "new__a", cycles_start=np.arange(3))
    _collected(folder, "evolve", "new__a")
    _collected(folder, "evolve", "level__a", config_runtime=np.arange(configs, dtype=np.int64) // 6 + 1)
    _collected(folder, "random", "gru__a")
    _collected(folder, "random", "measured__a", "cpu")
    taken, left_out = adopt(folder, sample, 8)
    assert sorted(taken) == [f"layout:tpu-estimate:{search} new__a" for search in ("evolve", "random")]
    assert left_out == {
        "layout:tpu-estimate:evolve level__a": "7 distinct labels",
        "layout:tpu-estimate:random gru__a": "its family is reserved",
        "layout:cpu:random measured__a": "not estimated by the TPU's compiler",
    }
    files = sorted(str(path.relative_to(sample)) for path in sample.rglob("*.npz"))
    assert files == [f"npz/layout/tpu-estimate/{search}/train/new__a.npz" for search in ("default", "random")]
    with np.load(sample / files[1]) as arrays, np.load(_FILE) as given:
        assert set(arrays) == set(given), "cycles of operations stay out"
    assert adopt(folder, sample, 8)[0] == [], "what is there stays"


def test_a_kernel_is_taken_once(tmp_path: Path) -> None:
    folder, sample = tmp_path / "collected", tmp_path / "sample"
    kernel = sorted(SAMPLE.glob("npz/tile/tpu-estimate/train/*.npz"))[0]
    names = ("one__a_0123456789ab", "two__a_0123456789ab", "gru__a_aaaaaaaaaaaa", "alexnet__a_bbbbbbbbbbbb")
    for name in names:
        place = folder / "npz" / "tile" / "tpu-estimate" / "train" / f"{name}.npz"
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(kernel.read_bytes())
    taken, left_out = adopt(folder, sample, 8)
    assert taken == [f"tile:tpu-estimate {names[0]}"]
    assert [*left_out.values()] == ["its family is reserved", "its family is reserved", "it is there"]


GRAPHS = {
    kind: [easy_graph(f"f{number}__{kind}", 9, number) for number in range(count)]
    for kind, count in (("untied", 8), ("tied", 3), ("large", 2))
}


@pytest.mark.parametrize(
    ("arm", "number"), [("untied", 8), ("tied", 3), ("large", 2), ("both", 11), ("all", 13), ("equal", 5)]
)
def test_what_an_arm_learns_from(arm: str, number: int) -> None:
    assert arm in ARMS
    assert len(trained_on(arm, GRAPHS, 0)) == number


def test_families_are_held_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def taus(arm: str, others: Graphs, held_out: Sequence[GraphRows], seed: int) -> list[float]:
        parts = [graph for some in others.values() for graph in some], held_out
        known, wanted = ({program_family(graph.name) for graph in part} for part in parts)
        assert known and not known & wanted
        return [float(graph.name[1:].partition("_")[0]) for graph in held_out]

    monkeypatch.setattr(tied_arms, "taus", taus)
    found = evaluated(["untied", "both-nocand"], GRAPHS, 0)
    for arm in ("untied", "both-nocand"):
        assert {kind: values.tolist() for kind, values in found[arm].items()} == {
            kind: [float(number) for number in range(len(graphs))] for kind, graphs in GRAPHS.items()
        }


def test_changes_of_an_arm() -> None:
    columns = [
        "groups__set__share",
        "candidates__hamming__mean",
        "rank__change_nodes_set__share",
        "x__y__log",
        "x__y__z",
    ]
    assert kept_columns(columns, []).tolist() == [0, 1, 2, 3, 4]
    assert kept_columns(columns, ["nogroups", "nocounts"]).tolist() == [1, 2, 4]
    assert kept_columns(columns, ["nocand"]).tolist() == [0, 3, 4]
    graphs = [easy_graph("a__a", 60, 3), easy_graph("b__a", 90, 4)]
    scores = {
        change: fitted(graphs, [change], 0).predict(graphs[1].matrix(), graphs[1].columns, None).tolist()
        for change in ("", "alike")
    }
    assert scores[""] != scores["alike"]


def test_correlations_are_spearman_s() -> None:
    graph = easy_graph("a__a", 9, 3)
    found = correlations([graph])[0]
    for values, value in zip(graph.matrix().T, found, strict=True):
        constant = len(np.unique(values)) == 1
        expected = np.nan if constant else spearmanr(values, graph.row_cost).statistic
        assert value == pytest.approx(expected, nan_ok=True)
    assert np.isfinite(found).any()


@pytest.mark.slow
def test_no_edited_booster_ends_the_process(tmp_path: Path) -> None:
    for model, counts in fuzz(tmp_path, 120).items():
        assert set(counts) <= {"refused", "ranked", "no numbers"}, (model, counts)
        assert counts["refused"] > 24, "most edits are seen"
