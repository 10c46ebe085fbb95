"""Attention forward in Gluon for Hopper, by hand: does it compile, is it right, and how fast is it beside cuDNN?

    python benchmarks/gluon_attention.py --out out/gluon
    python benchmarks/gluon_attention.py --dry-run --out /tmp/gluon

A program has 128 queries of one head: two groups of four warps with 64 each, and a warp that does nothing but ask the
tensor memory accelerator for keys and values. Each group starts the next block's scores, then the last block's weighted
sum of values, and works out exponentials meanwhile. --dry-run compiles for sm_90 without a GPU. mtmc prints kernels
like it since (mtmc/rewrite/templates/gluon_kernel.py); this one says what they had to reach.
"""

# ruff: noqa: N803, N806 (names of compile-time arguments)
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
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

load_tile = getattr(tma, "async_load", None) or tma.async_copy_global_to_shared  # the name before Triton 3.7
store_tile = getattr(tma, "async_store", None) or tma.async_copy_shared_to_global
M = gl.constexpr(64)
"""Queries of a group of warps."""
LOG2_E = 1.4426950408889634


@gluon.jit
def softmax_step(scores, top, total, factor):
    """A block's weights, the rows' largest scores and sums so far, and what earlier sums are scaled by."""
    larger = gl.maximum(top, gl.max(scores, 1))
    weights = gl.exp2((scores - gl.expand_dims(larger, 1)) * factor)
    scale = gl.exp2((top - larger) * factor)
    return weights, larger, total * scale + gl.sum(weights, 1), scale


@gluon.jit
def masked(scores, first_row, first_column, CAUSAL: gl.constexpr, LAYOUT: gl.constexpr):
    """Scores without those of columns behind a row's own, where a block has some."""
    if CAUSAL:  # noqa: SIM102
        if first_column + scores.shape[1] > first_row + 1:
            rows = first_row + gl.arange(0, scores.shape[0], gl.SliceLayout(1, LAYOUT))
            columns = first_column + gl.arange(0, scores.shape[1], gl.SliceLayout(0, LAYOUT))
            seen = gl.expand_dims(rows, 1) >= gl.expand_dims(columns, 0)
            scores = gl.where(seen, scores, float("-inf"))
    return scores


@gluon.jit
def consume(which: gl.constexpr, tiles, memory, barriers, place, sizes):
    """One group of warps: 64 rows of the result."""
    out_tiles = tiles[3]
    q_mem, k_mem, v_mem = memory[0], memory[1], memory[2]
    q_full, k_full, v_full, k_free, v_free = barriers[0], barriers[1], barriers[2], barriers[3], barriers[4]
    row, _, block, steps, factor = place[0], place[1], place[2], place[3], place[4]
    N: gl.constexpr = k_mem.shape[1]
    D: gl.constexpr = k_mem.shape[2]
    STAGES: gl.constexpr = k_mem.shape[0]
    CAUSAL: gl.constexpr = sizes.shape[0] == 2
    scores_layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, N, 16])
    out_layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, D, 16])
    weights_layout: gl.constexpr = gl.DotOperandLayout(0, out_layout, 2)
    top = gl.full([M], float("-inf"), gl.float32, gl.SliceLayout(1, scores_layout))
    total = gl.full([M], 0.0, gl.float32, gl.SliceLayout(1, scores_layout))
    out = gl.zeros([M, D], gl.float32, out_layout)
    none = gl.zeros([M, N], gl.float32, scores_layout)
    own = block * 2 * M + which * M
    q = q_mem.index(which)
    mbarrier.wait(q_full, 0)
    mbarrier.wait(k_full.index(0), 0)
    first = warpgroup_mma(q, k_mem.index(0).permute((1, 0)), none, use_acc=False, is_async=True)
    scores = warpgroup_mma_wait(0, deps=(first,))
    mbarrier.arrive(k_free.index(0), count=1)
    scores = masked(scores, own, 0, CAUSAL, scores_layout)
    weights, top, total, _ = softmax_step(scores, top, total, factor)
    p = gl.convert_layout(weights.to(gl.bfloat16), weights_layout)
    for step in range(1, steps):
        at = step % STAGES
        before = (step - 1) % STAGES
        mbarrier.wait(k_full.index(at), (step // STAGES) & 1)
        begun = warpgroup_mma(q, k_mem.index(at).permute((1, 0)), none, use_acc=False, is_async=True)
        mbarrier.wait(v_full.index(before), ((step - 1) // STAGES) & 1)
        summed = warpgroup_mma(p, v_mem.index(before), out, is_async=True)
        scores = warpgroup_mma_wait(1, deps=(begun,))
        mbarrier.arrive(k_free.index(at), count=1)
        scores = masked(scores, own, step * N, CAUSAL, scores_layout)
        weights, top, total, scale = softmax_step(scores, top, total, factor)
        out = warpgroup_mma_wait(0, deps=(summed,))
        mbarrier.arrive(v_free.index(before), count=1)
        out = out * gl.expand_dims(gl.convert_layout(scale, gl.SliceLayout(1, out_layout)), 1)
        p = gl.convert_layout(weights.to(gl.bfloat16), weights_layout)
    last = (steps - 1) % STAGES
    mbarrier.wait(v_full.index(last), ((steps - 1) // STAGES) & 1)
    ended = warpgroup_mma(p, v_mem.index(last), out, is_async=True)
    out = warpgroup_mma_wait(0, deps=(ended,))
    out = out / gl.expand_dims(gl.convert_layout(total, gl.SliceLayout(1, out_layout)), 1)
    q.store(out.to(gl.bfloat16))
    fence_async_shared()
    store_tile(out_tiles, [row + which * M, 0], q)
    tma.store_wait(0)


@gluon.jit
def consume_first(tiles, memory, barriers, place, sizes):
    consume(0, tiles, memory, barriers, place, sizes)


@gluon.jit
def consume_second(tiles, memory, barriers, place, sizes):
    consume(1, tiles, memory, barriers, place, sizes)


@gluon.jit
def produce(tiles, memory, barriers, place, sizes):
    """The warp that has queries, keys and values loaded."""
    q_tiles, k_tiles, v_tiles = tiles[0], tiles[1], tiles[2]
    q_mem, k_mem, v_mem = memory[0], memory[1], memory[2]
    q_full, k_full, v_full, k_free, v_free = barriers[0], barriers[1], barriers[2], barriers[3], barriers[4]
    row, column, steps = place[0], place[1], place[3]
    N: gl.constexpr = k_mem.shape[1]
    D: gl.constexpr = k_mem.shape[2]
    STAGES: gl.constexpr = k_mem.shape[0]
    mbarrier.expect(q_full, 4 * M * D)
    load_tile(q_tiles, [row, 0], q_full, q_mem.index(0))
    load_tile(q_tiles, [row + M, 0], q_full, q_mem.index(1))
    for step in range(steps):
        at = step % STAGES
        phase = ((step // STAGES) & 1) ^ 1
        mbarrier.wait(k_free.index(at), phase)
        mbarrier.expect(k_full.index(at), 2 * N * D)
        load_tile(k_tiles, [column + step * N, 0], k_full.index(at), k_mem.index(at))
        mbarrier.wait(v_free.index(at), phase)
        mbarrier.expect(v_full.index(at), 2 * N * D)
        load_tile(v_tiles, [column + step * N, 0], v_full.index(at), v_mem.index(at))


@gluon.jit
def attention_kernel(
    q_tiles, k_tiles, v_tiles, out_tiles, n_rows, factor, CAUSAL: gl.constexpr, N: gl.constexpr, D: gl.constexpr,
    STAGES: gl.constexpr, num_warps: gl.constexpr,
):  # fmt: skip
    """128 rows of one head a program; rows and columns are as many, and whole blocks."""
    q_mem = gl.allocate_shared_memory(gl.bfloat16, [2, M, D], q_tiles.layout)
    k_mem = gl.allocate_shared_memory(gl.bfloat16, [STAGES, N, D], k_tiles.layout)
    v_mem = gl.allocate_shared_memory(gl.bfloat16, [STAGES, N, D], v_tiles.layout)
    q_full = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    k_full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    v_full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    k_free = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    v_free = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    mbarrier.init(q_full, count=1)
    for at in gl.static_range(STAGES):
        mbarrier.init(k_full.index(at), count=1)
        mbarrier.init(v_full.index(at), count=1)
        mbarrier.init(k_free.index(at), count=2)
        mbarrier.init(v_free.index(at), count=2)
    fence_async_shared()
    block = gl.num_programs(0) - 1 - gl.program_id(0) if CAUSAL else gl.program_id(0)
    head = gl.program_id(1) * n_rows
    steps = gl.cdiv((block + 1) * 2 * M, N) if CAUSAL else n_rows // N
    # What is known at compile time goes through `warp_specialize` as a shape.
    sizes = gl.allocate_shared_memory(gl.int64, [2 if CAUSAL else 1], mbarrier.MBarrierLayout())
    arguments = (
        (q_tiles, k_tiles, v_tiles, out_tiles),
        (q_mem, k_mem, v_mem),
        (q_full, k_full, v_full, k_free, v_free),
        (head + block * 2 * M, head, block, steps, factor),
        sizes,
    )
    gl.warp_specialize(
        [(consume_first, arguments), (consume_second, arguments), (produce, arguments)], [4, 1], [240, 24]
    )


def attention(q: Any, k: Any, v: Any, causal: bool, columns: int, stages: int) -> Any:
    """softmax(q k^T / sqrt(width)) v for contiguous bf16 [batch, heads, rows, width], rows a multiple of 128."""
    batch, heads, rows, width = q.shape
    out = torch.empty_like(q)
    tiles = []
    for tensor, block in ((q, 64), (k, columns), (v, columns), (out, 64)):
        layout = gl.NVMMASharedLayout.get_default_for([block, width], gl.bfloat16)
        tiles.append(TensorDescriptor(tensor, [batch * heads * rows, width], [width, 1], [block, width], layout))
    grid = (rows // 128, batch * heads)
    attention_kernel[grid](*tiles, rows, LOG2_E * width**-0.5, causal, columns, width, stages, num_warps=4)
    return out


CASES = (("full_4096_d128", 4, 16, 4096, 128, False), ("causal_4096_d128", 4, 16, 4096, 128, True),
         ("full_4096_d64", 4, 32, 4096, 64, False), ("causal_16384_d128", 1, 16, 16384, 128, True))  # fmt: skip
TILES = ((128, 2), (64, 2), (64, 3), (64, 4))
"""Columns of a block, and blocks that lie in shared memory at once."""


def built(case: tuple[Any, ...], columns: int, stages: int) -> dict[str, Any]:
    """Compile one kernel for sm_90. Returns: what it needs."""
    from benchmarks.hopper_build import _facts, _prepared
    from mtmc.evaluate.loading.fake import FakeMode

    found = _prepared(132)
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
