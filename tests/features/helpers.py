"""Graphs for the feature tests, among them random ones that make sense, and columns by name."""

import tempfile
from collections.abc import Mapping, Sequence
from math import prod
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
from hypothesis import strategies as st

from tests.graphs import Arrays, Node, layout_row, program_arrays, relabelled, save_npz, tile_row
from xlarank.data.graph import read_graph
from xlarank.features.rows import GraphRows

SAMPLE = Path(__file__).parents[2] / "data" / "sample" / "npz"


def graph_of(arrays: Mapping[str, np.ndarray]) -> Any:
    """The graph read back from arrays written to a file."""
    with tempfile.TemporaryDirectory() as folder:
        return read_graph(save_npz(Path(folder) / "graph.npz", arrays, compressed=False))


def load(path: Path) -> Arrays:
    with np.load(path) as archive:
        return {name: archive[name] for name in archive.files}


def by_name(features: GraphRows) -> dict[str, Any]:
    """Float32 columns by name: a value of the graph, or one for each distinct configuration."""
    values = (*features.graph_values, *features.config_values.T)
    return dict(zip(features.columns, values, strict=True))


def wrong_columns(
    features: GraphRows,
    expected: Mapping[str, object],
    absolute: float = 1e-7,
    relative: float = 1e-6,
) -> list[str]:
    """Columns with unexpected values, and these values."""
    actual = by_name(features)
    wrong = []
    for name, values in expected.items():
        if not np.allclose(actual[name], values, rtol=relative, atol=absolute):
            wrong.append(f"{name}: {actual[name]}, expected {values}")
    return wrong


def layout_file(
    nodes: Sequence[Node], configurable: Sequence[int], configs: Sequence[Sequence[np.ndarray]]
) -> Arrays:
    """A layout graph from rows ``configs[c][k]`` of configuration c and k-th configurable node."""
    shape = len(configs), len(configurable), 18
    return program_arrays(nodes) | {
        "node_splits": np.array([[0, len(nodes)]], np.int64),
        "node_config_ids": np.array(configurable, np.int64),
        "node_config_feat": np.array(configs, np.float32).reshape(shape),
        "config_runtime": np.arange(1, len(configs) + 1),
    }


def tile_file(nodes: Sequence[Node], configs: Sequence[np.ndarray]) -> Arrays:
    """A tile graph from rows as `tests.graphs.tile_row` makes them."""
    return program_arrays(nodes) | {
        "config_feat": np.stack(configs),
        "config_runtime": np.arange(1, len(configs) + 1),
        "config_runtime_normalizers": np.ones(len(configs), np.int64),
    }


_SIZES = (1, 2, 2, 4, 4, 6, 8, 12, 16, 128, 130)
_ELEMENTS = ("f32", "f32", "f32", "bf16", "s8", "f64", "pred")
_KEEPING = ("tanh", "copy", "convert", "negate", "reverse", "all-reduce", "collective-permute")
_BINARY = ("add", "multiply", "select")
_STEM = "convolution_dim_numbers"
#: Most elements of a tensor of a dot.
_MOST = 1 << 22


class _Draft:
    """Part of a random program with consistent shapes; a method adds nodes if some fit.

    Graphs come from seeds: hypothesis would draw small and simple ones far too often.
    """

    def __init__(self, random: Random) -> None:
        self.random = random
        self.nodes: list[Node] = []
        self.parameter()

    def add(
        self, opcode: str, dims: Sequence[int], operands: Sequence[int] = (), **more: Any
    ) -> int:
        # The format cannot say that [0] has a dimension.
        dims = (0, 2) if tuple(dims) == (0,) else dims
        layout = tuple(self.shuffled(range(len(dims)))) if self.random.random() < 0.3 else None
        layout = () if self.random.random() < 0.1 else layout  # no default known
        if self.random.random() < 0.1:
            more["columns"] = {**more.get("columns", {}), "is_root": 1.0}
        element = more.pop("element", None) or self.random.choice(_ELEMENTS)
        self.nodes.append(Node(opcode, tuple(dims), tuple(operands), element, layout, **more))
        return len(self.nodes) - 1

    def shuffled(self, values: Sequence[int]) -> list[int]:
        return self.random.sample(values, len(values))

    def sizes(self, least: int, most: int) -> list[int]:
        return [self.random.choice(_SIZES) for _ in range(self.random.randint(least, most))]

    def pick(self, *, least: int = 0, most: int = 6) -> int:
        """A recent node with an output of such a rank, or a new parameter of rank 2 or 3."""
        arrays = [n for n, node in enumerate(self.nodes) if node.opcode != "tuple"]
        fit = [n for n in arrays if least <= len(self.dims(n)) <= most]
        return self.random.choice(fit[-4:]) if fit else self.add("parameter", self.sizes(2, 3))

    def dims(self, node: int) -> tuple[int, ...]:
        return self.nodes[node].dims

    def parameter(self) -> None:
        rank = self.random.choice((0, 1, 2, 2, 3, 3, 4))
        empty = [0] if self.random.random() < 0.05 else []
        self.add("parameter", [*empty, *self.sizes(rank, rank)])

    def keeping(self) -> None:
        operand = self.pick()
        self.add(self.random.choice(_KEEPING), self.dims(operand), [operand])

    def binary(self) -> None:
        """An operation of two tensors of one shape, or of one tensor twice (x * x has one edge)."""
        left = self.pick()
        arrays = [n for n, node in enumerate(self.nodes) if node.opcode != "tuple"]
        like = [n for n in arrays if self.dims(n) == self.dims(left)]
        right = self.random.choice(like)
        self.add(self.random.choice(_BINARY), self.dims(left), list(dict.fromkeys((left, right))))

    def transpose(self) -> None:
        operand = self.pick(least=2)
        order = self.shuffled(range(len(self.dims(operand))))
        columns: dict[str, float] = {f"dimensions_{i}": dim for i, dim in enumerate(order)}
        dims = [self.dims(operand)[dimension] for dimension in order]
        if self.random.random() < 0.05:  # columns that do not say how it permutes
            columns = {}
        elif self.random.random() < 0.05:  # of another rank than the operand
            dims = [*dims[:-1], 2, dims[-1]][:6]
        self.add("transpose", dims, [operand], columns=columns)

    def both_ways(self) -> None:
        """copy(x) + transpose(x), over one edge each."""
        matrices = [n for n, node in enumerate(self.nodes) if len(node.dims) == 2]
        squares = [n for n in matrices if len({*self.dims(n)}) == 1]
        x = self.random.choice(squares) if squares else self.add("parameter", (4, 4))
        dims = self.dims(x)
        turned = self.add("transpose", dims, [x], columns={"dimensions_0": 1, "dimensions_1": 0})
        copied = self.add("copy", dims, [x])
        total = self.add("add", dims, self.shuffled([turned, copied]))
        self.add("negate", dims, [total])

    def reshape(self) -> None:
        """Split, merge or keep sizes, or add or remove a size of 1."""
        operand = self.pick(most=5)
        dims = list(self.dims(operand))
        how = self.random.choice(("split", "merge", "one", "flat", "regroup"))
        at = self.random.randint(0, len(dims))
        if how == "split" and at < len(dims) and dims[at] and dims[at] % 2 == 0:
            dims[at : at + 1] = self.shuffled((2, dims[at] // 2))
        elif how == "merge" and at + 1 < len(dims):
            dims[at : at + 2] = [dims[at] * dims[at + 1]]
        elif how == "flat":
            dims = [prod(dims)]
        elif how == "regroup" and len(dims) > 1 and dims[0] % 2 == 0:  # [a, b] -> [2, a b / 2]
            dims = [2, prod(dims) // 2]
        elif 1 in dims and self.random.random() < 0.5:
            dims.remove(1)
        else:
            dims.insert(at, 1)
        self.add(self.random.choice(("reshape", "reshape", "bitcast")), dims, [operand])

    def dot(self) -> None:
        """Batch dimensions lead, then the left and the right operand's; operands have any order."""
        batch = self.sizes(0, 2)
        rows = self.sizes(0, 2)
        columns = self.sizes(0, 2)
        summed = self.sizes(1, 2)
        left = [*batch, *rows, *summed]
        right = [*batch, *columns, *summed]
        out = [*batch, *rows, *columns]
        if max(prod(left), prod(right), prod(out)) > _MOST:
            return
        if self.random.random() < 0.5:
            left = self.shuffled(left)
            right = self.shuffled(right)
        sides = []
        for dims in (left, right):
            like = [n for n, node in enumerate(self.nodes) if node.dims == tuple(dims)]
            sides.append(like[-1] if like else self.add("parameter", dims))
        if self.random.random() < 0.1:  # nothing that fits
            sides[0] = self.pick()
        self.add("dot", out, self.shuffled(list(dict.fromkeys(sides))))

    def convolution(self) -> None:
        spatial = self.random.randint(1, 2)
        batch, features, produced = self.sizes(3, 3)
        extents = (8, 16)[:spatial]
        window = self.random.choice(((3, 3), (1, 1), (8, 16)))[:spatial]
        shapes = []
        columns = {}
        for name, first, second, sizes in (
            ("input", ("batch_dim", batch), ("feature_dim", features), extents),
            ("kernel", ("input_feature_dim", features), ("output_feature_dim", produced), window),
            ("output", ("batch_dim", batch), ("feature_dim", produced), extents),
        ):
            named = [first, second, *((f"spatial_dims_{i}", size) for i, size in enumerate(sizes))]
            order = self.shuffled(range(spatial + 2))
            shapes.append([named[order.index(at)][1] for at in range(spatial + 2)])
            # The format leaves the output's spatial ones out.
            listed = named[:2] if name == "output" else named
            columns |= {f"{_STEM}_{name}_{role}": order[at] for at, (role, _) in enumerate(listed)}
        operands = self.shuffled([self.add("parameter", dims) for dims in shapes[:2]])
        self.add("convolution", shapes[2], operands, window=window, columns=columns)

    def reduce(self) -> None:
        operand = self.pick(least=1)
        start = self.add("constant", ())
        kept = self.random.randint(0, len(self.dims(operand)) - 1)
        self.add("reduce", self.dims(operand)[:kept], self.shuffled((start, operand)))

    def bundle(self) -> None:
        self.add("tuple", (), [self.pick()], element="tuple")

    def grow(self) -> None:
        often = [self.keeping] * 3 + [self.binary, self.transpose, self.reshape, self.dot]
        seldom = (self.parameter, self.both_ways, self.convolution, self.reduce, self.bundle)
        self.random.choice((*often, *often, *seldom))()


def _row(random: Random, nodes: Sequence[Node], node: int) -> np.ndarray:
    """A choice for one node; layouts of operands stay within the ranks of all."""
    operands = nodes[node].operands
    if len(operands) == 1 and nodes[node].opcode in (*_BINARY, "dot"):
        operands = operands * 2
    ranks = [len(nodes[operand].dims) for operand in operands[:2]]
    ranks = ranks if len(set(ranks)) < 2 else [min(ranks)] * 2
    if nodes[node].opcode == "reduce":
        ranks = [max(len(nodes[operand].dims) for operand in operands)]
    layouts = []
    for rank in (len(nodes[node].dims), *ranks):
        order = random.sample(range(rank), rank)
        layouts.append(order[: random.choice((0, 2, rank))])
    return layout_row(*layouts)


def fitting_graph(seed: int) -> Arrays:
    """A random layout graph; configurations repeat."""
    random = Random(seed)
    draft = _Draft(random)
    for _ in range(random.choice((0, 2, *[8] * 10))):
        draft.grow()
    nodes = draft.nodes
    share = random.choice((0, 0.3, 0.4, 0.5, 0.5, 0.6, 0.7, 1))
    configurable = random.sample(range(len(nodes)), round(share * len(nodes)))
    if random.random() < 0.7:  # as real files have them
        configurable.sort()
    pools = []
    for node in configurable:
        pools.append([_row(random, nodes, node) for _ in range(random.randint(1, 3))])
    configs = [[random.choice(pool) for pool in pools] for _ in range(random.choice((1, 3, 4, 6)))]
    configs += configs[:2]
    random.shuffle(configs)
    cuts = sorted(random.randint(0, len(nodes)) for _ in range(random.randint(0, 3)))
    splits = [0, *cuts, len(nodes)] if random.random() < 0.7 else cuts
    return layout_file(nodes, configurable, configs) | {"node_splits": np.array([splits], np.int64)}


def fitting_kernel(seed: int) -> Arrays:
    """A random tile graph: output bounds within a tensor's extents, in elements or tiles."""
    random = Random(seed)
    draft = _Draft(random)
    for _ in range(random.randint(0, 5)):
        draft.grow()
    node = random.choice(draft.nodes)
    extents = list(node.dims)
    if random.random() < 0.5:  # hardware tiles, major to minor
        order = node.minor_to_major or range(len(node.dims))[::-1]
        sizes = [node.dims[dimension] for dimension in order]
        tile = (128, 8, *([1] * len(sizes)))
        extents = [-(-size // multiple) for size, multiple in zip(sizes, tile, strict=False)][::-1]
    rows = []
    for _ in range(random.randint(1, 8)):
        ranks = (random.choice((0, 0, 1, 2, 6)) for _ in range(2))
        kernel, vector = ([random.randint(0, 130) for _ in range(rank)] for rank in ranks)
        bounds = [random.choice((extent, random.randint(0, extent))) for extent in extents]
        rows.append(tile_row(kernel, bounds, vector))
    return tile_file(draft.nodes, random.choices(rows, k=random.randint(1, 10)))


def scrambled(arrays: Arrays, seed: int) -> Arrays:
    """Shuffle the opcodes, so that shapes need not fit them, and the numbers of the nodes."""
    random = np.random.default_rng(seed)
    arrays = {**arrays, "node_opcode": random.permutation(arrays["node_opcode"])}
    return relabelled(arrays, random.permutation(len(arrays["node_feat"])))


SEEDS = st.integers(0, 2**32)
FITTING_GRAPHS = SEEDS.map(fitting_graph)
FITTING_KERNELS = SEEDS.map(fitting_kernel)
SCRAMBLED_GRAPHS = SEEDS.map(lambda seed: scrambled(fitting_graph(seed), seed))
SCRAMBLED_KERNELS = SEEDS.map(lambda seed: scrambled(fitting_kernel(seed), seed))
GRAPHS = FITTING_GRAPHS | SCRAMBLED_GRAPHS
KERNELS = FITTING_KERNELS | SCRAMBLED_KERNELS
