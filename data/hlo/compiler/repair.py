"""Small repairs without which some real modules do not compile again."""

from __future__ import annotations

from typing import Final

from xlarank.data.hlo.messages import HloModuleProto, Message

#: The TPU compiler's own halves of 64-bit integers. As conversions they keep shapes and almost the cost.
_SPLITS: Final = frozenset({"X64SplitLow", "X64SplitHigh", "X64Combine"})


def repaired(module: Message) -> Message:
    """A copy that XLA takes: halves of 64-bit values become conversions, aliases of inputs and outputs go, and
    fusions that the compiler made before layout assignment become calls, which it takes apart and fuses anew.
    """
    copy = HloModuleProto()
    copy.CopyFrom(module)
    copy.ClearField("input_output_alias")
    copy.ClearField("buffer_donor")
    for computation in copy.computations:
        computation.is_fusion_computation = False
        for instruction in computation.instructions:
            if instruction.opcode == "custom-call" and instruction.custom_call_target in _SPLITS:
                instruction.opcode = "convert"
                instruction.custom_call_target = ""
                instruction.custom_call_api_version = 0
                del instruction.operand_ids[1:]
            elif instruction.opcode == "fusion":
                instruction.opcode = "call"
                instruction.fusion_kind = ""
                instruction.backend_config = b""
    return copy
