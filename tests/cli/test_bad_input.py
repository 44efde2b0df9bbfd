"""Bad input ends in one clear line and an exit code that tells."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cli.conftest import Job
from tests.cli.shell import LAYOUT, ROOT, SAMPLE, TILE, Outcome, environment, refused, shell
from tests.graphs import save_npz, tile_arrays
from tests.pipelines.trees import graph_path, layout_graph


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
    refused(command("tune", *there, "--storage", "nonsense://x"), "storage .*cannot be used .*check --storage")
    refused(
        command("evaluate", *there, "-c", LAYOUT, "--official-indices", tmp_path / "absent"),
        r"the official indices .*cpu_random\.json",
    )


def test_a_database_that_cannot_be_made(trained: Path, command: Callable[..., Outcome], tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/no/such/folder.db"
    refused(command("tune", "--workspace", trained, "--storage", url), "storage .*cannot be used .*check --storage")


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
        assert re.search(rf"{TILE} train bmm__a: cannot be opened", named)
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
    tile = graph_path(SAMPLE, TILE, "valid", "bmm_tb__a")
    refused(command("rank", tile, "--workspace", trained), "there is no trained tile model .*run train first")
    layout = command("rank", graph_path(SAMPLE, LAYOUT, "valid", "mlp__a"), "--workspace", trained)
    assert layout.code == 0 and "this one came with xlarank" in layout.out


def test_files_that_cannot_be_ranked(trained: Path, command: Callable[..., Outcome], tmp_path: Path) -> None:
    (tmp_path / "text.npz").write_text("hello")
    save_npz(tmp_path / "half.npz", {"node_feat": tile_arrays()["node_feat"]})
    for name, said in (
        ("absent.npz", r"absent\.npz does not exist"),
        ("text.npz", r"text\.npz cannot be opened"),
        ("half.npz", r"half\.npz: array .* is missing"),
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


@pytest.mark.slow
def test_bad_input_from_a_real_shell(job: Job, tmp_path: Path) -> None:
    """Once for real what the tests above do inside their own process."""
    (tmp_path / "text.npz").write_text("hello")
    outcome = shell("rank", "text.npz", "--workspace", job.work, cwd=tmp_path, home=tmp_path)
    refused(outcome, r"text\.npz cannot be opened")
    outcome = shell("info", "--data-root", "absent", cwd=ROOT, home=tmp_path, script="run.py")
    refused(outcome, "absent .*does not exist")


#: The command line where no file may grow beyond so many bytes: what a full disk says, without one.
_LIMITED = """
import resource, runpy, signal, sys
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
most = int(sys.argv.pop(1))
resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
sys.argv.pop(0)
runpy.run_path(sys.argv[0], run_name="__main__")
"""


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="limits of a process are POSIX's")
def test_a_disk_that_is_full_while_a_library_writes(job: Job, tmp_path: Path) -> None:
    """Optuna's journal is written by Optuna."""
    work = Path(shutil.copytree(job.work, tmp_path / "work"))
    most = max(journal.stat().st_size for journal in work.glob("studies/**/journal.log")) + 300
    done = subprocess.run(
        [
            sys.executable, "-c", _LIMITED, str(most), str(ROOT / "run.py"), "tune", "--workspace", str(work),
            "--trials", "5", "--rounds", "10", "--threads", "1",
        ],
        cwd=tmp_path, env=environment(tmp_path), capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    refused(Outcome(done.returncode, done.stdout, done.stderr), r"cannot be written .*make room and run")


@pytest.mark.parametrize(
    ("workspace", "said"),
    [("w" * 300, "File name too long"), ("w\udcff", r"the path '.*w.udcff.*' is not valid UTF-8")],
    ids=["too long", "not UTF-8"],
)
def test_a_workspace_whose_name_no_file_system_or_library_takes(
    tree: Path, command: Callable[..., Outcome], tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    workspace: str, said: str,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    refused(command("build-features", "--data-root", tree, "--workspace", workspace, "--tier", "fast"), said)


@pytest.mark.parametrize("error", [MemoryError(), RuntimeError("can't start new thread")])
def test_too_little_memory_is_said_in_one_line(
    command: Callable[..., Outcome], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str],
    error: Exception,
) -> None:  # fmt: skip
    def fail(*_: object) -> None:
        raise ValueError("what a library makes of it") from error

    monkeypatch.setattr("xlarank.data.root.find_data_root", fail)
    assert command("info").code == 1
    assert capfd.readouterr().err.startswith("error: not enough memory; ")


def test_a_closed_standard_output_is_an_error_and_no_columns_are_those_of_a_file(
    tree: Path, command: Callable[..., Outcome], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "0")
    assert TILE in command("info", "--data-root", tree).out
    monkeypatch.setattr(contextlib, "redirect_stdout", lambda _: _without_stdout())
    refused(command("info", "--data-root", tree), "standard output is closed")


@contextlib.contextmanager
def _without_stdout() -> Iterator[None]:
    before, sys.stdout = sys.stdout, None  # as Python finds it with `>&-`
    try:
        yield
    finally:
        sys.stdout = before
