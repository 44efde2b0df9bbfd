"""Programs whose convolutions a GPU's compiler replaces before it assigns layouts, by fakes."""

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.data.hlo.programs import F32, instruction
from xlarank.data.hlo.messages import HloModuleProto, HloProto
from xlarank.pipelines.programs.compiler import functions, xla
from xlarank.pipelines.programs.compiler.xla import Program

BF16 = 16
CALL = {"custom_call_target": "__cudnn$convForward"}


def module(opcode, element=F32, **fields):
    """A module of one instruction; custom calls return a tuple, as those of cuDNN do."""
    made = HloModuleProto(name="m", entry_computation_id=1)
    made_instruction = instruction(
        made.computations.add(name="main", id=1), opcode, (8,), id=1, element=element, **fields
    )
    if opcode == "custom-call":
        made_instruction.shape.tuple_shapes.add(element_type=element)
    return made


@pytest.fixture
def lowerings(monkeypatch, tmp_path):
    """Make lowering on a device give a module, without jax."""

    def make(on_gpu, on_cpu):
        by_device = {"gpu": on_gpu, "cpu": on_cpu}

        def lower_on(_xla, folder, device, *_):
            assert folder.is_dir()
            found = by_device[device]
            if isinstance(found, BaseException):
                raise found
            return found and Program(found.SerializeToString(), (["x"], ["y"]))

        monkeypatch.setattr(functions, "_lower_on", lower_on)
        monkeypatch.setitem(sys.modules, "jax", SimpleNamespace(devices=lambda name: [name]))
        fake = SimpleNamespace(device="gpu")
        return functions.lower(fake, tmp_path, function="m:f", module=b"")

    return make


def test_convolutions_are_taken_from_the_cpu_s_lowering(lowerings):
    convolution = module("convolution")
    lowered = lowerings(module("custom-call", **CALL), convolution)
    assert lowered == Program(convolution.SerializeToString(), (["x"], ["y"]))


@pytest.mark.parametrize(
    "on_cpu",
    [
        module("convolution"),  # the CPU computes in float32
        module("custom-call", BF16, custom_call_target="lapack"),
        module("parameter", BF16),
        RuntimeError("no CPU among the platforms"),
        None,
    ],
)
def test_other_programs_of_the_cpu_are_not_taken(lowerings, on_cpu):
    own = module("custom-call", BF16, **CALL)
    assert lowerings(own, on_cpu) == Program(own.SerializeToString(), (["x"], ["y"]))


def test_a_program_without_convolutions_is_lowered_once(lowerings):
    own = module("dot")
    assert lowerings(own, SystemExit()).serialized == own.SerializeToString()


def test_dumps_with_replaced_convolutions_are_no_early_answer(tmp_path):
    def dump(of, folder: Path):
        folder.mkdir()
        for when in ("before", "after"):
            content = HloProto(hlo_module=of).SerializeToString()
            (folder / f"m.{when}_layout-assignment.pb").write_bytes(content)
        return folder

    assert xla.dumped_early(tmp_path) is None
    assert xla.dumped_early(dump(module("dot"), tmp_path / "dot")).serialized
    folder = dump(module("custom-call", **CALL), tmp_path / "call")
    assert xla.dumped_early(folder) is None
    assert xla.dumped(folder).serialized
