"""Gains of `advise` that docs/reference/programs.md shows, by the TPU compiler's estimate.

    python -m benchmarks.advise [PROGRAM...] [--data FOLDER] [--budget 20] [--minutes 60]
        [--target tpu-v3] [--jobs 1] [--json FILE]

Shows the gain of entry layouts alone and with layouts around copies. Default programs: those in
this folder and below ``--data`` (``hlo/`` and ``tpu_estimate/``). Needs the
extra ``collect``.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np

from xlarank.data.errors import XlarankError
from xlarank.pipelines.programs.advise.search import LayoutSearch
from xlarank.pipelines.programs.compiler.session import Compiler
from xlarank.pipelines.programs.sources import load_program

#: Default programs: files below ``--data``, and functions of `benchmarks.programs`.
PROGRAMS = """
attention:bert__a attention:decode__a attention:linattn_train__d attention:linformer__a
attention:llama_train__d numerical:filters__a numerical:kernelmachine__a numerical:matrixproducts__a
numerical:operator__a numerical:outermean__a recommenders:bilinearfields__a recommenders:crossing__a
recommenders:factormachine__a recommenders:fieldattn_train__d recommenders:session__a
recommenders:towers__a recommenders:towers_train__d sequences:temporal_train__d
sequences:textcnn_train__d torch_style:torchencoder__a torch_style:torchlenet__a
torch_style:torchperceptron_train__a torch_style:torchseparable__a torch_style:torchtextcnn__a
vision:alexnet__a vision:generator__a vision:inverted__a vision:squeezenet__a
hlo/depthwise_conv_3x3_1x256x56x56_bf16.hlo hlo/dlrm_keras_jax_f32_test_step.hlo
hlo/mha_block_1x12x128x64_bf16.hlo tpu_estimate/modules/autoenc_train__a.pb
tpu_estimate/modules/crossattn__a.pb tpu_estimate/modules/mixer__a.pb
tpu_estimate/modules/mlp_train__a.pb tpu_estimate/modules/swin__a.pb
""".split()


class _Staged(LayoutSearch):
    """Search that remembers the gain of entry layouts."""

    entry = 1.0

    def avoid_copies(self) -> None:
        self.entry = self.trials[0].cycles / self.best.cycles
        super().avoid_copies()


def gains(compiler: Compiler, path: str, budget: int, minutes: float) -> dict[str, Any]:
    """Return the gains of a program, the number of compilations and seconds."""
    begun = time.monotonic()
    search = _Staged(compiler, load_program(path, compiler), budget, minutes)
    search.run()
    return {
        "program": search.program.name,
        "entry": search.entry,
        "all": search.trials[0].cycles / search.best.cycles,
        "compilations": search.spent,
        "seconds": round(time.monotonic() - begun, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("programs", nargs="*")
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--minutes", type=float, default=60.0, help="for one search")
    parser.add_argument("--budget", type=int, default=20)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--target", default="tpu-v3")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    records: list[dict[str, Any]] = []
    defaults = []
    for name in PROGRAMS:
        is_file = "/" in name
        defaults.append(str(args.data / name) if is_file else f"benchmarks.programs.{name}")
    for path in args.programs or defaults:
        try:
            with Compiler(args.target, jobs=args.jobs) as compiler:
                records.append(gains(compiler, path, args.budget, args.minutes))
        except XlarankError as error:
            print(f"{path}: {error}", flush=True)
            continue
        print(json.dumps(records[-1]), flush=True)
        if args.json:
            args.json.write_text(json.dumps(records, indent=1), encoding="utf-8")
    for method in ("entry", "all"):
        mean = np.exp(np.mean([np.log(record[method]) for record in records]))
        gained = sum(record[method] > 1.02 for record in records)
        print(f"{method}: {mean:.4f}, {gained} of {len(records)} programs gain more than 2 %")


if __name__ == "__main__":
    main()
