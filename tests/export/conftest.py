"""Runs made by hand for the tests of the dumps. The sources are plausible Triton, but nothing here executes them."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence

import pytest

from mtmc.action import STOP, Action, Region
from mtmc.export import RunRecord
from mtmc.outcome import Cost, Diagnosis, Outcome
from mtmc.tree import NO_PARENT, KernelNode, Tree

REFERENCE = '''"""softmax of gelu: the reference."""
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.linear = nn.Linear(features, features)

    def forward(self, x):
        y = self.linear(x)
        y = torch.nn.functional.gelu(y, approximate="tanh")
        return torch.softmax(y, dim=-1)
'''

LOWERED = '''"""softmax of gelu: one Triton kernel for the gelu, torch for the rest."""
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def gelu_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask, other=0.0).to(tl.float32)
    # tanh(u) = 2 * sigmoid(2u) - 1, so the tanh form of gelu is x * sigmoid(2u)
    u = 0.7978845608028654 * (x + 0.044715 * x * x * x)
    tl.store(out_ptr + offsets, x * tl.sigmoid(2.0 * u), mask=mask)


def gelu(x):
    x = x.contiguous()
    out = torch.empty_like(x)
    n = x.numel()
    gelu_kernel[(triton.cdiv(n, 1024),)](x, out, n, BLOCK=1024, num_warps=4)
    return out


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.linear = nn.Linear(features, features)

    def forward(self, x):
        return torch.softmax(gelu(self.linear(x)), dim=-1)
'''

FUSED = '''"""softmax of gelu: gelu and softmax in one pass over each row."""
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def gelu_softmax_kernel(x_ptr, out_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    offsets = tl.arange(0, BLOCK)
    mask = offsets < columns
    x = tl.load(x_ptr + row * columns + offsets, mask=mask, other=0.0).to(tl.float32)
    # tanh(u) = 2 * sigmoid(2u) - 1, so the tanh form of gelu is x * sigmoid(2u)
    u = 0.7978845608028654 * (x + 0.044715 * x * x * x)
    y = tl.where(mask, x * tl.sigmoid(2.0 * u), float("-inf"))
    y = tl.exp(y - tl.max(y, axis=0))
    tl.store(out_ptr + row * columns + offsets, y / tl.sum(y, axis=0), mask=mask)


def gelu_softmax(x):
    x = x.contiguous()
    out = torch.empty_like(x)
    rows, columns = x.reshape(-1, x.shape[-1]).shape
    block = triton.next_power_of_2(columns)
    gelu_softmax_kernel[(rows,)](x, out, columns, BLOCK=block, num_warps=4)
    return out


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.linear = nn.Linear(features, features)

    def forward(self, x):
        return gelu_softmax(self.linear(x))
'''

REGIONS = {"linear": (12, 12), "gelu": (13, 13), "softmax": (14, 14), "gelu_softmax": (8, 19)}


def make_action(kind: str, name: str, **params: int | str | float | bool) -> Action:
    first, last = REGIONS.get(name, (1, 1))
    told = ", ".join(f"{key}={value}" for key, value in sorted(params.items()))
    sentence = f"{kind} {name}, lines {first}-{last}" + (f", with {told}" if told else "")
    return Action(kind, Region(name, first, last), tuple(sorted(params.items())), sentence)


LOWER_GELU = make_action("lower", "gelu", block=1024)
LOWER_SOFTMAX = make_action("lower", "softmax", block=4096)
FUSE = make_action("fuse", "gelu_softmax")
WARPS_8 = make_action("vectorize", "gelu_softmax", num_warps=8)
WARPS_16 = make_action("vectorize", "gelu_softmax", num_warps=16)
PIPELINE = make_action("pipeline", "gelu_softmax", num_stages=3)
TILE = make_action("tile", "gelu_softmax", block=8192)
SPLIT = make_action("split", "gelu_softmax", parts=4)
PRECISION = make_action("precision", "linear", mode="tf32x3")


def good(ms: float, kernels: int, mebibytes: float, **more: float) -> Outcome:
    metrics = {"kernels": kernels, "bytes_moved": mebibytes * 2**20, "bytes_min": 64.0 * 2**20, "flops": 8.6e9}
    return Outcome("ok", ms, runtime_kind="estimated", metrics={**metrics, **more})


def bad(status: str, stage: str, kind: str, message: str, line: int | None = None, excerpt: str = "") -> Outcome:
    return Outcome(status, diagnosis=Diagnosis(stage, kind, message, line, excerpt))  # type: ignore[arg-type]


BAD_MASK = bad(
    "build_error", "build", "CompilationError", "NameError('maks is not defined')", 12,
    "  11 |     mask = offsets < columns\n> 12 |     x = tl.load(x_ptr + offsets, mask=maks)\n",
)  # fmt: skip
WRONG = bad("wrong_result", "check", "Mismatch", "max absolute error 0.031 at [0, 17], allowed 0.0001")
TOO_BIG = bad("build_error", "build", "OutOfResources", "shared memory: needs 294912 bytes, the target has 232448")
HUNG = bad(
    "timeout", "check", "Timeout", "no result after 20 s; the worker was ended", None, "\x1b[31mstill running\x1b[0m"
)


def build_record() -> RunRecord:
    """Eleven versions: root, two lowerings, a fusion and what follows, with four kinds of failure; best is node 7."""
    tree = Tree("softmax_gelu")
    made: list[tuple[int, Action | None, str, Outcome]] = [
        (NO_PARENT, None, REFERENCE, good(1.92, 3, 384.0)),
        (0, LOWER_GELU, LOWERED, good(1.84, 3, 384.0, registers=32, spills=0, occupancy=0.75, roofline=0.62)),
        (0, LOWER_SOFTMAX, LOWERED.replace("gelu_kernel", "softmax_kernel"), WRONG),
        (1, FUSE, FUSED.replace("mask=mask, other=0.0", "mask=maks"), BAD_MASK),
        (1, FUSE, FUSED, good(0.91, 2, 192.0, registers=48, spills=0, occupancy=0.5, roofline=0.71)),
        (4, WARPS_16, FUSED.replace("num_warps=4", "num_warps=16"), good(1.2, 2, 192.0, registers=24, roofline=0.5)),
        (4, TILE, FUSED.replace("block = ", "block = 2 * "), TOO_BIG),
        (4, WARPS_8, FUSED.replace("num_warps=4", "num_warps=8"), good(0.6, 2, 192.0, registers=40, roofline=0.93)),
        (7, PIPELINE, FUSED.replace("num_warps=4", "num_warps=8, num_stages=3"), good(0.6, 2, 192.0)),
        (7, SPLIT, FUSED.replace("(rows,)", "(rows, 4)").replace("num_warps=4", "num_warps=8"), HUNG),
        (0, PRECISION, REFERENCE.replace("y = self.linear(x)", "y = self.linear(x)  # tf32x3"), good(2.4, 3, 384.0)),
    ]
    for node_id, (parent, action, source, outcome) in enumerate(made):
        cost = Cost(seconds=0.25 * node_id, usd=0.001 * node_id, tokens_in=900 * (node_id > 0), tokens_out=400, calls=1)
        plan = None if node_id == 2 else f'{{"stages": {node_id}}}'
        repairs = 1 if node_id == 4 else 0
        tree.add(KernelNode(node_id, parent, action, source, plan, outcome, node_id - 1, repairs, cost))
    notes = {node.id: {"visits": 10.0 - node.id, "value": 0.125 * node.id, "prior": 1 / (1 + node.id)} for node in tree}
    legal = {
        0: ((LOWER_GELU, 0.5), (LOWER_SOFTMAX, 0.25), (PRECISION, 0.125), (STOP, 0.125)),
        1: ((FUSE, 0.75), (STOP, 0.25)),
        4: ((WARPS_8, 0.4), (WARPS_16, 0.3), (TILE, 0.2), (STOP, 0.1)),
        7: ((PIPELINE, 0.5), (SPLIT, 0.25), (STOP, 0.25)),
    }
    settings = {
        "task": "softmax_gelu",
        "seed": 7,
        "strategy": {"name": "mcts", "c": 1.4},
        "hardware": "H100",
        "budget": {"evaluations": 16, "seconds": None},
        "targets": ["sm_80", "sm_90"],
    }
    return RunRecord(tree, notes, legal, settings, evaluations=tuple(range(1, len(tree))))


KINDS = ("lower", "fuse", "tile", "reorder", "pipeline", "vectorize", "split", "precision")


def build_big_record(count: int, seed: int = 0) -> RunRecord:
    """A random tree of `count` versions with one failure in four, legal actions and notes everywhere."""
    rng = random.Random(seed)
    tree = Tree(f"random_{count}")
    tree.add(KernelNode(0, NO_PARENT, None, REFERENCE, None, good(8.0, 4, 512.0)))
    alive, legal, notes = [0], {}, {0: {"visits": float(count), "value": 0.0}}
    for node_id in range(1, count):
        parent = rng.choice(alive[-40:] + alive[:10])
        params = {"block": 2 ** rng.randint(5, 13), "num_warps": 2 ** rng.randint(0, 4)}
        action = make_action(rng.choice(KINDS), rng.choice(list(REGIONS)), **params)
        source = FUSED.replace("num_warps=4", f"num_warps={params['num_warps']}, num_stages={node_id}")
        ms = (tree[parent].outcome.runtime_ms or 8.0) * rng.uniform(0.8, 1.15)
        outcome = good(ms, rng.randint(1, 4), rng.uniform(64, 512), registers=rng.randint(16, 255))
        if rng.random() < 0.25:
            outcome = rng.choice((BAD_MASK, WRONG, TOO_BIG, HUNG))
        tree.add(KernelNode(node_id, parent, action, source, None, outcome, node_id - 1))
        if outcome.ok:
            alive.append(node_id)
        legal[node_id] = tuple((make_action(kind, "gelu_softmax"), 0.125) for kind in KINDS)
        notes[node_id] = {"visits": float(rng.randint(1, 30)), "value": rng.uniform(-1, 2), "prior": rng.random()}
    settings = {"seed": seed, "strategy": "mcts", "hardware": "H100", "budget": {"evaluations": count}}
    return RunRecord(tree, notes, legal, settings, tuple(range(1, count)))


def build_chain(gains: Sequence[float | None], settings: Mapping[str, object], task: str = "toy") -> RunRecord:
    """A chain without side branches: one version per gain, which is its speedup over the root; None fails."""
    tree = Tree(task)
    tree.add(KernelNode(0, NO_PARENT, None, "root", None, Outcome("ok", 1.0, runtime_kind="estimated")))
    last = 0
    for node_id, gain in enumerate(gains, start=1):
        outcome = WRONG if gain is None else Outcome("ok", 1.0 / gain, runtime_kind="estimated")
        tree.add(
            KernelNode(node_id, last, make_action("tile", f"r{node_id}"), f"v{node_id}", None, outcome, node_id - 1)
        )
        last = last if gain is None else node_id
    return RunRecord(tree, settings=settings, evaluations=tuple(range(1, len(tree))))


def build_hostile() -> RunRecord:
    """A run whose every text tries to break out of the format it is written in."""
    evil = '</script><script>document.title="PWNED"</script><!-- <img src=x onerror=alert(1)>'
    evil += ' "q" \\ {{script}} `x` | [a](b)'
    raw = evil + " \x1b[31m \x00 \u2028 \ud800"
    tree = Tree(evil)
    timed = Outcome("ok", 2.0, 1.9, 2.1, 50, "measured", {evil: 1.0, "error": float("nan")})
    tree.add(KernelNode(0, NO_PARENT, None, f"# {evil}\r\nx = 1\r\n", None, timed))
    action = Action("fu</script>se", Region(evil, 1, 2), (("p", evil),), raw)
    tree.add(KernelNode(1, 0, action, f"# {evil}\ny = 2\n", None, Outcome("ok", 1.0, runtime_kind="estimated"), 0))
    crash = Outcome("crash", diagnosis=Diagnosis("check", raw, raw, 1, raw))
    tree.add(KernelNode(2, 0, action, "y = 3", None, crash, 1))
    legal = {0: ((action, 0.5), (STOP, 0.5))}
    return RunRecord(tree, {1: {"visits": 3.0, evil: 2.0}}, legal, {"a": {evil: evil}}, (1, 2))


@pytest.fixture
def record() -> RunRecord:
    return build_record()


@pytest.fixture
def hostile() -> RunRecord:
    return build_hostile()


@pytest.fixture
def big_record() -> Callable[[int], RunRecord]:
    return build_big_record


@pytest.fixture
def chain() -> Callable[..., RunRecord]:
    return build_chain
