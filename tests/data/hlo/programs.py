"""Small HLO modules written down by hand, for the tests of `xlarank.data.hlo`."""

from xlarank.data.hlo.messages import HloModuleProto, Message, ModuleTuningData, TuningData

F32 = 11
TUPLE = 13


def instruction(
    computation, opcode, dims=(), operands=(), *, id, element=F32, layout=None, calls=(), **fields
):
    order = range(len(dims))[::-1] if layout is None else layout  # row major
    shape = {"element_type": element, "dimensions": dims, "layout": {"minor_to_major": order}}
    fields |= {"operand_ids": operands, "called_computation_ids": calls, "shape": shape}
    computation.root_id = id
    return computation.instructions.add(name=f"{opcode}.{id}", opcode=opcode, id=id, **fields)


def saved(path, message):
    path.write_bytes(message.SerializeToString())
    return path


def matmul_module() -> Message:
    """Return a module with a dot, reshaped, in a loop's body, and a fusion with a reshape.

    Nodes: 0-1 fused (parameter, reshape), 2-5 while_body (two parameters, dot, reshape), 6-8 main
    (parameter, while, fusion).
    """
    module = HloModuleProto(name="jit_f", entry_computation_id=3, entry_computation_name="main")
    fused = module.computations.add(name="fused_computation", id=1)
    instruction(fused, "parameter", (8, 128), id=10)
    instruction(fused, "reshape", (1024,), (10,), id=11)
    body = module.computations.add(name="while_body", id=2)
    instruction(body, "parameter", (8, 64), id=20)
    instruction(body, "parameter", (64, 128), id=21, layout=(0, 1), parameter_number=1)
    numbers = {"lhs_contracting_dimensions": [1]}
    instruction(body, "dot", (8, 128), (20, 21), id=22, dot_dimension_numbers=numbers)
    instruction(body, "reshape", (8, 16, 8), (22,), id=23)
    main = module.computations.add(name="main", id=3)
    instruction(main, "parameter", (8, 128), id=30)
    instruction(main, "while", (8, 16, 8), (30,), id=31, calls=(2,))
    instruction(main, "fusion", (1024,), (31, 31, 30), id=32, calls=(1,))
    return module


def tuning_data() -> ModuleTuningData:
    """Return a run of the dot and the reshape of the loop's body."""
    run = {"is_default": True, "profile": {"compute_time_ns": 5}}
    data = ModuleTuningData(
        module=matmul_module(), fingerprint=7, config_index_to_node=[4, 5], runs=[run]
    )
    data.runs[0].module_config.layout_config.nodes.add()
    return data


def kernels() -> TuningData:
    """Return a kernel with a default run that has no time."""
    run = {"is_default": True, "op_config": {"tile_size_config": {"output_bounds": [4]}}}
    return TuningData(modules=[{"module": matmul_module(), "fingerprint": 7, "runs": [run]}])
