"""How well the estimator's constants fit the times they were fitted to.

    python benchmarks/estimate_fit.py                                          # anywhere: estimate and compare
    python benchmarks/estimate_fit.py --measure --data results/estimate_gpu.json  # on a GPU: time all cases first
    python benchmarks/estimate_fit.py --data results/estimate_gpu.json --gpu H200

Comparing needs no GPU: the kernels are compiled for the GPU's target and counted in the interpreter, which takes some
minutes. The cases are in `estimate_cases.py`.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Any

import torch
import triton
from estimate_cases import EAGER_CASES, launch_cases

from mtmc.evaluate.estimates.estimate import estimate
from mtmc.evaluate.estimates.resources import Resources, read_resources
from mtmc.hardware import Hardware, hardware

GROUPS = {
    "gelu": ("gelu_bias/",),
    "softmax": ("softmax_",),
    "layer norm": ("layernorm_",),
    "vector add": ("vadd/",),
    "row sum": ("rowsum/",),
    "column sum": ("colsum/",),
    "transpose": ("transpose_add/",),
    "linear": ("linear/",),
    "batched product": ("bmm/",),
    "eager": ("eager/",),
    "all": ("",),
}
"""Beginnings of the names of each group's cases."""


def measure() -> dict[str, Any]:
    """Time every case on this machine's GPU: medians of `triton.testing.do_bench`, milliseconds."""

    def new(shape: Sequence[int], dtype: torch.dtype = torch.float32) -> torch.Tensor:
        return torch.randn(shape, device="cuda", dtype=dtype)

    def time_ms(work: Any) -> float:
        return round(triton.testing.do_bench(work, warmup=4, rep=16, quantiles=[0.5]), 6)

    times: dict[str, float] = {}
    with torch.no_grad(), torch.device("cuda"):
        for name, make in EAGER_CASES.items():
            times[name] = time_ms(make(new))
        for name, start in launch_cases().items():

            def run(kernel: Any, grid: Any, *args: Any, name: str = name, **options: Any) -> None:
                times[name] = time_ms(lambda: kernel[grid](*args, **options))

            start(new, run)
    about = {"device": torch.cuda.get_device_name(), "torch": torch.__version__, "triton": triton.__version__}
    return {**about, "date": str(date.today()), "unit": "ms", "times": times}


def count() -> dict[str, list[dict[str, Any]]]:
    """Records of every case at its full shapes. Kernels must be interpreted in this process."""
    from mtmc.evaluate.counting.traffic import count_traffic, fake_tensors

    def new(shape: Sequence[int], dtype: torch.dtype = torch.float32) -> torch.Tensor:
        return torch.empty(shape, dtype=dtype)

    records: dict[str, list[dict[str, Any]]] = {}
    for name, make in EAGER_CASES.items():
        with fake_tensors():
            records[name] = count_traffic(make(new), [])
    for name, start in launch_cases().items():

        def run(kernel: Any, grid: Any, *args: Any, name: str = name, **options: Any) -> None:
            records[name] = count_traffic(lambda: kernel[grid](*args, **options), [])

        with fake_tensors():
            start(new, run)
    return records


def build(gpu: Hardware) -> dict[str, Resources]:
    """What each launch's kernel takes of a multiprocessor, compiled for the GPU's target."""
    from mtmc.evaluate.compiling.target import install_driver, target

    install_driver(target(gpu.target), gpu.sms)
    found: dict[str, Resources] = {}
    for name, start in launch_cases().items():

        def run(kernel: Any, grid: Any, *args: Any, name: str = name, **options: Any) -> None:
            compiled = kernel.warmup(*args, grid=grid, **options)
            found[name] = read_resources(compiled.asm["cubin"], gpu.target, compiled.metadata.shared)

        start(lambda shape, dtype=torch.float32: dtype, run)  # a data type stands for a tensor where nothing runs
    return found


def compare(times: Mapping[str, float], gpu: Hardware) -> dict[str, tuple[float, float]]:
    """(measured, estimated) milliseconds of each case. Raises: CalledProcessError if counting fails."""
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    done = subprocess.run([sys.executable, __file__, "--count"], env=environment, stdout=subprocess.PIPE, check=True)
    records = json.loads(done.stdout)
    resources = build(gpu)
    pairs = {}
    for name, measured in times.items():
        taken = [resources[name]] if name in resources else []
        pairs[name] = (measured, estimate(records[name], taken, gpu).runtime_ms)
    return pairs


def rank_correlation(pairs: Sequence[tuple[float, float]]) -> float:
    """Spearman's: the correlation of the ranks, ties sharing the mean of theirs."""
    ranks = []
    for side in (0, 1):
        values = [pair[side] for pair in pairs]
        ranks.append([sum(v < value for v in values) + (values.count(value) - 1) / 2 for value in values])
    centred = [[rank - (len(pairs) - 1) / 2 for rank in side] for side in ranks]
    products = sum(a * b for a, b in zip(*centred, strict=True))
    return products / math.sqrt(math.prod(sum(a * a for a in side) for side in centred))


def table(pairs: Mapping[str, tuple[float, float]]) -> str:
    """Figures of each group in Markdown."""
    lines = [
        "| group | cases | within 1.5x | mean error (geometric) | largest error | Spearman |",
        "|---|---|---|---|---|---|",
    ]
    for group, beginnings in GROUPS.items():
        found = [pair for name, pair in pairs.items() if name.startswith(beginnings)]
        errors = [max(a / b, b / a) for a, b in found]
        mean = math.exp(sum(map(math.log, errors)) / len(errors))
        close = sum(error <= 1.5 for error in errors) / len(errors)
        lines.append(
            f"| {group} | {len(found)} | {close:.0%} | {mean:.2f}x | {max(errors):.2f}x | {rank_correlation(found):.3f} |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("results/estimate_h200.json"))
    parser.add_argument("--gpu", default="H200", help="of the hardware table: what estimates are for")
    parser.add_argument("--measure", action="store_true", help="time all cases on this GPU into --data")
    parser.add_argument("--count", action="store_true", help=argparse.SUPPRESS)  # the part that is interpreted
    parser.add_argument("--each", action="store_true", help="print every case, too")
    arguments = parser.parse_args()
    if arguments.count:
        print(json.dumps(count()))
    elif arguments.measure:
        arguments.data.write_text(json.dumps(measure(), indent=0) + "\n", encoding="utf-8")
    else:
        data = json.loads(arguments.data.read_text(encoding="utf-8"))
        pairs = compare(data["times"], hardware(arguments.gpu))
        if arguments.each:
            for name, (measured, estimated) in pairs.items():
                print(f"{name:60s} {measured:9.4f} {estimated:9.4f} {estimated / measured:5.2f}")
        print(table(pairs))


if __name__ == "__main__":
    main()
