"""Archives that are broken, hostile or merely unusual, below the level of graphs."""

from __future__ import annotations

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
from xlarank.data.schema import NODE_COLUMN

#: A reader that believes a lie of gigabytes must be caught long before the machine suffers.
MODEST = 8 << 20
STORED, DEFLATED = zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED
#: Places in the directory's record of a member.
FLAGS, METHOD, CHECKSUM, PACKED, UNPACKED, PLACE = 8, 10, 16, 20, 24, 42


def npy(header: bytes, body: bytes = b"", version: tuple[int, int] = (1, 0)) -> bytes:
    """An npy member with any header text, however wrong."""
    size = struct.pack("<H" if version == (1, 0) else "<I", len(header))
    return b"\x93NUMPY" + bytes(version) + size + header + body


def npy_header(shape: object, descr: object = "<f4") -> bytes:
    return f"{{'descr': {descr!r}, 'fortran_order': False, 'shape': {shape}, }}\n".encode()


def npy_of(array: np.ndarray, version: tuple[int, int] | None = None) -> bytes:
    stream = io.BytesIO()
    np.lib.format.write_array(stream, array, version, allow_pickle=True)
    return stream.getvalue()


def archive_of(members: Mapping[str, bytes], method: int = DEFLATED) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", method) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return stream.getvalue()


def with_member(name: str, content: bytes, method: int = DEFLATED) -> bytes:
    """The valid layout file with one member replaced by any bytes."""
    members = {f"{key}.npy": npy_of(array) for key, array in layout_arrays().items()}
    return archive_of({**members, f"{name}.npy": content}, method)


def lying(raw: bytes, member: str, *claims: tuple[int, str, int]) -> bytes:
    """The file with other values (place, format, value) in the directory's record of a member."""
    at = raw.rindex(f"{member}.npy".encode()) - 46
    assert raw[at : at + 4] == b"PK\x01\x02"
    changed = bytearray(raw)
    for place, form, value in claims:
        struct.pack_into(f"<{form}", changed, at + place, value)
    return bytes(changed)


def flipped(raw: bytes, at: int, mask: int = 0xFF, count: int = 1) -> bytes:
    return raw[:at] + bytes(byte ^ mask for byte in raw[at : at + count]) + raw[at + count :]


def data_span(raw: bytes, array: str) -> tuple[int, int]:
    """Where the (compressed) bytes of a member lie in the file."""
    with zipfile.ZipFile(io.BytesIO(raw)) as archive:
        info = archive.getinfo(f"{array}.npy")
    name, extra = struct.unpack("<HH", raw[info.header_offset + 26 : info.header_offset + 30])
    start = info.header_offset + 30 + name + extra
    return start, start + info.compress_size


def saved(arrays: Mapping[str, np.ndarray], method: int = DEFLATED) -> bytes:
    return archive_of({f"{key}.npy": npy_of(array) for key, array in arrays.items()}, method)


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
    arrays = tile_arrays()
    feat = np.tile(arrays["node_feat"], (40, 1))
    feat[:, NODE_COLUMN["slice_dims_start_sum"]] = rng.random(len(feat))
    return {
        "node_feat": feat,
        "node_opcode": np.tile(arrays["node_opcode"], 40),
        "edge_index": np.zeros((0, 2), np.int64),
        "config_feat": rng.integers(0, 2**20, (600, 24)).astype(np.float32),
        "config_runtime": rng.integers(1, 2**40, 600),
        "config_runtime_normalizers": rng.integers(1, 2**40, 600),
    }


# What is refused ----------------------------------------------------------------------------------------

GARBAGE_HEADERS = {
    "no magic": b"garbage" * 20,
    "empty member": b"",
    "header cut short": b"\x93NUMPY\x01\x00" + struct.pack("<H", 500) + b"{'descr'",
    "header of version 2 cut short": b"\x93NUMPY\x02\x00" + struct.pack("<I", 2**31),
    "version 3": npy(npy_header((5, 140)), bytes(2800), (3, 0)),
    "binary": npy(bytes(range(118))),
    "keys missing": npy(b"{'descr': '<f4'}\n"),
    "keys not hashable": npy(b"{[1]: '<f4', 'fortran_order': False, 'shape': (5, 140)}\n"),
    "shape of floats": npy(npy_header("(5.0, 140.0)")),
    "giant dtype": npy(npy_header((5, 140), "S99999999999")),
    "code": npy(b"__import__('os').getcwd()\n"),
    "longer than numpy trusts": npy(npy_header((5, 140)).rstrip() + b" " * 20_000 + b"\n"),
    # What numpy raises here is TokenError, RecursionError or nothing, not one of its usual errors.
    "open bracket": npy(b"{'descr': '<f4', 'fortran_order': False, 'shape': (5, 140\n"),
    "deep brackets": npy(b"(" * 5000 + b"\n"),
    "product too long to print": npy(npy_header(f"({'9' * 4200}, {'9' * 4200})")),
    # No bytes, as claimed, but no array of numpy either, or one that cannot be divided into values.
    "no rows of any width": npy(npy_header((0, 2**62))),
    "rows of no width": npy(npy_header((2**62, 0))),
    "many dimensions": npy(npy_header((1,) * 65), bytes(4)),
    **{f"type {descr}": npy(npy_header((5, 140), descr)) for descr in ("|V0", "|S0", "<U0")},
}


def hostile() -> Iterator[tuple[str, bytes, str]]:
    """Name and content of every file that must be refused, and words of the message."""
    valid, feat = saved(layout_arrays()), layout_arrays()["node_feat"]
    for share in (0, 0.1, 0.5, 0.999):
        yield f"{share} of a file", valid[: int(len(valid) * share)], "alex.npz cannot be opened"
    for content in (b"PK", b"not a zip at all" * 100, b"\x93NUMPY\x01\x00", b"PK\x05\x06" + bytes(17)):
        yield f"{content[:8]!r}", content, "alex.npz cannot be opened"
    yield "a lost piece", valid[:200] + valid[400:], ""  # the directory at the end is whole
    yield "no arrays", archive_of({"readme.txt": b"hello"}), "node_feat is missing (found none)"
    raw = saved(large_arrays())
    for key, share in (("config_feat", 0.33), ("config_feat", 0.9), ("config_runtime", 0.9)):
        start, end = data_span(raw, key)
        damaged = flipped(raw, start + int((end - start) * share), count=300)  # no deflate, or another checksum
        yield f"damage at {share} of {key}", damaged, f"array {key} is damaged"
    # In a stored array nothing but the checksum can see the flipped bit: its last byte stays a legal number.
    # The configurations are checked while they are streamed, and the last block only with its checksum.
    raw = saved(layout_arrays(), STORED)
    for key in ("node_feat", "config_runtime", "node_config_feat"):
        yield f"a bit of stored {key}", flipped(raw, data_span(raw, key)[1] - 8, mask=1), key

    with zipfile.ZipFile(io.BytesIO(valid)) as archive:
        size = archive.getinfo("config_runtime.npy").file_size
        other = archive.getinfo("node_opcode.npy").header_offset
    unopened = "array node_feat cannot be opened"
    for name, claim, words in (
        ("config_runtime", (CHECKSUM, "I", 0), "array config_runtime has an unreadable header (Bad CRC"),
        ("node_feat", (FLAGS, "H", 1), unopened),  # encrypted
        ("node_opcode", (METHOD, "H", 99), "array node_opcode is compressed by zip method 99"),
        ("config_runtime", (UNPACKED, "I", size - 8), "array config_runtime"),
        ("config_runtime", (UNPACKED, "I", size + 8), "array config_runtime"),
        ("node_feat", (PLACE, "I", 2**31), unopened),  # outside the file
        ("node_feat", (PLACE, "I", other), unopened),
        # more than a deflate stream this short can hold
        ("node_feat", (UNPACKED, "I", 2**32 - 2), f"array node_feat claims {2**32 - 2:,}"),
    ):
        yield f"{name} {claim}", lying(valid, name, claim), words
    lzma = with_member("node_feat", npy_of(feat), zipfile.ZIP_LZMA)
    yield "lzma", lzma, "compressed by zip method 14; expected stored or deflated"
    short = npy(npy_header((5, 140)), bytes(1000))
    raw = lying(with_member("node_feat", short), "node_feat", (UNPACKED, "I", len(short) + 1800))
    yield "ends early", raw, "array node_feat is damaged"
    for method in (STORED, DEFLATED):  # the compressed size is a lie too
        raw = with_member("node_feat", npy(npy_header((200_000, 140)), bytes(1000)), method)
        claims = ((PACKED, "I", 112_000_128), (UNPACKED, "I", 112_000_128))
        yield f"both sizes {method}", lying(raw, "node_feat", *claims), "node_feat"

    for name, text in GARBAGE_HEADERS.items():
        yield name, with_member("node_feat", text), "array node_feat"
    for name, shape, descr in (
        ("node_feat", (10**9, 140), "<f4"),
        ("config_runtime", (10**12,), "<i8"),
        ("node_config_feat", (6, 10**9, 18), "<f4"),
        ("node_opcode", (2**62,), "|u1"),
    ):
        raw = with_member(name, npy(npy_header(shape, descr), bytes(4000)))
        yield f"huge {name}", raw, f"array {name} claims shape {shape} "
    body = feat.tobytes()
    for part in (body[:-1], body + bytes(1), body + bytes(400)):
        raw = with_member("node_feat", npy(npy_header((5, 140)), part))
        yield f"{len(part)} bytes", raw, f"shape (5, 140) float32 = 2,800 bytes, but holds {len(part):,}"
    for shape in ((0, 2**62), (2**62, 0)):  # node_splits may have any shape that an array can have
        raw = with_member("node_splits", npy(npy_header(shape, "<i8")))
        yield f"splits {shape}", raw, f"array node_splits has shape {shape}, which no array has"
    # (-5, -140) has the right product, so the size alone does not tell.
    yield "negative", with_member("node_feat", npy(npy_header((-5, -140)), body)), "has shape (-5, -140)"


HOSTILE = {name: (content, words) for name, content, words in hostile()}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_file_is_refused_by_name_in_a_line_and_takes_no_memory(path, name):
    content, words = HOSTILE[name]
    path.write_bytes(content)
    message, peak = measured(lambda: refusal(path))
    assert path.name in message and words in message and "\n" not in message and peak < MODEST


def test_what_is_no_file_is_refused_and_a_missing_array_named(path, graph_file):
    path.write_bytes(saved(layout_arrays()))
    assert read_graph(path).nodes == 5
    for other, words in (
        (path.parent, "cannot be opened"),
        (path / "b.npz", "does not exist"),
        (path.with_name("absent.npz"), "does not exist"),
        (path.with_name("x" * 300), "x" * 300),
    ):
        assert words in refusal(other)
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
    save_npz(path, {"node_feat": np.array([Bomb(boom)], object)})
    with np.load(path, allow_pickle=True) as archive:
        archive["node_feat"]
    assert boom.exists(), "without this the rest would prove nothing"
    boom.rmdir()
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


@pytest.mark.parametrize("large", [False, True], ids=["small", "large"])
def test_every_damaged_byte_of_a_file_is_refused_or_harmless(path, request, large):
    """Stored rather than compressed, so that each byte of the headers is met; all of them before a release.

    In the header of a large array the parser meets the damage before any checksum does.
    """
    arrays = large_arrays() if large else tile_arrays()
    raw = save_npz(path, arrays, compressed=False).read_bytes()
    if large:
        start = data_span(raw, "config_feat")[0]
        changes = {at: b"('\0\xff"[at % 4] for at in range(start, start + 128, 3)}
    else:  # every byte of the zip records and npy headers, and some of the arrays themselves
        payload = np.zeros(len(raw), bool)
        for key, array in arrays.items():
            end = data_span(raw, key)[1]
            payload[end - array.nbytes : end] = True
        where = np.flatnonzero(~payload | (np.arange(len(payload)) % 31 == 0))
        other = np.random.default_rng(0).integers(1, 256, len(raw))
        every = 1 if request.config.option.exhaustive else 7
        changes = {at: raw[at] ^ int(other[at]) for at in where[::every]}
    refused = 0
    for at, byte in changes.items():
        path.write_bytes(raw[:at] + bytes([byte]) + raw[at + 1 :])
        try:
            graph = read_graph(path)
        except GraphFileError as error:
            refused += path.name in str(error)
            continue
        for name, key in (("node_feat",) * 2, ("opcode", "node_opcode"), ("config_feat",) * 2):
            assert np.array_equal(getattr(graph, name), arrays[key]), at
        assert np.array_equal(graph.runtime, arrays["config_runtime"]), at
    assert len(changes) * (0.8 if large else 0.5) < refused <= len(changes) - (not large)


# Reading what is right ----------------------------------------------------------------------------------


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
        assert (archive.names, header.shape, header.dtype) == ({"a"}, array.shape, array.dtype)
        assert got.dtype == array.dtype and got.shape == array.shape and np.array_equal(got, array)
        if array.ndim > 1 and header.fortran_order:
            with pytest.raises(GraphFileError, match="ascontiguousarray"):
                next(archive.stream("a"))
        elif array.ndim:
            blocks = list(archive.stream("a"))
            assert np.array_equal(np.concatenate(blocks), array)
            row_bytes = max(1, array[:1].nbytes)
            assert not array.size or all(len(block) <= max(1, block_bytes // row_bytes) for block in blocks)


def test_reading_takes_little_more_than_the_array_and_streaming_one_block(path):
    save_npz(path, {"a": np.zeros((2000, 1000, 18), np.int8)})  # 36 MB
    with NpzReader(path) as archive:
        rows, peak = measured(lambda: sum(len(block) for block in archive.stream("a")))
    assert rows == 2000 and peak < MODEST
    array = np.zeros((20_000, 140), np.float32)  # 11 MB
    for compressed in (True, False):
        with NpzReader(save_npz(path, {"a": array}, compressed=compressed)) as archive:
            got, peak = measured(lambda archive=archive: archive.read("a"))
        assert np.array_equal(got, array) and peak < array.nbytes + (5 << 20)


def test_a_stream_that_breaks_off_leaves_no_file_open(path):
    """Though somebody keeps the error, which keeps the frames it went through: damage, or an interrupt."""
    array = np.random.default_rng(0).integers(0, 255, (4000, 1000), np.uint8)
    raw = save_npz(path, {"a": array}, compressed=False).read_bytes()
    for content, error in ((flipped(raw, len(raw) // 2), GraphFileError), (raw, KeyboardInterrupt)):
        path.write_bytes(content)
        with NpzReader(path) as archive:
            file, blocks = archive._zip.fp, archive.stream("a")
            next(blocks)
            with pytest.raises(error) as kept:
                blocks.throw(error) if content is raw else list(blocks)
        assert file.closed, kept


def test_only_npy_members_are_arrays_of_either_version(path):
    path.write_bytes(archive_of({"a.npy": npy_of(np.arange(3), (2, 0)), "b.txt": b"", "c": b""}))
    with NpzReader(path) as archive:
        assert archive.names == {"a"} and archive.read("a").tolist() == [0, 1, 2]
