"""Cycles read from the text of compiled programs; every sum is made by hand."""

import pytest

from xlarank.data.errors import CompilerError
from xlarank.data.hlo.compiler.cycles import read_estimate

CONFIG = 'backend_config={"window_config":{"kernel_window_bounds":["1"],"estimated_cycles":"%d"}}'


def op(name: str, cycles: int, operands: str = "%p") -> str:
    return (
        f"  %{name} = f32[8,128]{{1,0:T(8,128)}} fusion({operands}), kind=kLoop, calls=%fused, "
        f'metadata={{op_name="jit(f)/{name}"}}, {CONFIG % cycles}\n'
    )


FUSED = (
    f"%fused (a: f32[8,128]) -> f32[8,128] {{\n  ROOT %c = f32[8,128]{{1,0}} convolution(%a), {CONFIG % 99}\n}}\n\n"
)


def test_the_sum_is_over_the_entry_and_a_fusion_counts_once():
    text = "HloModule jit_f\n\n" + FUSED + "ENTRY %main (p: f32[8,128]) -> f32[8,128] {\n" + op("one", 10)
    text += op("two", 5) + "  ROOT %r = f32[8,128]{1,0} reshape(%two)\n}\n"
    estimate = read_estimate(text)
    assert estimate.cycles == 15
    assert estimate.unknown_loops == 0


LOOP = """HloModule jit_f

{body}%cond (t: (s32[], f32[8,128])) -> pred[] {{
  %end = s32[]{{:T(128)}} constant({end})
  %t = (s32[], f32[8,128]) parameter(0)
  %i = s32[]{{:T(128)}} get-tuple-element(%t), index=0
  ROOT %lt = pred[] compare(%i, %end), direction=LT
}}

ENTRY %main (p: f32[8,128]) -> f32[8,128] {{
  %zero = s32[]{{:T(128)}} constant({start})
  %copy = s32[]{{:T(128)}} copy(%zero)
  %init = (s32[], f32[8,128]) tuple(%copy, %p)
  %w = (s32[], f32[8,128]{{1,0:T(8,128)}}) while(%init), condition=%cond, body=%body{known}
  ROOT %g = f32[8,128]{{1,0}} get-tuple-element(%w), index=1
}}
"""
BODY = (
    "%body (t: (s32[], f32[8,128])) -> (s32[], f32[8,128]) {{\n"
    "  %step = s32[]{{:T(128)}} constant({step})\n"
    "  %t = (s32[], f32[8,128]) parameter(0)\n"
    "  %j = s32[]{{:T(128)}} get-tuple-element(%t), index=0\n"
    "  %next = s32[]{{:T(128)}} add(%j, %step)\n"
    "{op}"
    "  ROOT %out = (s32[], f32[8,128]) tuple(%next, %inner)\n}}\n\n"
)


@pytest.mark.parametrize(
    ("start", "end", "step", "known", "times"),
    [
        (0, 7, 1, "", 7),
        (2, 7, 2, "", 3),  # 2, 4, 6
        (7, 7, 1, "", 0),
        (0, 7, 1, ', backend_config={"known_trip_count":{"n":"5"}}', 5),  # the compiler's word counts
    ],
)
def test_the_body_of_a_loop_counts_as_often_as_it_runs(start, end, step, known, times):
    body = BODY.format(step=step, op=op("inner", 11, "%j"))
    estimate = read_estimate(LOOP.format(body=body, start=start, end=end, known=known))
    assert estimate.cycles == 11 * times
    assert estimate.unknown_loops == 0


def test_a_loop_of_unknown_length_counts_once_and_is_named():
    body = BODY.format(step=1, op=op("inner", 11, "%j"))
    text = LOOP.format(body=body, start=0, end=7, known="").replace(
        "%zero = s32[]{:T(128)} constant(0)", "%zero = s32[] parameter(1)"
    )
    estimate = read_estimate(text)
    assert (estimate.cycles, estimate.unknown_loops) == (11, 1)
    with pytest.raises(CompilerError, match="no entry computation"):
        read_estimate("nothing of the kind")


def test_of_the_branches_of_a_conditional_the_dearest_counts():
    branch = "%{name} (x: f32[8,128]) -> f32[8,128] {{\n{op}}}\n\n"
    text = branch.format(name="yes", op=op("a", 3)) + branch.format(name="no", op=op("b", 8))
    text += "ENTRY %main (p: f32[8,128]) -> f32[8,128] {\n" + op("one", 1)
    text += "  ROOT %c = f32[8,128]{1,0} conditional(%q, %p, %p), true_computation=%yes, false_computation=%no\n}\n"
    assert read_estimate(text).cycles == 9
