# ruff: noqa: N803 - sizes are called M, N and K, as in any text on matrix products
"""The Triton kernels that the estimator was fitted to, see `estimate_fit.py`."""

import triton
import triton.language as tl


@triton.jit
def gelu_bias(x, b, y, n, N, BLOCK: tl.constexpr):
    """gelu(x + b), flat."""
    o = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    m = o < n
    v = tl.load(x + o, mask=m) + tl.load(b + o % N, mask=m)
    tl.store(y + o, 0.5 * v * (1.0 + tl.erf(v * 0.7071067811865476)), mask=m)


@triton.jit
def vadd(x, y, z, n, BLOCK: tl.constexpr):
    """x + y."""
    o = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    m = o < n
    tl.store(z + o, tl.load(x + o, mask=m) + tl.load(y + o, mask=m), mask=m)


@triton.jit
def softmax_one(x, y, N, BLOCK: tl.constexpr):
    """A row held in one block."""
    r = tl.program_id(0)
    c = tl.arange(0, BLOCK)
    m = c < N
    v = tl.load(x + r * N + c, mask=m, other=-float("inf"))
    e = tl.exp(v - tl.max(v, 0))
    tl.store(y + r * N + c, e / tl.sum(e, 0), mask=m)


@triton.jit
def softmax_loop(x, y, N, BLOCK: tl.constexpr):
    """A row in several blocks, read three times."""
    r = tl.program_id(0)
    c = tl.arange(0, BLOCK)
    mx = tl.full((BLOCK,), -float("inf"), tl.float32)
    for k in range(0, N, BLOCK):
        mx = tl.maximum(mx, tl.load(x + r * N + k + c, mask=k + c < N, other=-float("inf")))
    top = tl.max(mx, 0)
    s = tl.zeros((BLOCK,), tl.float32)
    for k in range(0, N, BLOCK):
        s += tl.exp(tl.load(x + r * N + k + c, mask=k + c < N, other=-float("inf")) - top)
    t = tl.sum(s, 0)
    for k in range(0, N, BLOCK):
        v = tl.load(x + r * N + k + c, mask=k + c < N, other=-float("inf"))
        tl.store(y + r * N + k + c, tl.exp(v - top) / t, mask=k + c < N)


@triton.jit
def layernorm_one(x, w, b, y, N, BLOCK: tl.constexpr):
    """A row held in one block."""
    r = tl.program_id(0)
    c = tl.arange(0, BLOCK)
    m = c < N
    v = tl.load(x + r * N + c, mask=m, other=0.0)
    mu = tl.sum(v, 0) / N
    d = tl.where(m, v - mu, 0.0)
    var = tl.sum(d * d, 0) / N
    o = d * tl.rsqrt(var + 1e-5) * tl.load(w + c, mask=m) + tl.load(b + c, mask=m)
    tl.store(y + r * N + c, o, mask=m)


@triton.jit
def rowsum(x, y, N, CHUNK, BLOCK: tl.constexpr):
    """Sum of one part of a row."""
    r = tl.program_id(0)
    s = tl.program_id(1)
    c = tl.arange(0, BLOCK)
    acc = tl.zeros((BLOCK,), tl.float32)
    for k in range(s * CHUNK, (s + 1) * CHUNK, BLOCK):
        acc += tl.load(x + r * N + k + c, mask=k + c < N, other=0.0)
    tl.store(y + r * tl.num_programs(1) + s, tl.sum(acc, 0))


@triton.jit
def colsum(x, y, M, N, BM: tl.constexpr, BN: tl.constexpr):
    """Sums of BN columns."""
    c = tl.program_id(0) * BN + tl.arange(0, BN)
    r = tl.arange(0, BM)
    acc = tl.zeros((BM, BN), tl.float32)
    for k in range(0, M, BM):
        acc += tl.load(x + (k + r)[:, None] * N + c[None, :], mask=((k + r)[:, None] < M) & (c[None, :] < N), other=0.0)
    tl.store(y + c, tl.sum(acc, 0), mask=c < N)


@triton.jit
def transpose_add(x, y, z, N, BM: tl.constexpr, BN: tl.constexpr):
    """x^T + y in tiles."""
    i = tl.program_id(0) * BM + tl.arange(0, BM)
    j = tl.program_id(1) * BN + tl.arange(0, BN)
    a = tl.load(x + j[None, :] * N + i[:, None])
    b = tl.load(y + i[:, None] * N + j[None, :])
    tl.store(z + i[:, None] * N + j[None, :], a + b)


@triton.jit
def linear_gelu(
    x, w, b, y, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr, PREC: tl.constexpr
):
    """gelu(x w^T + b) in tiles, GROUP rows of tiles together."""
    pid = tl.program_id(0)
    nm = tl.cdiv(M, BM)
    nn = tl.cdiv(N, BN)
    per = GROUP * nn
    g = pid // per
    first = g * GROUP
    size = min(nm - first, GROUP)
    pm = first + (pid % per) % size
    pn = (pid % per) // size
    rm = pm * BM + tl.arange(0, BM)
    rn = pn * BN + tl.arange(0, BN)
    rk = tl.arange(0, BK)
    a = x + rm[:, None] * K + rk[None, :]
    c = w + rn[None, :] * K + rk[:, None]
    acc = tl.zeros((BM, BN), tl.float32)
    for k in range(0, K, BK):
        av = tl.load(a, mask=(rm[:, None] < M) & (rk[None, :] < K - k), other=0.0)
        bv = tl.load(c, mask=(rn[None, :] < N) & (rk[:, None] < K - k), other=0.0)
        acc = tl.dot(av, bv, acc, input_precision=PREC)
        a += BK
        c += BK
    v = acc + tl.load(b + rn, mask=rn < N, other=0.0)[None, :]
    v = 0.5 * v * (1.0 + tl.erf(v * 0.7071067811865476))
    tl.store(y + rm[:, None] * N + rn[None, :], v.to(y.dtype.element_ty), mask=(rm[:, None] < M) & (rn[None, :] < N))


@triton.jit
def bmm(x, w, y, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, PREC: tl.constexpr):
    """A batch of products in tiles; shapes are multiples of the tile."""
    pm = tl.program_id(0)
    pn = tl.program_id(1)
    z = tl.program_id(2)
    rm = pm * BM + tl.arange(0, BM)
    rn = pn * BN + tl.arange(0, BN)
    rk = tl.arange(0, BK)
    a = x + z * M * K + rm[:, None] * K + rk[None, :]
    c = w + z * N * K + rk[:, None] * N + rn[None, :]
    acc = tl.zeros((BM, BN), tl.float32)
    for _ in range(0, K, BK):
        acc = tl.dot(tl.load(a), tl.load(c), acc, input_precision=PREC)
        a += BK
        c += BK * N
    tl.store(y + z * M * N + rm[:, None] * N + rn[None, :], acc)
