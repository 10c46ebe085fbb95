"""What limits a version and what an action may pay, by hand; and that each agent is told of it."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from mtmc.agents.coders.agent.prompt import first_messages
from mtmc.agents.coders.editing.prompt import edit_messages
from mtmc.agents.coders.rewriter import Rewriter
from mtmc.agents.facts.bounds import bounds, product_peak
from mtmc.agents.facts.gains import Change, change_of, gain, stage_bytes
from mtmc.agents.facts.text import action_text, amount, task_dtype, version_text
from mtmc.agents.policies.ranking import ranking_messages
from mtmc.hardware import HARDWARE
from mtmc.optimizations import KINDS
from mtmc.outcome import Diagnosis, Outcome
from mtmc.protocols import Observation, RunFacts
from mtmc.rewrite.exported import export_graph
from mtmc.rewrite.plan import root_plan
from mtmc.task import load_task
from tests.agents.versions import edit_request

GPU = replace(HARDWARE["H100"], dram_gbs=1000.0, launch_us=5.0, fp32_tflops=50.0, tf32_tflops=300.0, fp16_tflops=800.0)
"""Round figures: 1 MB takes 1 us; fp32 products as three of TF32 have 100 TFLOP/s."""


def measured(runtime_ms: float, **metrics: float) -> Outcome:
    return Outcome("ok", runtime_ms, runtime_kind="measured", metrics=metrics)


def test_a_stream_is_limited_by_memory() -> None:
    found = bounds(measured(1.0, bytes_moved=8e8, bytes_min=4e8, kernels=2, roofline=0.4), GPU, "float32")
    assert found is not None and found.limit == "memory"
    memory, launches = found.roofs
    assert (memory.ms, memory.share) == (pytest.approx(0.8), pytest.approx(0.8))
    assert (launches.name, launches.ms) == ("launches", pytest.approx(0.01))
    assert found.floor_ms == pytest.approx(0.4)


def test_what_reaches_dram_counts_where_it_is_known() -> None:
    found = bounds(measured(1.0, bytes_moved=8e8, bytes_dram=7e8), GPU, None)
    assert found is not None and found.roofs[0].amount == 7e8


def test_products_have_the_peak_of_what_computes_them() -> None:
    assert product_peak("float32", GPU) == (100.0, "fp32 products as three of TF32")
    assert product_peak("float32", replace(GPU, target="gfx942")) == (50.0, "fp32 products")
    assert product_peak("bfloat16", GPU)[0] == 800.0 and product_peak("float64", GPU)[0] == 25.0
    [roof] = bounds(measured(1.0, dot_flops=8e10), GPU, "float32").roofs  # type: ignore[union-attr]
    assert (roof.name, roof.ms, roof.share) == ("products", pytest.approx(0.8), pytest.approx(0.8))
    [roof] = bounds(measured(0.5, dot_flops=8e10), GPU, "float32").roofs  # type: ignore[union-attr]
    assert roof.unit == "TF32 products" and roof.ms == pytest.approx(8e10 / 300 / 1e9), "faster than exact ones can be"
    assert bounds(measured(1.0, dot_flops=8e10), GPU, None).roofs == ()  # type: ignore[union-attr]


def test_plain_products_of_fp32_are_at_their_own_roof() -> None:
    found = bounds(measured(1.0, dot_flops=4e10), GPU, "float32")
    assert (
        found is not None and found.roofs[0].share == pytest.approx(0.4) and found.roofs[0].plain == pytest.approx(0.8)
    )
    assert found.limit == "products"


@pytest.mark.parametrize(
    ("runtime_ms", "metrics", "limit"),
    [
        (0.1, {"bytes_moved": 1e6, "kernels": 12}, "launches"),  # 12 launches of 5 us
        (0.1, {"bytes_moved": 1e6, "kernels": 7}, "launches"),  # a third is still the most that can be saved
        (0.2, {"device_ms": 0.05, "call_ms": 0.2, "host_ms": 0.19, "bytes_moved": 4e7, "kernels": 3}, "host"),
        (1.0, {"bytes_moved": 1e8, "spills": 64, "programs": 4000}, "registers"),
        (1.0, {"bytes_moved": 1e8, "spills": 0, "programs": 8}, "latency"),
        (1.0, {"bytes_moved": 1e8, "programs": 4000, "occupancy": 0.1}, "latency"),
        (1.0, {"bytes_moved": 4e8, "programs": 4000, "occupancy": 0.9}, "memory"),
        (1.0, {}, "unknown"),
    ],
)
def test_what_else_limits_a_version(runtime_ms: float, metrics: dict[str, float], limit: str) -> None:
    found = bounds(measured(runtime_ms, **metrics), GPU, "float32")
    assert found is not None and found.limit == limit


def test_a_cuda_graph_that_waits_for_no_host_is_not_limited_by_it() -> None:
    """Of such a task the runtime is the device's alone."""
    found = bounds(measured(0.05, device_ms=0.05, call_ms=0.2, bytes_moved=4e7), GPU, "float32")
    assert found is not None and found.limit == "memory"


def test_of_a_version_that_fails_nothing_is_known() -> None:
    assert bounds(Outcome("crash"), GPU, "float32") is None
    failed = Outcome("crash", diagnosis=Diagnosis("check", "SIGSEGV", "it ended"))
    task = edit_request().task
    assert version_text(failed, "H100", task, RunFacts()) == "It fails (crash: SIGSEGV in check)."
    assert action_text(edit_request(outcome=failed), edit_request().action) == ""


def test_kernels_of_a_profile_have_roofs_of_their_own() -> None:
    profile = {"kernel/mm/ms": 0.7, "kernel/mm/dot_flops": 6e10, "kernel/add/ms": 0.2, "kernel/add/bytes_dram": 1.6e8}
    found = bounds(measured(1.0, **profile), GPU, "float32")
    assert found is not None and [(each.name, each.limit) for each in found.kernels] == [
        ("mm", "products"),
        ("add", "memory"),
    ]
    assert found.kernels[1].roofs[0].share == pytest.approx(0.8)


# What an action may pay.

LIMITED = {"bytes_moved": 8e8, "kernels": 4, "roofline": 0.2}


def best_ms(kind: str, outcome: Outcome, change: Change | None = None) -> float:
    request = edit_request()
    found = bounds(outcome, GPU, "float32")
    assert found is not None
    bound = gain(replace(request.action, kind=kind), found, outcome.metrics, GPU, change)
    assert bound is not None and bound.times == pytest.approx(found.runtime_ms / bound.best_ms)
    return bound.best_ms


def test_a_fusion_saves_launches_and_bytes() -> None:
    outcome = measured(1.0, **LIMITED)
    assert best_ms("fuse", outcome, Change(1, int(2e8))) == pytest.approx(1.0 - 0.005 - 0.25), "a quarter of the bytes"
    assert best_ms("fuse", outcome, Change(3, int(8e8))) == pytest.approx(0.2), "and never goes below the floor"
    assert best_ms("fuse", outcome) == pytest.approx(0.2), "nobody knows what it leaves out"
    assert best_ms("fuse", outcome, Change(0, -int(1e8))) == pytest.approx(1.0)


def test_a_fusion_saves_the_host_its_launches_too() -> None:
    outcome = measured(0.4, device_ms=0.1, call_ms=0.4, host_ms=0.4, bytes_moved=1e6, kernels=4)
    assert best_ms("fuse", outcome, Change(2, 0)) == pytest.approx(0.4 - 2 * (0.005 + 0.075))


def test_an_action_for_the_host_can_bring_a_call_to_the_device_time() -> None:
    outcome = measured(0.4, device_ms=0.1, call_ms=0.4, host_ms=0.4, bytes_moved=1e6, kernels=4)
    assert best_ms("direct_launch", outcome) == pytest.approx(0.1)
    estimated = Outcome("ok", 0.4, runtime_kind="estimated", metrics={"kernels": 4, "bytes_moved": 1e6})
    assert best_ms("cuda_graph", estimated) == pytest.approx(0.4 - 3 * 0.005)


def test_a_schedule_can_bring_a_version_to_its_highest_roof() -> None:
    assert best_ms("tile", measured(1.0, **LIMITED)) == pytest.approx(0.8)
    assert best_ms("freeform", measured(1.0, **LIMITED)) == pytest.approx(0.2)


def test_less_arithmetic_goes_below_the_floor_of_the_reference() -> None:
    outcome = measured(1.0, dot_flops=9e10, bytes_min=1e8, bytes_moved=1e8, kernels=1, roofline=0.9)
    assert best_ms("algebra", outcome) == pytest.approx(0.1)


def test_every_kind_says_which_metrics_it_changes() -> None:
    known = {"kernels", "bytes_moved", "flops", "device_ms", "host_ms", "call_ms"}
    known |= {"programs", "registers", "shared_memory", "occupancy"}
    for kind in KINDS.values():
        assert set(kind.changes) <= known and bool(kind.changes) == (kind.kind != "stop"), kind.kind


def test_what_a_fusion_leaves_out_is_in_the_plans() -> None:
    task = load_task("softmax_gelu")
    root = Rewriter().root(task)
    graph = export_graph(task)
    [result] = graph.results()
    each = math.prod(size[0] for size in graph.values[result].shape) * 4
    assert root.plan is not None
    assert [stage_bytes(graph, stage) for stage in root_plan(graph).stages] == [2 * each, 2 * each]
    seen = Observation(task, root.source, root.plan, measured(1.0), (), "H100")
    actions = {action.kind: action for action in Rewriter().actions(seen, [])}
    assert change_of(seen, actions["fuse"]) == Change(1, 2 * each)
    assert change_of(seen, actions["lower"]) == Change(0, 0)
    assert change_of(seen, actions["stop"]) is None
    for plan in (None, "", "a plan of another coder", '{"stages": 1}', "[1]"):
        assert change_of(replace(seen, plan=plan), actions["fuse"]) is None
    moved = replace(seen, outcome=measured(1.0, kernels=2, bytes_moved=4.0 * each))
    assert action_text(moved, actions["fuse"]) == (
        f"It should change kernels (2 to 1 launches) and bytes_moved ({amount(4 * each)}B, {amount(2 * each)}B less). "
        "At best a call then takes 0.497 ms instead of 1 ms, 2.01x by the roofs."
    )


# What is told.

RUN = RunFacts(
    {"eager": measured(0.9), "torch.compile": measured(0.25)}, {"torch": "2.11.0", "triton": "3.6.0", "python": "3.12"}
)
PARENT = measured(
    0.5, device_ms=0.5, host_ms=0.03, call_ms=0.5, bytes_moved=1e9, bytes_min=5e8, kernels=3, roofline=0.3, registers=255,
    spills=16, shared_memory=65536, occupancy=0.5, programs=264, check_s=12.5,
)  # fmt: skip
TOLD = (
    "0.5 ms a call, measured (device 0.5 ms, host 30 us) (H100, torch 2.11.0, triton 3.6.0).",
    "Its limit is registers: threads spill to local memory.",
    "- memory: 1 GB at 3,350 GB/s take 0.299 ms at least, 60% of the device time",
    "- launches: 3 launches at 3.5 us take 10.5 us, 2% of the device time",
    "255 registers a thread, 16 bytes spilled, 64 of 227 KiB of shared memory a program",
    "50% of the threads that a multiprocessor can hold, 264 programs for 132 multiprocessors",
    "- the task's inputs, outputs and products alone take 0.15 ms: 3.33 times faster than this",
    "- torch.compile takes 0.25 ms (measured), 0.5 times what this version takes",
)


def test_each_agent_is_told_what_limits_a_version() -> None:
    request = edit_request(outcome=PARENT, run=RUN)
    seen = Observation(request.task, request.source, None, PARENT, (), request.hardware, run=RUN)
    for messages in (
        edit_messages(request),
        first_messages(request, 16, 60_000),
        ranking_messages(seen, [request.action], 2, 4),
    ):
        text = messages[1].content
        for words in TOLD:
            assert words in text, words
        assert "12.5" not in text and "check_s" not in text, "a replay needs the same question again"
    assert "1. fuse relu and mul, lines 8-9 (at most 3.33x)" in text


def test_amounts_have_prefixes() -> None:
    assert [amount(each) for each in (0, 999, 1000, 1.0737e9, 3.4e13, 2e16)] == [
        *("0 ", "999 ", "1 k", "1.07 G", "34 T", "2e+04 T"),
    ]


def test_the_dtype_of_a_task_is_that_of_most_of_its_numbers() -> None:
    task = load_task("linear_gelu")
    assert task_dtype(task) == "float32"
    assert task_dtype(replace(task, source="import torch\nraise ValueError\n")) is None
