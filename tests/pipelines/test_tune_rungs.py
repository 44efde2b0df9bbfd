"""Studies on rungs: who climbs on, and what stays as it was."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import optuna
import pytest
from optuna.trial import FrozenTrial, TrialState

from tests.pipelines.test_tune import run, states, study_folder
from tests.pipelines.trees import LAYOUT, TILE, build, write_tree
from xlarank.data.collection import Collection
from xlarank.data.files import write_json
from xlarank.data.workspace import Workspace
from xlarank.models.fit_settings import FitSettings
from xlarank.models.rankers.lambdarank import LambdaRank, LambdaRankParams
from xlarank.models.registry import DEFAULT
from xlarank.models.training_set import TrainingSet
from xlarank.models.validation.best_params import BestParams, load_best, params_for
from xlarank.models.validation.curves import Curves
from xlarank.models.validation.rungs import Rung, rungs_of
from xlarank.pipelines.study import rung_search
from xlarank.pipelines.study.first_points import tuned_elsewhere
from xlarank.pipelines.study.rung_search import RungPruner, rungs_mark, score_on_rungs

DEFAULTS: Collection = Collection.parse("layout:cpu:default")


def climber(score: Callable[[dict[str, Any]], float], seen: list[int]) -> Callable[..., Iterator[Curves]]:
    """A stand-in for `climb`: the same score on every rung; ``seen`` counts the rungs that were asked for."""

    def climb(
        rungs: Sequence[Rung], training: TrainingSet, folds: Any, ranker: Any, settings: FitSettings
    ) -> Iterator[Curves]:
        seen.append(0)
        for rung in rungs:
            seen[-1] += 1
            value = [{"score": score(ranker.params.values())}]
            yield Curves([rung.rounds], dict.fromkeys(training.data.names, value))

    return climb


def on_rungs(built: Path, trials: int, **options: Any) -> Any:
    """So many rounds that there are three rungs, of 10, 30 and 60."""
    return run(built, trials=trials, **{"collections": [LAYOUT], "rounds": 60, **options})[0]


# Optuna's halving ------------------------------------------------------------------------------------------


def climbed(study: optuna.Study, value: float, *, state: TrialState = TrialState.COMPLETE) -> bool:
    """Whether a trial of this value on the first rung may climb on."""
    trial = study.ask()
    trial.report(value, 1)
    pruned = trial.should_prune()
    study.tell(trial, value if state == TrialState.COMPLETE else None, state=state)
    return not pruned


def test_one_in_four_climbs_on() -> None:
    """The best of the first seven; from the eighth on (8 / 4) the two best."""
    study = optuna.create_study(direction="maximize", pruner=RungPruner())
    values = [0.5, 0.4, 0.6, 0.55, 0.3, 0.2, 0.58, 0.59, 0.1]
    assert [climbed(study, value) for value in values] == [
        True,
        False,
        True,
        False,
        False,
        False,
        False,
        True,
        False,
    ]


def test_a_trial_that_failed_is_nobodys_rival() -> None:
    """A killed process's trial is run again: its own earlier score must not keep it down, nor lift it."""
    study = optuna.create_study(direction="maximize", pruner=RungPruner())
    assert climbed(study, 0.5)
    assert climbed(study, 0.9, state=TrialState.FAIL)
    assert climbed(study, 0.6), "the best of those that count"


# A study ---------------------------------------------------------------------------------------------------


def test_only_the_best_do_all_the_work(built: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    worse = iter(range(100))
    monkeypatch.setattr(rung_search, "climb", climber(lambda _: -float(next(worse)), seen))
    result = on_rungs(built, 6)
    assert seen[0] == 3, "three rungs for so small a collection"
    assert seen[1:] == [1] * 5
    assert (result.trials, result.pruned) == (6, 5)
    assert states(journal_of(built)) == [TrialState.COMPLETE] + [TrialState.PRUNED] * 5
    assert result.params == LambdaRankParams.of("layout").values()
    assert on_rungs(built, 6).fresh == 0


def journal_of(built: Path) -> list[FrozenTrial]:
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend

    storage = JournalStorage(JournalFileBackend(str(study_folder(built, LAYOUT) / "journal.log")))
    names = [study.study_name for study in optuna.get_all_study_summaries(storage)]
    return optuna.load_study(study_name=next(name for name in names if "/rungs-" in name), storage=storage).trials


def test_the_defaults_are_never_given_up() -> None:
    """They are what the best trial is compared with."""
    made = LambdaRank(kind="layout")
    study = optuna.create_study(direction="maximize", pruner=RungPruner())
    assert climbed(study, 0.9)
    rungs = rungs_of(20)

    def climb(*_: Any) -> Iterator[Curves]:
        yield from (Curves([10], {"a": [{"score": 0.1}]}), Curves([20], {"a": [{"score": 0.2}]}))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rung_search, "climb", climb)
        trial = study.ask()
        nothing: Any = None
        curves = score_on_rungs(trial, rungs, nothing, [], made, FitSettings(20), "mean", to_the_top=True)
        assert curves.metrics == {"a": [{"score": 0.2}]}
        assert study.trials[-1].intermediate_values == pytest.approx({1: 0.1, 4: 0.2})
        with pytest.raises(optuna.TrialPruned):
            score_on_rungs(study.ask(), rungs, nothing, [], made, FitSettings(20), "mean", to_the_top=False)


def test_the_score_of_the_top_is_that_of_the_whole_search(built: Path) -> None:
    """The defaults are the first trial of both; each search is a study of its own."""
    rungs = on_rungs(built, 1)
    whole = on_rungs(built, 1, whole=True)
    assert (rungs.fresh, whole.fresh) == (1, 1)
    assert (rungs.mean, rungs.std, rungs.rounds) == (whole.mean, whole.std, whole.rounds)


def test_fewer_rounds_are_other_rungs() -> None:
    assert rungs_mark(rungs_of(300)) == "/rungs-10-50-150-300"
    assert rungs_mark(rungs_of(10)) == "", "one rung is no other study than ever"


@pytest.mark.slow
def test_an_interrupted_search_ends_as_an_undisturbed_one(tree: Path, tmp_path: Path) -> None:
    """The process was killed in a trial that had climbed to the second rung."""
    build(tree, tmp_path / "one")
    build(tree, tmp_path / "other")
    undisturbed = on_rungs(tmp_path / "one", 8, collections=[LAYOUT])
    calls = iter(range(1000))
    real = rung_search.climb

    def killed(*parts: Any) -> Iterator[Curves]:
        for curves in real(*parts):
            yield curves
            if next(calls) == 4:
                raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rung_search, "climb", killed)
        with pytest.raises(KeyboardInterrupt):
            on_rungs(tmp_path / "other", 8)
    again = on_rungs(tmp_path / "other", 8)
    assert (again.params, again.mean, again.rounds) == (undisturbed.params, undisturbed.mean, undisturbed.rounds)


# What is known from elsewhere ------------------------------------------------------------------------------


def best_of(workspace: Path, collection: Collection, **values: Any) -> None:
    params = {**LambdaRankParams.of(collection.kind).values(), **values}
    folder = Workspace(workspace).study(collection)
    folder.mkdir(parents=True, exist_ok=True)
    BestParams(DEFAULT, params, 25, 0.5, 0.1, "mean", {"g": 0.5}, 3, [["a"], ["b"]], "0").save(folder)


@pytest.fixture
def three(tmp_path: Path) -> Path:
    names = {"train": ("alpha__a", "beta__a", "gamma__a")}
    write_tree(tmp_path / "tree", {LAYOUT: names, str(DEFAULTS): names, TILE: {"train": ("conv__a", "dot__a")}})
    build(tmp_path / "tree", tmp_path / "work")
    return tmp_path / "work"


def test_the_best_of_other_collections_come_after_the_defaults(three: Path) -> None:
    best_of(three, DEFAULTS, learning_rate=0.123, num_leaves=9)
    best_of(three, Collection.parse(TILE), learning_rate=0.111)
    run(three, trials=3, collections=[LAYOUT])
    trials = trials_of(three, LAYOUT)
    assert [trial.params["learning_rate"] for trial in trials[:2]] == [0.05, 0.123]
    assert trials[1].params["num_leaves"] == 9
    assert trials[2].params["learning_rate"] not in (0.05, 0.123, 0.111), "tiles are another kind of graphs"


def trials_of(workspace: Path, collection: str) -> list[FrozenTrial]:
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend

    storage = JournalStorage(JournalFileBackend(str(study_folder(workspace, collection) / "journal.log")))
    (study,) = optuna.get_all_study_summaries(storage)
    return optuna.load_study(study_name=study.study_name, storage=storage).trials


def test_what_cannot_be_a_point_of_the_study_is_left_out(three: Path) -> None:
    work, layout = Workspace(three), Collection.parse(LAYOUT)
    assert tuned_elsewhere(work, layout, DEFAULT) == []
    best_of(three, DEFAULTS, learning_rate=7.0)
    assert tuned_elsewhere(work, layout, DEFAULT) == [], "outside the space"
    best_of(three, DEFAULTS)
    (point,) = tuned_elsewhere(work, layout, DEFAULT)
    assert point["num_leaves"] == params_for(work.study(DEFAULTS), DEFAULT, "layout")[0].values()["num_leaves"]
    assert "init_score_weight" not in point, "layouts' studies do not vary it"
    assert tuned_elsewhere(work, DEFAULTS, DEFAULT) == [], "a collection's own are no news to it"
    write_json(work.study(DEFAULTS) / f"best-{DEFAULT}.json", {"broken": True})
    assert tuned_elsewhere(work, layout, DEFAULT) == []
    assert load_best(work.study(layout), DEFAULT) is None
