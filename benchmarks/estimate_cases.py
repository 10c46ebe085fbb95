"""The launches and library calls that the estimator was fitted to. See `estimate_fit.py`.

A case makes its tensors with `new(shape, dtype)` and starts its work with `run`, so that the same case can be timed,
compiled or counted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
import triton
from estimate_kernels import (
    bmm,
    colsum,
    gelu_bias,
    layernorm_one,
    linear_gelu,
    rowsum,
    softmax_loop,
    softmax_one,
    transpose_add,
    vadd,
)
from torch.nn import functional as F

New = Callable[..., torch.Tensor]
Run = Callable[..., None]  # kernel, grid, arguments, options
LaunchCase = Callable[[New, Run], None]
EagerCase = Callable[[New], Callable[[], Any]]


ROWS, COLUMNS = 16384, 4096
SUMS, LENGTH = 64, 2097152  # few long rows
SIDE = 8192  # of the transposed matrices
A, B, C, D = (2048, 4096, 2048), (1024, 8192, 8192), (128, 8192, 8192), (4096, 4096, 4096)  # M, K, N


def launch_cases() -> dict[str, LaunchCase]:
    """Every Triton launch by name, e.g. "gelu_bias/1024/4": blocks of 1024, 4 warps."""
    return dict([*_elementwise(), *_rows(), *_sums(), *_transposed(), *_linear(), *_batched()])


def _elementwise() -> Iterator[tuple[str, LaunchCase]]:
    def gelu(new: New, run: Run, block: int, warps: int) -> None:
        x, bias, y = new((ROWS, COLUMNS)), new((COLUMNS,)), new((ROWS, COLUMNS))
        size = ROWS * COLUMNS
        run(gelu_bias, (triton.cdiv(size, block),), x, bias, y, size, COLUMNS, BLOCK=block, num_warps=warps)

    def add(new: New, run: Run, size: int) -> None:
        x, y, z = new((size,)), new((size,)), new((size,))
        run(vadd, (triton.cdiv(size, 1024),), x, y, z, size, BLOCK=1024, num_warps=4)

    for block in (64, 128, 256, 512, 1024, 2048, 4096, 8192):
        for warps in (1, 4, 8, 16) if block >= 4096 else (1, 4, 8):
            yield f"gelu_bias/{block}/{warps}", partial(gelu, block=block, warps=warps)
    for size in (1 << 12, 1 << 17, 1 << 20, 1 << 22, 1 << 24):
        yield f"vadd/{size}", partial(add, size=size)


def _rows() -> Iterator[tuple[str, LaunchCase]]:
    def softmax(new: New, run: Run, kernel: Any, columns: int, block: int, warps: int) -> None:
        x, y = new((ROWS, columns)), new((ROWS, columns))
        run(kernel, (ROWS,), x, y, columns, BLOCK=block, num_warps=warps)

    def layer_norm(new: New, run: Run, warps: int) -> None:
        x, weight, bias, y = new((ROWS, COLUMNS)), new((COLUMNS,)), new((COLUMNS,)), new((ROWS, COLUMNS))
        run(layernorm_one, (ROWS,), x, weight, bias, y, COLUMNS, BLOCK=COLUMNS, num_warps=warps)

    for warps in (1, 2, 4, 8, 16):
        yield f"softmax_one/{warps}", partial(softmax, kernel=softmax_one, columns=COLUMNS, block=4096, warps=warps)
        yield f"layernorm_one/{warps}", partial(layer_norm, warps=warps)
    for columns, block in ((3000, 4096), (1000, 1024), (257, 512)):
        yield f"softmax_one_n{columns}", partial(softmax, kernel=softmax_one, columns=columns, block=block, warps=4)
    for block in (128, 512, 1024, 2048):
        for warps in (1, 4, 8):
            case = partial(softmax, kernel=softmax_loop, columns=COLUMNS, block=block, warps=warps)
            yield f"softmax_loop/{block}/{warps}", case


def _sums() -> Iterator[tuple[str, LaunchCase]]:
    def rows(new: New, run: Run, splits: int, block: int, warps: int) -> None:
        x, y = new((SUMS, LENGTH)), new((SUMS, splits))
        run(rowsum, (SUMS, splits), x, y, LENGTH, LENGTH // splits, BLOCK=block, num_warps=warps)

    def columns(new: New, run: Run, bm: int, bn: int, warps: int) -> None:
        x, y = new((4096, 16384)), new((16384,))
        run(colsum, (triton.cdiv(16384, bn),), x, y, 4096, 16384, BM=bm, BN=bn, num_warps=warps)

    for splits in (1, 4, 32, 256):
        for block, warps in ((1024, 4), (4096, 8)):
            yield f"rowsum/{splits}/{block}/{warps}", partial(rows, splits=splits, block=block, warps=warps)
    for bm, bn, warps in ((32, 64, 4), (64, 32, 4), (8, 128, 4), (32, 8, 1)):
        yield f"colsum/{bm}/{bn}/{warps}", partial(columns, bm=bm, bn=bn, warps=warps)


def _transposed() -> Iterator[tuple[str, LaunchCase]]:
    def add(new: New, run: Run, bm: int, bn: int, warps: int) -> None:
        x, y, z = new((SIDE, SIDE)), new((SIDE, SIDE)), new((SIDE, SIDE))
        run(transpose_add, (SIDE // bm, SIDE // bn), x, y, z, SIDE, BM=bm, BN=bn, num_warps=warps)

    tiles = ((64, 64, 4), (32, 32, 4), (128, 64, 8), (16, 256, 4), (1, 1024, 4), (256, 16, 4), (128, 128, 4))
    for bm, bn, warps in tiles:
        yield f"transpose_add/{bm}/{bn}/{warps}", partial(add, bm=bm, bn=bn, warps=warps)


LINEAR = (  # shape, GROUP, precision, data type, then BM, BN, BK, warps, stages of each tile
    (A, 8, "tf32x3", torch.float32, ((128, 64, 32, 4, 4), (64, 64, 32, 4, 3), (128, 128, 32, 8, 3), (128, 128, 32, 4, 3),
                                     (64, 128, 32, 4, 4), (32, 32, 32, 4, 3), (64, 64, 64, 4, 3), (128, 64, 32, 4, 2),
                                     (128, 64, 32, 4, 1), (128, 64, 32, 8, 4), (16, 64, 32, 4, 3), (128, 256, 32, 8, 3),
                                     (64, 32, 32, 2, 4), (128, 64, 16, 4, 4), (64, 64, 32, 1, 3))),
    (A, 8, "tf32", torch.float32, ((128, 64, 32, 4, 4), (128, 128, 32, 8, 3), (64, 64, 32, 4, 3), (32, 32, 32, 4, 3),
                                   (128, 256, 32, 8, 3), (128, 64, 32, 4, 1))),
    (A, 8, "ieee", torch.float32, ((128, 64, 32, 4, 4), (64, 64, 32, 4, 3), (64, 64, 16, 8, 2), (128, 128, 16, 8, 2),
                                   (32, 32, 32, 4, 3), (128, 128, 32, 4, 3))),
    (A, 1, "tf32x3", torch.float32, ((128, 64, 32, 4, 4),)),
    (B, 8, "tf32x3", torch.float32, ((128, 128, 32, 8, 3), (128, 64, 32, 4, 4), (64, 64, 32, 4, 3))),
    (B, 1, "tf32x3", torch.float32, ((64, 64, 32, 4, 3),)),
    (C, 8, "tf32x3", torch.float32, ((64, 64, 64, 4, 3), (64, 64, 32, 4, 3), (128, 128, 32, 8, 3), (32, 64, 64, 4, 3),
                                     (128, 64, 32, 4, 4))),
    (D, 8, "ieee", torch.float16, ((128, 128, 64, 8, 3), (128, 256, 64, 8, 3), (64, 64, 64, 4, 3), (128, 128, 32, 4, 3),
                                   (32, 32, 64, 4, 3), (128, 128, 64, 4, 1))),
    *(((8192, 8192, 8192), group, "ieee", torch.float16, ((128, 128, 64, 8, 3),)) for group in (1, 8, 32)),
    ((1000, 1000, 1000), 8, "tf32x3", torch.float32, ((64, 64, 32, 4, 3),)),
    ((512, 512, 512), 8, "tf32x3", torch.float32, ((64, 64, 32, 4, 3), (32, 32, 32, 4, 3))),
)  # fmt: skip


def _linear() -> Iterator[tuple[str, LaunchCase]]:
    def case(
        new: New, run: Run, shape: tuple[int, int, int], tile: tuple[int, ...], group: int, precision: str, dtype: Any
    ) -> None:
        (m, k, n), (bm, bn, bk, warps, stages) = shape, tile
        x, weight, bias, y = new((m, k), dtype), new((n, k), dtype), new((n,), dtype), new((m, n), dtype)
        grid = (triton.cdiv(m, bm) * triton.cdiv(n, bn),)
        options = {"BM": bm, "BN": bn, "BK": bk, "GROUP": group, "num_warps": warps, "num_stages": stages}
        run(linear_gelu, grid, x, weight, bias, y, m, n, k, PREC=precision, **options)

    for shape, group, precision, dtype, tiles in LINEAR:
        for tile in tiles:
            bm, bn, bk, warps, stages = tile
            name = f"linear/{'x'.join(map(str, shape))}/{bm}x{bn}x{bk}/w{warps}s{stages}g{group}/{precision}"
            fixed = partial(case, shape=shape, tile=tile, group=group, precision=precision, dtype=dtype)
            yield f"{name}/{str(dtype).removeprefix('torch.')}", fixed


def _batched() -> Iterator[tuple[str, LaunchCase]]:
    def case(new: New, run: Run, batch: int, size: int, tile: tuple[int, int, int]) -> None:
        bm, bn, bk = tile
        x, weight, y = (new((batch, size, size)) for _ in range(3))
        options = {"BM": bm, "BN": bn, "BK": bk, "PREC": "tf32x3", "num_warps": 4, "num_stages": 3}
        run(bmm, (size // bm, size // bn, batch), x, weight, y, size, size, size, **options)

    for batch, size, tile in ((64, 512, (64, 64, 32)), (64, 512, (128, 64, 32)), (256, 128, (64, 64, 32))):
        yield f"bmm/{batch}x{size}/{'x'.join(map(str, tile))}", partial(case, batch=batch, size=size, tile=tile)


BIG, IMAGES = (ROWS, COLUMNS), (64, 64, 128, 128)
EAGER_CASES: dict[str, EagerCase] = {
    "eager/gelu(x+bias)": lambda new: partial(lambda x, b: F.gelu(x + b), new(BIG), new((4096,))),
    "eager/x+y": lambda new: partial(lambda x, y: x + y, new(BIG), new(BIG)),
    "eager/relu": lambda new: partial(lambda x: torch.relu(x), new(BIG)),
    "eager/gelu": lambda new: partial(lambda x: F.gelu(x), new(BIG)),
    "eager/tanh": lambda new: partial(lambda x: torch.tanh(x), new(BIG)),
    "eager/mish": lambda new: partial(lambda x: F.mish(x), new(BIG)),
    "eager/softmax": lambda new: partial(lambda x: F.softmax(x, -1), new(BIG)),
    "eager/softmax dim0": lambda new: partial(lambda x: F.softmax(x, 0), new(BIG)),
    "eager/log_softmax": lambda new: partial(lambda x: F.log_softmax(x, -1), new(BIG)),
    "eager/softmax 1024": lambda new: partial(lambda x: F.softmax(x, -1), new((65536, 1024))),
    "eager/logsumexp": lambda new: partial(lambda x: torch.logsumexp(x, -1), new(BIG)),
    "eager/layer_norm": lambda new: partial(lambda x, w: F.layer_norm(x, (4096,), w, w), new(BIG), new((4096,))),
    "eager/rms_norm": lambda new: partial(lambda x, w: F.rms_norm(x, (4096,), w), new(BIG), new((4096,))),
    "eager/group_norm": lambda new: partial(lambda x, w: F.group_norm(x, 8, w, w), new(IMAGES), new((64,))),
    "eager/batch_norm": lambda new: partial(lambda x, w: F.batch_norm(x, w, w, w, w), new(IMAGES), new((64,)).abs_()),
    "eager/instance_norm": lambda new: partial(lambda x: F.instance_norm(x), new(IMAGES)),
    "eager/sum -1": lambda new: partial(lambda x: x.sum(-1), new(BIG)),
    "eager/sum 0": lambda new: partial(lambda x: x.sum(0), new(BIG)),
    "eager/sum all": lambda new: partial(lambda x: x.sum(), new(BIG)),
    "eager/sum 64x2M": lambda new: partial(lambda x: x.sum(-1), new((64, 2097152))),
    "eager/max -1": lambda new: partial(lambda x: x.max(-1), new(BIG)),
    "eager/argmax -1": lambda new: partial(lambda x: x.argmax(-1), new(BIG)),
    "eager/mean -1": lambda new: partial(lambda x: x.mean(-1), new(BIG)),
    "eager/var -1": lambda new: partial(lambda x: x.var(-1), new(BIG)),
    "eager/cumsum -1": lambda new: partial(lambda x: x.cumsum(-1), new(BIG)),
    "eager/cross_entropy": lambda new: partial(
        lambda x, t: F.cross_entropy(x, t), new(BIG), new((16384,)).to(torch.int64).abs_()
    ),
    "eager/t copy": lambda new: partial(lambda x: x.t().contiguous(), new((8192, 8192))),
    "eager/t add": lambda new: partial(lambda x, y: x.t() + y, new((8192, 8192)), new((8192, 8192))),
    "eager/cat": lambda new: partial(lambda x, y: torch.cat([x, y], -1), new((16384, 2048)), new((16384, 2048))),
    "eager/masked_fill": lambda new: partial(lambda x, m: x.masked_fill(m, 0.0), new(BIG), new(BIG) > 0),
    "eager/where": lambda new: partial(lambda x, m: torch.where(m, x, x), new(BIG), new(BIG) > 0),
    "eager/to half": lambda new: partial(lambda x: x.to(torch.float16), new(BIG)),
    "eager/relu 1M": lambda new: partial(lambda x: torch.relu(x), new((1 << 20,))),
    "eager/relu 4K": lambda new: partial(lambda x: torch.relu(x), new((4096,))),
    "eager/relu 16M": lambda new: partial(lambda x: torch.relu(x), new((1 << 24,))),
    "eager/relu x4 1M": lambda new: partial(
        lambda x: torch.relu(torch.relu(torch.relu(torch.relu(x)))), new((1 << 20,))
    ),
    "eager/relu x4 4M": lambda new: partial(
        lambda x: torch.relu(torch.relu(torch.relu(torch.relu(x)))), new((1 << 22,))
    ),
    "eager/embedding": lambda new: partial(
        lambda w, t: F.embedding(t, w), new((50000, 1024)), new((16384,)).to(torch.int64).abs_()
    ),
    "eager/mm 2048x4096x2048": lambda new: partial(
        lambda x, w, b: F.linear(x, w, b), new((2048, 4096)), new((2048, 4096)), new((2048,))
    ),
    "eager/mm+gelu 2048x4096x2048": lambda new: partial(
        lambda x, w, b: F.gelu(F.linear(x, w, b)), new((2048, 4096)), new((2048, 4096)), new((2048,))
    ),
    "eager/mm+gelu 1024x8192x8192": lambda new: partial(
        lambda x, w, b: F.gelu(F.linear(x, w, b)), new((1024, 8192)), new((8192, 8192)), new((8192,))
    ),
    "eager/mm+gelu 128x8192x8192": lambda new: partial(
        lambda x, w, b: F.gelu(F.linear(x, w, b)), new((128, 8192)), new((8192, 8192)), new((8192,))
    ),
    "eager/mm 4096 fp32": lambda new: partial(lambda x, w: x @ w, new((4096, 4096)), new((4096, 4096))),
    "eager/mm 4096 fp16": lambda new: partial(
        lambda x, w: x @ w.t(), new((4096, 4096), torch.float16), new((4096, 4096), torch.float16)
    ),
    "eager/mm 1024 fp32": lambda new: partial(lambda x, w: x @ w, new((1024, 1024)), new((1024, 1024))),
    "eager/mm 512 fp32": lambda new: partial(lambda x, w: x @ w, new((512, 512)), new((512, 512))),
    "eager/mm 256 fp32": lambda new: partial(lambda x, w: x @ w, new((256, 256)), new((256, 256))),
    "eager/mm 1x8192x8192": lambda new: partial(lambda x, w: F.linear(x, w), new((1, 8192)), new((8192, 8192))),
    "eager/mm 16x8192x8192": lambda new: partial(lambda x, w: F.linear(x, w), new((16, 8192)), new((8192, 8192))),
    "eager/mm 8192x64x8192": lambda new: partial(lambda x, w: F.linear(x, w), new((8192, 64)), new((8192, 64))),
    "eager/mm 64x131072x64": lambda new: partial(lambda x, w: F.linear(x, w), new((64, 131072)), new((64, 131072))),
    "eager/bmm 64x512": lambda new: partial(lambda x, w: torch.bmm(x, w), new((64, 512, 512)), new((64, 512, 512))),
    "eager/bmm 256x128": lambda new: partial(lambda x, w: torch.bmm(x, w), new((256, 128, 128)), new((256, 128, 128))),
    "eager/sdpa fp32": lambda new: partial(lambda q: F.scaled_dot_product_attention(q, q, q), new((8, 16, 1024, 64))),
    "eager/sdpa fp32 causal": lambda new: partial(
        lambda q: F.scaled_dot_product_attention(q, q, q, is_causal=True), new((8, 16, 1024, 64))
    ),
    "eager/sdpa fp16": lambda new: partial(
        lambda q: F.scaled_dot_product_attention(q, q, q), new((8, 16, 1024, 64), torch.float16)
    ),
    "eager/conv 32x64x128 3x3": lambda new: partial(
        lambda x, w: F.conv2d(x, w), new((32, 64, 128, 128)), new((128, 64, 3, 3))
    ),
    "eager/conv 16x256x56 1x1": lambda new: partial(
        lambda x, w: F.conv2d(x, w), new((16, 256, 56, 56)), new((64, 256, 1, 1))
    ),
    "eager/depthwise 3x3": lambda new: partial(
        lambda x, w: F.conv2d(x, w, groups=64), new((32, 64, 128, 128)), new((64, 1, 3, 3))
    ),
    "eager/max_pool": lambda new: partial(lambda x: F.max_pool2d(x, 2), new((32, 64, 128, 128))),
    "eager/avg_pool": lambda new: partial(lambda x: F.avg_pool2d(x, 2), new((32, 64, 128, 128))),
    "eager/lstm": lambda new: partial(
        lambda m, x: m(x), torch.nn.LSTM(256, 256, batch_first=True), new((16, 128, 256))
    ),
}
"""Every library call by name: makes its tensors and gives back the call. fp32 where the name says nothing."""
