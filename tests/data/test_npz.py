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

from tests.graphs import LAYOUT_KEYS, TILE_KEYS, layout_arrays, save_npz, tile_arrays
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


@pytest.fixture
def valid(tmp_path: Path) -> Path:
    return save_npz(tmp_path / "alex.npz", layout_arrays())


# The file as a whole ------------------------------------------------------------------------------------


def test_the_unharmed_file_is_read(valid):
    assert read_graph(valid).nodes == 5


@pytest.mark.parametrize(
    "content",
    [b"", b"PK", b"not a zip at all" * 100, b"\x93NUMPY\x01\x00", b"PK\x05\x06" + bytes(17)],
    ids=["empty", "two bytes", "text", "npy instead of npz", "cut end record"],
)
def test_what_is_no_archive_is_refused(tmp_path, content):
    path = tmp_path / "alex.npz"
    path.write_bytes(content)
    assert "cannot be opened" in refusal(path)


def test_an_archive_without_arrays_is_refused(tmp_path):
    message = refusal(save_members(tmp_path / "alex.npz", {"readme.txt": b"hello"}))
    assert "node_feat is missing (found none)" in message


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9, 0.999])
def test_a_truncated_file_is_refused(valid, share):
    raw = valid.read_bytes()
    valid.write_bytes(raw[: int(len(raw) * share)])
    assert "cannot be opened" in refusal(valid)


def test_a_file_with_a_hole_is_refused(valid):
    """The directory at the end is whole, as after a download that lost a piece."""
    raw = valid.read_bytes()
    valid.write_bytes(raw[:200] + raw[400:])
    refusal(valid)


def test_a_folder_is_refused(tmp_path):
    (tmp_path / "alex.npz").mkdir()
    assert "cannot be opened" in refusal(tmp_path / "alex.npz")


def test_a_missing_file_is_refused(tmp_path):
    assert "does not exist" in refusal(tmp_path / "alex.npz")


def test_a_path_below_a_file_is_refused(valid):
    assert "does not exist" in refusal(valid / "deeper.npz")


def test_a_name_that_no_file_system_holds_is_refused(tmp_path):
    refusal(tmp_path / ("x" * 300 + ".npz"))


@pytest.mark.parametrize("key", LAYOUT_KEYS)
def test_a_missing_layout_array_is_named(graph_file, key):
    arrays = layout_arrays()
    del arrays[key]
    with pytest.raises(GraphFileError, match=rf"graph\.npz: array {key} is missing \(found [a-z_, ]+\)"):
        read_graph(graph_file(arrays), "layout")


@pytest.mark.parametrize("key", TILE_KEYS)
def test_a_missing_tile_array_is_named(graph_file, key):
    arrays = tile_arrays()
    del arrays[key]
    with pytest.raises(GraphFileError, match=rf"graph\.npz: array {key} is missing \(found [a-z_, ]+\)"):
        read_graph(graph_file(arrays))


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


@pytest.mark.parametrize("share", [0.3, 0.6, 0.9])
@pytest.mark.parametrize("key", ["config_feat", "config_runtime"])
def test_corrupted_compressed_bytes_are_refused(tmp_path, key, share):
    path = save_npz(tmp_path / "alex.npz", large_arrays())
    assert read_graph(path).configs == 600
    start, end = data_span(path, f"{key}.npy")
    raw = bytearray(path.read_bytes())
    at = start + int((end - start) * share)
    raw[at : at + 8] = bytes(byte ^ 0xFF for byte in raw[at : at + 8])
    path.write_bytes(raw)
    assert f"array {key} is damaged" in refusal(path)


@pytest.mark.parametrize("key", ["node_feat", "config_runtime", "node_config_feat"])
def test_a_flipped_bit_of_a_stored_array_is_refused(tmp_path, key):
    """Nothing but the checksum can see this: the last byte of the array stays a legal number."""
    path = save_npz(tmp_path / "alex.npz", layout_arrays(), compressed=False)
    end = data_span(path, f"{key}.npy")[1]
    raw = bytearray(path.read_bytes())
    raw[end - 8] ^= 1
    path.write_bytes(raw)
    # The configurations are checked while they are streamed, so a bad value may be met before the end.
    assert key in refusal(path)


def test_a_wrong_checksum_is_refused(valid):
    patch(valid, CENTRAL, "config_runtime.npy", 16, b"\0\0\0\0")
    message = refusal(valid)
    assert "array config_runtime" in message and "CRC" in message


def test_an_encrypted_member_is_refused(valid):
    for marker, offset in ((CENTRAL, 8), (LOCAL, 6)):
        patch(valid, marker, "node_feat.npy", offset, struct.pack("<H", 1))
    message = refusal(valid)
    assert "array node_feat cannot be opened" in message and "encrypted" in message


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_other_compression_methods_are_refused(tmp_path, method):
    path = with_member(tmp_path / "alex.npz", "node_feat", npy_of(layout_arrays()["node_feat"]), method)
    message = refusal(path)
    assert f"array node_feat is compressed by zip method {method}" in message
    assert "stored or deflated" in message


def test_an_unknown_compression_method_is_refused(valid):
    for marker, offset in ((CENTRAL, 10), (LOCAL, 8)):
        patch(valid, marker, "node_opcode.npy", offset, struct.pack("<H", 99))
    assert "array node_opcode is compressed by zip method 99" in refusal(valid)


@pytest.mark.parametrize("claimed", [2**31, 2**32 - 2])
def test_a_directory_that_lies_about_the_unpacked_size_is_refused(tmp_path, claimed):
    """Header, directory and local record agree on gigabytes that no deflate stream this short can hold."""
    header = npy_header((claimed // 560, 140))
    path = with_member(tmp_path / "alex.npz", "node_feat", npy(header, bytes(1000)))
    for marker, offset in ((CENTRAL, 24), (LOCAL, 22)):
        patch(path, marker, "node_feat.npy", offset, struct.pack("<I", claimed))
    message, peak = measured(lambda: refusal(path))
    assert "array node_feat claims" in message and f"{claimed:,}" in message
    assert peak < MODEST


@pytest.mark.parametrize("difference", [-8, 8, 800])
def test_a_directory_that_is_a_little_off_is_refused(valid, difference):
    with zipfile.ZipFile(valid) as archive:
        size = archive.getinfo("config_runtime.npy").file_size
    for marker, offset in ((CENTRAL, 24), (LOCAL, 22)):
        patch(valid, marker, "config_runtime.npy", offset, struct.pack("<I", size + difference))
    assert "config_runtime" in refusal(valid)


@pytest.mark.parametrize("method", [zipfile.ZIP_DEFLATED, zipfile.ZIP_STORED])
def test_a_directory_that_lies_about_both_sizes_takes_no_memory(tmp_path, method):
    """The compressed size is a claim too; only the size of the file itself is not."""
    rows = 200_000
    content = npy(npy_header((rows, 140)), bytes(1000))
    path = with_member(tmp_path / "alex.npz", "node_feat", content, method)
    claimed = len(content) - 1000 + rows * 560  # 112 MB
    for marker, offset in ((CENTRAL, 20), (LOCAL, 18)):
        patch(path, marker, "node_feat.npy", offset, struct.pack("<II", claimed, claimed))
    message, peak = measured(lambda: refusal(path))
    assert "node_feat" in message
    assert peak < MODEST


def test_a_member_offset_outside_the_file_is_refused(valid):
    patch(valid, CENTRAL, "node_feat.npy", 42, struct.pack("<I", 2**31))
    assert "array node_feat cannot be opened" in refusal(valid)


def test_a_member_that_points_at_another_member_is_refused(valid):
    with zipfile.ZipFile(valid) as archive:
        other = archive.getinfo("node_opcode.npy").header_offset
    patch(valid, CENTRAL, "node_feat.npy", 42, struct.pack("<I", other))
    assert "array node_feat cannot be opened" in refusal(valid)


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
}
#: What numpy raises here is TokenError, IndexError or nothing, not one of its usual errors.
ESCAPING_HEADERS = {
    "open bracket": npy(b"{'descr': '<f4', 'fortran_order': False, 'shape': (5, 140\n"),
    "open string": npy(b"'''\n"),
    "deep brackets": npy(b"(" * 5000 + b"\n"),
    "dtype of nothing": npy(npy_header((5, 140), ())),
    "product too long to print": npy(npy_header(f"({'9' * 4200}, {'9' * 4200})")),
}


@pytest.mark.parametrize("content", GARBAGE_HEADERS.values(), ids=GARBAGE_HEADERS.keys())
def test_an_unreadable_header_is_refused(tmp_path, content):
    message = refusal(with_member(tmp_path / "alex.npz", "node_feat", content))
    assert "array node_feat has an unreadable header" in message
    assert "\n" not in message


@pytest.mark.parametrize("content", ESCAPING_HEADERS.values(), ids=ESCAPING_HEADERS.keys())
def test_an_unreadable_header_never_escapes_as_another_error(tmp_path, content):
    assert "array node_feat" in refusal(with_member(tmp_path / "alex.npz", "node_feat", content))


@pytest.mark.parametrize(
    ("name", "shape", "descr"),
    [
        ("node_feat", (10**9, 140), "<f4"),
        ("edge_index", (10**9, 2), "<i8"),
        ("config_runtime", (10**12,), "<i8"),
        ("node_config_feat", (10**9, 2, 18), "<f4"),
        ("node_config_feat", (6, 10**9, 18), "<f4"),
        ("node_opcode", (2**62,), "|u1"),
    ],
)
def test_a_header_that_claims_a_huge_shape_takes_no_memory(tmp_path, name, shape, descr):
    path = with_member(tmp_path / "alex.npz", name, npy(npy_header(shape, descr), bytes(4000)))
    message, peak = measured(lambda: refusal(path))
    assert f"array {name} claims shape {shape}" in message and "4,000" in message
    assert peak < MODEST


@pytest.mark.parametrize("extra", [-1, 1, 400])
def test_bytes_that_the_header_does_not_explain_are_refused(tmp_path, extra):
    body = layout_arrays()["node_feat"].tobytes()
    body = body[:extra] if extra < 0 else body + bytes(extra)
    path = with_member(tmp_path / "alex.npz", "node_feat", npy(npy_header((5, 140)), body))
    assert "array node_feat claims shape (5, 140)" in refusal(path)


def test_a_negative_extent_is_refused(tmp_path):
    """(-5, -140) has the right product, so the size alone does not tell."""
    body = layout_arrays()["node_feat"].tobytes()
    path = with_member(tmp_path / "alex.npz", "node_feat", npy(npy_header((-5, -140)), body))
    assert "array node_feat has shape (-5, -140)" in refusal(path)


class Bomb:
    """Unpickling makes a folder: proof that somebody did."""

    def __init__(self, target: Path) -> None:
        self.target = str(target)

    def __reduce__(self):
        return os.mkdir, (self.target,)


def test_the_bomb_is_real(tmp_path):
    """Without this the next tests would prove nothing."""
    path = save_npz(tmp_path / "x.npz", {"node_feat": np.array([Bomb(tmp_path / "boom")], object)})
    with np.load(path, allow_pickle=True) as archive:
        archive["node_feat"]
    assert (tmp_path / "boom").exists()


@pytest.mark.parametrize("key", LAYOUT_KEYS)
def test_a_pickled_array_is_refused_unopened(tmp_path, graph_file, key):
    arrays = layout_arrays()
    arrays[key] = np.full(arrays[key].shape, Bomb(tmp_path / "boom"), object)
    path = graph_file(arrays)
    assert f"array {key} holds pickled Python objects" in refusal(path)
    assert not (tmp_path / "boom").exists()


def test_a_pickled_field_of_a_record_is_refused_unopened(tmp_path):
    """An object hidden inside a structured dtype is a pickle too."""
    array = np.array([(1.0, Bomb(tmp_path / "boom"))], [("a", "f4"), ("b", object)])
    path = with_member(tmp_path / "alex.npz", "node_feat", npy_of(array))
    assert "array node_feat holds pickled Python objects" in refusal(path)
    assert not (tmp_path / "boom").exists()


def test_a_pickle_behind_a_plain_header_is_only_bytes(tmp_path):
    pickled = npy_of(np.array([Bomb(tmp_path / "boom")] * 20, object))[128:]
    header = npy_header((len(pickled),), "|u1")
    path = with_member(tmp_path / "alex.npz", "node_opcode", npy(header, pickled))
    assert "node_opcode" in refusal(path)
    assert not (tmp_path / "boom").exists()


def test_an_unknown_pickled_array_is_never_looked_at(tmp_path, graph_file):
    extra = np.array([Bomb(tmp_path / "boom")], object)
    assert read_graph(graph_file({**layout_arrays(), "notes": extra})).nodes == 5
    assert not (tmp_path / "boom").exists()


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


@pytest.mark.slow
def test_every_damaged_byte_of_a_small_file_is_refused_or_harmless(tmp_path):
    """Stored rather than compressed, so that each byte of the headers is met."""
    arrays = tile_arrays()
    path = save_npz(tmp_path / "alex.npz", arrays, compressed=False)
    raw = path.read_bytes()
    change = np.random.default_rng(0).integers(1, 256, len(raw))
    where = places(path, arrays)
    refused = sum(unharmed_or_refused(path, raw, arrays, at, raw[at] ^ int(change[at])) for at in where)
    assert len(where) // 2 < refused < len(where)


@pytest.mark.parametrize("byte", [b"(", b"'", b"\0", b"\xff"])
def test_a_damaged_header_of_a_large_array_is_refused_or_harmless(tmp_path, byte):
    """Large arrays: the parser of the header meets the damage before any checksum does."""
    arrays = large_arrays()
    path = save_npz(tmp_path / "alex.npz", arrays, compressed=False)
    raw = path.read_bytes()
    start = data_span(path, "config_feat.npy")[0]
    refused = sum(unharmed_or_refused(path, raw, arrays, at, byte[0]) for at in range(start, start + 128))
    assert refused >= 110


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


def test_stream_holds_one_block_at_a_time(tmp_path):
    """72 MB of configurations pass through a buffer of about one."""
    path = save_npz(tmp_path / "big.npz", {"a": np.zeros((4000, 1000, 18), np.int8)})

    def pull() -> int:
        with NpzReader(path) as archive:
            return sum(len(block) for block in archive.stream("a"))

    rows, peak = measured(pull)
    assert rows == 4000
    assert peak < MODEST


@pytest.mark.parametrize("compressed", [True, False])
def test_read_takes_little_more_than_the_array(tmp_path, compressed):
    array = np.zeros((20_000, 140), np.float32)  # 11 MB
    path = save_npz(tmp_path / "big.npz", {"a": array}, compressed=compressed)
    with NpzReader(path) as archive:
        got, peak = measured(lambda: archive.read("a"))
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
    end = data_span(path, "a.npy")[1]
    raw = bytearray(path.read_bytes())
    raw[end - 1] ^= 1
    path.write_bytes(raw)
    with NpzReader(path) as archive, pytest.raises(GraphFileError, match="array a is damaged"):
        list(archive.stream("a"))


def test_header_of_version_2_is_read(tmp_path):
    stream = io.BytesIO()
    np.lib.format.write_array(stream, np.arange(3), version=(2, 0))
    path = save_members(tmp_path / "x.npz", {"a.npy": stream.getvalue()})
    with NpzReader(path) as archive:
        assert archive.read("a").tolist() == [0, 1, 2]


def test_only_npy_members_are_arrays(tmp_path):
    path = save_members(tmp_path / "x.npz", {"a.npy": npy_of(np.arange(2)), "b.txt": b"", "c": b""})
    with NpzReader(path) as archive:
        assert archive.names == {"a"}


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
