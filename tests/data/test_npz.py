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
STORED, DEFLATED = zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED


def npy(header: bytes, body: bytes = b"", version: int = 1) -> bytes:
    """An npy member with any header text, however wrong."""
    size = struct.pack("<H" if version == 1 else "<I", len(header))
    return b"\x93NUMPY" + bytes((version, 0)) + size + header + body


def npy_header(shape: object, descr: object = "<f4") -> bytes:
    return f"{{'descr': {descr!r}, 'fortran_order': False, 'shape': {shape}, }}\n".encode()


def npy_of(array: np.ndarray, version: tuple[int, int] | None = None) -> bytes:
    stream = io.BytesIO()
    np.lib.format.write_array(stream, array, version, allow_pickle=True)
    return stream.getvalue()


def archive_of(members: Mapping[str, Any], method: int = DEFLATED, lie: Mapping[str, int] | None = None) -> bytes:
    """A zip file of members by name: bytes, or arrays; its directory tells lies about the last one."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", method) as archive:
        for name, content in members.items():
            array = isinstance(content, np.ndarray)
            archive.writestr(f"{name}.npy" if array else name, npy_of(content) if array else content)
        for field, value in (lie or {}).items():
            setattr(archive.infolist()[-1], field, value)
    return stream.getvalue()


def with_member(name: str, content: bytes | None, method: int = DEFLATED, **lie: int) -> bytes:
    """The valid layout file with other bytes for one member, or with lies about it."""
    arrays = layout_arrays()
    own = npy_of(arrays.pop(name))
    return archive_of({**arrays, f"{name}.npy": own if content is None else content}, method, lie)


def flipped(raw: bytes, at: int, mask: int = 0xFF, count: int = 1) -> bytes:
    return raw[:at] + bytes(byte ^ mask for byte in raw[at : at + count]) + raw[at + count :]


def data_span(raw: bytes, array: str) -> tuple[int, int]:
    """Where the (compressed) bytes of a member lie in a file of `archive_of`."""
    with zipfile.ZipFile(io.BytesIO(raw)) as archive:
        info = archive.getinfo(f"{array}.npy")
    start = info.header_offset + 30 + len(info.filename)
    return start, start + info.compress_size


def measured(call: Callable[[], Any]) -> tuple[Any, int]:
    """The result of a call and the peak of the memory it took."""
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
    """A valid tile graph whose arrays outgrow the buffers of zipfile, with bytes that do not compress.

    zipfile compares the checksum of a small member as soon as its first byte is read; only in a large one
    does a damaged header or a damaged middle get past it.
    """
    rng = np.random.default_rng(0)
    times = {key: rng.integers(1, 2**40, 600) for key in ("config_runtime", "config_runtime_normalizers")}
    return {**tile_arrays(), **times, "config_feat": rng.integers(0, 2**20, (600, 24)).astype(np.float32)}


GARBAGE_HEADERS = {
    "no magic": b"garbage" * 20,
    "header cut short": b"\x93NUMPY\x01\x00" + struct.pack("<H", 500) + b"{'descr'",
    "version 3": npy(npy_header((5, 140)), bytes(2800), 3),
    "code": npy(b"__import__('os').getcwd()\n"),
    # What numpy raises here is TokenError, RecursionError or nothing, not one of its usual errors.
    "open bracket": npy(b"{'descr': '<f4', 'fortran_order': False, 'shape': (5, 140\n"),
    "deep brackets": npy(b"(" * 5000 + b"\n"),
    "product too long to print": npy(npy_header(f"({'9' * 4200}, {'9' * 4200})")),
    # No bytes, as claimed, but no array of numpy either, or one that cannot be divided into values.
    "no rows of any width": npy(npy_header((0, 2**62))),
    "truth for a number": npy(npy_header((True, 140)), bytes(560)),
    "many dimensions": npy(npy_header((1,) * 65), bytes(4)),
    "no width": npy(npy_header((5, 140), "|V0")),
}


def hostile() -> Iterator[tuple[str, bytes, str]]:
    """Name and content of every file that must be refused, and words of the message."""
    valid, feat = archive_of(layout_arrays()), layout_arrays()["node_feat"]
    for content in (b"", valid[: len(valid) // 2], valid[:-1], b"not a zip" * 100, b"PK\x05\x06" + bytes(17)):
        yield f"{content[-8:]!r}", content, "alex.npz cannot be opened"
    yield "a lost piece", valid[:200] + valid[400:], ""  # the directory at the end is whole
    yield "no arrays", archive_of({"readme.txt": b"hello"}), "node_feat is missing (found none)"
    large = archive_of(large_arrays())
    for key, share in (("config_feat", 0.33), ("config_runtime", 0.9)):
        start, end = data_span(large, key)
        damaged = flipped(large, start + int((end - start) * share), count=300)  # no deflate, or another checksum
        yield f"damage at {share} of {key}", damaged, f"array {key} is damaged"
    # In a stored array nothing but the checksum can see the flipped bit: its last byte stays a legal number.
    # The configurations are checked while they are streamed, and the last block only with its checksum.
    stored = archive_of(layout_arrays(), STORED)
    for key in ("node_feat", "node_config_feat"):
        yield f"a bit of stored {key}", flipped(stored, data_span(stored, key)[1] - 8, mask=1), key

    size = len(npy_of(layout_arrays()["config_runtime"]))
    for name, lie, words in (
        ("config_runtime", {"CRC": 0}, "array config_runtime has an unreadable header (Bad CRC"),
        ("node_feat", {"flag_bits": 1}, "array node_feat cannot be opened"),  # encrypted
        ("node_opcode", {"compress_type": 99}, "array node_opcode is compressed by zip method 99"),
        ("config_runtime", {"file_size": size - 8}, "array config_runtime"),
        ("config_runtime", {"file_size": size + 8}, "array config_runtime"),
        ("node_feat", {"header_offset": 2**31}, "array node_feat cannot be opened"),  # outside the file
        # more than a deflate stream this short can hold
        ("node_feat", {"file_size": 2**32 - 2}, f"array node_feat claims {2**32 - 2:,}"),
    ):
        yield f"{name} {lie}", with_member(name, None, **lie), words
    lzma = with_member("node_feat", npy_of(feat), zipfile.ZIP_LZMA)
    yield "lzma", lzma, "compressed by zip method 14; expected stored or deflated"
    short = npy(npy_header((5, 140)), bytes(1000))
    yield "ends early", with_member("node_feat", short, file_size=len(short) + 1800), "array node_feat is damaged"

    for name, text in GARBAGE_HEADERS.items():
        yield name, with_member("node_feat", text), "array node_feat"
    body = feat.tobytes()
    for name, shape, descr, content, words in (
        ("node_feat", (10**9, 140), "<f4", body, "claims shape (1000000000, 140) "),
        ("node_config_feat", (6, 10**9, 18), "<f4", body, "claims shape "),
        ("node_opcode", (2**62,), "|u1", body, "claims shape "),
        ("node_feat", (5, 140), "<f4", body[:-1], "float32 = 2,800 bytes, but holds 2,799"),
        ("node_feat", (5, 140), "<f4", body + bytes(1), "float32 = 2,800 bytes, but holds 2,801"),
        # node_splits may have any shape that an array can have
        ("node_splits", (2**62, 0), "<i8", b"", f"shape {(2**62, 0)}, which no array has"),
        # the right product, so the size alone does not tell
        ("node_feat", (-5, -140), "<f4", body, "has shape (-5, -140)"),
    ):
        yield f"{name} {shape} {words}", with_member(name, npy(npy_header(shape, descr), content)), words


HOSTILE = {name: (content, words) for name, content, words in hostile()}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_file_is_refused_by_name_in_a_line_and_takes_no_memory(path, name):
    content, words = HOSTILE[name]
    path.write_bytes(content)
    message, peak = measured(lambda: refusal(path))
    assert path.name in message and words in message and "\n" not in message and peak < MODEST


def test_what_is_no_file_is_refused_and_a_missing_array_named(path, graph_file):
    path.write_bytes(archive_of(layout_arrays()))
    assert read_graph(path).nodes == 5
    os.mkfifo(path.with_name("pipe"))
    for other, words in (
        *((path.parent, "cannot be opened"), (path.with_name("pipe"), "not a regular file")),
        *((path / "b.npz", "does not exist"), (path.with_name("absent.npz"), "does not exist")),
        (path.with_name("x" * 300), "x" * 300),
    ):
        assert words in refusal(other)
    for method in (STORED, DEFLATED):  # both sizes are a lie, which agrees with the header
        content, size = npy(npy_header((200_000, 140)), bytes(1000)), 112_000_128
        path.write_bytes(archive_of({"a.npy": content}, method, {"file_size": size, "compress_size": size}))
        with NpzReader(path) as archive, pytest.raises(GraphFileError, match=r"array a claims .* from"):
            archive.read("a")
    path.write_bytes(archive_of({"a.npy": npy_of(np.arange(3), (2, 0)), "b.txt": b"", "c": b""}))
    with NpzReader(path) as archive:  # of either version
        assert archive.names == {"a"} and archive.read("a").tolist() == [0, 1, 2]
    for kind, arrays in (("layout", layout_arrays()), ("tile", tile_arrays())):
        for key in arrays:
            broken = graph_file({name: array for name, array in arrays.items() if name != key})
            with pytest.raises(GraphFileError, match=rf"graph\.npz: array {key} is missing \(found [a-z_, ]+\)"):
                read_graph(broken, kind)


class Bomb:
    """Unpickling makes a folder: proof that somebody did."""

    def __init__(self, target: Path) -> None:
        self.target = str(target)

    def __reduce__(self):
        return os.mkdir, (self.target,)


def test_pickles_are_never_opened(path, graph_file):
    boom = path.with_name("boom")
    with np.load(save_npz(path, {"a": np.array([Bomb(boom)], object)}), allow_pickle=True) as archive:
        archive["a"]
    boom.rmdir()  # without it the rest would prove nothing
    bombs = {key: np.full(array.shape, Bomb(boom), object) for key, array in layout_arrays().items()}
    bombs["node_feat"] = np.array([(1.0, Bomb(boom))], [("a", "f4"), ("b", object)])
    cases = {key: (npy_of(array), f"array {key} holds pickled Python objects") for key, array in bombs.items()}
    pickled = npy_of(np.array([Bomb(boom)] * 20, object))[128:]  # behind a header of plain bytes
    cases["node_splits"] = npy(npy_header((len(pickled),), "|u1"), pickled), "node_splits"
    for key, (content, words) in cases.items():
        path.write_bytes(with_member(key, content))
        assert words in refusal(path)
    assert read_graph(graph_file({**layout_arrays(), "notes": np.array([Bomb(boom)], object)})).nodes == 5
    assert not boom.exists()


def test_every_damaged_byte_of_a_file_is_refused_or_harmless(path, request):
    """Stored rather than compressed, so that each byte of the headers is met; all of them before a release.

    In the header of a large array the parser meets the damage before any checksum does.
    """
    arrays = large_arrays()
    raw = archive_of(arrays, STORED)
    starts = [data_span(raw, key)[0] for key in arrays]
    places = [*(at for start in starts for at in range(start - 40, start + 128)), *range(len(raw) - 600, len(raw))]
    places = places[:: 1 if request.config.option.exhaustive else 5]
    refused = 0
    for at in places:
        path.write_bytes(raw[:at] + bytes([b"('\0\xff"[at % 4]]) + raw[at + 1 :])
        try:
            graph = read_graph(path)
        except GraphFileError as error:
            refused += path.name in str(error)
            continue
        for name, key in (("opcode", "node_opcode"), ("runtime", "config_runtime"), ("config_feat",) * 2):
            assert np.array_equal(getattr(graph, name), arrays[key]), at
    assert len(places) * 0.5 < refused < len(places)


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
def test_read_and_stream_give_what_was_saved(next_path, array, fortran, compressed, block_bytes):
    array = np.asfortranarray(array) if fortran else array
    path = save_npz(next_path(), {"a": array}, compressed=compressed)
    with pytest.MonkeyPatch.context() as patch, NpzReader(path) as archive:
        patch.setattr(npz, "_BLOCK_BYTES", block_bytes)
        header, got = archive.header("a"), archive.read("a")
        assert (archive.names, header.shape, got.shape, got.dtype) == ({"a"}, *[array.shape] * 2, array.dtype)
        assert np.array_equal(got, array)
        if array.ndim > 1 and header.fortran_order:
            with pytest.raises(GraphFileError, match="ascontiguousarray"):
                next(archive.stream("a"))
        elif array.ndim:
            blocks = list(archive.stream("a"))
            assert np.array_equal(np.concatenate(blocks), array)
            row_bytes = max(1, array[:1].nbytes)
            assert not array.size or all(len(block) <= max(1, block_bytes // row_bytes) for block in blocks)


def test_reading_takes_little_more_than_the_array_and_streaming_one_block(path):
    array = np.zeros((20_000, 140), np.float32)  # 11 MB
    for compressed in (True, False):
        with NpzReader(save_npz(path, {"a": array}, compressed=compressed)) as archive:
            rows, peak = measured(lambda archive=archive: sum(len(block) for block in archive.stream("a")))
            assert rows == 20_000 and peak < MODEST
            got, peak = measured(lambda archive=archive: archive.read("a"))
        assert np.array_equal(got, array) and peak < array.nbytes + (5 << 20)
