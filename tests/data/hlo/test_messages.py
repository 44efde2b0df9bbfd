"""The messages declared at run time: bytes that any protobuf reader understands, and nothing lost on the way."""

from __future__ import annotations

from xlarank.data.hlo.messages import HloInstructionProto


def test_an_instruction_has_the_bytes_of_the_published_field_numbers() -> None:
    # A key is (number << 3) | wire type; wire type 0 is a varint, 2 a length and its bytes.
    #   name = 1:                   1 << 3 | 2 = 0x0a, length 1, "c"
    #   opcode = 2:                 2 << 3 | 2 = 0x12, length 4, "copy"
    #   id = 35:                   35 << 3 | 0 = 280 = 0x98 0x02 as a varint, value 9
    #   operand_ids = 36, packed:  36 << 3 | 2 = 290 = 0xa2 0x02, length 2, values 7 and 8
    #   constrain_layout = 56:     56 << 3 | 0 = 448 = 0xc0 0x03, value 1
    instruction = HloInstructionProto(name="c", opcode="copy", id=9, operand_ids=[7, 8], constrain_layout=True)
    expected = b"\x0a\x01c" + b"\x12\x04copy" + b"\x98\x02\x09" + b"\xa2\x02\x02\x07\x08" + b"\xc0\x03\x01"
    assert instruction.SerializeToString(deterministic=True) == expected


def test_fields_that_are_not_declared_survive_an_edit() -> None:
    unknown = b"\xf8\x07\x2a"  # field 127, a varint of 42
    instruction = HloInstructionProto.FromString(b"\x0a\x01c" + unknown)
    instruction.name = "renamed"
    assert instruction.SerializeToString() == b"\x0a\x07renamed" + unknown
