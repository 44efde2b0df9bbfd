"""Studies: where they stop, how they go on, and what they may not do."""

from __future__ import annotations

import csv
import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import optuna
import pytest
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import FrozenTrial, TrialState

from tests.graphs import save_npz
from tests.pipelines.trees import LAYOUT, TILE, Listener, build, graph_path, tile_graph, write_tree
from xlarank.data.collection import Collection
from xlarank.data.errors import CollectionError, ModelError, WorkspaceError, XlarankError
from xlarank.data.workspace import Workspace
from xlarank.features.block import Tier
from xlarank.features.recipe import FeatureSettings
from xlarank.models.base import Ranker
from xlarank.models.fit_settings import FitSettings
from xlarank.models.rankers.lambdarank import LambdaRank, LambdaRankParams
from xlarank.models.ranking_data import RankingData
from xlarank.models.registry import DEFAULT, RANKERS, ranker_class
from xlarank.models.training_set import TrainingSet
from xlarank.models.validation.best_params import load_best, params_for
from xlarank.models.validation.curves import Curves, join_curves, validate_fold
from xlarank.models.validation.folds import family_folds
from xlarank.pipelines.support.training_sets import read_training_set
from xlarank.pipelines.tune import TuneResult, tune

ROOT = Path(__file__).parents[2]
#: What judges one fold; replaced where a test is about the search alone.
FOLD = "xlarank.models.validation.curves.validate_fold"


def run(workspace: Path, trials: int = 2, **options: Any) -> list[TuneResult]:
    """Few rounds and one thread; the tile collection alone unless told otherwise."""
    chosen = {"collections": [TILE], "rounds": 10, "threads": 1, **options}
    return tune(Workspace(workspace), trials=trials, **chosen)


def study_folder(workspace: Path, collection: str = TILE) -> Path:
    return Workspace(workspace).study(Collection.parse(collection))


def trials_at(storage: Any) -> list[FrozenTrial]:
    """Trials of the only study in a storage."""
    (study,) = optuna.get_all_study_summaries(storage)
    return optuna.load_study(study_name=study.study_name, storage=storage).trials


def journal(workspace: Path) -> list[FrozenTrial]:
    return trials_at(JournalStorage(JournalFileBackend(str(study_folder(workspace) / "journal.log"))))


def states(trials: list[FrozenTrial]) -> list[TrialState]:
    return [trial.state for trial in trials]


def made_up(score: Callable[[dict[str, Any]], float], rounds: int = 10) -> Callable[..., Curves]:
    """A stand-in for `validate_fold` whose score depends on the parameters alone."""

    def validate(training: TrainingSet, held: list[int], ranker: Ranker[Any], settings: FitSettings) -> Curves:
        value = [{"score": score(ranker.params.values())}]
        return Curves([rounds], {training.data.names[g]: value for g in held})

    return validate


# What a study leaves --------------------------------------------------------------------------------------


def test_the_best_parameters_lie_where_train_finds_them(built: Path) -> None:
    results = run(built, trials=2, collections=[])
    assert [(result.collection, result.trials, result.fresh) for result in results] == [
        (LAYOUT, 2, 2),
        (TILE, 2, 2),
    ]
    for result in results:
        folder, kind = study_folder(built, result.collection), Collection.parse(result.collection).kind
        best = load_best(folder, DEFAULT)
        assert best is not None
        params, tuned = params_for(folder, "lambdarank", kind)
        assert (params.values(), tuned) == (best.params, True)
        assert (best.params, best.rounds, best.mean, best.std) == (
            result.params,
            result.rounds,
            result.mean,
            result.std,
        )
        assert best.model == "lambdarank"
        assert sum(best.graphs.values()) / len(best.graphs) == pytest.approx(best.mean)
        assert set(best.params) == set(LambdaRankParams.declared())
        assert 1 <= best.rounds <= 10


def test_all_trials_stand_in_a_table(built: Path) -> None:
    run(built, trials=3)
    with (study_folder(built) / "trials-lambdarank.csv").open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert [row["number"] for row in rows] == ["0", "1", "2"]
    best = load_best(study_folder(built), DEFAULT)
    assert best is not None
    assert float(rows[best.trial]["value"]) == best.mean
    assert all(row["state"] == "COMPLETE" for row in rows)
    assert float(rows[0]["params_learning_rate"]) == LambdaRankParams.of("tile").learning_rate


def test_a_picture_of_each_study_lies_among_the_reports(built: Path) -> None:
    (result,) = run(built, trials=2)
    (robust,) = run(built, trials=1, select="robust")
    reports = Workspace(built).reports()
    assert result.picture == reports / "tune-tile-cpu-lambdarank.svg"
    assert robust.picture == reports / "tune-tile-cpu-lambdarank-robust.svg"
    text = result.picture.read_text()
    assert "1 - slowdown@5, mean over graphs" in text
    assert text.count("<circle") == 3, "two trials and the ring"
    assert "mean less a quarter of the spread" in robust.picture.read_text()


def test_the_score_is_the_mean_over_graphs_at_the_best_rounds_of_unseen_families(built: Path) -> None:
    """The first trial is the defaults: their score is computed here once more, fold by fold."""
    run(built, trials=1, collections=[LAYOUT], rounds=30)
    best = load_best(study_folder(built, LAYOUT), DEFAULT)
    assert best is not None
    training = read_training_set(Workspace(built), Collection.parse(LAYOUT))
    families = training.data.families
    folds = family_folds(families, 5)
    assert best.folds == [sorted({families[g] for g in held}) for held in folds]
    assert sorted(name for fold in best.folds for name in fold) == ["alpha", "beta", "gamma"], "no family is split"
    ranker, settings = LambdaRank(kind="layout"), FitSettings(30, threads=1)
    curves = join_curves([validate_fold(training, held, ranker, settings) for held in folds])
    stage = curves.best_stage()
    assert best.rounds == curves.rounds[stage]
    assert best.mean == pytest.approx(curves.column("score")[:, stage].mean())
    assert best.graphs == {name: values["score"] for name, values in curves.at(stage).items()}


def test_no_trial_learns_from_a_held_out_family(built: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    held_out: list[set[str]] = []
    learned: list[set[str]] = []
    fit = LambdaRank.fit

    def spy_fit(self: LambdaRank, data: RankingData, settings: FitSettings) -> LambdaRank:
        learned.append(set(data.families))
        return fit(self, data, settings)

    def spy(training: TrainingSet, held: list[int], *rest: Any) -> Curves:
        held_out.append({training.data.families[g] for g in held})
        return validate_fold(training, held, *rest)

    monkeypatch.setattr(LambdaRank, "fit", spy_fit)
    monkeypatch.setattr(FOLD, spy)
    run(built, trials=2)
    assert len(learned) == len(held_out) == 6, "three families, two trials"
    for seen, held in zip(learned, held_out, strict=True):
        assert seen.isdisjoint(held)
        assert seen | held == {"conv", "dot", "tanh"}


def test_same_seed_same_best(built: Path, shared_built: Path, tmp_path: Path) -> None:
    other = Path(shutil.copytree(shared_built, tmp_path / "other"))
    run(built, trials=3)
    run(other, trials=3)
    assert (study_folder(built) / "best-lambdarank.json").read_bytes() == (
        study_folder(other) / "best-lambdarank.json"
    ).read_bytes()


def test_the_best_is_never_below_the_defaults(built: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything but the defaults is bad here, and a search of four trials would hardly meet them."""
    defaults = LambdaRankParams.of("tile").values()
    monkeypatch.setattr(FOLD, made_up(lambda params: float(params == defaults)))
    (result,) = run(built, trials=4)
    assert (result.mean, result.params) == (1.0, defaults)
    assert len({json.dumps(trial.params, sort_keys=True) for trial in journal(built)}) == 4


def test_the_rounds_of_the_best_trial_are_kept(built: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FOLD, made_up(lambda params: 0.5, rounds=7))
    (result,) = run(built, trials=1)
    assert result.rounds == 7


# Going on -------------------------------------------------------------------------------------------------


def test_a_second_call_goes_on_and_a_satisfied_one_does_nothing(
    built: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(built, trials=2)
    (more,) = run(built, trials=4)
    assert (more.trials, more.fresh) == (4, 2)
    trials = journal(built)
    assert states(trials) == [TrialState.COMPLETE] * 4
    assert len({json.dumps(trial.params, sort_keys=True) for trial in trials}) == 4, "nothing is tried twice"

    def never(*rest: Any, **named: Any) -> Curves:
        raise AssertionError("a satisfied call must not train")

    monkeypatch.setattr(FOLD, never)
    best = (study_folder(built) / "best-lambdarank.json").read_bytes()
    for wanted in (4, 3):
        (nothing,) = run(built, trials=wanted)
        assert (nothing.trials, nothing.fresh) == (4, 0)
        assert nothing.params == more.params
    assert (study_folder(built) / "best-lambdarank.json").read_bytes() == best
    assert len(journal(built)) == 4


def test_the_best_parameters_come_back_if_their_file_is_lost(built: Path) -> None:
    run(built, trials=2)
    path = study_folder(built) / "best-lambdarank.json"
    before = path.read_bytes()
    path.unlink()
    run(built, trials=2)
    assert path.read_bytes() == before


def test_an_interrupted_study_keeps_its_finished_trials(built: Path) -> None:
    listener = Listener(stop_at=2)
    with pytest.raises(KeyboardInterrupt):
        run(built, trials=4, progress=listener)
    assert listener.ended == 1
    assert load_best(study_folder(built), DEFAULT) is not None, "what is known so far is written"
    first = [trial.params for trial in journal(built) if trial.state == TrialState.COMPLETE]
    assert len(first) == 2
    (result,) = run(built, trials=4)
    assert (result.trials, result.fresh) == (4, 2)
    complete = [trial.params for trial in journal(built) if trial.state == TrialState.COMPLETE]
    assert complete[:2] == first


def test_defaults_that_were_interrupted_are_tried_by_the_next_call(
    built: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C in the very first trial, which is the defaults: the promise holds for the study as a whole."""
    defaults = LambdaRankParams.of("tile").values()

    def stopped(*rest: Any, **named: Any) -> Curves:
        raise KeyboardInterrupt

    monkeypatch.setattr(FOLD, stopped)
    with pytest.raises(KeyboardInterrupt):
        run(built, trials=3)
    assert load_best(study_folder(built), DEFAULT) is None
    monkeypatch.setattr(FOLD, made_up(lambda params: float(params == defaults)))
    (result,) = run(built, trials=3)
    assert result.trials == 3
    assert (result.mean, result.params) == (1.0, defaults)


def test_the_point_of_an_interrupted_trial_is_tried_by_the_next_call(
    built: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C, or SIGTERM of a cluster, within the second trial."""
    seen: list[float] = []

    def stopped(params: dict[str, Any]) -> float:
        seen.append(params["learning_rate"])
        if len(seen) == 4:  # three folds of the first
            raise KeyboardInterrupt
        return 0.5

    monkeypatch.setattr(FOLD, made_up(stopped))
    with pytest.raises(KeyboardInterrupt):
        run(built, trials=3)
    run(built, trials=3)
    assert seen[4:7] == [seen[3]] * 3
    assert states(journal(built)) == [
        TrialState.COMPLETE, TrialState.FAIL, TrialState.COMPLETE, TrialState.COMPLETE,
    ]  # fmt: skip


def test_a_failed_trial_does_not_count(built: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def fails_once(*rest: Any, **named: Any) -> Curves:
        calls.append(rest)
        if len(calls) == 1:
            raise MemoryError("no")
        return made_up(lambda params: params["learning_rate"])(*rest, **named)

    monkeypatch.setattr(FOLD, fails_once)
    with pytest.raises(MemoryError):
        run(built, trials=2)
    (result,) = run(built, trials=2)
    assert (result.trials, result.fresh) == (2, 2)


def test_bad_trials_are_pruned_and_count_as_finished(built: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Worse and worse: from the sixth trial on, each is below the median after the first of three folds."""
    calls = count()

    def worse(training: TrainingSet, held: list[int], *rest: Any) -> Curves:
        score = -float(next(calls))
        return Curves([10], {training.data.names[g]: [{"score": score}] for g in held})

    monkeypatch.setattr(FOLD, worse)
    (result,) = run(built, trials=9)
    assert (result.trials, result.fresh, result.pruned) == (9, 9, 4)
    assert states(journal(built)) == [TrialState.COMPLETE] * 5 + [TrialState.PRUNED] * 4
    assert result.params == LambdaRankParams.of("tile").values(), "the first trial was the best"
    assert run(built, trials=9)[0].fresh == 0


def test_other_rows_are_another_study(tree: Path, built: Path) -> None:
    """Scores on other columns or other graphs cannot be compared."""
    run(built, trials=2)
    settings = FeatureSettings(Tier.FAST, candidates=False)
    assert build(tree, built, collections=[TILE], settings=settings).splits[0].built == 4
    (other_columns,) = run(built, trials=2)
    assert (other_columns.trials, other_columns.fresh) == (2, 2)
    save_npz(graph_path(tree, TILE, "train", "dot__b"), tile_graph(50))
    build(tree, built, collections=[TILE], settings=settings)
    (other_graphs,) = run(built, trials=1)
    assert (other_graphs.trials, other_graphs.fresh) == (1, 1)


def test_graphs_measured_again_are_another_study(tree: Path, built: Path) -> None:
    """As many graphs and rows of the same names, with other runtimes."""
    run(built, trials=1)
    save_npz(graph_path(tree, TILE, "train", "dot__a"), tile_graph(50))
    assert build(tree, built, collections=[TILE]).splits[0].built == 1
    (again,) = run(built, trials=1)
    assert (again.trials, again.fresh) == (1, 1)


def test_another_way_to_choose_is_another_study(built: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def uneven(training: TrainingSet, held: list[int], *rest: Any) -> Curves:
        return Curves([10], {training.data.names[g]: [{"score": float(g)}] for g in held})

    monkeypatch.setattr(FOLD, uneven)
    run(built, trials=2)
    (robust,) = run(built, trials=1, select="robust")
    assert (robust.trials, robust.fresh) == (1, 1)
    assert run(built, trials=2)[0].fresh == 0
    best = load_best(study_folder(built), DEFAULT)
    assert best is not None
    storage = JournalStorage(JournalFileBackend(str(study_folder(built) / "journal.log")))
    studies = optuna.get_all_study_summaries(storage)
    values = {study.study_name.split("/")[2]: study.best_trial and study.best_trial.value for study in studies}
    assert values == pytest.approx({"mean": 1.5, "robust": 1.5 - 0.25 * best.std})
    assert (best.select, best.mean) == ("mean", 1.5)


def test_progress_counts_the_trials_still_to_do(built: Path) -> None:
    run(built, trials=1)
    listener = Listener()
    run(built, trials=3, progress=listener)
    assert listener.jobs == [(f"tuning {TILE}", 2)]
    assert len(listener.notes) == 2
    assert all(TILE in note and "best" in note for note in listener.notes)
    assert listener.ended == 1


# Time ------------------------------------------------------------------------------------------------------


def test_a_timeout_ends_the_search_early(built: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def slow(*rest: Any, **named: Any) -> Curves:
        time.sleep(0.05)
        return made_up(lambda params: 0.5)(*rest, **named)

    monkeypatch.setattr(FOLD, slow)
    (result,) = run(built, trials=500, timeout=0.3)
    assert 1 <= result.trials < 20
    assert load_best(study_folder(built), DEFAULT) is not None


def test_a_timeout_before_the_first_trial_is_not_a_crash(built: Path) -> None:
    """No time at all: there is no best trial to tell of, and that has to be said; the study can still go on."""
    with pytest.raises(XlarankError, match=r"trial|timeout"):
        run(built, trials=2, timeout=0.0)
    (result,) = run(built, trials=2)
    assert result.trials == 2


# Storage ---------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_storage_url_holds_the_studies_of_all_collections(built: Path, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'studies.db'}"
    results = run(built, trials=1, collections=[], storage=url)
    assert [result.fresh for result in results] == [1, 1]
    assert not list(built.rglob("journal.log")), "the study is in the database alone"
    assert len(optuna.get_all_study_summaries(url)) == 2
    again = run(built, trials=2, collections=[], storage=url)
    assert [(result.trials, result.fresh) for result in again] == [(2, 1), (2, 1)]
    assert load_best(study_folder(built), DEFAULT) is not None


@pytest.mark.parametrize(
    "url",
    ["nonsense", "nonsense://", "sqlite:///{here}/no/such/study.db", "mysql://nobody@localhost:1/none", "sqlite"],
)
def test_a_bad_storage_url_is_one_clear_line(built: Path, tmp_path: Path, url: str) -> None:
    with pytest.raises(XlarankError, match=r"(?s)storage cannot be opened .*check --storage") as caught:
        run(built, storage=url.format(here=tmp_path))
    assert len(str(caught.value).splitlines()) == 1


def test_a_damaged_journal_is_a_clear_error(built: Path) -> None:
    run(built, trials=1)
    path = study_folder(built) / "journal.log"
    path.write_text("{ no journal\n" + path.read_text())
    with pytest.raises(XlarankError, match="cannot be opened"):
        run(built, trials=2)


def test_a_journal_whose_last_line_was_cut_by_a_kill_goes_on(built: Path) -> None:
    run(built, trials=2)
    path = study_folder(built) / "journal.log"
    path.write_bytes(path.read_bytes()[:-9])
    (result,) = run(built, trials=4)
    assert result.trials == 4
    assert run(built, trials=4)[0].fresh == 0


def test_a_file_in_place_of_the_studies(built: Path) -> None:
    (built / "studies").write_text("in the way")
    with pytest.raises(WorkspaceError, match=r"cannot write the study at .*another --workspace"):
        run(built)


@pytest.mark.slow
@pytest.mark.parametrize("where", ["journal", "sqlite"])
def test_two_processes_at_once_finish_one_study(built: Path, tmp_path: Path, where: str) -> None:
    """Each runs some of the trials, none is run twice, and the study holds as many as were asked for."""
    storage = ["--storage", f"sqlite:///{tmp_path / 'study.db'}"] if where == "sqlite" else []
    command = [
        sys.executable, str(ROOT / "run.py"), "tune", "--trials", "6", "--rounds", "3", "--threads", "1",
        "--collection", TILE, "--workspace", str(built), *storage,
    ]  # fmt: skip
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    processes = [
        subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        for _ in range(2)
    ]
    try:
        outputs = [process.communicate(timeout=100)[0] for process in processes]
    finally:
        for process in processes:
            process.kill()
    for process, output in zip(processes, outputs, strict=True):
        assert process.returncode == 0, output
        assert "Traceback" not in output
    trials = trials_at(storage[1]) if storage else journal(built)
    assert states(trials) == [TrialState.COMPLETE] * 6
    assert len({json.dumps(trial.params, sort_keys=True) for trial in trials}) == 6, "nothing is tried twice"
    best = load_best(study_folder(built), DEFAULT)
    assert best is not None
    assert best.mean <= max(float(trial.values[0]) for trial in trials if trial.values)
    assert run(built, trials=6, rounds=3, storage=storage[1] if storage else None)[0].fresh == 0


def running(built: Path, process: str, **trial: Any) -> None:
    """Leave a trial that says it runs, of a process."""
    storage = JournalStorage(JournalFileBackend(str(study_folder(built) / "journal.log")))
    (summary,) = optuna.get_all_study_summaries(storage)
    left = optuna.create_trial(state=TrialState.RUNNING, user_attrs={"process": process}, **trial)
    optuna.load_study(study_name=summary.study_name, storage=storage).add_trial(left)


def test_the_trial_of_a_killed_process_is_made_up_for(built: Path) -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    run(built, trials=1)
    running(built, f"{socket.gethostname()}:{gone.pid}")
    (result,) = run(built, trials=3)
    assert (result.trials, result.fresh) == (3, 2)


def test_the_point_of_a_killed_process_is_tried(built: Path) -> None:
    """It was drawn and counted as drawn: without it the search has a hole."""
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    run(built, trials=1)
    first = trials_of(built)[0]
    point = {**first.params, "learning_rate": 0.123}
    running(
        built, f"{socket.gethostname()}:{gone.pid}", params=point, distributions=first.distributions,
    )  # fmt: skip
    run(built, trials=2)
    left = trials_of(built)
    assert [trial.state for trial in left if trial.params == point] == [TrialState.FAIL, TrialState.COMPLETE]
    assert not any(trial.state == TrialState.RUNNING for trial in left)
    run(built, trials=3)
    assert sum(trial.params == point for trial in trials_of(built)) == 2, "once is enough"


def trials_of(built: Path) -> list[optuna.trial.FrozenTrial]:
    storage = JournalStorage(JournalFileBackend(str(study_folder(built) / "journal.log")))
    (summary,) = optuna.get_all_study_summaries(storage)
    return optuna.load_study(study_name=summary.study_name, storage=storage).trials


def test_the_trials_of_other_processes_are_waited_for(built: Path) -> None:
    """The last trial is another process's: this one neither runs one too many nor returns before it is over."""
    run(built, trials=2)
    other = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        running(built, f"{socket.gethostname()}:{other.pid}")
        (result,) = run(built, trials=3, timeout=0.5)
        assert (result.trials, result.fresh) == (2, 0)
        assert result.seconds >= 0.5
    finally:
        other.communicate(b"\n", timeout=30)
    (result,) = run(built, trials=3)
    assert (result.trials, result.fresh) == (3, 1), "that process is gone, its trial was never finished"


# What cannot be tuned --------------------------------------------------------------------------------------


@pytest.fixture
def with_lonely(tmp_path: Path) -> Path:
    """A workspace whose tile collection has one family in train, its layouts three."""
    tree = {
        LAYOUT: {"train": ("alpha__a", "beta__a", "gamma__a")},
        TILE: {"train": ("conv__a", "conv__b", "conv_train__c")},
    }
    write_tree(tmp_path / "lonely", tree)
    build(tmp_path / "lonely", tmp_path / "work")
    return tmp_path / "work"


def test_one_family_cannot_be_tuned(with_lonely: Path) -> None:
    with pytest.raises(CollectionError, match=rf"{TILE} has one program family \(conv\)"):
        run(with_lonely, collections=[TILE])
    layout, tile = run(with_lonely, collections=[])
    assert (layout.collection, layout.trials, layout.skipped) == (LAYOUT, 2, "")
    assert (tile.collection, tile.trials, tile.params) == (TILE, 0, None)
    assert "one program family (conv)" in tile.skipped
    assert not study_folder(with_lonely, TILE).exists()


def test_nothing_to_tune_at_all_is_an_error(tmp_path: Path) -> None:
    write_tree(tmp_path / "tree", {TILE: {"train": ("conv__a",)}, LAYOUT: {"valid": ("alpha__a",)}})
    build(tmp_path / "tree", tmp_path / "work")
    with pytest.raises(CollectionError, match=rf"{LAYOUT} has no train split .*; {TILE} has one program family"):
        run(tmp_path / "work", collections=[])


@pytest.mark.parametrize("model", sorted(set(RANKERS) - {DEFAULT}))
def test_every_ranker_can_be_tuned(built: Path, model: str) -> None:
    run(built, model=model)
    best = load_best(study_folder(built), model)
    assert best is not None
    assert best.model == model
    params, tuned = params_for(study_folder(built), model, "tile")
    assert tuned
    assert type(params) is ranker_class(model).params_class


def test_each_ranker_keeps_its_own_best(built: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FOLD, made_up(lambda params: params["learning_rate"]))
    run(built)
    before = (study_folder(built) / "best-lambdarank.json").read_bytes()
    run(built, model="ranknet")
    assert (study_folder(built) / "best-lambdarank.json").read_bytes() == before
    names = {path.name for path in study_folder(built).iterdir()}
    assert names >= {"best-ranknet.json", "trials-lambdarank.csv", "trials-ranknet.csv"}


def test_an_ensemble_is_tuned_with_its_members_own_parameters(built: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And members of other parameters are another study: its scores cannot be compared."""
    seen: list[float] = []

    def members(params: dict[str, Any]) -> float:
        seen.append(params["members"]["ranknet"]["learning_rate"])
        return 0.5

    monkeypatch.setattr(FOLD, made_up(members))
    run(built, trials=1, model="ensemble")
    with monkeypatch.context() as patch:
        patch.setattr(FOLD, made_up(lambda params: 0.25))
        run(built, trials=1, model="ranknet")
    path = study_folder(built) / "best-ranknet.json"
    path.write_text(path.read_text().replace('"learning_rate": 0.07', '"learning_rate": 0.125'))
    (again,) = run(built, trials=1, model="ensemble")
    assert (again.trials, again.fresh) == (1, 1)
    assert set(seen[:3]) == {0.07}, "three folds"
    assert set(seen[3:]) == {0.125}
    assert again.params is not None
    assert again.params["members"]["ranknet"]["learning_rate"] == 0.125


def test_bad_requests(built: Path, tmp_path: Path) -> None:
    with pytest.raises(XlarankError, match="--trials is 0; expected a whole number from 1"):
        run(built, trials=0)
    with pytest.raises(ModelError, match="'forest' is not a model"):
        run(built, model="forest")
    with pytest.raises(ModelError, match="select is 'median'; expected mean, robust"):
        run(built, select="median")
    with pytest.raises(CollectionError, match="did you mean tile:cpu"):
        run(built, collections=["tile:cpv"])
    with pytest.raises(CollectionError, match="holds no collections"):
        run(tmp_path / "empty")
    assert not (built / "studies").exists()
