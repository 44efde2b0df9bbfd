"""Kernels cut out of a compiled program."""

import json

from tests.data.hlo.programs import instruction
from xlarank.data.hlo.kernels import NO_ESTIMATE, cut_kernels
from xlarank.data.hlo.messages import HloModuleProto
from xlarank.data.schema import OPCODES


def window(cycles, output, kernel=()):
    tile = {"kernel_window_bounds": kernel, "output_window_bounds": output, "estimated_cycles": str(cycles)}
    return json.dumps({"window_config": tile}).encode()


def compiled(cycles=700, placed=0, first=1):
    """A fusion that doubles, a copy whose operand may lie in vector memory, and a reshape without a tile."""
    module = HloModuleProto(name="jit_f", entry_computation_id=2, entry_computation_name="main")
    fused = module.computations.add(name="fused_computation", id=1, is_fusion_computation=True)
    instruction(fused, "parameter", (64, 128), id=10)
    instruction(fused, "add", (64, 128), (10, 10), id=11, backend_config=window(1, ["9"]))
    main = module.computations.add(name="main", id=2)
    instruction(main, "parameter", (64, 128), id=20).shape.layout.memory_space = placed
    instruction(main, "copy", (64, 128), (20,), id=21, layout=(0, 1), backend_config=window(cycles, ["2", "1"]))
    instruction(main, "reshape", (8192,), (21,), id=22)
    tile = window(50, [str(first), "1"], ["4"])
    instruction(main, "fusion", (64, 128), (21,), id=23, calls=(1,), backend_config=tile)
    return module


def test_a_kernel_is_a_module_of_its_own_with_parameters_for_operands():
    copy, fusion = cut_kernels(compiled())
    assert [OPCODES[code] for code in copy.program["node_opcode"]] == ["parameter", "copy"]
    assert [OPCODES[code] for code in fusion.program["node_opcode"]] == ["parameter", "add", "parameter", "fusion"]
    assert fusion.program["edge_index"].tolist() == [[1, 0], [3, 1], [3, 2]]
    assert (fusion.kernel, fusion.output, fusion.cycles) == ((4,), (1, 1), 50)
    other = cut_kernels(compiled(cycles=NO_ESTIMATE, first=2))
    assert [kernel.digest for kernel in other] == [copy.digest, fusion.digest], "not of its tile"
    assert copy.digest != fusion.digest
    assert [kernel.opcode for kernel in cut_kernels(compiled(placed=1))] == ["fusion"], "not in vector memory"
