"""Errors that a user can act on, the wording of messages, and limits of numbers."""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Final

#: Maximum characters of each part of a message.
_MAX_PART: Final = 1000


class XlarankError(Exception):
    """A problem with the input or the environment, not a bug in xlarank.

    The message joins what was got, what was expected and what to do; the last two are optional.
    Parameters are named in backticks, which the command line replaces by its options.

    Examples:
        >>> print(XlarankError("found no graphs", expected="npz/layout or npz/tile",
        ...     do="pass `data_root`"))
        found no graphs; expected npz/layout or npz/tile; pass `data_root`
    """

    def __init__(self, got: str, *, expected: str = "", do: str = "") -> None:
        self.got = _one_line(got)
        self.expected = _one_line(expected)
        self.do = _one_line(do)
        parts = [self.got, f"expected {self.expected}" if expected else "", self.do]
        super().__init__("; ".join(part for part in parts if part))

    def __reduce__(self) -> tuple[object, ...]:  # keyword arguments do not survive default pickling
        return partial(type(self), self.got, expected=self.expected, do=self.do), ()


def _one_line(text: str) -> str:
    """Return text, perhaps another library's, as one line of at most `_MAX_PART` characters.

    >>> _one_line("no such column" + chr(10) * 2 + "Resolved plan:"), len(_one_line("x" * 5000))
    ('no such column Resolved plan:', 1000)
    """
    line = " ".join(filter(None, text.splitlines()))
    return line if len(line) <= _MAX_PART else f"{line[: _MAX_PART - 1]}…"


def did_you_mean(name: str, known: Iterable[str], cutoff: float = 0.7) -> str:
    """Return a hint that lists up to three similar names; empty if there are none.

    >>> did_you_mean("n_estimator", ["ranker", "n_estimators"]), did_you_mean("depth", ["ranker"])
    ('did you mean n_estimators?', '')
    """
    close = difflib.get_close_matches(name, list(known), n=3, cutoff=cutoff)
    return f"did you mean {' or '.join(close)}?" if close else ""


def counted(count: int, noun: str) -> str:
    """Return a count with its noun in the plural, or in the singular for 1.

    >>> counted(1, "test graph"), counted(0, "row"), counted(1200, "family")
    ('1 test graph', '0 rows', '1,200 families')
    """
    if count != 1:
        noun = f"{noun[:-1]}ies" if noun.endswith(("ly", "py")) else f"{noun}s"
    return f"{count:,} {noun}"


def shortened(names: Sequence[object], limit: int = 3) -> str:
    """Return the first names, and the number of the others.

    >>> shortened("abcd"), shortened("ab")
    ('a, b, c and 1 more', 'a, b')
    """
    shown = ", ".join(map(str, names[:limit]))
    return f"{shown} and {len(names) - limit:,} more" if len(names) > limit else shown


def reasons(reason_of: Mapping[str, str], limit: int = 3) -> list[str]:
    """Return a line ``names: reason`` for each reason, with at most ``limit`` names.

    A reason that begins with its name is a line of its own.

    >>> left_out = dict.fromkeys("abcd", "its labels are withheld")
    >>> reasons(left_out | {"tile:cpu": "tile:cpu has no test graphs"})
    ['a, b, c and 1 more: its labels are withheld', 'tile:cpu has no test graphs']
    """
    names_by_reason: dict[str, list[str]] = {}
    for name, reason in reason_of.items():
        names_by_reason.setdefault(reason, []).append(name)
    lines = []
    for reason, names in names_by_reason.items():
        is_named = reason.startswith(names[0])
        lines.append(reason if is_named else f"{shortened(names, limit)}: {reason}")
    return lines


@contextmanager
def naming(name: str, do: str = "") -> Iterator[None]:
    """Prefix the message of any `XlarankError` with a name; ``do`` is the default advice.

    >>> with naming("a.npz", do="mend it"):
    ...     raise GraphFileError("it has no nodes")
    Traceback (most recent call last):
        ...
    xlarank.data.errors.GraphFileError: a.npz: it has no nodes; mend it
    """
    try:
        yield
    except XlarankError as error:
        got = f"{name}: {error.got}"
        raise type(error)(got, expected=error.expected, do=error.do or do) from error


class DataRootError(XlarankError):
    """The data root is missing, empty or not a TpuGraphs tree."""


class CollectionError(XlarankError):
    """A collection is unknown, or lacks what a command needs, such as a split or labels."""


class GraphFileError(XlarankError):
    """A graph file is unreadable, unsafe, or has values outside the format."""


class WorkspaceError(XlarankError):
    """A workspace or a file cannot be written, or a path would lead outside the workspace."""


class FeatureStoreError(XlarankError):
    """Stored features are missing, stale or unreadable."""


class ModelError(XlarankError):
    """A model is missing, broken, or was trained on other columns."""


class ParameterError(ModelError, ValueError):
    """A parameter has an unknown name, or a value of the wrong type or out of its range."""


class CompilerError(XlarankError):
    """A compiler is not installed, or cannot do what is asked of it."""


class HloError(XlarankError):
    """A program cannot be read, or is beyond the limits of the format."""


MAX_SEED: Final = 2**31 - 1  # limit of the underlying libraries
MAX_ROUNDS: Final = 100_000
#: More threads (or processes) do not help, and thousands crash the underlying libraries.
MAX_THREADS: Final = max(64, 4 * (os.cpu_count() or 1))
