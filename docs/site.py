"""What the site shows of the code and of the results: made when it is built, never kept in git.

`mkdocs` calls `on_files` and `on_page_markdown`. A line ``<!-- table: NAME -->`` of a page becomes the table of
that name in ``benchmarks/results/<version>.json``.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from mkdocs.structure.files import File, Files

from benchmarks.results.stored import markdown, path_of, read
from xlarank.cli.app import commands, number_span
from xlarank.cli.guide import GUIDES, RANKERS
from xlarank.data.errors import ParameterError
from xlarank.features import reference
from xlarank.models import registry
from xlarank.models.params import ParamSpec

_TABLE: Final = re.compile(r"^<!-- table: ([\w-]+) -->$", re.M)
_COMMANDS: Final = """# Commands

`python run.py COMMAND` in a clone, `xlarank COMMAND` where it is installed. The options of all commands may stand
before or after the command; `--config-file` takes a TOML file with values of options.
"""
_RANKERS: Final = """# Rankers

`--model NAME` of the commands, `GraphRanker(NAME, parameter=value)` in Python. Which one to take:
[Choose a ranker](../how-to/choose-ranker.md).
"""
#: Meanings of parameters that several rankers share.
_SHARED: Final = {
    "learning_rate": "how much a tree counts",
    "num_leaves": "most leaves of a tree",
    "min_data_in_leaf": "fewest rows of a leaf",
    "feature_fraction": "share of the columns that a tree may use",
    "bagging_fraction": "share of the rows that a tree learns from",
    "lambda_l2": "L2 regularisation of leaf values",
    "columns": "all, or without those about the graph, the other candidates, or both",
    "init_score_weight": "how much trees begin at the estimated time of a tile",
    "tie_tolerance": "runtimes that differ by no more than this share are equal",
    "graph_weight": "how much a graph counts by its size",
    "pairs": "partners drawn for each row",
}


def on_files(files: Files, config: Any) -> Files:
    """Add the pages that are made of the code."""
    pages = {f"columns-{name}": text for name, text in reference.pages().items()}
    for name, text in {"commands": commands_page(), "rankers": rankers_page(), **pages}.items():
        files.append(File.generated(config, f"reference/{name}.md", content=text))
    return files


def on_page_markdown(text: str, **_: Any) -> str:
    """Put tables of results in their places; raises `KeyError` for one that was not made."""
    tables = read(path_of())
    return _TABLE.sub(lambda found: markdown(tables[found[1]]), text)


def commands_page() -> str:
    """All commands with all options."""
    group = commands()
    lines = [_COMMANDS, *_options(group), ""]
    for name, command in group.commands.items():
        words = [part.name for part in command.params if part.param_type_name == "argument"]
        lines += [f"## {name}", "", inspect.cleandoc(command.help or ""), "", "```sh"]
        lines += [f"python run.py {example}" for example in GUIDES[name].examples]
        lines += [
            "```",
            "",
            *([f"Takes `{' '.join(words).upper()}`.", ""] if words else []),
            *_options(command),
            "",
        ]
    return "\n".join(lines)


def _options(command: Any) -> Iterator[str]:
    yield "| option | value | default | meaning |"
    yield "|---|---|---|---|"
    for part in command.params:
        if part.param_type_name == "argument" or part.name in ("install_completion", "show_completion"):
            continue
        names = ", ".join(f"`{name}`" for name in (*part.opts, *part.secondary_opts))
        value = " ".join(filter(None, [part.metavar, f"({span})" if (span := number_span(part)) else ""]))
        default = "" if part.default in (None, False) or callable(part.default) else f"`{part.default}`"
        help_text = (part.help or "").replace("|", "\\|").replace("\\[", "[")
        yield f"| {names} | {value} | {'required' if part.required else default} | {help_text} |"


def rankers_page() -> str:
    """Every ranker: what it is, and its parameters."""
    lines = [_RANKERS]
    for name, ranker in registry.RANKERS.items():
        meanings = _meanings(ranker.params_class)
        lines += [
            f"## {name}",
            "",
            f"{RANKERS[name].capitalize()}.",
            "",
            inspect.cleandoc(ranker.__doc__ or ""),
            "",
        ]
        lines += ["| parameter | default | may be | studies search | meaning |", "|---|---|---|---|---|"]
        for key, spec in ranker.params_class.declared().items():
            lines.append(
                f"| `{key}` | {_default(spec)} | {_may_be(spec)} | {_searched(spec)} | {meanings.get(key, '')} |"
            )
        lines.append("")
    return "\n".join(lines)


def _default(spec: ParamSpec) -> str:
    if spec.complete is not None:
        return "theirs"
    return f"`{spec.layout}`" if spec.layout == spec.tile else f"`{spec.layout}`, tiles `{spec.tile}`"


def _may_be(spec: ParamSpec) -> str:
    """What is expected, in the words of the error."""
    if spec.check is None:
        return "parameters by name"
    try:
        spec.check("", object())
    except ParameterError as error:
        return error.expected
    return ""


def _searched(spec: ParamSpec) -> str:
    found = spec.search
    if found is None:
        return ""
    if hasattr(found, "choices"):
        return ", ".join(map(str, found.choices))
    return f"{found.low:g} to {found.high:g}{', log' if found.log else ''}"


def _meanings(params: type) -> dict[str, str]:
    """Parameter -> its line in the section Attributes of the class or of one that it extends."""
    found: dict[str, str] = {}
    for each in params.__mro__:
        section = inspect.cleandoc(each.__doc__ or "").partition("Attributes:\n")[2]
        for names, text in re.findall(r"^ {4}([\w, ]+):\s+(.*(?:\n {8}.*)*)", section, re.M):
            for name in names.split(", "):
                found.setdefault(name, " ".join(text.split()))
    return {**_SHARED, **found}
