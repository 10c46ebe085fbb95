"""The check tells right from wrong, names what is wrong and where, and lets honest rounding pass."""

from __future__ import annotations

import errno
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from evaluate_sources import HONEST, REFERENCE, TASK, changed, line_of

from mtmc.errors import TaskError
from mtmc.evaluate.audit.diagnosis import Failure
from mtmc.evaluate.check import check as gate
from mtmc.evaluate.check.cases import Checked, plan
from mtmc.evaluate.pool.worker import Pool
from mtmc.outcome import Diagnosis
from mtmc.task import Task, Variant

HOST = """
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, *arguments):
        super().__init__()

    def forward(self, *inputs):
        BODY
"""


def host(body: str) -> str:
    """A version whose forward is one expression or statement."""
    return HOST.replace("BODY", body)


def small_task(forward: str, inputs: str = "[torch.randn(rows, cols)]") -> Task:
    """A task without weights: `forward` is the body of the reference's forward(self, *inputs)."""
    source = host(forward).replace("ModelNew", "Model") + (
        "\n\nrows = 64\ncols = 128\n\n\n"
        f"def get_inputs():\n    return {inputs}\n\n\ndef get_init_inputs():\n    return []\n"
    )
    return Task("small", source, Variant("full"), Variant("small", (("rows", 6), ("cols", 40))))


def check(pool: Pool, source: str, task: Task = TASK, depth: str = "screen", seed: int = 0) -> Any:
    """A `Checked`, or a `Failure`."""
    arguments = {"task": task, "source": source, "seed": seed, "depth": depth, "check_variants": 2, "autotuned": {}}
    result = pool.run(gate.check, arguments)
    assert result.status == "ok", result
    return result.value


def wrong(pool: Pool, source: str, task: Task = TASK) -> Diagnosis:
    found = check(pool, source, task)
    assert isinstance(found, Failure) and found.status == "wrong_result"
    return found.diagnosis


def test_plan_of_both_depths() -> None:
    screen = plan(TASK, "screen", 1)
    assert [(case.variant.label, case.distribution, case.moved) for case in screen.cases] == [
        ("small", "drawn", False),
        ("small", "sparse", False),  # there is one held-out shape only to show it at
        ("odd1", "spiky", False),
        ("small", "shifted", True),
    ]
    assert screen.variants == (TASK.small, TASK.held_out[0])
    verify = plan(TASK, "verify", 1).cases
    named = [(case.variant.label, case.distribution, case.moved) for case in verify]
    assert len(named) == 14 and ("odd2", "sparse", False) in named
    assert {("small", name, False) for name in ("spiky", "sparse", "wide", "huge")} <= {*named}
    assert ("small", "drawn", True) in named and ("small", "shifted", True) in named
    assert verify[0].serial == verify[2].serial != verify[-1].serial  # the moved model is another one


def test_a_case_that_a_reference_does_not_take_has_others_in_its_place() -> None:
    by_name = {(case.variant.label, case.distribution): case.attempts for case in plan(TASK, "screen", 1).cases}
    assert [len(attempts) for attempts in by_name.values()] == [1, 1, 2, 3]
    assert [each.distribution for each in by_name["odd1", "spiky"]] == ["spiky", "drawn"]
    weights = [(each.distribution, each.moved) for each in by_name["small", "shifted"]]
    assert weights == [("shifted", True), ("drawn", True), ("shifted", False)]
    assert all(len(case.attempts) == 1 for case in plan(TASK, "verify", 1).cases)


def test_honest_version_passes_and_is_as_precise_as_the_reference(check_pool: Pool) -> None:
    metrics = check(check_pool, HONEST)
    assert metrics.cases == 4.0 and 1e-9 < metrics.error < 4e-7
    assert check(check_pool, HONEST, depth="verify").cases == 14.0
    assert check(check_pool, HONEST) == check(check_pool, HONEST)


def test_the_reference_itself_passes(check_pool: Pool) -> None:
    assert isinstance(check(check_pool, REFERENCE.replace("class Model", "class ModelNew")), Checked)


@pytest.mark.parametrize(
    ("old", "new", "kind"),
    [
        ("value / tl.sum(value, axis=0)", "value / tl.sum(value, axis=0) * 1.01", "WrongValues"),
        ("value / tl.sum(value, axis=0)", "value / tl.sum(value, axis=0) * 1.00002", "LowPrecision"),
        ("index, value, mask=inside)", "index, value, mask=index < cols - 1)", "NaN"),
        ("        return out\n", "        return (out - out) / (out - out)\n", "NaN"),
        ("        return out\n", "        return out + 1e38 * 1e38\n", "Infinity"),
        ("        return out\n", "        return out.half()\n", "DType"),
        ("        return out\n", "        return out[:-1]\n", "Shape"),
        ("        return out\n", "        return out, out\n", "Structure"),
        ("        return out\n", "        return 3\n", "Type"),
        ("        return out\n", "        x.mul_(2)\n        return out\n", "InputMutated"),
        ("        return out\n", "        self.weight.mul_(2)\n        return out\n", "ParameterMutated"),
    ],
)
def test_wrong_results(check_pool: Pool, old: str, new: str, kind: str) -> None:
    diagnosis = wrong(check_pool, changed(old, new))
    assert diagnosis.kind == kind and "small shapes, drawn inputs" in diagnosis.message


def test_hard_coded_shape_fails_at_held_out_shapes(check_pool: Pool) -> None:
    source = changed("block = triton.next_power_of_2(x.shape[1])", "block = 128")
    assert "odd2 shapes" in wrong(check_pool, source).message


def test_a_step_left_out_that_the_tasks_own_inputs_do_not_show(check_pool: Pool) -> None:
    # Inputs from [0, 1), as in many tasks of KernelBench, cannot tell relu from nothing.
    task = small_task("return torch.relu(inputs[0])", "[torch.rand(rows, cols)]")
    assert "shifted inputs" in wrong(check_pool, host("return inputs[0].clone()"), task).message
    assert isinstance(check(check_pool, host("return inputs[0].clamp(min=0)"), task), Checked)


def norm_task() -> Task:
    """A layer norm, with weights of ones and zeros."""
    source = small_task("return self.norm(inputs[0])").source.replace(
        "super().__init__()", "super().__init__()\n        self.norm = nn.LayerNorm(40)"
    )
    return Task("norm", source, Variant("full"), Variant("small", (("rows", 6), ("cols", 40))))


@pytest.mark.parametrize("depth", ["screen", "verify"])
def test_weights_of_ones_left_out_are_found(check_pool: Pool, depth: str) -> None:
    lazy = host("return nn.functional.layer_norm(inputs[0], (40,))")
    found = check(check_pool, lazy, norm_task(), depth).diagnosis
    asked = {"screen": "shifted", "verify": "drawn"}[depth]
    assert found.kind == "WrongValues" and f"{asked} inputs, weights moved" in found.message
    own = host("return nn.functional.layer_norm(inputs[0], (40,), self.gain, self.offset)").replace(
        "super().__init__()",
        "super().__init__()\n        self.offset = nn.Parameter(torch.zeros(40))\n"
        "        self.gain = nn.Parameter(torch.ones(40))",
    )
    found = check(check_pool, own, norm_task(), depth)
    assert isinstance(found, Checked) and found.cases == {"screen": 4.0, "verify": 8.0}[depth], found


def test_a_softmax_that_overflows_is_found_by_inputs_that_stand_out(check_pool: Pool) -> None:
    task = small_task("return torch.softmax(inputs[0], -1)")
    naive = host("e = inputs[0].exp()\n        return e / e.sum(-1, keepdim=True)")
    assert "small shapes, spiky inputs" in wrong(check_pool, naive, task).message


def test_inputs_outside_of_the_references_domain_are_not_asked_for(check_pool: Pool) -> None:
    logs = small_task("return torch.log(inputs[0] + 0.1)", "[torch.rand(rows, cols)]")
    found = check(check_pool, host("return torch.log(inputs[0] + 0.1)"), logs)
    assert found.cases == 3.0  # none are shifted; what stands out does so above zero
    body = "assert inputs[0].min() >= 0\n        return inputs[0] + 1"
    asserting = small_task(body, "[torch.rand(rows, cols)]")
    assert check(check_pool, host(body), asserting).cases == 3.0
    narrow = (
        "assert 0 <= inputs[0].min() and inputs[0].max() < 1 and inputs[0].mean() > 0.4\n        return inputs[0] + 1"
    )
    assert check(check_pool, host(narrow), small_task(narrow, "[torch.rand(rows, cols)]")).cases == 1.0


def test_half_precision_inside_a_float32_task_is_refused(check_pool: Pool) -> None:
    task = small_task("return inputs[0] @ inputs[1]", "[torch.randn(rows, cols), torch.randn(cols, rows)]")
    low = host("return (inputs[0].bfloat16() @ inputs[1].bfloat16()).float()")
    assert wrong(check_pool, low, task).kind in ("LowPrecision", "WrongValues")
    assert isinstance(check(check_pool, host("return (inputs[1].t() @ inputs[0].t()).t()"), task), Checked)


def test_honest_reorderings_of_sums_pass(check_pool: Pool) -> None:
    rows = "[torch.randn(rows, 4 * cols)]"
    sums = small_task("return inputs[0].sum(-1)", rows)
    assert isinstance(
        check(check_pool, host("return inputs[0].flip(-1).reshape(-1, 4, 40).sum(1).sum(-1)"), sums), Checked
    )
    mean = small_task("return (inputs[0] - inputs[0].mean(-1, keepdim=True)).mean(-1)", rows)
    other = "return (inputs[0] - inputs[0].mean(-1, keepdim=True)).flip(-1).cumsum(-1)[:, -1] / inputs[0].shape[-1]"
    assert isinstance(check(check_pool, host(other), mean), Checked)


def test_several_outputs_integers_and_structures(check_pool: Pool) -> None:
    task = small_task("return {'top': inputs[0].max(-1), 'n': [inputs[0] > 0, 7]}")
    assert isinstance(
        check(check_pool, host("return {'top': inputs[0].max(-1), 'n': [inputs[0] > 0, 7]}"), task), Checked
    )
    assert (
        wrong(check_pool, host("return {'top': inputs[0].min(-1), 'n': [inputs[0] > 0, 7]}"), task).kind
        == "WrongValues"
    )
    assert wrong(check_pool, host("return {'top': inputs[0].max(-1), 'n': [inputs[0] > 0, 8]}"), task).kind == "Type"


def test_a_reference_that_changes_its_input_asks_for_the_same(check_pool: Pool) -> None:
    task = small_task("return inputs[0].relu_()")
    assert isinstance(check(check_pool, host("return inputs[0].relu_()"), task), Checked)
    lost = wrong(check_pool, host("return inputs[0].relu()"), task)
    assert lost.kind == "WrongValues" and "input 0 after the call (the reference changes it)" in lost.message


def test_a_reference_with_a_fixed_dtype_inside_has_no_float64_oracle_but_is_checked(check_pool: Pool) -> None:
    task = small_task("return inputs[0] @ torch.ones(inputs[0].shape[1], 3, dtype=torch.float32)")
    assert isinstance(check(check_pool, host("return inputs[0].sum(-1, keepdim=True).expand(-1, 3)"), task), Checked)
    assert (
        wrong(check_pool, host("return inputs[0].sum(-1, keepdim=True).expand(-1, 3) + 1"), task).kind == "WrongValues"
    )


DENIAL = """
import sys

import torch
import torch.nn as nn

checker = sys.modules["mtmc.evaluate.check.candidate"]
checker.differ = lambda now, before: False
checker._shown = lambda tensor: ()


class ModelNew(nn.Module):
    def forward(self, x, y):
        result = x + y
        CHANGE
        return result
"""


@pytest.mark.parametrize("change", ["x.mul_(2)", "y[0, 0] = -y[0, 0]", "y.copy_(x)", "x[1:].zero_()", "pass"])
def test_what_has_happened_to_inputs_is_seen_from_outside(check_pool: Pool, change: str) -> None:
    inputs = "[torch.randn(rows, cols), torch.randn(cols, rows).t()]"
    task = small_task("return inputs[0] + inputs[1]", inputs)
    found = check(check_pool, DENIAL.replace("CHANGE", change), task)
    if change == "pass":
        assert isinstance(found, Checked)
    else:
        assert found.diagnosis.kind == "InputMutated"
        assert f"input {'xy'.index(change[0])} " in found.diagnosis.message


def test_an_input_that_is_another_tensor_afterwards_has_changed(check_pool: Pool) -> None:
    task = small_task("return inputs[0] + 1")
    body = "inputs[0].data = inputs[0] + 1\n        return inputs[0].clone()"
    assert wrong(check_pool, host(body), task).kind == "InputMutated"


def test_inputs_of_any_layout_are_handed_over(check_pool: Pool) -> None:
    inputs = (
        "[torch.randn(rows, 1).expand(rows, cols), {'b': [torch.randn(cols, rows).t(), 3], 'a': torch.tensor(2.0)}, "
        "(torch.randn(rows, 2 * cols)[:, ::2], torch.arange(rows), torch.empty(0, 4), True)]"
    )
    body = (
        "x, more, rest = inputs\n"
        "        assert more['b'][0].stride() == (1, x.shape[0])\n"
        "        return x * more['b'][0] * more['b'][1] + more['a'] * rest[0] + rest[1][:, None] * rest[3], rest[2] + 1"
    )
    assert isinstance(check(check_pool, host(body), small_task(body, inputs)), Checked)


def test_what_cannot_be_handed_over_is_the_tasks_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    from mtmc.evaluate.check.shared_input import SharedInputBuffer

    monkeypatch.chdir(tmp_path)
    buffer = SharedInputBuffer()
    with pytest.raises(TaskError, match="dense"):
        buffer.put([torch.eye(3).to_sparse()])
    first = buffer.take(buffer.put([torch.ones(4)]))[0]
    second = [torch.arange(100_000.0)]
    later = buffer.take(buffer.put(second))[0]
    assert torch.equal(later, second[0]) and buffer.changed(second) == []
    later[7] = -later[7]
    assert buffer.changed(second) == [0] and first.tolist() == [0.0, 1.0, 2.0, 3.0] and not list(tmp_path.iterdir())
    monkeypatch.setattr("os.ftruncate", lambda fd, size: (_ for _ in ()).throw(OSError(errno.EFBIG, "File too large")))
    with pytest.raises(TaskError, match="smaller shapes"):
        buffer.put([torch.ones(1_000_000)])


def test_a_shared_input_buffer_cut_off_ends_the_candidates_job(check_pool: Pool) -> None:
    cut = host(
        "import os\n"
        "        for fd in range(3, 64):\n"
        "            try:\n"
        "                os.ftruncate(fd, 0)\n"
        "            except OSError:\n"
        "                pass\n"
        "        return torch.zeros(6, 40)"
    )
    arguments = {"task": small_task("return inputs[0] * 0"), "source": cut, "seed": 0, "depth": "screen"}
    more = {"check_variants": 0, "autotuned": {}}
    result = check_pool.run(gate.check, {**arguments, **more})
    assert result.status == "crash" and result.signal == "SIGBUS"


def test_an_address_stands_for_no_value(check_pool: Pool) -> None:
    cache = host(
        "at = inputs[0].data_ptr()\n"
        "        self.known[at] = self.known.get(at, inputs[0] + 1)\n"
        "        return self.known[at].clone()"
    ).replace("super().__init__()", "super().__init__()\n        self.known = {}")
    assert wrong(check_pool, cache, small_task("return inputs[0] + 1")).kind == "WrongValues"


def test_lazy_tensor_subclass_is_no_plain_tensor(check_pool: Pool) -> None:
    lazy = host("return inputs[0].as_subclass(Lazy)").replace(
        "class ModelNew", "class Lazy(torch.Tensor):\n    pass\n\n\nclass ModelNew"
    )
    diagnosis = wrong(check_pool, lazy, small_task("return inputs[0].clone()"))
    assert diagnosis.kind == "Type" and "Lazy" in diagnosis.message


def test_memory_that_is_never_written_reads_as_nan(check_pool: Pool) -> None:
    task = small_task("return torch.zeros_like(inputs[0])")
    for body in ("return torch.empty_like(inputs[0])", "return inputs[0].new_empty(inputs[0].shape)"):
        assert wrong(check_pool, host(body), task).kind == "NaN"


def test_access_out_of_bounds_has_its_line(check_pool: Pool) -> None:
    source = changed("w = tl.load(w_ptr + index, mask=inside, other=0.0)", "w = tl.load(w_ptr + index)")
    found = check(check_pool, source)
    assert found.status == "crash" and found.diagnosis.kind == "OutOfBoundsError"
    assert found.diagnosis.line == line_of("w = tl.load", source)


def test_error_in_the_forward_is_a_crash_with_its_line(check_pool: Pool) -> None:
    source = changed("        return out\n", "        assert x.is_cpu, 'x.is_cuda'\n        return out\n")
    diagnosis = check(check_pool, source).diagnosis
    assert diagnosis.kind == "AssertionError" and diagnosis.line == line_of("assert x.is_cpu", source)
    assert "device=x.device" in diagnosis.message


def test_early_exit_of_the_candidate_is_a_crash(check_pool: Pool) -> None:
    found = check(check_pool, host("raise SystemExit"), small_task("return inputs[0]"))
    assert found.status == "crash" and found.diagnosis.kind == "ProcessExit"


def test_equal_seeds_give_equal_weights_and_a_state_replaces_them(check_pool: Pool) -> None:
    import io

    import torch

    state = io.BytesIO()
    torch.save({"weight": torch.linspace(0.5, 1.5, 96)}, state)
    task = replace(TASK, state=state.getvalue(), held_out=())
    assert isinstance(check(check_pool, HONEST, task), Checked)
    drawn = changed("self.weight, out", "torch.ones_like(self.weight), out")
    assert wrong(check_pool, drawn, task).kind == "WrongValues"


def test_a_task_that_fails_by_itself_is_a_task_error(check_pool: Pool) -> None:
    with pytest.raises(TaskError, match="fails at the 'small' shapes"):
        check(check_pool, host("return inputs[0]"), small_task("return inputs[0] @ inputs[0]"))
    with pytest.raises(TaskError, match="get_inputs"):
        check(check_pool, host("return inputs[0]"), small_task("return inputs[0]", "[torch.randn(-1)]"))


def test_a_reference_that_draws_has_no_float64_oracle_but_is_checked(check_pool: Pool) -> None:
    body = "return inputs[0] + torch.randn(inputs[0].shape[1])"
    assert isinstance(check(check_pool, host(body), small_task(body)), Checked)
    assert wrong(check_pool, host("return inputs[0] + 1"), small_task(body)).kind == "WrongValues"
