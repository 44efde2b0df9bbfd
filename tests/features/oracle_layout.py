"""All columns of a layout graph the slow and obvious way: one configuration, one node, one pair at a time.

Every column is written from its meaning, on ``node_config_feat`` as it is in the file. Nothing of the code under
test is used, apart from the list of columns that are ranked and what has its own tests by hand: which tensor a slot
lays out, the roles of its dimensions, and which nodes are tied. Copies have their own file.
"""

from collections.abc import Sequence
from itertools import combinations, permutations, product
from math import inf, log, log2
from statistics import fmean, pstdev

import networkx as nx
import numpy as np

from tests.features.oracle_configs import (
    KINDS,
    SLOTS,
    Columns,
    Configuration,
    Configured,
    Copies,
    propagation_columns,
    unlike,
)
from tests.features.oracle_program import CLASSES, Choice, Tensor, fused_away
from xlarank.features.candidates import placed_columns

REACH = 5
HEAVY = ("convolution", "dot", "reduce", "transpose")
MINOR_SIZES = {1: (1, 1), 2: (2, 7), 8: (8, 31), 32: (32, 127), 128: (128, 511), 512: (512, inf)}


def shares(
    stem: str, values: Sequence[float], choices: Sequence[Choice], count: int, total: float
) -> dict[str, float]:
    """A value of each choice, added up: over a count, and weighted by bytes over those of all."""
    size = [choice.tensor.bytes for choice in choices]
    return {f"{stem}__share": sum(values) / count, f"{stem}_bytes__share": dot(values, size) / total}


def change_columns(graph: Configured, config: Configuration) -> dict[str, float]:
    values: dict[str, float] = {}
    for slot, name in enumerate(SLOTS):
        present, total, stem = config.present(slot), graph.slot_bytes(slot), f"change__{name}"
        changed = [choice.changed for choice in present]
        minor = [c.tensor.rank > 0 and c.layout[0] != c.tensor.default[0] for c in present]
        distance = [choice.tensor.distance(choice.layout) for choice in present]
        scattered = [1 - choice.tensor.contiguity(choice.layout) for choice in present]
        values |= shares(f"{stem}_changed", changed, present, graph.count, total)
        values |= shares(f"{stem}_minor_changed", minor, present, graph.count, total)
        values[f"{stem}_set__share"] = sum(bool(choice.given) for choice in present) / graph.count
        values[f"{stem}_distance__mean"] = sum(distance) / graph.count
        values[f"{stem}_scattered_bytes__share"] = dot(scattered, [c.tensor.bytes for c in present]) / total
        for kind in CLASSES:
            places = [place for place in graph.places if graph.class_of(place) == kind]
            own = sum(choice.tensor.bytes for choice in config.present(slot, places) if choice.changed)
            values[f"change__{kind}_{name}_bytes__share"] = own / total
    everything = [choice for slot in range(3) for choice in config.present(slot)]
    nodes_set = sum(any(choice is not None and choice.given for choice in slots) for slots in config.choices)
    nodes_changed = sum(config.changed(place) for place in graph.places)
    all_bytes = sum(choice.tensor.bytes for choice in everything if choice.changed)
    return {
        **values,
        **_within_nodes(graph, config),
        "change__nodes_set__share": nodes_set / graph.count,
        "change__nodes_changed__share": nodes_changed / graph.count,
        "change__nodes_changed__log": log2(1 + nodes_changed),
        "change__slots_changed__log": log2(1 + sum(choice.changed for choice in everything)),
        "change__all_bytes__log": log2(1 + all_bytes),
        "change__all_bytes__ratio": all_bytes / max(1, graph.bytes),
    }


def _within_nodes(graph: Configured, config: Configuration) -> dict[str, float]:
    found = dict.fromkeys(("output_unlike_input", "output_unlike_kernel", "input_unlike_kernel"), 0)
    found |= dict.fromkeys(("output_set_like_input", "input_set_like_kernel"), 0)
    unlike_bytes = 0
    for choices in config.choices:
        for (one, mine), (other, yours) in combinations(zip(SLOTS, choices, strict=True), 2):
            if mine is None or yours is None:
                continue
            if yours.tensor.bytes and mine.tensor.dims == yours.tensor.dims and mine.layout != yours.layout:
                found[f"{one}_unlike_{other}"] += 1
                unlike_bytes += mine.tensor.bytes * ((one, other) == SLOTS[:2])
            if mine.given and yours.given and mine.layout == yours.layout and (one, other) != ("output", "kernel"):
                found[f"{one}_set_like_{other}"] += 1
    return {
        **{f"change__{what}__share": count / graph.count for what, count in found.items()},
        "change__output_unlike_input_bytes__share": unlike_bytes / graph.slot_bytes(0),
    }


def violation_columns(graph: Configured, config: Configuration) -> dict[str, float]:
    values: dict[str, float] = {}
    judges = {"largest": Tensor.violates, "lanes": Tensor.misses_lanes, "sublanes": Tensor.misses_sublanes}
    for (slot, name), (what, judge) in product(enumerate(SLOTS), judges.items()):
        present, stem = config.present(slot), f"violation__{name}_{what}"
        now = [judge(choice.tensor, choice.layout) for choice in present]
        before = [judge(choice.tensor, choice.tensor.default) for choice in present]
        values |= shares(stem, now, present, graph.count, graph.slot_bytes(slot))
        values[f"{stem}_change__share"] = (sum(now) - sum(before)) / graph.count
    return values


def padding_columns(graph: Configured, config: Configuration) -> dict[str, float]:
    values: dict[str, float] = {}
    wastes = {"padding": Tensor.waste, "packed": Tensor.packed}
    for (block, waste), (slot, name), kind in product(wastes.items(), enumerate(SLOTS), ("", *KINDS)):
        places = graph.of_kind(kind) if kind else list(graph.places)
        count, total = max(1, len(places)), graph.slot_bytes(slot, places)
        present = config.present(slot, places)
        size = [choice.tensor.bytes for choice in present]
        now = [waste(choice.tensor, choice.layout) for choice in present]
        extra = [padded - waste(c.tensor, c.tensor.default) for padded, c in zip(now, present, strict=True)]
        stem = f"{block}__{kind}_{name}_waste" if kind else f"{block}__{name}_waste"
        values |= {
            f"{stem}__mean": sum(now) / count,
            f"{stem}__max": max(now, default=0.0),
            f"{stem}_bytes__ratio": dot(now, size) / total,
            f"{stem}_change__mean": sum(extra) / count,
            f"{stem}_change_bytes__ratio": dot(extra, size) / total,
        }
        if kind:
            values[f"{stem}__log"] = log2(1 + sum(now))
    return values


def type_columns(graph: Configured, config: Configuration) -> dict[str, float]:
    """Histograms of nodes by rank and minor-most dimension, and by minor-most size."""
    values: dict[str, float] = {}
    for kind, rank in product(KINDS, range(2, 7)):
        minor = [c.layout[0] for c in config.present(0, graph.of_kind(kind)) if c.tensor.rank == rank]
        for dimension in range(rank):
            values[f"types__{kind}_rank{rank}_minor{dimension}__share"] = minor.count(dimension) / graph.count
    for (slot, name), (low, (least, most)) in product(enumerate(SLOTS), MINOR_SIZES.items()):
        arrays = [choice for choice in config.present(slot) if choice.tensor.rank]
        within = [least <= c.tensor.dims[c.layout[0]] <= most for c in arrays]
        values |= shares(f"types__{name}_minor_from{low}", within, arrays, graph.count, graph.slot_bytes(slot))
    return values


ROLES = {
    "convolution": ("batch", "feature", "spatial"),
    "dot": ("batch", "rows", "contracted"),
    "reshape": ("kept", "split", "merged"),
}
ENDS = ("minor", "second")


def role_columns(graph: Configured, config: Configuration) -> dict[str, float]:
    values: dict[str, float] = {}
    for kind, (slot, name), (at, end) in product(ROLES, enumerate(SLOTS), enumerate(ENDS)):
        if (kind, name) == ("reshape", "kernel"):
            continue
        places = graph.of_kind(kind)
        there = [(place, choice) for place in places if (choice := config.choices[place][slot]) is not None]
        there = [(place, choice) for place, choice in there if choice.tensor.rank > at]
        found = [roles_of(graph, place)[slot][choice.layout[at]] for place, choice in there]
        choices, total = [choice for _, choice in there], graph.slot_bytes(slot, places)
        for role in ROLES[kind]:
            same = [each == role for each in found]
            values |= shares(f"roles__{kind}_{name}_{role}_{end}", same, choices, max(1, len(places)), total)
    return values


def roles_of(graph: Configured, place: int) -> list[list[str]]:
    """Role of each dimension of a node's output, input and kernel."""
    names = ROLES[graph.kind_of(place)]
    return [[names[role] for role in roles if role >= 0] for roles in graph.roles[place]]


def group_columns(graph: Configured, config: Configuration) -> dict[str, float]:
    tied = graph.tied
    groups: dict[object, list[int]] = {}
    given, turned = [], []
    for place in graph.places:
        groups.setdefault(tied[place].signature, []).append(place)
        minor, orders = int(config.rows[place, 0]), tied[place].orders
        given.append(minor >= 0)
        turned.append(minor >= 0 and (minor,) != (orders[0][:1] if orders else ()))

    def columns(stem: str, which: Sequence[bool], kinds: Sequence[str]) -> dict[str, float]:
        chosen = [places for places in groups.values() if not kinds or tied[places[0]].signature[0] in kinds]
        shares = [fmean(which[place] for place in places) for places in chosen]
        tensors = [graph.slot(place, 0) for places in chosen for place in places if which[place]]
        size = sum(tensor.bytes for tensor in tensors if tensor is not None)
        return {f"{stem}__share": fmean(shares or [0.0]), f"{stem}_bytes__share": size / graph.slot_bytes(0)}

    values = columns("groups__set", given, ()) | columns("groups__turned", turned, ())
    for kind in ROLES:
        values |= columns(f"groups__{kind}_turned", turned, [kind]) | columns(f"groups__{kind}_set", given, [kind])
    return {name: value for name, value in values.items() if name not in LEFT_OUT}


LEFT_OUT = ("groups__set_bytes__share", *(f"groups__{kind}_set__share" for kind in ROLES))


class OutputOracle:
    """The regions of a graph: components along elementwise operations whose operand has their shape."""

    def __init__(self, graph: Configured) -> None:
        self.graph = graph
        links = nx.Graph()
        links.add_nodes_from(graph.nodes)
        for consumer, operand in graph.operands.edges:
            dims = graph.tensors[consumer].dims
            if graph.classes[consumer] == "elementwise" and dims and graph.tensors[operand].dims == dims:
                links.add_edge(consumer, operand)
        parts = [frozenset(part) for part in nx.connected_components(links)]
        self.region = {node: part for part in parts for node in part}
        size = {node: 0 if fused_away(graph, node) else graph.tensors[node].bytes for node in graph.nodes}
        self.stored = max(1, sum(size.values()))
        self.bytes = {part: sum(size[node] for node in part) for part in parts}
        #: Of each region (side and role, dimension): what a dimension is to a node that makes or reads it.
        self.marks: dict[frozenset[int], set[tuple[str, str, int]]] = {part: set() for part in parts}
        for place in graph.places:
            kind = graph.kind_of(place)
            for slot, roles in enumerate(roles_of(graph, place) if kind in ROLES else ()):
                if (tensor := graph.slot_tensor[place][slot]) >= 0:
                    marks = {("read" if slot else "made", f"{kind}_{role}", d) for d, role in enumerate(roles)}
                    self.marks[self.region[tensor]] |= marks
        for consumer, operand in graph.operands.edges:
            fewer = graph.tensors[operand].rank - graph.tensors[consumer].rank
            if graph.classes[consumer] == "reduce" and fewer > 0:
                listed = {("read", "reduced", graph.entry(consumer, f"dimensions_{at}")) for at in range(fewer)}
                self.marks[self.region[operand]] |= listed

    def columns(self, config: Configuration) -> dict[str, float]:
        graph, kinds = self.graph, ("all", *ROLES)
        whole = product(kinds, ("excess", "own_excess", "padded", "set"))
        names = [f"{kind}_{role}" for kind, roles in ROLES.items() for role in roles]
        sides = [f"{side}_{end}_{name}" for side, end, name in product(("made", "read"), ENDS, names)]
        sides += [f"read_{end}_reduced" for end in ENDS]
        values = {f"outputs__{name}__ratio": 0.0 for name in (*map("_".join, whole), *sides)}
        values |= {f"outputs__{what}__max": 0.0 for what in ("excess", "padded", "waste")}
        for place in graph.places:
            choice = config.choices[place][0]
            if choice is None or not choice.given:
                continue
            part = self.region[graph.configurable[place]]
            own = choice.tensor.bytes / self.stored
            region = max(choice.tensor.bytes, self.bytes[part]) / self.stored
            waste = choice.tensor.packed(choice.layout)
            excess, padded = (waste - least(choice.tensor)) * region, (1 + waste) * region
            sums = {"excess": excess, "padded": padded, "set": own}
            sums["own_excess"] = (waste - least(choice.tensor)) * own
            for kind, (what, value) in product({"all", graph.kind_of(place)} & {*kinds}, sums.items()):
                values[f"outputs__{kind}_{what}__ratio"] += value
            for what, value in (("excess", excess), ("padded", padded), ("waste", waste)):
                values[f"outputs__{what}__max"] = max(values[f"outputs__{what}__max"], value)
            for end, dimension in zip(ENDS, choice.layout, strict=False):
                for side, name, marked in self.marks[part]:
                    values[f"outputs__{side}_{end}_{name}__ratio"] += padded * (marked == dimension)
        return values


def least(tensor: Tensor) -> float:
    """Padding of the layout that pads least."""
    if tensor.rank < 2:
        return tensor.packed(tensor.default)
    return min(tensor.packed(order) for order in permutations(range(tensor.rank), 2))


class Around:
    """The neighbourhoods of a graph, and the columns about them."""

    def __init__(self, copies: Copies) -> None:
        self.copies = copies
        self.graph = graph = copies.graph
        quantities = {"bytes": {node: log2(1 + graph.tensors[node].bytes) for node in graph.nodes}}
        for name in HEAVY:
            quantities[name] = {node: float(graph.classes[node] == name) for node in graph.nodes}
        ways = {
            "down": graph.operands.successors,
            "up": graph.operands.predecessors,
            "around": graph.neighbours.neighbors,
        }
        #: Column -> the mean for each configurable node.
        self._means: dict[str, list[float]] = {}
        for (direction, near), (what, values) in product(ways.items(), quantities.items()):
            for hops in (1, 2):
                values = {node: fmean([values[other] for other in near(node)] or [0.0]) for node in graph.nodes}
                column = f"neighbourhood__{direction}_{what}_{hops}hop__share"
                self._means[column] = [values[node] for node in graph.configurable]
        #: Hops -> ordered pairs of places that many edges apart.
        self._near: dict[int, list[tuple[int, int]]] = {}
        for hops in (1, 2):
            shells = [set(graph.around(node, hops)) for node in graph.configurable]
            pairs = permutations(graph.places, 2)
            self._near[hops] = [(one, other) for one, other in pairs if graph.configurable[other] in shells[one]]

    def columns(self, config: Configuration) -> dict[str, float]:
        graph = self.graph
        changed = [config.changed(place) for place in graph.places]
        values = {}
        for column, around in self._means.items():
            met = sum(mean for mean, is_changed in zip(around, changed, strict=True) if is_changed)
            values[column] = met / (sum(around) or 1)
        waste = [
            (choice.tensor.waste(choice.layout) - choice.tensor.waste(choice.tensor.default)) * choice.tensor.bytes
            for choice in config.present(0)
        ]
        straight = [pair for pair in self.copies.pairs if pair.straight]
        mismatch = [0] * len(changed)
        for pair in straight:
            mismatch[pair.left] += pair.bytes * unlike(pair, config)
        for hops, pairs in self._near.items():
            count = max(1, len(pairs))
            mark, changed_around = f"_{hops}hop", [0] * len(changed)
            for one, other in pairs:
                changed_around[one] += changed[other]
            cut = sum(changed[one] != changed[other] for one, other in pairs)
            inside = sum(changed[one] and changed[other] for one, other in pairs)
            values[f"neighbourhood__cut{mark}__share"] = cut / count
            values[f"neighbourhood__inside{mark}__share"] = inside / count
            values[f"neighbourhood__waste{mark}__ratio"] = dot(waste, changed_around) / graph.slot_bytes(0)
            handed_on = max(1, sum(pair.bytes for pair in straight))
            values[f"neighbourhood__mismatch{mark}__ratio"] = dot(mismatch, changed_around) / handed_on
        return values


def dot(one: Sequence[float], other: Sequence[float]) -> float:
    return sum(a * b for a, b in zip(one, other, strict=True))


class LayoutOracle(Configured):
    """A layout graph's columns."""

    def config_columns(self) -> Columns:
        """Every column of single configurations, one value for each distinct one."""
        columns: Columns = {}
        copies = Copies(self)
        around = Around(copies)
        outputs = OutputOracle(self)
        for number in self.distinct:
            config = Configuration(self, number)
            values = {
                **change_columns(self, config),
                **violation_columns(self, config),
                **type_columns(self, config),
                **role_columns(self, config),
                **padding_columns(self, config),
                **outputs.columns(config),
                **copies.columns(config),
                **propagation_columns(copies, config),
                **around.columns(config),
                **group_columns(self, config),
                **self._frequency(number),
            }
            for name, value in values.items():
                columns.setdefault(name, []).append(value)
        return columns | placed(columns)

    def graph_columns(self) -> dict[str, float]:
        chosen, nodes = self.configurable, len(self.nodes)
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
        }
        for name in CLASSES:
            own = sum(self.classes[node] == name for node in chosen)
            columns[f"configurable__{name}__share"] = own / self.count
        for hop in range(1, REACH + 1):
            near = [nx.single_source_shortest_path_length(self.neighbours, node, cutoff=hop) for node in chosen]
            columns[f"configurable__within_{hop}hop__share"] = len(set().union(*near)) / nodes
        return columns

    def _frequency(self, config: int) -> dict[str, float]:
        logs, unlike, minority = [], [], 0
        others = max(1, len(self.distinct) - 1)
        for place in self.places:
            rows = [tuple(self.full[other, place].tolist()) for other in self.distinct]
            same = rows.count(tuple(self.full[config, place].tolist()))
            logs.append(log(same / len(rows)))
            unlike.append((len(rows) - same) / others)
            minority += any(rows.count(row) > same for row in set(rows))
        return {
            "candidates__log_frequency__mean": sum(logs) / self.count,
            "candidates__log_frequency__sum": sum(logs),
            "candidates__log_frequency__min": min(logs, default=0.0),
            "candidates__hamming__mean": sum(unlike) / self.count,
            "candidates__minority__share": minority / self.count,
        }


def placed(columns: Columns) -> Columns:
    """Where the values of columns stand among themselves, as float32 has them.

    Ranks go from 0 for the smallest to 1, ties at the mean of their places, 0.5 for a lone value. Scores are
    (x - mean) / standard deviation; 0 where all are the same but for arithmetic noise.
    """
    found: Columns = {}
    for name in {name for name in placed_columns().values() if name in columns}:
        values, stem = [float(np.float32(value)) for value in columns[name]], name.replace("__", "_", 1)
        places = [sum(v < value for v in values) + (values.count(value) - 1) / 2 for value in values]
        found[f"rank__{stem}"] = [place / (len(values) - 1) for place in places] if len(values) > 1 else [0.5]
        spread, mean = pstdev(values), fmean(values)
        level = spread <= 1e-6 * max(abs(value) for value in values)
        found[f"zscore__{stem}"] = [0.0 if level else (value - mean) / spread for value in values]
    return found
