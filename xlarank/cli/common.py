"""What every command takes: options that may stand anywhere, and values from a file."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from itertools import islice
from pathlib import Path
from typing import Any, Final

from xlarank.data.errors import XlarankError
from xlarank.data.files import read_text

_FLAGS: Final = ("--quiet", "--verbose")
_VALUED: Final = ("--log-file", "--config-file")


def moved_to_front(arguments: Sequence[str]) -> list[str]:
    """Arguments with the options of every command before the command, where they are looked for.

    >>> moved_to_front(["train", "--quiet", "--seeds", "3", "--log-file", "x.log"])
    ['--quiet', '--log-file', 'x.log', 'train', '--seeds', '3']
    """
    front: list[str] = []
    rest: list[str] = []
    words = iter(arguments)
    for word in words:
        if word == "--":
            rest += [word, *words]
        elif word in _VALUED:
            front += [word, *islice(words, 1)]
        elif word in _FLAGS or word.partition("=")[0] in _VALUED:
            front.append(word)
        else:
            rest.append(word)
    return front + rest


def load_config(path: Path, commands: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Values of a TOML file for the command of that name, by the names of its parameters.

    Raises `XlarankError` for a file that cannot be read, an unknown command, an option that no command has at the
    top of the file, and one that the command does not have below its name.
    """
    try:
        found = tomllib.loads(read_text(path))
    except (OSError, ValueError) as error:
        raise XlarankError(f"{path} cannot be read ({error})", expected="TOML", do="check --config-file") from error

    def check(key: str, shown: str, what: str, known: Iterable[str]) -> None:
        if key not in known:
            close = get_close_matches(key, list(known), n=3, cutoff=0.4) or sorted(known)
            got = f"{path} names {shown}, which is not {what}"
            raise XlarankError(got, expected=", ".join(close), do="correct the file")

    options = _names(commands[name])
    everywhere = {option for command in commands.values() for option in _names(command)}
    values = {}
    for key, value in found.items():
        option = key.replace("-", "_")
        if isinstance(value, dict):
            check(key, f"[{key}]", "a command", commands)
        else:
            check(option, key, "an option of any command", everywhere)
            if option in options:  # others are for other commands
                values[options[option]] = value
    for key, value in found.get(name, {}).items():
        option = key.replace("-", "_")
        check(option, key, f"an option of {name}", options)
        values[options[option]] = value
    return values


def _names(command: Any) -> dict[str, str]:
    """What a file may call a command's options -> the parameter: ``json`` and ``json_file`` are the same."""
    options = [part for part in command.params if part.param_type_name == "option"]
    named = {text.lstrip("-").replace("-", "_"): part.name for part in options for text in part.opts}
    return named | {part.name: part.name for part in options}
