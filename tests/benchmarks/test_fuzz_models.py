"""A smaller run of the fuzzer; the whole one is `python -m benchmarks.fuzz_models`."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.fuzz_models import fuzz


@pytest.mark.slow
def test_no_edited_booster_ends_the_process(tmp_path: Path) -> None:
    for model, counts in fuzz(tmp_path, 120).items():
        assert set(counts) <= {"refused", "ranked", "no numbers"}, (model, counts)
        assert counts["refused"] > 24, "most edits are seen"
