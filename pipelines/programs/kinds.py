"""Kinds of files and the noise in manifests, read without the libraries for programs."""

from __future__ import annotations

import json
from pathlib import Path
from statistics import median
from typing import Any

from xlarank.data.errors import XlarankError
from xlarank.data.files import read_text
from xlarank.data.npz import NpzReader


def is_function(program: str) -> bool:
    """Return whether a program is named as ``module:function``, not by a file."""
    return ":" in program and not Path(program).exists()


def is_module(path: Path) -> bool:
    """Return whether a path is ``module:function``, or a file that is no graph file."""
    return is_function(str(path)) or (path.is_file() and path.suffix != ".npz")


def is_program(path: Path) -> bool:
    """Return whether configurations are proposed for a path.

    They are for a module, and for a graph with a single configuration without a runtime.
    """
    if is_module(path) or not path.is_file():
        return is_module(path)
    try:
        with NpzReader(path) as archive:
            if "node_config_feat" not in archive.names:
                return False
            single = archive.header("config_runtime").shape == (1,)
            return single and not archive.read("config_runtime").any()
    except XlarankError:
        return False


def error_of_labels(manifest: dict[str, Any]) -> str:
    """Return the noise of measured labels, by their manifest; empty for estimates."""
    if "retest_tau" not in manifest:
        return ""
    text = f"measured in {manifest['rounds']} rounds"
    if errors := list(manifest["standard_errors"].values()):
        text += f"; standard error of a label {median(errors) / 1000:.3g} µs (median)"
    if (tau := manifest["retest_tau"]) is not None:
        text += f"; two halves of the rounds agree with Kendall's tau {tau:.3f}"
        text += f", so the ceiling of a ranker's tau is about {max(tau, 0) ** 0.5:.3f}"
    return text


def error_of_file(path: Path) -> str:
    """Return the noise of a graph file's labels by the manifest beside it, if there is one."""
    try:
        manifest = json.loads(read_text(path.with_suffix(".json")))
        return error_of_labels(manifest)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return ""
