"""Names of nodes by the module that a graph was made from."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.data.hlo.programs import matmul_module
from xlarank.data.errors import HloError
from xlarank.data.hlo.messages import HloProto
from xlarank.data.hlo.names import NodeName, node_names
from xlarank.data.hlo.reading import read_hlo


def test_nodes_are_called_as_in_their_module(tmp_path: Path) -> None:
    module = matmul_module()
    module.computations[1].instructions[2].metadata.op_name = "jit(f)/dot_general\x1b[31m"
    path = tmp_path / "own.pb"
    path.write_bytes(HloProto(hlo_module=module).SerializeToString())
    names = node_names(path, read_hlo(path))
    assert [one.name for one in names[:5]] == [
        "parameter.10",
        "reshape.11",
        "parameter.20",
        "parameter.21",
        "dot.22",
    ]
    assert names[4] == NodeName("dot.22", "jit(f)/dot_general?[31m") and len(names) == 9


def test_another_module_is_refused(tmp_path: Path) -> None:
    own, longer, other = (tmp_path / f"{name}.pb" for name in ("own", "longer", "other"))
    own.write_bytes(matmul_module().SerializeToString())
    graph = read_hlo(own)
    module = matmul_module()
    module.computations[2].instructions.add(name="p", opcode="parameter", id=99)
    longer.write_bytes(module.SerializeToString())
    with pytest.raises(
        HloError, match=r"^longer\.pb: the module has 10 instructions, and own 9 nodes; expected the"
    ):
        node_names(longer, graph)
    module = matmul_module()
    module.computations[1].instructions[3].opcode = "copy"
    other.write_bytes(module.SerializeToString())
    with pytest.raises(HloError, match=r"^other\.pb: instruction 5 is a copy, and node 5 of own a reshape"):
        node_names(other, graph)
