"""Atomic writes, reads restricted to regular files, and JSON of dataclasses."""

from __future__ import annotations

import dataclasses
import errno
import json
import os
import secrets
import stat
import sys
import types
import typing
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final, TypeVar, cast

from xlarank.data.errors import WorkspaceError

T = TypeVar("T")

_PARTIAL: Final = ".partial-"
#: Number of bytes that distinguish binary files from text.
_MAGIC: Final = 512
#: Errors of any write: a full disk, a quota, a limit on the size of files.
DISK_FULL: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def regular_only(path: str, flags: int) -> int:
    """Open a regular file (an opener for `open`); raises `OSError` for others, as pipes block."""
    handle = os.open(path, flags | getattr(os, "O_NONBLOCK", 0), 0o666)
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise OSError(errno.EINVAL, "not a regular file", path)
    return handle


def read_bytes(path: Path) -> bytes:
    """Return the content of a regular file; raises `OSError`."""
    with open(path, "rb", opener=regular_only) as stream:
        return stream.read()


def read_text(path: Path) -> str:
    """Return the text of a regular UTF-8 file; raises `OSError` and `UnicodeDecodeError`."""
    with open(path, encoding="utf-8", opener=regular_only) as stream:
        return stream.read()


def output_target(path: Path) -> Path:
    """Resolve links and return the file that writing to ``path`` would replace.

    Raises `WorkspaceError` if it is not a regular file (a folder, device, pipe or socket) or is
    write-protected.
    """
    reason = ""
    with suppress(OSError):  # the file is new, or its folder unreadable, so that writing will fail
        mode = os.stat(path).st_mode
        if not stat.S_ISREG(mode):
            reason = "it is a folder, a device or a pipe"
        # root can write to any file, but one without write bits is protected on purpose
        elif not mode & 0o222 or not os.access(path, os.W_OK):
            reason = "it is read-only"
    if reason:
        do = "name another file (- is standard output for `json`)"
        got = f"cannot write {path} ({reason})"
        raise WorkspaceError(got, expected="a file that may be replaced", do=do)
    return Path(os.path.realpath(path))


def require_replaceable(path: Path) -> Path:
    """Return the `output_target` of a text; raises `WorkspaceError` also for a binary file."""
    target = output_target(path)
    start = b""
    with suppress(OSError), target.open("rb") as stream:  # there may be none
        start = stream.read(_MAGIC)
    if b"\0" in start or start.startswith(b"PAR1"):
        got = f"cannot write {path} (it is a binary file, such as a graph)"
        raise WorkspaceError(got, expected="a text file, or none", do="name another file")
    return target


@contextmanager
def atomic_write(path: Path) -> Iterator[Path]:
    """Yield a temporary path and move it to ``path`` if the block succeeds.

    Links are kept. Raises `WorkspaceError` like `output_target`, and if the folder or the file
    cannot be written, as on a full disk.
    """
    target = output_target(path)
    partial = None
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        partial = target.with_name(f"{_PARTIAL}{secrets.token_hex(4)}{target.suffix}")
        partial.touch(exist_ok=False)
        yield partial
        partial.replace(target)
    except OSError as error:
        if partial and error.filename is not None and str(error.filename) != str(partial):
            raise  # the error names another file
        got = f"cannot write {path} ({error.strerror or error})"
        do = remedy(error, "pass another `workspace` (or `out`)")
        expected = "enough space and a folder that can be written to"
        raise WorkspaceError(got, expected=expected, do=do) from error
    finally:
        if partial:
            partial.unlink(missing_ok=True)


def remedy(error: OSError, otherwise: str) -> str:
    """Return what to do about a failed write."""
    if error.errno in DISK_FULL:
        return f"make room and run the same command again, or {otherwise}"
    return f"change the permissions, or {otherwise}"


def write_json(path: Path, value: Any) -> None:
    """Write ``value`` as indented JSON, atomically."""
    with atomic_write(path) as partial:
        partial.write_text(json.dumps(value, indent=2, allow_nan=False) + "\n", encoding="utf-8")


def from_json(cls: type[T], value: Any, where: str = "it") -> T:
    """Return a dataclass from the JSON of `dataclasses.asdict`.

    Fields are numbers, booleans, text, None, lists, ``dict[str, ...]``, dataclasses, ``Any``, or a
    union of these. Raises `TypeError` naming the wrong entry.
    """
    if not isinstance(value, dict):
        raise TypeError(f"{where} is no JSON object")
    hints = typing.get_type_hints(cls)
    entries = {name: _checked(hints.get(name, Any), value[name], name) for name in value}
    try:
        return cls(**entries)
    except TypeError as error:  # its words name missing and unknown entries
        raise TypeError(str(error).replace(f"{cls.__name__}.__init__()", where)) from error


def _checked(annotation: Any, value: Any, name: str) -> Any:
    origin = typing.get_origin(annotation)
    arguments = typing.get_args(annotation)
    if origin is types.UnionType:
        for member in arguments:
            with suppress(TypeError):
                return _checked(member, value, name)
    elif dataclasses.is_dataclass(annotation):
        return from_json(cast(type[Any], annotation), value, name)
    elif origin is list and isinstance(value, list):
        return [_checked(arguments[0], entry, f"an entry of {name}") for entry in value]
    elif origin is dict and isinstance(value, dict):
        return {
            key: _checked(arguments[1], entry, f"{name}.{key[:60]}") for key, entry in value.items()
        }
    elif annotation is float and type(value) in (int, float) and abs(value) <= sys.float_info.max:
        return float(value)
    elif annotation is Any:
        return value
    elif annotation in (bool, int, str, type(None)) and type(value) is annotation:
        return value
    got = f"{name} is {str(value)[:60]!r}, not {getattr(annotation, '__name__', annotation)}"
    raise TypeError(got)
