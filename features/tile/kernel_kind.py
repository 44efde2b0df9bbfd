"""The kind of a kernel, told from its graph: what is left out together to see how unseen kinds are ranked.

Two kernels are of one kind where the same loop nest computes them: what follows the main operation (a bias, an
activation) and all sizes are left aside. Names play no part. The file does not say which dimensions a dot contracts
or a reduction sums along; where sizes leave it open, as in a square operand, a kernel may be of several kinds.
"""

from __future__ import annotations

from itertools import combinations, product
from typing import Final

import numpy as np

from xlarank.data.schema import MAX_RANK, OPCODES
from xlarank.features.program.slots import DOT_ROLES, slot_roles
from xlarank.features.tile.tile_context import TileContext

#: Classes whose opcodes make loops of different shape; in the others any member stands for all.
_BY_OPCODE: Final = ("reduce", "transpose", "reshape", "slice")
_BATCH, _ROWS, _CONTRACTED = (DOT_ROLES.index(role) for role in ("batch", "rows", "contracted"))


def kernel_kinds(context: TileContext) -> tuple[str, ...]:
    """Every kind that the kernel may be, sorted; a single one where sizes settle it.

    A convolution is depthwise (more than one feature group), strided, dilated (its input, as in a gradient) and
    pointwise (a window of 1) or not; a dot is batched and transposes an operand or not, against the order of
    a plain product (batch, rows, contracted times batch, contracted, columns); a reduction sums along the minor
    dimension of its operand or not; movers of data go by their opcode; all elementwise kernels are one kind.

    >>> from xlarank.data.graph import read_graph
    >>> from xlarank.data.root import SAMPLE
    >>> def kinds(name): return kernel_kinds(TileContext(read_graph(SAMPLE / "npz" / "tile" / "cpu" / name)))
    >>> kinds("valid/conv1x1_s2__a.npz"), kinds("valid/bmm_tb__b.npz"), kinds("valid/expsum__b.npz")
    (('convolution strided pointwise',), ('dot batched right-transposed',), ('reduce minor',))
    >>> kinds("train/matmul__a.npz")  # 256 x 256 times 256 x 384
    ('dot', 'dot left-transposed')
    """
    kind = context.main_class
    opcode = OPCODES[int(context.graph.opcode[context.main])]
    if kind == "convolution":
        return (" ".join([kind, *_convolution(context)]),)
    if kind == "dot":
        return _dot(context)
    if opcode == "reduce":
        return _reduce(context)
    return (opcode if kind in _BY_OPCODE else kind,)


def _convolution(context: TileContext) -> list[str]:
    stride, dilation, size = (
        context.column(f"window_{name}_0", MAX_RANK)[context.main].max()
        for name in ("stride", "base_dilation", "size")
    )
    depthwise = context.column("feature_group_count")[context.main] > 1
    words = {"depthwise": depthwise, "strided": stride > 1, "dilated": dilation > 1, "pointwise": size == 1}
    return [word for word, true in words.items() if true]


def _dot(context: TileContext) -> tuple[str, ...]:
    """An operand is transposed, is not, or may be: where rows and contracted dimensions have the same sizes."""
    tensors = context.slots_of(context.main)[None]
    roles = slot_roles(context, tensors)[0]
    ways = [["dot batched" if (roles[0] == _BATCH).any() else "dot"]]
    for slot, word, order in (
        (1, " left-transposed", (_ROWS, _CONTRACTED)),
        (2, " right-transposed", (_CONTRACTED, _ROWS)),
    ):
        ahead, behind = (np.flatnonzero(roles[slot] == role) for role in order)
        sizes = context.dims[tensors[0, slot]]
        if len(ahead) and np.array_equal(np.sort(sizes[ahead]), np.sort(sizes[behind])):
            ways.append(["", word])
        else:
            ways.append([word if len(ahead) and len(behind) and ahead[0] > behind[0] else ""])
    return tuple(sorted(map("".join, product(*ways))))


def _reduce(context: TileContext) -> tuple[str, ...]:
    """By which dimensions of the operand can be left out to give the output's shape."""
    if len(context.main_operands) == 0:
        return ("reduce",)
    operand = int(context.main_operands[0])
    rank, left = int(context.rank[operand]), int(context.rank[context.main])
    shape, output = context.dims[operand, :rank], context.dims[context.main, :left]
    minor = int(context.default_layout[operand, 0])
    fitting = [kept for kept in combinations(range(rank), left) if (shape[list(kept)] == output).all()]
    found = {"reduce" if minor in kept else "reduce minor" for kept in fitting}
    return tuple(sorted(found or {"reduce"}))
