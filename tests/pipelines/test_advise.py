"""Advice with a fake compiler: what is compiled when, what is kept, what is printed."""

import json
import sys
from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from tests.data.hlo.programs import instruction, matmul_module
from tests.schema import validate
from xlarank.cli.console import plain_values
from xlarank.cli.programs import _show_advice
from xlarank.data.errors import CompilerError
from xlarank.data.hlo.messages import HloModuleProto, instructions
from xlarank.pipelines.programs.advise import advice
from xlarank.pipelines.programs.advise.advice import advise
from xlarank.pipelines.programs.advise.diagnosis import (
    changes_of,
    diagnose,
    entry_lines,
    operation_lines,
)
from xlarank.pipelines.programs.advise.search import LayoutSearch, around_copies
from xlarank.pipelines.programs.collect import program_hash
from xlarank.pipelines.programs.compiler.chips import chip_named
from xlarank.pipelines.programs.compiler.constrain import entry_modes
from xlarank.pipelines.programs.compiler.cycles import read_estimate
from xlarank.pipelines.programs.compiler.functions import import_function
from xlarank.pipelines.programs.compiler.xla import Outcome, Program
from xlarank.pipelines.programs.leaves import Leaf, ties_of

LAYOUTS = "(f32[64,128]{{1,0}}, f32[128,64]{{{weight}}})->f32[64,64]{{1,0}}"
TEXT = (
    f"HloModule m, entry_computation_layout={{{{{LAYOUTS}}}}}"
    + """

ENTRY %main (x: f32[64,128], w: f32[128,64]) -> f32[64,64] {{
  %x = f32[64,128]{{1,0}} parameter(0)
  %w = f32[128,64]{{{weight}}} parameter(1)
  {copy}
  ROOT %dot.3 = f32[64,64]{{1,0}} convolution(%x, %{operand}), \
backend_config={{"estimated_cycles":"{cycles}"}}
}}
"""
)


def product_module():
    """Return the module of x @ w, with names as JAX gives them."""
    module = HloModuleProto(name="jit_f", entry_computation_id=1, entry_computation_name="main")
    main = module.computations.add(name="main", id=1)
    instruction(main, "parameter", (64, 128), id=1, metadata={"op_name": "x"})
    weight = {"parameter_number": 1, "metadata": {"op_name": "layer['w']"}}
    instruction(main, "parameter", (128, 64), id=2, **weight)
    numbers = {"lhs_contracting_dimensions": [1]}
    place = {"op_name": "jit(f)/dot", "source_file": "net.py", "source_line": 7}
    product = {"dot_dimension_numbers": numbers, "metadata": place}
    dot = instruction(main, "dot", (64, 64), (1, 2), id=3, **product)
    module.host_program_shape.parameters.extend(part.shape for part in main.instructions[:2])
    module.host_program_shape.result.CopyFrom(dot.shape)
    return module


class FakeCompiler:
    """Compiler that copies a weight unless its layout is free; constraining the dot spares 50."""

    target = chip_named("tpu-v3")
    jobs = 1
    useless = False
    spared = 50
    broken = None
    advised_seconds = 0.5

    def __init__(self):
        self.versions = {"jax": "0"}
        self.compiled = []
        self.pasted = []

    def lower(self, **_):
        return Program(product_module().SerializeToString(), [["[0]", "[1]['w']"], [""]])

    def compile_pasted(self, function, lines):
        self.pasted.append(lines)
        return TEXT.format(weight="0,1", operand="w", cycles=100, copy="")

    def measure(self, _, programs, *, step, **__):
        """Yield rounds in which the program as written takes between 0.9 and 1.1 s."""
        rng = np.random.default_rng(0)
        for name in programs:
            step(name)
        while True:
            yield dict(zip(programs, (rng.uniform(0.9, 1.1), self.advised_seconds), strict=False))

    def compile(self, modules, keep=True):
        for at, module in enumerate(modules):
            inputs = (entry_modes(module) or [["default", "default"]])[0]
            turned = any(added.custom_call_target for added in module.computations[0].instructions)
            self.compiled.append(f"{inputs[1]} {turned}")
            if self.broken is not None:
                yield at, self.broken
                continue
            free = inputs[1] in ("auto", "{0,1}") and not self.useless
            entry = {"weight": "0,1", "operand": "w", "copy": ""}
            if not free:
                config = 'backend_config={"estimated_cycles":"300"}'
                copy = f"%copy.1 = f32[128,64]{{0,1}} copy(%w), {config}"
                entry = {"weight": "1,0", "operand": "copy.1", "copy": copy}
            text = TEXT.format(cycles=100 - self.spared * turned, **entry)
            yield at, Outcome("ok", *read_estimate(text), f"{free} {turned}", text=text)


@pytest.fixture
def compiler(monkeypatch):
    compiler = FakeCompiler()
    monkeypatch.setattr(advice, "Compiler", lambda *_, **__: nullcontext(compiler))
    return compiler


def run(out, program="mine:program", **settings):
    result = advise(program, out=out, **settings)
    validate("advise", plain_values(result))
    return result


def test_entry_layouts_are_chosen_by_the_compiler_and_set_by_the_printed_code(compiler, tmp_path):
    compiler.spared = 0
    result = run(tmp_path)
    assert compiler.compiled[:3] == ["default False", "auto False", "auto False"]
    assert result.stopped == "nothing is left to try"
    times = [result.default_ns, result.code_ns, result.module_ns]
    assert times == [*map(chip_named("tpu-v3").nanoseconds, (400, 100, 100))]
    (weight,) = result.inputs
    assert (weight.name, weight.kind, weight.path) == ("layer['w']", "weight", "[1]['w']")
    assert (weight.before, weight.minor_to_major) == ((1, 0), (0, 1))
    summary = "75% of the estimate is 1 copy forced by layouts: 1 of weights"
    assert result.diagnosis.summary == summary
    assert (result.diagnosis.moved_cycles, result.diagnosis_after.moved_cycles) == (300, 0)
    order = "    \"[1]['w']\": (1, 0),  # weight layer['w'], f32[128,64]"
    assert order in result.lines
    assert result.lines[-1].startswith("arguments = jax.tree_util.tree_map(put, arguments, in_for")
    compile("\n".join(result.lines), "lines", "exec")
    assert compiler.pasted == [result.lines], "the code that is printed is compiled"
    assert not result.net_text, "a weight alone"
    edited = HloModuleProto.FromString((tmp_path / "mine.advised.pb").read_bytes())
    assert entry_modes(edited) == [["{1,0}", "{0,1}"], ["{1,0}"]]
    value = json.loads((tmp_path / "mine.advice.json").read_text())
    assert value["inputs"][0]["minor_to_major"] == [0, 1]
    assert value["speedup"] == pytest.approx(4, rel=0.01)
    assert value["diagnosis"]["copies"][0]["tensor"] == "layer['w']"


def test_operations_around_copies_are_laid_out_in_the_edited_module(compiler, tmp_path, capsys):
    compiler.useless = True
    result = run(tmp_path)
    (change,) = result.changes
    assert (change["name"], change["minor_to_major"]) == ("dot.3", (1, 0))
    assert result.code_ns is None and result.speedup == pytest.approx(400 / 350)
    assert result.lines[-2:] == [
        "# net.py:7, dot f32[64,64], jit(f)/dot",
        "#   with_layout_constraint(value of the dot, Layout(major_to_minor=(0, 1)))",
    ]
    _show_advice(result)
    printed = capsys.readouterr().out
    assert "edited module" in printed and "code to paste" not in printed
    assert "write these constraints into" in printed


def test_advice_names_costs_that_the_estimate_does_not_count(compiler, tmp_path, capsys):
    result = run(tmp_path)
    batch = replace(result.inputs[0], kind="input")
    small = replace(result, inputs=[batch], speedup=1.3)
    note = f"net gain {1 / (1 / 1.3 + 300 / 400):.3f} with layer['w'] laid out anew in each call"
    assert small.net_text == f"{note}: nothing worth doing, unless it is made in this layout"
    other = replace(small, inputs=[replace(batch, name="x")])
    assert other.net_text == "net gain 1.300 with x laid out anew in each call", "not copied"
    _show_advice(replace(result, inputs=[replace(batch, looped=True)], speedup=1.019))
    printed = capsys.readouterr().out
    assert "1.019: nothing worth doing" in printed and "net gain" not in printed


def test_advice_that_measuring_does_not_confirm_is_dropped(compiler, tmp_path, capsys):
    compiler.spared = 0
    for seconds, text, kept in (
        (0.5, "measured on tpu-v3: 2.0", True),
        (1.0, "cannot be told from 1.00, nothing is kept", False),
        (1.5, "slower, nothing is kept", False),
    ):
        compiler.advised_seconds = seconds
        out = tmp_path / str(seconds)
        result = run(out, measure=True)
        assert text in result.measured["summary"] and result.measured["expected"] == 4
        gains = [result.speedup > 1, result.lines, result.inputs, result.is_worthwhile]
        assert [*map(bool, gains)] == [kept] * 4
        assert (out / "mine.advised.pb").exists() == kept
        _show_advice(result)
        assert result.measured["summary"].partition(":")[0] in capsys.readouterr().out
    compiler.advised_seconds = "no memory"
    with pytest.raises(CompilerError, match=r"as advised does not run .no memory"):
        run(tmp_path, measure=True)


def test_a_measured_target_shows_its_measurement_alone(compiler, tmp_path, capsys):
    compiler.target = chip_named("cpu")
    result = run(tmp_path)
    assert result.measured is not None and result.code_ns is None
    assert result.speedup == result.measured["speedup"] > 1.5
    _show_advice(result)
    printed = capsys.readouterr().out
    assert f"measured on cpu: {result.speedup:.3f} times as fast" in printed


def test_the_advice_of_another_program_is_never_overwritten(compiler, tmp_path):
    for name in ("mine:program", "lib.mine:program", "mine:program"):
        run(tmp_path, name, budget=1)
    sources = {
        path.name: json.loads(path.read_text())["source"].rpartition("/")[2]
        for path in tmp_path.glob("*.json")
    }
    assert sources == {"mine.advice.json": "mine:program", "mine.2.advice.json": "lib.mine:program"}


def test_the_hash_of_a_program_is_that_of_its_computations_without_source_lines():
    module = product_module()
    digest = program_hash(module)
    node = module.computations[0].instructions[1]
    node.metadata.op_name = "elsewhere"
    assert program_hash(module) == digest and node.metadata.op_name == "elsewhere"
    node.shape.dimensions[0] += 1
    assert program_hash(module) != digest


def test_a_default_that_does_not_compile_is_explained(compiler, tmp_path):
    compiler.broken = Outcome("failed", message="X: Custom emitter for ffi not found")
    with pytest.raises(CompilerError, match=r"default fails.*ffi not found.*replace custom calls"):
        run(tmp_path, budget=3)


def test_a_function_that_is_no_program_is_named(monkeypatch):
    def step(weights, batch, scale=1):
        return weights

    def broken():
        raise RuntimeError("no such file")

    module = SimpleNamespace(step=step, broken=broken, untupled=lambda: (abs, {"w": 1}))
    monkeypatch.setitem(sys.modules, "net", module)
    for name, message in (
        ("step", r"net:step is no program .TypeError: .*arguments: 'weights' and 'batch'"),
        ("broken", "RuntimeError: no such file.*wrap it"),
        ("untupled", r"returned \w+, dict.*expected a function"),
        ("absent", "AttributeError"),
    ):
        with pytest.raises(CompilerError, match=message):
            import_function(f"net:{name}")


def test_the_compilers_choice_is_kept_if_nothing_beats_it(compiler, tmp_path):
    compiler.useless = True
    compiler.spared = 0
    result = run(tmp_path)
    assert result.speedup == 1 and not result.is_worthwhile and not result.lines
    assert not (tmp_path / "mine.advised.pb").exists()
    assert run(tmp_path / "one", budget=1).compiled == {"ok": 1}
    assert run(tmp_path / "none", minutes=0.0).stopped == "the time is over"
    with pytest.raises(CompilerError, match="'tpu-v9' is not"):
        chip_named("tpu-v9")


def test_copies_are_named_by_their_tensors():
    copy = (
        '%{0} = f32[8,8]{{0,1}} copy(%{1}), metadata={{op_name="{0}"}}, '
        '{{"estimated_cycles":"{2}"}}\n'
    )
    dot = '%{0} = f32[8,8]{{1,0}} convolution(%{1}, %{2}), metadata={{op_name="{0}"}}\n'
    text = (
        "HloModule m\n\nENTRY %main (w: f32[8,8]) -> (f32[8,8]) {\n"
        "  %w = f32[8,8]{1,0} parameter(0)\n"
        f"  {copy.format('of_weight', 'w', 4)}  {dot.format('first', 'of_weight', 'w')}"
        f"  {copy.format('between', 'first', 3)}  {dot.format('second', 'between', 'w')}"
        f"  {copy.format('of_output', 'second', 1)}  ROOT %r = (f32[8,8]{{0,1}}) "
        "tuple(%of_output)\n}}\n"
    )
    weight = Leaf("weight", "w", "", "f32[8,8]")
    output = Leaf("output", "result", "", "f32[8,8]")
    result = diagnose(text, [weight], [output])
    keys = ("name", "kind", "tensor", "cycles")
    assert [tuple(copy[key] for key in keys) for copy in result.copies] == [
        ("of_weight", "weight", "w", 4),
        ("between", "between", "first -> second", 3),
        ("of_output", "output", "result", 1),
    ]
    copies = "3 copies forced by layouts: 1 of weights, 1 of outputs, 1 between two operations"
    assert result.summary == f"100% of the estimate are {copies}"


def test_operations_before_a_copy_take_its_layout_and_later_ones_the_old_layout():
    text = (
        "HloModule m\n\nENTRY %main (x: f32[4,6,8]) -> f32[4,8,6] {\n"
        "  %x = f32[48,4]{1,0} parameter(0)\n"
        "  %dot = f32[4,6,16]{2,1,0} convolution(%x)\n"
        "  %half = f32[4,6,8]{2,1,0} slice(%dot)\n"
        '  %copy = f32[4,6,8]{1,2,0} copy(%half), {"estimated_cycles":"9"}\n'
        "  ROOT %use = f32[4,8,6]{1,2,0} convolution(%copy)\n}\n"
    )
    after = (1, 2, 0)
    before = (2, 1, 0)
    leads = {(4, 6, 8): after, (4, 6, 16): after}
    follows = {(4, 6, 8): before, (4, 8, 6): before}
    each = [{(4, 6, 8): after}, leads, {(4, 6, 8): before}, follows]
    assert around_copies(text) == [leads, follows, *each]
    assert around_copies(text.replace("{1,2,0} copy", "{2,1,0} copy")) == []


def test_inputs_of_a_loop_are_tied_to_the_outputs_that_they_become():
    def leaves(*words):
        return [Leaf("input", "", *leaf.split(" ")) for leaf in words]

    module = product_module()
    inputs = leaves("[0]['w'] f32[8]", "[0]['b'] f32[8]", "[1] f32[8]")
    same = leaves("[0]['b'] f32[8]", "[0]['w'] f32[8]", "[1] f32[]")
    assert ties_of(module, inputs, same) == {0: 1, 1: 0}
    other = leaves("[0] f32[]", "[1]['b'] f32[8]", "[1]['w'] f32[9]")
    assert ties_of(module, inputs, other) == {1: 1}
    assert ties_of(module, inputs, leaves("['w'] f32[8]")) == {0: 0}
    assert ties_of(module, inputs, leaves(" f32[8]")) == {}
    module.input_output_alias.entries.add(parameter_number=2, output_shape_index=[1])
    assert ties_of(module, inputs, same) == {2: 1, 1: 0}
    module.input_output_alias.entries[0].parameter_number = 1
    assert ties_of(module, inputs, same) == {1: 1}, "although the paths differ"


def test_outputs_that_lie_otherwise_than_the_inputs_they_become_are_not_tied(compiler):
    module = product_module()
    for operand in module.computations[0].instructions[:2]:
        operand.shape.dimensions[:] = 64, 64
    program = Program(module.SerializeToString(), [["[0]", "[1]"], ["[1]"]])
    search = LayoutSearch(compiler, program, budget=1, minutes=1)
    assert search.ties == {1: 0}
    arrays = "(f32[64,64]{1,0}, f32[64,64]{0,1})->f32[64,64]{1,0}"
    text = f"HloModule m, entry_computation_layout={{{arrays}}}\n"
    assert not search.is_tied(text) and search.is_tied(text.replace("{0,1}", "{1,0}"))


def test_layouts_of_operations_become_lines_that_name_the_value():
    module = matmul_module()
    at = 4
    dot = [node for _, node in instructions(module)][at]
    dot.metadata.op_name = "jit(f)/dot_general"
    (change,) = changes_of(module, {at: (0, 1)})
    head, name, call = operation_lines([change])
    assert head == "# from jax.experimental.layout import Layout, with_layout_constraint"
    assert name == "# dot.22, dot f32[8,128], jit(f)/dot_general"
    assert call == "#   with_layout_constraint(value of the dot, Layout(major_to_minor=(1, 0)))"
    assert operation_lines([]) == [] == entry_lines([], [])
    index = module.stack_frame_index
    dot.metadata.stack_frame_id = 2
    index.file_names.extend(["/lib/site-packages/flax/linear.py", "/home/me/net.py"])
    for file, line in ((1, 5), (2, 12)):
        index.file_locations.add(file_name_id=file, line=line)
    index.stack_frames.add(file_location_id=2)
    index.stack_frames.add(file_location_id=1, parent_frame_id=1)
    (change,) = changes_of(module, {at: (0, 1)})
    assert (change["file"], change["line"]) == ("/home/me/net.py", 12)
    dot.metadata.op_name = "jit(f)/transpose(jvp())/dot_general"
    _, gradient = operation_lines(changes_of(module, {at: (0, 1)}))
    assert gradient.startswith("# 1 operation of gradients, which have no value in the source")
    dot.metadata.op_name = "x\nimport os"
    _, name, _ = operation_lines(changes_of(module, {at: (0, 1)}))
    assert name.endswith(r"x\nimport os"), "one comment"
