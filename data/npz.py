"""Reader for untrusted npz archives: never unpickles, checks sizes first, streams large arrays."""

from __future__ import annotations

import math
import stat
import zipfile
import zlib
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Self

import numpy as np
from numpy.lib import format as npy_format
from numpy.typing import NDArray

from xlarank.data.errors import GraphFileError

#: Maximum expansion of a byte by deflate (zlib's technical notes).
_MAX_DEFLATE_RATIO = 1032
#: Approximate size of a block, which fits the processor's cache.
_BLOCK_BYTES = 1 << 20
_COPY_AGAIN = "copy or download the file again"
_SAVE_AGAIN = "save it with numpy.savez_compressed"
#: RuntimeError: encrypted members; its subclass NotImplementedError: features of zip that zipfile
#: lacks.
_UNREADABLE = (zipfile.BadZipFile, zlib.error, EOFError, OSError, ValueError, RuntimeError)


class NpzReader:
    """An open npz archive with the arrays ``names``.

    Raises `GraphFileError` unless the file is a zip archive; its methods raise it for a missing,
    non-numeric or damaged array. Their messages omit the file name, which
    `xlarank.data.errors.naming` adds.
    """

    def __init__(self, path: Path) -> None:
        with _refusing(f"{path.name} cannot be opened", "a complete npz (zip) archive"):
            try:  # Path.exists of Python 3.14 hides missing permissions
                status = path.stat()
            except (FileNotFoundError, NotADirectoryError) as error:
                got = f"{path} does not exist"
                raise GraphFileError(got, expected="an npz file", do="check the path") from error
            if not stat.S_ISREG(status.st_mode):
                raise OSError("it is not a regular file")  # opening a named pipe would wait forever
            self._bytes = status.st_size
            self._zip = zipfile.ZipFile(path)
        self._headers: dict[str, NDArray[Any]] = {}
        arrays = (info for info in self._zip.infolist() if info.filename.endswith(".npy"))
        self._members = {info.filename.removesuffix(".npy"): info for info in arrays}
        self.names = frozenset(self._members)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._zip.close()

    def header(self, name: str) -> NDArray[Any]:
        """Return zeros of the shape and type of an array, which take no memory."""
        if name not in self._headers:
            with self._open(name) as stream:
                self._headers[name], _ = self._read_header(name, stream)
        return self._headers[name]

    def read(self, name: str) -> NDArray[Any]:
        """Read one whole array into memory."""
        self.header(name)  # checks the size before memory is allocated
        with _refusing(f"array {name} is damaged", "a complete array"), self._open(name) as stream:
            return np.asarray(npy_format.read_array(stream, allow_pickle=False))

    def stream(self, name: str) -> Generator[NDArray[Any], None, None]:
        """Yield an array in blocks of rows, about 1 MB each."""
        with _refusing(f"array {name} is damaged", "a complete array"), self._open(name) as stream:
            header, fortran_order = self._read_header(name, stream)
            if fortran_order and header.ndim > 1:
                expected = "C order, so that it can be read one configuration after the other"
                do = "save it again through numpy.ascontiguousarray"
                got = f"array {name} is stored in Fortran order"
                raise GraphFileError(got, expected=expected, do=do)
            if not header.size:
                yield header
                return
            row_bytes = math.prod(header.shape[1:]) * header.itemsize
            block_bytes = max(1, _BLOCK_BYTES // row_bytes) * row_bytes
            while content := stream.read(block_bytes):
                yield np.frombuffer(content, header.dtype).reshape(-1, *header.shape[1:])

    def _open(self, name: str) -> IO[bytes]:
        if (info := self._members.get(name)) is None:
            got = f"array {name} is missing (found {', '.join(sorted(self._members)) or 'none'})"
            do = "write the file with all arrays of the TpuGraphs format"
            raise GraphFileError(got, expected=f"an array called {name}", do=do)
        if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            got = f"array {name} is compressed by zip method {info.compress_type}"
            raise GraphFileError(got, expected="stored or deflated", do=_SAVE_AGAIN)
        packed = min(info.compress_size, self._bytes)  # the archive's directory may claim anything
        deflated = info.compress_type == zipfile.ZIP_DEFLATED
        limit = packed * _MAX_DEFLATE_RATIO if deflated else packed
        if info.file_size > limit:
            got = f"array {name} claims {info.file_size:,} bytes from {packed:,} compressed ones"
            raise GraphFileError(got, expected=f"at most {limit:,}", do="do not trust this file")
        with _refusing(f"array {name} cannot be opened", "a plain zip member"):
            return self._zip.open(info)

    def _read_header(self, name: str, stream: IO[bytes]) -> tuple[NDArray[Any], bool]:
        """Return zeros of the shape and type of an array, and whether it is in Fortran order."""
        try:
            version = npy_format.read_magic(stream)
            if version != (1, 0):  # others are for field names, which graphs lack
                raise ValueError(f"npy format version {version}")
            shape, fortran_order, dtype = npy_format.read_array_header_1_0(stream)
        except Exception as error:  # numpy's parser may raise any error on hostile text
            reason = (str(error) or repr(error)).splitlines()[0][:200]
            got = f"array {name} has an unreadable header ({reason})"
            raise GraphFileError(got, expected="a plain npy array", do=_SAVE_AGAIN) from error
        if dtype.hasobject:
            expected = "plain numbers (pickles can run code, so they are never opened)"
            got = f"array {name} holds pickled Python objects"
            do = "save it as a numeric array"
            raise GraphFileError(got, expected=expected, do=do)
        try:  # numpy limits the dimensions and their product, even if one of them is 0
            header = np.broadcast_to(np.zeros((), dtype), shape)
            if not dtype.itemsize:
                raise ValueError("values of no width")
        except (TypeError, ValueError) as error:
            got = f"array {name} has shape {str(shape)[:80]}, which no array has ({error})"
            raise GraphFileError(got, expected="a plain npy array", do=_SAVE_AGAIN) from error
        actual = self._members[name].file_size - stream.tell()
        if header.nbytes != actual:
            got = f"array {name} claims shape {shape} {dtype} = {header.nbytes:,} bytes"
            got += f", but holds {actual:,}"
            expected = "a header that agrees with the data behind it"
            raise GraphFileError(got, expected=expected, do=_COPY_AGAIN)
        return header, bool(fortran_order)


@contextmanager
def _refusing(got: str, expected: str) -> Iterator[None]:
    try:
        yield
    except _UNREADABLE as error:
        raise GraphFileError(f"{got} ({error})", expected=expected, do=_COPY_AGAIN) from error
