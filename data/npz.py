"""Reader for untrusted npz archives: never unpickles, checks sizes before it allocates.

`numpy.load` takes memory for the whole array before it sees the bytes and, for a layout file,
holds gigabytes at once. `NpzReader` checks each header against the bytes behind it first, and can
hand an array out in blocks of rows straight from the zip stream.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import math
import queue
import stat
import sys
import threading
import zipfile
import zlib
from collections.abc import Generator
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
_METHODS = {zipfile.ZIP_STORED: "stored", zipfile.ZIP_DEFLATED: "deflated"}
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
    """A validated ``.npy`` header."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    fortran_order: bool

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
            raise GraphFileError(
                f"{path.name} cannot be opened ({error})",
                expected="a whole npz (zip) archive",
                do="copy or download the file again",
            ) from error
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
        blocks = list(self._blocks(name, rows=None))
        return blocks[0]

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
            yield from _ahead(self._blocks(name, rows, buffers=_AHEAD + 3))

    def _blocks(self, name: str, rows: int | None, buffers: int = 1) -> Generator[NDArray[Any], None, None]:
        try:
            with self._open(name) as stream:
                header = self._read_header(name, stream)
                total = header.shape[0] if header.shape else 1
                rows = total if rows is None else min(rows, total)
                inner = header.shape[1:]
                row_bytes = header.dtype.itemsize * math.prod(inner)
                ring = [bytearray(rows * row_bytes) for _ in range(buffers)]
                done = 0
                for turn in itertools.count():
                    count = min(rows, total - done)
                    view = memoryview(ring[turn % buffers])[: count * row_bytes]
                    _fill(stream, view)
                    block = np.frombuffer(view, dtype=header.dtype)
                    if header.fortran_order:
                        yield block.reshape(header.shape, order="F")
                    else:
                        yield block.reshape((count, *inner) if header.shape else ())
                    done += count
                    if done >= total:
                        break
                if stream.read(1):  # also makes zipfile compare the checksum of the last bytes
                    raise ValueError("bytes left over after the array")
        except _UNREADABLE as error:
            raise self._broken(
                f"array {name} is damaged ({error})",
                expected="a whole array",
                do="copy or download the file again",
            ) from error

    def _open(self, name: str) -> IO[bytes]:
        info = self._members.get(name)
        if info is None:
            raise self._broken(
                f"array {name} is missing (found {', '.join(sorted(self._members)) or 'none'})",
                expected=f"an array called {name}",
                do="write the file with all arrays of the TpuGraphs format",
            )
        if info.compress_type not in _METHODS:
            raise self._broken(
                f"array {name} is compressed by zip method {info.compress_type}",
                expected="stored or deflated",
                do="save it with numpy.savez_compressed",
            )
        packed = min(info.compress_size, self._bytes)  # the directory may claim anything
        limit = packed * _MAX_DEFLATE_RATIO if info.compress_type == zipfile.ZIP_DEFLATED else packed
        if info.file_size > limit:
            raise self._broken(
                f"array {name} claims {info.file_size:,} bytes from {packed:,} compressed ones",
                expected=f"at most {limit:,}",
                do="do not trust this file",
            )
        try:
            return self._zip.open(info)
        except _UNREADABLE as error:
            raise self._broken(
                f"array {name} cannot be opened ({error})",
                expected="a plain zip member",
                do="copy or download the file again",
            ) from error

    def _read_header(self, name: str, stream: IO[bytes]) -> ArrayHeader:
        try:
            version = npy_format.read_magic(stream)
            if version == (1, 0):
                shape, fortran, dtype = npy_format.read_array_header_1_0(stream)
            elif version == (2, 0):
                shape, fortran, dtype = npy_format.read_array_header_2_0(stream)
            else:
                raise ValueError(f"npy format version {version}")
        except Exception as error:  # numpy's parser of a hostile text raises what it likes
            why = (str(error) or repr(error)).splitlines()[0][:200]
            raise self._broken(
                f"array {name} has an unreadable header ({why})",
                expected="a plain npy array",
                do="save it with numpy.savez_compressed",
            ) from error
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
        header = ArrayHeader(tuple(int(extent) for extent in shape), dtype, bool(fortran))
        claimed = header.size * dtype.itemsize
        actual = self._members[name].file_size - stream.tell()
        if claimed != actual:
            raise self._broken(
                f"array {name} claims shape {header.shape} {dtype} = {claimed:,} bytes, but holds {actual:,}",
                expected="a header that agrees with the data behind it",
                do="copy or download the file again",
            )
        return header

    def _broken(self, got: str, *, expected: str = "", do: str = "") -> GraphFileError:
        return GraphFileError(f"{self.path.name}: {got}", expected=expected, do=do)


def _ahead(blocks: Generator[NDArray[Any], None, None]) -> Generator[NDArray[Any], None, None]:
    """Yield the same blocks, prefetched by a thread that keeps `_AHEAD` of them ready.

    At any time one block is with the caller, one with the thread, and one may be waiting for a free place.
    """
    ready: queue.Queue[NDArray[Any] | BaseException | None] = queue.Queue(_AHEAD)
    stopped = threading.Event()

    def put(item: NDArray[Any] | BaseException | None) -> bool:
        while not stopped.is_set():
            with contextlib.suppress(queue.Full):
                ready.put(item, timeout=0.1)
                return True
        return False

    def make() -> None:
        try:
            for block in blocks:
                if not put(block):
                    return
            put(None)
        except BaseException as error:  # raised again where the blocks are used
            put(error)

    thread = threading.Thread(target=make, name="npz-reader", daemon=True)
    thread.start()
    try:
        while (item := ready.get()) is not None:
            if isinstance(item, BaseException):
                raise item
            yield item
    finally:
        stopped.set()
        thread.join()
        blocks.close()


def _fill(stream: IO[bytes], view: memoryview) -> None:
    """Fill ``view`` from the stream; raise EOFError if it ends early."""
    assert isinstance(stream, io.BufferedIOBase)
    at = 0
    while at < len(view):
        got = stream.readinto(view[at : at + _BLOCK_BYTES])  # a zip member copies all that is asked for at once
        if not got:
            raise EOFError(f"{len(view) - at:,} bytes are missing")
        at += got
