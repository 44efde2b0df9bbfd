"""Tiles of kernels by a fake compiler."""

import json
from dataclasses import replace

import numpy as np
import pytest

from benchmarks.collect_tiles import NO_ESTIMATE, collect_tiles
from tests.data.hlo.programs import instruction
from tests.pipelines.trees import Listener, contents
from xlarank.data.graph import read_graph
from xlarank.data.hlo.messages import HloModuleProto
from xlarank.pipelines.programs.compiler.chips import chip_named
from xlarank.pipelines.programs.compiler.xla import Outcome, Program


def tile(cycles, output, kernel=()):
    """Return the backend configuration of an operation that uses 13,672 KiB."""
    window = {"kernel_window_bounds": kernel, "output_window_bounds": output}
    used = {"memory_space": "1", "offset": "0", "size": "14000000"}
    config = {"window_config": window | {"estimated_cycles": str(cycles)}}
    text = json.dumps(config | {"used_scoped_memory_configs": [used]}, separators=(",", ":"))
    return {"backend_config": text.encode()}


def module(limit=0):
    """Return a product whose tile has as many rows as fit, and a copy with one tile."""
    made = HloModuleProto(name="jit_f", entry_computation_id=2, entry_computation_name="main")
    main = made.computations.add(name="main", id=2)
    instruction(main, "parameter", (4096, 128), id=20)
    rows = (limit or 16384) // 64
    for number, opcode, bound in ((21, "negate", rows), (22, "copy", 4)):
        cycles = NO_ESTIMATE + 7 if rows < 10 else 940 + 94000 // bound
        instruction(main, opcode, (4096, 128), (20,), id=number, **tile(cycles, [str(bound), "1"]))
    return made


class Compiler:
    """Compiler that is interrupted after ``dies`` limits."""

    target = chip_named("tpu-v3")

    def __init__(self, dies=99):
        self.versions = {"jax": "0"}
        self.dies = dies
        self.compiled = []

    def lower(self, **_):
        return Program(module().SerializeToString())

    def ask(self, work, seconds):
        kib = work.keywords["kib"]
        assert 0 < seconds <= 9 * 120
        if len(self.compiled) == self.dies:
            raise KeyboardInterrupt
        self.compiled.append(kib)
        if kib in (790, 1218):
            return Outcome("failed", message="out of vector memory")
        return module(kib).SerializeToString()


def tiles(out, compiler=None, program="mine:prog", **given):
    return collect_tiles(program, out, compiler or Compiler(), limits=8, **given)


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
    second = tiles(tmp_path, split="valid", program="mine:other")
    assert not second.files, "a kernel of another program is one file"
    assert [kernel["file"] for kernel in second.manifest["kernels"]] == [name, None]


def test_interrupted_and_run_again_it_gives_the_same_files(tmp_path):
    tiles(tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        tiles(tmp_path / "killed", Compiler(dies=4))
    again = Compiler()
    with Listener() as listener:
        tiles(tmp_path / "killed", again)
    assert contents(tmp_path / "killed") == contents(tmp_path / "whole")
    assert len(again.compiled) == len(listener.notes) == 9 - 4
    assert listener.jobs == [("compiling prog under limits of memory", 9 - 4)]
    tiles(tmp_path / "whole").path.unlink()  # as if killed before the manifest was written
    assert tiles(tmp_path / "whole").statuses == {"written": 1, "fewer than 5 tiles": 1}
