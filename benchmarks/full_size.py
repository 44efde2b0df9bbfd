"""The whole job on a tree as large as the official TpuGraphs collections: hours, memory and disk.

    python -m benchmarks.full_size --templates REAL_ROOT [--folder D] [--share 0.1] [--collections C ...]
                                   [--layout-configs 700] [--tile-configs 35] [--trials 20] [--report FILE]

For each collection: draws the size of every graph (`full_size_shapes`), writes the files of a share of them
(`full_size_tree`), runs ``info`` and ``build-features`` on a tenth of that share and on all of it, copies the
stored rows until there are as many as of all graphs (`full_size_fill`), and runs ``tune``, ``train --with-valid``,
``evaluate`` and, over all collections, ``submit`` on those. Every step is a process of its own, measured with its
children; a step that is done is not repeated (``measured.json`` in the folder). What was not run is extrapolated:
reading and building by configurations x configurable nodes (tiles: by files), learning by rows x rounds. The tables
say what, and how far a prediction from smaller runs was from a larger one.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import shutil
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from benchmarks.full_size_fill import fill
from benchmarks.full_size_report import report
from benchmarks.full_size_shapes import OFFICIAL, Shape, draw_shapes, pick_share
from benchmarks.full_size_tree import Templates, write_layout, write_tile
from benchmarks.measured_run import measured_run
from xlarank.data.collection import Collection
from xlarank.data.family import program_family
from xlarank.data.files import write_json
from xlarank.data.root import find_data_root
from xlarank.data.workspace import Workspace
from xlarank.features.store import read_manifest
from xlarank.models.trained import load_model

#: Boosting rounds that are run, in place of 300; time is linear in them.
ROUNDS: Final = (10, 30)
#: Boosters of the final model that is run, in place of 3; time is linear in them too.
SEEDS: Final = 1
FULL_ROUNDS: Final = 300
FULL_SEEDS: Final = 3
#: Folds at once in the run that is made for its memory alone, of the collection with most rows and columns.
CORES: Final = 4
WIDE: Final = ("layout:nlp:random",)
_NEEDED: Final = 20e9
_templates: Templates


class Rehearsal:
    """The steps of one folder and what they took."""

    def __init__(self, asked: argparse.Namespace) -> None:
        self.asked, self.folder = asked, asked.folder
        self.folder.mkdir(parents=True, exist_ok=True)
        self.state = self.folder / "measured.json"
        self.done: dict[str, Any] = json.loads(self.state.read_text()) if self.state.exists() else {}
        self.workspace = Workspace(self.folder / "work")

    def step(self, name: str, work: Callable[[], dict[str, Any]]) -> None:
        """Do a step unless it is done, and remember what it took."""
        if name in self.done:
            return
        if shutil.disk_usage(self.folder).free < _NEEDED:
            raise SystemExit(f"less than {_NEEDED / 1e9:.0f} GB are free in {self.folder}")
        print(f"{time.strftime('%H:%M:%S')} {name}", file=sys.stderr, flush=True)
        self.done[name] = work()
        print(f"         {self.done[name]}", file=sys.stderr, flush=True)
        write_json(self.state, self.done)

    def command(self, name: str, *words: str) -> None:
        """A step that is a command of run.py."""
        log = self.folder / (name.replace(":", "-").replace(" ", "-") + ".log")
        self.step(name, lambda: asdict(measured_run([sys.executable, "run.py", *words], log)))

    def build(self, collection: str) -> None:
        """The steps of a collection up to stored rows as many as all graphs give."""
        shapes = draw_shapes(collection)
        chosen = pick_share(shapes, self.asked.share)
        small = pick_share(chosen, 0.1)
        roots = {"small": self.folder / "small", "share": self.folder / "tree"}
        self.step(f"{collection} generate", lambda: self._generate(collection, chosen, small))
        scratch = str(self.folder / "work-small")
        where = ["--collection", collection, "--max-configs", str(self._most(collection)), "--jobs", "2"]
        first = ["build-features", "--data-root", str(roots["small"]), "--workspace", scratch, *where]
        self.command(f"{collection} build small", *first)
        self.command(f"{collection} build again", *first)
        work = ["--workspace", str(self.workspace.root)]
        second = ["build-features", "--data-root", str(roots["share"]), *work, *where]
        self.command(f"{collection} build share", *second)
        if collection not in self.asked.build_only:
            place = ["--data-root", str(roots["share"]), "--collection", collection]
            self.command(f"{collection} info", "info", *place)
        self.step(f"{collection} fill", lambda: self._fill(collection, shapes))
        self.step(f"{collection} rows", lambda: self._rows(collection))

    def learn(self, collection: str) -> None:
        """The steps that learn from a collection's rows and judge what was learned."""
        work = ["--workspace", str(self.workspace.root)]
        learn = ["--collection", collection, "--data-root", str(self.folder / "tree")]
        for rounds in ROUNDS:
            apart = self.folder / f"work-{rounds}"
            apart.mkdir(exist_ok=True)
            if not (apart / "features").exists():  # a study of its own over the same rows
                (apart / "features").symlink_to(self.workspace.root.resolve() / "features")
            tuning = ["tune", *learn, "--workspace", str(apart), "--trials", "1", "--rounds", str(rounds)]
            self.command(f"{collection} tune {rounds}", *tuning)
        self.command(f"{collection} tune again", *tuning)  # nothing to do but to load the rows
        final = ["train", *learn, *work, "--with-valid"]
        if collection in WIDE:
            wide = ["--seeds", "1", "--rounds", str(ROUNDS[0]), "--threads", str(CORES)]
            self.command(f"{collection} train wide", *final, *wide)
        self.command(f"{collection} train", *final, "--seeds", str(SEEDS), "--rounds", str(ROUNDS[1]))
        card = load_model(self.workspace.model(Collection.parse(collection))).card
        self.step(f"{collection} model", lambda: {"seeds": SEEDS, "rounds": card.rounds})
        self.command(f"{collection} evaluate", "evaluate", *learn, *work, "--split", "valid")

    def _generate(self, collection: str, chosen: list[Shape], small: list[Shape]) -> dict[str, Any]:
        started, place = time.monotonic(), collection.split(":")
        context = multiprocessing.get_context("spawn")
        jobs = [(collection, shape, _path(self.folder / "tree", place, shape)) for shape in chosen]
        with ProcessPoolExecutor(2, context, initializer=_start, initargs=(self.asked.templates,)) as pool:
            unpacked = list(pool.map(_write, jobs))
        for shape in small:
            link = _path(self.folder / "small", place, shape)
            link.parent.mkdir(parents=True, exist_ok=True)
            link.unlink(missing_ok=True)
            os.link(_path(self.folder / "tree", place, shape), link)
        packed = sum(path.stat().st_size for _, _, path in jobs)
        return {"wall": time.monotonic() - started, "bytes": packed, "unpacked": sum(unpacked)}

    def _fill(self, collection: str, shapes: list[Shape]) -> dict[str, Any]:
        parsed = Collection.parse(collection)
        copies = fill(self.workspace, parsed, shapes)
        folder = self.workspace.features(parsed, "train").parent
        sizes = [path.stat().st_size for path in folder.rglob("*") if path.is_file()]
        return {"copies": copies, "bytes": sum(sizes), "files": len(sizes)}

    def _rows(self, collection: str) -> dict[str, Any]:
        parsed = Collection.parse(collection)
        most = self._most(collection)
        counts: dict[str, int] = {}
        families: dict[str, set[str]] = {}
        for split in ("train", "valid"):
            manifest = read_manifest(self.workspace, parsed, split)
            assert manifest is not None
            usable = {n: a for n, a in manifest.graphs.items() if a["rankable"] and a["labelled"]}
            counts[split] = sum(min(most, about["rows"]) for about in usable.values())
            families[split] = {program_family(name) for name in usable}
        return {
            "train_rows": counts["train"],
            "rows": sum(counts.values()),
            "families": len(families["train"]),
            "all_families": len(families["train"] | families["valid"]),
        }

    def _most(self, collection: str) -> int:
        most: int = self.asked.tile_configs if collection.startswith("tile") else self.asked.layout_configs
        return most


def _path(root: Path, place: list[str], shape: Shape) -> Path:
    return root.joinpath("npz", *place, shape.split, f"{shape.name}.npz")


def _start(templates: Path | None) -> None:
    global _templates
    _templates = Templates.below(find_data_root(templates).npz)


def _write(job: tuple[str, Shape, Path]) -> int:
    collection, shape, path = job
    if path.exists():  # it is moved into place when it is whole
        with zipfile.ZipFile(path) as archive:
            return sum(info.file_size for info in archive.infolist())
    kind, source = collection.split(":")[:2]
    if kind == "layout":
        return write_layout(path, shape, _templates.of(source))
    return write_tile(path, shape, _templates.tile)


def main() -> None:
    """Run the rehearsal."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--templates", type=Path, help="data root whose graphs are copied; default as for run.py")
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()) / "xlarank-full-size")
    parser.add_argument("--share", type=float, default=0.1)
    parser.add_argument("--collections", nargs="+", default=list(OFFICIAL), choices=list(OFFICIAL))
    parser.add_argument(
        "--build-only",
        nargs="*",
        default=[],
        choices=list(OFFICIAL),
        help="of these nothing is learned; the tables take what a row costs in the first of the same kind",
    )
    parser.add_argument("--layout-configs", type=int, default=700)
    parser.add_argument("--tile-configs", type=int, default=35)
    parser.add_argument("--trials", type=int, default=20, help="of each study; the table's hours are for these")
    parser.add_argument("--report", type=Path, help="write the table there")
    asked = parser.parse_args()
    rehearsal = Rehearsal(asked)
    for collection in asked.collections:
        rehearsal.build(collection)
    learned = [name for name in asked.collections if name not in asked.build_only]
    for collection in learned:
        rehearsal.learn(collection)
    submitted = [word for name in learned for word in ("--collection", name)]
    out = str(asked.folder / "submission.csv")
    rehearsal.command("submit", "submit", "--workspace", str(rehearsal.workspace.root), "--out", out, *submitted)
    text = report(
        rehearsal.done,
        asked.collections,
        share=asked.share,
        rounds=ROUNDS,
        full_rounds=FULL_ROUNDS,
        seeds=FULL_SEEDS,
        trials=asked.trials,
    )
    print(text)
    if asked.report:
        asked.report.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
