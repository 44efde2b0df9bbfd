"""What each dimension of a dot or reshape is to it, by matching sizes one after the other."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod, sqrt

Sizes = Sequence[int]


def dot_split(out: Sizes, left: Sizes, right: Sizes) -> tuple[int, int, float]:
    """Batch dimensions and dimensions from the left operand in the output, and the size summed over."""
    for batch in range(5, -1, -1):
        summed = len(left) + len(right) - len(out) - batch  # twice the contracted dimensions
        rows, columns = len(left) - batch - summed // 2, len(right) - batch - summed // 2
        if batch > len(out) or summed < 0 or summed % 2 or rows < 0 or columns < 0:
            continue
        if not all(size in left and size in right and size > 0 for size in out[:batch]):
            continue
        b, m, n = prod(out[:batch]), prod(out[batch : batch + rows]), prod(out[batch + rows :])
        if b * m * n == 0:
            continue
        inner = prod(left) / (b * m)
        if inner >= 1 and prod(left) * n == prod(right) * m:
            return batch, rows, inner
    rows = len(left) - max(0, len(left) + len(right) - len(out)) // 2
    return 0, min(max(rows, 0), len(out)), sqrt(prod(left) * prod(right) / max(1, prod(out)))


def contracted_size(out: Sizes, left: Sizes, right: Sizes) -> float:
    return dot_split(out, left, right)[2]


def dot_roles(out: Sizes, left: Sizes, right: Sizes) -> tuple[list[str], list[str], list[str]]:
    """Roles of the output's, left and right dimensions."""
    batch, rows, _ = dot_split(out, left, right)
    of_output = ["batch"] * batch + ["rows"] * rows + ["contracted"] * (len(out) - batch - rows)
    found = []
    for operand, own in ((left, out[batch : batch + rows]), (right, out[batch + rows :])):
        roles = ["contracted"] * len(operand)
        _give("batch", out[:batch], operand, roles, range(len(operand)))
        if operand is left:
            _give("rows", own, operand, roles, range(len(operand)))
        else:
            _give("rows", own[::-1], operand, roles, range(len(operand) - 1, -1, -1))
        found.append(roles)
    return of_output, found[0], found[1]


def _give(role: str, sizes: Sizes, operand: Sizes, roles: list[str], order: range) -> None:
    """Each size takes the first dimension of the operand, in this order, that has it and no role yet."""
    for size in sizes:
        for dimension in order:
            if size > 0 and operand[dimension] == size and roles[dimension] == "contracted":
                roles[dimension] = role
                break


def reshape_roles(out: Sizes, given: Sizes) -> tuple[list[str], list[str]]:
    """Roles of the output's and the input's dimensions: both shapes are walked to where their products meet."""
    shapes = [out, given]
    roles = [["kept"] * len(out), ["kept"] * len(given)]
    left = [[d for d, size in enumerate(shape) if size > 1 and prod(shape) > 0] for shape in shapes]
    while left[0] or left[1]:
        group: list[list[int]] = [[], []]
        reached = [1, 1]
        while left[0] or left[1]:
            # on with the side that is behind, or what is left where the products never meet
            side = int(reached[1] < reached[0])
            if not left[side]:
                side = 1 - side
            dimension = left[side].pop(0)
            group[side].append(dimension)
            reached[side] *= shapes[side][dimension]
            if reached[0] == reached[1]:
                break
        sizes = len(group[0]), len(group[1])
        if sizes != (1, 1):
            for side in (0, 1):
                for dimension in group[side]:
                    roles[side][dimension] = "split" if sizes[0] > sizes[1] else "merged"
    return roles[0], roles[1]
