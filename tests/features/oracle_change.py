"""Columns about what a configuration changes and pads, and which sizes and roles it puts where, node by node."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf, log2

from tests.features.oracle_configs import KINDS, SLOTS, Configuration, Configured
from tests.features.oracle_program import CLASSES
from tests.features.oracle_roles import dot_roles, reshape_roles
from tests.features.oracle_tensor import Choice, Tensor

MINOR_SIZES = {1: (1, 1), 2: (2, 7), 8: (8, 31), 32: (32, 127), 128: (128, 511), 512: (512, inf)}


def change_columns(graph: Configured, config: Configuration) -> dict[str, float]:
    values: dict[str, float] = {}
    for slot, name in enumerate(SLOTS):
        total = graph.slot_bytes(slot)
        per_node = dict.fromkeys(("set__share", "changed__share", "distance__mean", "minor_changed__share"), 0.0)
        per_byte = dict.fromkeys(("changed", "minor_changed", "scattered"), 0.0)
        for choice in config.present(slot):
            tensor, layout = choice.tensor, choice.layout
            minor_changed = tensor.rank > 0 and layout[0] != tensor.default[0]
            per_node["set__share"] += bool(choice.given)
            per_node["changed__share"] += choice.changed
            per_node["minor_changed__share"] += minor_changed
            per_node["distance__mean"] += tensor.distance(layout)
            per_byte["changed"] += choice.changed * tensor.bytes
            per_byte["minor_changed"] += minor_changed * tensor.bytes
            per_byte["scattered"] += (1 - tensor.contiguity(layout)) * tensor.bytes
        values |= {f"change__{name}_{what}": value / graph.count for what, value in per_node.items()}
        values |= {f"change__{name}_{what}_bytes__share": value / total for what, value in per_byte.items()}
        for opcode_class in CLASSES:
            places = [place for place in graph.places if graph.class_of(place) == opcode_class]
            own = sum(choice.tensor.bytes for choice in config.present(slot, places) if choice.changed)
            values[f"change__{opcode_class}_{name}_bytes__share"] = own / total
    return {**values, **_whole_nodes(graph, config), **_within_nodes(graph, config)}


def _whole_nodes(graph: Configured, config: Configuration) -> dict[str, float]:
    everything = [choice for slot in range(3) for choice in config.present(slot)]
    nodes_set = sum(any(choice is not None and choice.given for choice in slots) for slots in config.choices)
    nodes_changed = sum(config.changed(place) for place in graph.places)
    all_bytes = sum(choice.tensor.bytes for choice in everything if choice.changed)
    return {
        "change__nodes_set__share": nodes_set / graph.count,
        "change__nodes_changed__share": nodes_changed / graph.count,
        "change__nodes_changed__log": log2(1 + nodes_changed),
        "change__slots_changed__log": log2(1 + sum(choice.changed for choice in everything)),
        "change__all_bytes__log": log2(1 + all_bytes),
        "change__all_bytes__ratio": all_bytes / max(1, graph.bytes),
    }


def _within_nodes(graph: Configured, config: Configuration) -> dict[str, float]:
    unlike = {"output_unlike_input": 0, "output_unlike_kernel": 0, "input_unlike_kernel": 0}
    alike = {"output_set_like_input": 0, "input_set_like_kernel": 0}
    unlike_bytes = 0
    for output, input_, kernel in config.choices:
        assert output is not None
        if _one_shape_two_layouts(output, input_):
            unlike["output_unlike_input"] += 1
            unlike_bytes += output.tensor.bytes
        unlike["output_unlike_kernel"] += _one_shape_two_layouts(output, kernel)
        unlike["input_unlike_kernel"] += _one_shape_two_layouts(input_, kernel)
        alike["output_set_like_input"] += _set_alike(output, input_)
        alike["input_set_like_kernel"] += _set_alike(input_, kernel)
    return {
        **{f"change__{what}__share": count / graph.count for what, count in (unlike | alike).items()},
        "change__output_unlike_input_bytes__share": unlike_bytes / graph.slot_bytes(0),
    }


def _one_shape_two_layouts(one: Choice | None, other: Choice | None) -> bool:
    """Whether two tensors that hold data have one shape and different layouts."""
    if one is None or other is None or other.tensor.bytes == 0:
        return False
    return one.tensor.dims == other.tensor.dims and one.layout != other.layout


def _set_alike(one: Choice | None, other: Choice | None) -> bool:
    return one is not None and other is not None and bool(one.given and other.given) and one.layout == other.layout


def violation_columns(graph: Configured, config: Configuration) -> dict[str, float]:
    values: dict[str, float] = {}
    judges: dict[str, Callable[[Tensor, tuple[int, ...]], bool]] = {
        "largest": Tensor.violates,
        "lanes": Tensor.misses_lanes,
        "sublanes": Tensor.misses_sublanes,
    }
    for slot, name in enumerate(SLOTS):
        present = config.present(slot)
        for what, judge in judges.items():
            guilty = [choice for choice in present if judge(choice.tensor, choice.layout)]
            before = sum(judge(choice.tensor, choice.tensor.default) for choice in present)
            stem = f"violation__{name}_{what}"
            guilty_bytes = sum(choice.tensor.bytes for choice in guilty)
            values[f"{stem}__share"] = len(guilty) / graph.count
            values[f"{stem}_bytes__share"] = guilty_bytes / graph.slot_bytes(slot)
            values[f"{stem}_change__share"] = (len(guilty) - before) / graph.count
    return values


Waste = Callable[[Tensor, Sequence[int]], float]


def padding_columns(graph: Configured, config: Configuration) -> dict[str, float]:
    values: dict[str, float] = {}
    tiles: dict[str, Waste] = {"padding": Tensor.waste, "packed": Tensor.packed}
    for block, waste in tiles.items():
        for slot, name in enumerate(SLOTS):
            whole = _sums(config.present(slot), waste, graph.count, graph.slot_bytes(slot))
            values |= {f"{block}__{name}_{what}": value for what, value in whole.items() if what != "waste__log"}
            for kind in KINDS:
                places = graph.of_kind(kind)
                count, total = max(1, len(places)), graph.slot_bytes(slot, places)
                part = _sums(config.present(slot, places), waste, count, total)
                values |= {f"{block}__{kind}_{name}_{what}": value for what, value in part.items()}
    return values


def _sums(present: Sequence[Choice], waste: Waste, count: int, total: float) -> dict[str, float]:
    now = [waste(choice.tensor, choice.layout) for choice in present]
    usual = [waste(choice.tensor, choice.tensor.default) for choice in present]
    extra = [mine - default for mine, default in zip(now, usual, strict=True)]
    size = [choice.tensor.bytes for choice in present]
    return {
        "waste__log": log2(1 + sum(now)),
        "waste__mean": sum(now) / count,
        "waste__max": max(now, default=0.0),
        "waste_bytes__ratio": sum(w * b for w, b in zip(now, size, strict=True)) / total,
        "waste_change__mean": sum(extra) / count,
        "waste_change_bytes__ratio": sum(w * b for w, b in zip(extra, size, strict=True)) / total,
    }


def type_columns(graph: Configured, config: Configuration) -> dict[str, float]:
    """Histograms of nodes by rank and minor-most dimension, and by minor-most size."""
    values: dict[str, float] = {}
    for kind in KINDS:
        outputs = config.present(0, graph.of_kind(kind))
        for rank in range(2, 7):
            for dimension in range(rank):
                mine = [c for c in outputs if c.tensor.rank == rank and c.layout[0] == dimension]
                values[f"types__{kind}_rank{rank}_minor{dimension}__share"] = len(mine) / graph.count
    for slot, name in enumerate(SLOTS):
        arrays = [choice for choice in config.present(slot) if choice.tensor.rank]
        for low, (least, most) in MINOR_SIZES.items():
            mine = [choice for choice in arrays if least <= choice.tensor.dims[choice.layout[0]] <= most]
            own = sum(choice.tensor.bytes for choice in mine)
            values[f"types__{name}_minor_from{low}__share"] = len(mine) / graph.count
            values[f"types__{name}_minor_from{low}_bytes__share"] = own / graph.slot_bytes(slot)
    return values


# Roles ----------------------------------------------------------------------------------------------------------

ROLES = {
    "convolution": ("batch", "feature", "spatial"),
    "dot": ("batch", "rows", "contracted"),
    "reshape": ("kept", "split", "merged"),
}


def role_columns(graph: Configured, config: Configuration) -> dict[str, float]:
    values: dict[str, float] = {}
    for kind, roles in ROLES.items():
        places = graph.of_kind(kind)
        count = max(1, len(places))
        for slot, name in enumerate(SLOTS[:2] if kind == "reshape" else SLOTS):
            total = graph.slot_bytes(slot, places)
            for role in roles:
                for at, where in enumerate(("minor", "second")):
                    own = own_bytes = 0
                    for place in places:
                        choice = config.choices[place][slot]
                        if choice is None or choice.tensor.rank <= at:
                            continue
                        if roles_of(graph, place)[slot][choice.layout[at]] == role:
                            own += 1
                            own_bytes += choice.tensor.bytes
                    stem = f"roles__{kind}_{name}_{role}_{where}"
                    values[f"{stem}__share"] = own / count
                    values[f"{stem}_bytes__share"] = own_bytes / total
    return values


def roles_of(graph: Configured, place: int) -> list[list[str]]:
    """Role of each dimension of a node's output, input and kernel."""
    tensors = [graph.slot(place, slot) for slot in range(3)]
    out, left, right = ((() if tensor is None else tensor.dims) for tensor in tensors)
    if graph.kind_of(place) == "dot":
        return list(dot_roles(out, left, right))
    if graph.kind_of(place) == "reshape":
        return [*reshape_roles(out, left), []]
    node, stem = graph.configurable[place], "convolution_dim_numbers"
    found = []
    for dims, batch, feature in (
        (out, "output_batch_dim", "output_feature_dim"),
        (left, "input_batch_dim", "input_feature_dim"),
        (right, "kernel_input_feature_dim", "kernel_output_feature_dim"),
    ):
        roles = ["spatial"] * len(dims)
        for role, column in (("batch", batch), ("feature", feature)):
            dimension = graph.entry(node, f"{stem}_{column}")
            if dimension < len(dims):
                roles[dimension] = role
        found.append(roles)
    return found
