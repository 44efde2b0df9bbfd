"""Small HLO modules written down by hand, for the tests of `xlarank.data.hlo`."""

from collections.abc import Sequence
from typing import Any

from xlarank.data.hlo.messages import HloModuleProto, Message, ModuleTuningData, TuningData

F32, TUPLE = 11, 13


def instruction(
    computation: Message,
    opcode: str,
    dims: Sequence[int] = (),
    operands: Sequence[int] = (),
    *,
    id: int,
    element: int = F32,
    layout: Sequence[int] | None = None,
    calls: Sequence[int] = (),
    **fields: Any,
) -> Message:
    """Append an instruction; its layout is row major unless given."""
    added = computation.instructions.add(
        name=f"{opcode}.{id}", opcode=opcode, id=id, operand_ids=operands, called_computation_ids=calls, **fields
    )
    added.shape.element_type = element
    added.shape.dimensions.extend(dims)
    added.shape.layout.minor_to_major.extend(reversed(range(len(dims))) if layout is None else layout)
    computation.root_id = id
    return added


def matmul_module() -> Message:
    """A dot of two parameters, reshaped, in a loop's body; a fusion with a reshape of its own beside it.

    Nodes: 0-1 fused (parameter, reshape), 2-5 while_body (two parameters, dot, reshape), 6-8 main (parameter,
    while, fusion).
    """
    module = HloModuleProto(name="jit_f", entry_computation_id=3, entry_computation_name="main")
    fused = module.computations.add(name="fused_computation", id=1)
    instruction(fused, "parameter", (8, 128), id=10)
    instruction(fused, "reshape", (1024,), (10,), id=11)
    body = module.computations.add(name="while_body", id=2)
    instruction(body, "parameter", (8, 64), id=20)
    instruction(body, "parameter", (64, 128), id=21, layout=(0, 1), parameter_number=1)
    dot = instruction(body, "dot", (8, 128), (20, 21), id=22)
    dot.dot_dimension_numbers.lhs_contracting_dimensions.append(1)
    instruction(body, "reshape", (8, 16, 8), (22,), id=23)
    main = module.computations.add(name="main", id=3)
    instruction(main, "parameter", (8, 128), id=30)
    instruction(main, "while", (8, 16, 8), (30,), id=31, calls=(2,))
    instruction(main, "fusion", (1024,), (31, 31, 30), id=32, calls=(1,))
    return module


def tuning_data() -> ModuleTuningData:
    """The dot and the reshape of the loop's body with one run."""
    data = ModuleTuningData(module=matmul_module(), fingerprint=7, config_index_to_node=[4, 5])
    run = data.runs.add(is_default=True)
    run.module_config.layout_config.nodes.add()
    run.profile.compute_time_ns = 5
    return data


def kernels() -> TuningData:
    """One kernel with a default run that has no time."""
    data = TuningData()
    kernel = data.modules.add(module=matmul_module(), fingerprint=7)
    kernel.runs.add(is_default=True).op_config.tile_size_config.output_bounds.append(4)
    return data
