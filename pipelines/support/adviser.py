"""What to compile next: thousands of configurations, ordered by a ranker and by what those compiled so far cost."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from xlarank.data.graph import LayoutGraph
from xlarank.data.hlo.candidates import Candidates, Codes, Score, breed, evolve
from xlarank.data.schema import MAX_RANK, NODE_COLUMN
from xlarank.models.search.indicators import Indicators, indicators
from xlarank.models.search.surrogate import Floats, Surrogate

#: Prior standard deviations of effects on the logarithm of the time: of this row on this node, of this minor-most
#: dimension on this node, and of both on all nodes of the same opcode and shape.
_SPREAD: Final = (0.1, 0.05, 0.05, 0.05)
#: What each layout that is set is thought to cost before anything was seen. Of 501 single changes with labels a
#: third changed nothing, half cost more than 6 %, one in fifty gained.
_PER_LAYOUT: Final = 0.1
#: How far one standard deviation of the ranker's score moves the expected logarithm of the time.
_PER_SCORE: Final = 0.04
_NOISE: Final = 0.02
#: A program this much slower is as bad as any: the surrogate looks for small gains.
_WORST: Final = 0.3
_POOL: Final = 1500
_RANKED: Final = 500
_CHILDREN: Final = 400
_PARENTS: Final = 8
_COMBINED: Final = 8


class Adviser:
    """Proposes configurations and learns from their costs.

    ``score`` is a ranker's, lower is faster; without one, fewer layouts set is thought to be faster. The compiler's
    own choice is never proposed: whoever asks has compiled it first.
    """

    def __init__(
        self, graph: LayoutGraph, candidates: Candidates, score: Score | None, rng: np.random.Generator
    ) -> None:
        self.candidates, self.score, self.rng = candidates, score, rng
        found = traits(graph, candidates)
        self.indicators: Indicators = indicators(found, _SPREAD)
        self.takers: dict[tuple[int, ...], list[tuple[int, int]]] = {}
        for node, choices in enumerate(found):
            for choice, (_, _, shared, _) in enumerate(choices[1:], 1):
                self.takers.setdefault(shared, []).append((node, choice))
        self.surrogate = Surrogate(self.indicators.columns + 1, noise=_NOISE)
        self.surrogate.mean[-1] = 1.0
        self.tried: Codes = np.zeros((1, candidates.nodes), np.int32)
        self.cost: Floats = np.zeros(1)
        self.pool = self._pool()
        self._judged = self._rows(self.pool)

    def propose(self, count: int, *, bold: float = 0.5) -> Codes:
        """``(configs, nodes)`` up to ``count`` configurations that were not tried, the most promising ones."""
        near = self._near()
        codes = np.concatenate([self.pool, near])
        rows = np.concatenate([self._judged, self._rows(near)])
        _, first = np.unique(np.concatenate([self.tried, codes]), axis=0, return_index=True)
        fresh = np.sort(first[first >= len(self.tried)]) - len(self.tried)
        if not len(fresh):
            return codes[:0]
        expected = _PER_LAYOUT * _layouts_set(codes[fresh])
        return codes[fresh[self.surrogate.batch(rows[fresh], count, bold=bold, expected=expected)]]

    def learn(self, codes: Codes, cost: Floats) -> None:
        """Take in what configurations cost: time over that of the compiler's own choice, infinite for failures."""
        logarithm = np.log(np.clip(cost, 1e-3, None))
        self.tried = np.concatenate([self.tried, codes])
        self.cost = np.concatenate([self.cost, logarithm])
        self.surrogate.learn(self._rows(codes), np.minimum(logarithm, _WORST) - _PER_LAYOUT * _layouts_set(codes))

    def _pool(self) -> Codes:
        default = self.tried[:1]
        parts = [self._single_changes(default[0]), self._kind_changes(default[0])]
        parts.append(breed(self.candidates, default, _POOL, self.rng))
        if self.score is not None:
            parts.append(evolve(self.candidates, self.score, _RANKED, self.rng, generations=4))
        return np.unique(np.concatenate(parts), axis=0)

    def _near(self) -> Codes:
        """Around what was found: the best with one change, children of the best, promising changes together."""
        order = np.lexsort([(self.tried > 0).sum(axis=1), self.cost])
        best = self.tried[order]
        children = breed(self.candidates, best[:_PARENTS], _CHILDREN, self.rng, known=self.tried)
        return np.concatenate(
            [self._single_changes(best[0]), self._kind_changes(best[0]), children, self._combined(best[0])]
        )

    def _single_changes(self, code: NDArray[np.int32]) -> Codes:
        """``code`` with one node changed, the compiler's choice for it included; at most a pool of them."""
        changes = [
            (node, choice)
            for node in self.candidates.free.tolist()
            for choice in range(int(self.candidates.choices[node]))
            if choice != code[node]
        ]
        kept = [changes[at] for at in self.rng.permutation(len(changes))[:_POOL]]
        codes = np.repeat(code[None], len(kept), axis=0)
        for row, (node, choice) in enumerate(kept):
            codes[row, node] = choice
        return codes

    def _kind_changes(self, code: NDArray[np.int32]) -> Codes:
        """``code`` with one row on all nodes of a kind that may take it: the layers of a network go together."""
        changed = []
        for taking in self.takers.values():
            if len(taking) > 1:
                further = code.copy()
                for node, choice in taking:
                    further[node] = choice
                changed.append(further)
        return np.array(changed, np.int32).reshape(len(changed), len(code))

    def _combined(self, code: NDArray[np.int32]) -> Codes:
        """``code`` with the most promising changes of several nodes at once, two of them, three, ..."""
        single = self._single_changes(code)
        if not len(single):
            return single
        mean = self.surrogate.predict(self._rows(single))[0] + _PER_LAYOUT * _layouts_set(single)
        combined, taken = [code], set[int]()
        for at in np.argsort(mean, kind="stable").tolist():
            node = int(np.flatnonzero(single[at] != code)[0])
            if node not in taken and len(taken) < _COMBINED:
                taken.add(node)
                further = combined[-1].copy()
                further[node] = single[at][node]
                combined.append(further)
        return np.array(combined, np.int32)

    def _rows(self, codes: Codes) -> Floats:
        """Indicators, then what the ranker thinks."""
        judged = np.zeros(len(codes))
        if self.score is not None and len(codes):
            score = np.asarray(self.score(np.concatenate([np.zeros_like(codes[:1]), codes])), np.float64)
            judged = (score[1:] - score[0]) / (score.std() or 1.0)
        return np.column_stack([self.indicators.rows(codes), _PER_SCORE * judged])


def _layouts_set(codes: Codes) -> Floats:
    count: Floats = (codes > 0).sum(axis=1).astype(np.float64)
    return count


def traits(graph: LayoutGraph, candidates: Candidates) -> list[list[list[tuple[int, ...]]]]:
    """What each choice of each node shares with others, in the order of `_SPREAD`.

    The node with its row; the node with the row's minor-most dimension; the same two for all nodes of the same
    opcode and shape, such as the layers of one network.
    """
    first = NODE_COLUMN["shape_dimensions_0"]
    found = []
    for position, (node, rows) in enumerate(zip(graph.configurable.tolist(), candidates.rows, strict=True)):
        shape = tuple(int(size) for size in graph.node_feat[node, first : first + MAX_RANK])
        kind = (int(graph.opcode[node]), *shape)
        found.append(
            [
                [(position, *row), (position, row[0]), (-1, *kind, *row), (-1, *kind, row[0])]
                for row in (tuple(int(entry) for entry in one) for one in rows)
            ]
        )
    return found
