"""All tile columns but the TPU's time, from their meanings: one configuration at a time.

The heuristics that find the main node and the tensor walked over follow their description in
`tile_context`.
"""

from collections.abc import Mapping, Sequence
from functools import cached_property
from math import ceil, gcd, log2, prod
from operator import eq

import numpy as np

from tests.features.oracle_configs import Columns
from tests.features.oracle_layout import stacked
from tests.features.oracle_program import LANES, SUBLANES, Program, Tensor, dot_split, six
from xlarank.data.schema import NODE_COLUMN

SLOTS = ("kernel", "output", "input")
WORK_ORDER = ("convolution", "dot", "reduce", "transpose", "slice", "reshape")


class TileOracle(Program):
    def __init__(self, arrays: Mapping[str, np.ndarray]) -> None:
        super().__init__(arrays)
        rows = [tuple(float(entry) for entry in row) for row in arrays["config_feat"]]
        #: Distinct configurations in order of first appearance: slot -> six bounds.
        self.bounds = [
            {slot: row[8 * number : 8 * number + 6] for number, slot in enumerate(SLOTS)}
            for row in dict.fromkeys(rows)
        ]

    def entries(self, node: int, first: str, count: int) -> list[int]:
        at = NODE_COLUMN[first]
        return [int(entry) for entry in self.feat[node, at : at + count]]

    @cached_property
    def main(self) -> int:
        """By class, then by bytes; of several, the last."""
        by_class = ([n for n in self.nodes if self.classes[n] == name] for name in WORK_ORDER)
        nodes = next(filter(None, by_class), self.nodes)
        return max(nodes, key=lambda node: (self.tensors[node].bytes, node))

    @cached_property
    def main_operands(self) -> list[int]:
        """Larger ones first."""
        operands = {operand for consumer, operand in self.edges if consumer == self.main}
        return sorted(operands, key=lambda node: (-self.tensors[node].bytes, node))

    @cached_property
    def kernel_tensor(self) -> int | None:
        """A convolution's kernel, a dot's right operand."""
        has_kernel = self.classes[self.main] in ("convolution", "dot")
        return self.two_operands(self.main)[1] if has_kernel else None

    @cached_property
    def contracted(self) -> list[float]:
        """Sizes of the dimensions that the main node sums over."""
        kind = self.classes[self.main]
        main = self.tensors[self.main]
        if kind == "convolution" and self.kernel_tensor is not None:
            features = self.entry(self.main, "convolution_dim_numbers_kernel_output_feature_dim")
            dims = self.tensors[self.kernel_tensor].dims
            return [float(size) for number, size in enumerate(dims) if number != features]
        if kind == "dot" and self.main_operands:
            return [dot_split(main.dims, *self.operand_dims(self.main))[2]]
        if self.opcodes[self.main] == "reduce-window":
            return [float(size) for size in self.entries(self.main, "window_size_0", 6) if size > 1]
        if kind == "reduce" and self.main_operands:
            return [self.tensors[self.main_operands[0]].elements / main.elements]
        return []

    @cached_property
    def depth(self) -> float:
        """Elements summed over for one output element; 0 for none."""
        return prod(self.contracted) if self.contracted else 0.0

    @cached_property
    def reduces_minor(self) -> bool:
        """A reduction's output is the beginning of its operand, without the minor-most."""
        if self.opcodes[self.main] != "reduce" or not self.main_operands:
            return False
        main = self.tensors[self.main]
        operand = self.tensors[self.main_operands[0]]
        minor = operand.default[0] if operand.rank else -1
        return minor >= main.rank and operand.dims[: main.rank] == main.dims

    def physical_extents(self, tensor: Tensor) -> list[int]:
        """Major to minor, the two minor-most in hardware tiles."""
        sizes = [tensor.dims[dimension] for dimension in tensor.default]
        multiples = (LANES, SUBLANES, *[1] * len(sizes))
        pairs = [*zip(sizes, multiples, strict=False)]
        return [ceil(size / multiple) for size, multiple in reversed(pairs)]

    @cached_property
    def most(self) -> list[float]:
        return [max(row["output"][i] for row in self.bounds) for i in range(6)]

    @cached_property
    def vectorised(self) -> bool:
        return any(bound > 0 for row in self.bounds for bound in row["input"])

    @cached_property
    def walked(self) -> int:
        """The tensor whose extents admit all bounds and equal most; or last root, main, largest."""
        tensors = [node for node in self.nodes if self.tensors[node].rank > 0]
        roots = [node for node in tensors if self.entry(node, "is_root") > 0]
        by_size = sorted(tensors, key=lambda node: (-self.tensors[node].bytes, node))
        used = max((i + 1 for i in range(6) if self.most[i] > 0), default=0)
        # A vector tile cuts the result: a root's (last first) or else the main node's.
        if self.vectorised:
            for node in [*roots[::-1], self.main]:
                if self._admits(self.tensors[node].dims):
                    return node
        scores: dict[int, int] = {}
        for node in [*roots[::-1], self.main, *by_size]:
            tensor = self.tensors[node]
            for extents in filter(self._admits, (self.physical_extents(tensor), tensor.dims)):
                score = sum(map(eq, self.most, extents)) + (tensor.rank == used)
                scores[node] = max(scores.get(node, 0), score)
        return max(scores, key=scores.__getitem__, default=self.main)

    def _admits(self, extents: Sequence[int]) -> bool:
        return all(most <= extent for most, extent in zip(self.most, six(extents), strict=True))

    @cached_property
    def physical(self) -> bool:
        return self._admits(self.physical_extents(self.tensors[self.walked]))

    @cached_property
    def extents(self) -> dict[str, list[float]]:
        tensor = self.tensors[self.walked]
        kernel = self.contracted
        walked = six(self.physical_extents(tensor) if self.physical else tensor.dims)
        if self.physical:
            tensors = [] if self.kernel_tensor is None else [self.tensors[self.kernel_tensor]]
            kernel = [extent for own in tensors for extent in self.physical_extents(own)]
        return {"output": walked, "input": walked, "kernel": six(kernel)}

    def tile(self, row: Mapping[str, Sequence[float]], slot: str) -> list[float]:
        """Bounds in force."""
        pairs = zip(row[slot], self.extents[slot], strict=True)
        return [bound or extent or 1.0 for bound, extent in pairs]

    def config_columns(self) -> Columns:
        rows = []
        for row in self.bounds:
            values = self._counts(row) | self._shape(row) | self._traffic(row) | self._inner(row)
            rows.append(values)
        return stacked(rows)

    def _counts(self, row: Mapping[str, Sequence[float]]) -> dict[str, float]:
        values = {}
        for slot in SLOTS:
            values |= {f"bounds__{slot}_{i}__log": log2(1 + row[slot][i]) for i in range(6)}
            values[f"bounds__{slot}_volume__log"] = log2(1 + prod(self.tile(row, slot)))
        for slot in ("output", "kernel"):
            tile = self.tile(row, slot)
            extents = self.extents[slot]
            used = [i for i in range(6) if extents[i] > 0]
            count = [ceil(extents[i] / tile[i]) if i in used else 1 for i in range(6)]
            covered = prod(count[i] * tile[i] for i in used) / prod(extents[i] for i in used)
            values |= {f"tiles__{slot}_{i}__log": log2(count[i]) for i in range(6)}
            for i in range(3):
                begun = (count[i] - 1) * tile[i]  # where the last tile starts
                rest = (extents[i] - begun) / tile[i] if i in used else 1
                values[f"tiles__{slot}_rest_{i}__share"] = rest
            divides = sum(count[i] * tile[i] == extents[i] for i in used)
            values |= {
                f"tiles__{slot}_all__log": log2(prod(count)),
                f"tiles__{slot}_edge_waste__ratio": covered - 1,
                f"tiles__{slot}_divides__share": divides / max(1, len(used)),
                f"tiles__{slot}_whole__share": sum(count[i] == 1 for i in used) / max(1, len(used)),
            }
        return values

    @property
    def output_rank(self) -> int:
        return sum(extent > 0 for extent in self.extents["output"])

    def _shape(self, row: Mapping[str, Sequence[float]]) -> dict[str, float]:
        output, input_, kernel = (self.tile(row, slot) for slot in ("output", "input", "kernel"))
        values = {}
        for i in range(3):
            at = self.output_rank - 1 - i
            sides = (output, input_, self.extents["output"])
            out, vector, extent = (side[at] if at >= 0 else 1 for side in sides)
            values |= {
                f"shape__output_last{i}__log": log2(1 + out),
                f"shape__output_last{i}__ratio": out / extent,
                f"shape__input_last{i}__log": log2(1 + vector),
                f"shape__input_last{i}__ratio": vector / extent,
                f"shape__output_over_input_last{i}__log": log2(out / vector),
                f"shape__kernel_{i}__ratio": kernel[i] / max(1.0, self.extents["kernel"][i]),
            }
        last = max(1, self.output_rank) - 1
        before_out, before_in = (
            side[last - 1] if self.output_rank > 1 else 1 for side in (output, input_)
        )
        aligned = {"input_last0": input_[last], "input_last1": before_in}
        aligned |= {"output_last0": output[last], "kernel": prod(kernel)}
        for name, bound in aligned.items():
            values[f"shape__{name}_alignment__log"] = log2(gcd(max(1, round(bound)), 64))
        kernel_share = prod(kernel) / prod(max(1, extent) for extent in self.extents["kernel"])
        registers = prod(input_) / input_[last] * ceil(input_[last] / 8)
        return {
            **values,
            "shape__kernel_volume__ratio": min(2**24, kernel_share),
            "shape__output_over_input__log": log2(prod(output) / prod(input_)),
            "shape__skew__log": log2(output[last] / before_out),
            "shape__input_last0_mod16__share": input_[last] % 16 / 16,
            "shape__output_last0_mod16__share": output[last] % 16 / 16,
            "shape__input_registers__log": log2(registers),
        }

    def _panels(self, tile: Sequence[float]) -> tuple[float, float]:
        """Rows m and columns n of a tile in elements."""
        last = max(1, self.output_rank) - 1
        sublanes = SUBLANES if self.physical and self.output_rank > 1 else 1
        lanes = LANES if self.physical and self.output_rank > 0 else 1
        return prod(tile[:last]) * sublanes, tile[last] * lanes

    def _moved(self, tile: Sequence[float]) -> tuple[float, float, float]:
        """Elements written, and read from the left and from the right."""
        rows, columns = self._panels(tile)
        if not self.depth:
            return rows * columns, rows * columns, 0
        return rows * columns, rows * self.depth, columns * self.depth

    def _traffic(self, row: Mapping[str, Sequence[float]]) -> dict[str, float]:
        tile = self.tile(row, "output")
        extents = self.extents["output"]
        size = max(1, self.tensors[self.walked].element_bytes)
        written, left, right = self._moved(tile)
        moved = (written + left + right) * size
        least = sum(self._moved([extent or 1 for extent in extents])) * size
        count = prod(ceil(extents[i] / tile[i]) for i in range(6) if extents[i] > 0)
        _, columns = self._panels(tile)
        padding = ceil(columns / LANES) * LANES / columns
        if self.output_rank > 1:
            second = tile[self.output_rank - 2] * (SUBLANES if self.physical else 1)
            padding *= ceil(second / SUBLANES) * SUBLANES / second
        # A program that makes no sense may contract less than an element.
        work = written * max(1, self.depth)
        vector = self.tile(row, "input")
        last = max(1, self.output_rank) - 1
        inner_rows = prod(vector[:last])
        inner_columns = vector[last]
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

    def _inner(self, row: Mapping[str, Sequence[float]]) -> dict[str, float]:
        """The innermost loop and the estimated time."""
        output = self.tile(row, "output")
        main = self.tensors[self.main]
        depth = self.depth or 1.0
        size = max(1, self.tensors[self.walked].element_bytes)
        vector = list(map(min, self.tile(row, "input"), output))
        last = max(1, self.output_rank) - 1
        lanes = max(1.0, 32 / size)
        n = vector[last]
        m = prod(vector[:last])
        per_row = ceil(n / lanes)
        sums = m * per_row
        kind = self.classes[self.main]
        window = prod(entry for entry in self.entries(self.main, "window_size_0", 6) if entry > 0)
        shared = kind == "dot" or (kind == "convolution" and depth > window)
        chains = sums * (prod(self.tile(row, "kernel")) if self.contracted and not shared else 1)
        loads = m + per_row if shared else sums + per_row * (kind == "convolution")
        lines = ceil(n * size / 64)
        line_cycles = self._line_cycles(size) if shared else 0
        spilled = max(0, sums + per_row + 1 - 16)
        divides = all(out % part == 0 for out, part in zip(output, vector, strict=True))
        slowest = max(sums / 2, 4 * sums / chains, loads / 2, lines * line_cycles)
        cycles = (slowest + 1.5 * spilled) * lanes / (m * n) if divides else 4 * lanes
        cut = [i for i in range(self.output_rank) if output[i] < self.extents["output"][i]]
        run = prod(output[max(cut, default=0) : self.output_rank])
        moved = main.bytes + sum(self.tensors[node].bytes for node in self.main_operands)
        speed = 32 if moved < 2**20 else 12 if moved < 2**24 else 4
        memory = moved / max(1, main.elements) / speed * (1 + 256 / (run * size))
        computing = cycles / lanes * depth
        values = {
            "inner__divides__flag": float(divides),
            "inner__lanes__share": n / (lanes * per_row),
            "inner__odd__log": log2(n / gcd(int(n), 2**30)),
            "inner__chains__log": log2(max(1, 8 / chains)),
            "inner__loads__log": log2(loads / (m * n)),
            "inner__lines__log": log2(lines / (m * n if shared else n)),
            "inner__spill__log": log2(1 + spilled),
            "inner__cycles__log": log2(cycles),
            "estimate__run__log": log2(run),
            "estimate__memory__log": log2(max(1e-6, memory)),
            "estimate__longer__log": log2(max(1e-6, computing, memory)),
            "estimate__sum__log": log2(max(1e-6, computing + memory)),
        }
        return values if self.vectorised else dict.fromkeys(values, 0.0)

    def _line_cycles(self, size: float) -> float:
        """Cycles to load a line, by the first cache whose sets hold a panel's rows."""
        apart = max(1, round(self.extents["output"][max(1, self.output_rank) - 1] * size / 64))
        for sets, cycles in ((64, 0.5), (1024, 2.0)):
            if (self.depth or 1.0) <= 8 * len({row * apart % sets for row in range(sets)}):
                return cycles
        return 12.0

    def graph_columns(self) -> dict[str, float]:
        extents = self.extents["output"]
        parameters = [n for n in self.nodes if self.opcodes[n] == "parameter"]
        minor_first = [*extents[: self.output_rank][::-1], 0, 0, 0]
        work = self.tensors[self.main].elements * (self.depth or 1)
        read = sum(self.tensors[node].bytes for node in parameters)
        operands = [self.tensors[node].bytes for node in self.main_operands]
        kinds = (*WORK_ORDER, "broadcast", "elementwise", "other")
        logs = {
            **{f"extent_{i}": extents[i] for i in range(6)},
            **{f"extent_last{i}": minor_first[i] for i in range(3)},
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
            **{f"kernel__is_{name}__flag": self.classes[self.main] == name for name in kinds},
            **{f"kernel__{what}__log": log2(1 + value) for what, value in logs.items()},
            "kernel__reduces_minor__flag": self.reduces_minor,
            "kernel__physical__flag": self.physical,
        }
