"""Programs: loading, errors of their compilation, graph files of their configurations."""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Final

import numpy as np

from xlarank.data.errors import CompilerError
from xlarank.data.graph import LayoutGraph
from xlarank.data.hlo.messages import HloModuleProto, Message, ModuleTuningData, instructions
from xlarank.data.hlo.reading import graph_name, module_of, read_program, require_unoptimised
from xlarank.data.writing import write_graph
from xlarank.pipelines.programs.compiler.session import Compiler
from xlarank.pipelines.programs.compiler.xla import Outcome, Program
from xlarank.pipelines.programs.kinds import is_function

#: Error of libtpu for operations that it has no code for without a TPU.
_NO_CODE: Final = re.compile(r"Custom emitter .*not found")


def load_program(program: str, compiler: Compiler) -> Program:
    """Load a file of HLO, or ``module:function``, in its state before layout assignment.

    A ``ModuleTuningData`` of TpuGraphs is in that state already. Raises
    `xlarank.data.errors.HloError` if it is not a program, `CompilerError` if it is rejected.
    """
    if is_function(program):
        loaded = compiler.lower(function=program)
        return replace(loaded, name=_function_name(program))
    path = Path(program)
    message = read_program(path)
    module = module_of(message)
    if isinstance(message, ModuleTuningData):
        loaded = Program(module.SerializeToString())
    else:
        require_unoptimised(module, path.name)
        loaded = compiler.lower(module=module)
    # the compiler drops aliases and entry modes
    restored = HloModuleProto.FromString(loaded.serialized)
    restored.input_output_alias.CopyFrom(module.input_output_alias)
    restored.frontend_attributes.CopyFrom(module.frontend_attributes)
    return replace(loaded, serialized=restored.SerializeToString(), name=graph_name(path))


def _function_name(program: str) -> str:
    """Return the function's name, or the module's if that is only ``program``.

    >>> _function_name("nets.oddcnn:program"), _function_name("nets:vit")
    ('oddcnn', 'vit')
    """
    module, _, function = program.rpartition(":")
    return module.rpartition(".")[2] if function == "program" else function.rpartition(".")[2]


def default_error(module: Message, default: Outcome, target: str) -> CompilerError:
    """Return the error for a default that fails; it names gathers that may have no code."""
    reason = default.message or "no operation has cycles"
    got = f"the compiler's default fails for {target} ({reason})"
    expected = "a program that compiles within the limit"
    do = "check that it compiles in JAX; replace custom calls"
    nodes = [node for _, node in instructions(module) if node.opcode in ("gather", "scatter")]
    if nodes and _NO_CODE.search(reason):
        lines = sorted({"{}:{}".format(*source_line(module, node)) for node in nodes})
        got = f"{got}, with gather or scatter at {', '.join(lines)}"
        expected = "operations that libtpu can generate code for without a TPU"
        do = "pick elements by products with jax.nn.one_hot, not by take_along_axis or indices"
    return CompilerError(got, expected=expected, do=do)


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


def write_configurations(path: Path, graph: LayoutGraph) -> None:
    """Write a program's graph file with its configurations and their runtimes, 0 if unknown."""
    write_graph(
        path,
        target=graph.target,
        node_feat=graph.node_feat,
        node_opcode=graph.opcode.astype(np.uint8),
        edge_index=graph.edges,
        node_splits=graph.splits[None],
        node_config_ids=graph.configurable,
        node_config_feat=graph.table.rows[graph.table.codes].astype(np.float32),
        config_runtime=graph.runtime,
        node_dot_operands=graph.dot_operands,
        node_dot_dimensions=graph.dot_dimensions.astype(np.int8),
    )
