"""Votes of pairs, against the arithmetic by hand and against loops."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from xlarank.models.rankers import pair_vote
from xlarank.models.rankers.pair_vote import Chance, vote_shares


def told(table: np.ndarray) -> Chance:
    """Chances from a table ``(stages, rows, rows)``; the only column of a row is its number."""

    def chance(first: np.ndarray, second: np.ndarray) -> np.ndarray:
        return table[:, first[:, 0].astype(int)][:, :, second[:, 0].astype(int)]

    return chance


def rows(count: int) -> np.ndarray:
    return np.arange(count, dtype=np.float32)[:, None]


#: v(0, 1) = (0.9 + 1 - 0.2) / 2 = 0.85, v(0, 2) = (0.6 + 1 - 0.3) / 2 = 0.65, v(1, 2) = (0.7 + 1 - 0.4) / 2 = 0.65
TABLE = np.array([[[0.5, 0.9, 0.6], [0.2, 0.5, 0.7], [0.3, 0.4, 0.5]]])


def test_all_pairs_vote() -> None:
    # against 0: 1 - (0.5 + 0.85 + 0.65) / 3; 1: 1 - (0.15 + 0.5 + 0.65) / 3; 2: 1 - (0.35 + 0.35 + 0.5) / 3
    assert vote_shares(told(TABLE), rows(3))[0] == pytest.approx([1 / 3, 1.7 / 3, 0.6])


def test_some_vote() -> None:
    # only 1 and 2: 1 - (0.85 + 0.65) / 2; 1 - (0.5 + 0.65) / 2; 1 - (0.35 + 0.5) / 2
    assert vote_shares(told(TABLE), rows(3), rows(3)[1:])[0] == pytest.approx([0.25, 0.425, 0.575])


def test_alone_it_is_a_tie() -> None:
    assert vote_shares(told(np.array([[[0.9]]])), rows(1)).tolist() == [[0.5]]


@given(
    st.integers(1, 2),
    st.integers(1, 12),
    st.integers(0, 2**32 - 1),
    st.sampled_from([1, 7, 1 << 13]),
    st.booleans(),
)
def test_votes_are_those_of_loops(stages: int, count: int, seed: int, batch: int, everyone: bool) -> None:
    rng = np.random.default_rng(seed)
    table = rng.random((stages, count, count))
    voters = np.arange(count) if everyone else np.sort(rng.choice(count, rng.integers(1, count + 1), replace=False))
    expected = np.zeros((stages, count))
    for stage in range(stages):
        for one in range(count):
            votes = [(table[stage, one, v] + 1 - table[stage, v, one]) / 2 for v in voters]
            expected[stage, one] = 1 - sum(votes) / len(votes)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pair_vote, "_BATCH", batch)
        found = vote_shares(told(table), rows(count), None if everyone else rows(count)[voters])
    np.testing.assert_allclose(found, expected, atol=1e-12)
    if everyone:
        np.testing.assert_allclose(found.mean(axis=1), 0.5, atol=1e-12, err_msg="votes are complementary")


def test_each_pair_is_asked_for_once_where_all_vote(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int, int]] = []

    def chance(first: np.ndarray, second: np.ndarray) -> np.ndarray:
        asked.extend((int(a), int(b)) for a in first[:, 0] for b in second[:, 0])
        return np.full((1, len(first), len(second)), 0.5)

    monkeypatch.setattr(pair_vote, "_BATCH", 20)
    vote_shares(chance, rows(9))
    assert sorted(asked) == [(a, b) for a in range(9) for b in range(9)]
