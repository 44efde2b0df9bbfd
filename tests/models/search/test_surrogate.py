"""The surrogate against the closed form, and what its batches ask for."""

import numpy as np
from numpy.testing import assert_allclose

from xlarank.models.search.indicators import indicators
from xlarank.models.search.surrogate import Surrogate


def test_learning_one_by_one_is_the_closed_form():
    """Posterior of weights with prior N(0, 1): covariance (I + X'X / s^2)^-1, mean covariance X'y / s^2."""
    rng = np.random.default_rng(0)
    rows, cost = rng.normal(size=(7, 5)), rng.normal(size=7)
    noise = 0.3
    model = Surrogate(5, noise=noise)
    model.learn(rows[:4], cost[:4])
    model.learn(rows[4:], cost[4:])
    covariance = np.linalg.inv(np.eye(5) + rows.T @ rows / noise**2)
    assert_allclose(model.covariance, covariance, atol=1e-10)
    assert_allclose(model.mean, covariance @ rows.T @ cost / noise**2, atol=1e-10)
    new = rng.normal(size=(3, 5))
    mean, spread = model.predict(new)
    assert_allclose(mean, new @ model.mean)
    assert_allclose(spread, [np.sqrt(one @ covariance @ one) for one in new])


def test_a_batch_does_not_ask_the_same_thing_twice():
    model = Surrogate(2, noise=0.01)
    rows = np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 0.9]])
    assert model.batch(rows, 2, bold=1.0) == [0, 2]  # the twin of row 0 has nothing left to tell
    assert model.batch(rows, 2, bold=1.0, expected=np.array([0.5, 0.0, 0.0])) == [1, 2]


def test_a_timid_batch_takes_what_is_known_to_be_fast():
    model = Surrogate(2, noise=0.01)
    model.learn(np.array([[1.0, 0.0]]), np.array([-0.2]))
    rows = np.array([[0.0, 1.0], [1.0, 0.0]])
    assert model.batch(rows, 1, bold=0.0) == [1]
    assert model.batch(rows, 1, bold=1.0) == [0]


def test_indicators_are_shared_by_what_has_the_same_trait():
    """Two nodes of one kind: their choice 1 shares the trait "k", each has its own beside it."""
    traits = [[[], ["a", "k"]], [[], ["b", "k"], ["c", "other"]]]
    found = indicators(traits, (2.0, 3.0))
    rows = found.rows(np.array([[0, 0], [1, 0], [1, 1], [0, 2]], np.int32))
    assert found.columns == 6  # none, a, b, c, k, other
    assert rows[0].tolist() == [0] * 6
    assert sorted(rows[1].tolist()) == [0, 0, 0, 0, 2, 3]
    assert sorted(rows[2].tolist()) == [0, 0, 0, 2, 2, 6]  # a, b, and k twice
    assert sorted(rows[3].tolist()) == [0, 0, 0, 0, 2, 3]
    assert not (rows[1] * rows[3]).any()
