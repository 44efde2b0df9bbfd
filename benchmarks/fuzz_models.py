"""Edit boosters at random, fix their checksums, and rank with them.

    python -m benchmarks.fuzz_models [--mutations 2000]

Each mutation of a booster's text is loaded and ranks rows in a child process. Counts rejected
models, rankings by finite scores, scores that are not finite, and the outcomes that must not occur:
crashes, hangs and other errors.
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

from xlarank.data.collection import SAMPLE, Collection, find_data_root
from xlarank.data.errors import ModelError
from xlarank.data.files import write_json
from xlarank.data.workspace import Workspace
from xlarank.features.block import Tier
from xlarank.features.settings import FeatureSettings
from xlarank.features.store import each_graph
from xlarank.models.card import CARD
from xlarank.models.files import _checksum
from xlarank.models.model import Model
from xlarank.pipelines.build_features import BuildRequest, build_features
from xlarank.pipelines.train import train
from xlarank.pipelines.training.settings import TrainSettings

COLLECTION = Collection.parse("tile:cpu")
#: Maximum seconds for a ranking, the start of a process included; a sound one takes hundredths.
PATIENCE = 50.0
MODELS = {"lambdarank": "booster.txt", "xgb-pairwise": "booster.json"}
NUMBERS = (
    "-1",
    "0",
    "1",
    "-2",
    "2147483647",
    "-2147483648",
    "99999999999",
    "1e400",
    "nan",
    "inf",
    "-inf",
    "",
    "x",
)


def mutated(text: str, rng: random.Random) -> str:
    """Return the text after one to three edits: of a number, a line, a span or a character."""
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        kind = rng.randrange(6)
        start = rng.randrange(len(text))
        if kind <= 2:  # replace a number: children, sizes, leaves
            numbers = list(re.finditer(r"-?\d+(\.\d+)?([eE][-+]?\d+)?", text))
            number = rng.choice(numbers)
            other = rng.choice([*NUMBERS, rng.choice(numbers).group(), str(rng.randrange(20))])
            text = text[: number.start()] + other + text[number.end() :]
        elif kind == 3:  # exchange, delete or double a line (in JSON: the text between commas)
            mark = "\n" if text.count("\n") > 20 else ","
            parts = text.split(mark)
            first = rng.randrange(len(parts))
            second = rng.randrange(len(parts))
            edit = rng.random()
            if edit < 0.5:
                parts[first], parts[second] = parts[second], parts[first]
            elif edit < 0.75:
                del parts[first]
            else:
                parts.insert(second, parts[first])
            text = mark.join(parts)
        elif kind == 4:  # cut out a span
            text = text[:start] + text[start + rng.randrange(1, 200) :]
        else:  # replace a character
            text = text[:start] + chr(rng.randrange(1, 127)) + text[start + 1 :]
    return text


def planted(folder: Path, booster: str, text: str) -> None:
    """Write the text in place of the booster, and its checksum into the card."""
    card = json.loads((folder / CARD).read_text(encoding="utf-8"))
    (name,) = card["members"]
    (folder / name / booster).write_text(text, encoding="utf-8")
    card["members"] = {name: _checksum(folder / name)}
    write_json(folder / CARD, card)


def ranking(workspace: Workspace) -> str:
    """Return the outcome of ranking a graph."""
    (graph, *_) = each_graph(workspace, COLLECTION, "valid")
    try:
        scores = Model.load(workspace.model(COLLECTION)).score(graph)
        return "ranked" if np.isfinite(scores).all() else "no numbers"
    except ModelError:
        return "refused"
    except Exception as error:
        return f"error: {type(error).__name__}: {error}"[:200]


class Child:
    """A process that ranks; it is restarted if it dies."""

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
    """Return the outcomes of mutations by model; each has an equal share."""
    workspace = Workspace(place)
    rng = random.Random(seed)
    outcomes = {}
    request = BuildRequest(
        collections=[str(COLLECTION)], settings=FeatureSettings(Tier.FAST), jobs=1
    )
    build_features(find_data_root(SAMPLE), workspace, request)
    for model, booster in MODELS.items():
        shutil.rmtree(workspace.model(COLLECTION), ignore_errors=True)
        train(workspace, TrainSettings(model=model, seeds=1, rounds=8, threads=1))
        folder = workspace.model(COLLECTION)
        (path,) = folder.rglob(booster)
        text = path.read_text(encoding="utf-8")
        counts = Counter[str]()
        child = Child()
        planted(folder, booster, text)
        assert child.ask(workspace) == "ranked", "untouched, it ranks"
        for _ in range(mutations // len(MODELS)):
            planted(folder, booster, mutated(text, rng))
            counts[child.ask(workspace)] += 1
        child.end()
        outcomes[model] = counts
    return outcomes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mutations", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        for model, counts in fuzz(Path(place), args.mutations, args.seed).items():
            print(model, dict(counts.most_common()))


if __name__ == "__main__":
    main()
