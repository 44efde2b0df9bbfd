"""Process that owns JAX and XLA, and forks a child for each piece of work, which may crash.

It never compiles itself: a child forked from a process without compiled programs is cheap and free
of locks. Serialized modules are converted to StableHLO and parsed by jaxlib. For estimates, the
client of a topology compiles them without a chip.
"""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import re
import shutil
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass, field
from functools import cached_property
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from xlarank.data.errors import CompilerError, XlarankError
from xlarank.data.graph import LayoutGraph
from xlarank.data.hlo.messages import HloModuleProto, HloProto, Message, instructions
from xlarank.data.hlo.reading import module_graph
from xlarank.pipelines.programs.compiler.chips import Chip
from xlarank.pipelines.programs.compiler.constrain import (
    constrain,
    drop_entry_modes,
    entry_modes,
    layouts_of,
)
from xlarank.pipelines.programs.compiler.cycles import read_estimate

#: The TPU compiler's custom calls on halves of 64-bit integers, similar to conversions.
_X64_CALLS: Final = frozenset({"X64SplitLow", "X64SplitHigh", "X64Combine"})

#: Targets of custom calls by which XLA:GPU replaces convolutions early begin with this.
_LIBRARY_CONVOLUTION: Final = "__cudnn$conv"

LEAVES_FILE: Final = "leaves.json"
#: Seconds between two checks of the children.
POLL: Final = 0.02
ANSWER: Final = "answer.pickle"
#: Dumps of the optimised module: for CPUs and GPUs, and for estimates of TPUs.
_OPTIMISED: Final = (
    "*[cg]pu_after_optimizations.txt",
    "*after_optimizations_before_buffer_assignment.txt",
)
ENVIRONMENT: Final = {
    "JAX_PLATFORMS": "cpu",  # never ask for a chip
    "TPU_SKIP_MDS_QUERY": "1",  # never query a cloud's metadata
    "TPU_WORKER_HOSTNAMES": "localhost",
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",  # otherwise a lock file refuses a second process
    "TPU_LOG_DIR": "disabled",
    "TPU_STDERR_LOG_LEVEL": "3",
    "TPU_MIN_LOG_LEVEL": "3",
    "TF_CPP_MIN_LOG_LEVEL": "3",
}
#: For the default device: memory is not preallocated, because several processes use it in turn.
_DEVICE_ENVIRONMENT: Final = {"TF_CPP_MIN_LOG_LEVEL": "3", "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
#: Provenance attributes; quoted text in them may contain braces.
_PROVENANCE: Final = re.compile(
    r",?\s(?:metadata|frontend_attributes|original_value|origin)="
    r'\{(?:[^{}"]|"(?:[^"\\]|\\.)*"|\{[^{}]*\})*\}'
)
_NAME: Final = re.compile(r"%[\w.\-]+")
_COMPUTATION: Final = re.compile(r"^(?:ENTRY )?%", re.MULTILINE)


@dataclass(frozen=True)
class Outcome:
    """Result of compiling one module.

    Attributes:
        status: ``ok``, ``failed``, ``timeout`` or ``crashed``.
        cycles: the compiler's estimate if the status is ``ok``.
        unknown_loops: number of loops without a known trip count, whose bodies count once.
        fingerprint: hash of the optimised module; empty if there is none.
        shared: whether an equal optimised module was seen before, so that no code was generated.
        text: text of the compiled program, if requested and code was generated.
    """

    status: str
    cycles: int = 0
    unknown_loops: int = 0
    fingerprint: str = ""
    shared: bool = False
    seconds: float = 0.0
    message: str = ""
    text: str = field(default="", repr=False)

    @property
    def ok(self) -> bool:
        """True if the module was compiled."""
        return self.status == "ok"


def fingerprint(text: str) -> str:
    """Hash an HLO module's text, ignoring names and origins of instructions."""
    first = _COMPUTATION.search(text)  # after the module's name and the tables of source lines
    body = _PROVENANCE.sub("", text[first.start() :] if first else text)
    names: dict[str, str] = {}
    numbered = _NAME.sub(lambda match: names.setdefault(match[0], f"%{len(names)}"), body)
    return hashlib.sha256(numbered.encode()).hexdigest()[:24]


@dataclass(frozen=True)
class Program:
    """A program before layout assignment; node ``i`` of its graph is the i-th instruction.

    Attributes:
        leaves: paths of a function's inputs and outputs; empty for a module.
    """

    serialized: bytes
    leaves: Sequence[Sequence[str]] = ((), ())
    name: str = ""

    @cached_property
    def module(self) -> Message:
        return HloModuleProto.FromString(self.serialized)

    @cached_property
    def graph(self) -> LayoutGraph:
        return module_graph(self.module, Path(f"{self.name}.pb"))

    def constrained(self, rows: NDArray[np.int8]) -> Message:
        """Return the module with one configuration ``rows (nodes, 18)`` set."""
        return constrain(self.module, layouts_of(self.module, self.graph.configurable, rows))


class Xla:
    """XLA for one target; raises `CompilerError` if jax or libtpu is missing or does not start."""

    def __init__(self, target: Chip) -> None:
        os.environ.update(_DEVICE_ENVIRONMENT if target.name == "device" else ENVIRONMENT)
        try:
            import jax
            import jaxlib
            from jax.experimental import topologies

            self.versions = {"jax": jax.__version__, "jaxlib": jaxlib.__version__}
            if target.estimated:
                import libtpu

                self.versions["libtpu"] = libtpu.__version__
            else:
                # a client has threads, which a fork loses
                with get_context("fork").Pool(1) as pool:
                    self.versions |= pool.apply(_device_facts)
                # children must not look for other devices
                if self.versions["platform"] == "cpu":
                    jax.config.update("jax_platforms", "cpu")
        except ImportError as error:
            expected = "jax 0.10.2 or later and, for TPUs, libtpu (x86-64 Linux, Google's terms)"
            got = f"the compiler cannot be imported ({error})"
            do = 'run: pip install "xlarank[collect]"'
            raise CompilerError(got, expected=expected, do=do) from error
        self.target = target
        if target.estimated:
            try:
                topology = topologies.get_topology_desc(target.topology, "tpu")
            except Exception as error:  # libtpu does not document its errors
                got = f"libtpu does not start for {target.topology} ({first_line(error)})"
                raise CompilerError(got, do="update jax and libtpu together") from error
            self.device = topology.devices[0]

    @cached_property
    def device(self) -> Any:
        """The device to compile for; a device of this machine starts on first use, in a child."""
        import jax

        return jax.devices()[0]

    def compile(
        self, module: bytes, options: dict[str, Any] | None = None, device: Any = None
    ) -> Any:
        """Return the executable of a serialized HLO module with the entry layouts of its modes.

        ``device`` is another one of this machine.
        """
        from jax._src.interpreters import mlir
        from jax._src.lib import xla_client
        from jaxlib import _jax
        from jaxlib.mlir import ir

        message = HloModuleProto.FromString(module)
        stablehlo = _jax.mlir.hlo_to_stablehlo(repaired(message).SerializeToString())
        with mlir.make_ir_context():
            parsed = ir.Module.parse(stablehlo)
            if modes := entry_modes(message):
                _set_modes(parsed, "arg_attrs", modes[0])
                _set_modes(parsed, "res_attrs", modes[1])
        settings = _jax.CompileOptions()
        settings.num_replicas = 1
        settings.device_assignment = xla_client.DeviceAssignment.create(np.zeros((1, 1), int))
        settings.env_option_overrides = list((options or {}).items())
        used = device or self.device
        compiles_only = device is None and self.target.estimated
        compile_parsed = used.client.compile if compiles_only else used.client.compile_and_load
        return compile_parsed(parsed, _jax.DeviceList((used,)), settings)


def _device_facts() -> dict[str, str]:
    import jax

    device = jax.devices()[0]
    return {
        "device": device.device_kind,
        "platform": device.platform,
        "driver": device.client.platform_version,
    }


def _set_modes(parsed: Any, key: str, modes: list[str]) -> None:
    """Set the mode of each argument or result of the main function of an MLIR module."""
    from jaxlib.mlir import ir

    name = ir.StringAttr.get("main")
    (main,) = (op for op in parsed.body.operations if op.attributes["sym_name"] == name)
    old = main.attributes[key] if key in main.attributes else [()] * len(modes)
    merged = []
    for parts, mode in zip(old, modes, strict=True):
        attributes = {part.name: part.attr for part in parts}
        attributes["mhlo.layout_mode"] = ir.StringAttr.get(mode)
        merged.append(ir.DictAttr.get(attributes))
    main.attributes[key] = ir.ArrayAttr.get(merged)


def compile_module(xla: Xla, folder: Path, *, module: bytes, keep: bool) -> Outcome:
    """Compile a module and dump the optimised one; the outcome has the text if ``keep``."""
    executable = xla.compile(module, {"xla_dump_to": str(folder), "xla_dump_hlo_as_text": True})
    text = str(executable.hlo_modules()[0].to_string())
    key = fingerprint(text)  # if the dump has another name, as on real TPUs
    return Outcome("ok", *read_estimate(text), key, text=text if keep else "")


def optimised_text(folder: Path, target: Chip) -> str | None:
    """Return the dumped optimised module once it is complete; its code may not be generated yet.

    A dump can be read while it is written. The entry computation is the last one.
    """
    for path in folder.glob(_OPTIMISED[target.estimated]):
        text = path.read_text(encoding="utf-8", errors="replace")
        if "\nENTRY " in text and text.rstrip().endswith("\n}"):
            return text
    return None


def dumped(folder: Path) -> Program | None:
    """Return the dump before the first layout assignment; None until the one after it is begun."""
    before = sorted(folder.glob("*before_layout-assignment*.pb"))
    if not before or not any(folder.glob("*after_layout-assignment*.pb")):
        return None
    module = HloProto.FromString(before[0].read_bytes()).hlo_module
    leaves = folder / LEAVES_FILE
    paths = json.loads(leaves.read_text(encoding="utf-8")) if leaves.exists() else ((), ())
    return Program(module.SerializeToString(), paths)


def dumped_early(folder: Path) -> Program | None:
    """Return the dump like `dumped`, but None if convolutions are replaced in it."""
    program = dumped(folder)
    return None if program is None or library_convolutions(program.module) else program


def library_convolutions(module: Message) -> set[int]:
    """Return the element types of the convolutions that a module leaves to a library."""
    operations = [operation for _, operation in instructions(module)]
    calls = [op for op in operations if op.custom_call_target.startswith(_LIBRARY_CONVOLUTION)]
    return {call.shape.tuple_shapes[0].element_type for call in calls if call.shape.tuple_shapes}


def has_convolutions(module: Message, types: set[int]) -> bool:
    """Return whether a module has convolutions of these element types, and no custom call.

    A custom call is for one back end. With other types the module does not compute the same.
    """
    operations = [operation for _, operation in instructions(module)]
    own = {op.shape.element_type for op in operations if op.opcode == "convolution"}
    return own == types and not any(op.custom_call_target for op in operations)


def first_line(error: BaseException) -> str:
    """Return the beginning of an error's message on one line; XLA adds pages."""
    return " ".join((str(error).strip() or repr(error)).split())[:300]


def repaired(module: Message) -> Message:
    """Return a copy that XLA can compile again.

    Halves of 64-bit values become conversions, aliases and layout modes are removed, and fusions
    made before layout assignment become calls, which the compiler inlines and fuses anew.
    """
    edited = deepcopy(module)
    edited.ClearField("input_output_alias")
    edited.ClearField("buffer_donor")
    drop_entry_modes(edited)
    for computation in edited.computations:
        computation.is_fusion_computation = False
        for instruction in computation.instructions:
            if instruction.opcode == "custom-call" and instruction.custom_call_target in _X64_CALLS:
                instruction.opcode = "convert"
                instruction.custom_call_target = ""
                instruction.custom_call_api_version = 0
                del instruction.operand_ids[1:]
            elif instruction.opcode == "fusion":
                instruction.opcode = "call"
                instruction.fusion_kind = ""
                instruction.backend_config = b""
    return edited


#: Function of the compiler and a folder for dumps; a child runs it and stores the result as answer.
Work = Callable[[Xla, Path], Any]


def main(load: Callable[..., Xla] = Xla) -> None:
    """Serve the client on a socket, whose file descriptor is the only argument, until it closes.

    ``(folder, work)`` starts a child, ``(folder, None)`` ends it. The answer, or the error raised,
    is written to a file in the folder.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # this process ends with its connection
    connection = Connection(int(sys.argv[1]))
    scratch, *settings = connection.recv()
    running: dict[Path, BaseProcess] = {}
    try:
        xla = load(*settings)
        connection.send(xla.versions)
        while True:
            if connection.poll(POLL if running else None):
                folder, work = connection.recv()
                if work is None:
                    _end(folder, running.pop(folder))
                else:
                    folder.mkdir()
                    arguments = (connection, xla, folder, work)
                    running[folder] = get_context("fork").Process(target=_answer, args=arguments)
                    running[folder].start()
            for folder, process in running.items():
                if process.exitcode is not None and not (folder / ANSWER).exists():
                    _write_answer(folder, _crash_outcome(process.exitcode))
    except XlarankError as error:
        connection.send(error)
    except (EOFError, ConnectionResetError):
        pass  # the client is gone
    finally:
        for folder, process in running.items():
            _end(folder, process)
        shutil.rmtree(scratch, ignore_errors=True)  # the client may be gone


def _answer(connection: Connection, xla: Xla, folder: Path, work: Work) -> None:
    connection.close()  # an open copy would hide the end of the process from the client
    try:
        answer = work(xla, folder)
    except XlarankError as error:
        answer = error
    except BaseException as error:  # an error affects this configuration only
        answer = Outcome("failed", message=first_line(error))
    with suppress(OSError):
        _write_answer(folder, answer)


def _crash_outcome(code: int) -> Outcome:
    if code == -signal.SIGALRM:
        return Outcome("timeout", message="not done within its limit of time")
    ended = f"signal {-code}" if code < 0 else f"status {code}"
    return Outcome("crashed", message=f"the compiler's process ended with {ended}")


def _write_answer(folder: Path, answer: Any) -> None:
    partial = folder / "answer.partial"
    partial.write_bytes(pickle.dumps(answer))
    partial.replace(folder / ANSWER)


def _end(folder: Path, process: BaseProcess) -> None:
    process.kill()
    process.join()
    shutil.rmtree(folder, ignore_errors=True)
