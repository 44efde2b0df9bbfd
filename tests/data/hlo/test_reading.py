"""A program in a file as a graph."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import xlarank
from tests.data.hlo.programs import matmul_module
from xlarank.data.errors import HloError
from xlarank.data.graph import LayoutGraph
from xlarank.data.hlo.messages import HloProto, Message
from xlarank.data.hlo.reading import HloWarning, NodeName, node_names, read_hlo, unlabelled_arrays
from xlarank.data.writing import write_graph


def test_the_graph_is_what_writing_and_reading_the_arrays_gives(tmp_path: Path) -> None:
    path = tmp_path / "module_0007.jit_f.hlo.pb"
    path.write_bytes(HloProto(hlo_module=matmul_module()).SerializeToString())
    graph = xlarank.read_hlo(str(path))
    assert graph.name == "module_0007.jit_f"
    assert (graph.nodes, graph.configs, graph.configurable.tolist()) == (9, 1, [4, 5])
    assert (graph.table.rows == -1).all() and not graph.labelled
    written = write_graph(tmp_path / "graph.npz", **unlabelled_arrays(matmul_module()))
    assert isinstance(written, LayoutGraph)
    for name in ("node_feat", "opcode", "edges", "runtime", "splits", "configurable"):
        ours, theirs = getattr(graph, name), getattr(written, name)
        assert ours.dtype == theirs.dtype and np.array_equal(ours, theirs), name
    for name in ("codes", "rows", "node", "start"):
        assert np.array_equal(getattr(graph.table, name), getattr(written.table, name)), name


def saved(path: Path, message: Message) -> Path:
    path.write_bytes(message.SerializeToString())
    return path


def test_warnings_and_errors_name_the_file(tmp_path: Path) -> None:
    module = matmul_module()
    fusion = module.computations[2].instructions[2]
    fusion.opcode = "ragged-dot"
    with pytest.warns(HloWarning, match=r"new\.pb: opcodes that the format does not know.*: ragged-dot \(1\)"):
        assert read_hlo(saved(tmp_path / "new.pb", module)).opcode[8] == 0
    fusion.operand_ids.append(404)
    with pytest.raises(HloError, match=r"^dangling\.pb: %fusion\.32 names operand 404, which does not exist"):
        read_hlo(saved(tmp_path / "dangling.pb", module))


def test_nodes_are_called_as_in_their_module_and_another_one_is_refused(tmp_path: Path) -> None:
    module = matmul_module()
    module.computations[1].instructions[2].metadata.op_name = "jit(f)/dot_general\x1b[31m"
    path = saved(tmp_path / "own.pb", HloProto(hlo_module=module))
    graph = read_hlo(path)
    names = node_names(path, graph)
    assert " ".join(one.name for one in names[:4]) == "parameter.10 reshape.11 parameter.20 parameter.21"
    assert names[4] == NodeName("dot.22", "jit(f)/dot_general?[31m") and len(names) == 9
    longer, other = matmul_module(), matmul_module()
    longer.computations[2].instructions.add(name="p", opcode="parameter", id=99)
    other.computations[1].instructions[3].opcode = "copy"
    for module, words in (
        (longer, r"^x\.pb: the module has 10 instructions, and own 9 nodes; expected the"),
        (other, r"^x\.pb: instruction 5 is a copy, and node 5 of own a reshape"),
    ):
        with pytest.raises(HloError, match=words):
            node_names(saved(tmp_path / "x.pb", module), graph)
