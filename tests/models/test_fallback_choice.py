"""The fallback that folds choose, on curves made by hand."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from xlarank.models.fallback import FALLBACKS, NEAR, OWN, Fallback
from xlarank.models.training_set import named
from xlarank.models.validation.curves import Curves
from xlarank.models.validation.fallback_choice import choose_fallback
from xlarank.models.validation.metrics import METRICS

#: ``(fallback, graph, stage) -> (score, tau)``.
Made = Callable[[Fallback, int, int], tuple[float, float]]


def curves(made: Made, *, graphs: int = 4, stages: int = 3, fallbacks: tuple[Fallback, ...] = FALLBACKS) -> Curves:
    def metrics(fallback: Fallback, graph: int, stage: int) -> dict[str, float]:
        score, tau = made(fallback, graph, stage)
        found = {**dict.fromkeys(METRICS, 0.0), "score": score, "tau": tau}
        return {named(fallback, name): value for name, value in found.items()} if fallback.weight else found

    def judged(graph: int, stage: int) -> dict[str, float]:
        both = [metrics(fallback, graph, stage) for fallback in (Fallback(), *fallbacks)]
        return {name: value for one in both for name, value in one.items()}

    return Curves(
        [25 * (stage + 1) for stage in range(stages)],
        {f"g{graph}": [judged(graph, stage) for stage in range(stages)] for graph in range(graphs)},
    )


def test_what_rescues_is_taken():
    best = Fallback(OWN, 0.2)
    choice = choose_fallback(curves(lambda fallback, graph, _: (0.9 if fallback == best else 0.5, 0.6)))
    assert choice.fallback == best
    assert (choice.alone, choice.scores["g0"]["score"]) == (0.5, 0.9)


def test_what_harms_is_left_out():
    choice = choose_fallback(curves(lambda fallback, graph, _: (0.9 - 0.3 * fallback.weight, 0.6)))
    assert choice.fallback == Fallback()
    assert choice.alone == choice.scores["g0"]["score"] == 0.9


def test_of_those_that_are_level_the_heaviest():
    level = {Fallback(), Fallback(OWN, 0.1), Fallback(NEAR, 0.2)}
    choice = choose_fallback(curves(lambda fallback, graph, _: (0.9 if fallback in level else 0.7, 0.6)))
    assert choice.fallback == Fallback(NEAR, 0.2)


def test_a_difference_is_level_where_graphs_disagree_by_as_much():
    """0.02 behind on the mean: of graphs that differ by -0.1 and +0.06, not of four that all lose 0.02."""
    own = Fallback(OWN, 0.5)

    def torn(fallback: Fallback, graph: int, stage: int) -> tuple[float, float]:
        return {Fallback(): 0.9, own: 0.8 if graph % 2 else 0.96}.get(fallback, 0.5), 0.6

    def sure(fallback: Fallback, graph: int, stage: int) -> tuple[float, float]:
        return {Fallback(): 0.9, own: 0.88}.get(fallback, 0.5), 0.6

    assert choose_fallback(curves(torn)).fallback == own
    assert choose_fallback(curves(sure)).fallback == Fallback()


def test_the_tau_must_not_suffer():
    choice = choose_fallback(curves(lambda fallback, graph, _: (0.9, 0.6 - 0.1 * fallback.weight)))
    assert choice.fallback.weight == 0.2, "0.01 and 0.02 behind are level, 0.05 is not"


def test_rounds_are_those_where_the_choice_scores_best():
    own = Fallback(OWN, 0.5)

    def made(fallback: Fallback, graph: int, stage: int) -> tuple[float, float]:
        if fallback == own:
            return (0.5, 0.5, 0.9, 0.9, 0.9)[stage], 0.6
        return (0.9, 0.9, 0.9, 0.5, 0.5)[stage] if not fallback.weight else 0.3, 0.6

    choice = choose_fallback(curves(made, stages=5))
    assert (choice.fallback, choice.stage) == (own, 3)
    assert choice.alone == 0.5


def test_without_fallbacks_the_best_score_decides():
    found = curves(lambda _, graph, stage: ((0.2, 0.8, 0.7)[stage], (0.9, 0.1, 0.1)[stage]), fallbacks=())
    choice = choose_fallback(found)
    assert choice.fallback == Fallback() and choice.stage == found.best_stage() == 2
    assert choice.alone == pytest.approx(0.7)
