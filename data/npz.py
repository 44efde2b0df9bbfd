"""Reader for untrusted npz archives: never unpickles, checks sizes before it allocates.

`numpy.load` takes memory for the whole array before it sees the bytes and, for a layout file,
holds gigabytes at once. `NpzReader` checks each header against the bytes behind it first, and can
hand an array out in blocks of rows straight from the zip stream.
"""

from __future__ import annotations

import io
import math
import stat
import sys
import zipfile
import zlib
from collections import deque
from collections.abc import Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Self

import numpy as np
from numpy.lib import format as npy_format
from numpy.typing import NDArray

from xlarank.data.errors import GraphFileError

#: Deflate cannot expand a byte to more than this many (zlib's own technical note); a claim beyond is false.
_MAX_DEFLATE_RATIO = 1032
#: Blocks of about this size keep a pass over one block inside the processor's cache.
_BLOCK_BYTES = 1 << 20
#: Blocks unpacked before they are asked for.
_AHEAD = 2
_HEADER_READERS = {(1, 0): npy_format.read_array_header_1_0, (2, 0): npy_format.read_array_header_2_0}
_COPY_AGAIN = "copy or download the file again"
_SAVE_AGAIN = "save it with numpy.savez_compressed"
_UNREADABLE = (
    zipfile.BadZipFile,
    zlib.error,
    EOFError,
    OSError,
    ValueError,
    NotImplementedError,  # compression method unknown to zipfile
    RuntimeError,  # encrypted member
)


@dataclass(frozen=True)
class ArrayHeader:
    """A validated ``.npy`` header; ``length`` is its own, in bytes."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    fortran_order: bool
    length: int

    @property
    def size(self) -> int:
        return math.prod(self.shape)


class NpzReader:
    """An open npz archive.

    Raises `GraphFileError` for anything that is not a readable, honest archive of plain arrays.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            status = path.stat()
            if not stat.S_ISREG(status.st_mode):
                raise OSError("it is not a regular file")  # opening a named pipe would wait forever
            self._bytes = status.st_size
            self._zip = zipfile.ZipFile(path)
        except (FileNotFoundError, NotADirectoryError) as error:
            raise GraphFileError(f"{path} does not exist", expected="an npz file", do="check the path") from error
        except _UNREADABLE as error:
            got = f"{path.name} cannot be opened ({error})"
            raise GraphFileError(got, expected="a whole npz (zip) archive", do=_COPY_AGAIN) from error
        self._headers: dict[str, ArrayHeader] = {}
        self._members = {
            info.filename.removesuffix(".npy"): info
            for info in self._zip.infolist()
            if info.filename.endswith(".npy")
        }

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._zip.close()

    @property
    def names(self) -> frozenset[str]:
        """Names of the arrays in the archive."""
        return frozenset(self._members)

    def header(self, name: str) -> ArrayHeader:
        """Return the validated header of one array without reading the array."""
        if name not in self._headers:
            with self._open(name) as stream:
                self._headers[name] = self._read_header(name, stream)
        return self._headers[name]

    def read(self, name: str) -> NDArray[Any]:
        """Return one whole array."""
        (array,) = self._blocks(name)  # to the end, where the checksum is compared
        return array

    def stream(self, name: str) -> Generator[NDArray[Any], None, None]:
        """Yield the array in blocks of leading rows, about a megabyte each.

        A thread unpacks the next blocks meanwhile. A block is only valid until the next
        one is asked for: the buffers are reused.
        """
        header = self.header(name)
        if header.fortran_order and len(header.shape) > 1:
            raise self._broken(
                f"array {name} is stored in Fortran order",
                expected="C order, so that it can be read one configuration after the other",
                do="save it again through numpy.ascontiguousarray",
            )
        row_bytes = max(1, header.dtype.itemsize * math.prod(header.shape[1:]))
        rows = max(1, _BLOCK_BYTES // row_bytes)
        if row_bytes * math.prod(header.shape[:1]) <= _BLOCK_BYTES:
            yield from self._blocks(name, rows)
        else:
            yield from _ahead(self._blocks(name, rows, buffers=_AHEAD + 1))

    def _blocks(self, name: str, rows: int | None = None, buffers: int = 1) -> Generator[NDArray[Any], None, None]:
        """Yield blocks of ``rows`` leading rows (None: all), in ``buffers`` that are used in turn."""
        header = self.header(name)
        with self._refusing(f"array {name} is damaged", "a whole array"), self._open(name) as stream:
            stream.read(header.length)
            total, *inner = header.shape or (1,)
            rows = total if rows is None else min(rows, total)
            row_bytes = header.dtype.itemsize * math.prod(inner)
            ring = [bytearray(rows * row_bytes) for _ in range(buffers)]
            for number, done in enumerate(range(0, max(total, 1), max(rows, 1))):
                count = min(rows, total - done)
                view = memoryview(ring[number % buffers])[: count * row_bytes]
                _fill(stream, view)
                block = np.frombuffer(view, dtype=header.dtype)
                if header.fortran_order or not header.shape:
                    yield block.reshape(header.shape, order="F")
                else:
                    yield block.reshape((count, *inner))
            if stream.read(1):  # also makes zipfile compare the checksum of the last bytes
                raise ValueError("bytes left over after the array")

    def _open(self, name: str) -> IO[bytes]:
        info = self._members.get(name)
        if info is None:
            raise self._broken(
                f"array {name} is missing (found {', '.join(sorted(self._members)) or 'none'})",
                expected=f"an array called {name}",
                do="write the file with all arrays of the TpuGraphs format",
            )
        if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise self._broken(
                f"array {name} is compressed by zip method {info.compress_type}",
                expected="stored or deflated",
                do=_SAVE_AGAIN,
            )
        packed = min(info.compress_size, self._bytes)  # the directory may claim anything
        limit = packed * _MAX_DEFLATE_RATIO if info.compress_type == zipfile.ZIP_DEFLATED else packed
        if info.file_size > limit:
            raise self._broken(
                f"array {name} claims {info.file_size:,} bytes from {packed:,} compressed ones",
                expected=f"at most {limit:,}",
                do="do not trust this file",
            )
        with self._refusing(f"array {name} cannot be opened", "a plain zip member"):
            return self._zip.open(info)

    def _read_header(self, name: str, stream: IO[bytes]) -> ArrayHeader:
        try:
            version = npy_format.read_magic(stream)
            if version not in _HEADER_READERS:
                raise ValueError(f"npy format version {version}")
            shape, fortran, dtype = _HEADER_READERS[version](stream)
        except Exception as error:  # numpy's parser of a hostile text raises what it likes
            why = (str(error) or repr(error)).splitlines()[0][:200]
            got = f"array {name} has an unreadable header ({why})"
            raise self._broken(got, expected="a plain npy array", do=_SAVE_AGAIN) from error
        if dtype.hasobject:
            raise self._broken(
                f"array {name} holds pickled Python objects",
                expected="plain numbers (pickles can run code, so they are never opened)",
                do="save it as a numeric array",
            )
        if any(extent < 0 for extent in shape):
            raise self._broken(f"array {name} has shape {shape}", expected="no negative extent")
        if any(extent > sys.maxsize for extent in shape):
            raise self._broken(
                f"array {name} claims more entries than any memory has", expected="a plain npy array"
            )
        header = ArrayHeader(tuple(int(extent) for extent in shape), dtype, bool(fortran), stream.tell())
        claimed = header.size * dtype.itemsize
        actual = self._members[name].file_size - header.length
        if claimed != actual:
            raise self._broken(
                f"array {name} claims shape {header.shape} {dtype} = {claimed:,} bytes, but holds {actual:,}",
                expected="a header that agrees with the data behind it",
                do=_COPY_AGAIN,
            )
        return header

    @contextmanager
    def _refusing(self, got: str, expected: str) -> Iterator[None]:
        """Turn what zipfile and zlib raise into a `GraphFileError`."""
        try:
            yield
        except _UNREADABLE as error:
            raise self._broken(f"{got} ({error})", expected=expected, do=_COPY_AGAIN) from error

    def _broken(self, got: str, *, expected: str = "", do: str = "") -> GraphFileError:
        return GraphFileError(f"{self.path.name}: {got}", expected=expected, do=do)


def _ahead(blocks: Generator[NDArray[Any], None, None]) -> Generator[NDArray[Any], None, None]:
    """Yield the same blocks, of which a thread prepares the next `_AHEAD`."""
    with closing(blocks), ThreadPoolExecutor(1, "npz-reader") as pool:
        try:
            ready = deque(pool.submit(next, blocks, None) for _ in range(_AHEAD))
            while (block := ready.popleft().result()) is not None:
                ready.append(pool.submit(next, blocks, None))
                yield block
        finally:
            pool.shutdown(cancel_futures=True)


def _fill(stream: IO[bytes], view: memoryview) -> None:
    """Fill ``view`` from the stream; raise EOFError if it ends early."""
    assert isinstance(stream, io.BufferedIOBase)
    at = 0
    while at < len(view):
        got = stream.readinto(view[at : at + _BLOCK_BYTES])  # a zip member copies all that is asked for at once
        if not got:
            raise EOFError(f"{len(view) - at:,} bytes are missing")
        at += got
