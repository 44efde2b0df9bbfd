"""The best of many trials must beat the defaults by more than luck."""

from types import SimpleNamespace

import optuna
import pytest

from xlarank.pipelines.tune import _chosen, _known


def trial(number, params, graphs):
    mean = sum(graphs.values()) / len(graphs)
    attributes = {"graphs": graphs, "mean": mean, "std": 0.0, "rounds": 25, "params": params}
    return optuna.trial.create_trial(
        params=params,
        distributions={
            name: optuna.distributions.CategoricalDistribution([value]) for name, value in params.items()
        },
        value=mean,
        user_attrs=attributes,
    )


def search(*scores, select="mean"):
    """A study of the defaults and then of challengers, with these scores per graph."""
    known = _known("lambdarank", "layout")
    study = optuna.create_study(direction="maximize")
    for number, graphs in enumerate(scores):
        params = known if number == 0 else {**known, "num_leaves": 30 + number}
        study.add_trial(trial(number, params, dict(zip("abcd", graphs, strict=True))))
    return SimpleNamespace(
        study=study,
        model="lambdarank",
        select=select,
        training=SimpleNamespace(kind="layout"),
    )


def test_before_any_trial_there_is_nothing_to_choose():
    assert _chosen(search()) is None


def test_the_defaults_alone_are_chosen():
    found, note = _chosen(search((0.1, 0.2, 0.3, 0.4)))
    assert (found.number, note) == (0, "")


def test_a_gain_on_every_graph_is_taken():
    # gains 0.1, 0.1, 0.1, 0.2: mean 0.125, standard error 0.05 / 2 = 0.025
    found, note = _chosen(search((0.1, 0.2, 0.3, 0.4), (0.2, 0.3, 0.4, 0.6)))
    assert (found.number, note) == (1, "")


def test_a_gain_on_one_graph_is_luck():
    # gains 0, 0, 0, 0.4: mean 0.1, standard error 0.2 / 2 = 0.1, so less than two of them
    found, note = _chosen(search((0.1, 0.2, 0.3, 0.4), (0.1, 0.2, 0.3, 0.8)))
    assert found.number == 0
    assert "0.100 ± 0.100" in note


@pytest.mark.parametrize("worse", [(0.0, 0.1, 0.2, 0.3), (0.1, 0.2, 0.3, 0.3)])
def test_what_is_worse_is_not_taken(worse):
    assert _chosen(search((0.1, 0.2, 0.3, 0.4), worse))[0].number == 0


def test_a_better_mean_with_a_wider_spread_is_not_more_robust():
    even, uneven = (0.5, 0.51, 0.5, 0.51), (0.5, 0.51, 0.52, 0.63)
    assert _chosen(search(uneven, even, select="robust"))[0].number == 0, "a gain of 0.01 is luck"
    found, note = _chosen(search(even, (0.1, 0.11, 0.9, 0.95), select="robust"))
    assert found.number == 0
    assert "only" in note
