"""Options and output of every command: JSON, values from a file, help, tables and bars."""

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import typer

from tests.cli.conftest import ROOT, environment, here, refused
from tests.graphs import layout_arrays, save_npz, tile_arrays
from tests.pipelines.trees import LAYOUT, TILE, graph_path, write_tree
from xlarank.cli import console
from xlarank.cli.app import NEXT, commands, examples_of
from xlarank.cli.dataset import LABELS
from xlarank.cli.options import RANKERS, moved_to_front
from xlarank.cli.scoring import score_rows
from xlarank.data.collection import SAMPLE
from xlarank.models.losses import rankers


@pytest.fixture
def small(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    write_tree(tmp_path / "small")
    return Path("small")


def test_json_is_alone_on_standard_output(small):
    done = here("info", "--data-root", small, "-c", "layout:*", "--json", "-")
    assert done.code == 0 and {part["collection"] for part in json.loads(done.out)} == {LAYOUT}
    assert "next: python run.py build-features --data-root small" in done.err
    assert "data: " in done.err and not Path("-").exists()
    assert "data: " in here("info", "--data-root", small).out, "the next one prints its tables"


def test_rows_older_than_their_files_are_named_and_built_again(small):
    assert here("build-features", "--data-root", small).code == 0
    path = graph_path(small, LAYOUT, "test", "omega__a")
    arrays = dict(np.load(path))
    for name in ("config_runtime", "node_config_feat"):
        arrays[name] = arrays[name][:7]
    save_npz(path, arrays)
    words = ("submit", "-c", LAYOUT, "--model-from", "shipped")
    done = here(*words)
    older = f"the test rows of {LAYOUT} are older than their files (omega__a: changed)"
    assert done.code == 0 and f"note: {older}; building them again" in done.out
    lines = Path("submission.csv").read_text().splitlines()
    (order,) = [line.split(",")[1] for line in lines if ":omega__a," in line]
    assert sorted(map(int, order.split(";"))) == list(range(7))
    assert here("check-submission", "submission.csv", "-c", LAYOUT).code == 0
    assert "older" not in here(*words).out, "once"


def test_an_output_that_is_a_pipe_is_refused_before_the_work(small):
    os.mkfifo("pipe")
    pipe = "a device or a pipe"
    for option, message in (("--out pipe", pipe), ("--out -", "--out is -")):
        refused(["submit", "--data-root", small, *option.split()], message)
    assert Path("pipe").is_fifo() and not Path("work").exists()


def test_quiet_and_verbose(small):
    done = here("info", "--data-root", small, "--quiet")
    assert (done.code, done.out, done.err) == (0, "", "")
    (small / "npz/layout/cpu/random/validation").mkdir()
    for name in ("layout/cpu/random/validation/a.npz", "tile/cpu/train/b.NPZ"):
        (small / "npz" / name).touch()
    done = here("info", "--verbose", "--data-root", small)
    assert done.code == 0 and "reading graphs: 1 of" in done.err
    assert done.out.count("skipped:") == 2 and "<split> one of train, valid" in done.out
    # no option, after two dashes
    assert moved_to_front(["rank", "--", "--quiet"]) == ["rank", "--", "--quiet"]


@pytest.mark.slow
def test_missing_collections_are_built_from_the_root_of_the_workspace_unless_it_is_gone(small):
    here("build-features", "--data-root", small, "-c", TILE)
    small.rename("elsewhere")
    refused(["train", "-c", LAYOUT], "small .* does not exist; .*pass --data-root")
    Path("elsewhere").rename(small)
    done = here("cross-validate", "--model", "lambdarank", "-c", LAYOUT)
    assert done.code == 0 and f"building features of {LAYOUT} of " in done.out
    assert "(of the workspace work)" in done.out and "--data-root" not in done.out


@pytest.mark.slow
def test_build_train_rank_and_submit_from_nothing(small):
    done = here("train", "--data-root", small, "--rounds", "5", "--seeds", "1", "-c", LAYOUT)
    assert f"building features of {LAYOUT} of small, which work lacks" in done.out
    assert not Path("work/features/tile").exists(), "nothing is built that was not asked for"
    folder = graph_path(small, LAYOUT, "test", "x").parent
    done = here("rank", folder, "--csv", "out.csv", "--json", "-")
    assert done.code == 0 and set(json.loads(done.out)) == {"omega__a", "omega__b"}
    header = "graph,model,rank,configuration,score,runtime_ns,identical,speedup"
    assert Path("out.csv").read_text().startswith(f"{header}\nomega__a,")
    assert "wrote submission.csv: 4 rows, checked" in here("submit").out
    assert not Path("work/features/tile").exists()
    Path("work/models/layout/cpu/random/model.json").write_text("{")
    done = here("submit")
    (error,) = done.errors
    assert done.code == 1 and "2 of 4 test graphs are in the order of their files (" in error


def test_many_broken_files_are_printed_in_few_lines(capsys):
    def printed(reasons, verbose=False):
        console.current_run.verbose = verbose
        with pytest.raises(typer.Exit, match="1"):
            console.finish({f"tile:cpu train net__{i}": why for i, why in enumerate(reasons)})
        console.current_run.verbose = False
        return capsys.readouterr().err.splitlines()

    for why in ("net__0.npz: it has a cycle", "net__0.npz it has a cycle"):
        assert printed([why])[0] == "error: tile:cpu train net__0: it has a cycle"
    broken = [f"net__{i}.npz: no zip" for i in range(191)]
    first = ", ".join(f"tile:cpu train net__{number}" for number in range(3))
    assert printed(broken) == [
        f"error: {first} and 188 more: no zip",
        "error: 191 broken files; all others were processed",
    ]
    assert printed(broken, verbose=True)[0].count("net__") == 191
    forged = printed(["\nerror: all is lost"])[0]
    assert forged.endswith("\\nerror: all is lost"), "no file name forges a line"
    lines = printed([f"reason {i}" for i in range(60)])
    assert len(lines) == 22 and lines[20] == "error: and 40 more; --verbose lists all"


def test_info_of_a_file_shows_the_noise_of_its_labels(small):
    """Of two identical ones, one is 1 % slower: log 1.01 / sqrt(2) around their mean."""
    arrays = tile_arrays()
    arrays["config_feat"] = np.tile(arrays["config_feat"][:1], (4, 1))
    arrays["config_feat"][:, 0] = (1, 2, 4, 4)
    arrays["config_runtime"] = np.array([20_000, 30_000, 40_000, 40_400])
    arrays["config_runtime_normalizers"] = np.full(4, 25_000)
    tile = save_npz(small / "tile.npz", arrays)
    layout = save_npz(small / "graph.npz", layout_arrays())
    done = here("info", tile, "--json", "labels.json")
    counts = {"configurations": 4, "measured": 4, "distinct": 3}
    expected = counts | {"best_ns": 20_000, "default_ns": 25_000}
    expected["repeat_std"] = pytest.approx(np.log(1.01) / np.sqrt(2))
    assert json.loads(Path("labels.json").read_text()) == expected
    assert done.code == 0 and re.search(r"noise of identical configurations +0.7036 ?%", done.out)
    assert "next: python run.py rank small/tile.npz\n" in done.out
    averaged = graph_path(SAMPLE, LAYOUT, "valid", "mlp__a")
    assert "noise" not in here("info", averaged).out, "duplicates share a label"
    names = LABELS.keys() - {"best_ns", "default_ns"}
    assert json.loads(here("info", layout, "--json", "-").out).keys() == names
    both = "tile.npz and a data root or collection are named"
    refused(["info", tile, "--data-root", small], both)
    refused(["info", small], "small is a folder; expected .* npz file; pass --data-root small")


@pytest.mark.slow
def test_help_imports_nothing_heavy_and_is_quick(tmp_path):
    words = [sys.executable, "-X", "importtime", str(ROOT / "run.py"), "--help"]
    place = {"cwd": tmp_path, "env": environment(tmp_path)}
    seconds = [os.times().children_user]
    for _ in range(2):  # the first may also compile
        done = subprocess.run(words, **place, capture_output=True, text=True, check=True)
        seconds.append(os.times().children_user)
    assert min(np.diff(seconds)) < 1.0, "processor time"
    imported = {line.rsplit("|", 1)[-1].strip() for line in done.stderr.splitlines() if "|" in line}
    assert "typer" in imported, "the list of imports was understood"
    heavy = "numpy lightgbm polars pyarrow pandas scipy optuna xgboost networkx sklearn".split()
    ours = ("xlarank.features", "xlarank.models", "xlarank.pipelines.")
    imported -= {"xlarank.pipelines.support", "xlarank.pipelines.support.progress"}
    assert not {name for name in imported if name.split(".")[0] in heavy or name.startswith(ours)}
    assert [name for name in commands().commands if name not in done.stdout] == []


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(commands().commands))
def test_help_fits_a_screen_and_its_examples_parse_as_does_the_next_command(
    name, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    shown = here(name, "--help").out
    _, _, listed = shown.partition("─ Options ─")
    assert listed.count("\n│") <= 24, "one screen"
    examples = examples_of(name)
    for example in examples:
        assert f"python run.py {example}" in " ".join(shown.split()) and example.split()[0] == name
    kept = {"info": "build-features", "train": "cross-validate"}.get(name, "x.npz")
    words = {"workspace": " --workspace w", "collection": " -c tile:cpu", "kept": kept}
    words["model"] = " --model ranknet"
    words |= dict.fromkeys(("data_root", "model_from", "target"), "")
    for line in filter(None, (*examples, NEXT.get(name, "").format(**words))):
        command, *arguments = shlex.split(line, comments=True)
        commands().commands[command].make_context(command, arguments)


def test_every_command_and_ranker_has_its_words_and_options_of_one_name_mean_the_same():
    params = [part for command in commands().commands.values() for part in command.params]
    for name in ("seed", "threads", "workspace", "data_root"):
        assert len({part.help for part in params if part.name == name}) == 1
    assert all(part.help for part in params)
    for name, command in commands().commands.items():
        words = {*re.findall(r"{(\w+)}", NEXT.get(name, ""))} - {"kept"}
        assert words <= {part.name for part in command.params}
    names = commands().commands.keys()
    assert NEXT.keys() < names and all(map(examples_of, names)) and [*RANKERS] == rankers()
    shown = here("tune", "--help").out
    assert [name for name in rankers() if name not in shown] == []
    shown = [here(*shlex.split(example)).out for example in examples_of("explain-feature")]
    assert len(shown) == 2 and all(shown), "by name and by pattern"


def test_scores_have_a_column_of_ceilings_and_a_lone_graph_has_no_spread():
    several = {"mean": 0.5, "std": 0.1, "low": 0.4, "high": 0.6, "graphs": {"a": 0.4, "b": 0.6}}
    report = {"tau": several | {"ceiling": {"a": 0.7}}, "score": several}
    first, second, rule, mean, *spread = score_rows(report, graphs=True)
    assert first == {"graph": "a", ">tau": "0.400", ">score": "0.400", ">ceiling": "0.700"}
    assert (second[">ceiling"], rule, mean[">tau"], mean[">ceiling"]) == ("", {}, "0.500", "")
    assert [row["graph"] for row in spread] == ["std", "95 % low", "95 % high"]
    lone = several | {"graphs": {"a": 0.5}}
    assert [row["graph"] for row in score_rows({"score": lone}, graphs=False)] == ["mean"]


def test_a_table_has_no_empty_columns_and_escapes_names(capsys):
    first = {"graph": "a\nb", ">tau": "0.5", "empty": ""}
    console.show_rows([first, {}, {"graph": "c", ">tau": "-", "empty": ""}])
    head, rule, first, _, last = capsys.readouterr().out.splitlines()
    assert head.split() == ["graph", "tau"] and set(rule.strip()) == {"─"}
    assert first.split() == ["a\\nb", "0.5"] and last.split() == ["c", "-"]


def test_steps_are_lines_if_verbose_and_a_terminal_has_bars(monkeypatch, capsys):
    """Notes contain file names, which must not forge lines."""

    def printed(verbose=False):
        monkeypatch.setattr(console, "current_run", console.Run(verbose=verbose))
        with console.progress("reading", 1) as step:
            step("a", more=1)
            step("b\nerror: no")
        return capsys.readouterr().err

    assert printed() == ""
    assert printed(verbose=True).splitlines() == [
        "reading: 1 of 2; a",
        "reading: 2 of 2; b\\nerror: no",
    ]
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    assert all(words in printed() for words in ("reading", "2/2", "b\\nerror: no"))
