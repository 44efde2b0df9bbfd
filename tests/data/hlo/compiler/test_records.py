"""What is kept of estimates: beside the labels, and in the journal of a run."""

import numpy as np
import pytest

from tests.graphs import layout_arrays
from xlarank.data.errors import GraphFileError, WorkspaceError
from xlarank.data.graph import read_graph
from xlarank.data.hlo.compiler.cycle_table import cycle_arrays, read_cycles
from xlarank.data.hlo.compiler.cycles import Estimate, Operation
from xlarank.data.hlo.compiler.fingerprint import fingerprint
from xlarank.data.hlo.compiler.journal import Journal
from xlarank.data.hlo.compiler.outcome import Outcome, Status
from xlarank.data.writing import write_graph

COPY = Operation("copy.1", "copy", "f32[8]{0}", "", 5)
DOT = Operation("fusion", "fusion", "f32[8,128]{1,0:T(8,128)}", "jit(f)/dot_general", 7, node=33)
ONE, TWO = Estimate((DOT, COPY)), Estimate((DOT,), 1)


def test_cycles_come_back_and_readers_of_the_format_pass_over_them(tmp_path):
    arrays = layout_arrays()
    configs = len(arrays["config_runtime"])
    programs = ["a", "b"] + ["a"] * (configs - 2)
    extra = cycle_arrays(programs, [ONE if name == "a" else TWO for name in programs])
    path = tmp_path / "graph.npz"
    write_graph(path, **arrays, **extra)
    assert read_graph(path).configs == configs
    table = read_cycles(path)
    assert table is not None
    assert table.of(0).operations == ONE.operations
    assert table.of(1).operations == TWO.operations
    assert table.of(configs - 1).cycles == 12
    assert len(table.estimates) == 2
    assert len(extra["operation_name"]) == 2  # shared by both programs


def test_files_of_before_nodes_were_kept(tmp_path):
    arrays = layout_arrays()
    configs = len(arrays["config_runtime"])
    extra = cycle_arrays(["a"] * configs, [ONE] * configs)
    assert extra.pop("operation_node").tolist() == [33, -1]
    path = tmp_path / "graph.npz"
    write_graph(path, **arrays, **extra)
    table = read_cycles(path)
    assert table is not None and [one.node for one in table.of(0).operations] == [-1, -1]


def test_a_file_without_cycles_has_none(tmp_path):
    path = tmp_path / "graph.npz"
    write_graph(path, **layout_arrays())
    assert read_cycles(path) is None


def test_cycles_that_contradict_one_another_are_refused(tmp_path):
    arrays = layout_arrays()
    extra = cycle_arrays(["a"] * len(arrays["config_runtime"]), [ONE] * len(arrays["config_runtime"]))
    extra["cycles_operation"] = extra["cycles_operation"] + 1
    path = tmp_path / "graph.npz"
    np.savez_compressed(path, **arrays, **extra)
    with pytest.raises(GraphFileError, match="contradict"):
        read_cycles(path)


def test_a_journal_gives_back_what_was_added_and_drops_a_cut_line(tmp_path):
    path = tmp_path / "journal"
    with Journal(path, {"seed": 0}) as journal:
        journal.add("", Outcome(Status.OK, ONE, "f", False, 1.5))
        journal.add("0:10", Outcome(Status.OK, ONE, "f", True, 0.25))
        journal.add("1:10", Outcome(Status.CRASHED, seconds=2.0, message="signal 11"))
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"configuration": "2:1')
    with Journal(path, {"seed": 0}) as journal:
        assert list(journal.outcomes) == ["", "0:10", "1:10"]
        assert journal.outcomes["0:10"] == Outcome(Status.OK, ONE, "f", True, 0.25)
        assert journal.outcomes["1:10"].message == "signal 11"
        assert journal.estimates == {"f": ONE}
    assert path.read_bytes() == whole


def test_a_journal_of_other_settings_is_refused(tmp_path):
    with Journal(tmp_path / "journal", {"seed": 0, "target": "tpu-v3"}):
        pass
    with pytest.raises(WorkspaceError, match="another seed; expected seed 0"):
        Journal(tmp_path / "journal", {"seed": 1, "target": "tpu-v3"})


def test_names_and_origins_do_not_change_a_fingerprint_but_layouts_do():
    origin = 'metadata={op_name="a{}\\"}" source_line=3}'
    text = f"ENTRY %m {{\n  %x = f32[8]{{0}} add(%a, %b), {origin}, sharding={{replicated}}\n}}"
    assert fingerprint(text) == fingerprint(text.replace("%x", "%y.1").replace("source_line=3", "source_line=4"))
    assert fingerprint(text) != fingerprint(text.replace("{0}", "{0:T(128)}"))
    assert fingerprint(text) != fingerprint(text.replace("add(%a, %b)", "add(%a, %a)"))
    assert fingerprint(text) != fingerprint(text.replace("replicated", "maximal"))
