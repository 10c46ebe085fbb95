# ruff: noqa: N803
"""Kernels that the tests of the interpreter run in a check worker (imported there only: it needs TRITON_INTERPRET=1)."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from triton.language.extra import libdevice

from mtmc.evaluate.interpreter.bounds import OutOfBoundsError, bounded_memory


@triton.jit
def dot_kernel(a_ptr, b_ptr, c_ptr, PRECISION: tl.constexpr, N: tl.constexpr):
    i = tl.arange(0, N)
    at = i[:, None] * N + i[None, :]
    tl.store(c_ptr + at, tl.dot(tl.load(a_ptr + at), tl.load(b_ptr + at), input_precision=PRECISION))


def dot_errors() -> dict[str, float]:
    """Norm-wise error of a 64 x 64 product at each precision, against float64."""
    torch.manual_seed(0)
    errors = {}
    cases = [("default", None, torch.float32)]
    cases += [(name, name, torch.float32) for name in ("tf32", "tf32x3", "ieee", "bf16x3", "bf16x6")]
    cases += [("float16", None, torch.float16), ("bfloat16", None, torch.bfloat16)]
    for name, precision, dtype in cases:
        torch.manual_seed(1)
        a, b = torch.randn(64, 64).to(dtype), torch.randn(64, 64).to(dtype)
        c = torch.empty(64, 64)
        dot_kernel[(1,)](a, b, c, precision, 64)
        exact = a.double() @ b.double()
        errors[name] = float((c.double() - exact).norm() / exact.norm())
    return errors


@triton.jit
def bf16_kernel(a_ptr, b_ptr, out_ptr, N: tl.constexpr):
    i = tl.arange(0, N)
    a, b = tl.load(a_ptr + i), tl.load(b_ptr + i)
    tl.store(out_ptr + i, a * b + a)
    tl.store(out_ptr + N + i, tl.where(a > b, a, b))
    tl.store(out_ptr + 2 * N + i, tl.maximum(a, b))
    tl.store(out_ptr + 3 * N + i, tl.exp(a.to(tl.float32)).to(tl.bfloat16))
    tl.store(out_ptr + 4 * N + i, tl.zeros((N,), tl.bfloat16) + tl.sum(a, axis=0))


def bf16_errors() -> dict[str, float]:
    """Largest difference to torch's own bfloat16 results."""
    torch.manual_seed(0)
    n = 256
    a, b = torch.randn(n).bfloat16(), torch.randn(n).bfloat16()
    out = torch.empty(5, n, dtype=torch.bfloat16)
    bf16_kernel[(1,)](a, b, out, n)
    want = {
        "multiply_add": a * b + a,
        "where": torch.where(a > b, a, b),
        "maximum": torch.maximum(a, b),
        "exp": torch.exp(a.float()).bfloat16(),
        "sum": a.double().sum().float().bfloat16().expand(n),
    }
    return {name: float((out[k].float() - w.float()).abs().max()) for k, (name, w) in enumerate(want.items())}


@triton.jit
def libdevice_kernel(x_ptr, out_ptr, N: tl.constexpr):
    i = tl.arange(0, N)
    x = tl.load(x_ptr + i)
    tl.store(out_ptr + i, libdevice.tanh(x))
    tl.store(out_ptr + N + i, tl.extra.cuda.libdevice.erf(x))
    tl.store(out_ptr + 2 * N + i, libdevice.pow(tl.abs(x), 2.5))
    tl.store(out_ptr + 3 * N + i, tl.erf(x))
    tl.store(out_ptr + 4 * N + i, libdevice.log1p(tl.abs(x)))


def libdevice_errors() -> dict[str, float]:
    torch.manual_seed(0)
    n = 128
    x = torch.randn(n)
    out = torch.empty(5, n)
    libdevice_kernel[(1,)](x, out, n)
    wide = x.double()
    want = [torch.tanh(wide), torch.erf(wide), wide.abs() ** 2.5, torch.erf(wide), torch.log1p(wide.abs())]
    return {str(k): float((out[k].double() - w).norm() / w.norm()) for k, w in enumerate(want)}


@triton.jit
def hash_kernel(out_ptr, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(out_ptr + i, i * 1000003 + 2147483647)


def wrapped_integers() -> list[int]:
    """i * 1000003 + 2**31 - 1 in int32, for i up to 4095."""
    out = torch.empty(4096, dtype=torch.int32)
    hash_kernel[(1,)](out, 4096)
    numbers: list[int] = out.tolist()
    return numbers


@triton.jit
def masked_kernel(x_ptr, out_ptr, number, share, N: tl.constexpr):
    i, program = tl.arange(0, N), tl.program_id(0)
    few, low = number < 7, share > 0.5
    for way in tl.static_range(5):
        mask = (i < 4) & (program < 1)
        if way == 1:
            mask = few & (i >= 4)
        elif way == 2:
            mask = (i < 2) | low
        elif way == 3:
            mask = (i < 6) & (number == program) & few & low
        elif way == 4:
            mask = (i < 6) ^ (program >= 1)
        x = tl.load(x_ptr + i, mask=mask, other=0.0)
        tl.store(out_ptr + (program * 5 + way) * N + i, tl.where(low, x, -x), mask=mask | (number > 0))


def masked() -> list[list[str]]:
    """The elements that each way of masking lets through, of two programs, for two numbers."""
    x = torch.arange(1.0, 9.0)
    found = []
    for number, share in ((1, 0.75), (8, 0.25)):
        out = torch.zeros(10, 8)
        masked_kernel[(2,)](x, out, number, share, 8)
        found.append(["".join(str(int(abs(each))) for each in row) for row in out.tolist()])
    return found


@triton.jit
def loop_kernel(out_ptr, n, STEP: tl.constexpr):
    at = 0
    for i in range(n):
        tl.store(out_ptr + at, (i.to(tl.int64) << 40) >> 38)
        at += 1
    for i in tl.range(tl.program_id(0), n, STEP):
        for j in range(0, STEP):
            tl.store(out_ptr + at, i.to(tl.int64) * 1099511627776 + j.to(tl.float32).to(tl.int64))
            at += 1
    for i in tl.static_range(2):
        tl.store(out_ptr + at, i + 7)
        at += 1


def cast_loop_variables() -> list[int]:
    """Loops over 0 to 3: four times the number; 2**40 times each other one, with 0 and 1 added; 7 and 8."""
    out = torch.zeros(10, dtype=torch.int64)
    loop_kernel[(1,)](out, 4, 2)
    numbers: list[int] = out.tolist()
    return numbers


@triton.jit
def truth_kernel(x_ptr, one_ptr, sum_ptr):
    i = tl.arange(0, 8)
    x = tl.load(x_ptr + i)
    same = x == x
    tl.store(one_ptr + i, (x > 3).to(one_ptr.dtype.element_ty))
    tl.store(sum_ptr + i, (x > 3).to(sum_ptr.dtype.element_ty) + (x < 5).to(sum_ptr.dtype.element_ty) + same)


def truths() -> dict[str, list[list[float]]]:
    """By dtype: which of 0 to 7 are over 3; that, whether it is below 5, and one, added."""
    found = {}
    for dtype in (torch.int8, torch.int32, torch.int64, torch.float16, torch.bfloat16, torch.float32, torch.float64):
        x, results = torch.arange(8).to(dtype), [torch.full((8,), 77).to(dtype) for _ in range(2)]
        truth_kernel[(1,)](x, *results)
        found[str(dtype)] = [result.double().tolist() for result in results]
    return found


@triton.jit
def scaled_kernel(out_ptr, scale, shift):
    i = tl.arange(0, 4)
    tl.store(out_ptr + i, i * scale.to(tl.float32) + shift.to(tl.float64))


def floats_as_numbers() -> list[float]:
    """0 to 3 times a tenth in fp32, and a third."""
    out = torch.zeros(4, dtype=torch.float64)
    scaled_kernel[(1,)](out, 0.1, 1 / 3)
    numbers: list[float] = out.tolist()
    return numbers


@triton.jit
def touch_kernel(x_ptr, out_ptr, low, high, shift, STORE: tl.constexpr, ATOMIC: tl.constexpr):
    i = tl.arange(0, 64)
    x = tl.load(x_ptr + i + shift, mask=(i >= low) & (i < high), other=0.0)
    if STORE:
        tl.store(out_ptr + i - 1, x)
    elif ATOMIC:
        tl.atomic_add(out_ptr + i + 1, x)
    else:
        tl.store(out_ptr + i, x)


@triton.jit
def follow_kernel(addresses_ptr, out_ptr):
    source = tl.load(addresses_ptr).to(tl.pointer_type(tl.float32))
    i = tl.arange(0, 64)
    tl.store(out_ptr + i, tl.load(source + i))


def bounds() -> dict[str, str]:
    x, out = torch.ones(64), torch.zeros(64)
    cases = {
        "inside": lambda: touch_kernel[(1,)](x, out, 0, 64, 0, False, False),
        "masked": lambda: touch_kernel[(1,)](x, out, 0, 60, 4, False, False),
        "past": lambda: touch_kernel[(1,)](x, out, 0, 64, 1, False, False),
        "store": lambda: touch_kernel[(1,)](x, out, 0, 64, 0, True, False),
        "atomic": lambda: touch_kernel[(1,)](x, out, 0, 64, 0, False, True),
        "addresses": lambda: follow_kernel[(1,)](torch.tensor([x.data_ptr()]), out),
    }
    messages = {}
    with bounded_memory():
        for name, case in cases.items():
            messages[name] = ""
            try:
                case()
            except Exception as error:
                cause = error.__cause__ or error
                assert isinstance(cause, OutOfBoundsError), repr(error)
                messages[name] = str(cause)
    return messages


@triton.jit
def later(a_top, a_place, b_top, b_place):
    """The larger number and its place; of equal ones the first."""
    behind = (b_top > a_top) | ((b_top == a_top) & (b_place < a_place))
    return tl.where(behind, b_top, a_top), tl.where(behind, b_place, a_place)


@triton.jit
def affine(a, b, c, d):
    """x -> a x + b, then x -> c x + d."""
    return a * c, b * c + d


@triton.jit
def branching(a, b):
    if a > b:
        return a
    return b


@triton.jit
def horner(a, b):
    return a * 0.5 + b


@triton.jit
def combining_kernel(x_ptr, out_ptr, M: tl.constexpr, N: tl.constexpr):
    i, j = tl.arange(0, M), tl.arange(0, N)
    x = tl.load(x_ptr + i[:, None] * N + j[None, :])
    top, place = tl.reduce((x, tl.broadcast_to(j[None, :], (M, N))), 1, later)
    tl.store(out_ptr + i, top)
    tl.store(out_ptr + M + i, place)
    tl.store(out_ptr + 2 * M + j, tl.reduce(x, 0, branching))
    _scale, shift = tl.associative_scan((x * 0 + 0.5, x), 1, affine, reverse=True)
    tl.store(out_ptr + 2 * M + N + i[:, None] * N + j[None, :], shift)
    tl.store(out_ptr + 2 * M + N + M * N, tl.reduce(tl.reshape(x, (M * N,)), 0, horner))


def combined() -> dict[str, bool]:
    """Which rules of a kernel's own give what they should; the last one holds from left to right only."""
    torch.manual_seed(0)
    m, n = 4, 16
    x = torch.randint(0, 9, (m, n)).float()
    out = torch.empty(2 * m + n + m * n + 1)
    combining_kernel[(1,)](x, out, m, n)
    recurrence, state = torch.empty(m, n), torch.zeros(m)
    for at in reversed(range(n)):
        state = recurrence[:, at] = state * 0.5 + x[:, at]
    powers = 0.5 ** torch.arange(m * n - 1, -1, -1)
    return {
        "top": torch.equal(out[:m], x.amax(1)),
        "place": torch.equal(out[m : 2 * m], x.argmax(1).float()),
        "branching": torch.equal(out[2 * m : 2 * m + n], x.amax(0)),
        "scan": torch.allclose(out[2 * m + n : -1].reshape(m, n), recurrence),
        "from the left": bool((out[-1] - (x.flatten() * powers).sum()).abs() < 1e-3),
    }
