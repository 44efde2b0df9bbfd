"""The command line as a whole: every group of commands, and how a command ends."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

import xlarank
from xlarank.cli import dataset, explaining, interruption, learning, ranking, whole_job
from xlarank.cli.console import error_line

app = typer.Typer(
    name="xlarank",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    help="Rank compiler configurations without running them: boosted trees on TpuGraphs data.",
)
for group in (dataset, learning, ranking, explaining, whole_job):
    app.add_typer(group.app)


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"xlarank {xlarank.__version__}")
        raise typer.Exit


@app.callback()
def common(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and leave.")
    ] = False,
) -> None:
    """Rank compiler configurations without running them: boosted trees on TpuGraphs data."""


def main() -> None:
    """Run a command; problems of the user's making end in one clear line, never a traceback."""
    from xlarank.data.errors import XlarankError

    interruption.listen()
    try:
        app()
    except BaseException as error:
        interruption.leave_if_heard()  # whatever a library made of the interruption
        if not isinstance(error, XlarankError):
            raise
        error_line(str(error))
        sys.exit(1)
