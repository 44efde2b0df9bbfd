"""Archives that are broken, hostile or merely unusual, below the level of graphs."""

import io
import os
import struct
import tracemalloc
import zipfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from tests.graphs import layout_arrays, save_npz, tile_arrays
from xlarank.data import npz
from xlarank.data.errors import GraphFileError
from xlarank.data.graph import read_graph
from xlarank.data.npz import NpzReader

#: A reader that believes a lie of gigabytes must be caught long before the machine suffers.
MODEST = 8 << 20
STORED = zipfile.ZIP_STORED
DEFLATED = zipfile.ZIP_DEFLATED
LZMA = zipfile.ZIP_LZMA


def npy(
    shape: object, body: bytes = b"", descr: str = "<f4", version: int = 1, header: bytes = b""
) -> bytes:
    """Return an npy member with this shape and type, or with any other header."""
    text = f"{{'descr': {descr!r}, 'fortran_order': False, 'shape': {shape}, }}\n"
    header = header or text.encode()
    size = struct.pack("<H" if version == 1 else "<I", len(header))
    return b"\x93NUMPY" + bytes((version, 0)) + size + header + body


def npy_of(array: np.ndarray, version: tuple[int, int] | None = None) -> bytes:
    stream = io.BytesIO()
    np.lib.format.write_array(stream, array, version, allow_pickle=True)
    return stream.getvalue()


def archive_of(
    members: Mapping[str, Any], method: int = DEFLATED, lie: Mapping[str, int] | None = None
) -> bytes:
    """Return a zip file; ``lie`` sets fields of the last member in its directory."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", method) as archive:
        for name, content in members.items():
            if isinstance(content, np.ndarray):
                archive.writestr(f"{name}.npy", npy_of(content))
            else:
                archive.writestr(name, content)
        for field, value in (lie or {}).items():
            setattr(archive.infolist()[-1], field, value)
    return stream.getvalue()


def with_member(name: str, content: bytes | None, method: int = DEFLATED, **lie: int) -> bytes:
    """Return the valid layout file with other content or other fields for a member."""
    arrays = layout_arrays()
    valid = npy_of(arrays.pop(name))
    return archive_of({**arrays, f"{name}.npy": valid if content is None else content}, method, lie)


def flipped(raw: bytes, at: int, mask: int = 0xFF, count: int = 1) -> bytes:
    return raw[:at] + bytes(byte ^ mask for byte in raw[at : at + count]) + raw[at + count :]


def data_span(raw: bytes, array: str) -> tuple[int, int]:
    """Return start and end of the (compressed) bytes of a member in a file of `archive_of`."""
    with zipfile.ZipFile(io.BytesIO(raw)) as archive:
        info = archive.getinfo(f"{array}.npy")
    start = info.header_offset + 30 + len(info.filename)
    return start, start + info.compress_size


def measured(call: Callable[[], Any]) -> tuple[Any, int]:
    tracemalloc.start()
    try:
        return call(), tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def refusal(path: Path) -> str:
    with pytest.raises(GraphFileError) as caught:
        read_graph(path)
    return str(caught.value)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "alex.npz"


def large_arrays() -> dict[str, np.ndarray]:
    """Return a valid tile graph with incompressible arrays larger than the buffers of zipfile.

    zipfile checks a small member when its first byte is read, so damage reaches the parser in large
    ones only.
    """
    rng = np.random.default_rng(0)
    runtime, normalizers = rng.integers(1, 2**40, (2, 600))
    times = {"config_runtime": runtime, "config_runtime_normalizers": normalizers}
    feat = rng.integers(0, 2**20, (600, 24)).astype(np.float32)
    return {**tile_arrays(), **times, "config_feat": feat}


GARBAGE_HEADERS = [
    b"garbage" * 20,  # no magic
    b"\x93NUMPY\x01\x00" + struct.pack("<H", 500) + b"{'descr'",  # header cut short
    npy((), header=b"__import__('os').getcwd()\n"),  # code
    # numpy raises TokenError, RecursionError or nothing here, unlike elsewhere
    npy((), header=b"{'descr': '<f4', 'fortran_order': False, 'shape': (5, 140\n"),  # open bracket
    npy(f"({'9' * 4200}, {'9' * 4200})"),  # product too long to print
    # no bytes, as claimed, but no array of numpy, or an array that cannot be divided into values
    npy((0, 2**62)),  # no rows of any width
    npy((1,) * 65, bytes(4)),  # many dimensions
    npy((5, 140), descr="|V0"),  # no width
]


def hostile() -> Iterator[tuple[bytes, str]]:
    """Yield contents of files that must be refused, and words of the message."""
    valid = archive_of(layout_arrays())
    stored = archive_of(layout_arrays(), STORED)
    cut = valid[: len(valid) // 2], valid[:-1]
    for content in (b"", *cut, b"not a zip" * 100, b"PK\x05\x06" + bytes(17)):
        yield content, "alex.npz cannot be opened"
    yield archive_of({"readme.txt": b"hello"}), "node_feat is missing (found none)"
    large = archive_of(large_arrays())
    for key, share in (("config_feat", 0.33), ("config_runtime", 0.9)):
        start, end = data_span(large, key)  # damage breaks the deflate stream, or the checksum
        damaged = flipped(large, start + int((end - start) * share), count=300)
        yield damaged, f"array {key} is damaged"
    # In a stored array only the checksum shows the flipped bit: its last byte remains a legal
    # number. The configurations are checked while they are streamed, and the last block only with
    # its checksum.
    for key in ("node_feat", "node_config_feat"):
        yield flipped(stored, data_span(stored, key)[1] - 8, mask=1), key

    feat = layout_arrays()["node_feat"].tobytes()
    short = npy((5, 140), bytes(1000))
    size = len(npy_of(layout_arrays()["config_runtime"]))
    method = "compressed by zip method"
    for name, content, lie, words in (
        ("config_runtime", None, {"CRC": 0}, "config_runtime has an unreadable header (Bad CRC"),
        ("node_feat", None, {"flag_bits": 1}, "array node_feat cannot be opened"),  # encrypted
        ("node_opcode", None, {"compress_type": 99}, f"array node_opcode is {method} 99"),
        ("config_runtime", None, {"file_size": size + 8}, "array config_runtime"),
        # outside the file
        ("node_feat", None, {"header_offset": 2**31}, "array node_feat cannot be opened"),
        # more than a deflate stream this short can hold
        ("node_feat", None, {"file_size": 2**32 - 2}, f"array node_feat claims {2**32 - 2:,}"),
        ("node_feat", None, {"method": LZMA}, f"{method} 14; expected stored or deflated"),
        ("node_feat", short, {"file_size": len(short) + 1800}, "array node_feat is damaged"),
        ("node_feat", npy((10**9, 140), feat), {}, "claims shape (1000000000, 140) "),
        ("node_feat", npy((5, 140), feat[:-1]), {}, "float32 = 2,800 bytes, but holds 2,799"),
        # node_splits may have any shape that an array can have
        ("node_splits", npy((2**62, 0), descr="<i8"), {}, f"shape {(2**62, 0)}, which no array"),
        # the product is right, so the size is, too
        ("node_feat", npy((-5, -140), feat), {}, "has shape (-5, -140)"),
        *(("node_feat", content, {}, "array node_feat") for content in GARBAGE_HEADERS),
    ):
        yield with_member(name, content, **lie), words


@pytest.mark.parametrize(
    ("content", "words"), [*hostile()], ids=lambda part: part if isinstance(part, str) else ""
)
def test_a_hostile_file_is_refused_by_name_in_a_line_and_takes_no_memory(path, content, words):
    path.write_bytes(content)
    message, peak = measured(lambda: refusal(path))
    assert path.name in message and words in message and "\n" not in message and peak < MODEST


def test_special_files_are_refused_and_missing_arrays_named(path, graph_file):
    path.write_bytes(archive_of(layout_arrays()))
    assert read_graph(path).nodes == 5
    os.mkfifo(path.with_name("pipe"))
    path.with_name("loop").symlink_to("loop")
    for name, words in (
        ("loop", "symbolic links"),
        *((".", "cannot be opened"), ("pipe", "not a regular file"), ("x" * 300, "x" * 300)),
        *((name, "does not exist") for name in ("alex.npz/b.npz", "absent.npz")),
    ):
        assert words in refusal(path.parent / name)
    # both sizes are wrong, and agree with the header
    for method, rows in ((STORED, 200), (STORED, 200_000), (DEFLATED, 200_000)):
        lie = dict.fromkeys(("file_size", "compress_size"), 560 * rows + 128)
        path.write_bytes(archive_of({"a.npy": npy((rows, 140), bytes(1000))}, method, lie))
        refused = pytest.raises(GraphFileError, match=r"array a claims .* from")
        with NpzReader(path) as archive, refused:
            archive.read("a")
    path.write_bytes(archive_of({"a": np.arange(3), "b.txt": b"", "c": b""}))
    with NpzReader(path) as archive:
        assert archive.names == {"a"} and archive.read("a").tolist() == [0, 1, 2]
    for kind, arrays in (("layout", layout_arrays()), ("tile", tile_arrays())):
        for key in arrays:
            short = {name: array for name, array in arrays.items() if name != key}
            said = rf"graph\.npz: array {key} is missing \(found [a-z_, ]+\)"
            with pytest.raises(GraphFileError, match=said):
                read_graph(graph_file(short), kind)


class Bomb:
    """Object that makes a folder when it is unpickled."""

    def __init__(self, target: Path) -> None:
        self.target = str(target)

    def __reduce__(self):
        return os.mkdir, (self.target,)


def test_pickles_are_never_opened(path, graph_file):
    boom = path.with_name("boom")
    bomb = np.array([Bomb(boom)], object)
    with np.load(save_npz(path, {"a": bomb}), allow_pickle=True) as archive:
        archive["a"]
    boom.rmdir()  # the bomb works
    cases = {}
    for key, array in layout_arrays().items():
        content = npy_of(np.full(array.shape, Bomb(boom), object))
        if key == "node_feat":
            content = npy_of(np.array([(1.0, Bomb(boom))], [("a", "f4"), ("b", object)]))
        cases[key] = content, f"array {key} holds pickled Python objects"
    pickled = npy_of(np.array([Bomb(boom)] * 20, object))[128:]  # after a header of plain bytes
    cases["node_splits"] = npy((len(pickled),), pickled, "|u1"), "node_splits"
    for key, (content, words) in cases.items():
        path.write_bytes(with_member(key, content))
        assert words in refusal(path)
    assert read_graph(graph_file({**layout_arrays(), "notes": bomb})).nodes == 5
    assert not boom.exists()


@given(
    array=hnp.arrays(
        st.sampled_from(["<f4", ">f4", "<f8", "|i1", "|u1", "<i8", ">i4"]),
        hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=7),
        elements=st.integers(0, 100),
    ),
    fortran=st.booleans(),
    compressed=st.booleans(),
    block_bytes=st.integers(1, 200),
)
def test_read_and_stream_return_the_saved_array(next_path, array, fortran, compressed, block_bytes):
    array = np.asfortranarray(array) if fortran else array
    path = save_npz(next_path(), {"a": array}, compressed=compressed)
    with pytest.MonkeyPatch.context() as patch, NpzReader(path) as archive:
        patch.setattr(npz, "_BLOCK_BYTES", block_bytes)
        header = archive.header("a")
        got = archive.read("a")
        assert archive.names == {"a"} and header.shape == got.shape == array.shape
        assert got.dtype == array.dtype
        assert np.array_equal(got, array)
        if array.ndim > 1 and not array.flags.c_contiguous:
            with pytest.raises(GraphFileError, match="ascontiguousarray"):
                next(archive.stream("a"))
        elif array.ndim:
            blocks = list(archive.stream("a"))
            assert np.array_equal(np.concatenate(blocks), array)
            most = max(1, block_bytes // max(1, array[:1].nbytes))
            assert not array.size or max(map(len, blocks)) <= most


def test_reading_takes_little_more_than_the_array_and_streaming_one_block(path):
    array = np.zeros((20_000, 140), np.float32)  # 11 MB
    for compressed in (True, False):
        with NpzReader(save_npz(path, {"a": array}, compressed=compressed)) as archive:
            rows, peak = measured(lambda archive=archive: sum(map(len, archive.stream("a"))))
            assert rows == 20_000 and peak < MODEST
            got, peak = measured(lambda archive=archive: archive.read("a"))
        assert np.array_equal(got, array) and peak < array.nbytes + (5 << 20)
