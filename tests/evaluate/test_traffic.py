"""Counted traffic against numbers worked out by hand.

Kernels are interpreted only in a process that starts with TRITON_INTERPRET=1, so all cases run in one such process,
which prints their records; the tests read them.
"""

from __future__ import annotations

import itertools
import json
import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mtmc.evaluate.counting.sample import borders, sample_programs, sample_weights, turn, turn_weights
from tests.interpreter import interpreted

PLANES = (
    (1600, 0, 300),
    (1568, 0, 300),
    (1792, 0, 300),
    (900, 0, 300),
    (257, 0, 300),
    (520, 0, 300),
    (3073, 0, 300),
    (1600, 145, 155),
    (257, 130, 170),
)
"""Numbers of each of 300 planes, and which of them are copied, from the first to the one behind the last."""

CASES = (
    f"PLANES = {PLANES}"
    + '''
import json, os
import torch, triton
import triton.language as tl
from torch import nn
from torch.nn import functional as F
from triton.runtime import interpreter
from mtmc.errors import EvaluatorError
from mtmc.evaluate.counting.traffic import Limits, count_traffic, fake_tensors
from mtmc.evaluate.interpreter.interpreter import prepare

prepare()  # as the processes do that count


@triton.jit
def add(x, y, z, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = offsets < n
    tl.store(z + offsets, tl.load(x + offsets, mask=inside) + tl.load(y + offsets, mask=inside), mask=inside)


@triton.jit
def told_by_one(x, out, total, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    number = tl.load(x + offsets)
    tl.store(out + offsets, number)
    if tl.program_id(0) == 0:
        tl.store(total + tl.arange(0, 16), tl.arange(0, 16) + tl.sum(number))


@triton.jit
def planes(x, y, n, first, last, PARTS: tl.constexpr, BLOCK: tl.constexpr):
    """Planes of n numbers, each of some programs, the last of which has little left; only those from first to last."""
    plane, part = tl.program_id(0) // PARTS, tl.program_id(0) % PARTS
    offsets = part * BLOCK + tl.arange(0, BLOCK)
    inside = (offsets < n) & (plane >= first) & (plane < last)
    tl.store(y + plane * n + offsets, tl.load(x + plane * n + offsets, mask=inside), mask=inside)


@triton.jit
def softmax(x, y, n, BLOCK: tl.constexpr):
    columns = tl.arange(0, BLOCK)
    values = tl.load(x + tl.program_id(0) * n + columns, mask=columns < n, other=-float("inf"))
    powers = tl.exp(values - tl.max(values, 0))
    tl.store(y + tl.program_id(0) * n + columns, powers / tl.sum(powers, 0), mask=columns < n)


@triton.jit
def long_mean(x, y, n, BLOCK: tl.constexpr):
    """Reads each row twice."""
    columns = tl.arange(0, BLOCK)
    row = x + tl.program_id(0) * n
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, n, BLOCK):
        total += tl.load(row + start + columns, mask=start + columns < n, other=0.0)
    mean = tl.sum(total, 0) / n
    for start in range(0, n, BLOCK):
        values = tl.load(row + start + columns, mask=start + columns < n, other=0.0)
        tl.store(y + tl.program_id(0) * n + start + columns, values - mean, mask=start + columns < n)


@triton.jit
def turned(x, y, HALF: tl.constexpr, ROWS: tl.constexpr):
    """Reads each row, and its halves the other way round, by two loads of which each is masked."""
    at = tl.program_id(0) * ROWS * 2 * HALF + tl.arange(0, ROWS * 2 * HALF)
    right = at % (2 * HALF) < HALF
    other = tl.load(x + at + HALF, mask=right, other=0.0) - tl.load(x + at - HALF, mask=~right, other=0.0)
    tl.store(y + at, tl.load(x + at) + other)


@triton.jit
def tile(pid, columns, GROUP: tl.constexpr):
    group = pid // (GROUP * columns)
    return group * GROUP + pid % GROUP, pid % (GROUP * columns) // GROUP


@triton.jit
def matmul(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr,
           PRECISION: tl.constexpr):
    row, column = tile(tl.program_id(0), tl.cdiv(N, BN), GROUP)
    rows, columns, depth = row * BM + tl.arange(0, BM), column * BN + tl.arange(0, BN), tl.arange(0, BK)
    sums = tl.zeros((BM, BN), tl.float32)
    for k in range(0, K, BK):
        left = tl.load(a + rows[:, None] * K + k + depth[None, :], mask=(rows[:, None] < M) & (k + depth[None, :] < K))
        right = tl.load(b + (k + depth)[:, None] * N + columns[None, :], mask=k + depth[:, None] < K)
        sums = tl.dot(left, right, sums, input_precision=PRECISION)
    tl.store(c + rows[:, None] * N + columns[None, :], sums, mask=rows[:, None] < M)


@triton.jit
def column(x, y, n, BLOCK: tl.constexpr):
    """Reads down a column of an n x n matrix."""
    rows = tl.arange(0, BLOCK)
    tl.store(y + tl.program_id(0) * n + rows, tl.load(x + rows * n + tl.program_id(0)))


@triton.jit
def atomic_sum(x, y, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(y + offsets % 4, tl.load(x + offsets, mask=offsets < n), mask=offsets < n)


@triton.jit
def combine(a, b):
    return tl.where(a > b, a, b * 1.0)


@triton.jit
def oddities(x, lengths, lock, y, BLOCK: tl.constexpr):
    """A lock, a trip count read from memory, a lookup, a custom reduction, a scan and bfloat16."""
    while tl.atomic_cas(lock, 0, 1) == 1:
        pass
    offsets = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for i in range(tl.load(lengths)):
        total += tl.load(x + offsets + i * BLOCK).to(tl.float32)
    top = tl.reduce(total, 0, combine)
    place = tl.argmax(total, 0)
    running = tl.cumsum(total, 0)
    while tl.load(lock) == 0:
        pass
    tl.store(y + offsets, running / (top + place))


@triton.jit
def endless(x, flag):
    while tl.load(flag) > 0:
        tl.store(x, tl.load(x) + 1.0)


@triton.autotune([triton.Config({"BLOCK": 256}, num_warps=2, num_stages=5), triton.Config({"BLOCK": 512})], key=["n"])
@triton.heuristics({"EVEN": lambda args: args["n"] % args["BLOCK"] == 0})
@triton.jit
def tuned(x, y, n, BLOCK: tl.constexpr, EVEN: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + offsets, tl.load(x + offsets, mask=offsets < n), mask=offsets < n)


@triton.jit
def described(x, y, M, N, BM: tl.constexpr, BN: tl.constexpr):
    source = tl.make_tensor_descriptor(x, shape=[M, N], strides=[N, 1], block_shape=[BM, BN])
    target = tl.make_tensor_descriptor(y, shape=[M, N], strides=[N, 1], block_shape=[BM, BN])
    place = [tl.program_id(0) * BM, tl.program_id(1) * BN]
    target.store(place, source.load(place) * 2.0)


def shapes(*sizes, dtype=torch.float32, like=torch.empty):
    return [like(size, dtype=dtype) for size in sizes]


def launch(kernel, grid, *arguments, **options):
    return lambda: kernel[grid](*arguments, **options)


def add_case(make, n=100003, block=1024):
    return launch(add, (triton.cdiv(n, block),), *make((n,), (n,), (n,)), n, BLOCK=block, num_warps=8, num_stages=2)


def softmax_case(make):
    return launch(softmax, (64,), *make((64, 1000), (64, 1000)), 1000, BLOCK=1024)


def long_mean_case(make):
    return launch(long_mean, (32,), *make((32, 1000), (32, 1000)), 1000, BLOCK=256)


def matmul_case(make, m=256, n=128, k=96, bm=64, bn=32, bk=32, group=1, precision="tf32x3", dtype=torch.float32):
    a, b = make((m, k), (k, n), dtype=dtype)
    (c,) = make((m, n))
    grid = lambda meta: (triton.cdiv(m, meta["BM"]) * triton.cdiv(n, meta["BN"]),)
    return launch(matmul, grid, a, b, c, m, n, k, BM=bm, BN=bn, BK=bk, GROUP=group, PRECISION=precision)


def ragged_case(make):
    return matmul_case(make, m=250, k=100)


def oddities_case(make):
    x, (lengths,), (lock,), (y,) = make((1024,), dtype=torch.bfloat16), make((1,), dtype=torch.int32), make(
        (1,), dtype=torch.int32), make((64,))
    return launch(oddities, (1,), x[0], lengths, lock, y, BLOCK=64)


def tuned_case(make):
    return launch(tuned, lambda meta: (triton.cdiv(1000, meta["BLOCK"]),), *make((1000,), (1000,)), 1000)


LAUNCHES = {
    "add": add_case,
    "softmax": softmax_case,
    "long mean": long_mean_case,
    "turned": lambda make: launch(turned, (512,), *make((4096, 128), (4096, 128)), HALF=64, ROWS=8),
    "matmul": matmul_case,
    "ragged matmul": ragged_case,
    "half matmul": lambda make: matmul_case(make, precision=None, dtype=torch.float16),
    "column": lambda make: launch(column, (128,), *make((128, 128), (128, 128)), 128, BLOCK=128),
    "atomic sum": lambda make: launch(atomic_sum, (4,), *make((1000,), (4,)), 1000, BLOCK=256),
    "oddities": oddities_case,
    "tuned": tuned_case,
    "described": lambda make: launch(described, (3, 2), *make((40, 48), (40, 48)), 40, 48, BM=16, BN=32),
    "nothing": lambda make: launch(add, (0,), *make((8,), (8,), (8,)), 8, BLOCK=8),
}
BIG = {
    "rows first": lambda make: matmul_case(make, 2048, 2048, 2048, 128, 128, 64, 1),
    "grouped": lambda make: matmul_case(make, 2048, 2048, 2048, 128, 128, 64, 4),
}
EXACT = ("add", "softmax", "long mean", "matmul", "ragged matmul", "half matmul", "column", "atomic sum", "tuned")


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(64, 32)

    def forward(self, x):
        hidden = F.gelu(self.linear(x))
        out = torch.empty_like(hidden)
        add[(triton.cdiv(hidden.numel(), 64),)](hidden, hidden, out, hidden.numel(), BLOCK=64)
        return out.view(-1).relu_()


def conv(x, weight, **options):
    return lambda: F.conv2d(x, weight, **options)


def ops():
    x, y, row = torch.rand(128, 256), torch.rand(128, 256), torch.rand(256)
    image, index = torch.rand(2, 8, 16, 16), torch.zeros(10, dtype=torch.int64)
    q, table = torch.rand(2, 4, 64, 32), torch.rand(1000, 16)
    recurrent = nn.LSTM(16, 32, batch_first=True)
    sequence, states = torch.rand(4, 10, 16), [torch.rand(1, 4, 32), torch.rand(1, 4, 32)]
    weights, flags = list(recurrent.parameters()), (True, 1, 0.0, False, False, True)
    return {
        "addmm": lambda: F.linear(x, y, row[:128]),
        "bmm": lambda: torch.bmm(q[0], q[0].transpose(1, 2)),
        "gelu": lambda: F.gelu(x),
        "views": lambda: x.view(-1)[3:].reshape(5, -1).t().unsqueeze(0),
        "allocation": lambda: torch.empty(5, 5),
        "zeros": lambda: torch.zeros(128, 256),
        "in place": lambda: x.add_(y),
        "copy": lambda: x.copy_(y),
        "expanded": lambda: x + row.expand(128, 256),
        "same twice": lambda: x * x,
        "transposed": lambda: y[:, :128].t() + x[:, :128],
        "softmax": lambda: F.softmax(x, -1),
        "column softmax": lambda: F.softmax(x, 0),
        "layer norm": lambda: F.layer_norm(x, (256,), row, row),
        "rms norm": lambda: F.rms_norm(x, (256,), row),
        "group norm": lambda: F.group_norm(image, 4),
        "attention": lambda: F.scaled_dot_product_attention(q, q, q),
        "causal attention": lambda: F.scaled_dot_product_attention(q, q, q, is_causal=True),
        "convolution": conv(image, torch.rand(12, 8, 3, 3)),
        "depthwise": conv(image, torch.rand(8, 1, 3, 3), groups=8),
        "embedding": lambda: F.embedding(index, table),
        "masked fill": lambda: x.masked_fill(y > 2, 0.0),
        "lstm": lambda: recurrent(sequence),
        "lstm as an op": lambda: torch.ops.aten.lstm.input(sequence, states, weights, *flags),
        "cast": lambda: x.to(torch.float16),
    }


def refusal(run):
    try:
        run()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "none"


def refusals():
    found = {}
    with fake_tensors():
        x, flag = shapes((4,), (1,))
        found["endless"] = refusal(lambda: count_traffic(launch(endless, (2,), x, flag), [], Limits(program_work=1e5)))
        found["host"] = refusal(lambda: count_traffic(lambda: x.sum().item(), []))
        found["broken kernel"] = refusal(lambda: count_traffic(launch(add, (1,), x), []))
        os.environ["TRITON_INTERPRET"] = "0"
        compiled = triton.jit(add.fn)
        os.environ["TRITON_INTERPRET"] = "1"
        found["compiled"] = refusal(lambda: count_traffic(launch(compiled, (1,), x, x, x, 4, BLOCK=4), []))
    saved = interpreter.GridExecutor
    del interpreter.GridExecutor
    found["other triton"] = refusal(lambda: count_traffic(lambda: None, []))
    interpreter.GridExecutor = saved
    return found


def usable_afterwards():
    """Whether kernels run as ever after counting, also after a refusal."""
    x, y, z = torch.rand(100), torch.rand(100), torch.zeros(100)
    add[(4,)](x, y, z, 100, BLOCK=32)
    return bool(torch.equal(z, x + y))


out = {"sampled": {}, "exact": {}, "ops": {}, "planes": []}
with fake_tensors():
    for name, case in (LAUNCHES | BIG).items():
        forward = case(shapes)
        out["sampled"][name] = count_traffic(forward, [], Limits(programs=8))[0]
    told = launch(told_by_one, (256,), *shapes((1 << 18,), (1 << 18,), (16,)), 1 << 18, BLOCK=1024)
    out["told by one"] = [count_traffic(told, [], Limits(programs=each))[0] for each in (1, 8)]
    for n, *which in PLANES:
        parts = triton.cdiv(n, 256)
        forward = launch(planes, (300 * parts,), *shapes((900, n), (900, n)), n, *which, PARTS=parts, BLOCK=256)
        out["planes"].append(count_traffic(forward, [], Limits(programs=8))[0])
    out["again"] = count_traffic(LAUNCHES["ragged matmul"](shapes), [], Limits(programs=8))[0]
    for name, forward in ops().items():
        out["ops"][name] = count_traffic(forward, [])
    model, inputs = Block(), [torch.rand(8, 64)]
    out["block"] = count_traffic(model, inputs)
for name in EXACT:
    out["exact"][name] = count_traffic(LAUNCHES[name](lambda *s, **k: shapes(*s, like=torch.ones, **k)), [], exact=True)[0]
x = torch.rand(1000)
y = torch.zeros(4)
count_traffic(launch(atomic_sum, (4,), x, y, 1000, BLOCK=256), [], exact=True)
out["exact result"] = bool(torch.allclose(y.sum(), x.sum()))
out["refusals"] = refusals()
out["usable"] = usable_afterwards()
print("RECORDS" + json.dumps(out))
'''
)


@pytest.fixture(scope="module")
def counted(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Records of all cases."""
    script = tmp_path_factory.mktemp("traffic") / "cases.py"
    script.write_text(CASES)
    return dict(json.loads(interpreted(script).rpartition("RECORDS")[2]))


@pytest.mark.parametrize("at", range(len(PLANES)))
def test_programs_of_planes_are_counted_as_many_as_there_are_of_each(counted: dict[str, Any], at: int) -> None:
    """Seven, two, three and thirteen programs a plane. Where some planes in the middle are copied and no others, their
    programs do not stand for all."""
    n, first, last = PLANES[at]
    wanted = 4 * n * (last - first)
    assert counted["planes"][at]["unique_read"] == pytest.approx(wanted, rel=0.01 if last - first == 300 else 2.0)
    assert counted["planes"][at]["unique_read"] == counted["planes"][at]["unique_written"]


def whole_sectors(size: int) -> int:
    return -(-size // 32) * 32


# --- launches --------------------------------------------------------------------------------------------------------


def test_a_row_that_is_read_at_two_offsets_is_one_row(counted: dict[str, Any]) -> None:
    """512 programs of 8 rows of 128 floats, which are asked for twice; the shared window goes on to all of them."""
    record, size = counted["sampled"]["turned"], 4096 * 128 * 4
    assert (record["bytes_read"], record["unique_read"], record["program_read"]) == (2 * size, size, 8 * 128 * 4)
    assert record["window_read"]["512"] == size


def test_what_one_program_alone_writes_is_seen_though_it_is_not_sampled(counted: dict[str, Any]) -> None:
    """One program of 256 is run, from the middle; the first one stores 16 floats that no other knows of. Of eight the first
    is one, and some more are run up to the second, which does what all others do."""
    one, eight = counted["told by one"]
    assert (one["sampled"], eight["sampled"]) == (1, 13)
    assert dict(eight["writes"])[2] == 64
    for record in (one, eight):
        assert [number for number, _ in record["writes"]] == [1, 2]
    assert dict(one["writes"])[2] == 64 and one["unique_written"] == (1 << 20) + 64


def test_vector_add_with_a_masked_tail(counted: dict[str, Any]) -> None:
    """100,003 floats in blocks of 1024: 98 programs, the last one with 675 of them."""
    record = counted["sampled"]["add"]
    size = 100_003 * 4
    assert record["kernel"] == "add"
    assert (record["grid"], record["programs"]) == ([98, 1, 1], 98)
    assert (record["num_warps"], record["num_stages"]) == (8, 2)
    assert record["constexprs"] == {"BLOCK": 1024}
    assert (record["bytes_read"], record["bytes_written"]) == (2 * size, size)
    assert (record["unique_read"], record["unique_written"]) == (2 * size, size)
    assert (record["sector_read"], record["sector_written"]) == (2 * whole_sectors(size), whole_sectors(size))
    assert record["reads"] == [[0, size], [1, size]]
    assert record["writes"] == [[2, size]]
    assert record["flops"] == 98 * 1024  # masked lanes add too
    assert record["dot_flops"] == record["dots"] == record["atomics"] == 0
    assert record["rounds"] == 1  # the two loads wait together


def test_softmax_of_one_pass(counted: dict[str, Any]) -> None:
    """64 rows of 1000 in blocks of 1024: maximum, subtraction, exponential, sum, division of 1024 each."""
    record = counted["sampled"]["softmax"]
    assert record["bytes_read"] == record["unique_read"] == record["bytes_written"] == 64 * 4000
    assert record["program_read"] == 4000
    assert record["flops"] == 64 * 5 * 1024
    assert record["rounds"] == 1


def test_row_read_twice_is_requested_twice_and_counted_once(counted: dict[str, Any]) -> None:
    record = counted["sampled"]["long mean"]
    assert record["bytes_read"] == 2 * 32 * 4000
    assert record["unique_read"] == 32 * 4000
    assert record["program_read"] == 4000
    assert record["rounds"] == 8  # two loops of 4 blocks, one load each


def test_matmul(counted: dict[str, Any]) -> None:
    """256 x 128 x 96 in tiles of 64 x 32 x 32: 16 programs of 3 steps, each loading 64 x 32 and 32 x 32 floats."""
    record = counted["sampled"]["matmul"]
    assert record["programs"] == 16
    assert record["bytes_read"] == 16 * 3 * (64 * 32 + 32 * 32) * 4
    assert record["unique_read"] == (256 * 96 + 96 * 128) * 4
    assert record["bytes_written"] == record["unique_written"] == 256 * 128 * 4
    assert record["program_read"] == (64 + 32) * 96 * 4
    assert record["dot_flops"] == 2 * 256 * 128 * 96
    assert (record["dots"], record["dot_shape"]) == (3, [64, 32, 32])
    assert (record["dot_dtype"], record["dot_precision"]) == ("fp32", "tf32x3")
    assert record["rounds"] == 3


def test_matmul_of_halves(counted: dict[str, Any]) -> None:
    record = counted["sampled"]["half matmul"]
    assert (record["dot_dtype"], record["dot_precision"]) == ("fp16", "ieee")
    assert record["unique_read"] == (256 * 96 + 96 * 128) * 2


def test_program_order_decides_what_neighbours_share(counted: dict[str, Any]) -> None:
    """2048 cubed in tiles of 128: a stripe of A or B is 1 MiB. 16 neighbours touch 1 + 16 stripes in rows, 4 + 4 grouped."""
    stripe = 128 * 2048 * 4
    assert counted["sampled"]["rows first"]["window_read"]["16"] == 17 * stripe
    assert counted["sampled"]["grouped"]["window_read"]["16"] == 8 * stripe
    for name in ("rows first", "grouped"):
        assert counted["sampled"][name]["window_read"]["1"] == 2 * stripe
        assert counted["sampled"][name]["bytes_read"] == 256 * 2 * stripe


def test_scattered_reads_take_a_sector_each(counted: dict[str, Any]) -> None:
    record = counted["sampled"]["column"]
    assert record["bytes_read"] == 128 * 128 * 4
    assert record["sector_read"] == 128 * 128 * 32
    assert record["sector_written"] == record["bytes_written"] == 128 * 128 * 4


def test_atomics_read_and_write(counted: dict[str, Any]) -> None:
    record = counted["sampled"]["atomic sum"]
    assert record["atomics"] == 1000
    assert record["bytes_read"] == 1000 * 4 + 1000 * 4
    assert record["bytes_written"] == 1000 * 4
    assert record["writes"] == [[1, 16]]  # 4 floats, however often


def test_locks_loaded_trip_counts_and_custom_reductions_end(counted: dict[str, Any]) -> None:
    record = counted["sampled"]["oddities"]
    # The lock twice (exchange, look), the length, one step of 64 bfloat16.
    assert record["bytes_read"] == 4 + 4 + 4 + 64 * 2
    assert record["bytes_written"] == 4 + 64 * 4


def test_autotuned_kernel_takes_its_first_configuration(counted: dict[str, Any]) -> None:
    record = counted["sampled"]["tuned"]
    assert record["constexprs"] == {"BLOCK": 256, "EVEN": False}
    assert (record["num_warps"], record["num_stages"], record["programs"]) == (2, 5, 4)


def test_tensor_descriptors(counted: dict[str, Any]) -> None:
    """40 x 48 floats in blocks of 16 x 32: what hangs over the edges is not read."""
    record = counted["sampled"]["described"]
    assert record["bytes_read"] == record["bytes_written"] == 40 * 48 * 4
    assert record["flops"] == 6 * 16 * 32


def test_empty_grid_moves_nothing(counted: dict[str, Any]) -> None:
    record = counted["sampled"]["nothing"]
    assert record["programs"] == record["bytes_read"] == record["bytes_written"] == record["flops"] == 0


def test_counting_is_deterministic(counted: dict[str, Any]) -> None:
    first, again = counted["sampled"]["ragged matmul"], counted["again"]
    assert {k: v for k, v in first.items() if k not in ("reads", "writes")} == {
        k: v for k, v in again.items() if k not in ("reads", "writes")
    }


@pytest.mark.parametrize(
    "name", ["add", "softmax", "long mean", "matmul", "ragged matmul", "half matmul", "column", "atomic sum", "tuned"]
)
def test_samples_stand_for_the_whole_grid(counted: dict[str, Any], name: str) -> None:
    """At most 8 programs, and one at a border, without memory against all programs with real data."""
    sampled, exact = counted["sampled"][name], counted["exact"][name]
    assert sampled["sampled"] <= 9
    fields = ("bytes_read", "bytes_written", "unique_read", "unique_written", "sector_read", "sector_written")
    for field in (*fields, "flops", "dot_flops", "dots", "alu_ops", "rounds"):
        assert sampled[field] == pytest.approx(exact[field], rel=0.03), field


def test_exact_counting_computes_the_result(counted: dict[str, Any]) -> None:
    assert counted["exact result"]


def test_sampling_covers_a_small_grid_whole() -> None:
    indices = [index for index, _ in sample_programs((3, 2, 1), 12)]
    assert sorted(indices) == list(range(6))
    assert sample_weights((3, 2, 1), indices) == [1.0] * 6


def test_sampling_takes_first_last_and_middle() -> None:
    indices = [index for index, _ in sample_programs((1000, 1, 1), 5)]
    assert indices[1] == 999  # after the most typical one, the tail
    assert 0 in indices
    assert 300 < indices[0] < 700
    weights = sample_weights((1000, 1, 1), indices)
    assert weights[indices.index(999)] == 1.0
    assert sum(weights) == pytest.approx(1000)


def test_programs_in_a_row_stand_for_those_that_they_are_the_nearest_to() -> None:
    assert sample_weights((100, 1, 1), [50, 99, 0, 20]) == [100 - 1 - 35, 1.0, 10.0, 25.0]
    assert sample_weights((100, 1, 1), [50]) == [100.0]
    assert sample_weights((100, 1, 1), [99]) == [100.0]


@pytest.mark.parametrize(
    ("starts", "weights"),
    [([], [1000]), ([137], [137, 863]), ([1], [1, 999]), ([260, 999], [260, 739, 1]), ([137, 700], [137, 563, 300])],
)
def test_borders_between_programs_that_do_different_things_are_found(starts: list[int], weights: list[int]) -> None:
    """starts: of the second stretch on. What is counted of each is what the stretch has."""

    def stretch(index: int) -> int:
        return sum(index >= start for start in starts)

    indices = [index for index, _ in sample_programs((1000, 1, 1), 12)]
    for index in borders((1000, 1, 1), lambda a, b: stretch(a) == stretch(b), indices):
        indices.append(index)
    assert len(indices) <= 12 + 8 * len(starts)
    counted = [0.0] * (len(starts) + 1)
    for index, weight in zip(indices, sample_weights((1000, 1, 1), indices), strict=True):
        counted[stretch(index)] += weight
    assert counted == weights


def test_no_borders_are_looked_for_where_each_does_its_own_amount_or_along_several_axes() -> None:
    indices = [index for index, _ in sample_programs((1000, 1, 1), 12)]
    assert list(borders((1000, 1, 1), lambda a, b: False, indices)) == []
    assert list(borders((50, 20, 1), lambda a, b: a < 9 or b > 9, [0, 500, 10, 999])) == []


ENDS = "f" + "m" * 5 + "e"


@pytest.mark.parametrize(
    ("kinds", "length"),
    [
        (ENDS * 300, 7),  # the first, the middle and the last of each image
        ("ab" * 40, 2),
        (("a" * 31 + "b") * 64, 32),
        ("x" + ("ab" * 600)[1:-1] + "y", 2),  # the first and the last have something to do besides
        ("a" * 1000, 0),
        ("a" * 400 + "b" * 600, 0),  # two stretches
        ("a" * 450 + ENDS * 14 + "b" * 450, 0),  # a few in the middle are none of the others
        ("abcde" * 100, 5),
        ("".join(map(chr, range(1000, 1500))), 0),  # each does its own
        (("a" * 40 + "b") * 64, 0),  # longer than is looked for
    ],
)
def test_programs_that_come_in_turns_are_told_by_one_turn(kinds: str, length: int) -> None:
    sampled = {index: kinds[index] for index, _ in sample_programs((len(kinds), 1, 1), 12)}
    run = list[int]()

    def kind_of(index: int) -> str:
        run.append(index)
        return kinds[index]

    found = turn((len(kinds), 1, 1), sampled, kind_of)
    assert len(run) <= 35
    assert (0 if found is None else len(found)) == length
    if found is not None:
        indices = [*sampled, *(index for index in found if index not in sampled)]
        weights = turn_weights((len(kinds), 1, 1), found, indices)
        assert sum(weights) == pytest.approx(len(kinds))
        for kind in {*kinds}:
            counted = sum(weight for index, weight in zip(indices, weights, strict=True) if kinds[index] == kind)
            assert counted == pytest.approx(kinds.count(kind), abs=2)


def test_no_turns_are_looked_for_along_several_axes() -> None:
    assert turn((50, 20, 1), {500: "a", 10: "b", 13: "a"}, lambda index: "ab"[index % 2]) is None


@settings(max_examples=60, deadline=None)
@given(st.tuples(*[st.integers(1, 50)] * 3), st.integers(1, 16))
def test_sampled_programs_are_distinct_and_stand_for_all(size: tuple[int, int, int], count: int) -> None:
    indices = [index for index, _ in sample_programs(size, count)]
    assert 1 <= len(indices) <= count
    assert len(set(indices)) == len(indices)
    assert all(0 <= index < math.prod(size) for index in indices)
    assert sum(sample_weights(size, indices)) == pytest.approx(math.prod(size))


# --- torch ops -------------------------------------------------------------------------------------------------------

FLOATS = 128 * 256 * 4
"""Bytes of the matrices that the ops work on."""


def only(counted: dict[str, Any], name: str) -> dict[str, Any]:
    (record,) = counted["ops"][name]
    return dict(record)


def test_products(counted: dict[str, Any]) -> None:
    record = only(counted, "addmm")
    assert record["op"] == "aten.addmm"
    assert record["flops"] == record["dot_flops"] == 2 * 128 * 128 * 256
    assert (record["bytes_read"], record["bytes_written"]) == (2 * FLOATS + 128 * 4, 128 * 128 * 4)
    assert record["dims"] == [1, 128, 128, 256]
    assert (record["dtype"], record["kernels"], record["strided_read"]) == ("float32", 1, 0)
    assert only(counted, "bmm")["dims"] == [4, 64, 64, 32]


def test_elementwise_ops(counted: dict[str, Any]) -> None:
    record = only(counted, "gelu")
    assert (record["op"], record["bytes_read"], record["bytes_written"]) == ("aten.gelu", FLOATS, FLOATS)
    assert (record["flops"], record["elements"], record["dot_flops"]) == (128 * 256, 128 * 256, 0)
    assert only(counted, "same twice")["bytes_read"] == FLOATS
    assert only(counted, "expanded")["bytes_read"] == FLOATS + 256 * 4
    assert only(counted, "cast")["bytes_written"] == FLOATS // 2


def test_views_and_allocations_are_free(counted: dict[str, Any]) -> None:
    assert counted["ops"]["views"] == []
    assert counted["ops"]["allocation"] == []
    zeros = only(counted, "zeros")
    assert (zeros["bytes_read"], zeros["bytes_written"]) == (0, FLOATS)


def test_ops_that_write_their_input(counted: dict[str, Any]) -> None:
    added, copied = only(counted, "in place"), only(counted, "copy")
    assert (added["bytes_read"], added["bytes_written"]) == (2 * FLOATS, FLOATS)
    assert (copied["bytes_read"], copied["bytes_written"]) == (FLOATS, FLOATS)


def test_operand_across_the_rows_is_strided(counted: dict[str, Any]) -> None:
    assert only(counted, "transposed")["strided_read"] == 128 * 128 * 4
    assert only(counted, "expanded")["strided_read"] == 0


def test_normalizations_are_one_call(counted: dict[str, Any]) -> None:
    assert only(counted, "softmax")["dims"] == [128, 256, 1]
    assert only(counted, "column softmax")["dims"] == [256, 128, 256]
    assert only(counted, "layer norm")["kernels"] == 1
    norm = only(counted, "rms norm")
    assert (norm["op"], norm["bytes_read"], norm["bytes_written"]) == ("aten._fused_rms_norm", FLOATS + 1024, FLOATS)
    group = only(counted, "group norm")
    assert group["kernels"] == 3
    assert group["bytes_read"] == 2 * 2 * 8 * 256 * 4  # once for the moments, once to apply them


def test_attention_is_one_call(counted: dict[str, Any]) -> None:
    """2 x 4 heads, 64 x 64 scores of 32: two products."""
    assert only(counted, "attention")["dot_flops"] == 2 * (2 * 8 * 64 * 64 * 32)
    assert only(counted, "causal attention")["dot_flops"] == 2 * 8 * 64 * 64 * 32


def test_convolutions_as_products(counted: dict[str, Any]) -> None:
    record = only(counted, "convolution")
    assert record["dot_flops"] == 2 * (2 * 14 * 14) * 12 * (8 * 9)
    assert record["dims"] == [1, 2 * 14 * 14, 12, 8 * 9, 9]
    assert only(counted, "depthwise")["dims"] == [8, 2 * 14 * 14, 1, 9, 9]


def test_lookup_reads_what_it_is_asked_for(counted: dict[str, Any]) -> None:
    record = only(counted, "embedding")
    assert record["bytes_read"] == 10 * 16 * 4 + 10 * 8
    assert record["bytes_written"] == 10 * 16 * 4


def test_ops_of_several_kernels(counted: dict[str, Any]) -> None:
    compared, filled = counted["ops"]["masked fill"]
    assert (compared["op"], compared["bytes_written"]) == ("aten.gt", 128 * 256)
    assert filled["kernels"] == 2  # a copy, then a fill in place


def test_recurrent_layer_is_one_call_of_dependent_steps(counted: dict[str, Any]) -> None:
    *states, record = counted["ops"]["lstm"]
    assert [state["op"] for state in states] == ["aten.zeros", "aten.zeros"]
    assert record["op"] == "aten.lstm"
    assert record["dot_flops"] == 2 * (4 * 10) * (4 * 32) * (16 + 32)
    assert record["kernels"] == 10
    own = only(counted, "lstm as an op")
    assert all(own[key] == record[key] for key in record if key not in ("reads", "writes"))


def test_forward_of_ops_and_launches_in_order(counted: dict[str, Any]) -> None:
    """linear, gelu, a Triton kernel, relu in place: each reads the storage that the one before it wrote."""
    records = counted["block"]
    names = [record.get("op", record.get("kernel")) for record in records]
    assert names == ["aten.addmm", "aten.gelu", "add", "aten.relu_"]
    for before, after in itertools.pairwise(records):
        assert before["writes"][0][0] == after["reads"][0][0]
    assert records[2]["reads"] == [[records[1]["writes"][0][0], 8 * 32 * 4]]  # both operands are the same tensor


# --- refusals --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("endless", "UncountableError: program 0 of kernel endless runs too long"),
        ("host", "UncountableError: the forward reads a tensor's values on the host"),
        ("compiled", "EvaluatorError: kernel add was decorated without interpretation; set TRITON_INTERPRET=1"),
        ("other triton", "has no GridExecutor in its interpreter"),
        ("broken kernel", "TypeError"),
    ],
)
def test_what_cannot_be_counted_is_refused(counted: dict[str, Any], name: str, message: str) -> None:
    assert message in counted["refusals"][name]


def test_interpreter_is_left_as_it_was(counted: dict[str, Any]) -> None:
    assert counted["usable"]
