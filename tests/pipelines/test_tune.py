"""Studies: what they leave and choose; storages that processes share, kills, locks, servers and
passwords.
"""

import csv
import json
import os
import re
import shutil
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from unittest import mock
from unittest.mock import Mock

import optuna
import pytest
from optuna.trial import TrialState

from tests.graphs import save_npz
from tests.pipelines.trees import (
    LAYOUT,
    TILE,
    TILES,
    Listener,
    build,
    edit_json,
    graph_path,
    tile_graph,
    train_models,
    write_tree,
)
from xlarank.data.collection import SAMPLE, Collection
from xlarank.data.errors import CollectionError, ModelError, WorkspaceError, XlarankError
from xlarank.data.workspace import Workspace
from xlarank.models.model import Model
from xlarank.models.rankers import DEFAULT, params_of
from xlarank.models.training_data import FitSettings
from xlarank.models.tuned import load_best, params_for
from xlarank.models.validation.folds import Curves, FoldPlan, climb, rungs_of
from xlarank.pipelines.training.fit_cost import study_seconds
from xlarank.pipelines.training.objective import RESULT, Objective, choose
from xlarank.pipelines.training.studies import FINISHED, StudyOptions, open_storage
from xlarank.pipelines.training.training_sets import StoredTrainingSet, read_training_set
from xlarank.pipelines.tune import tune

DEFAULTS = params_of("lambdarank", "tile")
#: Function that scores a trial; tests of the search alone replace it.
CLIMB = "xlarank.pipelines.training.objective.climb"


def made_up(score):
    """Return a stand-in for `climb` whose score depends on the parameters alone, not on the rung or
    the graph.
    """

    def climb(rungs, data, folds, model, settings, fallback):
        for rounds in rungs:
            value = {"score": score(dict(model.params))}
            yield Curves([rounds], {name: [value] for name in data.names})

    return climb


def run(workspace, trials=2, rounds=10, **options):
    """Tune with few rounds and one thread; by default the tile collection alone."""
    chosen = {"collections": [TILE], "fit": FitSettings(rounds, threads=1), **options}
    return tune(Workspace(workspace), trials=trials, **chosen)


def folder(workspace, collection=TILE):
    return Workspace(workspace).study(Collection.parse(collection))


def trials_of(workspace, storage=None, collection=TILE):
    """Return the trials of the only study of a collection."""
    with open_storage(StudyOptions(storage), folder(workspace, collection)) as opened:
        (name,) = optuna.get_all_study_names(opened)
        return optuna.load_study(study_name=name, storage=opened).trials


def states(workspace, collection=TILE):
    """Return the first letters of states: complete, pruned, failed, running, waiting."""
    return "".join(trial.state.name[0] for trial in trials_of(workspace, None, collection))


@pytest.fixture(autouse=True)
def _no_pictures(request, monkeypatch):
    if "pictures" not in request.node.name:
        monkeypatch.setattr("xlarank.pipelines.tune.draw_study", lambda *_: [])


@pytest.fixture
def by_learning_rate(monkeypatch):
    monkeypatch.setattr(CLIMB, made_up(lambda params: params["learning_rate"]))


def test_trials_of_any_seed_have_the_same_rows(built, by_learning_rate, monkeypatch):
    sampled = Mock(wraps=StoredTrainingSet.sampled)
    monkeypatch.setattr(StoredTrainingSet, "sampled", lambda *args: sampled(*args))
    for seed in (0, 5):
        run(built, 2 + seed, fit=FitSettings(10, seed, 1))
    assert {call.args[2] for call in sampled.call_args_list} == {0}


@pytest.mark.slow
def test_a_study_in_two_calls_leaves_what_one_does_and_pictures(
    built, shared_built, tmp_path, by_learning_rate
):
    """Same seed, same trials and files; a call with nothing to do trains nothing, and brings lost
    files back.
    """
    other = shutil.copytree(shared_built, tmp_path / "other")
    run(other, trials=11)
    layout, tile = run(built, trials=2, collections=[])
    (more,) = run(built, trials=11)
    points = [trial.params for trial in trials_of(built)]
    assert points == [trial.params for trial in trials_of(other)]
    assert len({json.dumps(point) for point in points}) == 11, "nothing is tried twice"
    path = folder(built) / "best-lambdarank.json"
    before = path.read_bytes()
    assert before == (folder(other) / path.name).read_bytes()
    path.unlink()
    (nothing,) = run(built, trials=3)
    assert (nothing.trials, nothing.fresh, path.read_bytes()) == (11, 0, before)
    counts = [(result.collection, result.trials, result.fresh) for result in (layout, tile, more)]
    assert counts == [(LAYOUT, 2, 2), (TILE, 2, 2), (TILE, 11, 9)]
    for result in (layout, more):
        place = folder(built, result.collection)
        best = load_best(place, DEFAULT)
        kind = Collection.parse(result.collection).kind
        params, tuned = params_for(place, DEFAULT, kind)
        assert (params, tuned) == (best.params, best.params != params_of(DEFAULT, kind))
        shown = (result.params, result.rounds, result.mean, result.std)
        assert (best.params, best.rounds, best.mean, best.std) == shown
        with (place / "trials-lambdarank.csv").open(newline="") as stream:
            assert [row["state"] for row in csv.DictReader(stream)] == ["COMPLETE"] * result.trials
        name = f"tune-{result.collection.replace(':', '-')}-lambdarank.svg"
        assert result.pictures[0].name == name
        picture = result.pictures[0].read_text()
        assert picture.startswith("<svg") and f"{result.collection}, lambdarank" in picture
        assert "defaults ± standard error over graphs" in picture
    assert len(layout.pictures) == 1 and "learning_rate" in more.pictures[1].read_text()


def test_the_score_is_the_mean_over_graphs_at_the_best_rounds_of_unseen_families(built):
    """The first trial is the defaults: their score is computed here once more."""
    run(built, trials=1, collections=[LAYOUT], rounds=30)
    best = load_best(folder(built, LAYOUT), DEFAULT)
    training = read_training_set(Workspace(built), Collection.parse(LAYOUT))
    plan = FoldPlan.of(training.data, 5)
    families = [{training.data.families[g] for g in fold.held} for fold in plan.folds]
    assert best.folds == [*map(sorted, families)]
    names = [name for fold in best.folds for name in fold]
    assert sorted(names) == ["alpha", "beta", "gamma"], "no family is split"
    model = Model.of("lambdarank", "layout")
    settings = FitSettings(30, threads=1)
    *_, curves = climb(rungs_of(30), training.data, plan.folds, model, settings)
    assert best.rounds == curves.rounds[curves.best_stage()]
    mean = curves.column("score")[:, curves.best_stage()].mean()
    assert best.mean == pytest.approx(mean, abs=0.05)


def test_an_interrupted_study_keeps_its_best_and_repeats_the_trial(built, monkeypatch):
    monkeypatch.setattr(CLIMB, mock.Mock(side_effect=MemoryError))
    with pytest.raises(MemoryError):
        run(built, trials=4)
    assert load_best(folder(built), DEFAULT) is None
    monkeypatch.setattr(CLIMB, made_up(lambda params: float(params == DEFAULTS)))
    listener = Listener(stop_at=2)
    with pytest.raises(KeyboardInterrupt):
        run(built, trials=4, progress=listener)
    assert listener.ended == 1 and load_best(folder(built), DEFAULT) is not None
    (result,) = run(built, trials=4)
    assert (result.trials, result.fresh, states(built)) == (4, 2, "FCCCC")
    shown = (result.mean, result.params, result.tuned)
    assert shown == (1.0, DEFAULTS, False), "the best is never below the defaults"


def test_poor_trials_stop_on_the_first_rung_but_not_the_defaults(built, monkeypatch):
    """The first trial does all the work, worse ones the first of three rungs; defaults that come
    late do all.
    """
    seen = []

    def worse(rungs, data, *_):
        seen.append(0)
        for rounds in rungs:
            seen[-1] += 1
            yield Curves([rounds], {name: [{"score": -float(len(seen))}] for name in data.names})

    monkeypatch.setattr(CLIMB, worse)
    (result,) = run(built, trials=6, rounds=60)
    assert seen == [3, 1, 1, 1, 1, 1]
    assert (result.trials, result.pruned, result.params) == (6, 5, DEFAULTS)
    assert run(built, trials=6, rounds=60)[0].fresh == 0, "a pruned trial is finished"
    training = read_training_set(Workspace(built), Collection.parse(TILE))
    plan = FoldPlan.of(training.data, 5)
    objective = Objective(training, training.data, plan, DEFAULT, {}, FitSettings(60), "mean")
    pruner = optuna.pruners.SuccessiveHalvingPruner(min_resource=1, reduction_factor=4)
    study = optuna.create_study(direction="maximize", pruner=pruner)
    study.optimize(objective, n_trials=4)
    study.enqueue_trial(objective.defaults)
    study.optimize(objective, n_trials=1)
    assert seen[6:] == [3, 1, 1, 1, 3] and study.trials[-1].state == TrialState.COMPLETE


def test_the_bar_shows_the_score_of_the_table(built, monkeypatch):
    """The best trial beats the defaults by luck alone, so they stay: the bar must not show the best
    one's score.
    """

    def lucky(rungs, data, folds, model, *_):
        tuned = model.params != DEFAULTS
        luck = [0.4 * (tuned and n == 0) for n in range(data.groups)]
        yield Curves(rungs, {g: [{"score": 0.5 + luck[n]}] for n, g in enumerate(data.names)})

    monkeypatch.setattr(CLIMB, lucky)
    run(built, trials=1)
    listener = Listener()
    (result,) = run(built, trials=3, progress=listener)
    assert "the defaults stay" in result.note and result.mean == 0.5
    assert listener.jobs == [(f"tuning {TILE}", 2)]
    assert listener.notes == [f"{TILE} out-of-fold score {result.mean:.3f} ± {result.std:.3f}"] * 2


def test_a_timeout_ends_the_search_and_bad_requests_are_refused(built, monkeypatch):
    monkeypatch.setattr(CLIMB, made_up(lambda params: time.sleep(0.02) or 0.5))
    with pytest.raises(ModelError, match="select is 'median'; expected mean, robust"):
        StudyOptions(select="median")
    with pytest.raises(XlarankError, match="`trials` is 0; expected a whole number from 1"):
        run(built, trials=0)
    with pytest.raises(XlarankError, match=r"no trial .* was finished; .*`timeout`"):
        run(built, timeout=0.0)
    (result,) = run(built, trials=500, timeout=1.0)
    assert 1 <= result.trials <= 50
    monkeypatch.setattr("xlarank.pipelines.tune.LAP", 1)  # on a busy machine, each gets its turn
    layout, tile = run(built, trials=500, timeout=2.0, collections=[])
    assert layout.fresh > 0 and tile.fresh > 0 and layout.fresh + tile.fresh <= 100


def test_collections_take_turns_and_an_interruption_shows_what_is_done(built, monkeypatch):
    defaults = [DEFAULTS, params_of(DEFAULT, "layout")]
    monkeypatch.setattr(CLIMB, made_up(lambda params: 0.05 if params in defaults else 0.5))
    monkeypatch.setattr("xlarank.pipelines.tune.LAP", 2)
    lines = []
    with pytest.raises(KeyboardInterrupt):
        run(built, 6, collections=[], progress=Listener(stop_at=5), report=lines.append)
    assert [states(built, name) for name in (LAYOUT, TILE)] == ["CCC", "CC"]
    space = r"searched for layouts and tiles: learning_rate 0.02 to 0.2, .*labels rank \| log"
    assert re.match(space, lines[0])
    assert re.fullmatch(rf"{LAYOUT}: 6 trials on 110 rows, about \d+ s", lines[1])
    first = rf"collection 1 of 2, {LAYOUT}: 0 of 6 trials done; about \d+ s left for all"
    assert re.fullmatch(first, lines[3])
    *_, layout, tile = lines
    lead = r"\(defaults 0\.050, difference \+0\.450 ± .*\)"
    best = rf"best out-of-fold score 0\.500 {lead} with learning_rate=0\.\d+, num_l.*"
    assert re.fullmatch(rf"{LAYOUT}: 3 of 6 trials done, {best}: rerun to continue", layout)
    assert re.fullmatch(rf"{TILE}: 2 of 6 trials done, .*: rerun to continue", tile)
    listener = Listener()
    results = run(built, 6, collections=[], progress=listener)
    assert [(result.trials, result.fresh) for result in results] == [(6, 3), (6, 4)]
    assert listener.jobs == [("tuning 2 collections", 7)]


def test_the_forecast_counts_the_rounds_of_all_rungs():
    seconds = study_seconds(lambda rows, rounds: rows * (0.5 + 0.01 * rounds), 100, 30, [10, 50])
    # 100 rows x (0.5 + 50 x 0.01 s); x (0.5 + (10 + 40 / 4) x 0.01 s); 30 rows x (0.5 + 0.5 s)
    assert [seconds(done, 3) for done in range(4)] == pytest.approx([270, 170, 100, 0])


def test_too_little_time_is_told_before_the_first_trial(built, by_learning_rate, monkeypatch):
    slow = "xlarank.pipelines.training.objective.time_fits"
    monkeypatch.setattr(slow, lambda *_: lambda rows, rounds: 10.0 * rows)
    lines: list[str] = []
    (result,) = run(built, 2, timeout=600.0, report=lines.append)
    assert re.match("all trials take about .*, the time is 10 min.*: pass fewer `tri", lines[2])
    assert result.trials == 2 and result.expected_seconds > 600


@pytest.mark.parametrize("max_rows", [0, 300])
def test_the_score_is_that_of_train(tmp_path, max_rows):
    """With the same rows, folds and fallback, though trials have fewer rows and folds."""
    folder_of = tmp_path / "tree/npz/tile/cpu/train"
    folder_of.mkdir(parents=True)
    for path in (SAMPLE / "npz/tile/cpu/train").glob("*.npz"):
        (folder_of / path.name).symlink_to(path)
    work = tmp_path / "work"
    build(tmp_path / "tree", work)
    options = StudyOptions(max_rows=max_rows)
    (result,) = run(work, 2, study=options, rounds=30)
    (trained,) = train_models(work, rounds=30, collections=[TILE], model=DEFAULT)
    assert trained.chosen_by == "10 folds by kind"
    assert result.mean == pytest.approx(trained.folds["score"]["mean"], abs=1e-12)
    assert "not of train" not in result.note
    training = read_training_set(Workspace(work), TILES)
    sample = training.sampled(max_rows, 0)
    if max_rows:
        assert 250 < len(sample.cost) <= max_rows + sample.groups
        assert all(0 in part.ids for part in sample.parts), "the compiler's default is kept"
        stopped = run(work, 500, study=StudyOptions(max_rows=200), rounds=20, timeout=2.0)[0]
        sampled = r"the score is that of \d+ of 1,920 rows, 5 folds, not of train"
        assert re.search(sampled, stopped.note)


def test_one_family_cannot_be_tuned(tmp_path):
    names = ("conv__a", "conv__b", "conv_train__c")
    write_tree(tmp_path / "tree", {LAYOUT: {"valid": ("alpha__a",)}, TILE: {"train": names}})
    build(tmp_path / "tree", tmp_path / "work")
    with pytest.raises(CollectionError, match=rf"{TILE} has one program family \(conv\)"):
        run(tmp_path / "work")
    message = rf"{LAYOUT} has no train split .*; {TILE} has one program family"
    with pytest.raises(CollectionError, match=message):
        run(tmp_path / "work", collections=[])


def test_an_ensemble_is_tuned_with_its_members_own_parameters(built, monkeypatch):
    score = mock.Mock(return_value=0.5)
    monkeypatch.setattr(CLIMB, made_up(score))
    run(built, trials=1, model="ensemble")
    run(built, trials=1, model="ranknet")
    path = folder(built) / "best-ranknet.json"
    params = json.loads(path.read_text())["params"]
    edit_json(path, params=params | {"learning_rate": 0.125})
    assert run(built, trials=1, model="ensemble")[0].fresh == 1
    calls = [call.args[0] for call in score.call_args_list if "members" in call.args[0]]
    members = [params["members"]["ranknet"] for params in calls]
    assert [member["learning_rate"] for member in members] == [params["learning_rate"], 0.125]


def test_the_best_must_beat_the_defaults_by_more_than_luck():
    leaves = {"leaves": optuna.distributions.IntDistribution(0, 1)}
    for best, select, chosen in (
        # gains 0.1, 0.1, 0.1, 0.2: mean 0.125, standard error 0.025
        ((0.2, 0.3, 0.4, 0.6), "mean", 1),
        ((0.1, 0.2, 0.3, 0.8), "mean", 0),  # one gain of 0.4: mean 0.1, standard error 0.1
        ((0.1, 0.2, 0.3, 0.3), "mean", 0),
        ((0.1, 0.3, 0.5, 0.5), "robust", 0),  # a clearly better mean, but a wider spread
    ):
        study = optuna.create_study(direction="maximize")
        objective = SimpleNamespace(select=select, defaults={"leaves": 0})
        assert choose(study, objective) == (None, "")
        for number, scores in enumerate([(0.1, 0.2, 0.3, 0.4), best]):
            result = {RESULT: {"graphs": dict(zip("abcd", scores, strict=True))}}
            params = {"leaves": number}
            value = sum(scores) / 4
            options = {"params": params, "distributions": leaves, "user_attrs": result}
            trial = optuna.create_trial(value=value, **options)
            study.add_trial(trial)
        trial, note = choose(study, objective)
        assert trial.number == chosen
        assert ("the defaults stay" in note) is (study.best_trial.number != chosen)


ROOT = Path(__file__).parents[2]
TRIALS = 6


def storages_of(now):
    """Return a parametrization with one kind of storage now and the others before a release."""
    others = [name for name in ("own", "postgresql", "sqlite", "journal") if name != now]
    marked = [pytest.param(name, marks=pytest.mark.exhaustive) for name in others]
    return pytest.mark.parametrize("storage", [now, *marked], indirect=True)


@pytest.fixture
def storage(request, tmp_path):
    """The address of an empty storage; None for the workspace's own."""
    if request.param == "postgresql":
        server = request.getfixturevalue("postgres_server")
        return server.address(request.getfixturevalue("database"))
    addresses = {"sqlite": f"sqlite:///{tmp_path}/study.db", "journal": f"journal:{tmp_path}/s.log"}
    return addresses.get(request.param)


def start(workspace, storage, seconds):
    """Start a process that tunes: a trial takes so many seconds, prints a line and scores its
    learning rate.
    """
    command = [sys.executable, "-m", __name__, str(workspace), storage or "", str(seconds)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    return subprocess.Popen(command, cwd=ROOT, **pipes)


def points(workspace, storage, *states):
    trials = trials_of(workspace, storage)
    over = (trial.params for trial in trials if trial.state in states)
    return Counter(json.dumps(params, sort_keys=True) for params in over)


def test_an_entry_that_another_process_left_unfinished_costs_no_trial(tmp_path):
    path = tmp_path / "journal.log"
    with open_storage(StudyOptions(f"journal:{path}"), tmp_path) as storage:
        study = optuna.create_study(storage=storage)
        for _ in range(2):
            study.optimize(lambda trial: trial.suggest_float("x", 0, 1), n_trials=1)
            with path.open("a") as file:
                file.write('{"op_code": 4, "wor')
        assert [trial.state for trial in study.trials] == [TrialState.COMPLETE] * 2


@pytest.mark.slow
@storages_of("postgresql")
def test_processes_share_a_study(built, storage, by_learning_rate):
    """Together they run as many trials as were asked for, none twice, and then there is nothing
    left to do.
    """
    processes = [start(built, storage, 0.3) for _ in range(2)]
    outputs = [process.communicate(timeout=200)[0] for process in processes]
    assert [process.returncode for process in processes] == [0, 0], outputs
    # both had some
    assert all("trial" in output and "Traceback" not in output for output in outputs)
    assert [*points(built, storage, *FINISHED).values()] == [1] * TRIALS
    assert run(built, TRIALS, study=StudyOptions(storage))[0].fresh == 0


@pytest.mark.slow
@storages_of("own")
def test_a_killed_process_is_made_up_for(built, storage, by_learning_rate, monkeypatch):
    """Its point is run again: on the same machine at once, from another one after a time without
    heartbeats.
    """
    process = start(built, storage, 60 if storage else 0.2)
    for _ in range(1 if storage else 3):
        assert process.stdout.readline() == "trial\n"
    process.kill()
    process.communicate()
    if storage and storage.startswith("postgresql"):
        monkeypatch.setattr("socket.gethostname", lambda: "elsewhere")
        monkeypatch.setattr("xlarank.pipelines.training.studies.GRACE", 1)
        time.sleep(1.5)
    (result,) = run(built, TRIALS, study=StudyOptions(storage))
    over = points(built, storage, *FINISHED)
    lost = points(built, storage, TrialState.FAIL)
    assert [*over.values()] == [1] * TRIALS and result.trials == TRIALS
    assert sum(lost.values()) == 1 and set(lost) <= set(over)
    assert not points(built, storage, TrialState.RUNNING, TrialState.WAITING)


def test_a_point_at_which_processes_are_lost_again_and_again_is_given_up(built, monkeypatch):
    """Its rows may be too large for the memory; the study goes on without it."""
    calls = []

    def killed(params):
        calls.append(params["learning_rate"])
        if len(calls) > 1 and calls[-1] == calls[1]:
            raise SystemExit  # leaves the trial as a SIGKILL would
        return 0.5

    monkeypatch.setattr(CLIMB, made_up(killed))
    for _ in range(4):
        with pytest.raises(SystemExit):
            run(built, 3)
    run(built, 3)
    assert calls[1:5] == [calls[1]] * 4 and calls[1] not in calls[5:]
    assert states(built) == "CFFFFCC"


@pytest.mark.slow
def test_a_lock_left_by_a_kill_and_bad_journals(built, tmp_path, by_learning_rate, monkeypatch):
    """A link would have any file of the user's truncated after its last line, a pipe be waited for
    without end.
    """
    run(built, 2)
    path = folder(built) / "journal.log"
    path.write_bytes(path.read_bytes()[:-9])
    path.with_name("journal.log.lock").touch()
    monkeypatch.setattr("xlarank.pipelines.training.studies.LOCK_GRACE", 3)
    search = threading.Thread(target=run, args=(built, 4), daemon=True)
    search.start()
    search.join(60)
    assert not search.is_alive() and states(built).count("C") == 4
    path.write_text("{ no journal\n" + path.read_text())
    with pytest.raises(XlarankError, match=r"study storage .*journal\.log cannot be used"):
        run(built, 5)
    victim = tmp_path / "victim"
    victim.write_text("no end of line")
    for make in (lambda: path.symlink_to(victim), lambda: os.mkfifo(path)):
        path.unlink()
        make()
        with pytest.raises(WorkspaceError, match=r"study storage .*journal\.log cannot be used"):
            run(built)
    with pytest.raises(WorkspaceError, match=r"study storage .*victim cannot be used"):
        run(built, study=StudyOptions(f"journal:{victim}"))
    assert victim.read_text() == "no end of line"
    shutil.rmtree(built / "studies")
    (built / "studies").write_text("in the way")
    with pytest.raises(WorkspaceError, match=r"cannot be used .*another `workspace`"):
        run(built)


@pytest.mark.slow
def test_unusable_addresses_are_refused_without_their_password(built, tmp_path):
    (tmp_path / "file").write_text("")
    for address, why in (
        ("nonsense", "is not an address"),
        (
            f"sqlite:///{tmp_path}/no/such/study.db",
            "cannot be used .*unable to open.*check `storage`",
        ),
        ("journal:", "expected .* journal:PATH"),
        (f"journal:{tmp_path}/file/study.log", "study storage .*/file/study.log cannot be used"),
        ("postgresql+nodriver://host/db", "cannot be used .*nodriver"),
        ("postgresql://me:s3@cret@host/db", "write the @ of a password as %40"),
        ("postgresql://me:s3cret@host:port/db", "is not an address"),
        ("postgresql://me:s3cret@localhost:1/db", "cannot be used .*refused"),
    ):
        with pytest.raises(XlarankError, match=why) as caught:
            run(built, study=StudyOptions(address))
        assert "cret" not in str(caught.value) and len(str(caught.value).splitlines()) == 1


@pytest.mark.slow
def test_a_worker_joins_only_a_study_of_its_own_rows_and_settings(
    tree, built, tmp_path, by_learning_rate
):
    for own in (None, f"sqlite:///{tmp_path}/study.db"):
        with pytest.raises(XlarankError, match=r"`worker` cannot share .*journal:PATH"):
            StudyOptions(own, worker=True)
    worker = StudyOptions(f"journal:{tmp_path}/study.log", worker=True)
    run(built, 1, study=worker)
    with pytest.raises(XlarankError, match=r"cannot join the study tile:cpu/.*: other `rounds`;"):
        run(built, 2, rounds=20, study=worker)
    save_npz(graph_path(tree, TILE, "train", "dot__a"), tile_graph(50))
    build(tree, tmp_path / "other", collections=[TILE])
    message = r"cannot join the study .*: other graphs, rows or runtimes;"
    with pytest.raises(XlarankError, match=message):
        run(tmp_path / "other", 2, study=worker)
    assert run(built, 2, study=worker)[0].fresh == 1
    for other in ({"rounds": 20}, {"study": StudyOptions(worker.storage, select="robust")}):
        study = {"study": StudyOptions(worker.storage), **other}
        assert run(built, 1, **study)[0].fresh == 1, "another study"
    save_npz(graph_path(tree, TILE, "train", "dot__a"), tile_graph(51))
    build(tree, built, collections=[TILE])
    assert run(built, 1, study=StudyOptions(worker.storage))[0].fresh == 1, "graphs measured again"


@pytest.mark.slow
def test_a_server_that_goes_away(built, postgres_server, database, monkeypatch):
    """Between two trials it may; within one it is an error in one line, and the study goes on when
    it is back.
    """
    options = StudyOptions(postgres_server.address(database), worker=True)
    calls = []

    def away(params):
        calls.append(0)
        if len(calls) in (2, 4):
            postgres_server.stop()
        if len(calls) == 2:
            postgres_server.start()
        return float(params["learning_rate"])

    monkeypatch.setattr(CLIMB, made_up(away))
    message = r"\*\*\*.*cannot be used .*run the same command again"
    with pytest.raises(XlarankError, match=message) as caught:
        run(built, study=options, trials=TRIALS)
    postgres_server.start()
    assert "s3cret" not in str(caught.value) and len(calls) == 4
    assert run(built, study=options, trials=TRIALS)[0].fresh == 3


@pytest.mark.slow
def test_the_password_is_nowhere(built, postgres_server, database):
    """Neither in what is printed nor in any file of the workspace."""
    words = "run.py tune --worker --trials 1 --rounds 3 --threads 1 --verbose --collection"
    options = [TILE, "--workspace", built, "--storage"]
    command = [sys.executable, *words.split(), *map(str, options)]
    right = postgres_server.address(database)
    wrong = postgres_server.address(database, "s3cretive")
    for address, code, text in ((right, 0, ""), (wrong, 1, "password authentication failed")):
        done = subprocess.run([*command, address], cwd=ROOT, capture_output=True, text=True)
        assert done.returncode == code, done.stderr
        assert text in done.stderr
        assert "s3cret" not in done.stdout + done.stderr and "Traceback" not in done.stderr
    kept = {path: path.read_bytes() for path in built.rglob("*") if path.is_file()}
    assert [path for path, content in kept.items() if b"s3cret" in content] == []


if __name__ == "__main__":
    workspace, address, seconds = sys.argv[1:]

    def score(params):
        print("trial", flush=True)
        time.sleep(float(seconds))
        return float(params["learning_rate"])

    with mock.patch(CLIMB, made_up(score)):
        run(Path(workspace), TRIALS, study=StudyOptions(address or None))
