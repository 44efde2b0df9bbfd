"""Programs whose convolutions a GPU's compiler replaces before it assigns layouts, by fakes."""

import sys
from types import SimpleNamespace

import pytest

from tests.data.hlo.programs import F32, instruction
from xlarank.data.hlo.messages import HloModuleProto, HloProto
from xlarank.pipelines.programs.compiler import functions, xla
from xlarank.pipelines.programs.compiler.xla import Program

BF16 = 16


def module(opcode, element=F32, call=""):
    """Return a module of one instruction; custom calls return a tuple, as those of cuDNN do."""
    made = HloModuleProto(name="m", entry_computation_id=1)
    main = made.computations.add(name="main", id=1)
    only = instruction(main, opcode, (8,), id=1, element=element, custom_call_target=call)
    if call:
        only.shape.tuple_shapes.add(element_type=element)
    return made


LIBRARY = module("custom-call", BF16, "__cudnn$convForward")


@pytest.mark.parametrize(
    ("on_gpu", "on_cpu", "is_taken"),
    [
        (LIBRARY, module("convolution", BF16), True),
        (LIBRARY, module("convolution"), False),  # the CPU computes in float32
        (LIBRARY, module("custom-call", BF16, "lapack"), False),
        (LIBRARY, module("parameter", BF16), False),
        (LIBRARY, RuntimeError("no CPU among the platforms"), False),
        (LIBRARY, None, False),
        (module("dot"), SystemExit(), False),  # lowered once
    ],
)
def test_convolutions_are_taken_from_the_lowering_of_the_cpu(
    on_gpu, on_cpu, is_taken, monkeypatch, tmp_path
):
    def lower_on(_, folder, device, *__):
        assert folder.is_dir()
        lowered = {"gpu": on_gpu, "cpu": on_cpu}[device]
        if isinstance(lowered, BaseException):
            raise lowered
        return lowered and Program(lowered.SerializeToString())

    monkeypatch.setattr(functions, "_lower_on", lower_on)
    monkeypatch.setitem(sys.modules, "jax", SimpleNamespace(devices=lambda name: [name]))
    fake = SimpleNamespace(device="gpu")
    lowered = functions.lower(fake, tmp_path, function="m:f", module=b"")
    assert lowered.module == (on_cpu if is_taken else on_gpu)


def test_a_dump_counts_once_the_next_one_is_begun_and_early_without_replaced_convolutions(tmp_path):
    for name, lowered in (("dot", module("dot")), ("call", LIBRARY)):
        folder = tmp_path / name
        folder.mkdir()
        content = HloProto(hlo_module=lowered).SerializeToString()
        (folder / "m.before_layout-assignment.pb").write_bytes(content)
        assert xla.dumped(folder) is None
        (folder / "m.after_layout-assignment.pb").touch()
        assert xla.dumped(folder).module == lowered
        assert (xla.dumped_early(folder) is None) == (name == "call")
