"""Attention in Gluon: right on a CPU by `gluon_on_cpu`, compiled for Hopper, legal where a GPU evaluates and nowhere else.

What `gluon_on_cpu` cannot see is for the compiler (layouts, registers) and for tests/evaluate/test_gluon_on_gpu.py.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType

import pytest
import torch

from mtmc.errors import CoderError
from mtmc.evaluate.loading.fake import FakeMode
from mtmc.hardware import hardware
from mtmc.optimizations import Version, legal_moves
from mtmc.optimizations.version import CallTimes
from mtmc.rewrite.body import NotCovered
from mtmc.rewrite.plan import merged_ops, plan_from_json
from mtmc.rewrite.source import print_plan
from mtmc.rewrite.templates import gluon_programs
from mtmc.rewrite.templates.gluon_text import in_gluon
from mtmc.task import Task, task_from_source
from tests.breadth import share
from tests.rewrite import gluon_on_cpu
from tests.rewrite.gluon_cases import (
    BIASED,
    CALL,
    CAPPED,
    CASES,
    CAUSAL,
    FULL,
    GLUON,
    GROUPED,
    REFERENCE,
    WINDOW,
    inputs_of,
    kernel_of,
    printed,
    task_of,
)  # fmt: skip
from tests.rewrite.gluon_on_cpu import module_on_cpu

TIMES = CallTimes(1.0, 1.0)


def error_of(task: Task, source: str, inputs: list[torch.Tensor]) -> tuple[float, float]:
    """Norm-wise error of a version and of torch's own in 16 bits, against float64."""
    reference = ModuleType("reference")
    exec(task.source, vars(reference))
    exact = reference.Model()(*(each.double() for each in inputs))
    found = [model(*inputs).double() for model in (module_on_cpu(source).ModelNew(), reference.Model())]
    return tuple(float((each - exact).norm() / exact.norm()) for each in found)  # type: ignore[return-value]


@pytest.mark.parametrize("name", share(list(CASES), 3))
def test_as_exact_as_torch_in_16_bits(name: str) -> None:
    work, sizes, settings = CASES[name]
    task = task_of(work, sizes, dtype="half" if len(name) % 2 else "bfloat16")
    ours, theirs = error_of(task, printed(task, {**GLUON, **settings}), inputs_of(task))
    assert ours < 1.1 * theirs + 1e-4, (ours, theirs)


@pytest.mark.parametrize(
    "work", [CAPPED, CAPPED.replace("sin", "tanh"), CAPPED.replace("sin", "silu").replace("torch.silu", "F.silu")]
)
def test_work_on_scores_and_results(work: str) -> None:
    task = task_of(work.replace("F.", "torch.nn.functional."), (2, 2, 2, 100, 80, 32), bias="batch, heads, 1, width")
    ours, theirs = error_of(task, printed(task, GLUON), inputs_of(task))
    assert ours < 1.1 * theirs + 1e-4, (ours, theirs)


@pytest.mark.parametrize("line", ["x = tl.sort(y)", "x = libdevice.tanh(y)", "x = tl.math.exp(y)"])
def test_words_that_gluon_does_not_have_are_refused(line: str) -> None:
    with pytest.raises(NotCovered, match="in Gluon"):
        in_gluon([line])


def test_what_gluon_has_no_function_for_is_written_out() -> None:
    line = "scores = 2.0 * tl.sigmoid(2.0 * (x + tl.sigmoid(y))) - tl.sigmoid(z)"
    inner = "(1.0 / (1.0 + gl.exp(-(y))))"
    outer = f"(1.0 / (1.0 + gl.exp(-(2.0 * (x + {inner})))))"
    assert in_gluon([line]) == [f"scores = 2.0 * {outer} - (1.0 / (1.0 + gl.exp(-(z))))"]


def test_heads_in_one_dimension() -> None:
    text = REFERENCE.replace("torch.randn(batch, groups, cols, width)", "torch.randn(batch * groups, cols, width)")
    text = text.replace("torch.randn(batch, heads, rows, width)", "torch.randn(batch * heads, rows, width)")
    sizes = (2, 2, 2, 150, 90, 32)
    task = task_from_source(text.format(work=CAUSAL, sizes=sizes, bias="rows, cols", dtype="half"), "three_dimensions")
    ours, theirs = error_of(task, printed(task, GLUON), inputs_of(task))
    assert ours < 1.1 * theirs + 1e-4, (ours, theirs)


def test_tensors_that_lie_in_another_way() -> None:
    """What a descriptor can say is read in place; rows that begin at odd addresses are copied."""
    task = task_of(FULL, (2, 2, 2, 130, 70, 32))
    source, (q, k, v, bias) = printed(task, GLUON), inputs_of(task)
    across = q.transpose(1, 2).contiguous().transpose(1, 2)
    odd = torch.empty(v.numel() + 1, dtype=v.dtype)[1:].view(v.shape).copy_(v)
    shared = k[:1].expand(2, -1, -1, -1)
    for inputs in ([across, k, v, bias], [q, k, odd, bias], [q, shared, v, bias]):
        ours, theirs = error_of(task, source, inputs)
        assert ours < 1.1 * theirs + 1e-4, (ours, theirs)


@pytest.mark.parametrize("width", [61, 36, 33])
@pytest.mark.parametrize("settings", [{}, {"persistent": 2}])
def test_other_widths_whose_rows_a_descriptor_cannot_say_are_copied(settings: dict[str, int], width: int) -> None:
    """The file holds for any width: rows of queries, keys and values, and of the result, that begin at odd addresses."""
    task = task_of(FULL, (2, 2, 2, 130, 70, 64))
    source, given = printed(task, {**GLUON, **settings}), inputs_of(task)
    inputs = [each[..., :width].contiguous() for each in given[:3]] + given[3:]
    reference = ModuleType("reference")
    exec(task.source, vars(reference))
    exact, theirs = reference.Model()(*(each.double() for each in inputs)), reference.Model()(*inputs)
    ours = module_on_cpu(source).ModelNew()(*inputs)
    errors = [float((each.double() - exact).norm() / exact.norm()) for each in (ours, theirs)]
    assert ours.is_contiguous() and errors[0] < 1.1 * errors[1] + 1e-4, errors


@pytest.mark.parametrize(
    "lost",
    [
        r"hopper\.mbarrier\.wait\(k_free.*",
        r"hopper\.mbarrier\.wait\(v_full\.index\(at\).*",
        r"hopper\.mbarrier\.arrive\(v_free.*",
        r"hopper\.mbarrier\.arrive\(turns.*",
        r"out = out \* gl\.expand_dims.*",
        r"scores = gl\.where\(rows >= cols.*",
    ],
)
def test_a_line_that_is_lost_is_seen(lost: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gluon_on_cpu, "STUCK_S", 0.5)
    monkeypatch.setattr(gluon_on_cpu, "LOAD_S", 0.003)
    task = task_of(CAUSAL, (1, 1, 1, 512, 512, 16))
    source = printed(task, {**GLUON, "turns": 1})
    broken, count = re.subn(lost, "pass", source, count=1)
    assert count == 1
    try:
        ours, theirs = error_of(task, broken, inputs_of(task))
    except AssertionError:
        return
    assert not ours < 2 * theirs


SEEN = {
    "lengths": CALL.format(", attn_mask=(at < bias[:, None])[:, None, None]"),
    "from on": CALL.format(", attn_mask=(at >= bias[:, None] - 30)[:, None, None]"),
    "lengths in a window": CALL.format(
        ", attn_mask=((at < bias[:, None])[:, None] & (torch.arange(rows, device=q.device)[:, None] >= at))[:, None]"
    ),
}


@pytest.mark.parametrize(("programs", "overlap"), [(0, 0), (3, 0), (3, 1)])
@pytest.mark.parametrize("name", list(SEEN))
def test_no_block_is_read_that_lengths_hide(name: str, programs: int, overlap: int) -> None:
    work = SEEN[name].replace("return ", "at = torch.arange(cols, device=q.device)\n        return ")
    text = REFERENCE.replace("torch.randn({bias}).{dtype}()", "torch.randint(1, cols + 1, (batch,))")
    task = task_from_source(text.format(work=work, sizes=(3, 2, 2, 200, 256, 16), dtype="bfloat16"), "lengths")
    q, k, v, _ = inputs_of(task)
    inputs = [q, k, v, torch.tensor([1, 64, 190])]
    reference = ModuleType("reference")
    exec(task.source, vars(reference))
    exact = reference.Model()(*(each.double() for each in inputs[:3]), inputs[3])
    for batch, length in enumerate(inputs[3].tolist()):  # keys and values that no row of the batch may see
        hidden = slice(0, max(0, length - 30) // 64 * 64) if name == "from on" else slice(-(-length // 64) * 64, 256)
        k[batch, :, hidden] = v[batch, :, hidden] = float("nan")
    settings = {**GLUON, "persistent": programs, "overlap": overlap}
    found = module_on_cpu(printed(task, settings)).ModelNew()(*inputs)
    assert float((found.double() - exact).norm() / exact.norm()) < 0.01


def test_rows_behind_all_columns_see_nothing() -> None:
    """A window that has passed the last column of whole blocks: no zeros behind them are seen, and torch gives NaN."""
    work = (
        "scores, rows, cols = q @ k.transpose(-2, -1), q.shape[2], k.shape[2]\n"
        "        at = torch.arange(rows, device=q.device)[:, None] - torch.arange(cols, device=q.device)[None, :]\n"
        "        return torch.softmax(scores.masked_fill(at > 100, float('-inf')), dim=-1) @ v"
    )
    task = task_of(work, (1, 1, 1, 400, 128, 16))
    inputs = inputs_of(task)
    reference = ModuleType("reference")
    exec(task.source, vars(reference))
    expected = reference.Model()(*(each.double() for each in inputs)).float()
    assert expected.isnan().any() and not expected.isnan().all()
    for programs in (0, 2):
        root, _, _ = kernel_of(task, {})
        parts = [each for each in root.plan.stages if each.ops != ("transpose",)]
        stage = root.as_kernel(merged_ops(root.graph, parts), {})
        assert stage is not None
        plan = root.plan.with_merged(root.graph, parts, stage.scheduled({**GLUON, "persistent": programs}))
        found = module_on_cpu(print_plan(task, root.graph, plan).source).ModelNew()(*inputs).float()
        assert torch.allclose(found, expected, atol=0.05, equal_nan=True)


SEVERAL = {
    "full": (FULL, (2, 3, 3, 300, 137, 32), {"num_stages": 3}),
    "causal": (CAUSAL, (1, 4, 4, 400, 300, 16), {"block_n": 32, "turns": 1}),
    "grouped": (GROUPED, (2, 4, 2, 200, 150, 32), {"block_m": 192, "turns": 1, "rescale": "late"}),
    "window": (WINDOW, (1, 2, 2, 400, 400, 32), {"scaling": "joined"}),
    "one block of keys": (CAUSAL, (2, 2, 2, 140, 20, 16), {}),
}


@pytest.mark.parametrize("order", ["heavy", "forward"])
@pytest.mark.parametrize("name", share(list(SEVERAL), 3))
def test_programs_that_make_several_blocks(name: str, order: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three and five programs, in whose sections are one head, some, and all, or which make pairs; last turns are uneven."""
    work, sizes, settings = SEVERAL[name]
    task = task_of(work, sizes)
    for programs, bits in ((3, 10), (5, 14), (1000, 25)):
        monkeypatch.setattr(gluon_programs, "CACHED", bits)
        source = printed(task, {**GLUON, **settings, "persistent": programs, "order": order})
        assert (f"2**{bits} * " in source) == (order == "forward")
        ours, theirs = error_of(task, source, inputs_of(task))
        assert ours < 1.1 * theirs + 1e-4, (programs, bits, ours, theirs)


@pytest.mark.parametrize(
    "lost",
    [
        r"hopper\.mbarrier\.wait\(q_free.*",
        r"hopper\.mbarrier\.arrive\(q_free.*",
        r"hopper\.mbarrier\.arrive\(v_free\.index\(last.*",
        r"hopper\.tma\.store_wait.*",
        r"done \+= steps",
        r"rounds \+= .*",
    ],
)
def test_a_line_of_several_blocks_that_is_lost_is_seen(lost: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gluon_on_cpu, "STUCK_S", 0.5)
    monkeypatch.setattr(gluon_on_cpu, "LOAD_S", 0.003)
    task = task_of(CAUSAL, (1, 2, 2, 400, 400, 16))
    settings = {**GLUON, "num_stages": 3, "persistent": 3, "order": "heavy"}
    broken, count = re.subn(lost, "pass", printed(task, settings), count=1)
    assert count == 1
    try:
        ours, theirs = error_of(task, broken, inputs_of(task))
    except AssertionError:
        return
    assert not ours < 2 * theirs


def test_masks_only_where_edges_are() -> None:
    """The mask of a window is in a branch, that of a bias is not; each group compares its own 64 rows."""
    window = printed(task_of(WINDOW, (1, 1, 1, 256, 256, 32)), GLUON)
    assert "if (start + 63 + (-20) > own) | (own + 63 - start > 99):" in window
    assert " > own" not in printed(task_of(BIASED, (1, 1, 1, 256, 256, 32)), GLUON)


@pytest.mark.parametrize(
    ("work", "sizes", "settings", "words"),
    [
        (FULL, (1, 1, 1, 64, 64, 36), {}, "multiples of 16 bytes"),
        (FULL, (1, 1, 1, 64, 64, 512), {}, "wide heads"),
        (FULL, (1, 1, 1, 64, 64, 64), {"block_m": 64}, "two to four groups"),
        (FULL, (1, 1, 1, 64, 64, 64), {"block_n": 96}, "blocks of columns"),
        (FULL, (1, 1, 1, 64, 64, 64), {"num_warps": 8}, "four warps"),
        (FULL, (1, 1, 1, 64, 64, 64), {"split_keys": 2}, "shares keys"),
        ("return scaled_dot_product_attention(q, k, v).float()", (1, 1, 1, 64, 64, 64), {}, "another type"),
    ],
)
def test_what_it_cannot_do_is_refused(
    work: str, sizes: tuple[int, ...], settings: Mapping[str, int | str], words: str
) -> None:
    with pytest.raises(CoderError, match=words):
        printed(task_of(work, sizes), {**GLUON, **settings})


def test_floats_of_32_bits_are_refused() -> None:
    with pytest.raises(CoderError, match="numbers of 16 bits"):
        printed(task_of(FULL, (1, 1, 1, 64, 64, 64), dtype="float"), GLUON)


def test_legal_and_first_only_where_a_gpu_evaluates() -> None:
    task = task_of(CAUSAL, (4, 16, 16, 1024, 1024, 128))
    root, plan, stage = kernel_of(task, {})
    assert "language" not in dict(stage.schedule)
    assert not [move for move in legal_moves(Version.of(task, plan, root.hardware)) if move.action.kind == "specialize"]
    timed, fast, begun = kernel_of(task, {}, TIMES)
    assert timed.on_gpu and not root.on_gpu
    again = Version.of(task, plan, root.hardware, times=TIMES)
    [there] = [move for move in legal_moves(again) if move.action.kind == "specialize"]
    assert there.child is not None and plan_from_json(there.child.to_json()) == there.child
    found = there.child.stage_of(stage.ops[0])
    assert found == begun and {**GLUON, "block_n": 128}.items() <= dict(begun.schedule).items()
    assert plan_from_json(fast.to_json()) == fast
    elsewhere = Version.of(task, plan, hardware("A100"), times=TIMES)
    assert not [move for move in legal_moves(elsewhere) if move.action.kind == "specialize"]


def test_settings_are_reached_by_further_actions_and_lead_back() -> None:
    task = task_of(CAUSAL, (4, 16, 16, 1024, 1024, 64))
    root, plan, _ = kernel_of(task, {}, TIMES)
    moves = [move for move in legal_moves(Version.of(task, plan, root.hardware, times=TIMES)) if move.stage is not None]
    reached = {(name, value) for move in moves for name, value in move.action.params}
    assert {("block_n", 64), ("block_m", 128), ("num_stages", 2), ("turns", 1), ("language", "triton")} <= reached
    assert ("persistent", 132) in reached and not {"descriptors", "split", "vectorize"} & {
        move.action.kind for move in moves
    }
    [back] = [move for move in moves if move.action.kind == "specialize"]
    assert back.child is not None and "@triton.jit" in print_plan(task, root.graph, back.child).source
    again = Version.of(task, back.child, root.hardware, times=TIMES)
    [forth] = [move for move in legal_moves(again) if move.action.kind == "specialize"]
    assert forth.child is not None
    sources = [print_plan(task, root.graph, each).source for each in (forth.child, plan)]
    assert sources[0] == sources[1]


def test_another_gpu_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    source = printed(task_of(FULL, (1, 1, 1, 64, 64, 64)), GLUON)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (8, 0))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "A100")
    with FakeMode(), pytest.raises(RuntimeError, match=r"made for Hopper GPUs .*, not for A100"):
        module_on_cpu(source).ModelNew()(*(torch.empty(1, 1, 64, 64, device="cuda") for _ in range(4)))


def test_compiles_for_hopper_without_spills_and_with_exponentials_during_a_product(tmp_path: Path) -> None:
    """The schedules that attention starts with, for heads of 64 and of 128, and two with keys backward, one of them of three
    groups, which may spill a little: in a process of its own, which gets a driver."""
    program = """
import json, re, sys
from pathlib import Path
from benchmarks.hopper_build import build, prepared
from benchmarks.hopper_attention import CAUSAL, attention_case, heads
from mtmc.evaluate.compiling.cuobjdump import disassembled
back = {"keys": "backward", "scaling": "joined"}
for width, rows, columns, more in ((64, 128, 64, {}), (128, 128, 128, {}), (128, 128, 128, back), (64, 192, 128, back)):
    case = attention_case("case", 1, 2, 512, width, {"x": heads(rows, columns, 4, 2, language="gluon", **more)}, CAUSAL)
    built = build(case, "x", Path(sys.argv[1]))
    print("BUILT", json.dumps([built.failure, built.kernels]))
    cubin = Path(sys.argv[1]) / "kernel.cubin"
    cubin.write_bytes(prepared(132)[-1].asm["cubin"])
    print("ORDER", *re.findall(r"MUFU.EX2|WARPGROUP.DEPBAR.LE gsb0, 0x[01]|HGMMA", disassembled(cubin)), sep="|")
"""
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)], capture_output=True, text=True, check=True, timeout=300
    )
    rows = re.findall(r"^BUILT (.*)$", done.stdout, re.MULTILINE)
    assert len(rows) == 4 and all('["", [' in row for row in rows), done.stdout
    assert all('"local": 0' in row for row in rows[:-1])
    loops = re.findall(r"gsb0, 0x1\|((?:MUFU.EX2\|)+)WARPGROUP.DEPBAR.LE gsb0, 0x0", done.stdout)
    during = [loop.count("MUFU") for loop in loops]  # of a thread: two rows' columns over four threads
    assert during == [64 // 2 + 2] * 2 + [128 // 2 + 2] * (2 + 2 + 3)
    assert all("wgmma.mma_async" in row and "cp.async.bulk.tensor" in row and "setmaxnreg" in row for row in rows)
