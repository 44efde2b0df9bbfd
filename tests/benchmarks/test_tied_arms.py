"""Arms learn from what they are named after, and never from a family that they are judged on."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from scipy.stats import spearmanr

from benchmarks import tied_arms
from benchmarks.tied_arms import ARMS, Graphs, correlations, evaluated, fitted, kept_columns, trained_on
from tests.models.rows import easy_graph
from xlarank.data.family import program_family
from xlarank.features.rows import GraphRows

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
