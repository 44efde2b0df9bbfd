"""Parsing of program files; the format is recognised by content, never by name."""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable
from operator import attrgetter
from pathlib import Path
from typing import Final

from google.protobuf.message import DecodeError

from xlarank.data.errors import HloError, naming
from xlarank.data.files import read_bytes
from xlarank.data.hlo.messages import HloModuleProto, HloProto, HloSnapshot, Message, ModuleTuningData, TuningData

#: Protobuf itself reads no message of 2 GiB.
_MAX_BYTES: Final = 2**31 - 1
_HLO_TEXT: Final = re.compile(rb"\s*(?://[^\n]*\n\s*)*HloModule\b")
_MLIR_TEXT: Final = re.compile(rb"\s*(?:(?://|#)[^\n]*\n\s*)*(?:module|func\.func|builtin\.module)\b")
#: A hostile file may have millions of parts: only so many are looked at to recognize its kind.
_LOOKED_AT: Final = 100
_OPCODE: Final = re.compile(r"[a-z][a-z0-9-]*")
_EXPECTED: Final = "an HloProto or HloModuleProto, HLO text, or TpuGraphs' ModuleTuningData or TuningData"
#: Where jaxlib keeps XLA's parser of HLO text: since 0.8, and before.
_PARSERS: Final = ("jaxlib._hlo", "jaxlib._jax")


def read_program(path: Path) -> Message:
    """Read a file: an ``HloModuleProto``, or with its configurations a ``ModuleTuningData`` or ``TuningData``.

    Raises `HloError` naming the file.
    """
    try:
        if (size := path.stat().st_size) > _MAX_BYTES:
            got = f"{path.name} has {size:,} bytes"
            raise HloError(got, expected=f"at most {_MAX_BYTES:,}, as protobuf does")
        data = read_bytes(path)
    except OSError as error:
        got = f"{path} cannot be read ({error.strerror or error})"
        raise HloError(got, expected="a file", do="check the path") from error
    with naming(path.name):
        return parse_program(data)


def parse_program(data: bytes) -> Message:
    """Return the message in ``data``: an ``HloModuleProto``, a ``ModuleTuningData`` or a ``TuningData``.

    Every kind of message starts with field 1, so each is tried, and the first that holds a program is
    taken. Raises `HloError` when there is none.
    """
    if not data:
        raise HloError("the file is empty", expected=_EXPECTED)
    parsed = 0
    for kind, path, is_program in _KINDS:
        try:
            message = kind.FromString(data)
        except DecodeError:
            continue
        parsed += 1
        part = attrgetter(path)(message) if path else message
        if is_program(part):
            return part
    if _HLO_TEXT.match(data):
        return parse_text(data)
    if _MLIR_TEXT.match(data):
        do = "dump HLO: XLA_FLAGS='--xla_dump_to=DIR'"
        raise HloError("this is MLIR (StableHLO) text", expected=_EXPECTED, do=do)
    if parsed:
        raise HloError("there is no program in this file", expected=_EXPECTED)
    got = "the file is cut off, or no protobuf of a program"
    raise HloError(got, expected=_EXPECTED, do="copy or dump it again")


def module_of(message: Message) -> Message:
    """Return the module in what `read_program` returned; that of tiles if there is a single kernel.

    Raises `HloError` for several kernels.
    """
    if isinstance(message, TuningData):
        if len(message.modules) != 1:
            got = f"the file holds {len(message.modules)} kernels"
            raise HloError(got, expected="one program", do="use import-hlo")
        return message.modules[0].module
    return message.module if isinstance(message, ModuleTuningData) else message


def parse_text(text: bytes) -> Message:
    """Parse HLO text with XLA's own parser.

    Raises `HloError` when jaxlib, which has the parser, is not installed or the text is wrong.
    """
    parser = _text_parser()
    try:
        serialized = parser(text.decode("utf-8")).as_serialized_hlo_module_proto()
    except UnicodeDecodeError as error:
        raise HloError(f"the text is not UTF-8 ({error.reason})", expected="HLO text") from error
    except (RuntimeError, ValueError) as error:
        lines = " ".join(str(error).split())
        raise HloError(f"XLA cannot parse the text ({lines[:300]})", expected="HLO text of one module") from error
    return HloModuleProto.FromString(serialized)


def _text_parser() -> Callable[[str], Message]:
    for name in _PARSERS:
        try:
            module = importlib.import_module(name)
        except ImportError:
            continue
        if parser := getattr(module, "hlo_module_from_text", None):
            return parser  # type: ignore[no-any-return]
    raise HloError(
        "this is HLO text, and XLA's parser for it (jaxlib 0.7 or later) is not installed",
        expected="a binary dump, which needs nothing",
        do="pip install 'xlarank[hlo]', or dump binaries: XLA_FLAGS='--xla_dump_to=DIR --xla_dump_hlo_as_proto'",
    )


def _has_program(module: Message) -> bool:
    """Return whether one of the first computations begins with an instruction."""
    return any(
        _OPCODE.fullmatch(instruction.opcode)
        for computation in module.computations[:_LOOKED_AT]
        for instruction in computation.instructions[:1]
    )


def _is_layout_tuning(message: Message) -> bool:
    configured = message.config_index_to_node or any(
        run.module_config.HasField("layout_config") or run.op_config.HasField("tile_size_config")
        for run in message.runs[:_LOOKED_AT]
    )
    return bool(configured) and _has_program(message.module)


def _is_tile_tuning(message: Message) -> bool:
    return any(part.runs and _has_program(part.module) for part in message.modules[:_LOOKED_AT])


#: Kinds of messages, the part of each that `parse_program` returns, and how that part is recognized. Tuning data,
#: known by its runs, is tried before what has its program at the same place.
_KINDS: Final[tuple[tuple[type[Message], str, Callable[[Message], bool]], ...]] = (
    (HloModuleProto, "", _has_program),
    (ModuleTuningData, "", _is_layout_tuning),
    (HloProto, "hlo_module", _has_program),
    (TuningData, "", _is_tile_tuning),
    (HloSnapshot, "hlo.hlo_module", _has_program),
)
