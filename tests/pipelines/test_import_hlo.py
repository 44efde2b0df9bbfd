"""Import of programs into a data root, and proposed configurations: written or refused."""

import os
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import numpy as np
import pytest

from tests.data.hlo.programs import kernels, matmul_module, saved
from tests.data.hlo.test_encoding import layouts
from tests.graphs import DOT_KEYS, LAYOUT_KEYS
from xlarank.data.collection import discover, find_data_root
from xlarank.data.errors import (
    CollectionError,
    CompilerError,
    GraphFileError,
    HloError,
    XlarankError,
)
from xlarank.data.graph import LayoutGraph, TileGraph, read_graph
from xlarank.data.hlo.messages import HloProto
from xlarank.pipelines.import_hlo import import_hlo
from xlarank.pipelines.info import info
from xlarank.pipelines.programs.compiler.xla import Outcome
from xlarank.pipelines.programs.kinds import is_program
from xlarank.pipelines.programs.propose import estimates, propose
from xlarank.pipelines.programs.sources import write_configurations


def test_a_program_becomes_a_graph_of_the_data_root(tmp_path):
    file = saved(tmp_path / "f.hlo.pb", HloProto(hlo_module=matmul_module()))
    ((graph,), left_out, broken) = import_hlo([file], tmp_path / "root")
    assert not broken and not left_out
    path = tmp_path / "root/npz/layout/own/default/test/f.npz"
    sizes = {"nodes": 9, "edges": 9, "configurable": 2, "configs": 1, "labelled": False}
    place = {"collection": "layout:own:default", "path": str(path)}
    assert graph == {"graph": "f", "notes": (), **sizes, **place}
    arrays = np.load(path)
    assert set(arrays.files) == {*LAYOUT_KEYS, *DOT_KEYS}
    assert arrays["config_runtime"].tolist() == [0]
    features = arrays["node_config_feat"]
    assert features.dtype == np.float32 and (features == -1).all()
    read = read_graph(path)
    assert isinstance(read, LayoutGraph) and read.splits.tolist() == [0, 6, 9]
    assert [part.graphs for part in info(find_data_root(tmp_path / "root"))] == [1]
    before = path.read_bytes()
    ((again,), _, _) = import_hlo([file], tmp_path / "root/npz")  # the tree itself
    assert again["path"] == str(path) and path.read_bytes() == before


def test_a_folder_of_dumps_is_a_list_of_files(tmp_path):
    folder = tmp_path / "dump"
    (folder / "inner").mkdir(parents=True)
    for name in ("b.hlo.pb", "a.pb", ".hidden.pb", "inner/c.pb"):
        saved(folder / name, matmul_module())
    (folder / "b").write_text("BufferAssignment:\n")
    outside = saved(tmp_path / "a b (1).hlo.pb", matmul_module())
    graphs, left_out, broken = import_hlo([folder, outside], tmp_path / "root")
    assert sorted(graph["graph"] for graph in graphs) == ["a", "a b (1)", "b"]
    assert not broken
    assert left_out == [f"{folder / 'b'}: holds no program"]
    (tmp_path / "none").mkdir()
    (tmp_path / "reports").mkdir()
    (tmp_path / "reports/a.txt").write_text("BufferAssignment:\n")
    for place in ("none", "reports"):
        with pytest.raises(HloError, match="the folder holds no program"):
            import_hlo([tmp_path / place], tmp_path / "root")


def test_collection_and_target_are_the_caller_s(tmp_path):
    file = saved(tmp_path / "f.pb", layouts())
    ((graph,), _, _) = import_hlo([file], tmp_path, collection="layout:lab:random")
    (written,) = discover(tmp_path / "npz")
    parts = (str(written.collection), written.split, written.name)
    assert parts == ("layout:lab:random", "test", "f")
    assert graph["labelled"] and read_graph(written.path).runtime.tolist() == [50, 60]
    for given, error, message in (
        ({"collection": "layout:lab"}, CollectionError, "is not a collection name"),
        ({"target": "vax"}, XlarankError, "`target` is 'vax'"),
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
    graphs, left_out, broken = import_hlo([ops], tmp_path)
    assert [graph["graph"] for graph in graphs] == ["ops_7"]
    assert left_out == [f"{ops} kernel 1: nothing to choose between (1 run)"]
    assert list(broken) == [f"{ops} kernel 2"]
    assert "no measured default" in broken[f"{ops} kernel 2"]
    graph = read_graph(tmp_path / "npz" / "tile" / "own" / "test" / "ops_7.npz")
    assert isinstance(graph, TileGraph) and graph.cost.tolist() == [1, 2]
    data.modules[1].CopyFrom(data.modules[0])
    data.modules[2].runs[0].is_default = True
    graphs, _, broken = import_hlo([saved(twice, data)], tmp_path)
    assert [graph["graph"] for graph in graphs] == ["twice_7", "twice_-1"]
    assert "written from" in broken[f"{twice} kernel 1"]


def test_a_broken_file_or_a_name_taken_does_not_stop_the_others(tmp_path):
    cut = tmp_path / "cut.pb"
    absent = tmp_path / "absent.pb"
    cut.write_bytes(matmul_module().SerializeToString()[:-5])
    cyclic = matmul_module()
    new = matmul_module()
    cyclic.computations[2].instructions[0].operand_ids.append(32)
    new.computations[2].instructions[2].opcode = "ragged-dot"
    good = saved(tmp_path / "good.pb", new)
    (tmp_path / "other").mkdir()
    same = saved(tmp_path / "other" / "good.hlo", new)
    files = [cut, saved(tmp_path / "cyclic.pb", cyclic), absent, good, same]
    ((graph,), _, broken) = import_hlo(files, tmp_path)
    (note,) = graph["notes"]
    assert note == "opcodes that the format does not know, written as unknown: ragged-dot (1)"
    reasons = {"cut.pb": "cut off", "cyclic.pb": "cycle", "absent.pb": "cannot be read"}
    reasons["good.hlo"] = "good.npz was written from"
    assert [Path(name).name for name in broken] == [*reasons]
    assert all(map(str.__contains__, broken.values(), reasons.values()))
    assert [path.name for path in (tmp_path / "npz").rglob("*.npz")] == ["good.npz"]
    _, _, broken = import_hlo([good], tmp_path, collection="tile:own")
    assert broken == {str(good): "it is a layout graph; expected a tile graph for tile:own"}


def test_real_tuning_data_gives_google_s_files(real_data, tmp_path):
    tuning = tmp_path / "alexnet_train_batch_32.pb"
    tuning.write_bytes((real_data / "pb" / "op_tuning_data.pb").read_bytes())
    graphs, left_out, broken = import_hlo([tuning], tmp_path, collection="tile:xla")
    assert not broken and not left_out and len(graphs) == 15
    for graph in graphs:
        place = Path(graph["path"].replace("/test/", "/train/")).relative_to(tmp_path)
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
    graphs, _, broken = import_hlo(files, tmp_path)
    assert not broken and len(graphs) == len(files) > 0
    assert all(graph["configurable"] > 0 for graph in graphs)


def test_a_program_gets_random_configurations_of_its_hardware(tmp_path):
    program = saved(tmp_path / "matmul.pb", matmul_module())
    with mock.patch("xlarank.pipelines.programs.candidates.MIN_ELEMENTS", 0):
        graph, module = propose(program, "tpu-v4", configs=5)
        again, other = (propose(program, "tpu-v4", configs=5, seed=seed)[0] for seed in (0, 1))
    assert module == matmul_module()
    assert graph.configs == 5 and graph.target == "tpu-v4"
    codes = [one.table.codes.tolist() for one in (graph, again, other)]
    assert codes[0] == codes[1] != codes[2]
    write_configurations(tmp_path / "c.npz", graph)
    written = read_graph(tmp_path / "c.npz")
    assert written.target == "tpu-v4" and not written.labelled and len(written.first) == 5
    for target, message in ((None, "does not say its hardware"), ("vax", "`target` is 'vax'")):
        with pytest.raises(XlarankError, match=message):
            propose(program, target)
    with mock.patch("xlarank.pipelines.programs.candidates.MIN_ELEMENTS", 10**9):
        with pytest.raises(GraphFileError, match=": none of 2 configurable nodes has a choice"):
            propose(program, "cpu")


def test_files_are_programs_unless_they_hold_configurations(tmp_path, shared_tree):
    program = saved(tmp_path / "f.hlo", matmul_module())
    import_hlo([program], tmp_path)
    graph = next((tmp_path / "npz").rglob("*.npz"))
    measured = next((shared_tree / "npz/layout").rglob("train/*.npz"))
    paths = (program, graph, Path("net:program"), measured, tmp_path / "absent.pb")
    assert [is_program(path) for path in paths] == [True, True, True, False, False]


@pytest.mark.parametrize("best", [0, 2])
def test_the_first_configurations_are_compiled(best, tmp_path, monkeypatch):
    def compiled(modules):
        """Yield a failure, then outcomes of which that of ``best`` is the fastest."""
        constrained = [len(module.computations[1].instructions) > 4 for module in modules]
        assert not constrained[0] and any(constrained), "the first is the compiler's default"
        yield 3, Outcome("failed", message="out of memory")
        for at in (2, 1, 0):
            yield at, Outcome("ok", 940 * (50 if at == best else 100))

    def compiler(chip):
        assert chip == "tpu-v3"
        return nullcontext(SimpleNamespace(compile=compiled))

    monkeypatch.setattr("xlarank.pipelines.programs.propose.Compiler", compiler)
    monkeypatch.setattr("xlarank.pipelines.programs.candidates.MIN_ELEMENTS", 0)
    program = saved(tmp_path / "matmul.pb", matmul_module())
    proposal = propose(program, "tpu-v3", configs=9)
    chosen = [0, 5, 2, 3]
    found = estimates(*proposal, chosen, "tpu-v3")
    times = dict(zip(chosen, (100_000, 100_000, 100_000, None), strict=True))
    assert found == times | {chosen[best]: 50_000}
    with pytest.raises(CompilerError, match="nothing is estimated for cpu"):
        estimates(*proposal, chosen, "cpu")


def test_modules_after_optimisation_and_for_several_devices_are_named(tmp_path):
    (tmp_path / "dump").mkdir()
    optimised = matmul_module()
    optimised.computations[1].instructions[3].opcode = "bitcast"
    file = saved(tmp_path / "dump" / "after.pb", optimised)
    saved(tmp_path / "dump" / "before.pb", matmul_module())
    (tmp_path / "dump" / "before.txt").write_text("HloModule before")
    ((graph,), _, _) = import_hlo([file], tmp_path / "out")
    assert "it has bitcast: a module after optimisation; take *before_layout" in graph["notes"][0]
    graphs, left_out, broken = import_hlo([tmp_path / "dump"], tmp_path / "out")
    assert [graph["graph"] for graph in graphs] == ["before"] and not broken
    assert left_out == [
        f"{file}: a module after optimisation",
        f"{tmp_path / 'dump/before.txt'}: before.pb has the same name and was read",
    ]
    with pytest.raises(HloError, match=r"after.pb is a module after optimisation .it has bitcast"):
        propose(file, "tpu-v4")
    sharded = matmul_module()
    sharding = sharded.computations[1].instructions[0].sharding
    sharding.tile_assignment_dimensions.extend([2, 4])
    ((graph,), _, _) = import_hlo([saved(tmp_path / "s.pb", sharded)], tmp_path / "out")
    assert graph["notes"] == ("the program is sharded over 8 devices, and taken whole on one chip",)
