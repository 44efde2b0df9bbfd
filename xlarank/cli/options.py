"""Options of several commands, the workspace that they name, and the record of a run."""

from __future__ import annotations

import math
import shlex
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, Final

from typer import BadParameter, CallbackParam, Option

from xlarank.cli import console
from xlarank.data.errors import (
    MAX_HOURS,
    MAX_ROUNDS,
    MAX_SEED,
    MAX_SEEDS,
    MAX_THREADS,
    MAX_TRIALS,
    XlarankError,
)
from xlarank.data.files import output_target, read_text
from xlarank.data.workspace import DEFAULT_ROOT, Workspace


def _json(param: CallbackParam, path: Path | None) -> Path | None:
    if path == console.STDOUT:
        console.current_run.json_on_stdout = True
        return path
    return out_file(param, path)


def out_file(param: CallbackParam, path: Path | None) -> Path | None:
    """Return the path; raises now, rather than after hours of work, if it cannot be written."""
    if path == console.STDOUT:
        do = "standard output is for --json -"
        raise XlarankError(f"{param.opts[0]} is -", expected="the name of a file", do=do)
    if path is not None:
        output_target(path)
    return path


def recorded(param: CallbackParam, value: Any) -> Any:
    """Record an option, unless it has its default, for the next command."""
    values = value if isinstance(value, list | tuple) else [value]
    given = [shlex.quote(str(entry)) for entry in values if entry not in (None, WORK)]
    options = "".join(f" {param.opts[-1]} {entry}" for entry in given)
    console.current_run.words[str(param.name)] = options
    return value


def _number(value: float | None) -> float | None:
    if value is not None and math.isnan(value):
        raise BadParameter("nan is not a number of seconds, hours or gigabytes")
    return value


def _load_blocks(param: CallbackParam, names: list[str] | None) -> list[str] | None:
    if names:
        from xlarank.features.block_files import load_blocks

        load_blocks(*names)
    recorded(param, names)
    return names


WORK = DEFAULT_ROOT
Root = Annotated[Path | None, Option(callback=recorded)]
Work = Annotated[Path, Option(callback=recorded)]
Collections = Annotated[list[str] | None, Option("--collection", "-c", callback=recorded)]
ModelOf = Annotated[str | None, Option("--collection", "-c", callback=recorded)]
RankedBy = Annotated[str | None, Option(callback=recorded)]
Model = Annotated[str, Option(callback=recorded)]
Blocks = Annotated[list[str] | None, Option(callback=_load_blocks)]
Json = Annotated[Path | None, Option("--json", callback=_json)]
Out = Annotated[Path, Option(callback=out_file)]
OptionalOut = Annotated[Path | None, Option(callback=out_file)]
Seed = Annotated[int, Option(min=0, max=MAX_SEED)]
Threads = Annotated[int, Option(min=-1, max=MAX_THREADS)]
Rounds = Annotated[int, Option(min=1, max=MAX_ROUNDS)]
Seeds = Annotated[int, Option(min=1, max=MAX_SEEDS)]
Trials = Annotated[int, Option(min=1, max=MAX_TRIALS)]
Jobs = Annotated[int, Option(min=0, max=MAX_THREADS)]
Timeout = Annotated[float | None, Option(min=0, callback=_number)]
Hours = Annotated[float, Option(min=0, max=MAX_HOURS, callback=_number)]
Ram = Annotated[float, Option(min=0, callback=_number)]
Positive = Annotated[int, Option(min=1)]
NonNegative = Annotated[int, Option(min=0)]

RANKERS: Final = {
    "lambdarank": "trees with the lambdarank loss; fast, the default",
    "ranknet": "trees on sampled pairs; fast, often slightly better for layouts",
    "xgb-pairwise": "XGBoost on sampled pairs, independent of LightGBM",
    "time-trees": "trees that begin at an estimated time, of TPU layouts or of tiles",
    "ensemble": "rank average of lambdarank, ranknet and xgb-pairwise",
}
ANY_RANKER: Final = " or ".join(", ".join(RANKERS).rsplit(", ", 1))
#: Help of options that several commands share, by parameter; the docstring of a command has the
#: others, and those that mean something else in it.
SHARED_HELP: Final = {
    "blocks": "File with blocks, which is run; repeatable.",
    "collection": "layout:SOURCE:SEARCH, tile:SOURCE or a pattern ('layout:*'); repeatable. "
    "Default: all.",
    "configs": "Number of configurations, the compiler's default first.",
    "data_root": "Folder in TpuGraphs format. Default: XLARANK_DATA, Kaggle, ~/data/tpugraphs, "
    "the sample.",
    "jobs": "Number of processes; 0: by cores and sizes of graphs.",
    "json_file": "Write JSON to this file; -: standard output.",
    "model": f"Ranker: {ANY_RANKER}.",
    "model_from": "trained: the model, even if the shipped ranker or a rule is better out of fold; "
    "shipped: the shipped ranker.",
    "name": "Name of this run in the leaderboard.",
    "out": "File to write.",
    "per_node": "Candidate layouts of a node with --tie none, the default included.",
    "program": "HLO file, or module:function that returns a JAX callable and its arguments.",
    "rounds": "Maximum boosting rounds; cross-validation chooses.",
    "scheduler": "host:port of a Dask scheduler, or local (extra: dask).",
    "scores": "Parquet or csv with graph, configuration, score, to use or blend instead of a "
    "model.",
    "seed": "Seed of all random numbers.",
    "seeds": "Number of boosters whose scores are averaged.",
    "select": "Score to select by: mean, or robust: mean - std / 4 over graphs.",
    "split": "train, valid or test.",
    "target": "tpu-v3, -v4, -v5e or -v6e, estimated; cpu or device (JAX's own), measured.",
    "threads": "Threads for training; 0 or -1: all cores.",
    "tie": "rule: set tied nodes together, as in Google's files; none: separately.",
    "trials": "Trials of each study, earlier ones included.",
    "weights": "Weight of a file of --scores; repeatable.",
    "workspace": "Folder for features, studies, models and reports.",
}

#: Options of every command, without and with a value.
_FLAGS: Final = ("--quiet", "--verbose")
_VALUED: Final = ("--log-file", "--config-file")


def moved_to_front(arguments: Sequence[str]) -> list[str]:
    """Move options common to all commands in front of the command.

    >>> moved_to_front(["train", "--quiet", "--seeds", "3", "--log-file", "x.log"])
    ['--quiet', '--log-file', 'x.log', 'train', '--seeds', '3']
    """
    front: list[str] = []
    back: list[str] = []
    remaining = iter(arguments)
    for argument in remaining:
        if argument == "--":
            back += [argument, *remaining]
        elif argument in _VALUED:
            front += [argument, *islice(remaining, 1)]
        elif argument in _FLAGS or argument.partition("=")[0] in _VALUED:
            front.append(argument)
        else:
            back.append(argument)
    return front + back


def load_config(path: Path, commands: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Read the values for a command from a TOML file, by parameter; raises `XlarankError`."""
    try:
        settings = tomllib.loads(read_text(path))
    except (OSError, ValueError, RecursionError) as error:
        got = f"{path} cannot be read ({error})"
        raise XlarankError(got, expected="TOML", do="check --config-file") from error

    def require(key: str, known: Iterable[str], kind: str, shown: str) -> None:
        if key not in known:
            close = get_close_matches(key, list(known), n=3, cutoff=0.4) or sorted(known)
            got = f"{path} names {shown}, which is not {kind}"
            raise XlarankError(got, expected=", ".join(close), do="correct the file")

    known = {command: _options_by_name(commands[command].params) for command in commands}
    sections = {key: value for key, value in settings.items() if isinstance(value, dict)}
    for key in sections:
        require(key, commands, "a command", f"[{key}]")
    shared = {key: value for key, value in settings.items() if key not in sections}
    given = {}
    for section, allowed, kind in (
        (shared, set().union(*known.values()), "an option of any command"),
        (sections.get(name, {}), known[name], f"an option of {name}"),
    ):
        for key, value in section.items():
            require(_in_python(key), allowed, kind, key)
            given[_in_python(key)] = value
    values = {}
    for key in given.keys() & known[name].keys():
        option = known[name][key]
        values[option.name] = value = given[key]
        entries = value if isinstance(value, list) else [value]
        if not option.is_flag and any(isinstance(entry, bool) for entry in entries):
            # an int to Typer
            got = f"{path} sets {key.replace('_', '-')} to {str(value).lower()}"
            raise XlarankError(got, expected="a number or text", do="correct the file")
    return values


def _in_python(name: str) -> str:
    return name.lstrip("-").replace("-", "_")


def _options_by_name(params: Sequence[Any]) -> dict[str, Any]:
    """Return options by the names allowed in a file; ``json`` and ``json_file`` are the same."""
    named: dict[str, Any] = {}
    for param in params:
        if param.param_type_name == "option":
            named |= dict.fromkeys([*map(_in_python, param.opts), param.name], param)
    return named


def workspace_at(path: Path) -> Workspace:
    console.current_run.workspace = path
    return Workspace(path)
