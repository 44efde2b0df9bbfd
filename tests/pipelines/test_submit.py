"""Submissions: complete, checked, written atomically; which files are refused, and why."""

import re
import shutil
from unittest.mock import Mock

import numpy as np
import pytest

from tests.graphs import save_npz
from tests.pipelines import trees
from tests.pipelines.trees import (
    LAYOUT,
    TILE,
    TREE,
    build,
    graph_path,
    read_submission,
    stored,
    tile_graph,
)
from xlarank.data.errors import CollectionError, ModelError, WorkspaceError, XlarankError
from xlarank.data.submission import required_count, submission_problems, write_submission
from xlarank.models.member import Member
from xlarank.pipelines.rank import rank
from xlarank.pipelines.submit import check_submission, submit


def run(workspace, out, **options):
    return submit(out, workspace, **{"model_from": "trained", **options})


def test_every_test_graph_is_listed_with_the_best_first(shared_trained, tmp_path):
    out = tmp_path / "new" / "out.csv"
    report = run(shared_trained, out)
    rows = read_submission(out)
    assert list(rows) == [f"{of}:{name}" for of in (LAYOUT, TILE) for name in TREE[of]["test"]]
    assert (report.out, report.left_out, report.broken) == (out, {}, {})
    assert report.rows == {LAYOUT: 2, TILE: 2}
    for row_id, order in rows.items():
        collection, _, name = row_id.rpartition(":")
        graph = stored(shared_trained, collection, "test")[name]
        group = graph.group
        score = trees.scores_by_model(shared_trained, graph, collection)
        if collection == LAYOUT:
            assert sorted(order) == list(range(24)), "repeated configurations too"
            assert (np.diff(score[order]) >= 0).all() and score[order[0]] < score[order[-1]]
        else:
            assert len(set(group[order].tolist())) == len(order) == 5, "no repeat among them"
            distinct = sorted({int(g): score[group == g].min() for g in group}.values())
            assert sorted(score[order].tolist()) == distinct[:5]


def test_files_without_features_are_named_and_listed_as_far_as_they_can_be_read(
    tree, trained, tmp_path
):
    """The last of 4 and of 6 tiles repeats the first. No runtime leaks into a submission."""
    run(trained, tmp_path / "before.csv")
    odd = 'ü✓ "quoted", and;\ttabs\r\n'
    listed = {1: 1, 3: 3, 4: 4, 6: 5}
    unlabelled = tile_graph(80, labelled=False)
    measured = ((LAYOUT, "omega__b"), (TILE, "sort__b"))
    for collection, name in measured:
        path = graph_path(tree, collection, "test", name)
        runtime = np.arange(24)[::-1] + 1
        save_npz(path, {**np.load(path), "config_runtime": runtime})
    not_utf8 = "not UTF-8 \udcff"
    added = {odd: unlabelled, not_utf8: unlabelled, "alike": trees.identical(unlabelled)}
    for configs in listed:
        added[f"tiny__{configs}"] = tile_graph(80, configs=configs, labelled=False)
    for name, arrays in added.items():
        save_npz(graph_path(tree, TILE, "test", name), arrays)
    graph_path(tree, LAYOUT, "test", "omega__a").write_bytes(b"no zip")
    build(tree, trained)
    report = run(trained, tmp_path / "out.csv")
    assert {*report.broken} == {f"{LAYOUT} omega__a", f"{TILE} {not_utf8}"}
    rows, before = (read_submission(tmp_path / name) for name in ("out.csv", "before.csv"))
    assert f"{LAYOUT}:omega__a" not in rows and report.rows == {LAYOUT: 1, TILE: 8}
    assert len(rows[f"{TILE}:{odd}"]) == 5 and report.ranked[f"{TILE}:{odd}"]
    assert all(rows[f"{of}:{name}"] == before[f"{of}:{name}"] for of, name in measured)
    assert rows[f"{TILE}:alike"] == [0, 1, 2, 3, 4]
    for configs, count in listed.items():
        order = rows[f"{TILE}:tiny__{configs}"]
        assert len(order) == len(set(order)) == count and set(order) <= set(range(configs))
    named = run(trained, tmp_path / "out.csv", collection=[TILE])
    tiles = {row_id for row_id in rows if TILE in row_id}
    assert read_submission(tmp_path / "out.csv").keys() == named.ranked.keys() == tiles


def test_graphs_without_stored_rows_are_ranked_from_their_files(tree, shared_built, tmp_path):
    """Nothing is built or trained, and nothing is written but the submission."""
    out = tmp_path / "out.csv"
    nowhere = tmp_path / "nowhere"
    report = run(nowhere, out, data_root=tree, model_from=None)
    assert (report.rows, report.unranked) == ({LAYOUT: 2, TILE: 2}, 0)
    assert not nowhere.exists()
    expected = read_submission(out)
    for name in TREE[LAYOUT]["test"]:
        ranking = rank(graph_path(tree, LAYOUT, "test", name), nowhere)
        assert expected[f"{LAYOUT}:{name}"] == ranking.order.tolist()
    build(tree, nowhere, collection=[TILE])
    run(nowhere, out, model_from=None)
    assert read_submission(out) == expected, "of stored rows and of files"
    damaged = graph_path(tree, LAYOUT, "test", TREE[LAYOUT]["test"][0])
    damaged.write_bytes(b"no zip")
    report = run(nowhere, out, data_root=tree, model_from=None)
    assert list(report.broken) == [f"{LAYOUT} {damaged.stem}"]
    assert read_submission(out).keys() == expected.keys() - {f"{LAYOUT}:{damaged.stem}"}
    with pytest.raises(CollectionError, match="did you mean layout:cpu:random"):
        run(nowhere, out, data_root=tree, collection=["layout:cpu:randm"])
    with pytest.raises(WorkspaceError, match="holds tile:cpu of"):
        other = {TILE: {"test": ["other__a"]}}
        run(nowhere, out, data_root=trees.write_tree(tmp_path / "other", other))


def test_an_unreadable_model_leaves_its_collection_in_file_order(trained, tmp_path):
    out = tmp_path / "out.csv"
    (trained / "models/layout/cpu/random/model.json").write_text("{")
    report = run(trained, out, model_from=None)
    assert "model.json cannot be used" in report.left_out[LAYOUT]
    assert report.unranked == len(TREE[LAYOUT]["test"])
    rows = read_submission(out)
    assert all(rows[f"{LAYOUT}:{name}"] == [*range(24)] for name in TREE[LAYOUT]["test"])


@pytest.mark.slow
def test_collections_without_a_model_that_fits_are_left_out(tree, trained, tmp_path):
    out = tmp_path / "out.csv"
    named = tmp_path / "named.csv"
    run(trained, out)
    trees.build_fewer_columns(tree, trained, split=["test"], collection=[TILE])
    for gone, why in (
        (None, r"the rows lack \d+ \("),
        ("models/tile", f"{TILE} has no trained model"),
    ):
        if gone is not None:
            shutil.rmtree(trained / gone)
        report = run(trained, out)
        rows = read_submission(out)
        assert set(report.rows) == {LAYOUT} and re.search(why, report.left_out[TILE])
        for name in TREE[TILE]["test"]:
            assert rows[f"{TILE}:{name}"] == [0, 1, 2, 3, 4], "Kaggle needs all"
        assert report.unranked == 2, "rows of the older file are not taken over"
        with pytest.raises(ModelError, match=why):
            run(trained, named, collection=[TILE])
    shutil.rmtree(graph_path(tree, TILE, "test", "x").parent)
    build(tree, trained)
    assert f"{TILE} has no test graphs" in run(trained, out).left_out[TILE]
    with pytest.raises(CollectionError, match=f"{TILE} has no test graphs"):
        run(trained, named, collection=[TILE])
    assert not named.exists()


def test_a_submission_is_checked_before_it_is_in_place(shared_trained, tmp_path, monkeypatch):
    out = tmp_path / "out.csv"
    check = Mock(return_value=["made up"])
    out.write_text("what was there before")
    with monkeypatch.context() as patched, pytest.raises(XlarankError, match="made up"):
        patched.setattr("xlarank.data.submission.submission_problems", check)
        run(shared_trained, out)
    assert check.call_args.args[0] != out
    with pytest.raises(KeyboardInterrupt), trees.Listener(stop_at=2):
        run(shared_trained, out)
    monkeypatch.setattr(Member, "score", lambda self, rows: np.full(len(rows), np.nan))
    with pytest.raises(ModelError, match="scores that are not finite"):
        run(shared_trained, out, collection=[TILE])
    assert [path.name for path in tmp_path.iterdir()] == ["out.csv"]
    assert out.read_text() == "what was there before"


NET = f"{LAYOUT}:net__a"
DOT = f"{TILE}:dot__a"
SMALL = "tile:xla:small"
CONFIGS = {NET: 4, DOT: 9, SMALL: 3}
GOOD = f"ID,TopConfigs\n{NET},3;1;0;2\n{DOT},8;0;3;1;7\n{SMALL},2;0;1\n"
RIGHT = {NET: list(range(24)), DOT: [4, 3, 2, 1, 0]}


def problem_of(path, configs):
    """Return the first problem of a file, or why it cannot be read."""
    try:
        return next(submission_problems(path, configs), "")
    except XlarankError as error:
        return str(error)


def test_the_file_is_what_kaggle_asks_for(tmp_path):
    """Graphs have any name, and rows beyond the limit of the csv module."""
    marked = tmp_path / "marked.csv"
    out = tmp_path / "out.csv"
    write_submission(out, {NET: [3, 1, 0, 2], DOT: [8, 0, 3, 1, 7], SMALL: [2, 0, 1]})
    assert out.read_bytes() == GOOD.encode()
    assert not problem_of(out, CONFIGS)
    for blank in (GOOD + "\n", GOOD.replace("\n", "\n\r\n\n"), "\n" + GOOD):
        marked.write_text(blank)
        assert not problem_of(marked, CONFIGS)
    header, *lines = GOOD.splitlines()
    marked.write_bytes("\r\n".join([header, *reversed(lines)]).encode())
    assert not problem_of(marked, CONFIGS)
    assert [required_count(row_id, 7) for row_id in (NET, DOT)] == [7, 5]
    names = ('a,b "c" d', '"', "\n", "\t", ";", "ü✓", "=1+1", " ")
    ids = [f"tile:xla:{name}" for name in names]
    write_submission(out, {row_id: [1, 0] for row_id in ids})
    marked.write_bytes(b"\xef\xbb\xbf" + out.read_bytes())
    for path in (out, marked):
        assert not problem_of(path, dict.fromkeys(ids, 2))
    write_submission(out, {NET: range(100_040)})
    assert not problem_of(out, {NET: 100_040})


def test_malformed_files_are_refused(tmp_path):
    malformed = [
        ("", "starts with nothing"),
        (GOOD.split("\n", 1)[1], "starts with layout"),
        (GOOD.replace("TopConfigs", "TopConfigs,More"), "starts with ID"),
        (GOOD.replace(f"{SMALL},2;0;1\n", ""), rf"lacks 1 id, such as {SMALL}"),
        ("ID,TopConfigs\n", rf"lacks 3 ids, such as {NET}"),
        (GOOD + f"{SMALL},2;0;1\n", f"{SMALL} is listed twice"),
        (GOOD + "tile:xla:zzz,1\n", rf"line 5 .* is for tile:xla:zzz; .* such as {NET}"),
        (GOOD.replace(";2\n", "\n"), f"{NET} lists 3 configurations; expected 4"),
        (GOOD.replace("8;0;3;1;7", "8;0;3;1"), f"{DOT} lists 4 config"),
        (GOOD.replace("3;1;0;2", "3;1;0;0"), f"{NET} lists a configuration twice"),
        (GOOD.replace("3;1;0;2", "4;1;0;2"), f"{NET} lists configuration 4; .* 0 to 3"),
        (GOOD.replace("3;1;0;2", ""), f"{NET} lists ''"),
        (GOOD.replace("3;1;0;2", "3,1,0,2"), "line 2 .* has 5 fields; expected 2"),
        (GOOD.replace("\n", "\n\n\n") + "x\n", "line 13 .* has 1 field;"),
        (GOOD + "ID,TopConfigs\n", "line 5 .* is for ID;"),
        ("," + GOOD, "starts with ,ID,TopConfigs; expected ID,TopConfigs"),
        (GOOD.encode("utf-16"), "cannot be read|starts with"),
        (b"\xff\xfe\x00ID", "cannot be read"),
    ]
    for number in ("", "3.0", "0_3", " 3", "+3", "٣", '"3', "-3"):
        wrong = GOOD.replace("3;1;0;2", f"{number};1;0;2")
        malformed.append((wrong, "configuration numbers joined by ;"))
    assert "cannot be read" in problem_of(tmp_path / "absent.csv", CONFIGS)
    for text, message in malformed:
        (tmp_path / "out.csv").write_bytes(text if isinstance(text, bytes) else text.encode())
        assert re.search(message, problem_of(tmp_path / "out.csv", CONFIGS))


def test_against_the_test_graphs(tmp_path):
    """A tile may list more than the five that count; all problems are found, not only the first."""
    tests = {LAYOUT: {"test": ["net__a"]}, TILE: {"test": ["dot__a"]}}
    root = trees.write_tree(tmp_path / "tree", tests)
    other = "tile:cpu:other"

    def checked(rows):
        write_submission(tmp_path / "a.csv", {**RIGHT, **rows})
        return check_submission(tmp_path / "a.csv", data_root=root)

    for rows, expected in (
        ({}, []),
        ({DOT: range(24)}, []),
        ({DOT: [0, 1, 2, 24, 3]}, [f"{DOT} lists configuration 24; expected 0 to 23"]),
        ({NET: [*range(23), 22], DOT: [1, 2], other: [0, 1, 2, 3, 4]}, [NET, DOT, other]),
    ):
        check = checked(rows)
        assert check.rows == 2
        for problem, start in zip(check.problems, expected, strict=True):
            assert start in problem
    graph_path(tmp_path / "tree", TILE, "test", "dot__b").write_bytes(b"cut")
    cut = f"{TILE}:dot__b"
    (problem,) = checked({cut: [0, 1, 2, 3, 99]}).problems
    assert problem.startswith(f"{cut} cannot be checked: "), "the others are checked"
