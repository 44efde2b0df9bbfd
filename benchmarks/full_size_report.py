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

    A fit over so many rows costs ``rows x (bins + rounds x trees)``: a trial fits every fold without the rows held
    out, so each row ``folds - 1`` times; a final training does so too and then once for each seed.
    """

    bins: float
    trees: float

    @classmethod
    def of(cls, steps: Steps, collection: str, rounds: Sequence[int]) -> Learning:
        """From the two trials that were run."""
        rows = steps[f"{collection} rows"]
        fitted = rows["train_rows"] * (min(5, rows["families"]) - 1)
        line = Line.through(*[(r, steps[f"{collection} tune {r}"]["cpu"] / fitted) for r in rounds])
        return cls(line.once, line.each)

    def trial(self, rows: Mapping[str, Any], rounds: int) -> float:
        fitted: int = rows["train_rows"] * (min(5, rows["families"]) - 1)
        return fitted * (self.bins + rounds * self.trees)

    def train(self, rows: Mapping[str, Any], rounds: int, seeds: int, final_rounds: int) -> float:
        folds: int = min(10, rows["all_families"]) - 1
        count: int = rows["rows"]
        return count * (folds * (self.bins + rounds * self.trees) + seeds * (self.bins + final_rounds * self.trees))


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
        "| collection | graphs: all / written | configurations: all / written | written files unpack to"
        " | rows learned from, all graphs | `build-features` | `info` | one trial, "
        f"{rounds[0]} and {rounds[1]} rounds | `train --with-valid`, {rounds[1]} rounds | peak: build / learn |",
        "|---" * 10 + "|",
    ]
    checks = ["| collection | build: tenth from hundredth | `train` from the two trials |", "|---" * 3 + "|"]
    whole = [
        f"| collection | build | one trial | {trials} trials | train, {seeds} seeds | together | disk |",
        "|---" * 7 + "|",
    ]
    total = disk = 0.0
    for name in collections:
        shapes = draw_shapes(name)
        chosen = pick_share(shapes, share)
        small = pick_share(chosen, 0.1)
        rows, made = steps[f"{name} rows"], steps[f"{name} generate"]
        step = {word: steps[f"{name} {word}"] for word in ("build again", "build small", "build share", "info")}
        first, second = (steps[f"{name} tune {r}"] for r in rounds)
        train = steps[f"{name} train"]
        peak = max(part["peak_mb"] for part in (first, second, train))
        ran.append(
            f"| {name} | {len(shapes):,} / {len(chosen):,}"
            f" | {sum(s.configs for s in shapes):,} / {sum(s.configs for s in chosen):,}"
            f" | {made['unpacked'] / 1e9:.1f} GB | {rows['rows']:,} | {_took(step['build share'])}"
            f" | {_took(step['info'])} | {_took(first)}, {_took(second)} | {_took(train)}"
            f" | {step['build share']['peak_mb'] / 1000:.2f} / {peak / 1000:.2f} GB |"
        )
        start = step["build again"]["cpu"]
        guess = Line.through((0, start), (work_of(small), step["build small"]["cpu"])).at(work_of(chosen))
        learning = Learning.of(steps, name, rounds)
        guessed = learning.train(rows, rounds[1], rows["seeds"], rows["final_rounds"])
        checks.append(
            f"| {name} | {guess:.0f} s, was {step['build share']['cpu']:.0f} s"
            f" ({guess / step['build share']['cpu'] - 1:+.0%})"
            f" | {guessed:.0f} s, was {train['cpu']:.0f} s ({guessed / train['cpu'] - 1:+.0%}) |"
        )
        build = Line.through((0, start), (work_of(chosen), step["build share"]["cpu"])).at(work_of(shapes))
        trial = learning.trial(rows, full_rounds)
        final = learning.train(rows, full_rounds, seeds, full_rounds)
        bytes_ = steps[f"{name} fill"]["bytes"]
        whole.append(
            f"| {name} | {_hours(build)} | {_hours(trial)} | {_hours(trials * trial)} | {_hours(final)}"
            f" | {_hours(build + trials * trial + final)} | {bytes_ / 1e9:.2f} GB |"
        )
        total, disk = total + build + trials * trial + final, disk + bytes_
    submit = steps["submit"]
    whole.append(f"| **all** | | | | | **{_hours(total)}** | **{disk / 1e9:.2f} GB** |")
    wide = [
        f"| {name} | {steps[f'{name} train wide']['peak_mb'] / 1000:.2f} GB |"
        for name in collections
        if f"{name} train wide" in steps
    ]
    parts = [
        "Run (processor time, by the clock):",
        *ran,
        "",
        "Checks of the extrapolation:",
        *checks,
        "",
        f"The whole job, extrapolated to {full_rounds} rounds (processor hours):",
        *whole,
        "",
        "Peak memory of `train` with four folds at once:",
        "| collection | peak |",
        "|---|---|",
        *wide,
        "",
        f"`submit`, {sum(OFFICIAL[name][0][2] for name in collections)} test graphs: {_took(submit)},"
        f" peak {submit['peak_mb'] / 1000:.2f} GB.",
    ]
    return "\n".join(parts) + "\n"


def _took(step: Mapping[str, Any]) -> str:
    return f"{step['cpu']:.0f} s ({step['wall']:.0f} s)"


def _hours(seconds: float) -> str:
    return f"{seconds / 3600:.2f} h"
