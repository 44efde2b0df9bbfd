"""What a fusing compiler never stores, node by node from the rules' words."""

from __future__ import annotations

from math import prod

from tests.features.oracle_program import Program

EXPENSIVE = {
    *("exponential", "tanh", "log", "logistic", "power", "rsqrt", "sqrt", "divide"),
}
#: Elementwise ones are those of the class; these are loops over elements, too.
_MOVES = {
    *("reshape", "bitcast", "bitcast-convert", "transpose", "copy", "reverse", "concatenate", "slice", "pad"),
    *(
        "dynamic-slice",
        "dynamic-update-slice",
        "gather",
        "scatter",
        "broadcast",
        "iota",
        "rng",
        "rng-bit-generator",
    ),
}


def _loop(program: Program, node: int) -> bool:
    return program.classes[node] == "elementwise" or program.opcodes[node] in _MOVES


def fused_away(program: Program, node: int) -> bool:
    """Whether the node's output is never stored."""
    consumers = set(program.operands.predecessors(node))
    if program.entry(node, "is_root") or not consumers:
        return False
    if not all(_loop(program, other) for other in (node, *consumers)):
        return False
    expensive = program.opcodes[node] in EXPENSIVE
    if expensive and any(program.opcodes[consumer] == "broadcast" for consumer in consumers):
        return False
    if len(consumers) == 1:
        return True
    elements = prod(program.tensors[node].dims)
    sizes = [prod(program.tensors[operand].dims) for operand in program.operands.successors(node)]
    return not expensive and sum(size > 1 and 2 * size >= elements for size in sizes) <= 1
