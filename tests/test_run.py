"""The command line: the whole job from a shell, and bad input in one clear line."""

from __future__ import annotations

import csv
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

import run
from tests.graphs import save_npz, tile_arrays
from tests.pipelines.trees import graph_path, layout_graph
from xlarank.models.registry import RANKERS

ROOT = Path(run.__file__).parent
SAMPLE = ROOT / "data" / "sample"
LAYOUT, TILE = "layout:cpu:random", "tile:cpu"
#: A few graphs of the embedded sample; two families to learn from.
FILES = {
    LAYOUT: {"train": ("cnn__nchw_a", "dlrm__a", "dlrm__b"), "valid": ("mlp__a",), "test": ("gru__a",)},
    TILE: {"train": ("bmm__a", "matmul__a", "matmul__b"), "valid": ("expsum__a",), "test": ("swish__a",)},
}


@dataclass(frozen=True)
class Outcome:
    code: int
    out: str
    err: str

    @property
    def errors(self) -> list[str]:
        return [line for line in self.err.splitlines() if line.startswith("error:")]


def environment(home: Path) -> dict[str, str]:
    """No data root from outside; one thread, so that small jobs do not wait for each other."""
    kept = {name: value for name, value in os.environ.items() if name != "XLARANK_DATA"}
    return {**kept, "HOME": str(home), "OMP_NUM_THREADS": "1"}


def shell(*words: object, cwd: Path, home: Path, script: str | Path = ROOT / "run.py") -> Outcome:
    """``python run.py ...`` as a user types it."""
    done = subprocess.run(
        [sys.executable, str(script), *map(str, words)],
        cwd=cwd,
        env=environment(home),
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert "Traceback" not in done.stdout + done.stderr, done.stderr
    return Outcome(done.returncode, done.stdout, done.stderr)


@pytest.fixture
def command(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., Outcome]:
    """The same in this process: an exception that would be a traceback fails the test."""
    for number in (signal.SIGINT, signal.SIGTERM):  # a command listens to them; afterwards pytest does again
        request.addfinalizer(partial(signal.signal, number, signal.getsignal(number)))

    def call(*words: object) -> Outcome:
        monkeypatch.setattr(sys, "argv", ["run.py", *map(str, words)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as stopped:
            run.main()
        written = capsys.readouterr()
        return Outcome(int(stopped.value.code or 0), written.out, written.err)

    return call


# The whole job --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Job:
    """The whole job, done once from a folder that is not the repository."""

    folder: Path
    tree: Path
    work: Path
    outcomes: dict[str, Outcome]


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Job:
    folder = tmp_path_factory.mktemp("elsewhere")
    tree = folder / "tree"
    for collection, splits in FILES.items():
        for split, names in splits.items():
            for name in names:
                path = graph_path(tree, collection, split, name)
                path.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(graph_path(SAMPLE, collection, split, name), path)
    graph = graph_path(tree, LAYOUT, "valid", "mlp__a")
    outcomes = {}
    for words in (
        ["info", "--data-root", "tree", "--json", "info.json"],
        ["build-features", "--data-root", "tree", "--tier", "fast"],
        ["tune", "--trials", "2", "--rounds", "10", "--threads", "1"],
        ["train", "--seeds", "1", "--rounds", "30", "--threads", "1"],
        ["evaluate", "--json", "scores.json"],
        ["submit", "--out", "out/submission.csv"],
        ["rank", graph, "--top", "3", "--json", "rank.json"],
    ):
        outcomes[str(words[0])] = shell(*words, cwd=folder, home=folder)
    return Job(folder, tree, folder / "work", outcomes)


def test_every_step_of_the_job_ends_well(job: Job) -> None:
    for step, outcome in job.outcomes.items():
        assert outcome.code == 0, f"{step}: {outcome.err}"
        assert outcome.errors == []


def test_info_counts_what_is_there(job: Job) -> None:
    assert f"data: {Path('tree')} (named by --data-root)" in job.outcomes["info"].out
    parts = json.loads((job.folder / "info.json").read_text())
    assert [(part["collection"], part["split"], part["graphs"]) for part in parts] == [
        (collection, split, len(names)) for collection, splits in FILES.items() for split, names in splits.items()
    ]
    assert parts[0]["families"] == ["cnn", "dlrm"]


def test_features_lie_in_the_workspace_of_the_current_folder(job: Job) -> None:
    stored = {path.stem for path in job.work.glob("features/**/*.parquet")}
    assert stored == {name for splits in FILES.values() for names in splits.values() for name in names}
    assert re.search(rf"{TILE}\s*│\s*train\s*│\s*3\s*│\s*3\s*│\s*0\s*│\s*192", job.outcomes["build-features"].out)


def test_tuned_parameters_reach_the_models(job: Job) -> None:
    for collection in (LAYOUT, TILE):
        place = Path(*collection.split(":"))
        best = json.loads((job.work / "studies" / place / "best-lambdarank.json").read_text())
        card = json.loads((job.work / "models" / place / "model.json").read_text())
        assert card["tuned"] is True
        assert card["params"] == best["params"]
        assert len(card["seeds"]) == 1
    assert job.outcomes["train"].out.count("lambdarank (tuned)") == 2
    for name in ("tune-layout-cpu-random-lambdarank.svg", "tune-tile-cpu-lambdarank.svg"):
        assert (job.work / "reports" / name).exists()
        assert f"wrote {Path('work/reports') / name}: " in job.outcomes["tune"].out


def test_scores_are_written_as_promised(job: Job) -> None:
    report = json.loads((job.folder / "scores.json").read_text())
    assert set(report) == {LAYOUT, TILE}
    for collection, metrics in report.items():
        assert set(metrics) >= {"tau", "ordered_pair_accuracy", "slowdown@1", "slowdown@5", "score"}
        for values in metrics.values():
            assert set(values) == {"mean", "std", "low", "high", "graphs"}
            assert list(values["graphs"]) == list(FILES[collection]["valid"])
    shown = job.outcomes["evaluate"].out
    assert f"{report[LAYOUT]['tau']['mean']:.3f}" in shown
    assert re.search(rf"95 % low\s*│\s*{report[LAYOUT]['tau']['low']:.3f}", shown)


def test_the_submission_has_every_test_graph(job: Job) -> None:
    with (job.folder / "out" / "submission.csv").open(newline="") as stream:
        rows = {row["ID"]: row["TopConfigs"].split(";") for row in csv.DictReader(stream)}
    assert {row_id: len(listed) for row_id, listed in rows.items()} == {
        f"{LAYOUT}:gru__a": 64,
        f"{TILE}:swish__a": 5,
    }
    assert "2 rows, checked" in job.outcomes["submit"].out


def test_the_submission_is_found_right_and_a_spoilt_one_is_not(
    job: Job, tmp_path: Path, command: Callable[..., Outcome]
) -> None:
    written = job.folder / "out" / "submission.csv"
    right = command("check-submission", written, "--data-root", job.tree)
    assert (right.code, right.errors) == (0, []) and "2 rows, right (checked against 2 test graphs)" in right.out
    (tmp_path / "spoilt.csv").write_text(written.read_text().replace(f"{TILE}:swish__a,", f"{TILE}:swish__a,99;"))
    spoilt = command("check-submission", tmp_path / "spoilt.csv", "--sample", written, "--data-root", job.tree)
    assert spoilt.code == 1
    assert spoilt.errors[0] == f"error: {TILE}:swish__a lists configuration 99; expected 0 to 63"
    assert spoilt.errors[1].startswith("error: 1 problem in ")


def test_a_package_for_kaggle_is_made(tmp_path: Path, command: Callable[..., Outcome]) -> None:
    outcome = command("package-kaggle", "--out", tmp_path / "xlarank.zip")
    assert outcome.code == 0 and re.search(r"wrote .*xlarank\.zip: \d+ files", outcome.out)
    assert (tmp_path / "xlarank.zip").stat().st_size > 100_000


def test_a_ranking_is_shown_and_written(job: Job) -> None:
    ranking = json.loads((job.folder / "rank.json").read_text())
    assert (ranking["graph"], ranking["collection"]) == ("mlp__a", LAYOUT)
    assert sorted(ranking["order"]) == list(range(64))
    assert len(ranking["best"]) == 3
    assert ranking["best"][0]["configuration"] == ranking["order"][0]
    assert f"mlp__a: 64 configurations, ranked by the model of {LAYOUT}" in job.outcomes["rank"].out


def test_the_repository_root_gives_the_same(job: Job, tmp_path: Path) -> None:
    """``python run.py`` as the README has it."""
    words = ["evaluate", "--workspace", job.work, "--json", tmp_path / "scores.json"]
    assert shell(*words, cwd=ROOT, home=tmp_path, script="run.py").code == 0
    assert (tmp_path / "scores.json").read_bytes() == (job.folder / "scores.json").read_bytes()


def test_a_second_round_does_nothing_anew(job: Job, tmp_path: Path, command: Callable[..., Outcome]) -> None:
    work = shutil.copytree(job.work, tmp_path / "work")
    again = command("build-features", "--data-root", job.tree, "--tier", "fast", "--workspace", work)
    assert again.code == 0
    assert re.search(rf"{TILE}\s*│\s*train\s*│\s*3\s*│\s*0\s*│\s*3\s*│", again.out), "0 built, 3 kept"
    tuned = command("tune", "--trials", "2", "--rounds", "10", "--workspace", work)
    assert re.search(rf"{TILE}\s*│\s*2\s*│\s*0\s*│", tuned.out), "2 trials, 0 new"


def test_naming_the_data_root_again_keeps_how_it_was_built(
    tree: Path, command: Callable[..., Outcome], tmp_path: Path
) -> None:
    """Or the columns and configurations chosen in build-features would be undone by the next command."""
    place = ["--data-root", tree, "--workspace", tmp_path / "work"]
    command("build-features", *place, "--tier", "fast", "--no-candidates", "--max-configs", "30", "-c", TILE)
    manifest = tmp_path / "work" / "features" / "tile" / "cpu" / "train" / "manifest.json"
    before = json.loads(manifest.read_text())["recipe"]
    assert before["max_configs"] == 30
    assert command("train", *place, "-c", TILE, "--seeds", "1", "--rounds", "5", "--threads", "1").code == 0
    assert json.loads(manifest.read_text())["recipe"] == before
    assert command("evaluate", *place, "-c", TILE).code == 0


def test_the_data_root_of_the_environment(
    job: Job, command: Callable[..., Outcome], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XLARANK_DATA", str(job.tree))
    outcome = command("info")
    assert outcome.code == 0
    assert "named by XLARANK_DATA" in outcome.out


def test_without_any_data_root_the_sample_is_taken_and_named(command: Callable[..., Outcome]) -> None:
    outcome = command("info", "--collection", TILE)
    assert outcome.code == 0
    assert "the embedded sample" in outcome.out


# Bad input ------------------------------------------------------------------------------------------------


@pytest.fixture
def trained(job: Job, tmp_path: Path) -> Path:
    return Path(shutil.copytree(job.work, tmp_path / "trained"))


@pytest.fixture
def tree(job: Job, tmp_path: Path) -> Path:
    return Path(shutil.copytree(job.tree, tmp_path / "tree"))


def refused(outcome: Outcome, said: str) -> None:
    """Exit code 1 and one clear line."""
    assert outcome.code == 1
    (line,) = outcome.errors
    assert re.search(said, line), line
    assert "Traceback" not in outcome.out + outcome.err
    after = outcome.err[outcome.err.index("error:") :]
    assert len(after.strip().splitlines()) == 1, "one line, whatever the library behind it has to say"


@pytest.mark.parametrize("verb", ["info", "build-features", "tune", "train", "evaluate", "submit"])
def test_a_data_root_that_does_not_exist(command: Callable[..., Outcome], tmp_path: Path, verb: str) -> None:
    options = ["--workspace", tmp_path / "work"] if verb != "info" else []
    refused(
        command(verb, "--data-root", tmp_path / "absent", *options),
        r"absent \(--data-root\) does not exist; .*pass --data-root or set XLARANK_DATA",
    )
    assert not (tmp_path / "work").exists()


def test_data_roots_that_hold_nothing(
    command: Callable[..., Outcome], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "empty").mkdir()
    refused(command("info", "--data-root", tmp_path / "empty"), "is not a TpuGraphs root")
    (tmp_path / "file").write_text("")
    refused(command("info", "--data-root", tmp_path / "file"), "is not a folder")
    (tmp_path / "bare" / "npz" / "layout").mkdir(parents=True)
    for verb in (["info"], ["build-features", "--workspace", tmp_path / "work"]):
        refused(command(*verb, "--data-root", tmp_path / "bare"), "has no graph files; expected npz/layout/")
    monkeypatch.setenv("XLARANK_DATA", str(tmp_path / "absent"))
    refused(command("info"), r"absent \(XLARANK_DATA\) does not exist")


@pytest.mark.parametrize("verb", ["info", "build-features", "tune", "train", "evaluate", "submit", "rank"])
def test_an_unknown_collection_suggests_the_close_one(
    job: Job, trained: Path, command: Callable[..., Outcome], verb: str
) -> None:
    options: dict[str, list[object]] = {
        "info": ["--data-root", job.tree],
        "build-features": ["--data-root", job.tree, "--workspace", trained],
        "rank": [graph_path(job.tree, LAYOUT, "valid", "mlp__a"), "--workspace", trained],
    }
    outcome = command(verb, *options.get(verb, ["--workspace", trained]), "--collection", "layout:cpu:randm")
    refused(outcome, rf"'layout:cpu:randm' is not in .*did you mean {LAYOUT}")


@pytest.mark.parametrize("verb", ["build-features", "tune", "train", "evaluate", "submit"])
def test_a_workspace_that_cannot_be_written(
    job: Job, command: Callable[..., Outcome], tmp_path: Path, verb: str
) -> None:
    (tmp_path / "work").write_text("in the way")
    refused(
        command(verb, "--data-root", job.tree, "--workspace", tmp_path / "work"),
        r"the workspace .*work cannot be written .*pass another --workspace",
    )


def test_words_that_mean_nothing(job: Job, trained: Path, command: Callable[..., Outcome], tmp_path: Path) -> None:
    build = ["build-features", "--data-root", job.tree, "--workspace", tmp_path / "new"]
    refused(command(*build, "--tier", "nonsense"), "--tier is 'nonsense'; expected fast or full")
    refused(command(*build, "--split", "validation"), "'validation' is not a split; expected train, valid, test")
    there = ["--workspace", trained]
    refused(command("evaluate", *there, "--split", "nonsense"), "'nonsense' is not a split")
    refused(
        command("evaluate", *there, "-c", LAYOUT, "--model-from", TILE), f"the model of {TILE} ranks tile graphs"
    )
    refused(command("train", *there, "--model", "forest"), "'forest' is not a model; expected .*lambdarank")
    refused(command("tune", *there, "--model", "forest"), "'forest' is not a model")
    refused(command("tune", *there, "--storage", "nonsense://x"), "storage cannot be opened .*check --storage")
    refused(
        command("evaluate", *there, "-c", LAYOUT, "--official-indices", tmp_path / "absent"),
        r"the official indices .*cpu_random\.json cannot be read",
    )


def test_a_database_that_cannot_be_made(trained: Path, command: Callable[..., Outcome], tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/no/such/folder.db"
    refused(command("tune", "--workspace", trained, "--storage", url), "storage cannot be opened .*check --storage")


def test_no_time_to_tune(trained: Path, command: Callable[..., Outcome]) -> None:
    shutil.rmtree(trained / "studies")
    refused(command("tune", "--workspace", trained, "--timeout", "0"), "trial|time")


@pytest.mark.parametrize(
    "words",
    [
        ["bild-features"],
        ["info", "--nonsense"],
        ["tune", "--trials", "0"],
        ["tune", "--trials", "many"],
        ["tune", "--timeout", "-1"],
        ["train", "--seeds", "0"],
        ["build-features", "--max-configs", "-1"],
        ["build-features", "--jobs", "-1"],
        ["rank"],
        ["rank", "a.npz", "--top", "0"],
        ["rank", "a.npz", "b.npz"],
        ["submit", "--out"],
    ],
    ids=" ".join,
)
def test_usage_errors_exit_with_2(command: Callable[..., Outcome], words: list[str]) -> None:
    outcome = command(*words)
    assert outcome.code == 2
    assert "Error" in outcome.err
    assert outcome.out == ""


def test_a_broken_file_is_named_while_the_others_are_done(
    tree: Path, command: Callable[..., Outcome], tmp_path: Path
) -> None:
    path = graph_path(tree, TILE, "train", "bmm__a")
    path.write_bytes(path.read_bytes()[:-100])
    for words in (
        ["build-features", "--data-root", tree, "--workspace", tmp_path / "work", "--tier", "fast"],
        ["info", "--data-root", tree],
    ):
        outcome = command(*words)
        assert outcome.code == 1
        named, summary = outcome.errors
        assert re.search(rf"{TILE} train bmm__a: bmm__a\.npz", named)
        assert "1 broken file; the others were dealt with" in summary
    assert len(list((tmp_path / "work").rglob("*.parquet"))) == 9


def test_broken_test_files_make_a_submission_fail_after_writing_it(
    tree: Path, trained: Path, command: Callable[..., Outcome], tmp_path: Path
) -> None:
    graph_path(tree, TILE, "test", "swish__a").write_bytes(b"no zip")
    command("build-features", "--data-root", tree, "--workspace", trained, "--tier", "fast")
    outcome = command("submit", "--workspace", trained, "--out", tmp_path / "out.csv")
    assert outcome.code == 1
    assert "swish__a" in outcome.errors[0]
    assert f"{LAYOUT}:gru__a" in (tmp_path / "out.csv").read_text()


def test_a_name_with_a_line_break_stays_on_one_line(
    tree: Path, command: Callable[..., Outcome], tmp_path: Path
) -> None:
    """A file name must not be able to forge a line of the output."""
    path = graph_path(tree, TILE, "valid", "expsum__a")
    path.rename(path.with_name("evil\nerror: all is lost.npz"))
    outcome = command("build-features", "--data-root", tree, "--workspace", tmp_path / "work", "--tier", "fast")
    assert outcome.code == 1
    assert "\nerror: all is lost" not in outcome.out + outcome.err
    assert len(outcome.errors) == 2


def test_a_collection_without_a_train_split(tree: Path, command: Callable[..., Outcome], tmp_path: Path) -> None:
    shutil.rmtree(tree / "npz" / "tile" / "cpu" / "train")
    work = tmp_path / "work"
    assert command("build-features", "--data-root", tree, "--workspace", work, "--tier", "fast").code == 0
    for verb in ("tune", "train"):
        refused(command(verb, "--workspace", work, "-c", TILE), rf"{TILE} has no train split .*leave {TILE} out")
    outcome = command("train", "--workspace", work, "--seeds", "1", "--rounds", "5", "--threads", "1")
    assert outcome.code == 0
    assert f"not trained: {TILE} has no train split" in outcome.out


def test_before_training(trained: Path, command: Callable[..., Outcome], tmp_path: Path) -> None:
    shutil.rmtree(trained / "models")
    refused(command("evaluate", "--workspace", trained), "nothing could be evaluated on valid: .*run train first")
    refused(
        command("submit", "--workspace", trained, "--out", tmp_path / "out.csv"),
        "nothing to submit: .*run train first",
    )
    assert not (tmp_path / "out.csv").exists()
    graph = graph_path(SAMPLE, LAYOUT, "valid", "mlp__a")
    refused(command("rank", graph, "--workspace", trained), "there is no trained layout model .*run train first")


def test_files_that_cannot_be_ranked(trained: Path, command: Callable[..., Outcome], tmp_path: Path) -> None:
    (tmp_path / "text.npz").write_text("hello")
    save_npz(tmp_path / "half.npz", {"node_feat": tile_arrays()["node_feat"]})
    for name, said in (
        ("absent.npz", r"absent\.npz does not exist"),
        ("text.npz", r"text\.npz cannot be opened"),
        ("half.npz", r"half\.npz: array .* is missing"),
        (".", "cannot be opened"),
    ):
        refused(command("rank", tmp_path / name, "--workspace", trained), said)


def test_a_result_that_cannot_be_written(
    job: Job, trained: Path, command: Callable[..., Outcome], tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    for words in (
        ["info", "--data-root", job.tree, "--json"],
        ["evaluate", "--workspace", trained, "--json"],
        ["submit", "--workspace", trained, "--out"],
        ["rank", graph_path(job.tree, TILE, "valid", "expsum__a"), "--workspace", trained, "--json"],
    ):
        refused(command(*words, tmp_path / "file" / "result"), r"cannot write .*result")


def test_damaged_models_and_rows(trained: Path, command: Callable[..., Outcome]) -> None:
    (trained / "models" / "tile" / "cpu" / "model.json").write_text("{")
    refused(
        command("evaluate", "--workspace", trained, "-c", TILE), r"model\.json cannot be used .*run train again"
    )
    (trained / "features" / "tile" / "cpu" / "train" / "bmm__a.parquet").write_bytes(b"PAR1")
    refused(command("train", "--workspace", trained, "-c", TILE), r"bmm__a\.parquet cannot be read")
    (trained / "features" / "tile" / "cpu" / "train" / "manifest.json").write_text("{")
    refused(command("train", "--workspace", trained, "-c", TILE), r"manifest\.json cannot be read")


def test_names_in_square_brackets_are_shown_as_they_are(
    job: Job, trained: Path, command: Callable[..., Outcome], tmp_path: Path
) -> None:
    """They are not markup of the terminal."""
    tree = shutil.copytree(job.tree, tmp_path / "data[bold]")
    outcome = command("info", "--data-root", tree, "--json", tmp_path / "out[dim].json")
    assert outcome.code == 0
    assert f"data: {tree} " in outcome.out
    assert "out[dim].json" in outcome.out
    graph = save_npz(tmp_path / "[red]graph.npz", layout_graph(1))
    outcome = command("rank", graph, "--workspace", trained)
    assert "[red]graph: 24 configurations" in outcome.out


def test_a_closing_bracket_in_a_path_is_not_markup(
    job: Job, command: Callable[..., Outcome], tmp_path: Path
) -> None:
    tree = shutil.copytree(job.tree, tmp_path / "data[" / "old]")
    outcome = command("info", "--data-root", tree)
    assert outcome.code == 0
    assert f"data: {tree} " in outcome.out


def test_bad_input_from_a_real_shell(job: Job, tmp_path: Path) -> None:
    """Once for real what the tests above do inside their own process."""
    (tmp_path / "text.npz").write_text("hello")
    outcome = shell("rank", "text.npz", "--workspace", job.work, cwd=tmp_path, home=tmp_path)
    refused(outcome, r"text\.npz cannot be opened")
    outcome = shell("info", "--data-root", "absent", cwd=ROOT, home=tmp_path, script="run.py")
    refused(outcome, "absent .*does not exist")


# Help -----------------------------------------------------------------------------------------------------

HEAVY = ("numpy", "lightgbm", "polars", "pyarrow", "pandas", "scipy", "optuna", "xgboost", "networkx", "sklearn")


def test_help_imports_nothing_heavy(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-X", "importtime", str(ROOT / "run.py"), "--help"],
        cwd=tmp_path, capture_output=True, text=True, check=True,
    )  # fmt: skip
    imported = {line.rsplit("|", 1)[-1].strip() for line in done.stderr.splitlines() if "|" in line}
    assert "typer" in imported, "the list of imports was understood"
    assert not {name for name in imported if name.split(".")[0] in HEAVY}
    assert not {name for name in imported if name.split(".")[0] in ("features", "models", "pipelines")}
    for verb in ("info", "build-features", "tune", "train", "evaluate", "submit", "rank", "demo"):
        assert verb in done.stdout


@pytest.mark.parametrize("verb", ["tune", "train"])
def test_help_names_every_ranker(tmp_path: Path, verb: str) -> None:
    shown = shell(verb, "--help", cwd=tmp_path, home=tmp_path).out
    assert [name for name in RANKERS if name not in shown] == []


@pytest.mark.skipif(sys.platform == "win32", reason="no resource module")
@pytest.mark.parametrize("words", [["--help"], ["tune", "--help"]], ids=" ".join)
def test_help_is_quick(tmp_path: Path, words: list[str]) -> None:
    import resource

    def one() -> float:
        before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
        assert shell(*words, cwd=tmp_path, home=tmp_path).code == 0
        return resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before

    assert min(one(), one()) < 1.0, "seconds of processor time; the first may also compile"


# Ctrl-C ---------------------------------------------------------------------------------------------------

#: A test run in the background of a shell ignores SIGINT, and its children with it: undo that first.
_HEAR_SIGINT = (
    "import os, signal, sys; signal.signal(signal.SIGINT, signal.SIG_DFL); os.execv(sys.argv[1], sys.argv[1:])"
)
posix_only = pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")


def start(*words: object, cwd: Path) -> subprocess.Popen[str]:
    """A command in a process group of its own, as a terminal makes it."""
    return subprocess.Popen(
        [sys.executable, "-c", _HEAR_SIGINT, sys.executable, str(ROOT / "run.py"), *map(str, words)],
        cwd=cwd, env=environment(cwd), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        start_new_session=True,
    )  # fmt: skip


def interrupt(
    process: subprocess.Popen[str], when: Callable[[], bool], number: signal.Signals = signal.SIGINT
) -> Outcome:
    """What Ctrl-C does: the signal goes to the whole group."""
    deadline = time.monotonic() + 60
    try:
        while not when():
            assert process.poll() is None, "it was over too early"
            assert time.monotonic() < deadline
            time.sleep(0.005)
        os.killpg(process.pid, number)
        out, err = process.communicate(timeout=60)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
    assert "Traceback" not in out + err, err
    return Outcome(process.returncode, out, err)


def many_graphs(root: Path) -> Path:
    """Enough work for seconds."""
    first = save_npz(graph_path(root, LAYOUT, "train", "family0__0"), layout_graph(0))
    for number in range(1, 400):
        os.link(first, graph_path(root, LAYOUT, "train", f"family{number % 7}__{number}"))
    return root


@posix_only
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupted_build_keeps_what_is_done(tmp_path: Path, number: signal.Signals, code: int) -> None:
    many_graphs(tmp_path / "tree")
    folder = tmp_path / "work" / "features" / "layout" / "cpu" / "random" / "train"
    process = start("build-features", "--data-root", "tree", "--jobs", "1", cwd=tmp_path)
    outcome = interrupt(process, lambda: len(list(folder.glob("[!.]*.parquet"))) >= 3, number)
    assert outcome.code == code
    assert outcome.errors == ["error: interrupted; what was finished is kept, run the same command again to go on"]
    assert 3 <= len(list(folder.glob("[!.]*.parquet"))) < 400
    assert list(folder.glob(".partial-*")) == []


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="looks for worker processes in /proc")
def test_ctrl_c_while_workers_start(tmp_path: Path) -> None:
    """The workers hear it too, in the middle of their imports."""
    many_graphs(tmp_path / "tree")
    process = start("build-features", "--data-root", "tree", "--jobs", "2", cwd=tmp_path)
    seen: list[float] = []

    def workers_are_importing() -> bool:
        try:
            children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        except OSError:  # gone already: the caller will notice
            return False
        if len(children) >= 3:  # two workers and the tracker of resources
            seen.append(time.monotonic())
        return bool(seen) and time.monotonic() - seen[0] > 0.25

    outcome = interrupt(process, workers_are_importing)
    assert outcome.code == 130
    assert len(outcome.errors) == 1


@posix_only
def test_ctrl_c_while_tuning_keeps_the_best(job: Job, tmp_path: Path, command: Callable[..., Outcome]) -> None:
    shutil.copytree(job.work, tmp_path / "work")
    shutil.rmtree(tmp_path / "work" / "studies")
    best = tmp_path / "work" / "studies" / "tile" / "cpu" / "best-lambdarank.json"
    process = start("tune", "--trials", "100000", "--rounds", "10", "--threads", "1", "-c", TILE, cwd=tmp_path)
    outcome = interrupt(process, best.exists)
    assert outcome.code == 130
    assert outcome.errors == ["error: interrupted; what was finished is kept, run the same command again to go on"]
    assert json.loads(best.read_text())["model"] == "lambdarank"
    again = command("tune", "--trials", "1", "--rounds", "10", "--workspace", tmp_path / "work", "-c", TILE)
    assert again.code == 0
    assert re.search(rf"{TILE}\s*│\s*\d+\s*│\s*0\s*│", again.out), "nothing left to do"


#: A command whose work is replaced by a function that says when it has begun.
_STAND_IN = """
import signal, sys, time
signal.signal(signal.SIGINT, signal.SIG_DFL)
sys.path.insert(0, sys.argv.pop(1))
import xlarank.pipelines.info, xlarank.cli.app

def loses_it(*rest, **named):  # as a destructor or a library's bare except does
    print("begun", flush=True)
    while True:
        try:
            time.sleep(0.05)
        except BaseException:
            pass

def hides_it(*rest, **named):  # as a finally block with an error of its own does
    try:
        print("begun", flush=True)
        time.sleep(60)
    finally:
        raise UnboundLocalError("made up")

xlarank.pipelines.info.info = {"loses it": loses_it, "hides it": hides_it}[sys.argv.pop(1)]
xlarank.cli.app.main()
"""


@posix_only
@pytest.mark.parametrize(("library", "presses"), [("hides it", 1), ("loses it", 2)])
def test_ctrl_c_ends_the_program_whatever_a_library_makes_of_it(tmp_path: Path, library: str, presses: int) -> None:
    """The exception that Ctrl-C raises may turn up in the middle of any library; a second press is final."""
    process = subprocess.Popen(
        [sys.executable, "-c", _STAND_IN, str(ROOT), library, "info"],
        cwd=tmp_path, env=environment(tmp_path), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        while "begun" not in (line := process.stdout.readline()):
            assert line, "it ended before it began"
        for _ in range(presses):
            process.send_signal(signal.SIGINT)
            time.sleep(0.3)
        _, err = process.communicate(timeout=5)
    finally:
        process.kill()
        process.communicate()
    assert process.returncode == 130
    assert "Traceback" not in err
    assert "error: interrupted" in err


# Columns --------------------------------------------------------------------------------------------------


def test_a_column_is_explained(command: Callable[..., Outcome]) -> None:
    outcome = command("explain-feature", "padding__output_waste__max")
    assert outcome.code == 0
    assert "largest waste" in outcome.out and "padded size / true size" in outcome.out


def test_a_pattern_lists_its_columns(command: Callable[..., Outcome]) -> None:
    outcome = command("explain-feature", "propagation__*")
    assert outcome.code == 0 and outcome.out.count("propagation__") == 4


def test_an_unknown_column_is_one_clear_line(command: Callable[..., Outcome]) -> None:
    outcome = command("explain-feature", "paddin__output_waste__max")
    assert outcome.code == 1 and len(outcome.errors) == 1
    assert "padding__output_waste__max" in outcome.errors[0]


def test_a_long_list_of_graphs_is_cut_short(command: Callable[..., Outcome], tmp_path: Path) -> None:
    """Hundreds of tile kernels have one configuration only; they must not hide the table."""
    for number in range(25):
        arrays = tile_arrays()
        arrays["config_feat"][:] = arrays["config_feat"][0]
        save_npz(tmp_path / f"npz/tile/cpu/train/k__{number:02}.npz", arrays)
    outcome = command("info", "--data-root", tmp_path, "--json", tmp_path / "info.json")
    listed = [line for line in outcome.out.splitlines() if line.startswith("cannot be ranked")]
    assert len(listed) == 21
    assert listed[-1].endswith(": and 5 more")
    (part,) = json.loads((tmp_path / "info.json").read_text())
    assert len(part["unrankable"]) == 25
