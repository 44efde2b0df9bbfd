"""Arms learn from what they are named after, and never from a family that they are judged on."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from scipy.stats import spearmanr

from benchmarks import tied_arms
from benchmarks.tied_arms import ARMS, correlations, judged, taught, without_candidates
from tests.models.rows import easy_graph
from xlarank.data.family import program_family
from xlarank.features.rows import GraphRows

GRAPHS = {
    kind: [easy_graph(f"f{number}__{kind}", 9, number) for number in range(count)]
    for kind, count in (("untied", 8), ("tied", 3), ("large", 2))
}


@pytest.mark.parametrize(
    ("arm", "number"), [("untied", 8), ("tied", 3), ("large", 2), ("both", 11), ("all", 13), ("equal", 3)]
)
def test_what_an_arm_learns_from(arm: str, number: int) -> None:
    assert arm in ARMS
    assert len(taught(arm, GRAPHS, 0)) == number


def test_families_are_held_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def taus(learned: Sequence[GraphRows], asked: Sequence[GraphRows], seed: int, threads: int) -> list[float]:
        known, wanted = ({program_family(graph.name) for graph in part} for part in (learned, asked))
        assert known and not known & wanted
        return [float(graph.name[1:].partition("_")[0]) for graph in asked]

    monkeypatch.setattr(tied_arms, "taus", taus)
    found = judged(["untied", "both-nocand"], GRAPHS, 0, 1)
    for arm in ("untied", "both-nocand"):
        assert {kind: values.tolist() for kind, values in found[arm].items()} == {
            kind: [float(number) for number in range(len(graphs))] for kind, graphs in GRAPHS.items()
        }


def test_correlations_are_spearman_s() -> None:
    graph = easy_graph("a__a", 9, 3)
    found = correlations([graph])[0]
    for values, value in zip(graph.matrix().T, found, strict=True):
        constant = len(np.unique(values)) == 1
        expected = np.nan if constant else spearmanr(values, graph.row_cost).statistic
        assert value == pytest.approx(expected, nan_ok=True)
    assert np.isfinite(found).any()
    assert without_candidates(graph).columns == graph.columns
