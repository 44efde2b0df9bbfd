"""Studies: what they leave and choose; storages that processes share, kills, servers, passwords."""

import json
import shutil
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import optuna
import pytest
from optuna.study import Study
from optuna.trial import TrialState

from tests.cli.conftest import here
from tests.pipelines.trees import LAYOUT, TILE, Listener, build, edit_json, write_tree
from xlarank.data.collection import Collection
from xlarank.data.errors import CollectionError, ModelError, XlarankError
from xlarank.data.workspace import Workspace
from xlarank.models.losses import DEFAULT, params_of
from xlarank.models.model import Model
from xlarank.models.training_data import FitSettings
from xlarank.models.tuned import load_best
from xlarank.models.validation.folds import Curves, FoldPlan
from xlarank.pipelines.training.studies import FINISHED, open_storage
from xlarank.pipelines.training.training_sets import read_training_set
from xlarank.pipelines.tune import RESULT, Objective, choose, tune

DEFAULTS = params_of("lambdarank", "tile")
#: Method that scores a trial; tests of the search alone replace it.
CURVES = "xlarank.pipelines.tune.FoldPlan.curves"


def made_up(score):
    """Return a stand-in for `FoldPlan.curves` whose score depends on the parameters alone."""

    def curves(plan, data, model, settings):
        value = {"score": score(dict(model.params))}
        return Curves([settings.rounds], {name: [value] for name in data.names})

    return curves


def run(workspace, trials=2, rounds=10, **options):
    """Tune with few rounds and one thread; by default the tile collection alone."""
    chosen = {"collection": [TILE], "rounds": rounds, "threads": 1, **options}
    return tune(workspace, trials=trials, **chosen)


def folder(workspace, collection=TILE):
    return Workspace(workspace).study(Collection.parse(collection))


def trials_of(workspace, storage=None):
    """Return the trials of the only study of tiles."""
    with open_storage(Workspace(workspace), storage) as opened:
        (name,) = [name for name in optuna.get_all_study_names(opened) if name.startswith(TILE)]
        return optuna.load_study(study_name=name, storage=opened).trials


@pytest.fixture(autouse=True)
def _no_pictures(request, monkeypatch):
    if "pictures" not in request.node.name:
        monkeypatch.setattr("xlarank.pipelines.tune.draw_study", lambda *_: [])


@pytest.fixture
def by_learning_rate(monkeypatch):
    monkeypatch.setattr(CURVES, made_up(lambda params: params["learning_rate"]))


@pytest.mark.slow
def test_a_study_is_resumed(built, shared_built, tmp_path, by_learning_rate):
    """A call with nothing to do trains nothing, and brings lost files back."""
    other = shutil.copytree(shared_built, tmp_path / "other")
    for place in (built, other):
        run(place, trials=2)
        (more,) = run(place, trials=11)
        assert (more.trials, more.fresh) == (11, 9)
    points = [trial.params for trial in trials_of(built)]
    assert points == [trial.params for trial in trials_of(other)]
    assert len({json.dumps(point) for point in points}) == 11, "nothing is tried twice"
    path = folder(built) / "best-lambdarank.json"
    before = path.read_bytes()
    assert before == (folder(other) / path.name).read_bytes()
    path.unlink()
    (nothing,) = run(built, trials=3)
    assert (nothing.trials, nothing.fresh, path.read_bytes()) == (11, 0, before)


@pytest.mark.slow
def test_a_study_leaves_pictures(built, by_learning_rate):
    """The history; importances of parameters from ten different scores on."""
    (few,) = run(built, trials=2)
    (more,) = run(built, trials=11)
    names = [path.name for path in more.pictures]
    assert few.pictures == more.pictures[:1]
    assert names == ["tune-tile-cpu-lambdarank.svg", "tune-tile-cpu-lambdarank-importance.svg"]
    assert all("<svg" in path.read_text() for path in more.pictures)


def test_the_score_is_the_mean_over_graphs_at_the_best_rounds_of_unseen_families(built):
    """The first trial is the defaults: their score is computed here once more."""
    (result,) = run(built, trials=1, collection=[LAYOUT], rounds=30)
    best = load_best(folder(built, LAYOUT), DEFAULT)
    training = read_training_set(Workspace(built), Collection.parse(LAYOUT))
    plan = FoldPlan.of(training.data, 5)
    model = Model.of("lambdarank", "layout")
    curves = plan.curves(training.data, model, FitSettings(30, threads=1))
    assert best["rounds"] == curves.rounds[curves.best_stage()]
    scores = curves.column("score")[:, curves.best_stage()]
    assert (best["mean"], best["std"]) == pytest.approx((scores.mean(), scores.std()), abs=1e-12)
    shown = {name: getattr(result, name) for name in ("params", "rounds", "mean", "std")}
    assert best.items() >= shown.items()


def test_an_interrupted_study_keeps_its_best_and_tries_the_defaults(built, monkeypatch):
    monkeypatch.setattr(CURVES, mock.Mock(side_effect=MemoryError))
    with pytest.raises(MemoryError):
        run(built, trials=4)
    assert load_best(folder(built), DEFAULT) is None
    monkeypatch.setattr(CURVES, made_up(lambda params: float(params == DEFAULTS)))
    with pytest.raises(KeyboardInterrupt), Listener(stop_at=2) as listener:
        run(built, trials=4)
    assert listener.ended == 1 and load_best(folder(built), DEFAULT) is not None
    (result,) = run(built, trials=4)
    assert (result.trials, result.fresh) == (4, 2)
    assert [trial.state.name for trial in trials_of(built)] == ["FAIL", *["COMPLETE"] * 4]
    shown = (result.mean, result.params, result.tuned)
    assert shown == (1.0, DEFAULTS, False), "the best is never below the defaults"


def test_poor_trials_stop_on_the_first_rung_but_not_the_defaults(built, monkeypatch):
    """Worse trials do the first of three rungs; defaults that come late do all."""
    seen = []

    def worse(plan, data, model, settings):
        if settings.rounds == 10:
            seen.append(0)
        seen[-1] += 1
        value = {"score": -float(len(seen))}
        return Curves([settings.rounds], {name: [value] for name in data.names})

    monkeypatch.setattr(CURVES, worse)
    (result,) = run(built, trials=6, rounds=60)
    assert seen == [3, 1, 1, 1, 1, 1]
    assert (result.trials, result.pruned, result.params) == (6, 5, DEFAULTS)
    assert run(built, trials=6, rounds=60)[0].fresh == 0, "a pruned trial is finished"
    tiles = Collection.parse(TILE)
    objective = Objective.of(Workspace(built), tiles, DEFAULT, FitSettings(60), "mean")
    pruner = optuna.pruners.SuccessiveHalvingPruner(min_resource=1, reduction_factor=4)
    study = optuna.create_study(direction="maximize", pruner=pruner)
    study.optimize(objective, n_trials=4)
    study.enqueue_trial(objective.defaults)
    study.optimize(objective, n_trials=1)
    assert seen[6:] == [3, 1, 1, 1, 3] and study.trials[-1].state == TrialState.COMPLETE


def test_a_timeout_ends_the_search_and_bad_requests_are_refused(built, monkeypatch):
    monkeypatch.setattr(CURVES, made_up(lambda params: 0.5))
    with pytest.raises(ModelError, match="select is 'median'; expected mean, robust"):
        run(built, select="median")
    with pytest.raises(XlarankError, match="`trials` is 0; expected a whole number from 1"):
        run(built, trials=0)
    with pytest.raises(XlarankError, match=r"no trial .* was finished; .*`timeout`"):
        run(built, timeout=0.0)
    optimize, shares = Study.optimize, []

    def one_trial(study, objective, trials, timeout, callbacks):
        shares.append(timeout)
        optimize(study, objective, 1, callbacks=callbacks)

    monkeypatch.setattr(Study, "optimize", one_trial)
    clock = SimpleNamespace(monotonic=lambda: len(shares))  # each collection takes a second
    monkeypatch.setattr("xlarank.pipelines.tune.time", clock)
    run(built, trials=500, timeout=3.0, collection=[])
    assert shares == [1.5, 2.0]


def test_one_family_cannot_be_tuned(tmp_path):
    names = ("conv__a", "conv__b", "conv_train__c")
    write_tree(tmp_path / "tree", {LAYOUT: {"valid": ("alpha__a",)}, TILE: {"train": names}})
    build(tmp_path / "tree", tmp_path / "work")
    with pytest.raises(CollectionError, match=rf"{TILE} has one program family \(conv\)"):
        run(tmp_path / "work")
    message = rf"{LAYOUT} has no graphs in the train split .*; {TILE} has one program family"
    with pytest.raises(CollectionError, match=message):
        run(tmp_path / "work", collection=[])


def test_an_ensemble_is_tuned_with_its_members_own_parameters(built, monkeypatch):
    score = mock.Mock(return_value=0.5)
    monkeypatch.setattr(CURVES, made_up(score))
    run(built, trials=1, model="ensemble")
    run(built, trials=1, model="ranknet")
    path = folder(built) / "best-ranknet.json"
    params = json.loads(path.read_text())["params"]
    edit_json(path, params=params | {"learning_rate": 0.125})
    assert run(built, trials=1, model="ensemble")[0].fresh == 1, "another study"
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
        objective.defaults_of = lambda study: study.trials[0]
        assert choose(study, objective) == (None, "")
        for number, scores in enumerate([(0.1, 0.2, 0.3, 0.4), best]):
            result = {RESULT: {"graphs": dict(zip("abcd", scores, strict=True))}}
            options = {"params": {"leaves": number}, "distributions": leaves, "user_attrs": result}
            study.add_trial(optuna.create_trial(value=sum(scores) / 4, **options))
        trial, note = choose(study, objective)
        assert trial.number == chosen
        assert ("the defaults stay" in note) is (study.best_trial.number != chosen)


ROOT = Path(__file__).parents[2]
TRIALS = 4


@pytest.fixture
def address(postgres_server, database):
    return postgres_server.address(database)


def start(workspace, storage, seconds):
    """Start a process whose trials take so many seconds and score their learning rate."""
    command = [sys.executable, "-m", __name__, str(workspace), storage, str(seconds)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    return subprocess.Popen(command, cwd=ROOT, **pipes)


def points(workspace, storage, *states):
    trials = trials_of(workspace, storage)
    over = (trial.params for trial in trials if trial.state in states)
    return Counter(json.dumps(params, sort_keys=True) for params in over)


@pytest.mark.slow
def test_processes_share_a_study_on_a_server(built, address, by_learning_rate):
    """Together they run as many trials as were asked for, and then there is nothing left to do."""
    run(built, 1, storage=address)
    processes = [start(built, address, 0.3) for _ in range(2)]
    outputs = [process.communicate(timeout=200)[0] for process in processes]
    assert [process.returncode for process in processes] == [0, 0], outputs
    assert all("trial" in output and "Traceback" not in output for output in outputs)
    assert TRIALS <= sum(points(built, address, *FINISHED).values()) <= TRIALS + 1
    assert run(built, TRIALS, storage=address)[0].fresh == 0


@pytest.mark.slow
def test_a_killed_process_is_made_up_for(built, address, by_learning_rate, monkeypatch):
    """Its trial is run again after a time without heartbeats."""
    process = start(built, address, 60)
    assert process.stdout.readline() == "trial\n"
    process.kill()
    process.communicate()
    monkeypatch.setattr("xlarank.pipelines.training.studies.GRACE", 1)
    time.sleep(1.5)
    (result,) = run(built, TRIALS, storage=address)
    assert result.trials == TRIALS
    lost = points(built, address, TrialState.FAIL)
    assert sum(lost.values()) == 1 and set(lost) <= set(points(built, address, *FINISHED))
    assert not points(built, address, TrialState.RUNNING)


@pytest.mark.slow
def test_unusable_addresses_are_refused_without_their_password(built, tmp_path):
    for address, why in (
        ("nonsense", "is not an address"),
        ("host=db password=s3cret", "is not an address"),
        (
            f"sqlite:///{tmp_path}/no/such/study.db",
            "cannot be used .*unable to open.*check `storage`",
        ),
        ("journal:/a/study.log", "expected an address of SQLAlchemy"),
        ("postgresql+nodriver://host/db", "cannot be used .*nodriver"),
        ("postgresql://me:s3@cret@host/db", "write the @ of a password as %40"),
        ("postgresql://me:s3cret@host:port/db", "is not an address"),
        ("postgresql+psycopg://me:s3cret@localhost:1/db", "cannot be used .*refused"),
    ):
        with pytest.raises(XlarankError, match=why) as caught:
            run(built, storage=address)
        assert "cret" not in str(caught.value) and len(str(caught.value).splitlines()) == 1


@pytest.mark.slow
def test_the_password_is_nowhere(built, postgres_server, database):
    """Neither in what is printed nor in any file of the workspace."""
    words = f"tune --trials 1 --rounds 3 --threads 1 --verbose -c {TILE} --workspace {built}"
    right = postgres_server.address(database)
    wrong = postgres_server.address(database, "s3cretive")
    for address, code, text in ((right, 0, ""), (wrong, 1, "password authentication failed")):
        done = here(*words.split(), "--storage", address)
        assert done.code == code and text in done.err
        assert "s3cret" not in done.out + done.err
    kept = {path: path.read_bytes() for path in built.rglob("*") if path.is_file()}
    assert [path for path, content in kept.items() if b"s3cret" in content] == []


if __name__ == "__main__":
    workspace, address, seconds = sys.argv[1:]

    def score(params):
        print("trial", flush=True)
        time.sleep(float(seconds))
        return float(params["learning_rate"])

    with mock.patch(CURVES, made_up(score)):
        run(Path(workspace), TRIALS, storage=address)
