"""Which roles of an operation's dimensions a layout puts along the lanes and the sublanes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xlarank.data.schema import LAYOUT_SLOTS
from xlarank.features.block import Tier
from xlarank.features.layout.aggregation import Aggregation, Request
from xlarank.features.layout.block import LayoutBlock
from xlarank.features.layout.context import LayoutContext
from xlarank.features.program.opcode_classes import COARSE_CLASSES
from xlarank.features.program.roles import CONVOLUTION_ROLES, DOT_ROLES, RESHAPE_ROLES

_POSITIONS = {"minor": "minor-most", "second": "second minor-most"}


def _columns(name: str, slots: Sequence[str], roles: Sequence[str], position: str) -> dict[str, str]:
    columns: dict[str, str] = {}
    for slot in slots:
        for role in roles:
            what = f"the {_POSITIONS[position]} dimension is {role}"
            columns |= {
                f"roles__{name}_{slot}_{role}_{position}__share": f"share of configurable {name} nodes: of the "
                f"{slot}, {what}",
                f"roles__{name}_{slot}_{role}_{position}_bytes__share": f"share of the {slot} bytes of "
                f"configurable {name} nodes: {what}",
            }
    return columns


class _Roles(LayoutBlock, abstract=True):
    """Shares of nodes and bytes by the role in one position; see `program.roles` for what the roles are."""

    of_class: str
    roles: Sequence[str]
    slots: Sequence[str]
    position: int

    def prepare(self, context: LayoutContext, aggregation: Aggregation) -> Request:
        tables: list[NDArray[Any]] = []
        scales: list[float] = []
        of_class = COARSE_CLASSES.index(self.of_class)
        mine = context.type_coarse_class == of_class
        for slot in self.slots:
            rows = context.slots[slot]
            at = rows.layout[:, self.position]
            named = context.roles[context.type_node, LAYOUT_SLOTS.index(slot), np.maximum(at, 0)]
            for role in range(len(self.roles)):
                here = mine & (at >= 0) & (named == role)
                tables += [here, here * rows.bytes]
                scales += [context.nodes_of_class[of_class], rows.bytes_of_class[of_class]]
        return aggregation.sum(tables, over=scales)


class ConvolutionRoles(_Roles):
    """Role of a convolution's minor-most dimensions: batch, feature or spatial (node columns 93-106).

    Of a kernel, ``batch`` is the input feature and ``feature`` the output feature.
    """

    tier = Tier.FULL
    of_class, slots, roles, position = "convolution", LAYOUT_SLOTS, CONVOLUTION_ROLES, 0
    columns = _columns(of_class, slots, roles, "minor")


class SecondConvolutionRoles(_Roles):
    """Role of a convolution's second minor-most dimensions; as `ConvolutionRoles`."""

    tier = Tier.FULL
    of_class, slots, roles, position = "convolution", LAYOUT_SLOTS, CONVOLUTION_ROLES, 1
    columns = _columns(of_class, slots, roles, "second")


class DotRoles(_Roles):
    """Role of a dot's minor-most dimensions: batch, rows (the operand's own) or contracted.

    Of the output, ``rows`` come from the left operand and ``contracted`` stands for those of the right one.
    """

    tier = Tier.FULL
    of_class, slots, roles, position = "dot", LAYOUT_SLOTS, DOT_ROLES, 0
    columns = _columns(of_class, slots, roles, "minor")


class SecondDotRoles(_Roles):
    """Role of a dot's second minor-most dimensions; as `DotRoles`."""

    tier = Tier.FULL
    of_class, slots, roles, position = "dot", LAYOUT_SLOTS, DOT_ROLES, 1
    columns = _columns(of_class, slots, roles, "second")


class ReshapeRoles(_Roles):
    """Whether a reshape's minor-most dimensions are kept, split or merged by it."""

    tier = Tier.FULL
    of_class, slots, roles, position = "reshape", LAYOUT_SLOTS[:2], RESHAPE_ROLES, 0
    columns = _columns(of_class, slots, roles, "minor")


class SecondReshapeRoles(_Roles):
    """Whether a reshape's second minor-most dimensions are kept, split or merged; as `ReshapeRoles`."""

    tier = Tier.FULL
    of_class, slots, roles, position = "reshape", LAYOUT_SLOTS[:2], RESHAPE_ROLES, 1
    columns = _columns(of_class, slots, roles, "second")
