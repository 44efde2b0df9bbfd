"""All columns of a layout graph from their meanings, one configuration, node or pair at a time.

No code under test is used but the list of columns that are ranked, the tensor of each slot and the
tied nodes; the last two are arguments, with tests of their own. Programs, copies and times have
their own files.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import permutations, product
from math import inf, log, log2
from statistics import fmean, pstdev

import networkx as nx
import numpy as np

from tests.features.oracle_configs import SLOTS, Columns, Configuration, Configured, Copies
from tests.features.oracle_program import CLASSES, dot_roles, fused_away, reshape_roles
from tests.features.oracle_time import fastest_time, time_columns
from xlarank.features.layout.tied_nodes import TiedNode
from xlarank.features.listwise import RANK_SOURCES

REACH = 5
HEAVY = ("convolution", "dot", "reduce", "transpose")
MINOR_SIZES = {1: (1, 1), 2: (2, 7), 8: (8, 31), 32: (32, 127), 128: (128, 511), 512: (512, inf)}


def change_columns(graph: Configured, config: Configuration) -> dict[str, float]:
    values: dict[str, float] = {}
    for slot, name in enumerate(SLOTS):
        present = config.present(slot)
        total = graph.slot_bytes(slot)
        size = [c.tensor.bytes for c in present]
        changed = [c.changed for c in present]
        minor = [c.tensor.rank > 0 and c.layout[0] != c.tensor.default[0] for c in present]
        distance = [c.tensor.distance(c.layout) for c in present]
        scattered = [1 - c.tensor.contiguity(c.layout) for c in present]
        values |= {
            f"change__{name}_set__share": sum(bool(c.given) for c in present) / graph.count,
            f"change__{name}_changed__share": sum(changed) / graph.count,
            f"change__{name}_minor_changed__share": sum(minor) / graph.count,
            f"change__{name}_distance__mean": sum(distance) / graph.count,
            f"change__{name}_changed_bytes__share": dot(changed, size) / total,
            f"change__{name}_minor_changed_bytes__share": dot(minor, size) / total,
            f"change__{name}_scattered_bytes__share": dot(scattered, size) / total,
        }
    everything = [choice for slot in range(3) for choice in config.present(slot)]
    nodes_set = sum(any(c is not None and c.given for c in slots) for slots in config.choices)
    nodes_changed = sum(config.changed(place) for place in graph.places)
    all_bytes = sum(choice.tensor.bytes for choice in everything if choice.changed)
    return {
        **values,
        "change__nodes_set__share": nodes_set / graph.count,
        "change__nodes_changed__share": nodes_changed / graph.count,
        "change__nodes_changed__log": log2(1 + nodes_changed),
        "change__slots_changed__log": log2(1 + sum(choice.changed for choice in everything)),
        "change__all_bytes__log": log2(1 + all_bytes),
        "change__all_bytes__ratio": all_bytes / max(1, graph.bytes),
    }


def violation_columns(graph: Configured, config: Configuration) -> dict[str, float]:
    values: dict[str, float] = {}
    for slot, name in enumerate(SLOTS):
        present = config.present(slot)
        before = [c.tensor.misfits(c.tensor.default) for c in present]
        for what in ("largest", "lanes", "sublanes"):
            misfits = [c.tensor.bytes for c in present if c.tensor.misfits(c.layout)[what]]
            change = len(misfits) - sum(default[what] for default in before)
            values[f"violation__{name}_{what}__share"] = len(misfits) / graph.count
            values[f"violation__{name}_{what}_bytes__share"] = sum(misfits) / graph.slot_bytes(slot)
            values[f"violation__{name}_{what}_change__share"] = change / graph.count
    return values


def padding_columns(graph: Configured, config: Configuration) -> dict[str, float]:
    values: dict[str, float] = {}
    for slot, name in enumerate(SLOTS):
        stem = f"padding__{name}_waste"
        total = graph.slot_bytes(slot)
        present = config.present(slot)
        size = [c.tensor.bytes for c in present]
        now = [c.tensor.waste(c.layout) for c in present]
        before = [c.tensor.waste(c.tensor.default) for c in present]
        extra = [after - waste for after, waste in zip(now, before, strict=True)]
        values |= {
            f"{stem}__mean": sum(now) / graph.count,
            f"{stem}__max": max(now, default=0.0),
            f"{stem}_bytes__ratio": dot(now, size) / total,
            f"{stem}_change__mean": sum(extra) / graph.count,
            f"{stem}_change_bytes__ratio": dot(extra, size) / total,
        }
    return values


def type_columns(graph: Configured, config: Configuration) -> dict[str, float]:
    """Histograms of nodes by minor-most size."""
    values: dict[str, float] = {}
    for slot, name in enumerate(SLOTS):
        arrays = [choice for choice in config.present(slot) if choice.tensor.rank]
        for low, (least, most) in MINOR_SIZES.items():
            size = [c.tensor.bytes for c in arrays if least <= c.tensor.dims[c.layout[0]] <= most]
            stem = f"types__{name}_minor_from{low}"
            values[f"{stem}__share"] = len(size) / graph.count
            values[f"{stem}_bytes__share"] = sum(size) / graph.slot_bytes(slot)
    return values


ROLES = {
    "convolution": ("batch", "feature", "spatial"),
    "dot": ("batch", "rows", "contracted"),
    "reshape": ("kept", "split", "merged"),
}
ENDS = ("minor", "second")


def role_columns(graph: Configured, config: Configuration) -> dict[str, float]:
    values: dict[str, float] = {}
    for kind, roles in ROLES.items():
        places = graph.of_kind(kind)
        for slot, name in enumerate(SLOTS[:2] if kind == "reshape" else SLOTS):
            choices = [(config.choices[p][slot], roles_of(graph, p)[slot]) for p in places]
            for role, (at, end) in product(roles, enumerate(ENDS)):
                ranked = [(c, role_of) for c, role_of in choices if c and c.tensor.rank > at]
                size = [c.tensor.bytes for c, role_of in ranked if role_of[c.layout[at]] == role]
                stem = f"roles__{kind}_{name}_{role}_{end}"
                values[f"{stem}__share"] = len(size) / max(1, len(places))
                values[f"{stem}_bytes__share"] = sum(size) / graph.slot_bytes(slot, places)
    return values


def roles_of(graph: Configured, place: int) -> list[list[str]]:
    """Role of each dimension of a node's output, input and kernel."""
    tensors = [graph.slot(place, slot) for slot in range(3)]
    out, left, right = ((() if tensor is None else tensor.dims) for tensor in tensors)
    if graph.kind_of(place) == "dot":
        return dot_roles(out, left, right)
    if graph.kind_of(place) == "reshape":
        return [*reshape_roles(out, left), []]
    roles = []
    for dims, names in (
        (out, ("output_batch", "output_feature")),
        (left, ("input_batch", "input_feature")),
        (right, ("kernel_input_feature", "kernel_output_feature")),
    ):
        node = graph.configurable[place]
        batch, feature = (graph.entry(node, f"convolution_dim_numbers_{n}_dim") for n in names)
        named = {batch: "batch", feature: "feature"}
        roles.append([named.get(d, "spatial") for d in range(len(dims))])
    return roles


def group_columns(
    graph: Configured, config: Configuration, tied: Sequence[TiedNode]
) -> dict[str, float]:
    """Columns of groups of tied nodes, an argument: ties have their own tests."""
    groups: dict[object, list[int]] = {}
    given = []
    turned = []
    for place in graph.places:
        groups.setdefault(tied[place].signature, []).append(place)
        minor = int(config.rows[place, 0])
        orders = tied[place].orders
        given.append(minor >= 0)
        turned.append(minor >= 0 and (minor,) != (orders[0][:1] if orders else ()))
    values: dict[str, float] = {}
    for kind, (what, which) in product(("", *ROLES), {"set": given, "turned": turned}.items()):
        chosen = [g for g in groups.values() if kind in ("", tied[g[0]].signature[0])]
        nodes = [p for places in chosen for p in places if which[p]]
        size = sum(c.tensor.bytes for c in config.present(0, nodes))
        stem = f"groups__{kind}_{what}" if kind else f"groups__{what}"
        if what == "turned" or not kind:
            shares = [fmean(which[p] for p in places) for places in chosen]
            values[f"{stem}__share"] = fmean(shares or [0.0])
        if what == "turned" or kind:
            values[f"{stem}_bytes__share"] = size / graph.slot_bytes(0)
    return values


class OutputOracle:
    """The regions of a graph: components along elementwise operations that keep the shape."""

    def __init__(self, graph: Configured) -> None:
        self.graph = graph
        links = nx.Graph()
        links.add_nodes_from(graph.nodes)
        for consumer, operand in graph.operands.edges:
            dims = graph.tensors[consumer].dims
            alike = dims and graph.tensors[operand].dims == dims
            if graph.classes[consumer] == "elementwise" and alike:
                links.add_edge(consumer, operand)
        parts = [frozenset(part) for part in nx.connected_components(links)]
        self.region = {node: part for part in parts for node in part}
        stored = {node: not fused_away(graph, node) for node in graph.nodes}
        size = {node: stored[node] * graph.tensors[node].bytes for node in graph.nodes}
        self.stored = max(1, sum(size.values()))
        self.bytes = {part: sum(size[node] for node in part) for part in parts}
        #: Of each region (side and role, dimension): what a dimension is to a node that makes or
        #: reads it.
        self.marks: dict[frozenset[int], set[tuple[str, str, int]]] = {
            part: set() for part in parts
        }
        for place in graph.places:
            kind = graph.kind_of(place)
            for slot, roles in enumerate(roles_of(graph, place) if kind in ROLES else ()):
                side = "read" if slot else "made"
                if (tensor := graph.slot_tensor[place][slot]) >= 0:
                    marks = {(side, f"{kind}_{role}", d) for d, role in enumerate(roles)}
                    self.marks[self.region[tensor]] |= marks
        for consumer, operand in graph.operands.edges:
            fewer = graph.tensors[operand].rank - graph.tensors[consumer].rank
            if graph.classes[consumer] == "reduce" and fewer > 0:
                listed = [graph.entry(consumer, f"dimensions_{at}") for at in range(fewer)]
                self.marks[self.region[operand]] |= {("read", "reduced", d) for d in listed}

    def columns(self, config: Configuration) -> dict[str, float]:
        graph = self.graph
        kinds = ("all", *ROLES)
        names = [f"{kind}_{role}" for kind, roles in ROLES.items() for role in roles]
        sides = [*product(("made", "read"), ENDS, names), *product(["read"], ENDS, ["reduced"])]
        ratios = map("_".join, [*product(kinds, ("excess", "own_excess", "padded", "set")), *sides])
        values = {f"outputs__{name}__ratio": 0.0 for name in ratios}
        values |= {f"outputs__{what}__max": 0.0 for what in ("excess", "padded", "waste")}
        for place in graph.places:
            choice = config.choices[place][0]
            if choice is None or not choice.given:
                continue
            part = self.region[graph.configurable[place]]
            tensor = choice.tensor
            waste = choice.tensor.packed(choice.layout)
            own = tensor.bytes / self.stored
            region = max(tensor.bytes, self.bytes[part]) / self.stored
            least = min(map(tensor.packed, permutations(range(tensor.rank), min(2, tensor.rank))))
            over = waste - least
            padded = (1 + waste) * region
            sums = {"excess": over * region, "own_excess": over * own, "padded": padded, "set": own}
            counted = {"all", graph.kind_of(place)} & {*kinds}
            for kind, (what, value) in product(counted, sums.items()):
                values[f"outputs__{kind}_{what}__ratio"] += value
            for what, value in (("excess", over * region), ("padded", padded), ("waste", waste)):
                values[f"outputs__{what}__max"] = max(values[f"outputs__{what}__max"], value)
            for end, dimension in zip(ENDS, choice.layout, strict=False):
                for side, name, marked in self.marks[part]:
                    values[f"outputs__{side}_{end}_{name}__ratio"] += padded * (marked == dimension)
        return values


class Around:
    """The neighbourhoods of a graph, and the columns about them."""

    def __init__(self, graph: Configured) -> None:
        self.graph = graph
        quantities = {}
        for name in HEAVY:
            quantities[name] = {node: float(graph.classes[node] == name) for node in graph.nodes}
        quantities["bytes"] = {node: log2(1 + graph.tensors[node].bytes) for node in graph.nodes}
        #: Column -> the mean for each configurable node.
        self._means: dict[str, list[float]] = {}
        for what, values in quantities.items():
            for hops in (1, 2):
                values = {
                    node: fmean([values[other] for other in graph.neighbours[node]] or [0.0])
                    for node in graph.nodes
                }
                column = f"neighbourhood__around_{what}_{hops}hop__share"
                self._means[column] = [values[node] for node in graph.configurable]

    def columns(self, config: Configuration) -> dict[str, float]:
        changed = [config.changed(place) for place in self.graph.places]
        means = self._means.items()
        return {column: dot(around, changed) / (sum(around) or 1) for column, around in means}


def dot(one: Sequence[float], other: Sequence[float]) -> float:
    return sum(a * b for a, b in zip(one, other, strict=True))


class LayoutOracle(Configured):
    def __init__(
        self,
        arrays: Mapping[str, np.ndarray],
        slot_tensor: Sequence[Sequence[int]],
        tied: Sequence[TiedNode],
    ) -> None:
        super().__init__(arrays, slot_tensor)
        self.tied = tied

    def config_columns(self) -> Columns:
        """Every column of single configurations, one value for each distinct one."""
        rows = []
        parts = (Copies(self).columns, OutputOracle(self).columns, Around(self).columns)
        blocks = [change_columns, violation_columns, type_columns]
        blocks += [role_columns, padding_columns, time_columns]
        for number in self.distinct:
            config = Configuration(self, number)
            values = self._frequency(number)
            for columns in (*(partial(block, self) for block in blocks), *parts):
                values |= columns(config)
            rows.append(values | group_columns(self, config, self.tied))
        return stacked(rows)

    def graph_columns(self) -> dict[str, float]:
        chosen = self.configurable
        nodes = len(self.nodes)
        kinds = [self.classes[node] for node in chosen]
        starts = sorted({0, *self.splits} - {nodes})
        sizes = [end - start for start, end in zip(starts, [*starts[1:], nodes], strict=True)]
        columns = {
            **super().graph_columns(),
            "configurable__nodes__log": log2(1 + len(chosen)),
            "configurable__nodes__share": len(chosen) / nodes,
            "computations__all__log": log2(1 + len(sizes)),
            "computations__largest__share": max(sizes) / nodes,
            "computations__size__log": log2(1 + fmean(sizes)),
            "computations__size__std": pstdev(sizes) / nodes,
            "work__fastest_time__log": fastest_time(self),
        }
        for name in CLASSES:
            columns[f"configurable__{name}__share"] = kinds.count(name) / self.count
        for hop in range(1, REACH + 1):
            distances = partial(nx.single_source_shortest_path_length, self.neighbours, cutoff=hop)
            near = set().union(*map(distances, chosen))
            columns[f"configurable__within_{hop}hop__share"] = len(near) / nodes
        return columns

    def _frequency(self, config: int) -> dict[str, float]:
        logs = []
        unlike = []
        minority = 0
        others = max(1, len(self.distinct) - 1)
        for place in self.places:
            rows = [self.full[other, place].tolist() for other in self.distinct]
            same = rows.count(self.full[config, place].tolist())
            logs.append(log(same / len(rows)))
            unlike.append((len(rows) - same) / others)
            minority += any(rows.count(row) > same for row in rows)
        return {
            "candidates__log_frequency__mean": sum(logs) / self.count,
            "candidates__log_frequency__sum": sum(logs),
            "candidates__log_frequency__min": min(logs, default=0.0),
            "candidates__hamming__mean": sum(unlike) / self.count,
            "candidates__minority__share": minority / self.count,
        }


def stacked(rows: Sequence[Mapping[str, float]]) -> Columns:
    """Columns of all rows, and ranks and scores of the values, as float32 has them.

    Ranks go from 0 for the smallest to 1, ties at the mean of their places, 0.5 for a lone value.
    Scores are (x - mean) / standard deviation; 0 if all are the same but for arithmetic noise.
    """
    columns = {name: [row[name] for row in rows] for name in rows[0]}
    ranked: Columns = {}
    for name in {*RANK_SOURCES.values()} & {*columns}:
        values = [float(np.float32(value)) for value in columns[name]]
        stem = name.replace("__", "_", 1)
        places = [sum(v < own for v in values) + (values.count(own) - 1) / 2 for own in values]
        last = len(values) - 1
        ranked[f"rank__{stem}"] = [place / last for place in places] if last else [0.5]
        spread = pstdev(values)
        mean = fmean(values)
        level = spread <= 1e-6 * max(abs(value) for value in values)
        ranked[f"zscore__{stem}"] = [0.0 if level else (value - mean) / spread for value in values]
    return columns | ranked
