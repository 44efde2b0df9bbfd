"""What every command takes: JSON, how much is said, numbers in their range, values from a file."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest

from tests.pipelines.trees import write_tree
from xlarank.cli.app import app
from xlarank.cli.common import moved_to_front


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A data tree below the current folder."""
    monkeypatch.chdir(tmp_path)
    write_tree(tmp_path / "small")
    return Path("small")


def test_json_on_standard_output_is_alone_there(small, command) -> None:
    done = command("info", "--data-root", small, "--json", "-")
    assert done.code == 0 and isinstance(json.loads(done.out), list)
    assert "data: " in done.err and not Path("-").exists()


def test_the_next_command_writes_its_tables_to_standard_output_again(small, command) -> None:
    command("info", "--data-root", small, "--json", "-")
    assert "data: " in command("info", "--data-root", small).out


def test_every_command_takes_json() -> None:
    from typer.main import get_command

    commands = get_command(app).commands  # type: ignore[attr-defined]
    without = [name for name, one in commands.items() if not any("--json" in part.opts for part in one.params)]
    assert without == ["demo"], "which runs other commands"


@pytest.mark.skipif(os.name != "posix", reason="pipes of posix")
@pytest.mark.parametrize("option", ["--json", "--out"])
def test_an_output_that_is_a_pipe_is_refused_before_the_work(small, command, option) -> None:
    os.mkfifo("pipe")
    done = command("submit", "--data-root", small, option, "pipe")
    assert done.code == 1 and "it is a pipe" in done.err
    assert stat.S_ISFIFO(os.stat("pipe").st_mode) and not Path("work").exists()


def test_a_submission_does_not_go_to_standard_output(small, command) -> None:
    assert "--out is -" in command("submit", "--data-root", small, "--out", "-").err


@pytest.mark.parametrize(
    ("verb", "asked"),
    [
        *((verb, ("--seed", "-1")) for verb in ("build-features", "tune", "train", "run-all")),
        *((verb, ("--seed", str(2**31))) for verb in ("build-features", "tune", "train", "run-all")),
        *((verb, ("--threads", "100000")) for verb in ("tune", "train", "cross-validate")),
        ("train", ("--threads", "-2")),
    ],
)  # fmt: skip
def test_numbers_are_refused_at_the_door(small, command, verb, asked) -> None:
    done = command(verb, "--data-root", small, *asked)
    assert done.code == 2 and asked[0] in done.err and not Path("work").exists()
    assert "No such option" not in done.err


@pytest.mark.parametrize(
    "words",
    [("tune", "--timeout", "nan"), ("run-all", "--budget-hours", "nan"), ("run-all", "--budget-ram-gb", "nan")],
    ids=" ".join,
)
def test_what_is_no_number_is_refused(small, command, words) -> None:
    assert command(*words, "--data-root", small).code == 2


def test_quiet_says_nothing_and_the_log_has_it_all(small, command) -> None:
    done = command("info", "--data-root", small, "--quiet", "--log-file", "logs/run.log")
    assert (done.code, done.out, done.err) == (0, "", "")
    logged = Path("logs/run.log").read_text()
    assert "data: " in logged and "collection" in logged
    command("info", "--data-root", small, "--log-file", "logs/run.log")
    assert Path("logs/run.log").read_text().startswith(logged), "a second command adds to it"


def test_verbose_names_each_step(small, command) -> None:
    assert "reading graphs: 1 of" in command("info", "--verbose", "--data-root", small).err


def test_quiet_and_verbose_exclude_each_other(command) -> None:
    assert command("info", "--quiet", "--verbose").code == 2


def test_values_of_a_file_are_taken_checked_and_recorded(small, command) -> None:
    Path("run.toml").write_text(
        f'data-root = "{small}"\nseed = 3\n[build-features]\ncollection = ["tile:cpu"]\n[train]\nrounds = 9\n'
    )
    done = command("build-features", "--config-file", "run.toml", "-c", "layout:cpu:random")
    assert done.code == 0 and "layout:cpu:random" in done.out and "tile" not in done.out, "words win over the file"
    (line,) = Path("work/reports/runs.jsonl").read_text().splitlines()
    entry = json.loads(line)
    assert entry["arguments"] == ["build-features", "--config-file", "run.toml", "-c", "layout:cpu:random"]
    assert entry["config"]["values"]["seed"] == 3 and entry["exit"] == 0
    Path("run.toml").write_text("[train]\nseed = -1\n")
    assert command("train", "--config-file", "run.toml").code == 2


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("roundz = 3", "names roundz, which is not an option of any command; expected rounds"),
        ("[info]\nrounds = 3", "names rounds, which is not an option of info"),
        ("[trian]\nrounds = 3", "which is not a command; expected train"),
        ("= 3", "cannot be read"),
    ],
)
def test_a_file_of_values_that_means_nothing(small, command, text, said) -> None:
    Path("run.toml").write_text(text)
    done = command("info", "--config-file", "run.toml")
    assert done.code == 1 and said in done.err


def test_what_stands_behind_two_dashes_is_left_alone() -> None:
    assert moved_to_front(["rank", "--", "--quiet"]) == ["rank", "--", "--quiet"]
    assert moved_to_front(["rank", "x", "--log-file=a"]) == ["--log-file=a", "rank", "x"]


def test_info_tells_of_what_it_does_not_read(small, command) -> None:
    for place in ("layout/cpu/random/validation/a.npz", "tile/cpu/train/b.NPZ"):
        path = small / "npz" / place
        path.parent.mkdir(exist_ok=True)
        path.touch()
    done = command("info", "--data-root", small)
    assert done.code == 0 and done.out.count("skipped:") == 2 and "rename the folder to valid" in done.out


def test_a_mistyped_workspace_is_not_submitted_from(small, command) -> None:
    done = command("submit", "--data-root", small, "--workspace", "wrok")
    assert done.code == 1 and "the workspace wrok does not exist" in done.err and not Path("wrok").exists()


def test_strict_fails_where_a_graph_is_not_ranked(small, command) -> None:
    command("train", "--data-root", small, "--rounds", "5", "--seeds", "1", "-c", "layout:cpu:random")
    done = command("submit")
    assert done.code == 0 and "default order: tile:cpu" in done.out
    assert "note: 2 of 4 rows are not ranked by a model: default order" in done.out
    assert command("submit", "--strict").code == 1


def test_what_is_built_first_is_said(small, command) -> None:
    done = command("evaluate", "--data-root", small, "--workspace", "new")
    assert "the workspace new has no features: building those of all collections of small first" in done.out


def test_a_folder_is_ranked(small, command) -> None:
    command("train", "--data-root", small, "--rounds", "5", "--seeds", "1", "-c", "tile:cpu")
    done = command("rank", small / "npz/tile/cpu/test", "--csv", "out.csv", "--json", "-")
    assert done.code == 0 and set(json.loads(done.out)) == {"sort__a", "sort__b"}
    assert (
        Path("out.csv")
        .read_text()
        .startswith("graph,model,rank,configuration,score,runtime_ns,identical,speedup\nsort__a,")
    )
