"""What each dimension of a dot or reshape is to it, by matching sizes one after the other."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from math import prod, sqrt

Sizes = Sequence[int]


def dot_split(out: Sizes, left: Sizes, right: Sizes) -> tuple[int, int, float]:
    """Batch dimensions and dimensions from the left operand in the output, and the size summed over.

    Every choice of contracted dimensions of the left operand is tried.
    """
    splits = []
    for count in range(len(left) + 1):
        batch = len(left) + len(right) - len(out) - 2 * count
        rows = len(left) - batch - count
        if not 0 <= batch <= len(out) or rows < 0 or len(right) < batch + count:
            continue
        for contracted in combinations(range(len(left)), count):
            summed = [left[dimension] for dimension in contracted]
            own = [size for dimension, size in enumerate(left) if dimension not in contracted]
            others = [*out[:batch], *out[batch + rows :], *summed]
            if sorted(own) == sorted(out[: batch + rows]) and sorted(others) == sorted(right):
                splits.append((batch, rows, float(prod(summed)), count))
                break
    for wanted in (
        [split for split in splits if split[3] and split[0] and left[0] == right[0] == out[0]],
        [split for split in splits if split[3] and not split[0]],
        [split for split in splits if split[3]],
        [split for split in splits if split[0] and left[0] == right[0] == out[0]],
        [split for split in splits if not split[0]],
        splits,
    ):
        if wanted:
            return max(wanted)[:3]
    rows = len(left) - max(0, len(left) + len(right) - len(out)) // 2
    return 0, min(max(rows, 0), len(out)), sqrt(prod(left) * prod(right) / max(1, prod(out)))


def contracted_size(out: Sizes, left: Sizes, right: Sizes) -> float:
    return dot_split(out, left, right)[2]


def dot_roles(out: Sizes, left: Sizes, right: Sizes) -> tuple[list[str], list[str], list[str]]:
    """Roles of the output's, left and right dimensions."""
    batch, rows, _ = dot_split(out, left, right)
    of_output = ["batch"] * batch + ["rows"] * rows + ["contracted"] * (len(out) - batch - rows)
    of_left, of_right = ["contracted"] * len(left), ["contracted"] * len(right)
    _give("batch", out[:batch], left, of_left, range(len(left)))
    _give("rows", out[batch : batch + rows], left, of_left, range(len(left)))
    _give("batch", out[:batch], right, of_right, range(len(right)))
    _give("rows", out[batch + rows :][::-1], right, of_right, range(len(right) - 1, -1, -1))
    return of_output, of_left, of_right


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
