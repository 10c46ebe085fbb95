"""Shared-prompt attention after DualKV: the prompt's keys and values once, each response's own beside them. Exact.

Instead of N sequences of prompt and response there are the prompt's rows, once, and each response's rows, which look at
two regions of columns: the prompt's (all of it) and their own (up to themselves). N (P + R) rows become P + N R, no
tensor is replicated, and the gradient of the prompt's keys and values is summed where it is made.

Written by hand on the form of mtmc's attention kernels; `benchmarks/shared_prompt.py` measures it.
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def scores_of(q, keys, cols, col_mask, stride, scale, WIDTH: tl.constexpr, PRECISION: tl.constexpr):
    """Scores of a block of rows with the columns `cols`; masked columns get -inf. Also the keys, [WIDTH, columns]."""
    k = tl.load(keys + cols[None, :] * stride + tl.arange(0, WIDTH)[:, None], mask=col_mask[None, :], other=0.0)
    scores = tl.dot(q, k, input_precision=PRECISION) * scale
    return tl.where(col_mask[None, :], scores, float("-inf")), k


@triton.jit
def tile_of(pointer, rows, mask, WIDTH: tl.constexpr):
    """A block of rows of one head, [rows, WIDTH]."""
    return tl.load(pointer + rows[:, None] * WIDTH + tl.arange(0, WIDTH)[None, :], mask=mask[:, None], other=0.0)


@triton.jit
def step(q, keys, values, cols, col_mask, seen, top, total, out, scale, WIDTH: tl.constexpr, PRECISION: tl.constexpr):
    """One block of columns of the online softmax. seen: which of them each row may look at."""
    scores, _ = scores_of(q, keys, cols, col_mask, WIDTH, scale, WIDTH, PRECISION)
    scores = tl.where(seen, scores, float("-inf"))
    larger = tl.maximum(top, tl.max(scores, axis=1))
    weights = tl.exp(scores - larger[:, None])
    shrink = tl.exp(top - larger)
    v = tile_of(values, cols, col_mask, WIDTH)
    out = out * shrink[:, None] + tl.dot(weights.to(v.dtype), v, input_precision=PRECISION)
    return larger, total * shrink + tl.sum(weights, axis=1), out


@triton.jit
def forward_kernel(
    q_ptr, k_ptr, v_ptr, shared_k_ptr, shared_v_ptr, out_ptr, lse_ptr, n_rows, n_shared, heads, group, scale,
    SHARED: tl.constexpr, WIDTH: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """BLOCK_M rows of one head of one sequence: first over the shared columns, if any, then over its own."""
    batch = tl.program_id(1).to(tl.int64)
    own = (batch // heads) * (heads // group) + (batch % heads) // group
    shared = (batch % heads) // group
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    row_mask = rows < n_rows
    q = tile_of(q_ptr + batch * n_rows * WIDTH, rows, row_mask, WIDTH)
    top = tl.full([BLOCK_M], float("-inf"), tl.float32)
    total = tl.zeros([BLOCK_M], tl.float32)
    out = tl.zeros([BLOCK_M, WIDTH], tl.float32)
    if SHARED:
        keys, values = shared_k_ptr + shared * n_shared * WIDTH, shared_v_ptr + shared * n_shared * WIDTH
        for start in range(0, n_shared, BLOCK_N):
            cols = start + tl.arange(0, BLOCK_N)
            mask = cols < n_shared
            top, total, out = step(q, keys, values, cols, mask, mask[None, :], top, total, out, scale, WIDTH, PRECISION)
    keys, values = k_ptr + own * n_rows * WIDTH, v_ptr + own * n_rows * WIDTH
    for start in range(0, tl.minimum(n_rows, (tl.program_id(0) + 1) * BLOCK_M), BLOCK_N):
        cols = start + tl.arange(0, BLOCK_N)
        seen = rows[:, None] >= cols[None, :]
        top, total, out = step(q, keys, values, cols, cols < n_rows, seen, top, total, out, scale, WIDTH, PRECISION)
    place = batch * n_rows + rows
    tl.store(
        out_ptr + place[:, None] * WIDTH + tl.arange(0, WIDTH)[None, :], out / total[:, None], mask=row_mask[:, None]
    )
    tl.store(lse_ptr + place, top + tl.log(total), mask=row_mask)


@triton.jit
def delta_kernel(out_ptr, grad_ptr, delta_ptr, n_rows, WIDTH: tl.constexpr, BLOCK_M: tl.constexpr):
    """What every score's gradient is lowered by: the sum of output times its gradient, row by row."""
    rows = tl.program_id(0).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
    mask = rows < n_rows
    out, grad = tile_of(out_ptr, rows, mask, WIDTH), tile_of(grad_ptr, rows, mask, WIDTH)
    tl.store(delta_ptr + rows, tl.sum(out.to(tl.float32) * grad.to(tl.float32), axis=1), mask=mask)


@triton.jit
def rows_step(
    q, grad, keys, values, cols, col_mask, seen, lse, delta, dq, scale, WIDTH: tl.constexpr, PRECISION: tl.constexpr
):
    """A block of columns' part of the gradient of a block of queries."""
    scores, k = scores_of(q, keys, cols, col_mask, WIDTH, scale, WIDTH, PRECISION)
    weights = tl.where(seen, tl.exp(scores - lse[:, None]), 0.0)
    v = tile_of(values, cols, col_mask, WIDTH)
    dscores = weights * (tl.dot(grad, tl.trans(v), input_precision=PRECISION) - delta[:, None])
    return dq + tl.dot(dscores.to(k.dtype), tl.trans(k), input_precision=PRECISION)


@triton.jit
def rows_kernel(
    q_ptr, k_ptr, v_ptr, shared_k_ptr, shared_v_ptr, grad_ptr, lse_ptr, delta_ptr, dq_ptr, n_rows, n_shared, heads, group,
    scale, SHARED: tl.constexpr, WIDTH: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """The gradient of BLOCK_M queries of one head of one sequence."""
    batch = tl.program_id(1).to(tl.int64)
    own = (batch // heads) * (heads // group) + (batch % heads) // group
    shared = (batch % heads) // group
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    row_mask = rows < n_rows
    place = batch * n_rows + rows
    q = tile_of(q_ptr + batch * n_rows * WIDTH, rows, row_mask, WIDTH)
    grad = tile_of(grad_ptr + batch * n_rows * WIDTH, rows, row_mask, WIDTH)
    lse = tl.load(lse_ptr + place, mask=row_mask, other=0.0)
    delta = tl.load(delta_ptr + place, mask=row_mask, other=0.0)
    dq = tl.zeros([BLOCK_M, WIDTH], tl.float32)
    if SHARED:
        keys, values = shared_k_ptr + shared * n_shared * WIDTH, shared_v_ptr + shared * n_shared * WIDTH
        for start in range(0, n_shared, BLOCK_N):
            cols = start + tl.arange(0, BLOCK_N)
            mask = cols < n_shared
            dq = rows_step(q, grad, keys, values, cols, mask, mask[None, :], lse, delta, dq, scale, WIDTH, PRECISION)
    keys, values = k_ptr + own * n_rows * WIDTH, v_ptr + own * n_rows * WIDTH
    for start in range(0, tl.minimum(n_rows, (tl.program_id(0) + 1) * BLOCK_M), BLOCK_N):
        cols = start + tl.arange(0, BLOCK_N)
        seen = rows[:, None] >= cols[None, :]
        dq = rows_step(q, grad, keys, values, cols, cols < n_rows, seen, lse, delta, dq, scale, WIDTH, PRECISION)
    out = dq_ptr + place[:, None] * WIDTH + tl.arange(0, WIDTH)[None, :]
    tl.store(out, dq * scale, mask=row_mask[:, None])


@triton.jit
def columns_step(
    k, v, q_ptr, grad_ptr, lse_ptr, delta_ptr, batch, rows, n_rows, seen, dk, dv, scale,
    WIDTH: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """A block of rows' part of the gradients of a block of keys and values. seen: [columns, rows]."""
    mask = rows < n_rows
    q = tile_of(q_ptr + batch * n_rows * WIDTH, rows, mask, WIDTH)
    grad = tile_of(grad_ptr + batch * n_rows * WIDTH, rows, mask, WIDTH)
    lse = tl.load(lse_ptr + batch * n_rows + rows, mask=mask, other=0.0)
    delta = tl.load(delta_ptr + batch * n_rows + rows, mask=mask, other=0.0)
    scores = tl.dot(k, tl.trans(q), input_precision=PRECISION) * scale
    weights = tl.where(seen & mask[None, :], tl.exp(scores - lse[None, :]), 0.0)
    dv += tl.dot(weights.to(grad.dtype), grad, input_precision=PRECISION)
    dscores = weights * (tl.dot(v, tl.trans(grad), input_precision=PRECISION) - delta[None, :])
    dk += tl.dot(dscores.to(q.dtype), q, input_precision=PRECISION)
    return dk, dv


@triton.jit
def columns_kernel(
    q_ptr, k_ptr, v_ptr, grad_ptr, lse_ptr, delta_ptr, more_q_ptr, more_grad_ptr, more_lse_ptr, more_delta_ptr,
    dk_ptr, dv_ptr, n_rows, n_more, more_rows, heads, group, scale,
    MORE: tl.constexpr, WIDTH: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """The gradients of BLOCK_N keys and values of one head of one sequence: from its own rows, and, for those that are
    shared, from all rows of the `n_more` sequences that look at them."""
    own = tl.program_id(1).to(tl.int64)
    kv_heads = heads // group
    cols = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    col_mask = cols < n_rows
    k = tile_of(k_ptr + own * n_rows * WIDTH, cols, col_mask, WIDTH)
    v = tile_of(v_ptr + own * n_rows * WIDTH, cols, col_mask, WIDTH)
    dk = tl.zeros([BLOCK_N, WIDTH], tl.float32)
    dv = tl.zeros([BLOCK_N, WIDTH], tl.float32)
    first = tl.program_id(0) * BLOCK_N // BLOCK_M * BLOCK_M
    for member in range(0, group):
        batch = (own // kv_heads) * heads + (own % kv_heads) * group + member
        for start in range(first, n_rows, BLOCK_M):
            rows = start + tl.arange(0, BLOCK_M)
            seen = cols[:, None] <= rows[None, :]
            dk, dv = columns_step(
                k, v, q_ptr, grad_ptr, lse_ptr, delta_ptr, batch, rows, n_rows, seen, dk, dv, scale, WIDTH, PRECISION
            )
    if MORE:
        for sequence in range(0, n_more * group):
            batch = (sequence // group).to(tl.int64) * heads + own * group + sequence % group
            for start in range(0, more_rows, BLOCK_M):
                rows = start + tl.arange(0, BLOCK_M)
                dk, dv = columns_step(
                    k, v, more_q_ptr, more_grad_ptr, more_lse_ptr, more_delta_ptr, batch, rows, more_rows,
                    col_mask[:, None], dk, dv, scale, WIDTH, PRECISION,
                )  # fmt: skip
    place = (own * n_rows + cols)[:, None] * WIDTH + tl.arange(0, WIDTH)[None, :]
    tl.store(dk_ptr + place, dk * scale, mask=col_mask[:, None])
    tl.store(dv_ptr + place, dv, mask=col_mask[:, None])


class Side:
    """The rows of the prompt, or those of all responses, with what is made of them."""

    def __init__(self, q, k, v, grad):
        self.q, self.k, self.v, self.grad = (x.contiguous() for x in (q, k, v, grad))
        self.sequences, self.heads, self.rows, self.width = q.shape
        self.kv_heads = k.shape[1]
        self.group = self.heads // self.kv_heads
        self.out, self.dq = torch.empty_like(self.q), torch.empty_like(self.q)
        self.dk, self.dv = torch.empty_like(self.k), torch.empty_like(self.v)
        self.lse = torch.empty(q.shape[:3], device=q.device, dtype=torch.float32)
        self.delta = torch.empty_like(self.lse)

    def constants(self, block_m, block_n):
        precision = "tf32x3" if self.q.dtype == torch.float32 else "tf32"
        return {"WIDTH": self.width, "BLOCK_M": block_m, "BLOCK_N": block_n, "PRECISION": precision}

    def row_grid(self, block):
        return (triton.cdiv(self.rows, block), self.sequences * self.heads)


def forward(side, shared):
    """Outputs and log-sums of a side. shared: the side whose columns all of its rows see besides, or None."""
    other = shared or side
    rows = shared.rows if shared else 0
    forward_kernel[side.row_grid(128)](
        side.q, side.k, side.v, other.k, other.v, side.out, side.lse, side.rows, rows, side.heads, side.group,
        side.width**-0.5, SHARED=shared is not None, **side.constants(128, 64), num_warps=8, num_stages=3,
    )  # fmt: skip
    count = side.lse.numel()
    delta_kernel[(triton.cdiv(count, 64),)](side.out, side.grad, side.delta, count, WIDTH=side.width, BLOCK_M=64)


def backward(side, shared, users):
    """Gradients of a side. users: the side whose rows look at this one's columns besides its own, or None."""
    other, more = shared or side, users or side
    scale = side.width**-0.5
    rows_kernel[side.row_grid(128)](
        side.q, side.k, side.v, other.k, other.v, side.grad, side.lse, side.delta, side.dq, side.rows,
        shared.rows if shared else 0, side.heads, side.group, scale, SHARED=shared is not None,
        **side.constants(128, 64), num_warps=8, num_stages=2,
    )  # fmt: skip
    grid = (triton.cdiv(side.rows, 128), side.sequences * side.kv_heads)
    columns_kernel[grid](
        side.q, side.k, side.v, side.grad, side.lse, side.delta, more.q, more.grad, more.lse, more.delta, side.dk, side.dv,
        side.rows, users.sequences if users else 0, users.rows if users else 0, side.heads, side.group, scale,
        MORE=users is not None, **side.constants(64, 128), num_warps=8, num_stages=2,
    )  # fmt: skip


class ModelNew(nn.Module):
    def forward(self, q_prompt, k_prompt, v_prompt, q, k, v, grad_prompt, grad):
        prompt, responses = Side(q_prompt, k_prompt, v_prompt, grad_prompt), Side(q, k, v, grad)
        forward(prompt, None)
        forward(responses, prompt)
        backward(responses, prompt, None)
        backward(prompt, None, responses)
        return (
            prompt.out, responses.out,
            prompt.dq, prompt.dk, prompt.dv, responses.dq, responses.dk, responses.dv,
        )  # fmt: skip
