"""What to compile next: thousands of configurations, ordered by a ranker and by what those compiled so far cost."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from xlarank.data.graph import LayoutGraph
from xlarank.data.hlo.candidates import Candidates, Codes, Score, breed, evolve, random_configurations
from xlarank.data.schema import MAX_RANK, NODE_COLUMN
from xlarank.models.search.indicators import Indicators, indicators
from xlarank.models.search.surrogate import Floats, Surrogate

#: Prior standard deviations of effects on the logarithm of the time: of this row on this node, of this minor-most
#: dimension on this node, and of both on all nodes of the same opcode and shape.
_SPREAD: Final = (0.1, 0.05, 0.05, 0.05)
#: What each layout that is set is thought to cost before anything was seen, and each that is row major. Of 547
#: labelled changes of a single layout those to another order cost 0.15 in the mean (the worst taken as 0.3) and
#: 1.5 % gained, those to row major 0.08 and 2.5 %; of 26 configurations of three row-major layouts 15 % gained, of
#: 198 of three others 1 %.
_PER_LAYOUT: Final = 0.1
_PER_ROW_MAJOR: Final = 0.02
#: What the ranker's last and first configuration are thought to cost, in the logarithm of the time. Only its order
#: is used: scores have no unit, and compare within one call alone.
_RANKED_LAST: Final = 0.3
_RANKED_FIRST: Final = -0.05
#: How much of what a layout is thought to cost is left to think where a ranker has spoken.
_BESIDE_RANKER: Final = 0.25
_NOISE: Final = 0.02
#: A program this much slower is as bad as any: the surrogate looks for small gains.
_WORST: Final = 0.3
_POOL: Final = 1500
_RANKED: Final = 500
_PINNED: Final = 400
#: One in so many is bred from the best, and one in so many drawn at random, whatever the surrogate thinks of them:
#: it adds effects up, many of those that it expects are none, and some gains need several layouts at once.
_SHARE: Final = 4
_DRAWN: Final = 4
_CHILDREN: Final = 400
_PARENTS: Final = 8
_COMBINED: Final = 8


class Adviser:
    """Proposes configurations and learns from their costs.

    ``score`` is a ranker's, lower is faster; without one, fewer layouts set are thought to be faster, and row-major
    ones than others. The compiler's own choice is never proposed: whoever asks has compiled it first.
    """

    def __init__(
        self, graph: LayoutGraph, candidates: Candidates, score: Score | None, rng: np.random.Generator
    ) -> None:
        self.candidates, self.score, self.rng = candidates, score, rng
        found = traits(graph, candidates)
        self.indicators: Indicators = indicators(found, _SPREAD)
        self.expected = [_expected(rows) for rows in candidates.rows]
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
        expected = self._expect(codes[fresh])
        few = count // _SHARE
        chosen = self.surrogate.batch(rows[fresh], count - 2 * few, bold=bold, expected=expected)
        found = codes[fresh[chosen]]
        if few:
            found = np.concatenate([found, self._bred(few, found)])
            found = np.concatenate([found, self._wild(few, found)])
        return found

    def _bred(self, count: int, chosen: Codes) -> Codes:
        """Children of the fastest configurations so far, as a genetic search has them."""
        parents = self.tried[np.argsort(self.cost, kind="stable")[:_PARENTS]]
        return breed(
            self.candidates, parents, count, self.rng, known=np.concatenate([self.tried, chosen]).astype(np.int32)
        )

    def _wild(self, count: int, chosen: Codes) -> Codes:
        """Random configurations."""
        drawn = random_configurations(self.candidates, 1 + _DRAWN * count, self.rng)[1:]
        known = {code.tobytes() for code in np.concatenate([self.tried, chosen])}
        return drawn[[code.tobytes() not in known for code in drawn]][:count]

    def learn(self, codes: Codes, cost: Floats) -> None:
        """Take in what configurations cost: time over that of the compiler's own choice, infinite for failures."""
        logarithm = np.log(np.clip(cost, 1e-3, None))
        self.tried = np.concatenate([self.tried, codes])
        self.cost = np.concatenate([self.cost, logarithm])
        self.surrogate.learn(self._rows(codes), np.minimum(logarithm, _WORST) - self._expect(codes))

    def _pool(self) -> Codes:
        default = self.tried[:1]
        parts = [self._single_changes(default[0]), self._kind_changes(default[0])]
        parts.append(breed(self.candidates, default, _POOL, self.rng))
        parts.append(self._pinned())
        if self.score is not None:
            parts.append(evolve(self.candidates, self.score, _RANKED, self.rng, generations=4))
        return np.unique(np.concatenate(parts), axis=0)

    def _pinned(self) -> Codes:
        """Some of the nodes row major: pairs, triples, ..., all; it keeps the compiler from handing layouts on."""
        natural = np.array([_row_major(rows) for rows in self.candidates.rows], np.int32)
        share = self.rng.choice([0.2, 0.4, 0.7, 1.0], (_PINNED, 1))
        return np.where(self.rng.random((_PINNED, len(natural))) < share, natural, np.int32(0)).astype(np.int32)

    def _expect(self, codes: Codes) -> Floats:
        """``(configs,)`` what is expected before anything was seen."""
        total = np.zeros(len(codes))
        for node, expected in enumerate(self.expected):
            total += expected[codes[:, node]]
        return total if self.score is None else _BESIDE_RANKER * total

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
        mean = self.surrogate.predict(self._rows(single))[0] + self._expect(single)
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
            judged = _by_order(score[1:], score[0])
        return np.column_stack([self.indicators.rows(codes), judged])


def _by_order(score: Floats, default: float) -> Floats:
    """Costs by place: none at the default's, evenly up to the last behind it and down to the first ahead of it.

    >>> _by_order(np.array([5.0, 2.0, 9.0, 1.0]), 3.0).round(3).tolist()
    [0.15, -0.025, 0.3, -0.05]
    """
    cost = np.zeros(len(score))
    for side, most in ((score > default, _RANKED_LAST), (score < default, _RANKED_FIRST)):
        place = np.unique(np.abs(score[side] - default), return_inverse=True)[1] + 1
        cost[side] = most * place / max(1, place.max(initial=1))
    return cost


def _row_major(rows: NDArray[np.int8]) -> int:
    """Which choice sets all dimensions of the output row major, 0 where none does."""
    for choice, row in enumerate(rows.tolist()):
        named = [entry for entry in row[:MAX_RANK] if entry >= 0]
        if named and named == list(range(len(named)))[::-1]:
            return choice
    return 0


def _expected(rows: NDArray[np.int8]) -> Floats:
    expected = np.full(len(rows), _PER_LAYOUT)
    expected[_row_major(rows)] = _PER_ROW_MAJOR
    expected[0] = 0.0
    return expected


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
