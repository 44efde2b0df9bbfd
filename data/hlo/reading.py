"""Reading of program files as messages, graphs and node names.

Files are recognised by content, never by name. HLO text and StableHLO are parsed by XLA's own
parser, in a subprocess because malformed text can crash it.
"""

from __future__ import annotations

import codecs
import gzip
import re
import subprocess
import sys
import warnings
import zlib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

import numpy as np
from google.protobuf.message import DecodeError

from xlarank.data.config_table import ConfigTable
from xlarank.data.errors import HloError, naming
from xlarank.data.files import read_bytes
from xlarank.data.graph import LayoutGraph
from xlarank.data.hlo import messages
from xlarank.data.hlo.encoding import Arrays, encode_program, unexpressed
from xlarank.data.hlo.messages import Message, instructions
from xlarank.data.schema import LAYOUT_COLUMNS

#: Protobuf itself reads no message of 2 GiB.
_MAX_BYTES: Final = 2**31 - 1
_OPCODE: Final = re.compile(r"[a-z][a-z0-9-]*")
_EXPECTED: Final = (
    "an HloProto or HloModuleProto, HLO text, StableHLO, or TpuGraphs' ModuleTuningData or "
    "TuningData, perhaps compressed by gzip"
)
_DUMP: Final = "dump it as binary: XLA_FLAGS='--xla_dump_to=DIR --xla_dump_hlo_as_proto'"
#: Opcodes that XLA adds when layouts are chosen.
_OPTIMISED: Final = frozenset({"bitcast", "copy-start", "copy-done"})
_EARLIER_DUMP: Final = (
    "take *before_layout-assignment* of a dump with --xla_dump_hlo_pass_re=layout-assignment, "
    "or *before_optimizations*"
)
_GZIP: Final = b"\x1f\x8b"
_BYTECODE: Final = b"ML\xefR"
#: Lines by which text is recognised.
_MLIR: Final = re.compile(
    rb'^[ \t]*+(?:module(?: @| \{| attributes\b)|"?builtin\.module\b|"?func\.func\b)', re.MULTILINE
)
_HEADER: Final = re.compile(rb"^[ \t]*+HloModule\b", re.MULTILINE)
_INSTRUCTION: Final = re.compile(
    rb"^[ \t]*+(?:ROOT )?%?[\w.\-]+ = [(a-z][^=\n]*[\]})] [a-z][a-z0-9\-]*\(", re.MULTILINE
)
_COMPUTATION: Final = re.compile(
    rb"^[ \t]*+(?:ENTRY )?%?[\w.\-]+ (?:\(.*\) -> .*)?\{[ \t]*$", re.MULTILINE
)
#: Strings and comments; unterminated ones match to the end of the text.
_NO_CODE: Final = re.compile(
    rb'"(?:[^"\\]++|\\.)*+"?|/\*(?:[^*]++|\*(?!/))*+(?:\*/)?|//[^\n]*+', re.DOTALL
)
#: Attributes that the parser rejects, in its errors, from the inside to the outside.
_REJECTED: Final = re.compile(
    r'error: (?:unexpected attribute "|error parsing attribute |Invalid )([\w\-]+)'
)
#: Parts of the names of attributes that say something about shapes, layouts, operands or calls.
_SHAPING: Final = re.compile(
    "dim|window|slice|pad|shape|layout|calls|called|comput|apply|body|condition|branch|kind|index|"
    "target|group|alias|select|scatter|control"
)
_MAX_DROPPED = 16
_VALUE_TOKEN: Final = re.compile(
    rb'"(?:[^"\\]++|\\.)*+"?|[][(){}]|[\s,]|[^][(){}\s,"]++', re.DOTALL
)
#: Script that reads text from standard input and prints the module.
_PARSE: Final = """
import sys
data = sys.stdin.buffer.read()
if sys.argv[1] == "StableHLO":
    from jaxlib._jax import mlir
    module = mlir.mlir_module_to_xla_computation(data, use_tuple_args=False, return_tuple=False)
else:
    from jaxlib._hlo import hlo_module_from_text
    module = hlo_module_from_text(data.decode())
sys.stdout.buffer.write(module.as_serialized_hlo_module_proto())
"""


class NoProgramError(HloError):
    """A file holds something else than a program, as far as its content tells."""


def read_hlo(path: Path | str) -> LayoutGraph:
    """Read a program: an HLO binary or text, or the program of TpuGraphs' tuning data.

    The graph has the dataset's columns and one configuration of runtime 0 (unknown): the compiler's
    default for every configurable node, a row of -1. Convolutions, dots and reshapes of up to 6
    dimensions outside fusion bodies are configurable. Warns about what the
    format cannot express, such as unknown opcodes. Raises `HloError` naming the file.
    """
    path = Path(path)
    message = read_program(path)
    with naming(path.name):
        return module_graph(module_of(message), path)


def module_graph(module: Message, path: Path) -> LayoutGraph:
    """Return the graph of an ``HloModuleProto`` as `read_hlo` does, named after ``path``."""
    arrays = unlabelled_arrays(module)
    for note in program_notes(module):
        warnings.warn(f"{path.name}: {note}", stacklevel=3)
    rows = arrays["node_config_feat"]
    nodes = arrays["node_config_ids"]
    return LayoutGraph(
        graph_name(path),
        arrays["node_feat"],
        arrays["node_opcode"].astype(np.int64),
        arrays["edge_index"],
        arrays["config_runtime"],
        arrays["node_splits"].reshape(-1),
        nodes,
        ConfigTable.from_blocks([rows], configs=1, nodes=len(nodes)),
        arrays["node_dot_operands"],
        arrays["node_dot_dimensions"].astype(np.int64),
    )


def optimised_cause(module: Message) -> str:
    """Return what shows that a module was optimised already; empty for others."""
    added = {node.opcode for _, node in instructions(module)} & _OPTIMISED
    if added:
        return f"it has {', '.join(sorted(added))}"
    return "it is scheduled" if module.HasField("schedule") else ""


def require_unoptimised(module: Message, name: str) -> None:
    """Raise `HloError` for a program whose layouts were chosen already."""
    if cause := optimised_cause(module):
        got = f"{name} is a module after optimisation ({cause}), whose layouts are chosen already"
        raise HloError(got, expected="a module before layout assignment", do=_EARLIER_DUMP)


def unlabelled_arrays(module: Message) -> Arrays:
    """Return the arrays of a graph file with one default configuration, without a runtime."""
    arrays = encode_program(module)
    shape = (1, len(arrays["node_config_ids"]), len(LAYOUT_COLUMNS))
    return arrays | {
        "node_config_feat": np.full(shape, -1, np.float32),
        "config_runtime": np.zeros(1, np.int64),
    }


def program_notes(module: Message) -> tuple[str, ...]:
    """Describe what a graph does not say about a program, and a dump of the wrong stage."""
    notes = unexpressed(module)
    if cause := optimised_cause(module):
        notes = (f"{cause}: a module after optimisation; {_EARLIER_DUMP}", *notes)
    return notes


def graph_name(path: Path) -> str:
    """Return a file's name without the suffixes of compiler dumps.

    >>> graph_name(Path("dump/module_0001.jit_f.before_optimizations.hlo.pb"))
    'module_0001.jit_f.before_optimizations'
    """
    suffixes = r"(\.hlo)?(\.(txt|pb|mlir|mlirbc))?(\.gz)?$"
    return re.sub(suffixes, "", path.name.lstrip(".")) or "program"


def read_program(path: Path) -> Message:
    """Read a module, ``ModuleTuningData`` or ``TuningData``; raises `HloError` naming the file."""
    try:
        if (size := path.stat().st_size) > _MAX_BYTES:
            expected = f"at most {_MAX_BYTES:,}, as protobuf does"
            raise HloError(f"{path.name}: it has {size:,} bytes", expected=expected)
        data = read_bytes(path)
    except OSError as error:
        got = f"{path} cannot be read ({error.strerror or error})"
        raise HloError(got, expected="a file", do="check the path") from error
    with naming(path.name):
        return parse_program(data)


def parse_program(data: bytes) -> Message:
    """Return the ``HloModuleProto``, ``ModuleTuningData`` or ``TuningData`` in ``data``.

    All kinds of messages start with field 1, so they are tried in turn, and the first that holds a
    program is returned. Compressed files are unpacked; HLO text and StableHLO are parsed. Raises
    `HloError` if there is no program.
    """
    if data.startswith(_GZIP):
        try:
            data = gzip.decompress(data)
        except (OSError, EOFError, zlib.error) as error:
            raise HloError(f"it cannot be unpacked ({error})", do="copy it again") from error
    for kind, is_program in _KINDS:
        with suppress(DecodeError):
            message = kind.FromString(data)
            part = message.hlo_module if kind is messages.HloProto else message
            if is_program(part):
                return part
    # without a byte-order mark; invalid bytes are replaced
    text = data.removeprefix(codecs.BOM_UTF8).decode(errors="replace").encode()
    end = text.rfind(b"}") + 1 or None  # frameworks write lines around the module
    if len(modules := list(_HEADER.finditer(text))) > 1:
        raise HloError(f"the file holds {len(modules)} HLO modules", expected="one in a file")
    if modules:
        return _parse_text(text[modules[0].start() : end], "HLO text")
    if data.startswith(_BYTECODE):
        return _parse_text(data, "StableHLO")
    if _MLIR.search(text):
        return _parse_text(text, "StableHLO")
    if _INSTRUCTION.search(text):
        if computation := _COMPUTATION.search(text):  # the parser needs a header above this form
            text = b"HloModule program\n\n" + text[computation.start() : end]
        return _parse_text(text, "HLO text")
    got = "the file is cut off, or holds no program"
    do = "copy, unpack or dump it again (PyTorch/XLA: with XLA_SAVE_TENSORS_FMT=hlo)"
    raise NoProgramError(got, expected=_EXPECTED, do=do)


def module_of(message: Message) -> Message:
    """Return the module of a message from `read_program`; raises `HloError` for several kernels."""
    if isinstance(message, messages.TuningData):
        if len(message.modules) != 1:
            got = f"the file holds {len(message.modules)} kernels"
            raise HloError(got, expected="one program", do="use import-hlo")
        return message.modules[0].module
    return message.module if isinstance(message, messages.ModuleTuningData) else message


def _parse_text(text: bytes, form: str) -> Message:
    """Return the ``HloModuleProto`` of HLO text or StableHLO; raises `HloError`.

    Attributes that the parser rejects, because another version of XLA wrote them, are left out if
    they say nothing about shapes or layouts.
    """
    for _ in range(_MAX_DROPPED):
        module, reason = _run_parser(text, form)
        if module is not None:
            return module
        names = [{"API": "api_version"}.get(name, name) for name in _REJECTED.findall(reason)]
        if not names or any(map(_SHAPING.search, names)):
            break
        shorter = _without_attribute(text, names[0])
        if shorter == text:
            break
        text = shorter
    expected = "one program, as this version of jaxlib writes it"
    do = f"update jaxlib, or {_DUMP}"
    raise HloError(f"XLA cannot parse this {form} ({reason[:300]})", expected=expected, do=do)


def _without_attribute(text: bytes, name: str) -> bytes:
    """Remove ``name=value`` from all instructions; strings and comments are left alone."""
    attribute = rb"(?P<before>,\s*+|(?<![\s,])\s++|(?<=\{))" + re.escape(name.encode()) + rb"="
    kept = []
    end = 0
    for match in re.finditer(_NO_CODE.pattern + rb"|" + attribute, text, re.DOTALL):
        if match["before"] is None or match.start() < end:
            continue
        kept.append(text[end : match.start()])
        end = _value_end(text, match.end())
        if not match["before"]:  # the first in its braces: the separator follows
            end += len(text[end : end + 2]) - len(text[end : end + 2].lstrip(b", "))
    return b"".join(kept) + text[end:]


def _value_end(text: bytes, start: int) -> int:
    """Return the end of an attribute's value: the first comma, space or closing bracket outside."""
    depth = 0
    for token in _VALUE_TOKEN.finditer(text, start):
        if depth == 0 and (token[0] in (b",", b"}", b")") or token[0].isspace()):
            return token.start()
        depth += (token[0] in (b"(", b"[", b"{")) - (token[0] in (b")", b"]", b"}"))
    return len(text)


def _run_parser(data: bytes, form: str) -> tuple[Message | None, str]:
    """Return the ``HloModuleProto`` of HLO text or StableHLO, or the reason why there is none.

    Raises `HloError` if the parser is not installed.
    """
    command = [sys.executable, "-P", "-c", _PARSE, form]
    try:
        parser = subprocess.run(command, input=data, capture_output=True, timeout=600, check=False)
        if parser.returncode == 0:
            return messages.HloModuleProto.FromString(parser.stdout), ""
    except (subprocess.TimeoutExpired, DecodeError) as error:
        return None, str(error)
    reason = " ".join(parser.stderr.decode(errors="replace").rpartition("Error: ")[2].split())
    if reason.startswith(("No module named", "cannot import name")):
        got = f"this is {form}, and XLA's parser for it (jaxlib 0.10 or later) is not installed"
        do = f"pip install 'xlarank[hlo]', or {_DUMP}"
        raise HloError(got, expected="a binary dump, which needs nothing", do=do)
    if parser.returncode < 0:
        reason = f"its parser ended with {parser.returncode}, out of memory or by a crash"
    return None, reason


def _has_program(module: Message) -> bool:
    computations = [part for part in module.computations if part.instructions]
    return any(_OPCODE.fullmatch(part.instructions[0].opcode) for part in computations)


def _is_layout_tuning(message: Message) -> bool:
    configured = message.config_index_to_node or any(
        run.module_config.HasField("layout_config") or run.op_config.HasField("tile_size_config")
        for run in message.runs
    )
    return bool(configured) and _has_program(message.module)


def _is_tile_tuning(message: Message) -> bool:
    return any(part.runs and _has_program(part.module) for part in message.modules)


#: Kinds of messages, and the test that recognises each. Tuning data, recognised by runs or
#: configurable nodes, precedes ``HloProto``, which has a program in the same field.
_KINDS: Final[tuple[tuple[type[Message], Callable[[Message], bool]], ...]] = (
    (messages.HloModuleProto, _has_program),
    (messages.ModuleTuningData, _is_layout_tuning),
    (messages.HloProto, _has_program),
    (messages.TuningData, _is_tile_tuning),
)
