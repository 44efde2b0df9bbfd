"""Operations of compiled programs, and predictions from kernels met before."""

import pytest

from xlarank.data.hlo.compiler.operations import Kernels, Operation, read_operations

TEXT = """HloModule jit_f, entry_computation_layout={(f32[16,8]{1,0:T(8,128)})->f32[8,16]{1,0:T(8,128)}}

FileNames
1 "/home/me/step.py"

FileLocations
1 {file_name_id=1 function_name_id=1 line=20 end_line=20 column=1}
2 {file_name_id=1 function_name_id=1 line=31 end_line=31 column=1}

StackFrames
1 {file_location_id=1 parent_frame_id=1}
2 {file_location_id=2 parent_frame_id=1}

%moves (a: f32[16,8]) -> f32[8,16] {
  %a = f32[16,8]{0,1:T(8,128)} parameter(0)
  ROOT %t = f32[8,16]{1,0:T(8,128)} transpose(%a), dimensions={1,0}
}

%adds (b: f32[8,16]) -> f32[8,16] {
  %b = f32[8,16]{1,0:T(8,128)} parameter(0)
  %c = f32[8,16]{1,0:T(8,128)} copy(%b)
  ROOT %d = f32[8,16]{1,0:T(8,128)} add(%c, %b)
}

ENTRY %main (p: f32[16,8]) -> f32[8,16] {
  %p = f32[16,8]{1,0:T(8,128)} parameter(0), metadata={op_name="w"}
  %copy.1 = f32[16,8]{0,1:T(8,128)} copy(%p), metadata={op_name="w" stack_frame_id=2}, backend_config={"estimated_cycles":"7"}
  %same = f32[16,8]{0,1:T(8,128)} copy(%copy.1), backend_config={"estimated_cycles":"3"}
  %one = f32[8,16]{1,0:T(8,128)} fusion(%same), kind=kLoop, calls=%moves, backend_config={"estimated_cycles":"5"}
  ROOT %two = f32[8,16]{1,0:T(8,128)} fusion(%one), kind=kLoop, calls=%adds, backend_config={"estimated_cycles":"11"}
}
"""  # noqa: E501


def by_name(text: str = TEXT) -> dict[str, Operation]:
    return {one.name: one for one in read_operations(text)}


def test_what_only_moves_data_is_told_from_what_computes():
    found = by_name()
    assert {name: one.relayout for name, one in found.items()} == {
        "p": False, "copy.1": True, "same": False, "one": True, "two": False,
    }  # fmt: skip
    copy = found["copy.1"]
    assert (copy.before, copy.layout, copy.cycles, copy.shape) == ((1, 0), (0, 1), 7, "f32[16,8]")
    assert (copy.origin, copy.source, copy.dimensions) == ("w", "/home/me/step.py:31", (16, 8))
    assert found["p"].number == 0 and found["two"].root
    # 16 x 8 is padded to 16 x 128 as it was, and to 8 x 128 with the 16 along the lanes
    assert copy.bytes == 4 * (16 * 128 + 8 * 128)


def test_kernels_are_known_by_shapes_and_layouts_not_by_names():
    found, other = by_name(), by_name(TEXT.replace("%two", "%x").replace("%one", "%y").replace('"11"', '"12"'))
    assert other["x"].kernel == found["two"].kernel
    assert by_name(TEXT.replace("%copy.1 = f32[16,8]{0,1", "%copy.1 = f32[16,8]{1,0"))["copy.1"].kernel != (
        found["copy.1"].kernel
    )


def test_predictions_are_exact_for_known_kernels_and_cautious_for_others():
    kernels = Kernels()
    kernels.learn(read_operations(TEXT))
    assert kernels.predict(read_operations(TEXT)) == 7 + 3 + 5 + 11
    other = TEXT.replace("add(%c, %b)", "subtract(%c, %b)")  # unknown: 5 or 11 cycles for the same bytes
    rates = sorted(one.cycles / one.bytes for one in read_operations(TEXT) if one.opcode == "fusion")
    unknown = 0.7 * by_name(other)["two"].bytes * (rates[0] + 0.25 * (rates[1] - rates[0]))
    assert kernels.predict(read_operations(other)) == pytest.approx(7 + 3 + 5 + unknown)
    turned = TEXT.replace("%two = f32[8,16]{1,0", "%two = f32[8,16]{0,1")  # alike but for the layout
    assert kernels.predict(read_operations(turned)) == pytest.approx(7 + 3 + 5 + 0.7 * 11)
    assert Kernels().predict(read_operations(TEXT)) == 0
