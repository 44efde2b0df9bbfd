"""Edited boosters, with checksums that fit: what becomes of the process that ranks with them.

    python -m benchmarks.fuzz_models [--mutations 2000]

Each mutation of a trained model's booster text is loaded and ranks rows in a child process. Counted are the clear
refusals, the rankings of finite scores, scores that are no numbers, and what must not be: crashes, hangs and errors
of other kinds.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import random
import re
import shutil
import tempfile
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
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
from xlarank.models.trained import CARD, _checksum, load_model
from xlarank.pipelines.build_features import BuildRequest, build_features
from xlarank.pipelines.train import train
from xlarank.pipelines.training.fitting import TrainRequest

COLLECTION = Collection.parse("tile:cpu")
#: Seconds that a ranking may take, the start of a process included; a sound one takes hundredths.
PATIENCE = 50.0
MODELS = {"lambdarank": "booster.txt", "xgb-pairwise": "booster.json"}
NUMBERS = ("-1", "0", "1", "-2", "2147483647", "-2147483648", "99999999999", "1e400", "nan", "inf", "-inf", "", "x")


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
    (folder / name / booster).write_text(text, encoding="utf-8")
    card["seeds"] = {name: _checksum(folder / name)}
    write_json(folder / CARD, card)


def ranking(workspace: Workspace) -> str:
    """What comes of ranking, for a process of its own."""
    (graph, *_) = each_graph(workspace, COLLECTION, "valid")
    try:
        scores = load_model(workspace.model(COLLECTION)).score(graph).mean
        return "ranked" if np.isfinite(scores).all() else "no numbers"
    except ModelError:
        return "refused"
    except Exception as error:
        return f"error: {type(error).__name__}: {error}"[:200]


class Child:
    """A process that ranks, made anew after it died."""

    def __init__(self) -> None:
        self.start()

    def start(self) -> None:
        self.pool = ProcessPoolExecutor(1, multiprocessing.get_context("spawn"))

    def ask(self, workspace: Workspace) -> str:
        try:
            return self.pool.submit(ranking, workspace).result(PATIENCE)
        except (BrokenProcessPool, TimeoutError) as error:
            self.end()
            self.start()
            return "hang" if isinstance(error, TimeoutError) else "crash"

    def end(self) -> None:
        for process in list((self.pool._processes or {}).values()):
            process.kill()
        self.pool.shutdown()


def fuzz(place: Path, mutations: int, seed: int = 0) -> dict[str, Counter[str]]:
    """Outcomes of so many mutations, half of them of each library's booster."""
    workspace, rng, found = Workspace(place), random.Random(seed), {}
    request = BuildRequest(collections=[str(COLLECTION)], settings=FeatureSettings(Tier.FAST), jobs=1)
    build_features(find_data_root(SAMPLE), workspace, request)
    for model, booster in MODELS.items():
        shutil.rmtree(workspace.model(COLLECTION), ignore_errors=True)
        train(workspace, TrainRequest(model=model, seeds=1, rounds=8, threads=1))
        folder = workspace.model(COLLECTION)
        (path,) = folder.rglob(booster)
        text, counts, child = path.read_text(encoding="utf-8"), Counter[str](), Child()
        planted(folder, booster, text)
        assert child.ask(workspace) == "ranked", "untouched, it ranks"
        for _ in range(mutations // len(MODELS)):
            planted(folder, booster, mutated(text, rng))
            counts[child.ask(workspace)] += 1
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
