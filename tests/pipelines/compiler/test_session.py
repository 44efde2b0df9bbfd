"""A compiler's process that crashes, hangs and repeats itself; journals; edits of modules."""

import importlib.util
import os
import re
import signal
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from tests.data.hlo.programs import instruction, matmul_module
from tests.graphs import layout_row
from tests.pipelines.compiler.test_compiled_text import RELAID
from tests.pipelines.test_advise import product_module
from xlarank.data.errors import CompilerError
from xlarank.data.hlo.messages import HloModuleProto, instructions
from xlarank.pipelines.programs.collect import Journal
from xlarank.pipelines.programs.compiler import session, xla
from xlarank.pipelines.programs.compiler.chips import chip_named
from xlarank.pipelines.programs.compiler.constrain import (
    constrain,
    entry_modes,
    layouts_of,
    with_entry_modes,
)
from xlarank.pipelines.programs.compiler.session import Compiler
from xlarank.pipelines.programs.compiler.xla import Outcome, fingerprint

TEXT = (
    "HloModule m\n\nENTRY %main (p: f32[8]) -> f32[8] {{\n  ROOT %a = f32[8]{{0}} copy(%p){}\n}}\n"
)
#: Environment variable with the path of a file that gets the names of compiled modules.
GENERATED = "XLARANK_TEST_GENERATED"
DOT, RESHAPE = 4, 5  # nodes of `matmul_module`
CALL = "custom-call"


class Xla:
    """Compiler that obeys a module's name; the part before the dash decides the result."""

    def __init__(self, target):
        self.target = target
        self.versions = {"target": target.name}

    def compile(self, module, options):
        name = HloModuleProto.FromString(module).name
        if name == "crash":
            os.kill(os.getpid(), signal.SIGKILL)
        if name == "leave":
            os._exit(3)
        if name == "refuse":
            raise CompilerError("no such layout")
        if name == "bug":
            raise ValueError("one line\nand another")
        optimised = TEXT.format(f", kind={name.partition('-')[0]}")
        if name != "undumped" and "xla_dump_to" in options:
            dump = "m.after_optimizations_before_buffer_assignment.txt"
            Path(options["xla_dump_to"], dump).write_text(optimised)
        if name.startswith("hang"):
            time.sleep(8)
        time.sleep(0.2)  # code generation: time enough to be ended
        with open(os.environ[GENERATED], "a") as stream:
            stream.write(name + "\n")
        text = TEXT.format(f', backend_config={{"estimated_cycles":"{len(name)}"}}')
        return SimpleNamespace(hlo_modules=lambda: [SimpleNamespace(to_string=lambda: text)])


@pytest.fixture
def compiler(tmp_path, monkeypatch):
    monkeypatch.setattr(session, "_SERVICE", f"from {__name__} import Xla, xla; xla.main(Xla)")
    monkeypatch.setenv(GENERATED, str(tmp_path / "generated"))
    with Compiler("tpu-v3", jobs=3, limit=2.0) as compiler:
        assert compiler.versions == {"target": "tpu-v3"}
        scratch = compiler._scratch
        yield compiler
    assert not scratch.exists()


def modules(*names):
    return [HloModuleProto(name=name) for name in names]


def compiled(compiler, *names, **options):
    return {names[i]: outcome for i, outcome in compiler.compile(modules(*names), **options)}


@pytest.mark.slow
def test_crashes_hangs_and_repetitions(compiler, tmp_path):
    names = "one crash refuse hang three one-late undumped leave bug".split()
    outcomes = compiled(compiler, *names)
    assert set(outcomes) == set(names)
    failures = {
        "crash": ("crashed", "signal 9"),
        "leave": ("crashed", "status 3"),
        "bug": ("failed", "^one line and another$"),
        "refuse": ("failed", "^no such layout$"),
        "hang": ("timeout", "^not done within 2 s$"),
    }
    for name, outcome in outcomes.items():
        status, message = failures.get(name, ("ok", ""))
        assert outcome.status == status and re.search(message, outcome.message), name
    assert outcomes["hang"].seconds > 2
    assert outcomes["three"].cycles == 5 and not outcomes["three"].text
    one, late = outcomes["one"], outcomes["one-late"]
    assert late.cycles == one.cycles and late.shared and not one.shared
    generated = (tmp_path / "generated").read_text()
    assert generated.count("one") == 1


@pytest.mark.slow
def test_compilations_are_ended_with_their_iterator(compiler):
    assert compiled(compiler, "rich", keep=True)["rich"].text.startswith("HloModule")
    outcomes = compiler.compile(modules("first", "hang", "hanging"))
    assert next(outcomes)[0] == 0
    outcomes.close()  # ends the others
    assert compiled(compiler, "next")["next"].status == "ok"
    assert list(compiler._scratch.iterdir()) == []


@pytest.mark.slow
def test_a_process_that_ended_is_reported(compiler):
    outcomes = compiler.compile(modules("first", "hang"))
    next(outcomes)
    compiler._process.kill()
    ended = r"the compiler's process ended \(without output\); run it again"
    with pytest.raises(CompilerError, match=ended):
        next(outcomes)
    with pytest.raises(CompilerError, match=ended):
        compiled(compiler, "first")


@pytest.mark.slow
@pytest.mark.skipif(bool(importlib.util.find_spec("jax")), reason="jax is installed")
def test_the_message_without_jax_says_what_to_install():
    with pytest.raises(CompilerError, match=r'pip install "xlarank\[collect\]"'):
        Compiler("tpu-v3")


def test_the_text_of_a_module_counts_once_its_entry_computation_is_complete(tmp_path):
    """A cut one has another fingerprint, and no cycles to predict."""
    dump = tmp_path / "m.after_optimizations_before_buffer_assignment.txt"
    lines = RELAID.splitlines(keepends=True)
    for count in range(len(lines) + 1):
        text = "".join(lines[:count])
        dump.write_text(text)
        complete = text if count == len(lines) else None
        assert xla.optimised_text(tmp_path, chip_named("tpu-v3")) == complete, lines[count - 1]


def test_a_journal_keeps_outcomes_drops_a_cut_line_and_refuses_other_settings(tmp_path):
    path = tmp_path / "journal"
    ok, shared = (Outcome("ok", 12, 1, "f", shared, 1.5) for shared in (False, True))
    crashed = Outcome("crashed", seconds=2.0, message="signal 11")
    outcomes = {"": ok, "0:10": shared, "1:10": crashed}
    with Journal(path, {"seed": 0}) as journal:
        for configuration, outcome in outcomes.items():
            journal.add(configuration, outcome)
    complete = path.read_bytes()
    path.write_bytes(complete + b'{"configuration": "2:1')
    with Journal(path, {"seed": 0}) as journal:
        assert journal.outcomes == outcomes
    assert path.read_bytes() == complete
    with pytest.raises(CompilerError, match="another seed; expected seed 0"):
        Journal(path, {"seed": 1})


def test_layouts_change_a_fingerprint_but_names_and_origins_do_not():
    origin = 'metadata={op_name="a{}\\"}" source_line=3}'
    line = f"%x = f32[8]{{0}} add(%a, %b), {origin}, sharding={{replicated}}"
    text = f"HloModule a\nENTRY %m {{\n  {line}\n}}"
    for old, new in (("HloModule a", "HloModule b"), ("%x", "%y.1"), ("=3", "=4")):
        assert old in text and fingerprint(text.replace(old, new)) == fingerprint(text)
    for old, new in (("{0}", "{0:T(128)}"), ("%a, %b", "%a, %a"), ("replicated", "maximal")):
        assert fingerprint(text.replace(old, new)) != fingerprint(text)
    moved = RELAID.replace("/home/me/step.py", "/tmp/a.py").replace("line=31", "line=32")
    assert moved != RELAID and fingerprint(moved) == fingerprint(RELAID)


def test_constraints_replace_outputs_under_new_ids():
    module = matmul_module()
    rows = np.stack([layout_row((0, 1)), layout_row((1, 0, 2))])
    edited = constrain(module, layouts_of(module, [DOT, RESHAPE], rows))
    body = edited.computations[1]  # while_body
    dot, call, reshape, root = body.instructions[2:]
    assert (dot.opcode, call.opcode, reshape.opcode, root.opcode) == ("dot", CALL, "reshape", CALL)
    assert call.custom_call_target == "LayoutConstraint"
    assert list(call.operand_ids) == [dot.id] and list(reshape.operand_ids) == [call.id]
    for shape in (call.shape, call.operand_shapes_with_layout[0]):
        assert list(shape.layout.minor_to_major) == [0, 1]
        assert shape.dimensions == dot.shape.dimensions
    assert list(dot.shape.layout.minor_to_major) == [1, 0]  # unchanged
    assert body.root_id == root.id
    ids = [instruction.id for _, instruction in instructions(edited)]
    assert len(set(ids)) == len(ids)
    unset = layouts_of(module, [DOT, RESHAPE], np.stack([layout_row()] * 2))
    assert constrain(module, unset) == module
    # composite ids stay in their computation
    module = HloModuleProto(entry_computation_id=1)
    main = module.computations.add(name="main", id=1)
    instruction(main, "parameter", (8, 128), id=(1 << 32) + 1)
    instruction(main, "reshape", (128, 8), ((1 << 32) + 1,), id=(1 << 32) + 2)
    other = module.computations.add(name="other", id=2)
    instruction(other, "parameter", (8, 128), id=(2 << 32) + 9)
    edited = constrain(module, layouts_of(module, [1], layout_row((0, 1))[None]))
    assert edited.computations[0].root_id == (1 << 32) + 3


def test_rows_become_complete_orders_of_outputs():
    module = matmul_module()
    # a partial order is completed by the last dimensions first; operands are left to the compiler
    assert layouts_of(module, [RESHAPE], layout_row((1,))[None]) == {RESHAPE: (1, 2, 0)}
    assert layouts_of(module, [DOT], layout_row(input=(0, 1), kernel=(1, 0))[None]) == {}


def test_a_module_is_repaired_so_that_it_compiles_again():
    module = matmul_module()
    target = {"custom_call_target": "X64Combine", "custom_call_api_version": 2}
    instruction(module.computations[-1], CALL, (8,), (30, 31), id=40, **target)
    module.input_output_alias.SetInParent()
    repaired = xla.repaired(module)
    *others, last = repaired.computations[-1].instructions
    assert (last.opcode, list(last.operand_ids), last.custom_call_target) == ("convert", [30], "")
    assert [other.opcode for other in others] == ["parameter", "while", "call"]
    assert not repaired.HasField("input_output_alias")
    assert module.HasField("input_output_alias"), "the argument is unchanged"
    assert not any(computation.is_fusion_computation for computation in repaired.computations)


def test_modes_are_stored_in_the_module_and_orders_in_its_entry_layout():
    module = product_module()
    assert entry_modes(module) is None
    edited = with_entry_modes(module, ["default", "{0,1}"], ["auto"])
    assert entry_modes(edited) == [["default", "{0,1}"], ["auto"]]
    shapes = edited.host_program_shape.parameters
    assert [list(shape.layout.minor_to_major) for shape in shapes] == [[1, 0], [0, 1]]
    assert entry_modes(module) is None, "the argument is unchanged"
    assert entry_modes(with_entry_modes(edited, ["default"] * 2, ["default"])) is None
    assert not xla.repaired(edited).frontend_attributes.map
