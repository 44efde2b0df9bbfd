"""Cycles read from the text of compiled programs; every sum is made by hand."""

import pytest

from xlarank.data.errors import CompilerError
from xlarank.data.hlo.compiler.cycles import Estimate, read_estimate

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
    assert read_estimate(text) == Estimate(15, 0)


LOOP = """HloModule jit_f

{body}%cond (t: (s32[], f32[8,128])) -> pred[] {{
  %end = s32[]{{:T(128)}} constant({end})
  %t = (s32[], f32[8,128]) parameter(0)
  %i = s32[]{{:T(128)}} get-tuple-element(%t), index=0
  ROOT %lt = pred[] compare(%i, %end), direction={direction}
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
    ("start", "direction", "end", "step", "known", "times"),
    [
        (0, "LT", 7, 1, "", 7),
        (2, "LT", 7, 2, "", 3),  # 2, 4, 6
        (7, "LT", 7, 1, "", 0),
        (0, "LE", 7, 1, "", 8),
        (10, "GT", 0, -1, "", 10),
        (10, "GE", 0, -2, "", 6),  # 10, 8, 6, 4, 2, 0
        (10, "GE", 1, -2, "", 5),
        (-1, "GE", 0, -2, "", 0),
        (0, "LT", 7, 1, ', backend_config={"known_trip_count":{"n":"5"}}', 5),  # the compiler's word counts
    ],
)
def test_the_body_of_a_loop_counts_as_often_as_it_runs(start, direction, end, step, known, times):
    body = BODY.format(step=step, op=op("inner", 11, "%j"))
    text = LOOP.format(body=body, start=start, direction=direction, end=end, known=known)
    assert read_estimate(text) == Estimate(11 * times)


#: A product, repeated three times within each of a scan's five steps, as the compiler leaves it for TPU v3 (jax
#: 0.10.2, libtpu 0.0.42.1), without what nobody reads: the counter goes through a copy in scalar memory.
SCAN = """HloModule jit_f, is_scheduled=true

%region_1.sunk (t.1: (s32[], f32[256,256])) -> (s32[], f32[256,256]) {
  %constant.10..sunk.2 = s32[]{:T(256)} constant(1)
  %t.1 = (s32[]{:T(256)}, f32[256,256]{1,0:T(8,128)}) parameter(0)
  %gte.94 = s32[]{:T(256)} get-tuple-element(%t.1), index=0
  %add.9 = s32[]{:T(256)} add(%gte.94, %constant.10..sunk.2)
  %tanh.2 = f32[256,256]{1,0:T(8,128)} fusion(%t.1), backend_config={"estimated_cycles":"2878"}
  %copy.5 = f32[256,256]{1,0:T(8,128)} copy(%tanh.2), backend_config={"estimated_cycles":"1517"}
  ROOT %tuple.25 = (s32[]{:T(256)}, f32[256,256]{1,0}) tuple(%add.9, %copy.5)
}

%region_2 (t.4: (s32[], f32[256,256])) -> pred[] {
  %constant.4 = s32[]{:T(256)} constant(3)
  %t.4 = (s32[]{:T(256)}, f32[256,256]{1,0:T(8,128)}) parameter(0)
  %gte.40 = s32[]{:T(256)} get-tuple-element(%t.4), index=0
  ROOT %lt.0 = pred[]{:T(1024)} compare(%gte.40, %constant.4), direction=LT
}

%region_0.sunk (t.0: (s32[], f32[256,256], /*index=2*/s32[])) -> (s32[], f32[256,256], /*index=2*/s32[]) {
  %constant.12..sunk = s32[]{:T(256)} constant(0)
  %constant.10..sunk = s32[]{:T(256)} constant(1)
  %t.0 = (s32[], f32[256,256]{1,0}, /*index=2*/s32[]) parameter(0)
  %copy.19 = s32[]{:T(256)} copy(%constant.12..sunk)
  %gte.110 = s32[]{:T(256)} get-tuple-element(%t.0), index=0
  %copy.10 = s32[]{:T(256)S(6)} copy(%gte.110)
  %add.8 = s32[]{:T(256)} add(%copy.10, %constant.10..sunk), control-predecessors={%copy.10}
  %add_fusion.2 = f32[256,256]{1,0:T(8,128)} fusion(%t.0, %copy.10), backend_config={"estimated_cycles":"2186"}
  %tuple.23 = (s32[]{:T(256)}, f32[256,256]{1,0}) tuple(%copy.19, %add_fusion.2)
  %while.8 = (s32[]{:T(256)}, f32[256,256]{1,0}) while(%tuple.23), condition=%region_2, body=%region_1.sunk
  %update.2 = f32[256,256]{1,0:T(8,128)} fusion(%copy.10, %while.8), backend_config={"estimated_cycles":"1517"}
  ROOT %tuple.28 = (s32[], f32[256,256]{1,0}, /*index=2*/s32[]) tuple(%add.8, %update.2, /*index=2*/%add.8)
}

%region_3 (t.7: (s32[], f32[256,256], /*index=2*/s32[])) -> pred[] {
  %constant.17 = s32[]{:T(256)} constant(5)
  %t.7 = (s32[], f32[256,256]{1,0}, /*index=2*/s32[]) parameter(0)
  %gte.53 = s32[]{:T(256)} get-tuple-element(%t.7), index=0
  ROOT %lt.2 = pred[]{:T(1024)} compare(%gte.53, %constant.17), direction=LT
}

ENTRY %main.5 (x.1: f32[256,256]) -> (s32[], f32[256,256], /*index=2*/s32[]) {
  %constant.12 = s32[]{:T(256)} constant(0)
  %x.1 = f32[256,256]{1,0:T(8,128)} parameter(0)
  %copy.18 = f32[256,256]{1,0:T(8,128)} copy(%x.1), backend_config={"estimated_cycles":"1517"}
  %copy.7 = s32[]{:T(256)} copy(%constant.12)
  %tuple.26 = (s32[], f32[256,256]{1,0}, /*index=2*/s32[]) tuple(%copy.7, %copy.18, /*index=2*/%constant.12)
  ROOT %w = (s32[], f32[256,256]{1,0}, /*index=2*/s32[]) while(%tuple.26), condition=%region_3, body=%region_0.sunk
}
"""


def test_loops_are_counted_through_copies_of_the_counter():
    before, inner, rest = 1517, 2878 + 1517, 2186 + 1517
    assert read_estimate(SCAN) == Estimate(before + 5 * (rest + 3 * inner))
    outer = "%gte.110 = s32[]{:T(256)} get-tuple-element(%t.0)"
    assert outer in SCAN  # element 0 of an inner loop's result is not element 0 of this loop
    assert read_estimate(SCAN.replace(outer, "%gte.110 = s32[] get-tuple-element(%while.8)")).unknown_loops == 1


def test_a_loop_of_unknown_length_counts_once_and_is_named():
    body = BODY.format(step=1, op=op("inner", 11, "%j"))
    text = LOOP.format(body=body, start=0, direction="LT", end=7, known="")
    for before, after in (
        ("%zero = s32[]{:T(128)} constant(0)", "%zero = s32[] parameter(1)"),
        ("direction=LT", "direction=NE"),
        ("direction=LT", "direction=GT"),  # counts away from its end
    ):
        assert read_estimate(text.replace(before, after)) == Estimate(11, 1)
    with pytest.raises(CompilerError, match="no entry computation"):
        read_estimate("nothing of the kind")


def test_of_the_branches_of_a_conditional_the_dearest_counts():
    branch = "%{name} (x: f32[8,128]) -> f32[8,128] {{\n{op}}}\n\n"
    text = branch.format(name="yes", op=op("a", 3)) + branch.format(name="no", op=op("b", 8))
    text += "ENTRY %main (p: f32[8,128]) -> f32[8,128] {\n" + op("one", 1)
    text += "  ROOT %c = f32[8,128]{1,0} conditional(%q, %p, %p), true_computation=%yes, false_computation=%no\n}\n"
    assert read_estimate(text).cycles == 9
