"""run_all within a budget: a valid submission whatever happens, and no work done twice."""

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cli import conftest as cli
from tests.pipelines.trees import (
    LAYOUT,
    TILE,
    TREE,
    Listener,
    data_root,
    edit_json,
    graph_path,
    model_of,
    write_tree,
)
from xlarank.data.collection import Collection, GraphFile
from xlarank.data.errors import CollectionError, XlarankError
from xlarank.data.graph import GraphCounts
from xlarank.data.submission import read_submission
from xlarank.data.workspace import Workspace
from xlarank.features.rows import Recipe
from xlarank.features.settings import FeatureSettings
from xlarank.features.store import Manifest, write_manifest
from xlarank.models.model import Model
from xlarank.pipelines.run_all import (
    ATTACHED,
    DEFAULT_ORDER,
    EARLIER,
    FINAL,
    FIRST,
    RunAll,
    run_all,
)
from xlarank.pipelines.submit import check_submission, submit
from xlarank.pipelines.support.processes import environment, isolated
from xlarank.pipelines.training.budget import (
    CollectionPlan,
    RunSettings,
    first_scores,
    plan_collection,
    read_first_scores,
)

#: Seconds of a fit of 300 rounds per row, slow.
FIT_SECONDS = 1.5e-3


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    """Root of a data tree of tiles, whose rows are computed faster."""
    return write_tree(tmp_path_factory.mktemp("tree"), {TILE: TREE[TILE]}).path


ISOLATED = "xlarank.pipelines.run_all.isolated"


@pytest.fixture
def same_process(monkeypatch):
    """Steps run in this process, which has everything imported."""
    monkeypatch.setattr(ISOLATED, lambda step, *args, limit, **options: step(*args, **options))


def job(tree, folder, *, hours=1.0, models=None, **options):
    settings = RunSettings(hours, 4, 1, seeds=1, trials=0, jobs=1, models=models)
    return run_all(
        data_root(tree), Workspace(folder / "work"), folder / "out.csv", settings, **options
    )


def outcome_of(tree, folder, **options):
    (outcome,) = job(tree, folder, **options).outcomes.values()
    return outcome


def right(folder, tree):
    return not check_submission(folder / "out.csv", data_root=data_root(tree)).problems


def test_no_time_at_all_leaves_the_default_order(tree, tmp_path, monkeypatch):
    plans = []
    outcome = outcome_of(tree, tmp_path, hours=1e-9, on_plan=plans.append)
    assert right(tmp_path, tree)
    assert read_submission(tmp_path / "out.csv")[f"{TILE}:sort__a"] == [0, 1, 2, 3, 4]
    assert outcome.ranked_by == DEFAULT_ORDER
    assert outcome.notes == ["no time left for build_features"]
    assert [str(part.collection) for part in plans[0]] == [TILE]
    assert not (tmp_path / "work" / "features").exists()
    write_tree(tmp_path / "tree", {TILE: {"train": ["dot__a"]}})
    with pytest.raises(CollectionError, match="has no test graphs that can be read"):
        job(tmp_path / "tree", tmp_path)
    isolated = Mock(side_effect=XlarankError("it was not done in time"))
    monkeypatch.setattr(ISOLATED, isolated)
    assert outcome_of(tree, tmp_path).notes == ["it was not done in time"], "reported once"
    assert isolated.call_args.args[0].__name__ == "build_features"


@pytest.mark.slow
def test_a_failing_collection_does_not_lose_the_other(tmp_path, same_process):
    """Labels of train are withheld, which no header tells: there is nothing to learn from."""
    write_tree(tmp_path / "tree", {LAYOUT: {"test": ["omega__a", "omega__b"]}, TILE: TREE[TILE]})
    unlabelled = graph_path(tmp_path / "tree", LAYOUT, "train", "alpha__a")
    unlabelled.parent.mkdir()
    os.link(graph_path(tmp_path / "tree", LAYOUT, "test", "omega__a"), unlabelled)
    graph_path(tmp_path / "tree", TILE, "test", "broken__a").write_bytes(b"no zip")
    run = job(tmp_path / "tree", tmp_path)
    layout, tile = run.outcomes.values()
    assert (layout.ranked_by, tile.ranked_by) == ("the shipped ranker", "rule: largest output tile")
    assert any("out of fold" in note for note in tile.notes), "why no model ranks it"
    assert "none of which can be trained" in layout.notes[-1]
    again = submit(Workspace(tmp_path / "work"), tmp_path / "again.csv", model_from="shipped")
    assert again.models == {LAYOUT: "the shipped ranker", TILE: "rule: largest output tile"}
    assert read_submission(tmp_path / "again.csv") == read_submission(tmp_path / "out.csv")
    ids = {f"{collection}:{name}" for collection in TREE for name in TREE[collection]["test"]}
    assert read_submission(tmp_path / "out.csv").keys() == ids
    assert run.cover.keys() == ids and list(run.broken) == [f"{TILE} broken__a"]


@pytest.mark.slow
def test_models_from_elsewhere_rank_without_learning(tree, tmp_path, same_process, monkeypatch):
    best_of = "xlarank.pipelines.ranking.model_choice.best_of"
    monkeypatch.setattr(best_of, lambda model: (model, ""))  # no rule takes a model's place
    there = tmp_path / "there"
    learned = tmp_path / "learned"
    with pytest.MonkeyPatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr("xlarank.pipelines.run_all.evaluate", Mock(side_effect=KeyboardInterrupt))
        job(tree, learned)  # what was trained is scored by the next one
    first = outcome_of(tree, learned)
    assert first.ranked_by == FINAL and first.valid
    assert Model.load(learned / "work/models/tile/cpu").card.trained_on.keys() == {"train", "valid"}
    assert outcome_of(tree, there, models=learned / "work").ranked_by == ATTACHED
    assert (there / "out.csv").read_bytes() == (learned / "out.csv").read_bytes()
    assert not (there / "work/features/tile/cpu/train").exists()
    # a finished job has nothing left to do, and a model is used even if the plan has no time for
    # one
    for damaged in ("[" * 100_000, '{"report": 3}', '{"report": {"score": {"mean": 1}}}'):
        first_scores(Workspace(learned / "work"), Collection.parse(TILE)).write_text(damaged)
        assert read_first_scores(Workspace(learned / "work"), Collection.parse(TILE)) == {}
    model = learned / "work/models/tile/cpu/model.json"
    made = model.stat().st_mtime_ns
    assert outcome_of(tree, learned).ranked_by == FINAL and model.stat().st_mtime_ns == made
    assert outcome_of(tree, learned, hours=1e-9).ranked_by == EARLIER
    assert right(learned, tree)
    assert (there / "out.csv").read_bytes() == (learned / "out.csv").read_bytes()
    edit_json(model, members={})
    (other,) = outcome_of(tree, there, models=learned / "work").notes
    assert "has another model of tile:cpu" in other, "it is not replaced"


def test_a_model_of_some_of_the_stored_graphs_is_trained_again(shared_trained, tree):
    """As the time was over before the rest was built."""
    run = RunAll(
        data_root(tree), Workspace(shared_trained), Path("out.csv"), RunSettings(), None, 1e9
    )
    plan = plan_of(100)
    card = run.card(plan)
    assert card is not None and len(card.trained_on["train"]) > 1
    fewer = replace(card, trained_on={"train": card.trained_on["train"][1:]})
    model = replace(model_of(shared_trained, TILE), card=fewer)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("xlarank.pipelines.run_all.model_of", lambda *_: model)
        assert run.card(plan) is None


def test_the_default_order_of_an_interrupted_run_is_no_ranking(tree, tmp_path):
    for _ in range(2):
        assert outcome_of(tree, tmp_path, hours=1e-9).ranked_by == DEFAULT_ORDER


def run_of(tree, folder, seeds=1):
    settings = RunSettings(1, 4, 1, seeds=seeds, trials=0)
    workspace = Workspace(folder / "work")
    return RunAll(data_root(tree), workspace, folder / "out.csv", settings, None, last=1e9)


def plan_of(most_configs):
    """Return a plan that keeps 50 configurations per graph, if none are stored."""
    tile = Collection.parse(TILE)
    return CollectionPlan(tile, 50, most_configs, rows=9, first_seconds=1, memory_gb=1, jobs=1)


@pytest.mark.parametrize(("most_configs", "kept"), [(100, 100), (99, 50)])
def test_stored_rows_are_used_if_they_fit_into_memory(tree, tmp_path, most_configs, kept):
    """Stored are 100 configurations per graph."""
    run = run_of(tree, tmp_path)
    plan = plan_of(most_configs)
    recipe = Recipe.of(FeatureSettings(), "tile", max_configs=100)
    manifest = Manifest(recipe, str(tree), [], [])
    write_manifest(run.workspace, plan.collection, "train", manifest)
    run.build = Mock(side_effect=CollectionError("stopped here"))
    with pytest.raises(CollectionError, match="stopped here"):
        run.rank_collection(plan, 1e9)
    assert run.build.call_args.kwargs["max_configs"] == kept


@pytest.mark.parametrize(("seeds", "sources"), [(2, [FINAL]), (3, [FIRST, FINAL])])
def test_a_final_model_of_other_seeds_is_trained_again(tree, tmp_path, seeds, sources):
    run = run_of(tree, tmp_path, seeds)
    run.card = Mock(return_value=Mock(trained_on={"train": [], "valid": []}, seeds=2))
    run.build = Mock()
    run.step = Mock()
    run.rank = Mock()
    run.rank_collection(plan_of(100), 1e9)
    assert [call.args[1] for call in run.rank.call_args_list] == sources
    requests = [call.args[2] for call in run.step.call_args_list]
    assert [request.seeds for request in requests] == [seeds] * (len(sources) - 1)


def start(tree, folder, *words):
    place = ("--data-root", tree, "--workspace", folder / "work", "--out", folder / "out.csv")
    return cli.start("run-all", *place, "--jobs", 1, "--seeds", 1, *words, cwd=folder)


@pytest.mark.slow
@pytest.mark.parametrize(("number", "trials"), [(signal.SIGKILL, 3), (signal.SIGTERM, 0)])
def test_a_killed_run_is_resumed(tree, tmp_path, number, trials):
    work = tmp_path / "work"
    mark = "studies/*/*/best-lambdarank.json" if trials else "features/*/*/train/manifest.json"
    process = start(tree, tmp_path, "--trials", 100 * trials)
    try:
        end = time.monotonic() + 120
        while not list(work.glob(mark)):
            assert process.poll() is None and time.monotonic() < end, process.communicate()
            time.sleep(0.02)
        process.send_signal(number)
        _, err = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode in (-number, 128 + number) and "Traceback" not in err
    assert right(tmp_path, tree)
    with pytest.raises(ProcessLookupError):  # the steps must not go on without their parent
        for _ in range(600):
            os.killpg(process.pid, 0)
            time.sleep(0.05)
    stored = {path: path.stat().st_mtime_ns for path in (work / "features").rglob("[!.]*.parquet")}
    journals = {path: path.read_bytes() for path in work.rglob("journal.log")}
    assert len(stored) == 3 and len(journals) == (trials > 0)
    process = start(tree, tmp_path, "--trials", trials, "--budget-hours", 0.05)
    out, err = process.communicate(timeout=240)
    assert "Traceback" not in err and right(tmp_path, tree)
    assert {path: path.stat().st_mtime_ns for path in stored} == stored, "no graph built again"
    for path, done in journals.items():
        finished = done[: done.rfind(b"\n") + 1]
        assert path.read_bytes().startswith(finished), "finished trials are kept"
    assert FIRST in out or FINAL in out


def official():
    """Yield the counts of TpuGraphs; valid and test layouts have 1000 configurations each."""
    # Graphs by split and configurations in all, of the dataset; configurable nodes and nodes of a
    # graph, set high.
    counts = {
        "layout:xla:random": ((69, 7, 8), 900_000, 120, 5_000),
        "layout:xla:default": ((61, 7, 8), 800_000, 120, 5_000),
        "layout:nlp:random": ((207, 20, 17), 16_100_000, 300, 8_000),
        "layout:nlp:default": ((198, 20, 17), 13_300_000, 300, 8_000),
        "tile:xla": ((5709, 676, 844), 12_900_000, 0, 40),
    }
    for name, (graphs, configs, configurable, nodes) in counts.items():
        collection = Collection.parse(name)
        sizes = {}
        for split, count in zip(("train", "valid", "test"), graphs, strict=True):
            kept = 1000 if configurable and split != "train" else configs // sum(graphs)
            for number in range(count):
                file = GraphFile(collection, split, Path(f"family{number % 30}__{number}.npz"))
                sizes[file] = GraphCounts(kept, nodes, configurable)
        yield collection, sizes


OFFICIAL = [*official()]


def test_the_real_dataset_fits_kaggle():
    settings = RunSettings(hours=12, ram_gb=30, cores=4)
    plan = [plan_collection(*graphs, settings, 12 / 5, FIT_SECONDS) for graphs in OFFICIAL]
    assert sum(part.first_seconds for part in plan) < 4 * 3600
    assert all(part.memory_gb <= 30 for part in plan)
    assert all(part.max_configs >= 200 for part in plan if part.collection.kind == "layout")


@given(hours=st.floats(0.001, 24), ram=st.floats(0.5, 64), cores=st.integers(1, 16))
def test_memory_is_not_exceeded_and_more_of_anything_never_keeps_less(hours, ram, cores):
    for graphs in OFFICIAL:
        settings, larger = (RunSettings(1, factor * ram, cores) for factor in (1, 2))
        part = plan_collection(*graphs, settings, hours, FIT_SECONDS)
        more = plan_collection(*graphs, larger, 2 * hours, FIT_SECONDS)
        assert part.memory_gb <= ram or not part.rows
        # 11 fits of 60 in the time
        assert part.first_seconds <= 660.1 * hours or part.max_configs == 16
        assert part.rows <= more.rows
        assert part.max_configs <= more.max_configs and part.jobs <= more.jobs


def test_cases_at_the_edge():
    """Large files are not built side by side; nothing to learn from or to rank."""

    def planned(name, counts, graphs=1, split="train", settings=None):
        collection = Collection.parse(name)
        files = [GraphFile(collection, split, Path(f"family{n}__a.npz")) for n in range(graphs)]
        sizes = dict.fromkeys(files, GraphCounts(*counts))
        return plan_collection(collection, sizes, settings or RunSettings(), 1, FIT_SECONDS)

    for ram, jobs in ((4, 1), (64, 4)):
        settings = RunSettings(1, ram, 4)
        huge = planned("layout:nlp:random", (100_000, 20_000, 3143), settings=settings)
        assert huge.jobs == jobs
    settings = RunSettings(1, 8, 64)
    few, many = (planned("layout:x:y", (1000, 3), n, settings=settings) for n in (10, 40))
    # at most ten folds are fitted, whatever the number of families
    assert few.most_configs == pytest.approx(4 * many.most_configs, abs=4)
    for split in ("train", "test"):
        assert planned("tile:x", (10, 3), split=split).rows == 0
    for wrong in ({"hours": 0}, {"hours": float("nan")}, {"ram_gb": -1}, {"seeds": 0}):
        with pytest.raises(XlarankError, match="expected"):
            RunSettings(**wrong)


def double(value, *, progress, fail=""):
    with progress("doubling", 1) as step:
        if fail == "clearly":
            raise CollectionError("made up", do="nothing")
        if fail == "as a bug":
            raise ZeroDivisionError("made up")
        if fail == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        if fail == "with a semaphore":
            semaphore = multiprocessing.get_context("spawn").Semaphore()  # noqa: F841
        if fail in ("never done", "with a semaphore"):
            time.sleep(600)
        step("done")
    return 2 * value


@pytest.mark.slow
def test_what_a_killed_step_leaves_behind_is_freed_silently() -> None:
    code = (
        "import tests.pipelines.test_run_all as test\n"
        "try: test.isolated(test.double, 1, fail='with a semaphore', limit=15, "
        "progress=None)\n"
        "except test.XlarankError as error: print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("double was not done in time\n", "")


@pytest.mark.slow
def test_results_errors_and_progress_come_back():
    listener = Listener()
    assert isolated(double, 21, limit=300, progress=listener) == 42
    assert (listener.jobs, listener.notes, listener.ended) == ([("doubling", 1)], ["done"], 1)
    for fail, kind, message in (
        ("clearly", CollectionError, "made up; nothing"),
        ("as a bug", RuntimeError, "ZeroDivisionError: made up"),
        ("killed", XlarankError, "signal 9, most likely for want of memory"),
        ("never done", XlarankError, "double was not done in time"),
    ):
        listener = Listener()
        started = time.monotonic()
        limit = 2 if fail == "never done" else 300
        with pytest.raises(kind, match=message):
            isolated(double, 1, fail=fail, limit=limit, progress=listener)
        assert time.monotonic() - started < 300
        assert listener.ended == len(listener.jobs), "no job is left open"


def test_variables_of_processes_that_are_started_are_taken_back(monkeypatch):
    monkeypatch.setenv("XLARANK_OLD", "before")
    before = dict(os.environ)
    with environment(XLARANK_OLD="1", XLARANK_NEW="2"):
        assert dict(os.environ) == before | {"XLARANK_OLD": "1", "XLARANK_NEW": "2"}
    assert dict(os.environ) == before
