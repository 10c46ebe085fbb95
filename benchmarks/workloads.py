"""Small tasks and made-up kernel versions, for the benchmarks that need many of them or some of a certain length.

`small_versions` are right, short to run and distinct, every text and every compiled kernel: what is measured with them is
the evaluator. `timed_versions` take about 20 us, 200 us and 1 ms on an H100. `stepped_version` is one kernel whose work is
set by a number.
"""

from __future__ import annotations

import random
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from mtmc.task import Task, Variant

_SHAPES = (
    Variant("small", (("rows", 24), ("cols", 320))),
    Variant("odd1", (("rows", 7), ("cols", 33))),
    Variant("odd2", (("rows", 13), ("cols", 129))),
)

_HEAD = """\
import torch
import triton
import triton.language as tl
from torch import nn

"""

_SIGMOIDS = ("tl.sigmoid(v)", "1.0 / (1.0 + tl.exp(-v))", "1.0 / (1.0 + tl.exp2(v * -1.4426950408889634))")
_GELUS = ("0.5 * v * (1.0 + tl.erf(v * 0.7071067811865476))", "v * (0.5 + 0.5 * tl.erf(v * 0.7071067811865476))")
_EXPONENTIALS = ("tl.exp(v - top)", "tl.exp2((v - top) * 1.4426950408889634)")
_ROOTS = ("tl.rsqrt(s / cols + EPS)", "1.0 / tl.sqrt(s / cols + EPS)", "tl.rsqrt(s * (1.0 / cols) + EPS)")

_MATMUL = """
@triton.jit
def product(x, y, out, M, K, BM: tl.constexpr, BK: tl.constexpr):
    i = tl.program_id(0) * BM + tl.arange(0, BM)
    j = tl.program_id(1) * BM + tl.arange(0, BM)
    total = tl.zeros((BM, BM), tl.float32)
    for start in range(0, K, BK):
        k = start + tl.arange(0, BK)
        left = tl.load(x + i[:, None] * K + k[None, :], mask=(i < M)[:, None] & (k < K)[None, :], other=0.0)
        right = tl.load(y + j[None, :] * K + k[:, None], mask=(j < M)[None, :] & (k < K)[:, None], other=0.0)
        total = tl.dot(left, right, total, input_precision="tf32x3")
    tl.store(out + i[:, None] * M + j[None, :], total, mask=(i < M)[:, None] & (j < M)[None, :])


class ModelNew(nn.Module):
    def forward(self, x, y):
        M, K = x.shape
        out = torch.empty((M, M), device=x.device, dtype=x.dtype)
        product[(triton.cdiv(M, 128), triton.cdiv(M, 128))](x, y, out, M, K, BM=128, BK=32, num_warps=8, num_stages=3)
        return out
"""

_STEPPED = """
@triton.jit(do_not_specialize=["steps"])
def stepped(x, out, n, steps, nothing, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    v = tl.load(x + at, mask=inside, other=0.0)
    more = v
    for _ in range(steps):
        more = more * 0.75 + 0.25
    tl.store(out + at, v * tl.sigmoid(v) + more * nothing, mask=inside)


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        stepped[(triton.cdiv(x.numel(), 1024),)](x, out, x.numel(), STEPS, 0.0, BLOCK=1024, num_warps=4)
        return out
"""


@dataclass(frozen=True)
class Case:
    """A task and one right version of it."""

    task: Task
    source: str


def make_task(name: str, result: str, rows: int, cols: int, inputs: str = "x") -> Task:
    """A task over normal fp32 matrices of rows x cols. result: expression of the inputs, named as in `inputs`."""
    drawn = ", ".join("torch.randn(rows, cols)" for _ in inputs.split(", "))
    source = f"""\
import torch
from torch import nn

rows = {rows}
cols = {cols}


class Model(nn.Module):
    def forward(self, {inputs}):
        return {result}


def get_inputs():
    return [{drawn}]


def get_init_inputs():
    return []
"""
    small, *held_out = _SHAPES
    return Task(name, source, Variant("full"), small, tuple(held_out))


SILU = "x * torch.sigmoid(x)"
ADD_GELU = "torch.nn.functional.gelu(x + y)"
SOFTMAX = "torch.softmax(x, dim=-1)"
RMS_NORM = "x * torch.rsqrt(x.pow(2).mean(dim=-1, keepdim=True) + 1e-6)"
LAYER_NORM = "torch.nn.functional.layer_norm(x, x.shape[-1:])"


def pointwise(name: str, inputs: str, body: str, block: int, warps: int) -> str:
    """A version that computes `body` of every element: lines that set `r` from `v` (and from `w`, of a second input).

    name: of the kernel. block: elements of one program.
    """
    loads = "\n".join(
        f"    {value} = tl.load({pointer} + at, mask=inside, other=0.0)"
        for value, pointer in zip("vw", inputs.split(", "), strict=False)
    )
    return f"""{_HEAD}
@triton.jit
def {name}({inputs}, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
{loads}
{textwrap.indent(body, "    ")}
    tl.store(out + at, r, mask=inside)


class ModelNew(nn.Module):
    def forward(self, {inputs}):
        out = torch.empty_like(x)
        {name}[(triton.cdiv(x.numel(), {block}),)]({inputs}, out, x.numel(), BLOCK={block}, num_warps={warps})
        return out
"""


def rowwise(name: str, body: str, eps: float, tile: int, warps: int) -> str:
    """A version that holds `tile` whole rows in one program and computes `body`: lines that set `r` from `v`.

    `v` is [tile, BLOCK], 0 outside the matrix; `inside` is its mask, `cols` the length of a row, `EPS` a constant.
    """
    return f"""{_HEAD}
@triton.jit
def {name}(x, out, rows, cols, EPS: tl.constexpr, TILE: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * TILE + tl.arange(0, TILE)
    c = tl.arange(0, BLOCK)
    inside = (i < rows)[:, None] & (c < cols)[None, :]
    at = i[:, None] * cols + c[None, :]
    v = tl.load(x + at, mask=inside, other=0.0)
{textwrap.indent(body, "    ")}
    tl.store(out + at, r, mask=inside)


class ModelNew(nn.Module):
    def forward(self, x):
        rows, cols = x.shape
        out = torch.empty_like(x)
        size = triton.next_power_of_2(cols)
        grid = (triton.cdiv(rows, {tile}),)
        {name}[grid](x, out, rows, cols, EPS={eps!r}, TILE={tile}, BLOCK=size, num_warps={warps})
        return out
"""


def _silu(serial: int, rng: random.Random) -> str:
    body = f"{_guard(serial)}\nr = v * ({rng.choice(_SIGMOIDS)})"
    return pointwise(f"silu_{serial}", "x", body, rng.choice((256, 512, 1024, 2048)), rng.choice((2, 4, 8)))


def _add_gelu(serial: int, rng: random.Random) -> str:
    body = f"v = v + w\n{_guard(serial)}\nr = {rng.choice(_GELUS)}"
    return pointwise(f"add_gelu_{serial}", "x, y", body, rng.choice((256, 512, 1024, 2048)), rng.choice((2, 4, 8)))


def _softmax(serial: int, rng: random.Random) -> str:
    body = f"{_guard(serial)}\nv = tl.where(inside, v, -float('inf'))\ntop = tl.max(v, 1)[:, None]\n"
    body += f"top = tl.where(top > -float('inf'), top, 0.0)\ne = {rng.choice(_EXPONENTIALS)}\n"
    body += rng.choice(("r = e / tl.sum(e, 1)[:, None]", "r = e * (1.0 / tl.sum(e, 1))[:, None]"))
    return _rows(f"softmax_{serial}", body, rng, 0.0)


def _rms_norm(serial: int, rng: random.Random) -> str:
    body = f"{_guard(serial)}\ns = tl.sum(v * v, 1)\nr = v * ({rng.choice(_ROOTS)})[:, None]"
    return _rows(f"rms_norm_{serial}", body, rng, 1e-6)


def _layer_norm(serial: int, rng: random.Random) -> str:
    body = f"{_guard(serial)}\nd = tl.where(inside, v - (tl.sum(v, 1) / cols)[:, None], 0.0)\n"
    body += f"s = tl.sum(d * d, 1)\nr = d * ({rng.choice(_ROOTS)})[:, None]"
    return _rows(f"layer_norm_{serial}", body, rng, 1e-5)


def _rows(name: str, body: str, rng: random.Random, eps: float) -> str:
    return rowwise(name, body, eps, rng.choice((1, 2, 4)), rng.choice((2, 4, 8)))


def _guard(serial: int) -> str:
    """A bound that no value reaches: it changes no result, but the compiled kernel."""
    bound = f"{10**12 + serial * 10**6}.0"  # a check has inputs that stand out by 2^18; floats here are 2^16 apart
    return f"v = tl.minimum(tl.maximum(v, -{bound}), {bound})"


_SMALL: tuple[tuple[str, str, str, Callable[[int, random.Random], str]], ...] = (
    ("small_silu", SILU, "x", _silu),
    ("small_add_gelu", ADD_GELU, "x, y", _add_gelu),
    ("small_softmax", SOFTMAX, "x", _softmax),
    ("small_rms_norm", RMS_NORM, "x", _rms_norm),
    ("small_layer_norm", LAYER_NORM, "x", _layer_norm),
)


def small_versions(count: int, seed: int = 0, rows: int = 2048, cols: int = 1024) -> Iterator[Case]:
    """`count` right versions of five tasks in turn, no two with the same text or the same compiled kernel."""
    rng = random.Random(seed)
    tasks = [make_task(name, result, rows, cols, inputs) for name, result, inputs, _ in _SMALL]
    for index in range(count):
        place = index % len(_SMALL)
        yield Case(tasks[place], _SMALL[place][3](index, rng))


def timed_versions() -> dict[str, Case]:
    """By name: versions of about 20 us, 200 us and 1 ms on an H100, of three kinds (pointwise, rows, matrix product)."""
    rng = random.Random(0)
    silu = pointwise("silu", "x", "r = v * tl.sigmoid(v)", 1024, 4)
    product = make_task("product_1ms", "torch.matmul(x, y.transpose(0, 1))", 3072, 4096, "x, y")
    return {
        "silu 8192x1024": Case(make_task("silu_20us", SILU, 8192, 1024), silu),
        "softmax 16384x4096": Case(make_task("softmax_200us", SOFTMAX, 16384, 4096), _softmax(0, rng)),
        "product 3072x4096x3072": Case(product, _HEAD + _MATMUL),
    }


def stepped_version(steps: int, rows: int = 8192, cols: int = 4096) -> Case:
    """A right version of SiLU that does `steps` multiply-adds more of each element than it needs."""
    source = f"{_HEAD}\nSTEPS = {steps}\n{_STEPPED}"
    return Case(make_task("stepped_silu", SILU, rows, cols), source)
