"""The tables of a full-size rehearsal, from what its steps took."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.full_size_shapes import OFFICIAL, Shape, draw_shapes, pick_share

Steps = Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True)
class Line:
    """Time as a straight line: ``once`` and ``each`` seconds for every unit of work."""

    once: float
    each: float

    @classmethod
    def through(cls, first: tuple[float, float], second: tuple[float, float]) -> Line:
        """The line through two (units, seconds).

        >>> Line.through((10, 4.0), (30, 8.0)).at(100)
        22.0
        """
        each = (second[1] - first[1]) / (second[0] - first[0])
        return cls(first[1] - each * first[0], each)

    def at(self, units: float) -> float:
        return self.once + self.each * units


@dataclass(frozen=True)
class Learning:
    """What learning costs in processor seconds.

    Rows are loaded once. A fit over so many rows costs ``rows x (bins + rounds x trees)``: a trial fits every fold
    without the rows held out, so each row ``folds - 1`` times; a final training does so too and then once for each
    seed.
    """

    load: float
    bins: float
    trees: float

    @classmethod
    def of(cls, steps: Steps, collection: str, rounds: Sequence[int]) -> Learning:
        """From the two trials that were run, else from those of another collection, most like it by name.

        Raises `ValueError` where none of its kind has them.
        """
        kind, source = collection.split(":")[:2]
        ran = [name for name in OFFICIAL if all(f"{name} tune {r}" in steps for r in (*rounds, "again"))]
        alike = [name for name in ran if name.startswith(kind)]
        if not alike:
            raise ValueError(f"no collection like {collection} has trials of {rounds[0]} and {rounds[1]} rounds")
        alike.sort(key=lambda name: (name != collection, source not in name.split(":")))
        collection = alike[0]
        rows = steps[f"{collection} rows"]
        fitted = rows["train_rows"] * (min(5, rows["families"]) - 1)
        load = steps[f"{collection} tune again"]["cpu"]
        line = Line.through(*[(r, (steps[f"{collection} tune {r}"]["cpu"] - load) / fitted) for r in rounds])
        return cls(load / rows["train_rows"], line.once, line.each)

    def loading(self, rows: Mapping[str, Any]) -> float:
        count: int = rows["train_rows"]
        return count * self.load

    def trial(self, rows: Mapping[str, Any], rounds: int) -> float:
        fitted: int = rows["train_rows"] * (min(5, rows["families"]) - 1)
        return fitted * (self.bins + rounds * self.trees)

    def train(self, rows: Mapping[str, Any], rounds: int, seeds: int, final_rounds: int) -> float:
        folds: int = min(10, rows["all_families"]) - 1
        final = seeds * (self.bins + final_rounds * self.trees)
        count: int = rows["rows"]
        return count * (self.load + folds * (self.bins + rounds * self.trees) + final)


def work_of(shapes: Sequence[Shape]) -> float:
    """Units of reading and building: configurations x configurable nodes; of tiles, files."""
    return float(sum(shape.cells if shape.configurable else 1 for shape in shapes))


def report(
    steps: Steps,
    collections: Sequence[str],
    *,
    share: float,
    rounds: Sequence[int],
    full_rounds: int,
    seeds: int,
    trials: int,
) -> str:
    """Markdown tables: what was run, how well it extrapolates, and the whole job."""
    ran = [
        "| collection | graphs written / all | configurations written / all | unpacked | `build-features`"
        " | `info` |",
        "|---" * 6 + "|",
    ]
    learned = [
        f"| collection | rows, train | families | a trial of {rounds[0]} rounds | of {rounds[1]} rounds"
        f" | `train --with-valid` of {rounds[1]} rounds | `evaluate` on valid |",
        "|---" * 7 + "|",
    ]
    peaks = [
        "| collection | `build-features`, 2 processes | `tune`, 2 folds at once | `train`, 2 folds at once"
        " | `train`, up to 4 at once | `evaluate` |",
        "|---" * 6 + "|",
    ]
    checks = ["| collection | `build-features` of the tenth from the hundredth | `train` from the two trials |"]
    checks.append("|---" * 3 + "|")
    whole = [
        f"| collection | build | one trial | {trials} trials | `train`, {seeds} seeds | together | disk |",
        "|---" * 7 + "|",
    ]
    total = disk = 0.0
    for name in collections:
        shapes = draw_shapes(name)
        chosen = pick_share(shapes, share)
        made = steps[f"{name} generate"]["unpacked"] / 1e9
        info = steps.get(f"{name} info")
        rows, built, start = (steps[f"{name} {word}"] for word in ("rows", "build share", "build again"))
        ran.append(
            f"| {name} | {len(chosen):,} / {len(shapes):,}"
            f" | {sum(s.configs for s in chosen):,} / {sum(s.configs for s in shapes):,}"
            f" | {made:.1f} GB | {_took(built)} | {_took(info)} |"
        )
        trials_run = [steps.get(f"{name} tune {r}") for r in rounds]
        train, evaluated, wide = (steps.get(f"{name} {word}") for word in ("train", "evaluate", "train wide"))
        learned.append(
            f"| {name} | {rows['train_rows']:,} | {rows['families']} | {_took(trials_run[0])}"
            f" | {_took(trials_run[1])} | {_took(train)} | {_took(evaluated)} |"
        )
        peaks.append(
            f"| {name} | "
            + " | ".join(_peak(step) for step in (built, trials_run[1], train, wide, evaluated))
            + " |"
        )
        small = (work_of(pick_share(chosen, 0.1)), steps[f"{name} build small"]["cpu"])
        learning = Learning.of(steps, name, rounds)
        guess = Line.through((0, start["cpu"]), small).at(work_of(chosen))
        compared = f"| {name} | {_against(guess, built['cpu'])} | "
        if train is not None:
            model = steps[f"{name} model"]
            guess = learning.train(rows, rounds[1], model["seeds"], model["rounds"])
            compared += _against(guess, train["cpu"])
        checks.append(compared + " |")
        build = Line.through((0, start["cpu"]), (work_of(chosen), built["cpu"])).at(work_of(shapes))
        trial, final = learning.trial(rows, full_rounds), learning.train(rows, full_rounds, seeds, full_rounds)
        study = learning.loading(rows) + trials * trial
        together, size = build + study + final, steps[f"{name} fill"]["bytes"]
        whole.append(
            f"| {name} | {_hours(build)} | {_hours(trial)} | {_hours(study)} | {_hours(final)}"
            f" | {_hours(together)} | {size / 1e9:.2f} GB |"
        )
        total, disk = total + together, disk + size
    whole.append(f"| all | | | | | {_hours(total)} | {disk / 1e9:.2f} GB |")
    submit = steps.get("submit")
    titles = {
        "Reading and building, run": ran,
        "Learning from as many rows as all graphs give, run": learned,
        "Peak memory, run": peaks,
        "How far the extrapolation is off": checks,
        f"All graphs, {full_rounds} rounds, extrapolated, in hours of one core": whole,
    }
    text = [f"### {title}\n\n" + "\n".join(lines) for title, lines in titles.items()]
    return "\n\n".join([*text, f"`submit`: {_took(submit)}, {_peak(submit)}."]) + "\n"


def _peak(step: Mapping[str, Any] | None) -> str:
    return f"{step['peak_mb'] * 2**20 / 1e9:.2f} GB" if step else "not run"


def _against(guess: float, was: float) -> str:
    return f"{guess:.0f} s, took {was:.0f} s ({guess / was - 1:+.0%})"


def _took(step: Mapping[str, Any] | None) -> str:
    if step is None:
        return "not run"
    return f"{step['cpu']:.0f} s ({step['wall']:.0f} s)"


def _hours(seconds: float) -> str:
    return f"{seconds / 3600:.2f} h"
