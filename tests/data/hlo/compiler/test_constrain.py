"""Layouts set in a module: where the constraint goes and who then uses it."""

import numpy as np
import pytest

from tests.data.hlo.programs import F32, instruction, matmul_module
from tests.pipelines.test_advise import product_module
from xlarank.data.errors import CompilerError
from xlarank.data.hlo.compiler.constrain import constrain, entry_modes, layouts_of, with_entry_modes
from xlarank.data.hlo.compiler.xla import repaired
from xlarank.data.hlo.messages import HloModuleProto

DOT, RESHAPE = 4, 5  # nodes of matmul_module


def row(output=(), operand=(), kernel=()):
    slots = [list(slot) + [-1] * (6 - len(slot)) for slot in (output, operand, kernel)]
    return np.array(slots, np.int8).reshape(-1)


def body_of(module):
    return next(computation for computation in module.computations if computation.name == "while_body")


def test_constraints_take_the_place_of_outputs_under_new_identities():
    module = matmul_module()
    rows = np.stack([row((0, 1)), row((1, 0, 2))])
    edited = constrain(module, layouts_of(module, [DOT, RESHAPE], rows))
    body = body_of(edited)
    assert [one.opcode for one in body.instructions[2:]] == ["dot", "custom-call", "reshape", "custom-call"]
    dot, call, reshape, root = body.instructions[2:]
    assert call.custom_call_target == "LayoutConstraint"
    assert list(call.operand_ids) == [dot.id] and list(reshape.operand_ids) == [call.id]
    assert list(call.shape.layout.minor_to_major) == [0, 1]
    assert list(call.operand_shapes_with_layout[0].layout.minor_to_major) == [0, 1]
    assert list(call.shape.dimensions) == list(dot.shape.dimensions)
    assert list(dot.shape.layout.minor_to_major) == [1, 0]  # what it says of itself stays
    assert body.root_id == root.id
    ids = [one.id for computation in edited.computations for one in computation.instructions]
    assert len(set(ids)) == len(ids)
    nothing = np.full((2, 18), -1, np.int8)
    assert constrain(module, layouts_of(module, [DOT, RESHAPE], nothing)) == module


def test_composite_identities_stay_in_their_computation():
    module = HloModuleProto(entry_computation_id=1)
    main = module.computations.add(name="main", id=1)
    instruction(main, "parameter", (8, 128), id=(1 << 32) + 1)
    instruction(main, "reshape", (128, 8), ((1 << 32) + 1,), id=(1 << 32) + 2)
    instruction(module.computations.add(name="other", id=2), "parameter", (8, 128), id=(2 << 32) + 9)
    edited = constrain(module, layouts_of(module, [1], row((0, 1))[None]))
    assert edited.computations[0].root_id == (1 << 32) + 3


def test_rows_become_whole_orders_of_outputs():
    module = matmul_module()
    # a partial order is completed by the last dimensions first; operands are left to the compiler
    assert layouts_of(module, [RESHAPE], row((1,))[None]) == {RESHAPE: (1, 2, 0)}
    assert layouts_of(module, [DOT], row(operand=(0, 1), kernel=(1, 0))[None]) == {}
    for node, output, message in (
        (DOT, (0, 2), "does not fit its 2 dimensions"),
        (DOT, (1, 1), "at most once"),
        (99, (0,), "not in the module"),
    ):
        with pytest.raises(CompilerError, match=message):
            layouts_of(module, [node], row(output)[None])


def test_what_does_not_compile_twice_is_repaired():
    module = matmul_module()
    main = module.computations[-1]
    call = instruction(main, "custom-call", (8,), (30, 31), id=40, element=F32, custom_call_target="X64Combine")
    call.custom_call_api_version = 2
    module.input_output_alias.SetInParent()
    mended = repaired(module)
    last = mended.computations[-1].instructions[-1]
    assert (last.opcode, list(last.operand_ids), last.custom_call_target) == ("convert", [30], "")
    assert not mended.HasField("input_output_alias")
    assert module.HasField("input_output_alias")  # the caller's own module stays
    assert [one.opcode for one in mended.computations[-1].instructions][:3] == ["parameter", "while", "call"]
    assert not any(computation.is_fusion_computation for computation in mended.computations)


def test_modes_stand_in_the_module_and_orders_in_its_entry_layout():
    module = product_module()
    assert entry_modes(module) is None
    edited = with_entry_modes(module, ["default", "{0,1}"], ["auto"])
    assert entry_modes(edited) == [["default", "{0,1}"], ["auto"]]
    layouts = [list(shape.layout.minor_to_major) for shape in edited.host_program_shape.parameters]
    assert layouts == [[1, 0], [0, 1]]
    assert entry_modes(module) is None  # a copy
    assert entry_modes(with_entry_modes(edited, ["default"] * 2, ["default"])) is None
    assert not [one.key for one in repaired(edited).frontend_attributes.map]
