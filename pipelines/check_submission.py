"""Check a submission file against a sample submission or the test graphs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from xlarank.data.collection import graph_files
from xlarank.data.errors import GraphFileError, counted
from xlarank.data.graph import graph_size
from xlarank.data.root import DataRoot
from xlarank.data.submission import TILE_TOP, read_submission, submission_id, submission_problems


@dataclass(frozen=True)
class Checked:
    """The result of a check.

    Attributes:
        rows: expected of the file.
        against: what it was compared with, in words.
        unknown: id -> why, of test graphs that could not be read; their number of configurations is unknown.
    """

    rows: int
    against: str
    problems: list[str]
    unknown: dict[str, str]


def check_submission(path: Path, *, sample: Path | None = None, data_root: DataRoot | None = None) -> Checked:
    """Find everything that is wrong with a submission.

    Its ids must be those of the ``sample``, else those of the test graphs of the ``data_root``. A layout row lists
    every configuration once; a tile row at least 5 different ones, of which 5 count (all where there are fewer).
    How many a graph has is read from the data root; without one, a layout graph has as many as its sample row
    lists, and a tile row needs as many as its sample row where that has fewer than 5.

    Raises `SubmissionError` for a sample that cannot be read, `DataRootError` for a data root without graphs.
    """
    configs: dict[str, int | None] = {}
    unknown: dict[str, str] = {}
    fewest: dict[str, int] = {}
    if data_root is not None:
        for file in graph_files(data_root.npz, [], where=str(data_root.path)):
            if file.split == "test":
                row_id = submission_id(file.collection, file.name)
                try:
                    configs[row_id] = graph_size(file.path, file.collection.kind).configs
                except GraphFileError as error:
                    configs[row_id] = None
                    unknown[row_id] = str(error)
    against = counted(len(configs), "test graph")
    if sample is not None:
        listed = read_submission(sample)
        against = f"{counted(len(listed), 'id')} of {sample}"
        configs = {
            row_id: configs.get(row_id) or (None if row_id.startswith("tile:") else len(order))
            for row_id, order in listed.items()
        }
        fewest = {row_id: min(TILE_TOP, len(order)) for row_id, order in listed.items()}
        unknown = {row_id: why for row_id, why in unknown.items() if row_id in configs}
    problems = [str(each) for each in submission_problems(path, configs, fewest=fewest)]
    return Checked(len(configs), against, problems, unknown)
