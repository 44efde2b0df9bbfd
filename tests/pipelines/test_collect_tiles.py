"""Collecting tiles, by a compiler that writes modules down; with the real one in test_compiled.py."""

import json
from dataclasses import replace
from types import MappingProxyType

import numpy as np
import pytest

from tests.data.hlo.programs import instruction
from xlarank.data.errors import CompilerError
from xlarank.data.graph import read_graph
from xlarank.data.hlo.compiler.xla import Lowered
from xlarank.data.hlo.messages import HloModuleProto
from xlarank.pipelines.collect_tiles import NO_ESTIMATE, TileSettings, collect_tiles, remaining

SETTINGS = TileSettings(limits=8)


def module(limit=0):
    """A product whose tile has as many rows as fit, and a copy with the same tile under all limits."""
    made = HloModuleProto(name="jit_f", entry_computation_id=2, entry_computation_name="main")
    main = made.computations.add(name="main", id=2)
    instruction(main, "parameter", (4096, 128), id=20)
    rows = (limit or 16384) // 64
    for number, opcode, bound in ((21, "negate", rows), (22, "copy", 4)):
        cycles = NO_ESTIMATE + 7 if rows < 10 else 940 + 94000 // bound
        tile = {"output_window_bounds": [str(bound), "1"], "estimated_cycles": str(cycles)}
        used = [{"memory_space": "1", "offset": "0", "size": "14000000"}]
        text = json.dumps({"window_config": tile, "used_scoped_memory_configs": used}, separators=(",", ":"))
        instruction(main, opcode, (4096, 128), (20,), id=number, backend_config=text.encode())
    return made


class Compiler:
    """``dies`` after so many limits, once."""

    versions = MappingProxyType({"jax": "0"})

    def __init__(self, dies=99):
        self.dies, self.compiled = dies, []

    def lower(self, **_):
        return Lowered(module().SerializeToString())

    def under_limit(self, program, kib, seconds):
        assert 0 < seconds <= 9 * SETTINGS.limit
        if len(self.compiled) == self.dies:
            raise KeyboardInterrupt
        self.compiled.append(kib)
        return "out of vector memory" if kib in (790, 1218) else module(kib).SerializeToString()


def tiles(out, compiler=None, settings=SETTINGS, **given):
    return collect_tiles("mine:prog", out, settings, compiler=compiler or Compiler(), **given)


def test_a_kernels_tiles_are_those_met_and_the_first_is_the_compilers_own(tmp_path):
    collected = tiles(tmp_path)
    (name,) = collected.files
    graph = read_graph(collected.path.parent / f"{name}.npz", "tile")
    assert graph.config_feat[0, 8:10].tolist() == [256, 1]
    rows = graph.config_feat[:, 8]
    assert graph.runtime.tolist() == [round((940 + 94000 // int(row)) / 0.94) for row in rows]
    assert (graph.normalizers == graph.runtime[0]).all()
    assert len(np.unique(rows)) == len(rows)
    written, copy = collected.manifest["kernels"]
    assert copy["status"] == "fewer than 5 tiles" and written["tiles_without_estimate"] == 1
    assert collected.statuses == {"written": 1, "fewer than 5 tiles": 1}
    assert replace(collected, manifest={"kernels": []}).statuses == {}, "a program may have none"
    assert collected.manifest["limits_kib"]["1218"] == "out of vector memory"
    assert not tiles(tmp_path).fresh


def test_interrupted_and_run_again_it_gives_the_same_files(tmp_path):
    tiles(tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        tiles(tmp_path / "killed", Compiler(dies=4))
    again = Compiler()
    tiles(tmp_path / "killed", again)
    place = "npz/tile/tpu-estimate/train"
    written = {path.name: path.read_bytes() for path in (tmp_path / "killed" / place).iterdir()}
    assert written == {path.name: path.read_bytes() for path in (tmp_path / "whole" / place).iterdir()}
    assert len(again.compiled) == 9 - 4


def test_a_kernel_of_another_program_is_one_file(tmp_path):
    first, second = tiles(tmp_path), tiles(tmp_path, split="valid", name="other")
    assert not second.files
    assert [one["file"] for one in second.manifest["kernels"]] == [*first.files, None]


def test_only_limits_that_may_change_something_are_compiled(tmp_path):
    (tmp_path / "0.pb").write_bytes(module().SerializeToString())  # uses 13,672 KiB
    assert remaining(tmp_path, [0, 1024, 16384, 18000]) == [1024, 16384]


def test_a_cpu_has_no_tiles_and_time_may_be_too_short(tmp_path):
    with pytest.raises(CompilerError, match=r"for tpu-v3 \(not compiled within 0 s in all\)"):
        tiles(tmp_path, settings=TileSettings(limit=0.0))
    with pytest.raises(CompilerError, match="no tiles for cpu"):
        tiles(tmp_path, settings=TileSettings("cpu"))
