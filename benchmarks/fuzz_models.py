"""Edited boosters, with checksums that fit: what becomes of the process that ranks with them.

    python -m benchmarks.fuzz_models [--mutations 2000]

Each mutation of a trained model's booster text is loaded and ranks rows in a child process. Counted are the clear
refusals, the rankings of finite scores, scores that are no numbers, and what must not be: crashes, hangs and errors
of other kinds.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import multiprocessing
import random
import re
import shutil
import tempfile
from collections import Counter
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np

from xlarank.data.collection import Collection
from xlarank.data.errors import ModelError
from xlarank.data.files import write_json
from xlarank.data.root import SAMPLE, find_data_root
from xlarank.data.workspace import Workspace
from xlarank.features.block import Tier
from xlarank.features.recipe import FeatureSettings
from xlarank.features.store import each_graph
from xlarank.models.trained import CARD, load_model
from xlarank.pipelines.build_features import BuildRequest, build_features
from xlarank.pipelines.support.fitting import TrainRequest
from xlarank.pipelines.train import train

COLLECTION = Collection.parse("tile:cpu")
#: Seconds that a ranking may take; a sound one takes hundredths.
PATIENCE = 20.0
MODELS = {"lambdarank": "booster.txt", "xgb-pairwise": "booster.json"}
NUMBERS = ("-1", "0", "1", "-2", "2147483647", "-2147483648", "99999999999", "1e400", "nan", "inf", "-inf", "", "x")


def prepared(workspace: Workspace) -> None:
    """Rows of one collection of the sample."""
    request = BuildRequest(collections=[str(COLLECTION)], settings=FeatureSettings(Tier.FAST), jobs=1)
    build_features(find_data_root(SAMPLE), workspace, request)


def mutated(text: str, rng: random.Random) -> str:
    """One to three edits: a number, a line, a span or a character."""
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        kind = rng.randrange(6)
        if kind <= 2:  # a number becomes another: children, sizes, leaves
            found = list(re.finditer(r"-?\d+(\.\d+)?([eE][-+]?\d+)?", text))
            place = rng.choice(found)
            other = rng.choice([*NUMBERS, rng.choice(found).group(), str(rng.randrange(20))])
            text = text[: place.start()] + other + text[place.end() :]
        elif kind == 3:  # lines (or what stands between commas) doubled, dropped, exchanged
            mark = "\n" if text.count("\n") > 20 else ","
            parts = text.split(mark)
            one, two = rng.randrange(len(parts)), rng.randrange(len(parts))
            if rng.random() < 0.5:
                parts[one], parts[two] = parts[two], parts[one]
            elif rng.random() < 0.5:
                del parts[one]
            else:
                parts.insert(two, parts[one])
            text = mark.join(parts)
        elif kind == 4:  # a span cut out
            start = rng.randrange(len(text))
            text = text[:start] + text[start + rng.randrange(1, 200) :]
        else:  # a character
            at = rng.randrange(len(text))
            text = text[:at] + chr(rng.randrange(1, 127)) + text[at + 1 :]
    return text


def planted(folder: Path, booster: str, text: str) -> None:
    """The text in place of the booster, and a card whose checksum fits."""
    card = json.loads((folder / CARD).read_text(encoding="utf-8"))
    (name,) = card["seeds"]
    own = folder / name
    own.joinpath(booster).write_text(text, encoding="utf-8")
    digest = hashlib.sha256()
    for path in sorted(path for path in own.rglob("*") if not path.is_dir()):
        digest.update(path.relative_to(own).as_posix().encode() + b"\0" + path.read_bytes())
    card["seeds"] = {name: digest.hexdigest()}
    write_json(folder / CARD, card)


def ranking(workspace: Workspace, jobs: Connection) -> None:
    """A child that ranks whenever it is told to and says what came of it."""
    (graph, *_) = each_graph(workspace, COLLECTION, "valid")
    while True:
        folder = jobs.recv()
        try:
            scores = load_model(folder).score(graph).mean
            jobs.send("ranked" if np.isfinite(scores).all() else "no numbers")
        except ModelError:
            jobs.send("refused")
        except Exception as error:
            jobs.send(f"error: {type(error).__name__}: {error}"[:200])


class Child:
    """A process that ranks, made anew after it died."""

    def __init__(self, workspace: Workspace) -> None:
        self.workspace = workspace
        self.start()

    def start(self) -> None:
        context = multiprocessing.get_context("spawn")
        self.ours, theirs = context.Pipe()
        self.process = context.Process(target=ranking, args=(self.workspace, theirs), daemon=True)
        self.process.start()
        theirs.close()

    def ask(self, folder: Path) -> str:
        self.ours.send(folder)
        try:
            if self.ours.poll(PATIENCE + 30.0 * (self.process.exitcode is None)):
                return str(self.ours.recv())
            outcome = "hang"
        except EOFError:
            outcome = "crash"
        self.process.kill()
        self.process.join()
        self.start()
        return outcome

    def end(self) -> None:
        self.process.kill()
        self.process.join()


def fuzz(place: Path, mutations: int, seed: int = 0) -> dict[str, Counter[str]]:
    """Outcomes of so many mutations, half of them of each library's booster."""
    workspace, rng, found = Workspace(place), random.Random(seed), {}
    prepared(workspace)
    for model, booster in MODELS.items():
        shutil.rmtree(workspace.model(COLLECTION), ignore_errors=True)
        train(workspace, TrainRequest(model=model, seeds=1, rounds=8, threads=1))
        folder = workspace.model(COLLECTION)
        (path,) = folder.rglob(booster)
        text, counts, child = path.read_text(encoding="utf-8"), Counter[str](), Child(workspace)
        planted(folder, booster, text)
        assert child.ask(folder) == "ranked", "untouched, it ranks"
        for _ in range(mutations // len(MODELS)):
            planted(folder, booster, mutated(text, rng))
            counts[child.ask(folder)] += 1
        child.end()
        found[model] = counts
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mutations", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        for model, counts in fuzz(Path(place), asked.mutations, asked.seed).items():
            print(model, dict(counts.most_common()))


if __name__ == "__main__":
    main()
