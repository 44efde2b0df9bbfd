"""The adviser on costs that are known: single layouts with effects that add up."""

import numpy as np
import pytest

from tests.data.hlo.programs import instruction
from xlarank.data.hlo.candidates import candidate_rows, random_configurations
from xlarank.data.hlo.messages import HloModuleProto
from xlarank.pipelines.programs.adviser import Adviser
from xlarank.pipelines.programs.sources import graph_of

NODES, BUDGET = 12, 40


def chain():
    """Dots of the same shape, each on the result of the one before."""
    module = HloModuleProto(name="chain", entry_computation_id=1, entry_computation_name="main")
    main = module.computations.add(name="main", id=1)
    instruction(main, "parameter", (64, 64, 8), id=1)
    for number in range(NODES):
        dot = instruction(main, "dot", (64, 64, 8), (number + 1, number + 1), id=number + 2)
        dot.dot_dimension_numbers.lhs_contracting_dimensions.append(1)
    return graph_of(module, "chain")


def costs(effects, codes):
    """Time over the default's: the effects of the rows taken, multiplied."""
    return np.exp(effects[np.arange(effects.shape[0]), codes].sum(axis=1))


def effects_of(candidates, rng):
    """Much as labels of real programs have it: a third of layouts do nothing (of row-major ones half), few gain."""
    size = (candidates.nodes, int(candidates.choices.max()))
    gain, loss = -rng.uniform(0.02, 0.1, size), rng.exponential(0.35, size)
    kind = rng.random(size)
    effects = np.where(kind < 0.3, 0.0, np.where(kind < 0.315, gain, loss))
    natural = np.where(kind < 0.5, 0.0, np.where(kind < 0.6, gain, loss))
    for node, rows in enumerate(candidates.rows):
        choice = rows[:, :3].tolist().index([2, 1, 0])
        effects[node, choice] = natural[node, choice]
    effects[:, 0] = 0.0
    return effects


def search(seed, score=None):
    graph = chain()
    rng = np.random.default_rng(seed)
    candidates = candidate_rows(graph, rng)
    effects = effects_of(candidates, rng)
    adviser = Adviser(graph, candidates, None if score is None else score(effects), rng)
    best, asked = 1.0, []
    while len(asked) < BUDGET:
        codes = adviser.propose(4)
        found = costs(effects, codes)
        adviser.learn(codes, found)
        asked += codes.tolist()
        best = min(best, float(found.min()))
    drawn = random_configurations(candidates, BUDGET + 1, np.random.default_rng(seed))
    return best, float(costs(effects, drawn).min()), asked


@pytest.mark.slow
def test_it_finds_what_random_search_does_not():
    """Half as much again, where effects add up; half of the configurations are not the surrogate's."""
    found = [search(seed) for seed in range(8)]
    advised, drawn = (np.mean([np.log(one[at]) for one in found]) for at in (0, 1))
    assert advised < 1.5 * min(0.0, drawn)


def test_nothing_is_asked_twice_and_never_the_default():
    _, _, asked = search(0)
    assert len({tuple(code) for code in asked}) == len(asked)
    assert all(any(code) for code in asked)


@pytest.mark.slow
def test_a_ranker_that_knows_finds_the_gain_at_once():
    def score(effects):
        return lambda codes: np.log(costs(effects, codes))

    assert np.mean([search(seed, score)[0] for seed in range(3)]) < np.mean([search(seed)[0] for seed in range(3)])


def test_failures_are_learned_as_bad_and_do_not_break_it():
    graph = chain()
    rng = np.random.default_rng(0)
    adviser = Adviser(graph, candidate_rows(graph, rng), None, rng)
    codes = adviser.propose(4)
    adviser.learn(codes, np.full(4, np.inf))
    assert np.isfinite(adviser.surrogate.mean).all()
    assert len(adviser.propose(4)) == 4
