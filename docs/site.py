"""Pages of the site that are generated from the code; `mkdocs` calls `on_files`."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from mkdocs.structure.files import File, Files

from docs.columns import pages as column_pages
from xlarank.cli.app import commands, examples_of
from xlarank.cli.options import RANKERS
from xlarank.data.errors import ParameterError
from xlarank.models.losses import LOSSES, rankers, specs_of
from xlarank.models.params import ParamSpec

_COMMANDS: Final = """# Commands

Run a command with `python run.py COMMAND` in a clone, or with `xlarank COMMAND` if xlarank is
installed. The options in the first table apply to all commands; put them before or after the
command.
"""
_RANKERS: Final = """# Rankers

Select a ranker with `--model NAME`, or with `GraphRanker(NAME, parameter=value)` in Python.
[Which loss should I use?](../faq-dataset.md#which-loss-should-i-use) says which one to use.
"""


def on_files(files: Files, config: Any) -> Files:
    """Add the pages that are generated from the code."""
    pages = {"commands": commands_page(), "rankers": rankers_page(), **column_pages()}
    for name, text in pages.items():
        files.append(File.generated(config, f"reference/{name}.md", content=text))
    return files


def commands_page() -> str:
    """Return the page of all commands with all options."""
    group = commands()
    lines = [_COMMANDS, *_options(group), ""]
    for name, command in group.commands.items():
        words = [part.name for part in command.params if part.param_type_name == "argument"]
        examples = [f"python run.py {example}" for example in examples_of(name)]
        lines += [
            f"## {name}",
            "",
            inspect.cleandoc(command.help or ""),
            "",
            "```sh",
            *examples,
            "```",
            "",
        ]
        lines += [f"Takes `{' '.join(words).upper()}`.", ""] if words else []
        lines += [*_options(command), ""]
    return "\n".join(lines)


def _options(command: Any) -> Iterator[str]:
    yield "| option | default | meaning |"
    yield "|---|---|---|"
    for part in command.params:
        if part.param_type_name == "argument" or part.name in (
            "install_completion",
            "show_completion",
        ):
            continue
        names = ", ".join(f"`{name}`" for name in (*part.opts, *part.secondary_opts))
        no_default = part.default is None or part.default is False or callable(part.default)
        default = "" if no_default else f"`{part.default}`"
        help_text = (part.help or "").replace("|", "\\|").replace("\\[", "[")
        yield f"| {names} | {'required' if part.required else default} | {help_text} |"


def rankers_page() -> str:
    """Return the page of all rankers with their parameters."""
    lines = [_RANKERS]
    for name in rankers():
        summary = f"{RANKERS[name][:1].upper()}{RANKERS[name][1:]}."
        lines += [f"## {name}", "", summary, ""]
        if name in LOSSES:
            lines += [inspect.getdoc(LOSSES[name].dataset), ""]
        lines += [
            "| parameter | default | valid values | search space | meaning |",
            "|---|---|---|---|---|",
        ]
        for key, spec in specs_of(name).items():
            cells = (f"`{key}`", _default(spec), _valid(spec), _searched(spec), spec.meaning)
            lines.append(f"| {' | '.join(cells)} |")
        lines.append("")
    return "\n".join(lines)


def _default(spec: ParamSpec) -> str:
    if spec.check is None:
        return "those of the members"
    tile = spec.default_for("tile")
    return f"`{spec.default}`" if tile == spec.default else f"`{spec.default}`, tiles `{tile}`"


def _valid(spec: ParamSpec) -> str:
    """Return the valid values, as the error message describes them."""
    try:
        return spec.check("", object()) if spec.check else "parameters by name"
    except ParameterError as error:
        return error.expected


def _searched(spec: ParamSpec) -> str:
    if (space := spec.search) is None:
        return ""
    if hasattr(space, "choices"):
        return ", ".join(map(str, space.choices))
    return f"{space.low:g} to {space.high:g}{', log' if space.log else ''}"
