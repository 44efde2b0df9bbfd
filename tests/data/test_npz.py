"""Archives that are broken, hostile or merely unusual, below the level of graphs."""

from __future__ import annotations

import io
import os
import struct
import tracemalloc
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path

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

CENTRAL, LOCAL, END = b"PK\x01\x02", b"PK\x03\x04", b"PK\x05\x06"
#: A reader that believes a lie of gigabytes must be caught long before the machine suffers.
MODEST = 8 << 20


# Making bad files ---------------------------------------------------------------------------------------


def npy(header: bytes, body: bytes = b"", version: tuple[int, int] = (1, 0)) -> bytes:
    """An npy member with any header text, however wrong."""
    size = struct.pack("<H" if version == (1, 0) else "<I", len(header))
    return b"\x93NUMPY" + bytes(version) + size + header + body


def npy_header(shape: object, descr: object = "<f4", fortran: bool = False) -> bytes:
    return f"{{'descr': {descr!r}, 'fortran_order': {fortran}, 'shape': {shape}, }}\n".encode()


def npy_of(array: np.ndarray) -> bytes:
    stream = io.BytesIO()
    np.lib.format.write_array(stream, array, allow_pickle=True)
    return stream.getvalue()


def save_members(path: Path, members: Mapping[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> Path:
    with zipfile.ZipFile(path, "w", method) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return path


def with_member(path: Path, name: str, content: bytes, method: int = zipfile.ZIP_DEFLATED) -> Path:
    """The valid layout file with one member replaced by any bytes."""
    members = {f"{key}.npy": npy_of(array) for key, array in layout_arrays().items()}
    return save_members(path, {**members, f"{name}.npy": content}, method)


def patch(path: Path, marker: bytes, member: str, offset: int, value: bytes) -> None:
    """Overwrite bytes of a zip record (central directory or local header) of one member."""
    raw = bytearray(path.read_bytes())
    name_at = {CENTRAL: 46, LOCAL: 30}[marker]
    at = raw.find(marker)
    while raw[at + name_at : at + name_at + len(member)] != member.encode():
        at = raw.find(marker, at + 1)
        assert at >= 0, f"no record of {member}"
    raw[at + offset : at + offset + len(value)] = value
    path.write_bytes(raw)


def data_span(path: Path, member: str) -> tuple[int, int]:
    """Where the (compressed) bytes of a member lie in the file."""
    with zipfile.ZipFile(path) as archive:
        info = archive.getinfo(member)
    raw = path.read_bytes()
    name, extra = struct.unpack("<HH", raw[info.header_offset + 26 : info.header_offset + 30])
    start = info.header_offset + 30 + name + extra
    return start, start + info.compress_size


def refusal(path: Path) -> str:
    """The message `read_graph` refuses a file with; always names the file."""
    with pytest.raises(GraphFileError) as caught:
        read_graph(path)
    message = str(caught.value)
    assert path.name in message
    return message


def others(messages: Mapping[str, str], wanted: str) -> dict[str, str]:
    """The messages without the wanted words."""
    return {name: message for name, message in messages.items() if wanted not in message}


@pytest.fixture
def valid(tmp_path: Path) -> Path:
    return save_npz(tmp_path / "alex.npz", layout_arrays())


# The file as a whole ------------------------------------------------------------------------------------


def test_what_is_no_whole_archive_is_refused(tmp_path, valid):
    assert read_graph(valid).nodes == 5
    raw = valid.read_bytes()
    contents = {
        "empty": b"",
        "two bytes": b"PK",
        "text": b"not a zip at all" * 100,
        "npy instead of npz": b"\x93NUMPY\x01\x00",
        "cut end record": b"PK\x05\x06" + bytes(17),
        **{f"cut at {share}": raw[: int(len(raw) * share)] for share in (0.1, 0.5, 0.999)},
    }
    messages = {}
    for name, content in contents.items():
        valid.write_bytes(content)
        messages[name] = refusal(valid)
    (tmp_path / "folder.npz").mkdir()
    messages["folder"] = refusal(tmp_path / "folder.npz")
    assert others(messages, "cannot be opened") == {}
    valid.write_bytes(raw[:200] + raw[400:])  # a download that lost a piece; the directory at the end is whole
    refusal(valid)
    messages = {name: refusal(path) for name, path in (("absent", tmp_path / "a.npz"), ("below", valid / "b.npz"))}
    assert others(messages, "does not exist") == {}
    refusal(tmp_path / ("x" * 300 + ".npz"))
    assert "node_feat is missing (found none)" in refusal(
        save_members(tmp_path / "b.npz", {"readme.txt": b"hello"})
    )


def test_a_missing_array_is_named(graph_file):
    for kind, arrays in (("layout", layout_arrays()), ("tile", tile_arrays())):
        for key in arrays:
            path = graph_file({name: array for name, array in arrays.items() if name != key})
            with pytest.raises(GraphFileError, match=rf"graph\.npz: array {key} is missing \(found [a-z_, ]+\)"):
                read_graph(path, kind)


# Zip records that lie or cannot be used -----------------------------------------------------------------


def large_arrays() -> dict[str, np.ndarray]:
    """A valid tile graph whose arrays outgrow the buffers of zipfile, with bytes that do not compress.

    zipfile compares the checksum of a small member as soon as its first byte is read; only in a large one
    does a damaged header or a damaged middle get past it.
    """
    rng = np.random.default_rng(0)
    arrays = tile_arrays()
    copies = 40
    feat = np.tile(arrays["node_feat"], (copies, 1))
    feat[:, NODE_COLUMN["slice_dims_start_sum"]] = rng.random(len(feat))
    return {
        "node_feat": feat,
        "node_opcode": np.tile(arrays["node_opcode"], copies),
        "edge_index": np.zeros((0, 2), np.int64),
        "config_feat": rng.integers(0, 2**20, (600, 24)).astype(np.float32),
        "config_runtime": rng.integers(1, 2**40, 600),
        "config_runtime_normalizers": rng.integers(1, 2**40, 600),
    }


def flip(path: Path, at: int, mask: int = 0xFF, count: int = 1) -> None:
    raw = bytearray(path.read_bytes())
    raw[at : at + count] = bytes(byte ^ mask for byte in raw[at : at + count])
    path.write_bytes(raw)


def test_corrupted_compressed_bytes_are_refused(tmp_path):
    path = save_npz(tmp_path / "alex.npz", large_arrays())
    assert read_graph(path).configs == 600
    raw = path.read_bytes()
    for key in ("config_feat", "config_runtime"):
        start, end = data_span(path, f"{key}.npy")
        for share in (0.3, 0.9):
            flip(path, start + int((end - start) * share), count=8)
            assert f"array {key} is damaged" in refusal(path)
            path.write_bytes(raw)


def test_a_flipped_bit_of_a_stored_array_is_refused(tmp_path):
    """Nothing but the checksum can see this: the last byte of the array stays a legal number."""
    path = save_npz(tmp_path / "alex.npz", layout_arrays(), compressed=False)
    raw = path.read_bytes()
    for key in ("node_feat", "config_runtime", "node_config_feat"):
        flip(path, data_span(path, f"{key}.npy")[1] - 8, mask=1)
        # The configurations are checked while they are streamed, so a bad value may be met before the end.
        assert key in refusal(path)
        path.write_bytes(raw)


def test_directory_entries_that_lie_are_refused(tmp_path, valid):
    with zipfile.ZipFile(valid) as archive:
        size = archive.getinfo("config_runtime.npy").file_size
        other = archive.getinfo("node_opcode.npy").header_offset
    unpacked = ((CENTRAL, 24), (LOCAL, 22))
    unopened = "array node_feat cannot be opened"
    cases = {
        "checksum": ("config_runtime", [(CENTRAL, 16)], b"\0\0\0\0", "CRC"),
        "encrypted": ("node_feat", [(CENTRAL, 8), (LOCAL, 6)], struct.pack("<H", 1), "encrypted"),
        "method": (
            "node_opcode",
            [(CENTRAL, 10), (LOCAL, 8)],
            struct.pack("<H", 99),
            "compressed by zip method 99",
        ),
        "8 short": ("config_runtime", unpacked, struct.pack("<I", size - 8), "array config_runtime"),
        "8 long": ("config_runtime", unpacked, struct.pack("<I", size + 8), "array config_runtime"),
        "offset outside the file": ("node_feat", [(CENTRAL, 42)], struct.pack("<I", 2**31), unopened),
        "offset of another member": ("node_feat", [(CENTRAL, 42)], struct.pack("<I", other), unopened),
    }
    raw, wrong = valid.read_bytes(), {}
    for name, (member, places, value, words) in cases.items():
        for marker, offset in places:
            patch(valid, marker, f"{member}.npy", offset, value)
        message = refusal(valid)
        if words not in message or f"array {member}" not in message:
            wrong[name] = message
        valid.write_bytes(raw)
    assert wrong == {}
    for method in (zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA):
        path = with_member(tmp_path / "b.npz", "node_feat", npy_of(layout_arrays()["node_feat"]), method)
        assert f"compressed by zip method {method}; expected stored or deflated" in refusal(path)


def test_a_directory_that_lies_about_sizes_takes_no_memory(tmp_path):
    """More than a deflate stream this short can hold; or the compressed size is a lie too."""
    unpacked, both = ((CENTRAL, 24), (LOCAL, 22)), ((CENTRAL, 20), (LOCAL, 18))
    for method, places, claimed, words in (
        (zipfile.ZIP_DEFLATED, unpacked, 2**32 - 2, f"array node_feat claims {2**32 - 2:,}"),
        (zipfile.ZIP_DEFLATED, both, 112_000_128, "node_feat"),
        (zipfile.ZIP_STORED, both, 112_000_128, "node_feat"),
    ):
        content = npy(npy_header((claimed // 560, 140)), bytes(1000))
        path = with_member(tmp_path / "alex.npz", "node_feat", content, method)
        for marker, offset in places:
            sizes = [claimed] * (1 if places is unpacked else 2)
            patch(path, marker, "node_feat.npy", offset, struct.pack(f"<{len(sizes)}I", *sizes))
        message, peak = measured(lambda path=path: refusal(path))
        assert words in message
        assert peak < MODEST


# npy headers --------------------------------------------------------------------------------------------


GARBAGE_HEADERS = {
    "no magic": b"garbage" * 20,
    "empty member": b"",
    "magic only": b"\x93NUMPY\x01\x00",
    "header cut short": b"\x93NUMPY\x01\x00" + struct.pack("<H", 500) + b"{'descr'",
    "version 3": npy(npy_header((5, 140)), bytes(2800), (3, 0)),
    "version 9": npy(npy_header((5, 140)), bytes(2800), (9, 9)),
    "text": npy(b"hello world\n"),
    "binary": npy(bytes(range(118))),
    "not a dict": npy(b"[1, 2, 3]\n"),
    "keys missing": npy(b"{'descr': '<f4'}\n"),
    "keys not text": npy(b"{1: '<f4', 'fortran_order': False, 'shape': (5, 140)}\n"),
    "keys not hashable": npy(b"{[1]: '<f4', 'fortran_order': False, 'shape': (5, 140)}\n"),
    "shape not a tuple": npy(npy_header("'five'")),
    "shape of floats": npy(npy_header("(5.0, 140.0)")),
    "order not a flag": npy(b"{'descr': '<f4', 'fortran_order': 1, 'shape': (5, 140)}\n"),
    "unknown dtype": npy(npy_header((5, 140), "<q99")),
    "dtype none": npy(npy_header((5, 140), None)),
    "giant dtype": npy(npy_header((5, 140), "S99999999999")),
    "code": npy(b"__import__('os').getcwd()\n"),
    "longer than numpy trusts": npy(npy_header((5, 140)).rstrip() + b" " * 20_000 + b"\n"),
    "deep minus signs": npy(b"-" * 9000 + b"1\n"),
    "header of version 2 cut short": b"\x93NUMPY\x02\x00" + struct.pack("<I", 2**31),
    # What numpy raises here is TokenError, IndexError or nothing, not one of its usual errors.
    "open bracket": npy(b"{'descr': '<f4', 'fortran_order': False, 'shape': (5, 140\n"),
    "open string": npy(b"'''\n"),
    "deep brackets": npy(b"(" * 5000 + b"\n"),
    "dtype of nothing": npy(npy_header((5, 140), ())),
    "product too long to print": npy(npy_header(f"({'9' * 4200}, {'9' * 4200})")),
}


def test_an_unreadable_header_is_refused(tmp_path):
    def message(content: bytes) -> str:
        return refusal(with_member(tmp_path / "alex.npz", "node_feat", content))

    messages = {name: message(content) for name, content in GARBAGE_HEADERS.items()}
    assert others(messages, "array node_feat") == {}
    assert [name for name, text in messages.items() if "\n" in text] == []


def test_a_header_that_claims_a_huge_shape_takes_no_memory(tmp_path):
    for name, shape, descr in (
        ("node_feat", (10**9, 140), "<f4"),
        ("config_runtime", (10**12,), "<i8"),
        ("node_config_feat", (6, 10**9, 18), "<f4"),
        ("node_opcode", (2**62,), "|u1"),
    ):
        path = with_member(tmp_path / "alex.npz", name, npy(npy_header(shape, descr), bytes(4000)))
        message, peak = measured(lambda path=path: refusal(path))
        assert f"array {name} claims shape {shape}" in message and "4,000" in message
        assert peak < MODEST


def test_a_header_that_disagrees_with_the_bytes_behind_it_is_refused(tmp_path):
    body = layout_arrays()["node_feat"].tobytes()
    for part in (body[:-1], body + bytes(1), body + bytes(400)):
        path = with_member(tmp_path / "alex.npz", "node_feat", npy(npy_header((5, 140)), part))
        assert "array node_feat claims shape (5, 140)" in refusal(path)
    # (-5, -140) has the right product, so the size alone does not tell.
    path = with_member(tmp_path / "alex.npz", "node_feat", npy(npy_header((-5, -140)), body))
    assert "array node_feat has shape (-5, -140)" in refusal(path)


class Bomb:
    """Unpickling makes a folder: proof that somebody did."""

    def __init__(self, target: Path) -> None:
        self.target = str(target)

    def __reduce__(self):
        return os.mkdir, (self.target,)


def test_pickles_are_never_opened(tmp_path, graph_file):
    boom = tmp_path / "boom"
    path = save_npz(tmp_path / "x.npz", {"node_feat": np.array([Bomb(boom)], object)})
    with np.load(path, allow_pickle=True) as archive:
        archive["node_feat"]
    assert boom.exists(), "without this the rest would prove nothing"
    boom.rmdir()
    for key, array in layout_arrays().items():
        path = graph_file({**layout_arrays(), key: np.full(array.shape, Bomb(boom), object)})
        assert f"array {key} holds pickled Python objects" in refusal(path)
    record = np.array([(1.0, Bomb(boom))], [("a", "f4"), ("b", object)])
    message = refusal(with_member(tmp_path / "alex.npz", "node_feat", npy_of(record)))
    assert "array node_feat holds pickled Python objects" in message
    pickled = npy_of(np.array([Bomb(boom)] * 20, object))[128:]  # behind a header of plain bytes
    content = npy(npy_header((len(pickled),), "|u1"), pickled)
    assert "node_opcode" in refusal(with_member(tmp_path / "alex.npz", "node_opcode", content))
    assert read_graph(graph_file({**layout_arrays(), "notes": np.array([Bomb(boom)], object)})).nodes == 5
    assert not boom.exists()


# Whatever happens to a byte -----------------------------------------------------------------------------


def unharmed_or_refused(path: Path, raw: bytes, arrays: Mapping[str, np.ndarray], at: int, byte: int) -> bool:
    """Change one byte; true when the file is refused, false when it reads exactly as before."""
    path.write_bytes(raw[:at] + bytes([byte]) + raw[at + 1 :])
    try:
        graph = read_graph(path)
    except GraphFileError as error:
        assert path.name in str(error), f"byte {at}"
        return True
    for got, key in ((graph.node_feat, "node_feat"), (graph.opcode, "node_opcode")):
        assert np.array_equal(got, arrays[key]), f"byte {at}"
    for got, key in ((graph.runtime, "config_runtime"), (graph.config_feat, "config_feat")):
        assert np.array_equal(got, arrays[key]), f"byte {at}"
    return False


def places(path: Path, arrays: Mapping[str, np.ndarray]) -> np.ndarray:
    """Every byte of the zip records and npy headers, and some of the arrays themselves."""
    payload = np.zeros(path.stat().st_size, bool)
    for key, array in arrays.items():
        end = data_span(path, f"{key}.npy")[1]
        payload[end - array.nbytes : end] = True
    return np.flatnonzero(~payload | (np.arange(len(payload)) % 31 == 0))


def test_every_damaged_byte_of_a_small_file_is_refused_or_harmless(tmp_path, request):
    """Stored rather than compressed, so that each byte of the headers is met; all of them before a release."""
    arrays = tile_arrays()
    path = save_npz(tmp_path / "alex.npz", arrays, compressed=False)
    raw = path.read_bytes()
    change = np.random.default_rng(0).integers(1, 256, len(raw))
    where = places(path, arrays)[:: 1 if request.config.option.exhaustive else 7]
    refused = sum(unharmed_or_refused(path, raw, arrays, at, raw[at] ^ int(change[at])) for at in where)
    assert len(where) // 2 < refused < len(where)


def test_a_damaged_header_of_a_large_array_is_refused_or_harmless(tmp_path):
    """Large arrays: the parser of the header meets the damage before any checksum does."""
    arrays = large_arrays()
    path = save_npz(tmp_path / "alex.npz", arrays, compressed=False)
    raw = path.read_bytes()
    start = data_span(path, "config_feat.npy")[0]
    where = range(start, start + 128, 3)
    refused = sum(unharmed_or_refused(path, raw, arrays, at, b"('\0\xff"[at % 4]) for at in where)
    assert refused >= 0.8 * len(where)


# Reading what is right ----------------------------------------------------------------------------------

_ANY_ARRAY = hnp.arrays(
    st.sampled_from(["<f4", ">f4", "<f8", "|i1", "|u1", "<i8", ">i4"]),
    hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=7),
    elements=st.integers(0, 100),
)


@given(array=_ANY_ARRAY, fortran=st.booleans(), compressed=st.booleans())
def test_read_gives_what_was_saved(next_path, array, fortran, compressed):
    if fortran:
        array = np.asfortranarray(array)
    path = save_npz(next_path(), {"a": array}, compressed=compressed)
    with NpzReader(path) as archive:
        assert archive.names == {"a"}
        header = archive.header("a")
        got = archive.read("a")
    assert (header.shape, header.dtype, header.size) == (array.shape, array.dtype, array.size)
    assert got.dtype == array.dtype and got.shape == array.shape
    assert np.array_equal(got, array)


@given(
    array=hnp.arrays(
        st.sampled_from(["<f4", "|i1", "<i8"]),
        st.tuples(st.integers(0, 20), st.integers(0, 3), st.just(4)),
        elements=st.integers(0, 100),
    ),
    block_bytes=st.integers(1, 200),
)
def test_stream_gives_the_array_in_order_whatever_the_block_size(next_path, array, block_bytes):
    path = save_npz(next_path(), {"a": array})
    with pytest.MonkeyPatch.context() as patched, NpzReader(path) as archive:
        patched.setattr(npz, "_BLOCK_BYTES", block_bytes)
        # Copies, because the buffer is reused.
        blocks = [block.copy() for block in archive.stream("a")]
    assert np.array_equal(np.concatenate(blocks), array)
    row_bytes = max(1, array.itemsize * array.shape[1] * 4)
    assert all(len(block) <= max(1, block_bytes // row_bytes) for block in blocks)


def test_reading_takes_little_more_than_the_array_and_streaming_one_block(tmp_path):
    path = save_npz(tmp_path / "a.npz", {"a": np.zeros((2000, 1000, 18), np.int8)})  # 36 MB

    def pull() -> int:
        with NpzReader(path) as archive:
            return sum(len(block) for block in archive.stream("a"))

    rows, peak = measured(pull)
    assert rows == 2000 and peak < MODEST
    array = np.zeros((20_000, 140), np.float32)  # 11 MB
    for compressed in (True, False):
        path = save_npz(tmp_path / "b.npz", {"a": array}, compressed=compressed)
        with NpzReader(path) as archive:
            got, peak = measured(lambda archive=archive: archive.read("a"))
        assert np.array_equal(got, array)
        assert peak < array.nbytes + (5 << 20)


def test_stream_refuses_fortran_order(tmp_path):
    array = np.asfortranarray(np.arange(24.0).reshape(2, 3, 4))
    path = save_npz(tmp_path / "alex.npz", {"a": array})
    with NpzReader(path) as archive, pytest.raises(GraphFileError, match="ascontiguousarray"):
        next(archive.stream("a"))


def test_stream_notices_damage_at_the_end(tmp_path):
    """The last block must not be accepted before its checksum."""
    path = save_npz(tmp_path / "alex.npz", {"a": np.ones((5000, 18), np.int8)}, compressed=False)
    flip(path, data_span(path, "a.npy")[1] - 1, mask=1)
    with NpzReader(path) as archive, pytest.raises(GraphFileError, match="array a is damaged"):
        list(archive.stream("a"))


def test_only_npy_members_are_arrays_of_either_version(tmp_path):
    stream = io.BytesIO()
    np.lib.format.write_array(stream, np.arange(3), version=(2, 0))
    path = save_members(tmp_path / "x.npz", {"a.npy": stream.getvalue(), "b.txt": b"", "c": b""})
    with NpzReader(path) as archive:
        assert archive.names == {"a"} and archive.read("a").tolist() == [0, 1, 2]


def test_the_file_is_closed_after_an_error(valid):
    patch(valid, CENTRAL, "node_feat.npy", 16, b"\0\0\0\0")
    with pytest.raises(GraphFileError), NpzReader(valid) as archive:
        archive.read("node_feat")
    assert archive._zip.fp is None


def measured(call: Callable[[], object]) -> tuple[object, int]:
    """The result of a call and the peak of the memory it took."""
    tracemalloc.start()
    try:
        result = call()
        return result, tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
