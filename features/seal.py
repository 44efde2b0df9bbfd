"""A checksum of a whole file within the file: one flipped bit anywhere is seen before a value is believed.

Parquet's own checksums cover pages, not the footer with the graph's constants; a zip's cover members, and only once
they are unpacked. A CRC-32 over the bytes as stored took 0.2 to 4 % of the time to read them (64 to 30,000 rows);
it misses no flipped bit and no damage of up to 32 bits in a row, and anything larger once in four billion times.
"""

from __future__ import annotations

import json
import zipfile
import zlib
from pathlib import Path
from typing import Any, Final

_DIGITS: Final = 8
_BLANK: Final = b"0" * _DIGITS
#: How the digest stands in JSON that a file holds as plain text.
_MARK: Final = b'"seal": "'


def sealable(value: dict[str, Any]) -> str:
    """JSON with a blank checksum, for a file that keeps it as it is; `seal` fills it in.

    >>> sealable({"name": "a"})
    '{"name": "a", "seal": "00000000"}'
    """
    return json.dumps({**value, "seal": _BLANK.decode()})


def seal(path: Path) -> None:
    """Fill in the checksum of a file that holds `sealable` JSON; raises `ValueError` for one that does not."""
    content = path.read_bytes()
    at = _place(content)
    with path.open("r+b") as stream:
        stream.seek(at)
        stream.write(_digest(content, at))


def require_seal(content: bytes) -> None:
    """Raise `ValueError` unless the content is what was sealed."""
    at = _place(content)
    if content[at : at + _DIGITS] != _digest(content, at):
        raise ValueError("its content has changed since it was written")


def _place(content: bytes) -> int:
    at = content.rfind(_MARK)
    if at < 0:
        raise ValueError("it has no seal")
    return at + len(_MARK)


def _digest(content: bytes, at: int) -> bytes:
    view, checksum = memoryview(content), 0
    for part in (view[:at], _BLANK, view[at + _DIGITS :]):
        checksum = zlib.crc32(part, checksum)
    return f"{checksum:08x}".encode()


def seal_zip(path: Path) -> None:
    """Put the checksum of a zip archive into its comment."""
    with zipfile.ZipFile(path, "a") as archive:
        archive.comment = sealable({}).encode()
    seal(path)
