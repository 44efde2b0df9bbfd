"""Bad input and interruptions: one clear line, a telling exit code, and finished work is kept."""

import contextlib
import errno
import io
import json
import os
import random
import re
import shutil
import signal
import sys
import time
import warnings
from pathlib import Path
from unittest import mock

import pytest

from tests.cli.conftest import ended, here, refused, start
from tests.graphs import save_npz
from tests.pipelines.trees import LAYOUT, TILE, graph_path, layout_graph, write_tree
from xlarank.cli import app, console

KEPT = "error: interrupted; no file is left half-written, run the same command again"


@pytest.mark.slow
def test_names_and_paths_that_cannot_be_used_are_refused(job, trained, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("file").write_text("in the way")
    root = ["--data-root", job.tree]
    work = ["--workspace", trained]
    build = ["build-features", *root, "--workspace"]
    result = tmp_path / "file" / "result"
    absent = r"absent \(--data-root\) does not exist; .*pass --data-root or set XLARANK_DATA"
    in_the_way = r"the workspace .*file cannot be written .*pass another"
    unknown = rf"'layout:cpu:randm' is not in .*did you mean {LAYOUT}"
    for words, message in (
        (["info", "--data-root", "absent"], absent),
        (["submit", "--data-root", "absent"], absent),
        (["tune", *root, "--workspace", "file"], in_the_way),
        ([*build, "file"], in_the_way),
        (["evaluate", *work, *root, "--collection", "layout:cpu:randm"], unknown),
        ([*build, "w" * 300], "File name too long"),
        (["info", *root, "--json", result], r"cannot write .*result"),
        (["submit", *work, "--out", result], r"cannot write .*result"),
        (["tune", *work, "--storage", "nonsense://x"], "storage .*cannot be used .*check --stor"),
    ):
        refused(words, message)
    assert not Path("work").exists()
    monkeypatch.setenv("XLARANK_DATA", "absent")
    refused(["info"], r"absent \(XLARANK_DATA\) does not exist")


def test_no_output_replaces_an_input_or_another_output(job, trained, tmp_path, monkeypatch):
    """The first graph is named by links, too; no command begins to work."""
    monkeypatch.chdir(tmp_path)
    data = tmp_path / "data"
    shutil.copytree(job.tree / "npz", data / "npz")
    graph = graph_path(data, LAYOUT, "valid", "mlp__a")
    inputs = {path: path.read_bytes() for path in (*data.rglob("*.npz"), *trained.rglob("*.json"))}
    for name, link in (("soft.npz", os.symlink), ("hard.npz", os.link)):
        link(graph, name)
    for name in ("scores.csv", "mine.py"):
        inputs[Path(name)] = b"# kept\n"
        Path(name).write_bytes(inputs[Path(name)])
    binary = "it is a binary file, such as a graph"
    folder = os.path.relpath(graph.parent)
    for line, why in (
        (f"rank {graph} --csv {graph}", binary),
        (f"rank {graph} --csv soft.npz", binary),
        ("rank soft.npz --json hard.npz", binary),
        (f"rank {graph} --out soft.npz", "--out soft.npz is the same file as graph"),
        (f"rank {folder} --csv {folder}/mlp__a.npz", binary),
        (f"submit --workspace {trained} --out {graph}", binary),
        ("evaluate --scores scores.csv --json ./scores.csv", "same file as --scores scores.csv"),
        ("advise mine:program --json mine.py", "mine.py is the same file as program mine:program"),
        (f"rank {graph} --csv one --json ./one", "--json one is the same file as --csv one"),
    ):
        refused(line.split(), re.escape(why))
    assert {path: path.read_bytes() for path in inputs} == inputs
    assert not (tmp_path / "one").exists() and not (tmp_path / "work").exists()
    done = here("rank", graph, "--target", "cpu", "--csv", "cpu")
    assert done.code == 0 and Path("cpu").exists(), "words that name no file are no inputs"


def test_usage_errors_exit_with_2(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for words in ("tune --timeout -1", "train --seeds 0", "info --quiet --verbose"):
        outcome = here(*words.split())
        assert (outcome.code, outcome.out) == (2, "") and "Error" in outcome.err, words
    assert list(tmp_path.iterdir()) == []


def test_a_broken_file_makes_commands_fail_after_their_work(tree, trained, tmp_path):
    graph_path(tree, TILE, "test", "swish__a").write_bytes(b"no zip")
    for words in (["info"], ["build-features", "--workspace", trained]):
        outcome = here(*words, "--data-root", tree)
        assert outcome.code == 1 and "swish__a: cannot be opened" in outcome.errors[0]
        assert "1 broken file; all others were processed" in outcome.errors[-1]
    few = ("--rounds", "20", "--seeds", "1")
    outcome = here("train", "--workspace", tmp_path / "new", "--data-root", tree, *few)
    assert outcome.code == 1 and "swish__a" in outcome.errors[0], "built first"
    assert (tmp_path / "new/models/layout/cpu/random/model.json").exists()
    outcome = here("submit", "--workspace", trained, "--out", tmp_path / "out.csv")
    assert outcome.code == 1 and "swish__a" in outcome.errors[0]
    assert f"{LAYOUT}:gru__a" in (tmp_path / "out.csv").read_text()


def test_names_of_files_are_shown_as_they_are_or_escaped(job, trained, tmp_path):
    """They are no markup of the terminal, and may have any bytes: in tables, errors, the report."""
    for name in ("data[bold]", "data[/old]"):
        tree = Path(shutil.copytree(job.tree, tmp_path / name))
        outcome = here("info", "--data-root", tree, "--json", tmp_path / "out[dim].json")
        assert outcome.code == 0
        assert f"data: {tree} " in outcome.out and "out[dim].json" in outcome.out
    graph = save_npz(tmp_path / "[red]graph.npz", layout_graph(1))
    assert "[red]graph: 24 configurations" in here("rank", graph, "--target", "cpu").out
    whole = graph_path(tree, TILE, "test", "swish__a").read_bytes()
    folder = os.fsencode(tree / "npz/tile")
    for name in (b"cpu/test/bad\xff", b"x\x1b[31my/test/a"):
        path = os.path.join(folder, name + b".npz")
        os.makedirs(os.path.dirname(path), exist_ok=True)
        Path(os.fsdecode(path)).write_bytes(whole)
    assert r"tile:x\x1b[31my" in here("info", "--data-root", tree).out
    words = ["--data-root", tree, "--workspace", trained]
    outcome = here("build-features", *words)
    assert outcome.code == 1 and "\x1b" not in outcome.out + outcome.err


def test_a_stream_without_unicode_gets_escapes(monkeypatch):
    stream = io.TextIOWrapper(io.BytesIO(), "ascii")
    monkeypatch.setattr(sys, "stdout", stream)
    app._require_streams()
    console.say("0.641 ± 0.200 of é")
    assert stream.buffer.getvalue() == rb"0.641 \xb1 0.200 of \xe9" + b"\n"


@pytest.mark.slow
def test_ctrl_c_while_libraries_are_imported_is_one_line(tmp_path):
    for seconds in (0.1, 0.2, 0.3):
        process = start("info", "--data-root", "absent", cwd=tmp_path)
        time.sleep(seconds)
        os.killpg(process.pid, signal.SIGINT)
        outcome = ended(process)
        assert outcome.code in (-signal.SIGINT, 1, 130) and len(outcome.err.splitlines()) <= 1


def test_a_full_disk_is_not_a_matter_of_permissions(monkeypatch, trained):
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    monkeypatch.setattr("xlarank.models.member.Member.save", mock.Mock(side_effect=full))
    words = ["train", "--workspace", trained, "-c", LAYOUT, "--rounds", "5", "--seeds", "1"]
    refused(words, "cannot write .*No space left on device.*make room and run the same command")


def test_too_little_memory_is_reported_in_one_line(monkeypatch, capfd):
    outer = ValueError("an error of a library")
    outer.__cause__ = MemoryError()
    monkeypatch.setattr("xlarank.data.collection.find_data_root", mock.Mock(side_effect=outer))
    assert here("info").code == 1
    assert capfd.readouterr().err.startswith("error: not enough memory; ")


def test_a_closed_standard_output_is_refused(tree, monkeypatch):
    # sys.stdout is None after `>&-`
    closed = mock.patch.object(sys, "stdout", None)
    monkeypatch.setattr(contextlib, "redirect_stdout", lambda _: closed)
    refused(["info", "--data-root", tree], "standard output is closed")


def interrupt(process, when, number=signal.SIGINT):
    """Send the signal to the whole group, as Ctrl-C does."""
    deadline = time.monotonic() + 240
    try:
        while not when():
            assert process.poll() is None, "it was over too early"
            assert time.monotonic() < deadline
            time.sleep(0.005)
        os.killpg(process.pid, number)
        return ended(process, timeout=60)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()


def many_graphs(root):
    first = save_npz(graph_path(root, LAYOUT, "train", "family0__0"), layout_graph(0))
    for number in range(1, 200):
        os.link(first, graph_path(root, LAYOUT, "train", f"family{number % 7}__{number}"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "number"), [("--jobs 1", signal.SIGTERM), ("--jobs 2", signal.SIGINT)]
)
def test_an_interrupted_build_keeps_finished_graphs(tmp_path, options, number):
    many_graphs(tmp_path / "tree")
    folder = tmp_path / "work/features/layout/cpu/random/train"
    process = start("build-features", "--data-root", "tree", *options.split(), cwd=tmp_path)
    outcome = interrupt(process, lambda: list(folder.glob("[!.]*.parquet")), number)
    assert (outcome.code, outcome.errors) == (128 + number, [KEPT])
    assert list(folder.glob("[!.]*.parquet"))
    assert list(folder.glob(".partial-*")) == []


@pytest.mark.slow
def test_ctrl_c_while_tuning_keeps_the_best(job, tmp_path):
    shutil.copytree(job.work, tmp_path / "work", ignore=shutil.ignore_patterns("studies"))
    best = tmp_path / "work/studies/tile/cpu/best-lambdarank.json"
    words = f"--rounds 10 --threads 1 -c {TILE}".split()
    process = start("tune", "--trials", "100000", *words, cwd=tmp_path)
    outcome = interrupt(process, best.exists)
    assert (outcome.code, outcome.errors) == (130, [KEPT])
    assert json.loads(best.read_text())["model"] == "lambdarank"
    again = here("tune", "--trials", "1", "--workspace", tmp_path / "work", *words)
    assert again.code == 0 and re.search(rf"{TILE}\s+\d+\s+0", again.out), "nothing left to do"


@pytest.mark.slow
def test_a_warning_is_one_line_without_a_path_of_python(monkeypatch, capfd):
    def warn(**_):
        warnings.warn("program.pb: element types\n that ...", stacklevel=1)

    monkeypatch.setattr(app, "commands", lambda: warn)
    monkeypatch.setattr(sys, "argv", ["run.py"])
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        app.main()
    assert capfd.readouterr() == ("", "note: program.pb: element types that ...\n")


def test_an_interruption_that_a_library_hides_is_still_reported(monkeypatch, capfd):
    """Ctrl-C may raise its exception inside any library; a second press is final."""

    def replaces_it(*_, **__):  # as an error in a finally block does
        try:
            signal.raise_signal(signal.SIGINT)
        finally:
            raise UnboundLocalError("made up")

    def swallows_it(*_, **__):  # as a destructor or a library's bare except does
        with contextlib.suppress(BaseException):
            signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
        raise AssertionError("a second press ends the program")

    monkeypatch.setattr(app, "_GRACE", 1000.0)
    monkeypatch.setattr(os, "_exit", sys.exit)
    for library in (replaces_it, swallows_it):
        monkeypatch.setattr("xlarank.pipelines.info.info", library)
        monkeypatch.setattr(app, "_received", [])
        assert here("info", "--collection", TILE).code == 130
        assert "error: interrupted" in capfd.readouterr().err


#: Options and outputs by command.
COMMANDS = {
    "build-features": ("", "work/**/[!.]*.parquet"),  # SIGKILL leaves parts with hidden names
    "train": ("--seeds 1 --rounds 10 --threads 1", "work/**/booster.txt"),
    "evaluate": ("--json out.json", "out.json"),
    "submit": ("--out out.csv", "out.csv"),
}


@pytest.mark.slow
@pytest.mark.exhaustive
def test_commands_killed_at_random_moments_and_run_again_give_the_same_results(tmp_path):
    # In another folder all graphs would be built again.
    folder, before = (tmp_path / "folder", tmp_path / "before")
    write_tree(folder / "tree")
    for command, (options, outputs) in COMMANDS.items():
        words = f"{command} --data-root tree {options}".split()
        rng = random.Random(command)
        shutil.copytree(folder, before)
        began = time.monotonic()
        assert ended(start(*words, cwd=folder)).code == 0
        seconds = time.monotonic() - began
        expected = [path.read_bytes() for path in sorted(folder.glob(outputs))]
        assert expected
        for number in (signal.SIGKILL, signal.SIGTERM) * 2:
            shutil.rmtree(folder)
            shutil.copytree(before, folder)
            process = start(*words, cwd=folder)
            time.sleep(rng.uniform(0.2, 1.0) * seconds)
            os.killpg(process.pid, number)
            ended(process, timeout=60)
            assert ended(start(*words, cwd=folder)).code == 0
            again = [path.read_bytes() for path in sorted(folder.glob(outputs))]
            assert again == expected, (command, number)
        shutil.rmtree(before)
