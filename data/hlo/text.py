"""Parsing of HLO text by XLA's own parser, in a subprocess because malformed text can crash it."""

from __future__ import annotations

import math
import re
import subprocess
import sys
from typing import Final

from google.protobuf.message import DecodeError

from xlarank.data.errors import HloError
from xlarank.data.hlo.messages import HloModuleProto, Message

#: Modules of jaxlib that may have the parser: since 0.8, and before.
_PARSERS: Final = ("jaxlib._hlo", "jaxlib._jax")
#: Maximum nesting of brackets: protobuf refuses 100 levels, and the parser crashes at a few thousand.
_MOST_NESTED: Final = 64
#: Maximum number of values of all constants; the parser allocates 16 bytes for each, even if elided (``{...}``).
_MOST_VALUES: Final = 2**26
#: Timeout of the parser in seconds.
_PATIENCE: Final = 600
_EXPECTED: Final = "HLO text of one module"
_DUMP: Final = "dump it as binary: XLA_FLAGS='--xla_dump_to=DIR --xla_dump_hlo_as_proto'"
#: Strings and comments; each alternative matches to the end of the text if its own end is missing.
_NO_CODE: Final = re.compile(rb'"(?:[^"\\]++|\\.)*+"?|/\*(?:[^*]++|\*(?!/))*+(?:\*/)?|//[^\n]*+', re.DOTALL)
_CONSTANT: Final = re.compile(rb"=([^=]*?)\bconstant\(")
_DIMENSIONS: Final = re.compile(rb"\[([0-9,\s]*)\]")
_ABSENT, _REFUSED = 3, 4
#: Script that reads text from standard input and writes the module, or the error, to standard output.
_PARSE: Final = f"""
import importlib, sys
for name in sys.argv[1:]:
    try:
        parse = importlib.import_module(name).hlo_module_from_text
        break
    except (ImportError, AttributeError):
        pass
else:
    sys.exit({_ABSENT})
try:
    module = parse(sys.stdin.buffer.read().decode())
except (RuntimeError, ValueError) as error:
    sys.stdout.buffer.write(str(error).encode())
    sys.exit({_REFUSED})
sys.stdout.buffer.write(module.as_serialized_hlo_module_proto())
"""


def parse_text(text: bytes) -> Message:
    """Parse HLO text into an ``HloModuleProto``; raises `HloError`."""
    try:
        text.decode("utf-8")
    except UnicodeDecodeError as error:
        raise HloError(f"the text is not UTF-8 ({error.reason})", expected="HLO text") from error
    _require_bounds(_NO_CODE.sub(b" ", text))
    command = [sys.executable, "-P", "-c", _PARSE, *_PARSERS]
    try:
        done = subprocess.run(command, input=text, capture_output=True, timeout=_PATIENCE, check=False)
        if done.returncode == 0:
            return HloModuleProto.FromString(done.stdout)
    except (subprocess.TimeoutExpired, DecodeError) as error:
        raise HloError(f"XLA cannot parse the text ({error})", expected=_EXPECTED, do=_DUMP) from error
    if done.returncode == _ABSENT:
        got = "this is HLO text, and XLA's parser for it (jaxlib 0.7 or later) is not installed"
        do = f"pip install 'xlarank[hlo]', or {_DUMP}"
        raise HloError(got, expected="a binary dump, which needs nothing", do=do)
    why = f"its parser ended with {done.returncode}, out of memory or by a crash"
    if done.returncode == _REFUSED:
        why = " ".join(done.stdout.decode(errors="replace").split())[:300]
    raise HloError(f"XLA cannot parse the text ({why})", expected=_EXPECTED)


def _require_bounds(code: bytes) -> None:
    """Raise `HloError` if the parser might crash; strings and comments must have been removed."""
    depth = deepest = 0
    for bracket in re.finditer(rb"[][(){}]", code):
        depth = depth + 1 if bracket.group() in b"([{" else max(0, depth - 1)
        deepest = max(deepest, depth)
    if deepest > _MOST_NESTED:
        raise HloError(f"its brackets are nested {deepest:,} deep", expected=f"at most {_MOST_NESTED}")
    values = 0
    for constant in _CONSTANT.finditer(code):
        for shape in _DIMENSIONS.findall(constant[1]):
            values += math.prod(int(extent[:20]) for extent in shape.split(b",") if extent.strip())
    if values > _MOST_VALUES:
        raise HloError(f"its constants have {values:,} values", expected=f"at most {_MOST_VALUES:,}", do=_DUMP)
