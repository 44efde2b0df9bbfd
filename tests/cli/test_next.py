"""The last line of a command is the next command, which works as it is."""

from __future__ import annotations

import shlex
import shutil
from pathlib import Path

import pytest

from tests.cli.conftest import LAYOUT, SAMPLE, TILE, Job, Outcome, here, refused
from tests.graphs import save_npz, tile_arrays
from tests.pipelines.trees import graph_path
from xlarank.cli.app import GUIDES, commands
from xlarank.cli.record import Run


def next_words(done: Outcome) -> list[str]:
    """Return the arguments of the next command, without the remark; none if there is no such line."""
    lines = [line for line in done.out.splitlines() if line.startswith("next: ")]
    assert len(lines) <= 1
    return shlex.split(lines[0].removeprefix("next: python run.py "), comments=True) if lines else []


@pytest.mark.parametrize("name", sorted(name for name, guide in GUIDES.items() if guide.then))
def test_the_next_command_parses(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    words = Run().words | {"work": " --workspace w", "collection": " -c tile:cpu", "model": " --model ranknet"}
    line = GUIDES[name].then.format(**words, file="x.npz")
    command, *arguments = shlex.split(line, comments=True)
    commands().commands[command].make_context(command, arguments)


@pytest.mark.parametrize(
    ("first", "names"),
    [
        ("train", ["evaluate", "leaderboard"]),
        ("submit", ["check-submission"]),
        ("rank", ["explain", "explain-feature"]),
    ],
)
def test_the_next_commands_work(
    first: str, names: list[str], job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(shutil.copytree(job.folder, tmp_path / "elsewhere"))
    words = next_words(job.outcomes[first])
    for name in names:
        assert words[0] == name
        done = here(*words)
        assert done.code == 0, done.err
        words = next_words(done)
    assert words == []


def test_options_are_kept(job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    expected = {"info": ["build-features", "--data-root", "tree"], "tune": ["train", "--model", "lambdarank"]}
    assert {name: next_words(job.outcomes[name]) for name in expected} == expected
    done = here("info", "--data-root", job.tree, "-c", "tile:*")
    assert next_words(done) == ["build-features", "--data-root", str(job.tree), "-c", "tile:*"]
    done = here(*next_words(done), "--tier", "fast", "--workspace", "my work")
    assert next_words(done) == ["train", "--workspace", "my work", "-c", "tile:*"]
    graph = graph_path(SAMPLE, TILE, "valid", "bmm_tb__a")
    done = here("rank", graph, "--workspace", job.work, "-c", TILE)
    assert next_words(done) == ["explain", str(graph), "--workspace", str(job.work), "-c", TILE]
    assert next_words(here("rank", graph.parent, "--workspace", job.work)) == [], "explain takes one graph"


def test_standard_output_is_refused_by_the_name_of_the_option() -> None:
    refused(["leaderboard", "--csv", "-"], "--csv is -; expected the name of a file")
    refused(["explain", "x.npz", "--svg", "-"], "--svg is -")


def test_a_narrow_leaderboard_is_a_table(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(job.folder)
    names: dict[str, list[str]] = {}
    for width in ("120", "200"):
        monkeypatch.setenv("COLUMNS", width)
        out = here("leaderboard", "-c", LAYOUT).out
        assert f"collection: {LAYOUT}" not in out and "  scored on: " not in out
        names[width] = next(line for line in out.splitlines() if "ranker" in line).split()
    assert {"version", "when"}.isdisjoint(names["120"]) and {"version", "when"} <= set(names["200"])


def test_graphs_that_cannot_be_ranked_share_a_line(tmp_path: Path) -> None:
    arrays = tile_arrays()
    arrays["config_feat"][:] = arrays["config_feat"][0]
    for number in range(5):
        save_npz(tmp_path / f"npz/tile/cpu/train/k__{number}.npz", arrays)
    for words in (["info"], ["build-features", "--tier", "fast", "--workspace", tmp_path / "work"]):
        out = here(*words, "--data-root", tmp_path).out
        (line,) = [line for line in out.splitlines() if line.startswith("cannot be ranked")]
        assert "(tile:cpu train): k__0, k__1, k__2 and 2 more: one distinct configuration" in line


def test_the_data_line_has_no_nested_brackets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XLARANK_DATA", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    (line,) = [line for line in here("info", "-c", TILE).out.splitlines() if line.startswith("data: ")]
    assert line.count("(") == 1 and "the embedded sample: no --data-root" in line
