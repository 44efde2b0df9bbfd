"""Programs in files: recognised by content or refused, read as graphs and as names of nodes."""

import contextlib
import gzip
import importlib.util
import io
import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import xlarank
from tests.data.hlo.programs import kernels, matmul_module, saved, tuning_data
from tests.graphs import arrays_of
from xlarank.data.errors import HloError
from xlarank.data.hlo import reading
from xlarank.data.hlo.encoding import encode_program
from xlarank.data.hlo.messages import HloInstructionProto, HloModuleProto, HloProto
from xlarank.data.writing import write_graph

TEXT = "HloModule jit_f\n\nENTRY main {\n  ROOT p = f32[8,128]{1,0} parameter(0)\n}\n"
ELIDED = TEXT.replace("parameter(0)", "constant({...})")
WHOLE = HloProto(hlo_module=matmul_module())
TANH = TEXT.replace("ROOT p", "a").replace("\n}", "\n  ROOT r = f32[8,128]{1,0} tanh(a)\n}")


def test_every_kind_of_binary_is_recognized() -> None:
    module = matmul_module()
    for message in (module, WHOLE):
        assert reading.parse_program(message.SerializeToString()) == module
    for message in (tuning_data(), kernels()):
        assert reading.parse_program(message.SerializeToString()) == message
        assert reading.module_of(message) == module
    # Field 3 of HloProto and of ModuleTuningData are messages: here buffers (1), aliases (2).
    assignment = b"\x1a\x0c" + b"\x0a\x04\x08\x01\x10\x40" + b"\x12\x04\x08\x01\x12\x00"
    assert reading.parse_program(WHOLE.SerializeToString() + assignment) == module, "no tuning data"
    data = kernels()
    data.modules.add().CopyFrom(data.modules[0])
    with pytest.raises(HloError, match="2 kernels"):
        reading.module_of(data)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        *((WHOLE.SerializeToString()[:kept], "cut off") for kept in (1, 2, 50, 300, -1)),
        *((data, "holds no program") for data in (b"", b"PK\x03\x04", b"hello\n", bytes(1000))),
        (b"\x0a\xff\xff\xff\xff\x07" + b"m" * 100, "cut off"),  # a module that claims 2 GB
        (b"\x1a\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01", "cut off"),  # a length of 2**63
        (HloModuleProto(name="nothing in it").SerializeToString(), "holds no program"),
        (gzip.compress(b"HloModule", mtime=0)[:-9], "cannot be unpacked"),
        (gzip.compress(gzip.compress(b"HloModule", mtime=0), mtime=0), "holds no program"),
        (b"HloModule a\n\nHloModule b\n", "the file holds 2 HLO modules"),
    ],
)
def test_other_bytes_than_programs_are_refused(data: bytes, words: str) -> None:
    with pytest.raises(HloError, match=words):
        reading.parse_program(data)


@pytest.fixture
def no_parser(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "_PARSE", "import jaxlib_that_is_not_there")


@pytest.mark.usefixtures("no_parser")
def test_files_are_named_and_special_ones_refused(tmp_path: Path) -> None:
    (tmp_path / "broken.pb").write_bytes(b"\x0a\xff")
    (tmp_path / "a.txt").write_bytes(b"// a comment\n" + TEXT.encode())
    (tmp_path / "a.bc").write_bytes(b"ML\xefR\x0dStableHLO_v1")
    (tmp_path / "a.mlir").write_bytes(b'"builtin.module"() ({')
    os.mkfifo(tmp_path / "pipe")
    with (tmp_path / "huge.pb").open("wb") as stream:
        stream.truncate(2**31)
    for name, words in (
        ("broken.pb", r"^broken\.pb: the file is cut off"),
        ("absent.pb", r"absent\.pb cannot be read"),
        *((name, "not a regular file") for name in (".", "pipe")),
        ("huge.pb", "2,147,483,648 bytes"),
        ("a.txt", r"HLO text.*jaxlib 0\.10 or later\) is not installed.*'xlarank\[hlo\]'"),
        ("a.bc", "this is StableHLO, and"),
        ("a.mlir", "this is StableHLO, and"),
    ):
        with pytest.raises(HloError, match=words):
            reading.read_program(tmp_path / name)


needs_jaxlib = pytest.mark.skipif(
    importlib.util.find_spec("jaxlib") is None, reason="jaxlib is not installed"
)


def opcodes_of(text: str | bytes) -> list[str]:
    data = text.encode() if isinstance(text, str) else text
    return [part.opcode for part in reading.parse_program(data).computations[0].instructions]


@needs_jaxlib
def test_text_is_parsed_by_jaxlib() -> None:
    module = reading.module_of(reading.parse_program(TEXT.encode()))
    assert (module.name, module.computations[0].instructions[0].opcode) == ("jit_f", "parameter")
    with pytest.raises(HloError, match=r"XLA cannot parse this HLO text \(INVALID_ARGUMENT"):
        reading.parse_program(TEXT.replace("parameter", "no-such-opcode").encode())
    with pytest.raises(HloError, match="XLA cannot parse this HLO text"):
        reading.parse_program(TEXT.encode() + b"\xff }")
    assert opcodes_of(ELIDED) == ["constant"]
    for depth, words in ((20_000, r"its parser ended with -\d+"), (200, "XLA cannot parse")):
        text = TEXT.replace("f32[8,128]{1,0}", "(" * depth + "f32[]" + ")" * depth)
        with pytest.raises(HloError, match=words):  # protobuf reads no 100 levels
            reading.parse_program(text.encode())


#: Forms of `TEXT` that frameworks, editors and other versions of XLA write.
FORMS = {
    "comment": b"/* Copyright\n of somebody */\n// so it is\n\n" + TEXT.encode(),
    "no header": TEXT.split("\n", 1)[1].encode(),
    "mark": TEXT.encode("utf-8-sig"),
    "Latin-1": TEXT.encode() + "// é\n".encode("latin-1"),
    "gzip": gzip.compress(TEXT.encode()),
    "wrapper": b"TensorsGraphInfo:\n  f (a.py:3)\n\n## BEGIN_GRAPH\n%b\n\n## END_GRAPH\n"
    % TEXT.encode(),
}
PRETTY = b"""#loc = loc(unknown)
module @jit_f {
  func.func public @main(%a: tensor<8x128xf32>) -> tensor<8x128xf32> {
    %0 = stablehlo.tanh %a : tensor<8x128xf32>
    return %0 : tensor<8x128xf32>
  }
}
"""


@needs_jaxlib
@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_text_is_the_same_program(form: str) -> None:
    expected = reading.parse_program(TEXT.encode()).computations
    assert reading.parse_program(FORMS[form]).computations == expected


@needs_jaxlib
def test_stablehlo_is_converted() -> None:
    programs = [PRETTY, gzip.compress(PRETTY)]
    if importlib.util.find_spec("jax"):
        import jax

        jit = jax.jit(jax.numpy.tanh).lower(jax.ShapeDtypeStruct((8,), "float32"))
        module = jit.compiler_ir("stablehlo").operation
        bytecode = io.BytesIO()
        module.write_bytecode(bytecode)
        programs += [module.get_asm(print_generic_op_form=True).encode(), bytecode.getvalue()]
    for data in programs:
        assert opcodes_of(data) == ["parameter", "tanh"]
    with pytest.raises(HloError, match="XLA cannot parse this StableHLO"):
        reading.parse_program(b"module {\n tosa.abs\n}")


def test_an_attribute_is_removed_everywhere_but_in_strings() -> None:
    text = b"""a = f32[] b(), x=1, foo={s="}, foo=2", {3}}, y={foo=[1,2]<=T(1,0), z=1}
c = f32[] d(), metadata={op_name="foo=1" foo="," y=2}, foo=bar  // , foo=3
e = f32[] f(), barfoo=1, foo=1"""
    assert reading._without_attribute(text, "foo") == (
        b"""a = f32[] b(), x=1, y={z=1}
c = f32[] d(), metadata={op_name="foo=1" y=2}  // , foo=3
e = f32[] f(), barfoo=1"""
    )


@needs_jaxlib
@pytest.mark.parametrize(
    "operation",
    [
        *("tanh(a), foo=bar", 'tanh(a), foo="}, {"', "tanh(a), foo={a={1,2}, b=[2]}"),
        *("tanh(a), sharding={weird}", "tanh(a), algorithm=new", "tanh(a), foo=1, bar=2"),
        *('tanh(a), metadata={op_name="a" foo=1}', "tanh(a), frontend_attributes={a=1}"),
        'custom-call(a), custom_call_target="f", api_version=API_VERSION_ORIGINAL',
        'custom-call(a), custom_call_target="f", api_version=API_VERSION_OF_THE_FUTURE',
    ],
)
def test_attributes_that_say_nothing_about_layouts_are_left_out(operation: str) -> None:
    module = reading.parse_program(TANH.replace("tanh(a)", operation).encode())
    _, parsed = module.computations[0].instructions
    assert parsed.opcode == operation.partition("(")[0]
    assert parsed.custom_call_target == ("f" if "custom" in operation else "")


@needs_jaxlib
@pytest.mark.parametrize("attribute", ["new_dimensions={1}", "other_layout={0}", "window={foo=1}"])
def test_attributes_that_may_speak_of_layouts_are_refused(attribute: str) -> None:
    with pytest.raises(HloError, match="XLA cannot parse this HLO text"):
        reading.parse_program(TANH.replace("tanh(a)", f"tanh(a), {attribute}").encode())


@given(
    at=st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 255)), min_size=1, max_size=8),
    make=st.sampled_from([matmul_module, tuning_data, kernels]),
    cut=st.integers(0, 30),
)
def test_damaged_bytes_give_an_error_or_a_program(at, make, cut) -> None:
    data = bytearray(make().SerializeToString())
    for position, byte in at:
        data[position % len(data)] = byte
    with contextlib.suppress(HloError):  # nothing else
        encode_program(reading.module_of(reading.parse_program(bytes(data[: len(data) - cut]))))


def test_the_graph_equals_its_written_and_read_arrays(tmp_path: Path) -> None:
    graph = xlarank.read_hlo(str(saved(tmp_path / "module_0007.jit_f.hlo.pb", WHOLE)))
    assert (graph.name, graph.nodes, graph.configs) == ("module_0007.jit_f", 9, 1)
    assert (graph.table.rows == -1).all() and not graph.labelled
    arrays = reading.unlabelled_arrays(matmul_module())
    written = arrays_of(write_graph(tmp_path / "graph.npz", **arrays))
    np.testing.assert_equal(arrays_of(graph), written)
    assert all(array.dtype == written[name].dtype for name, array in arrays_of(graph).items())


def test_warnings_and_errors_name_the_file(tmp_path: Path) -> None:
    module = matmul_module()
    fusion = module.computations[2].instructions[2]
    fusion.opcode = "ragged-dot"
    unknown = r"new\.pb: opcodes .*format does not know.*: ragged-dot \(1\)"
    with pytest.warns(UserWarning, match=unknown):
        assert reading.read_hlo(saved(tmp_path / "new.pb", module)).opcode[8] == 0
    fusion.operand_ids.append(404)
    dangling = r"^dangling\.pb: %fusion\.32 names operand 404, which does not exist"
    with pytest.raises(HloError, match=dangling):
        reading.read_hlo(saved(tmp_path / "dangling.pb", module))


def test_an_instruction_has_the_published_field_numbers_and_keeps_unknown_fields() -> None:
    # A key is (number << 3) | wire type; wire type 0 is a varint, 2 a length and its bytes.
    #   name = 1:                   1 << 3 | 2 = 0x0a, length 1, "c"
    #   opcode = 2:                 2 << 3 | 2 = 0x12, length 4, "copy"
    #   id = 35:                   35 << 3 | 0 = 280 = 0x98 0x02 as a varint, value 9
    #   operand_ids = 36, packed:  36 << 3 | 2 = 290 = 0xa2 0x02, length 2, values 7 and 8
    #   constrain_layout = 56:     56 << 3 | 0 = 448 = 0xc0 0x03, value 1
    fields = {"name": "c", "opcode": "copy", "id": 9, "operand_ids": [7, 8]}
    instruction = HloInstructionProto(**fields, constrain_layout=True)
    expected = b"\x0a\x01c\x12\x04copy\x98\x02\x09\xa2\x02\x02\x07\x08\xc0\x03\x01"
    assert instruction.SerializeToString(deterministic=True) == expected
    unknown = b"\xf8\x07\x2a"  # field 127, which is not declared, a varint of 42
    instruction = HloInstructionProto.FromString(b"\x0a\x01c" + unknown)
    instruction.name = "renamed"
    assert instruction.SerializeToString() == b"\x0a\x07renamed" + unknown
