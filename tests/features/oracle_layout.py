"""Layout and graph columns the slow and obvious way: plain loops over the full arrays, and networkx.

Nothing of the code under test is used, apart from which tensor a slot speaks of, which is handed in (it has
its own tests). Every column is written from its meaning: a quantity of one configuration is summed over the
configurable nodes (or connected pairs) of that configuration, one by one, on ``node_config_feat`` as it is in
the file.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import ceil, log, log2, prod

import networkx as nx
import numpy as np

from data.schema import NODE_COLUMN, OPCODES

Columns = dict[str, list[float]]

SLOTS = ("output", "input", "kernel")
HOPS = (1, 2, 3)
LANES, SUBLANES = 128, 8

BYTES = {
    **dict.fromkeys(("pred", "s8", "u8"), 1),
    **dict.fromkeys(("s16", "u16", "f16", "bf16"), 2),
    **dict.fromkeys(("s32", "u32", "f32"), 4),
    **dict.fromkeys(("s64", "u64", "f64", "c64"), 8),
    "c128": 16,
    **dict.fromkeys(("invalid_type", "tuple", "opaque_type", "token"), 0),
}
ELEMENT_TYPES = (
    *("invalid_type", "pred", "s8", "s16", "s32", "s64", "u8", "u16", "u32", "u64", "f16", "f32", "f64", "bf16"),
    *("c64", "c128", "tuple", "opaque_type", "token"),
)
#: The opcodes that occur in the tests, the sample and a few real files; any other one is a KeyError: add it.
CLASS_OF = {
    "convolution": "convolution",
    "dot": "dot",
    **dict.fromkeys(("reshape", "bitcast", "bitcast-convert"), "reshape"),
    **dict.fromkeys(("transpose", "copy", "reverse"), "transpose"),
    **dict.fromkeys(("reduce", "reduce-window", "select-and-scatter", "sort"), "reduce"),
    **dict.fromkeys(("broadcast", "iota", "constant", "rng", "rng-bit-generator"), "broadcast"),
    **dict.fromkeys(("slice", "dynamic-slice", "dynamic-update-slice", "concatenate"), "slice"),
    **dict.fromkeys(("pad", "gather", "scatter"), "slice"),
    **dict.fromkeys(("add", "multiply", "subtract", "divide", "maximum", "minimum"), "elementwise"),
    **dict.fromkeys(("tanh", "exponential", "select", "compare", "convert", "negate"), "elementwise"),
    **dict.fromkeys(("log", "rsqrt", "sqrt", "and", "or", "not", "xor", "power", "abs"), "elementwise"),
    **dict.fromkeys(("clamp", "logistic", "count-leading-zeros", "shift-left"), "elementwise"),
    **dict.fromkeys(("shift-right-arithmetic", "shift-right-logical"), "elementwise"),
    **dict.fromkeys(("parameter", "tuple", "get-tuple-element", "fusion", "all-reduce", "call"), "other"),
    **dict.fromkeys(("custom-call", "while", "conditional", "after-all", "infeed", "outfeed"), "other"),
}
CLASSES = (*("convolution", "dot", "reshape", "transpose", "reduce", "broadcast", "slice", "elementwise", "other"),)


@dataclass(frozen=True)
class Tensor:
    """The output of one node: sizes, default minor-to-major order, bytes of an element."""

    dims: tuple[int, ...]
    default: tuple[int, ...]
    element_bytes: int

    @property
    def elements(self) -> int:
        return prod(self.dims)

    @property
    def bytes(self) -> int:
        return self.elements * self.element_bytes

    @property
    def rank(self) -> int:
        return len(self.dims)

    def complete(self, given: Sequence[int]) -> tuple[int, ...]:
        """The dimensions named, then the others as in the default."""
        return (*given, *(dimension for dimension in self.default if dimension not in given))

    def waste(self, layout: Sequence[int]) -> float:
        """Padded over true size, minus 1."""
        stored = list(self.dims)
        for dimension, multiple in zip(layout, (LANES, SUBLANES), strict=False):
            stored[dimension] = ceil(self.dims[dimension] / multiple) * multiple
        return prod(stored) / self.elements - 1

    def violates(self, layout: Sequence[int]) -> bool:
        return self.rank > 0 and max(self.dims) > self.dims[layout[0]]

    def misses_lanes(self, layout: Sequence[int]) -> bool:
        return self.rank > 0 and self.dims[layout[0]] % LANES != 0

    def misses_sublanes(self, layout: Sequence[int]) -> bool:
        return self.rank > 1 and self.dims[layout[1]] % SUBLANES != 0

    def distance(self, layout: Sequence[int]) -> float:
        """Share of pairs of dimensions ordered unlike the default."""
        pairs = list(combinations(range(self.rank), 2))
        place, usual = list(layout).index, list(self.default).index
        unlike = sum((place(a) < place(b)) != (usual(a) < usual(b)) for a, b in pairs)
        return unlike / len(pairs) if pairs else 0.0


@dataclass(frozen=True)
class Choice:
    """What one slot of one node is laid out as in one configuration."""

    tensor: Tensor
    given: tuple[int, ...]

    @property
    def layout(self) -> tuple[int, ...]:
        return self.tensor.complete(self.given)

    @property
    def changed(self) -> bool:
        return self.layout != self.tensor.default


class Program:
    """A graph file's nodes, one by one."""

    def __init__(self, arrays: Mapping[str, np.ndarray]) -> None:
        feat = arrays["node_feat"]
        self.nodes = range(len(feat))
        self.edges = [(int(consumer), int(operand)) for consumer, operand in arrays["edge_index"]]
        self.opcodes = [OPCODES[int(opcode)] for opcode in arrays["node_opcode"]]
        self.classes = [CLASS_OF[opcode] for opcode in self.opcodes]
        self.tensors = [_tensor(row) for row in feat]
        self.roots = [bool(row[NODE_COLUMN["is_root"]] > 0) for row in feat]
        self.operands: nx.DiGraph = nx.DiGraph()
        self.operands.add_nodes_from(self.nodes)
        self.operands.add_edges_from(self.edges)
        self.neighbours = self.operands.to_undirected()

    def around(self, node: int, hop: int) -> list[int]:
        """Nodes exactly ``hop`` edges away, in either direction."""
        near = nx.single_source_shortest_path_length(self.neighbours, node, cutoff=hop)
        return [other for other, distance in near.items() if distance == hop]

    def graph_columns(self) -> dict[str, float]:
        """Columns of any kind of graph."""
        nodes, total = len(self.nodes), sum(tensor.bytes for tensor in self.tensors)
        # Levels from the parameters up: the longest path down to a node without operands.
        level = dict.fromkeys(self.nodes, 0)
        for node in reversed(list(nx.topological_sort(self.operands))):
            level[node] = max((level[operand] + 1 for operand in self.operands.successors(node)), default=0)
        depth = nx.dag_longest_path_length(self.operands)
        widest = max(sum(level[node] == stage for node in self.nodes) for stage in range(depth + 1))
        narrow = sum(tensor.bytes for tensor in self.tensors if tensor.element_bytes <= 2)
        columns = {
            "size__nodes__log": log2(1 + nodes),
            "size__edges__log": log2(1 + len(self.edges)),
            "size__depth__log": log2(1 + depth),
            "size__depth__ratio": depth / nodes,
            "size__width__max": widest / nodes,
            "size__roots__share": sum(self.roots) / nodes,
            "size__bytes__log": log2(1 + total),
            "size__bytes__max": max(tensor.bytes for tensor in self.tensors) / max(1, total),
            "size__rank__mean": sum(tensor.rank for tensor in self.tensors) / nodes,
            "size__narrow__share": narrow / max(1, total),
        }
        for name in CLASSES:
            own = sum(self.tensors[node].bytes for node in self.nodes if self.classes[node] == name)
            columns[f"size__{name}_bytes__share"] = own / max(1, total)
        for opcode in OPCODES:
            if opcode not in ("trace", "tuple-select"):
                share = self.opcodes.count(opcode) / nodes
                columns[f"opcodes__{opcode.replace('-', '_')}__share"] = share
        operands = [sum(consumer == node for consumer, _ in self.edges) for node in self.nodes]
        consumers = [sum(operand == node for _, operand in self.edges) for node in self.nodes]
        both = [a + b for a, b in zip(operands, consumers, strict=True)]
        for direction, degrees in (("in", operands), ("out", consumers), ("total", both)):
            mean = sum(degrees) / nodes
            columns[f"degrees__{direction}__mean"] = mean
            columns[f"degrees__{direction}__std"] = (sum((d - mean) ** 2 for d in degrees) / nodes) ** 0.5
            columns[f"degrees__{direction}__max"] = max(degrees)
            for percent in (25, 50, 75, 90, 99):
                columns[f"degrees__{direction}__q{percent}"] = _quantile(degrees, percent / 100)
        return columns


def _tensor(row: np.ndarray) -> Tensor:
    dims = [int(row[NODE_COLUMN[f"shape_dimensions_{i}"]]) for i in range(6)]
    default = [int(row[NODE_COLUMN[f"layout_minor_to_major_{i}"]]) for i in range(6)]
    rank = max((i + 1 for i in range(6) if dims[i] > 0), default=0)
    if any(default):
        rank = max(rank, max(default) + 1)
    layout = tuple(default[:rank])
    if sorted(layout) != list(range(rank)):
        layout = tuple(reversed(range(rank)))
    types = [row[NODE_COLUMN[f"shape_element_type_is_{name}"]] for name in ELEMENT_TYPES]
    element = ELEMENT_TYPES[types.index(1)] if 1 in types else "invalid_type"
    return Tensor(tuple(dims[:rank]), layout, BYTES[element])


def _quantile(values: Sequence[float], q: float) -> float:
    """Linear interpolation between the two nearest values in order."""
    ordered, place = sorted(values), q * (len(values) - 1)
    low = int(place)
    high = min(low + 1, len(values) - 1)
    return ordered[low] + (place - low) * (ordered[high] - ordered[low])


class LayoutOracle(Program):
    """A layout graph with what each slot of each configurable node speaks of, -1 for nothing."""

    def __init__(self, arrays: Mapping[str, np.ndarray], slot_tensor: Sequence[Sequence[int]]) -> None:
        super().__init__(arrays)
        self.configurable = [int(node) for node in arrays["node_config_ids"]]
        self.slot_tensor = [[int(tensor) for tensor in slots] for slots in slot_tensor]
        self.full = arrays["node_config_feat"].astype(int)
        first: dict[bytes, int] = {}
        for number, config in enumerate(self.full):
            first.setdefault(config.tobytes(), number)
        #: Distinct configurations in order of first appearance.
        self.distinct = list(first.values())
        self.places = range(len(self.configurable))
        #: Divides sums over configurable nodes.
        self.count = max(1, len(self.configurable))

    def choice(self, config: int, place: int, slot: int) -> Choice | None:
        tensor = self.slot_tensor[place][slot]
        if tensor < 0:
            return None
        entries = self.full[config, place, 6 * slot : 6 * slot + 6].tolist()
        return Choice(self.tensors[tensor], tuple(entry for entry in entries if entry >= 0))

    def config_columns(self) -> Columns:
        """Every column of single configurations, one value for each distinct one."""
        columns: Columns = {}
        choices = {
            (config, place, slot): self.choice(config, place, slot)
            for config in self.distinct
            for place in self.places
            for slot in range(3)
        }
        for config in self.distinct:
            values = {
                **self._change(config, choices),
                **self._padding_and_violation(config, choices),
                **self._disagreement(config, choices),
                **self._neighbourhood(config, choices),
                **self._frequency(config),
            }
            for name, value in values.items():
                columns.setdefault(name, []).append(value)
        columns["candidates__log_frequency__rank"] = ranks(columns["candidates__log_frequency__mean"])
        for ranked in RANKED:
            block, what, how = ranked.split("__")
            columns[f"rank__{block}_{what}__{how}"] = ranks(columns[ranked])
        return columns

    def graph_columns(self) -> dict[str, float]:
        columns = super().graph_columns()
        chosen, nodes = self.configurable, len(self.nodes)
        columns["configurable__nodes__log"] = log2(1 + len(chosen))
        columns["configurable__nodes__share"] = len(chosen) / nodes
        for name in CLASSES:
            own = sum(self.classes[node] == name for node in chosen)
            columns[f"configurable__{name}__share"] = own / self.count
        for hop in HOPS:
            near: set[int] = set()
            for node in chosen:
                near |= set(nx.single_source_shortest_path_length(self.neighbours, node, cutoff=hop))
            columns[f"configurable__within_{hop}hop__share"] = len(near) / nodes
        return columns

    def slot_bytes(self, slot: int) -> float:
        """Bytes of a slot's tensors over all configurable nodes, at least 1."""
        present = [self.slot_tensor[place][slot] for place in self.places]
        return max(1.0, sum(self.tensors[tensor].bytes for tensor in present if tensor >= 0))

    def _of(self, config: int, slot: int, choices: Mapping[tuple[int, int, int], Choice | None]) -> list[Choice]:
        found = (choices[config, place, slot] for place in self.places)
        return [choice for choice in found if choice is not None]

    def _change(self, config: int, choices: Mapping[tuple[int, int, int], Choice | None]) -> dict[str, float]:
        values: dict[str, float] = {}
        for slot, name in enumerate(SLOTS):
            present = self._of(config, slot, choices)
            changed = [choice for choice in present if choice.changed]
            changed_bytes = sum(choice.tensor.bytes for choice in changed)
            values[f"change__{name}_set__share"] = sum(len(choice.given) > 0 for choice in present) / self.count
            values[f"change__{name}_changed__share"] = len(changed) / self.count
            values[f"change__{name}_changed_bytes__share"] = changed_bytes / self.slot_bytes(slot)
            distances = [choice.tensor.distance(choice.layout) for choice in present]
            values[f"change__{name}_distance__mean"] = sum(distances) / self.count
            for opcode_class in CLASSES:
                own = 0
                for place in self.places:
                    choice = choices[config, place, slot]
                    if choice is not None and choice.changed:
                        own += choice.tensor.bytes * (self.classes[self.configurable[place]] == opcode_class)
                values[f"change__{opcode_class}_{name}_bytes__share"] = own / self.slot_bytes(slot)
        nodes_set = nodes_changed = slots_changed = all_bytes = 0
        unlike = {"input": 0, "kernel": 0, "operands": 0}
        unlike_bytes = 0
        for place in self.places:
            output, input_, kernel = slots = [choices[config, place, slot] for slot in range(3)]
            present = [choice for choice in slots if choice is not None]
            nodes_set += any(choice.given for choice in present)
            nodes_changed += any(choice.changed for choice in present)
            slots_changed += sum(choice.changed for choice in present)
            all_bytes += sum(choice.tensor.bytes for choice in present if choice.changed)
            assert output is not None
            if _one_shape_two_layouts(output, input_):
                unlike["input"] += 1
                unlike_bytes += output.tensor.bytes
            unlike["kernel"] += _one_shape_two_layouts(output, kernel)
            unlike["operands"] += _one_shape_two_layouts(input_, kernel)
        total = max(1, sum(tensor.bytes for tensor in self.tensors))
        return {
            **values,
            "change__nodes_set__share": nodes_set / self.count,
            "change__nodes_changed__share": nodes_changed / self.count,
            "change__nodes_changed__log": log2(1 + nodes_changed),
            "change__slots_changed__log": log2(1 + slots_changed),
            "change__all_bytes__log": log2(1 + all_bytes),
            "change__all_bytes__share": all_bytes / total,
            "change__output_unlike_input__share": unlike["input"] / self.count,
            "change__output_unlike_input_bytes__share": unlike_bytes / self.slot_bytes(0),
            "change__output_unlike_kernel__share": unlike["kernel"] / self.count,
            "change__input_unlike_kernel__share": unlike["operands"] / self.count,
        }

    def _padding_and_violation(
        self, config: int, choices: Mapping[tuple[int, int, int], Choice | None]
    ) -> dict[str, float]:
        values: dict[str, float] = {}
        for slot, name in enumerate(SLOTS):
            present, total = self._of(config, slot, choices), self.slot_bytes(slot)
            waste = [choice.tensor.waste(choice.layout) for choice in present]
            usual = [choice.tensor.waste(choice.tensor.default) for choice in present]
            size = [choice.tensor.bytes for choice in present]
            extra = [now - default for now, default in zip(waste, usual, strict=True)]
            stem = f"padding__{name}_waste"
            values[f"{stem}__mean"] = sum(waste) / self.count
            values[f"{stem}__max"] = max(waste, default=0.0)
            values[f"{stem}_bytes__ratio"] = sum(w * b for w, b in zip(waste, size, strict=True)) / total
            values[f"{stem}_change__mean"] = sum(extra) / self.count
            values[f"{stem}_change_bytes__ratio"] = sum(e * b for e, b in zip(extra, size, strict=True)) / total
            judges: dict[str, Callable[[Tensor, Sequence[int]], bool]] = {
                "largest": Tensor.violates,
                "lanes": Tensor.misses_lanes,
                "sublanes": Tensor.misses_sublanes,
            }
            for what, judge in judges.items():
                guilty = [choice for choice in present if judge(choice.tensor, choice.layout)]
                before = sum(judge(choice.tensor, choice.tensor.default) for choice in present)
                stem = f"violation__{name}_{what}"
                values[f"{stem}__share"] = len(guilty) / self.count
                values[f"{stem}_bytes__share"] = sum(choice.tensor.bytes for choice in guilty) / total
                values[f"{stem}_change__share"] = (len(guilty) - before) / self.count
        return values

    def pairs(self, hop: int) -> list[tuple[int, int, int, int]]:
        """(consumer's place, slot, producer's place, bytes of the tensor that the consumer's slot takes).

        The producer is ``hop`` edges below, counted from the consumer over the tensor in the slot, and both
        tensors have one shape with at least one dimension.
        """
        found = []
        for consumer in self.places:
            for slot in (1, 2):
                tensor = self.slot_tensor[consumer][slot]
                if tensor < 0 or not self.tensors[tensor].dims:
                    continue
                below = nx.single_source_shortest_path_length(self.operands, tensor, cutoff=hop - 1)
                for producer, node in enumerate(self.configurable):
                    if below.get(node) == hop - 1 and self.tensors[node].dims == self.tensors[tensor].dims:
                        found.append((consumer, slot, producer, self.tensors[tensor].bytes))
        return found

    def _disagreement(self, config: int, choices: Mapping[tuple[int, int, int], Choice | None]) -> dict[str, float]:
        values: dict[str, float] = {}
        by_class = {(side, name): 0 for side in ("consumer", "producer") for name in CLASSES}
        for hop in HOPS:
            pairs = self.pairs(hop)
            clash = clash_bytes = mismatch = mismatch_bytes = agree = 0
            for consumer, slot, producer, size in pairs:
                wanted, made = choices[config, consumer, slot], choices[config, producer, 0]
                assert wanted is not None and made is not None
                both_set = bool(wanted.given and made.given)
                if wanted.layout != made.layout:
                    mismatch += 1
                    mismatch_bytes += size
                    clash += both_set
                    clash_bytes += both_set * size
                    if hop == 1:
                        by_class["consumer", self.classes[self.configurable[consumer]]] += size
                        by_class["producer", self.classes[self.configurable[producer]]] += size
                else:
                    agree += both_set
            count, total = max(1, len(pairs)), max(1, sum(size for *_, size in pairs))
            values[f"disagreement__clash_{hop}hop__share"] = clash / count
            values[f"disagreement__clash_{hop}hop_bytes__share"] = clash_bytes / total
            values[f"disagreement__mismatch_{hop}hop__share"] = mismatch / count
            values[f"disagreement__mismatch_{hop}hop_bytes__share"] = mismatch_bytes / total
            values[f"disagreement__agree_{hop}hop__share"] = agree / count
            if hop == 1:
                for (side, name), size in by_class.items():
                    values[f"disagreement__{side}_{name}_bytes__share"] = size / total
        return values

    def _neighbourhood(
        self, config: int, choices: Mapping[tuple[int, int, int], Choice | None]
    ) -> dict[str, float]:
        values: dict[str, float] = {}
        changed = [
            any(choice is not None and choice.changed for choice in (choices[config, place, s] for s in range(3)))
            for place in self.places
        ]
        for hop in (1, 2):
            shells = [self.around(node, hop) for node in self.configurable]
            sizes = [sum(self.tensors[node].bytes for node in shell) for shell in shells]
            values[f"neighbourhood__bytes_{hop}hop__share"] = _share(sizes, changed)
            for name in ("convolution", "dot", "reduce", "transpose"):
                counts = [sum(self.classes[node] == name for node in shell) for shell in shells]
                values[f"neighbourhood__{name}_{hop}hop__share"] = _share(counts, changed)
            pairs = [
                (one, other)
                for one, other in combinations(self.places, 2)
                if self.configurable[other] in shells[one]
            ]
            cut = sum(changed[one] != changed[other] for one, other in pairs)
            inside = sum(changed[one] and changed[other] for one, other in pairs)
            values[f"neighbourhood__cut_{hop}hop__share"] = cut / max(1, len(pairs))
            values[f"neighbourhood__inside_{hop}hop__share"] = inside / max(1, len(pairs))
        return values

    def _frequency(self, config: int) -> dict[str, float]:
        logs, unlike = [], []
        for place in self.places:
            same = sum(bool((self.full[other, place] == self.full[config, place]).all()) for other in self.distinct)
            logs.append(log(same / len(self.distinct)))
            unlike.append((len(self.distinct) - same) / max(1, len(self.distinct) - 1))
        return {
            "candidates__log_frequency__mean": sum(logs) / self.count,
            "candidates__log_frequency__min": min(logs, default=0.0),
            "candidates__hamming__mean": sum(unlike) / self.count,
        }


def _one_shape_two_layouts(one: Choice | None, other: Choice | None) -> bool:
    """Whether two tensors that hold data have one shape and different layouts."""
    if one is None or other is None or other.tensor.bytes == 0:
        return False
    return one.tensor.dims == other.tensor.dims and one.layout != other.layout


def _share(quantities: Sequence[float], chosen: Sequence[bool]) -> float:
    return sum(q for q, take in zip(quantities, chosen, strict=True) if take) / max(1, sum(quantities))


RANKED = (
    "change__nodes_set__share",
    "change__nodes_changed__share",
    "change__all_bytes__share",
    "change__output_changed_bytes__share",
    "disagreement__mismatch_1hop_bytes__share",
    "disagreement__clash_1hop_bytes__share",
    "padding__output_waste_bytes__ratio",
    "padding__input_waste_bytes__ratio",
    "violation__output_largest_bytes__share",
)


def ranks(values: Sequence[float]) -> list[float]:
    """0 for the smallest to 1 for the largest, ties at the mean of their places; 0.5 for a lone value.

    Values that float32 cannot tell apart are ties.
    """
    rounded = [float(np.float32(value)) for value in values]
    if len(rounded) == 1:
        return [0.5]
    places = []
    for value in rounded:
        below, equal = sum(other < value for other in rounded), sum(other == value for other in rounded)
        places.append((below + (equal - 1) / 2) / (len(rounded) - 1))
    return places
