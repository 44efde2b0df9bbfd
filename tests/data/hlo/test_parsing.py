"""Whatever is in a file, it is recognized by its content or refused with a clear error."""

from __future__ import annotations

import contextlib
import importlib.util
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.data.hlo.programs import matmul_module
from xlarank.data.errors import HloError
from xlarank.data.hlo import reading
from xlarank.data.hlo.encoding import encode_program
from xlarank.data.hlo.messages import HloModuleProto, HloProto, HloSnapshot, ModuleTuningData, TuningData
from xlarank.data.hlo.reading import module_of, parse_program, read_program

TEXT = "HloModule jit_f\n\nENTRY main {\n  ROOT p = f32[8,128]{1,0} parameter(0)\n}\n"


def tuning_data() -> ModuleTuningData:
    data = ModuleTuningData(module=matmul_module(), fingerprint=7, config_index_to_node=[4, 5])
    run = data.runs.add(is_default=True)
    run.module_config.layout_config.nodes.add()
    run.profile.compute_time_ns = 5
    return data


def kernels() -> TuningData:
    data = TuningData()
    kernel = data.modules.add(module=matmul_module(), fingerprint=7)
    kernel.runs.add(is_default=True).op_config.tile_size_config.output_bounds.append(4)
    return data


def test_every_kind_of_binary_is_recognized() -> None:
    module = matmul_module()
    assert parse_program(module.SerializeToString()) == module
    wrapped = HloProto(hlo_module=module)
    assert parse_program(wrapped.SerializeToString()) == module
    assert parse_program(HloSnapshot(hlo=wrapped).SerializeToString()) == module
    layouts = parse_program(tuning_data().SerializeToString())
    assert layouts == tuning_data() and module_of(layouts) == module
    tiles = parse_program(kernels().SerializeToString())
    assert tiles == kernels() and module_of(tiles) == module
    # Field 3 of HloProto and of ModuleTuningData are both messages: here logical buffers (1) and aliases (2).
    assignment = b"\x1a\x0c" + b"\x0a\x04\x08\x01\x10\x40" + b"\x12\x04\x08\x01\x12\x00"
    assert parse_program(wrapped.SerializeToString() + assignment) == module, "no tuning data"
    data = kernels()
    data.modules.add().CopyFrom(data.modules[0])
    with pytest.raises(HloError, match="2 kernels"):
        module_of(data)


def test_what_is_no_program_is_refused() -> None:
    whole = HloProto(hlo_module=matmul_module()).SerializeToString()
    for data, words in (
        *((whole[:kept], r"cut off|no program") for kept in (1, 2, 50, 300, -1)),
        (b"", "is empty"),
        (b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR", "no protobuf of a program"),
        (b"PK\x03\x04" + bytes(40), "no protobuf of a program"),
        (b"hello\n", "no protobuf of a program"),
        (bytes(1000), "no protobuf of a program"),
        (b"\x0a\xff\xff\xff\xff\x07" + b"m" * 100, "cut off"),  # a module that claims 2 GB
        (b"\x1a\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01", "cut off"),  # a length of 2**63
        (HloModuleProto(name="nothing in it").SerializeToString(), "no program"),
        (b"module @jit_f {\n}\n", "MLIR"),
        (b"#loc = loc(unknown)\nmodule @jit_f {}", "MLIR"),
        (b"\x1a" + _sized(b"\x12" + _sized(b"\x12\x05tuple\x1a" + _nested(200))), r"cut off|no program"),
    ):
        with pytest.raises(HloError, match=words):
            parse_program(data)


def _nested(depth: int) -> bytes:
    """A tuple in a tuple in a tuple: protobuf itself stops at 100."""
    return _sized(b"\x22" + _nested(depth - 1)) if depth else b"\x00"


def _sized(content: bytes) -> bytes:
    """The length as a varint, and the content."""
    size, key = len(content), b""
    while size > 127:
        key, size = key + bytes([size % 128 + 128]), size // 128
    return key + bytes([size]) + content


def test_files_are_named_and_special_ones_refused(tmp_path: Path) -> None:
    (tmp_path / "broken.pb").write_bytes(b"\x0a\xff")
    os.mkfifo(tmp_path / "pipe")
    with (tmp_path / "huge.pb").open("wb") as stream:
        stream.truncate(2**31)
    for name, words in (
        ("broken.pb", r"^broken\.pb: the file is cut off"),
        ("absent.pb", r"absent\.pb cannot be read"),
        (".", "not a regular file"),
        ("pipe", "not a regular file"),
        ("huge.pb", "2,147,483,648 bytes"),
    ):
        with pytest.raises(HloError, match=words):
            read_program(tmp_path / name)


def test_text_without_jaxlib_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "_PARSERS", ("jaxlib_that_is_not_there",))
    with pytest.raises(HloError, match=r"jaxlib 0\.7 or later\) is not installed.*pip install 'xlarank\[hlo\]'"):
        parse_program(b"// a comment\n" + TEXT.encode())


@pytest.mark.skipif(importlib.util.find_spec("jaxlib") is None, reason="jaxlib is not installed")
def test_text_is_parsed_by_jaxlib() -> None:
    module = module_of(parse_program(TEXT.encode()))
    assert (module.name, module.computations[0].instructions[0].opcode) == ("jit_f", "parameter")
    with pytest.raises(HloError, match=r"XLA cannot parse the text \(INVALID_ARGUMENT"):
        parse_program(TEXT.replace("parameter", "no-such-opcode").encode())
    with pytest.raises(HloError, match="UTF-8"):
        parse_program(TEXT.encode() + b"\xff")


@given(
    at=st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 255)), min_size=1, max_size=8),
    whole=st.sampled_from([make().SerializeToString() for make in (matmul_module, tuning_data, kernels)]),
    cut=st.integers(0, 30),
)
def test_damaged_bytes_give_an_error_or_a_program(at: list[tuple[int, int]], whole: bytes, cut: int) -> None:
    data = bytearray(whole)
    for place, byte in at:
        data[place % len(data)] = byte
    with contextlib.suppress(HloError):  # nothing else
        message = parse_program(bytes(data[: len(data) - cut]))
        encode_program(module_of(message))
