"""Attention forward in Gluon for Hopper, by hand: does it compile, is it right, and how fast is it beside cuDNN?

    python benchmarks/gluon_attention.py --out out/gluon
    python benchmarks/gluon_attention.py --dry-run --out /tmp/gluon

A program has 128 queries of one head: two groups of four warps with 64 each, and a warp that does nothing but ask the
tensor memory accelerator for keys and values. Each group starts the next block's scores, then the last block's weighted
sum of values, and works out exponentials meanwhile. --dry-run compiles for sm_90 without a GPU. mtmc prints kernels
like it since (mtmc/rewrite/templates/gluon_kernel.py); this one says what they had to reach.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch
from triton import __version__ as triton_version

from tests.exploits.controls.gluon_attention import LOG2_E, attention_kernel, described


def attention(q: Any, k: Any, v: Any, causal: bool, columns: int, stages: int) -> Any:
    """softmax(q k^T / sqrt(width)) v for contiguous bf16 [batch, heads, rows, width], rows a multiple of 128."""
    batch, heads, rows, width = q.shape
    out = torch.empty_like(q)
    tiles = [described(*each) for each in ((q, 64), (k, columns), (v, columns), (out, 64))]
    grid = (rows // 128, batch * heads)
    attention_kernel[grid](*tiles, rows, LOG2_E * width**-0.5, causal, columns, width, stages, num_warps=4)
    return out


CASES = (("full_4096_d128", 4, 16, 4096, 128, False), ("causal_4096_d128", 4, 16, 4096, 128, True),
         ("full_4096_d64", 4, 32, 4096, 64, False), ("causal_16384_d128", 1, 16, 16384, 128, True))  # fmt: skip
TILES = ((128, 2), (64, 2), (64, 3), (64, 4))
"""Columns of a block, and blocks that lie in shared memory at once."""


def built(case: tuple[Any, ...], columns: int, stages: int) -> dict[str, Any]:
    """Compile one kernel for sm_90. Returns: what it needs."""
    from benchmarks.hopper_build import _facts, prepared
    from mtmc.evaluate.loading.fake import FakeMode

    found = prepared(132)
    found.clear()
    _, batch, heads, rows, width, causal = case
    with FakeMode():
        given = [torch.empty(batch, heads, rows, width, dtype=torch.bfloat16, device="cuda") for _ in range(3)]
        attention(*given, causal, columns, stages)
    return _facts(found[-1])


def timed(call: Any, count: int = 20) -> float:
    """Median of some calls in milliseconds, each with a cold L2 cache."""
    from mtmc.evaluate.compiling.cold_cache import ColdCache

    cold = ColdCache()
    events = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(count)]
    call()
    for start, end in events:
        cold.empty()
        start.record()
        call()
        end.record()
    torch.cuda.synchronize()
    return statistics.median(start.elapsed_time(end) for start, end in events)


def measured(case: tuple[Any, ...], columns: int, stages: int) -> dict[str, Any]:
    """Error beside cuDNN's against fp32, and times of both."""
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.nn.functional import scaled_dot_product_attention

    _, batch, heads, rows, width, causal = case
    torch.manual_seed(0)
    q, k, v = (torch.randn(batch, heads, rows, width, dtype=torch.bfloat16, device="cuda") for _ in range(3))
    exact = scaled_dot_product_attention(q[:1, :2].float(), k[:1, :2].float(), v[:1, :2].float(), is_causal=causal)

    def library() -> Any:
        with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
            return scaled_dot_product_attention(q, k, v, is_causal=causal)

    def ours() -> Any:
        return attention(q, k, v, causal, columns, stages)

    errors = [float((call()[:1, :2].float() - exact).norm() / exact.norm()) for call in (ours, library)]
    ms, theirs = timed(ours), timed(library)
    flops = 4 * batch * heads * rows * rows * width / (2 if causal else 1)
    return {"error": errors[0], "library_error": errors[1], "ms": ms, "library_ms": theirs, "ratio": theirs / ms,
            "tflops": flops / ms / 1e9}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dry-run", action="store_true", help="compile for sm_90 and run nothing")
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    with (arguments.out / "gluon.jsonl").open("a", encoding="utf-8") as file:
        for case in CASES:
            for columns, stages in TILES:
                row = {"case": case[0], "columns": columns, "stages": stages, "triton": triton_version}
                try:
                    row |= (built if arguments.dry_run else measured)(case, columns, stages)
                except Exception as error:
                    row["failure"] = f"{type(error).__name__}: {str(error)[:300]}"
                print(json.dumps(row), flush=True)
                file.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
