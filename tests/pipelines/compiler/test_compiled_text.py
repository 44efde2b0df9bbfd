"""Cycles, operations and kernels of compiled programs; expected sums are worked out by hand."""

import pytest

from xlarank.data.errors import CompilerError
from xlarank.pipelines.programs.compiler.cycles import Operation, read_estimate, read_operations

CONFIG = 'backend_config={"window_config":{"kernel_window_bounds":["1"],"estimated_cycles":"%d"}}'
FUSED = f"""%fused (a: f32[8,128]) -> f32[8,128] {{
  ROOT %c = f32[8,128]{{1,0}} convolution(%a), {CONFIG % 99}
}}

"""


def op(name: str, cycles: int, operands: str = "%p") -> str:
    call = f'fusion({operands}), kind=kLoop, calls=%fused, metadata={{op_name="jit(f)/{name}"}}'
    return f"  %{name} = f32[8,128]{{1,0:T(8,128)}} {call}, {CONFIG % cycles}\n"


def program(before: str, entry: str) -> str:
    return f"HloModule jit_f\n\n{before}ENTRY %main (p: f32[8,128]) -> f32[8,128] {{\n{entry}}}\n"


def loop(
    name: str, start: int, direction: str, end: int, step: int, inside: str
) -> tuple[str, str]:
    """Return condition and body of a loop as compiled for TPU v3, and its call."""
    values = "(s32[]{:T(128)}, f32[8,128]{1,0:T(8,128)})"
    lines = f"""%{name}_body (t: (s32[], f32[8,128])) -> (s32[], f32[8,128]) {{
  %step = s32[]{{:T(128)}} constant({step})
  %t = {values} parameter(0)
  %i = s32[]{{:T(128)}} get-tuple-element(%t), index=0
  %j = s32[]{{:T(128)S(6)}} copy(%i)
  %next = s32[]{{:T(128)}} add(%j, %step), control-predecessors={{%j}}
{inside}  ROOT %out = {values} tuple(%next, %inner)
}}

%{name}_end (t: (s32[], f32[8,128])) -> pred[] {{
  %end = s32[]{{:T(128)}} constant({end})
  %t = {values} parameter(0)
  %i = s32[]{{:T(128)}} get-tuple-element(%t), index=0
  ROOT %lt = pred[]{{:T(1024)}} compare(%i, %end), direction={direction}
}}

"""
    call = f"""  %zero = s32[]{{:T(128)}} constant({start})
  %copy = s32[]{{:T(128)}} copy(%zero)
  %init = {values} tuple(%copy, %p)
  %while_{name} = {values} while(%init), condition=%{name}_end, body=%{name}_body
"""
    return lines, call


def test_the_sum_is_over_the_entry_and_a_fusion_counts_once():
    root = "  ROOT %r = f32[8,128]{1,0} reshape(%two)\n"
    text = program(FUSED, op("one", 10) + op("two", 5) + root)
    assert read_estimate(text) == (15, 0)
    with pytest.raises(CompilerError, match="no entry computation"):
        read_estimate("nothing of the kind")


@pytest.mark.parametrize(
    ("start", "direction", "end", "step", "times"),
    [
        *((0, "LT", 7, 1, 7), (2, "LT", 7, 2, 3), (7, "LT", 7, 1, 0), (0, "LE", 7, 1, 8)),
        *((10, "GT", 0, -1, 10), (10, "GE", 0, -2, 6), (10, "GE", 1, -2, 5), (-1, "GE", 0, -2, 0)),
    ],
)
def test_the_body_of_a_loop_counts_once_per_iteration(start, direction, end, step, times):
    text = program(*loop("one", start, direction, end, step, op("inner", 11, "%j")))
    assert read_estimate(text) == (11 * times, 0)


def test_loops_within_loops_are_multiplied():
    inner, call = loop("inner", 0, "LT", 3, 1, op("inner", 11, "%j"))
    inside = op("before", 7, "%j") + call.replace("%while_inner", "%inner")
    outer, entry = loop("outer", 0, "LT", 5, 1, inside)
    text = program(inner + outer, entry + op("after", 2))
    assert read_estimate(text) == (5 * (7 + 3 * 11) + 2, 0)
    assert sum(operation.total for operation in read_operations(text)) == 5 * (7 + 3 * 11) + 2
    assert by_name(text)["while_outer"].shape == "s32[]"  # the first of several
    assert read_estimate(text.replace("direction=LT", "direction=NE", 1)) == (5 * (7 + 11) + 2, 1)
    # element 0 of an inner loop's result is not element 0 of this loop
    other = outer.replace("copy(%i)", "get-tuple-element(%inner), index=0")
    assert read_estimate(program(inner + other, entry))[1] == 1


def test_a_loop_of_unknown_length_counts_once_and_a_conditional_as_its_most_expensive_branch():
    text = program(*loop("one", 0, "LT", 7, 1, op("inner", 11, "%j")))
    for unknown in (
        text.replace("%zero = s32[]{:T(128)} constant(0)", "%zero = s32[] parameter(1)"),
        text.replace("direction=LT", "direction=NE"),
        text.replace("direction=LT", "direction=GT"),  # counts away from its end
    ):
        assert read_estimate(unknown) == (11, 1)
    branch = "%{name} (x: f32[8,128]) -> f32[8,128] {{\n{op}}}\n\n"
    branches = branch.format(name="yes", op=op("a", 3)) + branch.format(name="no", op=op("b", 8))
    call = "conditional(%q, %p, %p), true_computation=%yes, false_computation=%no\n"
    entry = op("one", 1) + f"  ROOT %c = f32[8,128]{{1,0}} {call}"
    assert read_estimate(program(branches, entry))[0] == 9


RELAID = """HloModule jit_f, entry_computation_layout={(f32[16,8]{1,0:T(8,128)})->f32[8,16]{1,0:T(8,128)}}

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


def by_name(text: str = RELAID) -> dict[str, Operation]:
    return {operation.name: operation for operation in read_operations(text)}


def test_operations_are_relayouts_if_they_only_move_data():
    operations = by_name()
    copies = [name for name, operation in operations.items() if operation.is_copy]
    assert copies == ["copy.1", "one"] and [*operations] == ["p", "copy.1", "same", "one", "two"]
    copy = operations["copy.1"]
    assert (copy.before, copy.layout, copy.cycles, copy.shape) == ((1, 0), (0, 1), 7, "f32[16,8]")
    assert (copy.origin, copy.source, copy.dimensions) == ("w", "/home/me/step.py:31", (16, 8))
    assert operations["p"].number == 0 and operations["two"].root
