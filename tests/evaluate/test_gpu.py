"""The GPU evaluator on a GPU. These run where torch sees one; the conversation alone is tested in test_measure.py."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator

import pytest
import torch
from evaluate_sources import HONEST, TASK, changed

from mtmc.evaluate.gpu import GpuEvaluator, GpuSettings
from mtmc.evaluate.measure.cuda_backend import CudaBackend
from mtmc.evaluate.measure.flags import GATE, Flags
from mtmc.evaluate.measure.timing_validation import BEHIND_MS
from mtmc.hardware import hardware
from mtmc.optimizations import Version, legal_moves
from mtmc.outcome import Outcome
from mtmc.protocols import Depth, EvaluationRequest
from mtmc.rewrite.exported import export_graph
from mtmc.rewrite.plan import Plan, graph_of, root_plan
from mtmc.rewrite.source import print_plan, root_source
from mtmc.task import Task, task_from_source

OPENS_S = 20.0
"""Seconds after which a gate opens by itself, so that what waits for it ends."""

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


@pytest.fixture(scope="module")
def evaluator() -> Iterator[GpuEvaluator]:
    with GpuSettings(timeout_s=20.0, check_variants=1).open() as opened:
        yield opened


def found(evaluator: GpuEvaluator, source: str, depth: Depth = "screen") -> Outcome:
    [outcome] = evaluator.evaluate([EvaluationRequest(TASK, source, 0, depth)])
    return outcome


@pytest.mark.parametrize("depth", ["screen", "verify"])
def test_the_clocks_agree_on_an_honest_kernel(evaluator: GpuEvaluator, depth: Depth) -> None:
    outcome = found(evaluator, HONEST, depth)
    assert outcome.ok, outcome
    assert outcome.runtime_ms is not None and outcome.runtime_ms > 0
    assert abs(outcome.metrics["clock_ms"] - outcome.metrics["device_ms"]) < 0.02
    assert outcome.runtime_ms == outcome.metrics["call_ms"]
    assert 0 < outcome.metrics["roofline"] <= 1


def test_work_on_an_unjoined_stream_is_seen(evaluator: GpuEvaluator) -> None:
    source = changed(
        "        scaled_softmax[(x.shape[0],)](x, self.weight, out, x.shape[1], BLOCK=block)",
        "        with torch.cuda.stream(torch.cuda.Stream()):\n"
        "            scaled_softmax[(x.shape[0],)](x, self.weight, out, x.shape[1], BLOCK=block)",
    )
    assert not found(evaluator, source).ok


def test_memory_is_mapped_behind_a_closed_gate_and_each_time_elsewhere() -> None:
    """As for a candidate's outputs. If mapping waited for the device, nothing could be enqueued behind the gate."""
    backend, flags = CudaBackend(), Flags()
    backend.warm_up()
    backend.share(flags)
    fd, memory = backend.create(64 << 20)
    memory.zero_().add_(0)  # a kernel's first launch loads it, which waits for the device
    backend.synchronize()
    window, addresses = backend.window(os.dup(fd), memory.numel()), []
    for serial in range(1, 5):
        backend.wait(GATE, serial)
        opener = threading.Timer(
            OPENS_S, lambda serial=serial: flags.words.__setitem__(GATE, serial)
        )  # or it would hang
        opener.start()
        shown = window.show()
        shown.add_(1)
        assert int(flags.words[GATE]) < serial  # nobody has opened it: this came back while the stream waited
        opener.cancel()
        flags.words[GATE] = serial
        backend.synchronize()
        addresses.append(shown.data_ptr())
        del shown
        window.hide()
    assert len(set(addresses)) > 1 and bool((memory == 4).all())
    backend.release(fd)


def test_a_join_waits_for_other_streams_and_costs_little() -> None:
    backend = CudaBackend()
    backend.warm_up()
    torch.cuda.synchronize()
    beyond = []
    for work in (False, True):
        first = backend.mark()
        if work:
            with torch.cuda.stream(torch.cuda.Stream()):
                torch.cuda._sleep(2_000_000)
        backend.join()
        last = backend.mark()
        backend.synchronize()
        beyond.append(backend.beyond_ms(first, last))
    assert beyond[0] < BEHIND_MS < 0.2 < beyond[1]


RECURRENT = """
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.GRU(128, 256, 6)

    def forward(self, x):
        return self.net(x)[0]


def get_inputs():
    return [torch.rand(256, 10, 128)]


def get_init_inputs():
    return []
"""


def test_what_the_library_leaves_to_its_own_streams_is_no_work_left_behind(evaluator: GpuEvaluator) -> None:
    task = task_from_source(RECURRENT, "recurrent")
    [outcome] = evaluator.evaluate([EvaluationRequest(task, root_source(task))])
    assert outcome.ok, outcome


def test_an_illegal_address_is_a_crash_and_the_next_one_lives(evaluator: GpuEvaluator) -> None:
    source = changed(
        "tl.store(out_ptr + row * cols + index, value", "tl.store(out_ptr + row * cols + index + (1 << 40), value"
    )
    assert found(evaluator, source).status == "crash"
    assert found(evaluator, HONEST).ok


def test_an_endless_kernel_is_stopped_and_the_next_one_lives(evaluator: GpuEvaluator) -> None:
    # The atomic keeps the compiler from leaving the loop out.
    spinning = "turn = 0\n    while turn >= 0:\n        turn = (turn + 1) % 1000\n        tl.atomic_add(out_ptr, 0.0)\n"
    spinning += "    tl.store(out_ptr"
    assert found(evaluator, changed("tl.store(out_ptr", spinning)).status == "timeout"
    assert found(evaluator, HONEST).ok


def test_no_memory_stays_behind(evaluator: GpuEvaluator) -> None:
    found(evaluator, HONEST)
    before = torch.cuda.mem_get_info()[0]
    for _ in range(5):
        found(evaluator, HONEST)
    assert torch.cuda.mem_get_info()[0] > before - (1 << 30)


MUTATING = """
import torch
from torch import nn

rows, cols = 512, 384
VARIANTS = {"small": {"rows": 6, "cols": 20}, "odd1": {"rows": 5, "cols": 33}}


class Model(nn.Module):
    def __init__(self, cols):
        super().__init__()
        INIT

    def forward(self, ARGUMENTS):
        FORWARD


def get_inputs():
    return [INPUTS]


def get_init_inputs():
    return [cols]
"""
X = "torch.randn(rows, cols)"
KEEPING = {
    "ema": (
        "self.ema.mul_(0.9).add_(x.mean(0), alpha=0.1); return torch.relu(x - self.ema)",
        'self.register_buffer("ema", torch.zeros(cols))',
        "x",
        X,
    ),
    "batch_norm": ("return torch.relu(self.norm(x)) + 1", "self.norm = nn.BatchNorm1d(cols)", "x", X),
    "position": (
        "self.at += 1; self.cache.index_copy_(0, self.at, x.mean(0, True)); return torch.relu(x) + self.cache.sum(0)",
        'self.register_buffer("at", torch.zeros(1, dtype=torch.int64)); '
        'self.register_buffer("cache", torch.zeros(8, cols))',  # a call too many from one state would be out of bounds
        "x",
        X,
    ),
    "argument": (
        "cache.index_copy_(0, at, x); return torch.relu(cache) @ x.t()",
        "pass",
        "x, cache, at",
        "torch.randn(2, cols), torch.randn(rows, cols), torch.randint(0, 2, (1,)) + torch.arange(2)",
    ),
    "deep": (
        "for _ in range(6):; x = torch.tanh(self.norm(x) * 2); return x".replace("; x =", ";     x ="),
        "self.norm = nn.BatchNorm1d(cols)",
        "x",
        X,
    ),
    "rebound": (
        "self.h = torch.tanh(x + self.h); return self.h * 2",
        'self.register_buffer("h", torch.zeros(rows, cols))',
        "x",
        X,
    ),
}


def keeping(name: str) -> Task:
    words = dict(zip(("FORWARD", "INIT", "ARGUMENTS", "INPUTS"), KEEPING[name], strict=True))
    text = MUTATING
    for word, part in words.items():
        text = text.replace(word, part.replace("; ", "\n        "))
    return task_from_source(text, name)


def made(task: Task, kinds: tuple[str, ...]) -> str:
    """The text after every legal action of these kinds."""
    plan: Plan = root_plan(export_graph(task))
    for kind in kinds:
        for _ in range(20):
            moves = [m for m in legal_moves(Version.of(task, plan, hardware("H100"))) if m.action.kind == kind]
            if not moves or moves[0].child is None:
                break
            plan = moves[0].child
    assert plan.cuda_graph or "cuda_graph" not in kinds
    return print_plan(task, graph_of(export_graph(task), plan), plan).source


@pytest.mark.parametrize("depth", ["screen", "verify"])
@pytest.mark.parametrize("name", KEEPING)
def test_versions_that_leave_behind_what_the_reference_does_are_timed(
    evaluator: GpuEvaluator, name: str, depth: Depth
) -> None:
    task = keeping(name)
    for source in (root_source(task), made(task, ()), made(task, ("lower", "fuse"))):
        [outcome] = evaluator.evaluate([EvaluationRequest(task, source, 0, depth)])
        assert outcome.ok, outcome
        assert outcome.metrics.get("eager_ms", 1.0) > 0


def test_a_cuda_graph_changes_a_buffer_once_a_call(evaluator: GpuEvaluator) -> None:
    task = keeping("deep")
    source = made(task, ("cuda_graph",))
    [outcome] = evaluator.evaluate([EvaluationRequest(task, source, 0, "verify")])
    assert outcome.ok, outcome
    twice = source.replace("x.copy_(before)", "x.copy_(x)")
    assert twice != source
    [outcome] = evaluator.evaluate([EvaluationRequest(task, twice, 0, "screen")])
    assert outcome.diagnosis is not None and "buffer 'norm." in outcome.diagnosis.message, outcome


@pytest.mark.parametrize("name", ["ema", "batch_norm", "argument"])
def test_a_version_that_loses_what_the_reference_keeps_is_wrong(evaluator: GpuEvaluator, name: str) -> None:
    task = keeping(name)
    source = made(task, ("lower", "fuse"))
    lines = [line for line in source.splitlines() if "copy_(" not in line or "index_copy_" in line]
    lost = "\n".join(lines).replace("cache.index_copy_(0, at, x)", "cache = cache.index_copy(0, at, x)")
    assert lost != source.rstrip("\n")
    [outcome] = evaluator.evaluate([EvaluationRequest(task, lost, 0, "screen")])
    assert outcome.status == "wrong_result", outcome
    assert outcome.diagnosis is not None and "after the call (the reference changes it)" in outcome.diagnosis.message


def test_what_is_lost_only_when_calls_are_timed_is_seen(evaluator: GpuEvaluator) -> None:
    task = keeping("ema")
    source = made(task, ("lower", "fuse"))
    assert "        self.ema.copy_(add)\n" in source
    lazy = source.replace(
        "        self.ema.copy_(add)\n", "        if x.shape[0] < 100:\n            self.ema.copy_(add)\n"
    )
    [outcome] = evaluator.evaluate([EvaluationRequest(task, lazy, 0, "screen")])
    assert outcome.status == "wrong_result" and outcome.diagnosis is not None, outcome
    assert "buffer 'ema' after the call" in outcome.diagnosis.message and "full shapes" in outcome.diagnosis.message
