"""Commands about the files and their columns."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from tests.cli.shell import Outcome
from tests.graphs import save_npz, tile_arrays


def test_a_column_is_explained(command: Callable[..., Outcome]) -> None:
    outcome = command("explain-feature", "padding__output_waste__max")
    assert outcome.code == 0
    assert "largest waste" in outcome.out and "padded size / true size" in outcome.out


def test_a_pattern_lists_its_columns(command: Callable[..., Outcome]) -> None:
    outcome = command("explain-feature", "propagation__*")
    assert outcome.code == 0 and outcome.out.count("propagation__") == 4


def test_an_unknown_column_is_one_clear_line(command: Callable[..., Outcome]) -> None:
    outcome = command("explain-feature", "paddin__output_waste__max")
    assert outcome.code == 1 and len(outcome.errors) == 1
    assert "padding__output_waste__max" in outcome.errors[0]


def test_a_long_list_of_graphs_is_cut_short(command: Callable[..., Outcome], tmp_path: Path) -> None:
    """Hundreds of tile kernels have one configuration only; they must not hide the table."""
    for number in range(25):
        arrays = tile_arrays()
        arrays["config_feat"][:] = arrays["config_feat"][0]
        save_npz(tmp_path / f"npz/tile/cpu/train/k__{number:02}.npz", arrays)
    outcome = command("info", "--data-root", tmp_path, "--json", tmp_path / "info.json")
    listed = [line for line in outcome.out.splitlines() if line.startswith("cannot be ranked")]
    assert len(listed) == 21
    assert listed[-1].endswith(": and 5 more")
    (part,) = json.loads((tmp_path / "info.json").read_text())
    assert len(part["unrankable"]) == 25
