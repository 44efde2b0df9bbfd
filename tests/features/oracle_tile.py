"""Tile columns the slow and obvious way: one configuration and one dimension at a time.

The main node, what it sums over, and the extents that the bounds divide are handed in: they have tests by hand.
"""

from collections.abc import Mapping, Sequence
from math import ceil, gcd, log2, prod

import numpy as np

from tests.features.oracle_configs import Columns
from tests.features.oracle_layout import placed
from tests.features.oracle_program import CLASSES, LANES, SUBLANES, Program
from xlarank.features.tile.tile_context import TileContext

SLOTS = ("kernel", "output", "input")


class TileOracle(Program):
    """A tile graph."""

    def __init__(self, arrays: Mapping[str, np.ndarray], context: TileContext) -> None:
        super().__init__(arrays, context)
        self.main, self.main_operands = context.main, context.main_operands.tolist()
        self.walked, self.physical, self.depth = context.walked, context.physical, context.depth
        self.extents = {slot: extents.tolist() for slot, extents in context.extents.items()}
        rows = [tuple(float(entry) for entry in row) for row in arrays["config_feat"]]
        #: Distinct configurations in order of first appearance: slot -> six bounds.
        self.bounds = [
            {slot: row[8 * number : 8 * number + 6] for number, slot in enumerate(SLOTS)}
            for row in dict.fromkeys(rows)
        ]

    @property
    def reduces_minor(self) -> bool:
        """A reduction whose output is the beginning of its operand's shape, and the minor-most is not in it."""
        if self.opcodes[self.main] != "reduce" or not self.main_operands:
            return False
        main, operand = self.tensors[self.main], self.tensors[self.main_operands[0]]
        minor = operand.default[0] if operand.rank else -1
        return minor >= main.rank and operand.dims[: main.rank] == main.dims

    def tile(self, row: Mapping[str, Sequence[float]], slot: str) -> list[float]:
        """Bounds in force."""
        return [bound or extent or 1.0 for bound, extent in zip(row[slot], self.extents[slot], strict=True)]

    def config_columns(self) -> Columns:
        columns: Columns = {}
        for row in self.bounds:
            values = {**self._counts(row), **self._shape(row), **self._traffic(row)}
            for name, value in values.items():
                columns.setdefault(name, []).append(value)
        return columns | placed(columns)

    def _counts(self, row: Mapping[str, Sequence[float]]) -> dict[str, float]:
        values = {}
        for slot in SLOTS:
            values |= {f"bounds__{slot}_{i}__log": log2(1 + row[slot][i]) for i in range(6)}
            values[f"bounds__{slot}_volume__log"] = log2(1 + prod(self.tile(row, slot)))
        for slot in ("output", "kernel"):
            tile, extents = self.tile(row, slot), self.extents[slot]
            there = [i for i in range(6) if extents[i] > 0]
            count = [ceil(extents[i] / tile[i]) if i in there else 1 for i in range(6)]
            covered = prod(count[i] * tile[i] for i in there) / prod(extents[i] for i in there)
            divides = sum(count[i] * tile[i] == extents[i] for i in there)
            values |= {f"tiles__{slot}_{i}__log": log2(count[i]) for i in range(6)}
            for i in range(3):
                begun = (count[i] - 1) * tile[i]  # where the last tile starts
                values[f"tiles__{slot}_rest_{i}__share"] = (extents[i] - begun) / tile[i] if i in there else 1
            values[f"tiles__{slot}_all__log"] = log2(prod(count))
            values[f"tiles__{slot}_edge_waste__ratio"] = covered - 1
            values[f"tiles__{slot}_divides__share"] = divides / max(1, len(there))
            values[f"tiles__{slot}_whole__share"] = sum(count[i] == 1 for i in there) / max(1, len(there))
        return values

    @property
    def output_rank(self) -> int:
        return sum(extent > 0 for extent in self.extents["output"])

    def _shape(self, row: Mapping[str, Sequence[float]]) -> dict[str, float]:
        output, input_, kernel = (self.tile(row, slot) for slot in ("output", "input", "kernel"))
        values = {}
        for i in range(3):
            at = self.output_rank - 1 - i
            out, vector, extent = (output[at], input_[at], self.extents["output"][at]) if at >= 0 else (1, 1, 1)
            values |= {
                f"shape__output_last{i}__log": log2(1 + out),
                f"shape__output_last{i}__ratio": out / extent,
                f"shape__input_last{i}__log": log2(1 + vector),
                f"shape__input_last{i}__ratio": vector / extent,
                f"shape__output_over_input_last{i}__log": log2(out / vector),
                f"shape__kernel_{i}__ratio": kernel[i] / max(1.0, self.extents["kernel"][i]),
            }
        last = max(1, self.output_rank) - 1
        before_out, before_in = (output[last - 1], input_[last - 1]) if self.output_rank > 1 else (1, 1)
        alignments = {"input_last0": input_[last], "input_last1": before_in, "output_last0": output[last]}
        alignments["kernel"] = prod(kernel)
        return {
            **values,
            **{f"shape__{what}_alignment__log": _alignment(bound) for what, bound in alignments.items()},
            "shape__kernel_volume__ratio": min(
                2**24, prod(kernel) / prod(max(1, e) for e in self.extents["kernel"])
            ),
            "shape__output_over_input__log": log2(prod(output) / prod(input_)),
            "shape__skew__log": log2(output[last] / before_out),
            "shape__input_last0_mod16__share": input_[last] % 16 / 16,
            "shape__output_last0_mod16__share": output[last] % 16 / 16,
            "shape__input_registers__log": log2(prod(input_) / input_[last] * ceil(input_[last] / 8)),
        }

    def _panels(self, tile: Sequence[float]) -> tuple[float, float]:
        """Rows m and columns n of a tile in elements."""
        last = max(1, self.output_rank) - 1
        rows, columns = prod(tile[:last]), tile[last]
        if self.physical:
            rows *= SUBLANES if self.output_rank > 1 else 1
            columns *= LANES if self.output_rank > 0 else 1
        return rows, columns

    def _moved(self, tile: Sequence[float]) -> tuple[float, float, float]:
        """Elements written, and read from the left and from the right."""
        rows, columns = self._panels(tile)
        if not self.depth:
            return rows * columns, rows * columns, 0
        return rows * columns, rows * self.depth, columns * self.depth

    def _traffic(self, row: Mapping[str, Sequence[float]]) -> dict[str, float]:
        tile, extents = self.tile(row, "output"), self.extents["output"]
        size = max(1, self.tensors[self.walked].element_bytes)
        written, left, right = self._moved(tile)
        moved = (written + left + right) * size
        least = sum(self._moved([extent or 1 for extent in extents])) * size
        count = prod(ceil(extents[i] / tile[i]) for i in range(6) if extents[i] > 0)
        second = 1.0 if self.output_rank < 2 else tile[self.output_rank - 2] * (SUBLANES if self.physical else 1)
        _, columns = self._panels(tile)
        padding = ceil(columns / LANES) * LANES / columns
        padding *= ceil(second / SUBLANES) * SUBLANES / second if self.output_rank > 1 else 1
        work = written * max(1, self.depth)  # a program that makes no sense may contract less than an element
        vector = self.tile(row, "input")
        last = max(1, self.output_rank) - 1
        inner_rows, inner_columns = prod(vector[:last]), vector[last]
        step = prod(self.tile(row, "kernel")) if self.depth else 1
        logs = {
            "tile_bytes": written * size,
            "working_set": moved,
            "padded_tile": written * padding * size,
            "total": count * moved,
            "intensity": work / moved,
            "flops_per_tile": work,
            "left_panel": left * size,
            "right_panel": right * size,
            "inner_left": inner_rows * step,
            "inner_right": inner_columns * step,
            "inner_step": inner_rows * inner_columns * step,
            "inner_balance": inner_rows * inner_columns / (inner_rows + inner_columns),
        }
        return {
            **{f"traffic__{what}__log": log2(1 + value) for what, value in logs.items()},
            "traffic__vmem__ratio": min(4.0, 2 * moved / 2**24),
            "traffic__padded_tile__ratio": padding - 1,
            "traffic__padded_vmem__ratio": min(4.0, 2 * written * padding * size / 2**24),
            "traffic__total__ratio": log2(count * moved / least),
        }

    def graph_columns(self) -> dict[str, float]:
        extents, parameters = self.extents["output"], [n for n in self.nodes if self.opcodes[n] == "parameter"]
        work = self.tensors[self.main].elements * (self.depth or 1)
        read = sum(self.tensors[node].bytes for node in parameters)
        operands = [self.tensors[node].bytes for node in self.main_operands]
        logs = {
            **{f"extent_{i}": extents[i] for i in range(6)},
            **{
                f"extent_last{i}": extents[self.output_rank - 1 - i] if i < self.output_rank else 0
                for i in range(3)
            },
            "contracted": self.depth,
            "work": work,
            "read_bytes": read,
            "intensity": work / max(1, read + self.tensors[self.main].bytes),
            "parameters": len(parameters),
            "fan_in": len(operands),
            "largest_operand": max(operands, default=0),
            "smallest_operand": min(operands, default=0),
        }
        return {
            **super().graph_columns(),
            **{f"kernel__is_{name}__flag": self.classes[self.main] == name for name in CLASSES},
            **{f"kernel__{what}__log": log2(1 + value) for what, value in logs.items()},
            "kernel__reduces_minor__flag": self.reduces_minor,
            "kernel__physical__flag": self.physical,
        }


def _alignment(bound: float) -> float:
    """log2 of the largest power of two, up to 64, that divides a bound."""
    return log2(gcd(max(1, round(bound)), 64))
