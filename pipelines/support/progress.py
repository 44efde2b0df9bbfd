"""Interface of progress bars."""

from __future__ import annotations

from typing import Protocol


class Progress(Protocol):
    """Receives the course of a job: one `begin`, steps, one `end`; jobs do not nest."""

    def begin(self, what: str, total: int) -> None:
        """A job of ``total`` steps starts."""

    def step(self, note: str = "") -> None:
        """One more step is done; ``note`` says what is worth knowing now."""

    def end(self) -> None:
        """The job is over."""


class Silent:
    """Ignores everything."""

    def begin(self, what: str, total: int) -> None:
        pass

    def step(self, note: str = "") -> None:
        pass

    def end(self) -> None:
        pass
