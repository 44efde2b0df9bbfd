"""Commands on a few graphs: stored files, printed lines, and the next command, which works."""

import json
import re
import shlex
import shutil
from functools import partial
from pathlib import Path

import pytest

from tests.cli.conftest import FILES, SAMPLE, ended, here, start
from tests.data.hlo.programs import matmul_module
from tests.pipelines.trees import LAYOUT, TILE, graph_path
from tests.schema import validate
from xlarank.cli.demo import DEMO
from xlarank.models.losses import params_of
from xlarank.pipelines import cross_validate as module


def test_each_command_prints_what_it_stores(job):
    assert {(outcome.code, *outcome.errors) for outcome in job.outcomes.values()} == {(0,)}
    assert f"data: {Path('tree')} (named by --data-root)" in job.outcomes["info"].out
    parts = json.loads((job.folder / "info.json").read_text())
    assert [part["graphs"] for part in parts] == list(map(len, FILES.values()))
    assert re.search(rf"{TILE}\s+train\s+3\s+3\s+0\s+192", job.outcomes["build-features"].out)
    for collection in (LAYOUT, TILE):
        parts = collection.split(":")
        best = json.loads(job.work.joinpath("studies", *parts, "best-lambdarank.json").read_text())
        card = json.loads(job.work.joinpath("models", *parts, "model.json").read_text())
        tuned = best["params"] != params_of("lambdarank", parts[0])
        assert (card["tuned"], card["params"], card["seeds"]) == (tuned, best["params"], 1)
        name = f"lambdarank{' (tuned)' * tuned}  "
        assert re.search(rf"{collection} +{re.escape(name)}", job.outcomes["train"].out)
        picture = Path(f"work/reports/tune-{'-'.join(parts)}-lambdarank.svg")
        assert (job.folder / picture).exists() and f"wrote {picture}" in job.outcomes["tune"].out
    report = json.loads((job.folder / "evaluate.json").read_text())
    again = here("evaluate", "--workspace", job.work, "--json", "-")
    assert json.loads(again.out) == report
    assert re.search(rf"mean\s+{report[LAYOUT]['tau']['mean']:.3f}", job.outcomes["evaluate"].out)
    assert "2 rows, checked" in job.outcomes["submit"].out
    ranking = json.loads((job.folder / "rank.json").read_text())
    assert (ranking["graph"], ranking["collection"], len(ranking["best"])) == ("mlp__a", LAYOUT, 3)
    printed = job.outcomes["rank"].out
    assert re.search(r"mlp__a: 64 configurations\nranked by lambdarank, ", printed)
    assert "score (lower is faster)" in printed and "agreement with the labels: tau " in printed
    assert len(re.findall(r"\bscore\b", printed)) == 1, "no other number is called a score"


def test_json_follows_the_schema_of_the_documentation(job, tmp_path, monkeypatch):
    monkeypatch.chdir(job.folder)
    for name in job.outcomes:
        validate(name, json.loads(Path(f"{name}.json").read_text()))
    monkeypatch.setattr(module, "cross_validate", partial(module.cross_validate, rounds=5))
    program = tmp_path / "f.hlo.pb"
    program.write_bytes(matmul_module().SerializeToString())
    layout = graph_path(job.tree, LAYOUT, "valid", "mlp__a")
    tile = graph_path(job.tree, TILE, "valid", "expsum__a")
    rankers = "--model ranknet --model lambdarank"
    for name, words in (
        ("info-graph", f"info {layout}"),
        ("info-graph", f"info {tile}"),
        ("info-program", f"info {program}"),
        ("rank", f"rank {tile} --model-from shipped"),
        ("rank", f"rank {program} --target tpu-v3"),
        ("rank-folder", f"rank {layout.parent}"),
        ("explain", f"explain {layout}"),
        ("explain", f"explain {tile}"),
        ("cross-validate", f"cross-validate -c {LAYOUT}"),
        ("cross-validate", f"cross-validate -c {TILE} {rankers}"),
        ("check-submission", "check-submission out/submission.csv"),
    ):
        validate(name, json.loads(here(*words.split(), "--json", "-").out))


def test_the_check_that_submit_recommends_works_unchanged(job, monkeypatch):
    monkeypatch.chdir(job.folder)
    part = here("submit", "--workspace", job.work, "-c", TILE, "--out", "part of it.csv")
    for done, graphs in ((job.outcomes["submit"], "2 test graphs"), (part, "1 test graph")):
        (words,) = re.findall(r"^next: python run\.py (check-submission .*) # ", done.out, re.M)
        checked = here(*shlex.split(words))
        assert checked.code == 0, checked.err
        assert f" is valid (checked against {graphs})" in checked.out
        assert f"{job.tree} (of the workspace " in checked.out
    other_data = here("check-submission", "out/submission.csv", "--data-root", SAMPLE)
    assert other_data.code == 1 and "1 problem in out/submission.csv" in other_data.err


def test_on_kaggle_the_sample_is_not_submitted_for_lack_of_data(job, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("xlarank.data.collection.KAGGLE", tmp_path / "competition")
    done = here("submit", "--model-from", "shipped")
    assert done.code == 1 and not Path("submission.csv").exists()
    assert f"found no TpuGraphs data below {tmp_path}, only the embedded sample" in done.err
    done = here("submit", "--workspace", job.work, "--out", "submission.csv")
    assert done.code == 0, "of other data"


def test_naming_the_data_root_again_keeps_the_recipe(tree, tmp_path):
    """Otherwise the next command would undo choices made in build-features."""
    paths = ["--data-root", tree, "--workspace", tmp_path / "work"]
    recipe = f"--max-configs 30 -c {TILE}"
    here("build-features", *paths, *recipe.split())
    manifest = tmp_path / "work/features/tile/cpu/train/manifest.json"
    recipe = json.loads(manifest.read_text())["recipe"]
    assert recipe["max_configs"] == 30
    words = f"-c {TILE} --seeds 1 --rounds 5 --threads 1"
    assert here("train", *paths, *words.split()).code == 0
    assert json.loads(manifest.read_text())["recipe"] == recipe


@pytest.mark.slow
def test_the_demo_shows_what_ranks_on_one_screen_and_submits_it(tmp_path):
    done = ended(start("demo", cwd=tmp_path), timeout=900)
    assert done.code == 0, done.err
    lines = done.out.splitlines()
    assert len(lines) <= 45 and max(map(len, lines)) <= 100
    reports = tmp_path / "work/demo/reports"
    assert "Open work/demo/reports/report.html in a browser" in lines[-1]
    assert (reports / "report.html").is_file() and "26 rows, checked" in done.out
    for name in DEMO:
        board = (
            rf"^{name}, valid: .*\nranked by (\w+), 0\.\d+ out of fold.*\nranker .*\n─+\n\1 +0\."
        )
        assert re.search(board, done.out, re.M)


@pytest.mark.slow
def test_other_rankers_alone_and_side_by_side(trained, monkeypatch):
    monkeypatch.setattr(module, "cross_validate", partial(module.cross_validate, rounds=5))
    words = f"cross-validate --workspace {trained} --json -".split()
    done = here(*words, "--model", "ranknet", "--model", "lambdarank", "-c", LAYOUT)
    rows = json.loads(done.out)[LAYOUT]
    names = [row["ranker"] for row in rows]
    assert done.code == 0 and {"ranknet", "lambdarank", "rule: file order"} <= {*names}
    table = done.err[done.err.index(f"{LAYOUT}, out of fold") :]
    best = next(name for name in names if not name.startswith("rule: "))
    assert f" --model {best} # --model chooses the ranker" in table.replace("\n", " ")
    assert "Kendall tau" in table.splitlines()[1]
    assert all(f"\n{name} " in table for name in names), "the table of train and evaluate"
    assert "to the first (95 %)" in table and f"{rows[0]['score']['mean']:.3f}" in table
    done = here(*words, "--model", "ranknet", "--by", "kernel-family", "-c", TILE)
    assert done.code == 0
    assert json.loads(done.out)[TILE]["score"]["graphs"].keys() == {*FILES[TILE, "train"]}
    assert f"{TILE}: ranknet with default parameters, 5 rounds" in done.err.replace("\n", " ")


def test_programs_are_imported_and_get_configurations(tmp_path):
    program = tmp_path / "f.hlo.pb"
    broken = tmp_path / "broken.pb"
    program.write_bytes(matmul_module().SerializeToString())
    broken.write_bytes(b"\x0a\xff")
    own = tmp_path / "own"
    outcome = here("import-hlo", broken, program, "--out", own)
    assert outcome.code == 1 and f"wrote 1 graph below {own}" in outcome.out
    assert "broken.pb: the file is cut off" in outcome.errors[0]
    then = here("info", program).out.splitlines()[-1]
    assert then.startswith(f"next: python run.py rank {program} --target tpu-v3")
    out = tmp_path / "c.npz"
    words = ["rank", program, "--target", "tpu-v4", "--configs", 100, "--out", out]
    outcome = here(*words)
    assert outcome.code == 0 and "7 configurations proposed" in outcome.out
    assert outcome.out.splitlines()[-1].startswith(f"next: python run.py explain {out}")
    again = here("rank", out, "--json", "-")
    assert again.code == 0 and json.loads(again.out)["target"] == "tpu-v4"
    assert "name it by" in here("rank", program).err
    refused = here("rank", out, "--check", 3)
    assert refused.code == 1 and "has configurations of its own" in refused.err


def next_words(done):
    """Return the arguments of the next command, without the comment, if there is one."""
    lines = re.findall("^next: python run.py (.*)", done.out, re.M)
    assert len(lines) == len(re.findall("^next: ", done.out, re.M)) <= 1
    return [word for line in lines for word in shlex.split(line, comments=True)]


@pytest.mark.parametrize("names", ["train evaluate report", "rank explain explain-feature"])
def test_the_next_commands_work(names, job, tmp_path, monkeypatch):
    monkeypatch.chdir(shutil.copytree(job.folder, tmp_path / "elsewhere"))
    first, *names = names.split()
    words = next_words(job.outcomes[first])
    for name in names:
        assert words[0] == name
        done = here(*words)
        assert done.code == 0, done.err
        words = next_words(done)
    assert words == []


def test_the_next_command_keeps_options(job, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert next_words(job.outcomes["info"]) == ["build-features", "--data-root", "tree"]
    assert next_words(job.outcomes["tune"]) == ["train", "--model", "lambdarank"]
    done = here("info", "--data-root", job.tree, "-c", "tile:*")
    assert next_words(done) == ["build-features", "--data-root", str(job.tree), "-c", "tile:*"]
    done = here(*next_words(done), "--workspace", "my work")
    assert next_words(done) == ["train", "--workspace", "my work", "-c", "tile:*"]
    graph = graph_path(SAMPLE, TILE, "valid", "bmm_tb__a")
    done = here("rank", graph, "--workspace", job.work, "-c", TILE)
    assert next_words(done) == ["explain", str(graph), "--workspace", str(job.work), "-c", TILE]
    done = here("rank", graph.parent, "--workspace", job.work)
    assert next_words(done) == [], "explain takes one graph"
    trained = here("rank", graph, "--workspace", job.work, "--model-from", "trained").out
    assert "unseen kernel family (dot batched right-transposed): weight " in trained
