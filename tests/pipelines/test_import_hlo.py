"""Import of programs into a data root, and proposed configurations: written or refused."""

import os
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from tests.data.hlo.programs import kernels, matmul_module, saved
from tests.data.hlo.test_encoding import layouts
from tests.graphs import DOT_KEYS, LAYOUT_KEYS
from tests.pipelines.trees import LAYOUT, graph_path
from xlarank.data.collection import discover, find_data_root
from xlarank.data.errors import CollectionError, GraphFileError, HloError, XlarankError
from xlarank.data.graph import LayoutGraph, TileGraph, read_graph
from xlarank.data.hlo.messages import HloProto
from xlarank.data.workspace import Workspace
from xlarank.pipelines.import_hlo import import_hlo
from xlarank.pipelines.info import info
from xlarank.pipelines.programs.compiler.outcome import Outcome, Status
from xlarank.pipelines.programs.propose import propose
from xlarank.pipelines.programs.sources import SearchSettings
from xlarank.pipelines.rank import rank


def test_a_program_becomes_a_graph_of_the_data_root(tmp_path):
    file = saved(tmp_path / "f.hlo.pb", HloProto(hlo_module=matmul_module()))
    report = import_hlo([file], tmp_path / "root")
    assert not report.broken and not report.left_out
    (graph,) = report.graphs
    path = tmp_path / "root/npz/layout/own/default/test/f.npz"
    assert graph.pop("seconds") >= 0
    sizes = {"nodes": 9, "edges": 9, "configurable": 2, "configs": 1, "labelled": False}
    place = {"source": str(file), "collection": "layout:own:default", "path": str(path)}
    assert graph == {"graph": "f", "notes": (), **sizes, **place}
    arrays = np.load(path)
    assert set(arrays.files) == {*LAYOUT_KEYS, *DOT_KEYS}
    assert arrays["config_runtime"].tolist() == [0]
    features = arrays["node_config_feat"]
    assert features.dtype == np.float32 and (features == -1).all()
    read = read_graph(path)
    assert isinstance(read, LayoutGraph) and read.splits.tolist() == [0, 6, 9]
    assert [part.graphs for part in info(find_data_root(tmp_path / "root"))] == [1]
    before, again = path.read_bytes(), import_hlo([file], tmp_path / "root/npz")  # the tree itself
    assert again.graphs[0]["path"] == str(path) and path.read_bytes() == before


def test_a_folder_of_dumps_is_a_list_of_files(tmp_path):
    folder = tmp_path / "dump"
    (folder / "inner").mkdir(parents=True)
    for name in ("b.hlo.pb", "a.pb", ".hidden.pb", "inner/c.pb"):
        saved(folder / name, matmul_module())
    (folder / "b-buffer-assignment.txt").write_text("BufferAssignment:\n")
    outside = saved(tmp_path / "a b (1).hlo.pb", matmul_module())
    report = import_hlo([folder, outside], tmp_path / "root")
    assert sorted(graph["graph"] for graph in report.graphs) == ["a", "a b (1)", "b"]
    assert not report.broken
    assert report.left_out == [f"{folder / 'b-buffer-assignment.txt'}: holds no program"]
    (tmp_path / "none").mkdir()
    (tmp_path / "reports").mkdir()
    (tmp_path / "reports/a.txt").write_text("BufferAssignment:\n")
    for place in ("none", "reports"):
        with pytest.raises(HloError, match="the folder holds no program"):
            import_hlo([tmp_path / place], tmp_path / "root")


def test_collection_split_and_name_are_the_caller_s(tmp_path):
    file = saved(tmp_path / "f.pb", layouts())
    report = import_hlo([file], tmp_path, collection="layout:lab:random", split="train", name="g")
    (written,) = discover(tmp_path / "npz")
    parts = (str(written.collection), written.split, written.name)
    assert parts == ("layout:lab:random", "train", "g")
    assert report.graphs[0]["labelled"] and read_graph(written.path).runtime.tolist() == [50, 60]
    for given, error, message in (
        ({"collection": "layout:lab"}, CollectionError, "is not a collection name"),
        ({"collection": "layout:../../lab:random"}, CollectionError, "would leave"),
        ({"split": "eval"}, CollectionError, "is not a split"),
        *(({"name": name}, HloError, "plain name") for name in ("../g", "a/b", ".hidden", "")),
        ({"files": [file, file], "name": "g"}, HloError, "for 2 files"),
    ):
        with pytest.raises(error, match=message):
            import_hlo(**{"files": [file], "out": tmp_path} | given)


def test_every_kernel_becomes_a_file_and_broken_ones_are_named(tmp_path):
    """One kernel with two runs, one with a single run, one without a measured default."""
    data = kernels()
    twice = tmp_path / "twice.pb"
    first = data.modules[0]
    first.runs[0].profile.compute_time_ns = 100
    first.runs.add(op_config=first.runs[0].op_config).profile.compute_time_ns = 200
    data.modules.add(module=matmul_module(), fingerprint=8).runs.add()
    data.modules.add().CopyFrom(first)
    data.modules[2].fingerprint = 2**64 - 1
    data.modules[2].runs[0].is_default = False
    ops = saved(tmp_path / "ops.pb", data)
    report = import_hlo([ops], tmp_path)
    assert [graph["graph"] for graph in report.graphs] == ["ops_7"]
    assert report.left_out == [f"{ops} kernel 1: nothing to choose between (1 run)"]
    assert list(report.broken) == [f"{ops} kernel 2"]
    assert "no measured default" in report.broken[f"{ops} kernel 2"]
    graph = read_graph(tmp_path / "npz" / "tile" / "own" / "test" / "ops_7.npz")
    assert isinstance(graph, TileGraph) and graph.cost.tolist() == [1, 2]
    data.modules[1].CopyFrom(data.modules[0])
    data.modules[2].runs[0].is_default = True
    report = import_hlo([saved(twice, data)], tmp_path)
    assert [graph["graph"] for graph in report.graphs] == ["twice_7", "twice_-1"]
    assert "written from" in report.broken[f"{twice} kernel 1"]


def test_a_broken_file_or_a_name_taken_does_not_stop_the_others(tmp_path):
    cut = tmp_path / "cut.pb"
    absent = tmp_path / "absent.pb"
    cut.write_bytes(matmul_module().SerializeToString()[:-5])
    cyclic = matmul_module()
    new = matmul_module()
    cyclic.computations[2].instructions[0].operand_ids.append(32)
    new.computations[2].instructions[2].opcode = "ragged-dot"
    good = saved(tmp_path / "good.pb", new)
    same = saved(tmp_path / "good.hlo", new)
    report = import_hlo([cut, saved(tmp_path / "cyclic.pb", cyclic), absent, good, same], tmp_path)
    (graph,) = report.graphs
    (note,) = graph["notes"]
    assert note == "opcodes that the format does not know, written as unknown: ragged-dot (1)"
    reasons = {"cut.pb": "cut off", "cyclic.pb": "cycle", "absent.pb": "cannot be read"}
    reasons["good.hlo"] = "good.npz was written from"
    assert list(report.broken) == [str(tmp_path / name) for name in reasons]
    assert all(map(str.__contains__, report.broken.values(), reasons.values()))
    assert [path.name for path in (tmp_path / "npz").rglob("*.npz")] == ["good.npz"]
    report = import_hlo([good], tmp_path, collection="tile:own")
    assert "it is a layout graph; expected a tile graph for tile:own" in report.broken[str(good)]


def test_real_tuning_data_gives_google_s_files(real_data, tmp_path):
    chosen = {"collection": "tile:xla", "split": "train", "name": "alexnet_train_batch_32"}
    report = import_hlo([real_data / "pb" / "op_tuning_data.pb"], tmp_path, **chosen)
    assert not report.broken and not report.left_out and len(report.graphs) == 15
    for graph in report.graphs:
        place = Path(graph["path"]).relative_to(tmp_path)
        with np.load(graph["path"]) as ours, np.load(real_data / place) as theirs:
            assert set(ours) == {*theirs, "target"} and ours["target"] == "tpugraphs", place
            for array in theirs:
                assert ours[array].dtype == theirs[array].dtype, (place, array)
                assert ours[array].tobytes() == theirs[array].tobytes(), (place, array)


@pytest.mark.skipif(
    "XLARANK_TEST_HLO" not in os.environ, reason="XLARANK_TEST_HLO is not set: no programs to read"
)
def test_real_programs_go_in(tmp_path):
    pytest.importorskip("jaxlib")
    files = sorted(Path(os.environ["XLARANK_TEST_HLO"]).glob("*.hlo"))
    report = import_hlo(files, tmp_path)
    assert not report.broken and len(report.graphs) == len(files) > 0
    assert all(graph["configurable"] > 0 for graph in report.graphs)


def proposed(path, folder, min_elements=0, check=0, **settings):
    out = folder / "p.npz"
    chosen = {"workspace": Workspace(folder), "collection": LAYOUT, "check": check}
    proposal = propose(path, out, SearchSettings(**settings), min_elements=min_elements, **chosen)
    return proposal, read_graph(out)


def test_the_program_of_a_graph_file_stays_as_it_was(shared_tree, tmp_path):
    path = next((shared_tree / "npz" / "layout").rglob("test/*.npz"))
    before = read_graph(path)
    (proposal, after) = proposed(path, tmp_path, configs=5)
    assert proposal.configs == after.configs == len(after.first) == 5
    assert not after.labelled and proposal.guided_by is None and proposal.default_place is None
    for name in ("node_feat", "opcode", "edges", "splits", "configurable"):
        assert np.array_equal(getattr(before, name), getattr(after, name)), name


@pytest.mark.slow
def test_evolving_finds_what_the_model_ranks_higher(
    shared_tree, shared_trained, tmp_path, monkeypatch
):
    monkeypatch.setattr("xlarank.pipelines.programs.propose._POPULATION", 30)
    path = graph_path(shared_tree, LAYOUT, "valid", "delta__a")
    place = Workspace(shared_trained)
    random = SearchSettings(configs=20)
    evolve = replace(random, search="evolve", generations=4)
    contents = []
    for settings in (random, random, replace(random, seed=1), evolve, evolve):
        out = tmp_path / "out.npz"
        options = {"workspace": place, "collection": LAYOUT, "min_elements": 0}
        proposal = propose(path, out, settings, **options)
        contents.append(out.read_bytes())
    assert proposal.guided_by == f"the model of {LAYOUT}"
    assert proposal.learned_from == f"graphs of {LAYOUT}, measured on CPU"
    scores = rank(place, out, collection=LAYOUT).scores
    assert int((scores < scores[0]).sum()) == proposal.default_place
    drawn, same_seed, other_seed, evolved, again = contents
    assert evolved == again and drawn == same_seed
    assert len({evolved, drawn, other_seed}) == 3, "by the seed"


@pytest.mark.parametrize("best", [0, 2])
def test_the_first_configurations_are_compiled(best, tmp_path, monkeypatch):
    def compiled(modules):
        """Yield a failure, then outcomes of which that of ``best`` is the fastest."""
        constrained = [len(module.computations[1].instructions) > 4 for module in modules]
        assert constrained == [False, True, True, True], "the first is the compiler's default"
        yield 3, Outcome(Status.FAILED, message="out of memory")
        for at in (2, 1, 0):
            yield at, Outcome(Status.OK, 50 if at == best else 100)

    def compiler(chip):
        assert chip.name == "tpu-v3"
        return nullcontext(SimpleNamespace(compile=compiled))

    monkeypatch.setattr("xlarank.pipelines.programs.propose.Compiler", compiler)
    program = saved(tmp_path / "matmul.pb", matmul_module())
    proposal, _ = proposed(program, tmp_path, configs=9, tie="none", check=3)
    assert proposal.estimates == {0: 100, 1: 100, 2: 100, 3: None} | {best: 50}
    assert proposal.is_check_passed == (best > 0)
    with pytest.raises(GraphFileError, match=r"p.npz holds a graph, and `check`"):
        proposed(tmp_path / "p.npz", tmp_path, check=3)


def test_requests_that_cannot_be_met_are_refused(shared_tree, tmp_path):
    program = saved(tmp_path / "matmul.pb", matmul_module())
    tile = next((shared_tree / "npz/tile").rglob("*.npz"))
    for source, settings, error, message in (
        (program, {"search": "anneal"}, XlarankError, "'anneal'; expected random or evolve"),
        (program, {"configs": 0}, XlarankError, "`configs` is 0; expected at least 1"),
        (program, {"tie": "all"}, XlarankError, "the tie is 'all'; expected rule or none"),
        (program, {"min_elements": 10**9}, GraphFileError, "none of 2 .* a choice.*`min_elem"),
        (tile, {}, GraphFileError, "kernel with tile sizes"),
    ):
        with pytest.raises(error, match=message):
            proposed(source, tmp_path, **settings)
    assert not (tmp_path / "p.npz").exists()
    evolve = SearchSettings(search="evolve", configs=5)
    options = {"workspace": Workspace(tmp_path), "min_elements": 0}
    proposal = propose(program, tmp_path / "p.npz", evolve, collection=LAYOUT, **options)
    assert proposal.learned_from == "no labels", "the relayout time of a CPU"
