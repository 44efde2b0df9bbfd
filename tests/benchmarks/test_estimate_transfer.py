"""The learning curve draws programs, not graphs, and never learns from what it judges."""

from __future__ import annotations

import pytest

from benchmarks import estimate_transfer
from benchmarks.estimate_transfer import out_of_fold, some_programs
from tests.models.rows import easy_graph
from xlarank.data.family import program_family
from xlarank.features.rows import GraphRows

GRAPHS = [easy_graph(f"f{number // 2}__{'ab'[number % 2]}", 9, number) for number in range(8)] + [
    easy_graph("f0__a", 9, 50)  # another search of the first
]


def test_both_searches_of_a_program_come_together() -> None:
    for seed in range(5):
        found = [graph.name for graph in some_programs(GRAPHS, 3, seed)]
        assert len(set(found)) == 3
        assert found.count("f0__a") in (0, 2)
    assert len(some_programs(GRAPHS, 99, 0)) == len(GRAPHS)


def test_families_are_held_out(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    def taus(learned: list[GraphRows], judged: list[GraphRows], seed: int, threads: int) -> list[float]:
        learned_families, judged_families = ({program_family(g.name) for g in part} for part in (learned, judged))
        assert learned_families and not learned_families & judged_families
        seen.extend(graph.name for graph in judged)
        return [0.5] * len(judged)

    monkeypatch.setattr(estimate_transfer, "taus", taus)
    assert out_of_fold(GRAPHS, 3, 0, 1) == [0.5] * len(GRAPHS)
    assert sorted(seen) == sorted(graph.name for graph in GRAPHS)
