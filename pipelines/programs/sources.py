"""Programs with settable layouts: loading, graph files, manifests."""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from xlarank.data.errors import CompilerError
from xlarank.data.files import read_text
from xlarank.data.graph import LayoutGraph
from xlarank.data.hlo.messages import HloModuleProto, Message, ModuleTuningData, instructions
from xlarank.data.hlo.reading import (
    graph_name,
    module_of,
    optimised_cause,
    optimised_error,
    read_program,
)
from xlarank.data.writing import write_graph
from xlarank.pipelines.programs.compiler.outcome import Outcome, Status
from xlarank.pipelines.programs.compiler.session import Compiler
from xlarank.pipelines.programs.compiler.xla import Program
from xlarank.pipelines.programs.kinds import error_of_labels, is_function

#: Error of libtpu for operations that it has no code for without a TPU.
NO_CODE: Final = re.compile(r"Custom emitter .*not found")
_REMEDIES: Final = {
    Status.TIMEOUT: "compile a smaller program",
    Status.CRASHED: "the compiler itself failed: try another `target` or version of libtpu",
}


def load_program(
    program: str, compiler: Compiler, name: str | None = None, *, one_hot: bool = False
) -> Program:
    """Load a file of HLO, or ``module:function``, in its state before layout assignment.

    A ``ModuleTuningData`` of TpuGraphs is in that state already. Raises
    `xlarank.data.errors.HloError` if it is not a program, `CompilerError` if it is rejected.
    """
    if name is not None and not re.fullmatch(r"[\w][\w.\-]*", name):
        raise CompilerError(f"{name!r} cannot be the name of a file", expected="a plain name")
    if is_function(program):
        loaded = compiler.lower(function=program, one_hot=one_hot)
        return replace(loaded, name=name or _function_name(program))
    path = Path(program)
    message = read_program(path)
    module = module_of(message)
    if isinstance(message, ModuleTuningData):
        loaded = Program(module.SerializeToString())
    else:
        if cause := optimised_cause(module):
            raise optimised_error(path.name, cause)
        loaded = compiler.lower(module=module)
    # the compiler drops aliases and entry modes
    restored = HloModuleProto.FromString(loaded.serialized)
    restored.input_output_alias.CopyFrom(module.input_output_alias)
    restored.frontend_attributes.CopyFrom(module.frontend_attributes)
    stem = re.sub(r"[^\w.\-]+", "_", graph_name(path)).lstrip("-.")
    name = name or stem or "program"
    return replace(loaded, serialized=restored.SerializeToString(), name=name)


def _function_name(program: str) -> str:
    """Return the function's name, or the module's if that is only ``program``.

    >>> _function_name("nets.oddcnn:program"), _function_name("nets:vit")
    ('oddcnn', 'vit')
    """
    module, _, function = program.rpartition(":")
    return module.rpartition(".")[2] if function == "program" else function.rpartition(".")[2]


def default_error(module: Message, default: Outcome, target: str, do: str = "") -> CompilerError:
    """Return the error for a default that fails; it names the operations that have no code.

    Custom calls that compute the indices of gathers and scatters are the compiler's own.
    """
    reason = default.message or "no operation has cycles"
    nodes = [instruction for _, instruction in instructions(module)]
    indexing = [node for node in nodes if node.opcode in ("gather", "scatter")]
    own = set(chain.from_iterable(node.operand_ids for node in indexing))
    calls = {node.custom_call_target for node in nodes if node.id not in own} - {""}
    rejected = [
        call for call in sorted(calls) if re.search(rf"(?<!\w){re.escape(call)}(?!\w)", reason)
    ]
    if rejected:
        got = f"the custom call {', '.join(rejected)} has no code for {target}"
        do = "replace what calls it, or dump the program where it is compiled for this target"
        expected = "operations of XLA, or custom calls of this compiler"
        return CompilerError(got, expected=expected, do=do)
    if NO_CODE.search(reason):
        lines = sorted({"{}:{}".format(*source_line(module, node)) for node in indexing})
        got = f"the compiler itself fails ({reason}), with gather or scatter at {', '.join(lines)}"
        do = "pick elements by products with jax.nn.one_hot, not by take_along_axis or indices"
        expected = "operations that libtpu can generate code for without a TPU"
        return CompilerError(got, expected=expected, do=do)
    got = f"the compiler's default fails for {target} ({reason})"
    do = do or _REMEDIES.get(default.status, "check that it compiles in JAX")
    return CompilerError(got, expected="a program that compiles within the limit", do=do)


def source_line(module: Message, instruction: Message) -> tuple[str, int]:
    """Return file and line of the innermost frame outside installed packages, else of metadata."""
    index = module.stack_frame_index
    frame = instruction.metadata.stack_frame_id
    with suppress(IndexError):  # a damaged module has invalid ids
        for _ in index.stack_frames:
            if not frame:
                break
            call = index.stack_frames[frame - 1]
            location = index.file_locations[call.file_location_id - 1]
            file = index.file_names[location.file_name_id - 1]
            if "-packages/" not in file:
                return file, location.line
            frame = call.parent_frame_id
    return instruction.metadata.source_file, instruction.metadata.source_line


def write_configurations(
    path: Path,
    graph: LayoutGraph,
    rows: NDArray[np.int8],
    runtime: NDArray[np.int64],
    target: str = "",
) -> None:
    """Write a graph file with ``rows (configs, nodes, 18)`` and runtimes, 0 if unknown, for the
    hardware ``target`` if it is known.
    """
    dots = {}
    if (graph.dot_operands >= 0).any():
        dots["node_dot_operands"] = graph.dot_operands
        dots["node_dot_dimensions"] = graph.dot_dimensions.astype(np.int8)
    write_graph(
        path,
        target=target,
        **dots,
        node_feat=graph.node_feat,
        node_opcode=graph.opcode.astype(np.uint8),
        edge_index=graph.edges,
        node_splits=graph.splits[None],
        node_config_ids=graph.configurable,
        node_config_feat=rows.astype(np.float32),
        config_runtime=runtime,
    )


def configuration_key(rows: NDArray[np.int8]) -> str:
    """Return a configuration ``rows (nodes, 18)`` as a short text of its layouts."""
    parts = []
    for node in np.flatnonzero((rows >= 0).any(axis=1)):
        layout = "".join("-" if entry < 0 else str(entry) for entry in rows[node])
        parts.append(f"{node}:{layout}")
    return " ".join(parts)


def program_hash(module: Message) -> str:
    """Return a digest of a program's computations, without metadata such as source lines."""
    digest = hashlib.sha256()
    for computation in map(deepcopy, module.computations):
        for instruction in computation.instructions:
            instruction.ClearField("metadata")
        digest.update(computation.SerializeToString(deterministic=True))
    return digest.hexdigest()


@dataclass(frozen=True)
class Collected:
    """Labels of a program; ``path``: the npz file, of tiles the manifest; ``fresh``: just made."""

    path: Path
    manifest: dict[str, Any]
    fresh: bool

    @property
    def error(self) -> str:
        """Noise of measured labels; empty for estimates."""
        return error_of_labels(self.manifest)

    @property
    def statuses(self) -> dict[str, int]:
        """Number of configurations, or kernels, by status."""
        key = "kernels" if "kernels" in self.manifest else "configurations"
        return dict(Counter(entry["status"] for entry in self.manifest[key]))

    @property
    def files(self) -> dict[str, int]:
        """Number of tiles of each kernel written for this program, by file."""
        kernels = self.manifest.get("kernels", ())
        written = [kernel for kernel in kernels if kernel["status"] == "written"]
        return {kernel["file"]: kernel["tiles"] for kernel in written}


def label_settings(program: Program, compiler: Compiler, **settings: Any) -> dict[str, Any]:
    """Return all that labels depend on, for the manifest."""
    module = program_hash(program.module)
    versions = dict(compiler.versions)
    return {"program": program.name, "module": module, **settings, "versions": versions}


def existing_manifest(path: Path, settings: dict[str, Any]) -> dict[str, Any] | None:
    """Return the manifest at ``path``, if any; raises `CompilerError` for other settings."""
    if not path.exists():
        return None
    try:
        manifest: dict[str, Any] = json.loads(read_text(path))
    except (OSError, ValueError) as error:
        got = f"{path} cannot be read ({error})"
        raise CompilerError(got, do="remove it, or pass another `out`") from error
    if changed := [key for key in settings if manifest.get(key) != settings[key]]:
        got = f"{path} was collected with another {' and '.join(changed)}"
        do = "remove it, or pass another `out`"
        raise CompilerError(got, expected="the same settings and compiler, or no such file", do=do)
    return manifest
