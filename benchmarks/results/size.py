"""Cost of every step on synthetic roots of 3 %, 10 % and, if the workspace has one, 100 %.

A root of the official size takes 10 GB, and measuring it hours, so it is not made here:
``python -m benchmarks.synthetic_root WORKSPACE/root-1 --share 1``. Without it, costs at that size
are extrapolated.

Each command runs in a process of its own. Its processor time, its largest resident memory (summed
over its processes) and the disk that its outputs take are kept in ``size.json`` of the workspace: a
command that was measured is not run again.
"""

from __future__ import annotations

import json
import math
import os
import resource
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from benchmarks.official_sizes import SIZES, plan
from benchmarks.results.stored import Cell, Table
from benchmarks.synthetic_root import write_collection
from xlarank.data.collection import Collection, GraphFile, discover
from xlarank.data.graph import config_count
from xlarank.data.npz import NpzReader
from xlarank.pipelines.training.training_sets import MAX_ROWS

if TYPE_CHECKING:
    from benchmarks.results.tables import Job

#: Shares of the official size that are always measured.
SHARES: Final = (0.03, 0.1)
#: Configurations kept of a training graph.
MAX_CONFIGS: Final = {"layout": 1000, "tile": 100}
_LAYOUTS: Final = ("--collection", "layout:*")
_TILES: Final = ("--collection", "tile:*")
_POLL: Final = 0.2
_LOAD: Final = """
import sys, numpy
for path in sys.argv[1:]:
    with numpy.load(path) as archive:
        for name in archive.files:
            archive[name]
"""


@dataclass(frozen=True)
class Cost:
    """Processor seconds, bytes of memory and disk, and size of the input in units of the step."""

    seconds: float
    memory: float
    disk: float
    size: float


@dataclass(frozen=True)
class Step:
    """A command, and the split and kind whose configurations are its size ("": all).

    Attributes:
        kept: whether only the configurations that are kept for training count.
    """

    title: str
    words: Sequence[str]
    split: str = ""
    kind: str = ""
    kept: bool = False
    workspace: str = "work"


def _build(kind: str, options: Sequence[str], workspace: str = "work") -> Step:
    limit = f"--max-configs {MAX_CONFIGS[kind]}" if workspace == "work" else "all configurations"
    words = ["build-features", "--data-root", "ROOT", *options]
    if workspace == "work":
        words += limit.split()
    return Step(f"`build-features`, {kind}s, {limit}", words, kind=kind, workspace=workspace)


STEPS: Final = (
    Step("`numpy.load` of every file", (sys.executable, "-c", _LOAD, "FILES")),
    _build("tile", _TILES),
    _build("layout", _LAYOUTS),
    Step("`train`, layouts", ("train", *_LAYOUTS), "train", "layout", kept=True),
    Step("`train`, tiles", ("train", *_TILES), "train", "tile", kept=True),
    Step("`evaluate`", ("evaluate", "--no-graphs"), "valid"),
    Step("`submit`", ("submit", "--data-root", "ROOT", "--out", "WORK/submission.csv"), "test"),
    Step("`report`", ("report",), "valid"),
    Step("`rank`, the largest graph", ("rank", "LARGEST"), "one"),
    _build("layout", _LAYOUTS, "all"),
    Step("`tune --trials 3`", ("tune", "--trials", "3"), "train", kept=True),
)


def size(job: Job) -> Table:
    """Time, memory and disk of each step on synthetic roots; --workspace resumes."""
    for share in SHARES:
        for name in SIZES:
            write_collection(_root(job, share), job.root.path, name, share, seed=0)
    for share in (*SHARES, 1.0):
        if _root(job, share).exists():
            measure_missing(job.workspace, _root(job, share), share)
    return size_table(stored_costs(job.workspace))


def _root(job: Job, share: float) -> Path:
    return job.workspace / f"root-{share:g}"


def size_table(costs: dict[str, dict[str, Cost]]) -> Table:
    """Return the table of the steps that were measured on both smaller roots."""
    rows: list[list[Cell]] = []
    for step in STEPS:
        if not {"0.03", "0.1"} <= costs.get(step.title, {}).keys():
            continue
        small = costs[step.title]["0.03"]
        large = costs[step.title]["0.1"]
        one = step.split == "one"
        complete = costs[step.title].get("1.0")
        # the largest graphs of both roots are as large as the official ones
        whole = large if one else complete or extrapolated(small, large, official_size(step))
        if not step.split and not complete:  # each process holds one graph
            whole = replace(whole, memory=max(small.memory, large.memory))
        rows.append(
            [
                step.title + (" (measured)" if complete else ""),
                whole.seconds / 3600,
                1e-9 * whole.memory,
                1e-9 * whole.disk,
                None if one else exponent(*((large, complete) if complete else (small, large))),
                *(cost.seconds / 60 for cost in (small, large)),
                *(1e-9 * cost.memory for cost in (small, large)),
            ]
        )
    heads = ["step", "core-hours", "GB of memory", "GB of disk", "exponent of the time"]
    heads += ["CPU minutes at 3 %", "at 10 %", "GB of memory at 3 %", "at 10 %"]
    return Table(
        title="Cost of the official dataset, from synthetic ones of 3 %, 10 % and, if marked, all",
        labels="by the package's own time model and estimate",
        seeds=0,
        heads=heads,
        rows=rows,
    )


def measure(step: Step, root: Path, workspace: Path) -> Cost:
    """Run a command on a data root; raises `subprocess.CalledProcessError` if it fails."""
    files = discover(root / "npz")
    largest = max(files, key=_unpacked)
    work = workspace / step.workspace
    words: list[str] = []
    for word in step.words:
        if word == "FILES":
            words += [str(file.path) for file in files]
        else:
            word = word.replace("ROOT", str(root)).replace("LARGEST", str(largest.path))
            words.append(word.replace("WORK", str(work)))
    if words[0] != sys.executable:
        words = [sys.executable, "-m", "xlarank", *words, "--workspace", str(work)]
    work.mkdir(parents=True, exist_ok=True)
    before = _disk(work)
    used = _processor_seconds()
    memory = 0.0
    with (workspace / "size.log").open("a", encoding="utf-8") as log:
        print(f"\n{step.title}", file=log, flush=True)
        process = subprocess.Popen(words, stdout=log, stderr=log)
        while process.poll() is None:
            memory = max(memory, _resident(process.pid))
            time.sleep(_POLL)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, words[:8])
    size = float(_unpacked(largest))
    if step.split != "one":
        graphs = []
        for file in files:
            configs = config_count(file.path, file.collection.kind)
            graphs.append((file.collection, file.split, configs))
        size = input_size(step, graphs)
    return Cost(_processor_seconds() - used, memory, _disk(work) - before, size)


def official_size(step: Step) -> float:
    """Return the size of a step's input on the official dataset."""
    graphs = []
    for name in SIZES:
        collection = Collection.parse(name)
        planned = plan(collection, 1.0)
        graphs += [(collection, graph.path.parent.name, graph.configs) for graph in planned]
    return input_size(step, graphs)


def input_size(step: Step, graphs: Iterable[tuple[Collection, str, int]]) -> float:
    """Return how many of ``(collection, split, configurations)`` a step reads or trains on."""
    totals = Counter[Collection]()
    for collection, split, configs in graphs:
        if step.kind in ("", collection.kind) and step.split in ("", split):
            limit = MAX_CONFIGS[collection.kind] if step.kept else configs
            totals[collection] += min(configs, limit)
    for collection, total in totals.items():
        if step.kept:  # training takes a sample of larger collections
            totals[collection] = min(total, MAX_ROWS[collection.kind])
    return float(totals.total())


def _unpacked(file: GraphFile) -> int:
    name = "config_feat" if file.collection.kind == "tile" else "node_config_feat"
    with NpzReader(file.path) as archive:
        return max(1, math.prod(archive.header(name).shape[:-1]))


def _processor_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _resident(root: int) -> float:
    """Return the resident bytes of a process and its descendants."""
    parents: dict[int, int] = {}
    pages: dict[int, int] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            stat = (folder / "stat").read_text().rpartition(")")[2].split()
        except OSError:  # it has ended
            continue
        parents[int(folder.name)] = int(stat[1])
        pages[int(folder.name)] = int(stat[21])
    family = {root}
    while grown := {pid for pid, parent in parents.items() if parent in family} - family:
        family |= grown
    return float(sum(pages.get(pid, 0) for pid in family) * os.sysconf("SC_PAGE_SIZE"))


def _disk(folder: Path) -> float:
    return float(sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()))


def measure_missing(workspace: Path, root: Path, share: float) -> None:
    """Measure the steps whose costs at a share are not stored yet."""
    path = workspace / "size.json"
    for step in STEPS:
        if str(share) in stored_costs(workspace).get(step.title, {}):
            continue
        cost = measure(step, root, workspace / str(share))
        costs = stored_costs(workspace)
        costs.setdefault(step.title, {})[str(share)] = cost
        text = json.dumps({title: _plain(of_share) for title, of_share in costs.items()}, indent=1)
        path.write_text(text, encoding="utf-8")


def _plain(costs: dict[str, Cost]) -> dict[str, dict[str, float]]:
    return {share: asdict(cost) for share, cost in costs.items()}


def stored_costs(workspace: Path) -> dict[str, dict[str, Cost]]:
    """Return the stored costs by step and share."""
    path = workspace / "size.json"
    if not path.exists():
        return {}
    stored = json.loads(path.read_text(encoding="utf-8"))
    return {
        title: {share: Cost(**cost) for share, cost in costs.items()}
        for title, costs in stored.items()
    }


def exponent(small: Cost, large: Cost) -> float:
    """Return e of seconds ~ size^e."""
    return math.log(large.seconds / small.seconds) / math.log(large.size / small.size)


def extrapolated(small: Cost, large: Cost, size: float) -> Cost:
    """Return the cost at a size: the larger of the line and the power law through two costs."""
    grown = []
    for low, high in zip(
        (small.seconds, small.memory, small.disk),
        (large.seconds, large.memory, large.disk),
        strict=True,
    ):
        line = high + (high - low) * (size - large.size) / (large.size - small.size)
        power = math.log(high / low) / math.log(large.size / small.size) if high > low > 0 else 0.0
        grown.append(max(line, high * (size / large.size) ** power, high))
    return Cost(*grown, size)
