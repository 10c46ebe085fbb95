"""The check tells right from wrong, names what is wrong and where, and lets honest rounding pass."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from evaluate_sources import HONEST, REFERENCE, TASK, changed, line_of

from mtmc.errors import TaskError
from mtmc.evaluate.gates.check import plan
from mtmc.evaluate.pool.worker import Pool
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


def check(pool: Pool, source: str, task: Task = TASK, depth: str = "screen", seed: int = 0) -> dict[str, Any]:
    arguments = {"task": task, "source": source, "seed": seed, "depth": depth, "check_variants": 2, "autotuned": {}}
    result = pool.run("mtmc.evaluate.gates.check:check", arguments)
    assert result.status == "ok", result
    value: dict[str, Any] = result.value
    return value


def wrong(pool: Pool, source: str, task: Task = TASK) -> dict[str, Any]:
    found = check(pool, source, task)["failure"]
    assert found["status"] == "wrong_result"
    diagnosis: dict[str, Any] = found["diagnosis"]
    return diagnosis


def test_plan_of_both_depths() -> None:
    screen = [(v.label, d) for _, v, d in plan(TASK, "screen", 1).cases]
    assert screen == [("small", "drawn"), ("small", "shifted"), ("odd1", "drawn")]
    verify = [(v.label, d) for _, v, d in plan(TASK, "verify", 1).cases]
    assert len(verify) == 6 and ("odd2", "shifted") in verify


def test_honest_version_passes_and_is_as_precise_as_the_reference(check_pool: Pool) -> None:
    metrics = check(check_pool, HONEST)["metrics"]
    assert metrics["cases"] == 4.0 and 1e-9 < metrics["error"] < 4e-7
    assert check(check_pool, HONEST, depth="verify")["metrics"]["cases"] == 6.0
    assert check(check_pool, HONEST) == check(check_pool, HONEST)


def test_the_reference_itself_passes(check_pool: Pool) -> None:
    assert "metrics" in check(check_pool, REFERENCE.replace("class Model", "class ModelNew"))


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
    assert diagnosis["kind"] == kind and "small shapes, drawn inputs" in diagnosis["message"]


def test_hard_coded_shape_fails_at_held_out_shapes(check_pool: Pool) -> None:
    source = changed("block = triton.next_power_of_2(x.shape[1])", "block = 128")
    assert "odd2 shapes" in wrong(check_pool, source)["message"]


def test_a_step_left_out_that_the_tasks_own_inputs_do_not_show(check_pool: Pool) -> None:
    # Inputs from [0, 1), as in many tasks of KernelBench, cannot tell relu from nothing.
    task = small_task("return torch.relu(inputs[0])", "[torch.rand(rows, cols)]")
    assert "shifted inputs" in wrong(check_pool, host("return inputs[0].clone()"), task)["message"]
    assert "metrics" in check(check_pool, host("return inputs[0].clamp(min=0)"), task)


def test_inputs_outside_of_the_references_domain_are_not_asked_for(check_pool: Pool) -> None:
    logs = small_task("return torch.log(inputs[0] + 0.1)", "[torch.rand(rows, cols)]")
    assert check(check_pool, host("return torch.log(inputs[0] + 0.1)"), logs)["metrics"]["cases"] == 1.0
    body = "assert inputs[0].min() >= 0\n        return inputs[0] + 1"
    asserting = small_task(body, "[torch.rand(rows, cols)]")
    assert check(check_pool, host(body), asserting)["metrics"]["cases"] == 1.0


def test_half_precision_inside_a_float32_task_is_refused(check_pool: Pool) -> None:
    task = small_task("return inputs[0] @ inputs[1]", "[torch.randn(rows, cols), torch.randn(cols, rows)]")
    low = host("return (inputs[0].bfloat16() @ inputs[1].bfloat16()).float()")
    assert wrong(check_pool, low, task)["kind"] in ("LowPrecision", "WrongValues")
    assert "metrics" in check(check_pool, host("return (inputs[1].t() @ inputs[0].t()).t()"), task)


def test_honest_reorderings_of_sums_pass(check_pool: Pool) -> None:
    rows = "[torch.randn(rows, 4 * cols)]"
    sums = small_task("return inputs[0].sum(-1)", rows)
    assert "metrics" in check(check_pool, host("return inputs[0].flip(-1).reshape(-1, 4, 40).sum(1).sum(-1)"), sums)
    mean = small_task("return (inputs[0] - inputs[0].mean(-1, keepdim=True)).mean(-1)", rows)
    other = "return (inputs[0] - inputs[0].mean(-1, keepdim=True)).flip(-1).cumsum(-1)[:, -1] / inputs[0].shape[-1]"
    assert "metrics" in check(check_pool, host(other), mean)


def test_several_outputs_integers_and_structures(check_pool: Pool) -> None:
    task = small_task("return {'top': inputs[0].max(-1), 'n': [inputs[0] > 0, 7]}")
    assert "metrics" in check(check_pool, host("return {'top': inputs[0].max(-1), 'n': [inputs[0] > 0, 7]}"), task)
    assert (
        wrong(check_pool, host("return {'top': inputs[0].min(-1), 'n': [inputs[0] > 0, 7]}"), task)["kind"]
        == "WrongValues"
    )
    assert wrong(check_pool, host("return {'top': inputs[0].max(-1), 'n': [inputs[0] > 0, 8]}"), task)["kind"] == "Type"


def test_a_reference_that_changes_its_input_allows_the_same(check_pool: Pool) -> None:
    task = small_task("return inputs[0].relu_()")
    assert "metrics" in check(check_pool, host("return inputs[0].relu_()"), task)
    assert "metrics" in check(check_pool, host("return inputs[0].relu()"), task)


def test_a_reference_with_a_fixed_dtype_inside_has_no_float64_oracle_but_is_checked(check_pool: Pool) -> None:
    task = small_task("return inputs[0] @ torch.ones(inputs[0].shape[1], 3, dtype=torch.float32)")
    assert "metrics" in check(check_pool, host("return inputs[0].sum(-1, keepdim=True).expand(-1, 3)"), task)
    assert (
        wrong(check_pool, host("return inputs[0].sum(-1, keepdim=True).expand(-1, 3) + 1"), task)["kind"]
        == "WrongValues"
    )


def test_lazy_tensor_subclass_is_no_plain_tensor(check_pool: Pool) -> None:
    lazy = host("return inputs[0].as_subclass(Lazy)").replace(
        "class ModelNew", "class Lazy(torch.Tensor):\n    pass\n\n\nclass ModelNew"
    )
    diagnosis = wrong(check_pool, lazy, small_task("return inputs[0].clone()"))
    assert diagnosis["kind"] == "Type" and "Lazy" in diagnosis["message"]


def test_memory_that_is_never_written_reads_as_nan(check_pool: Pool) -> None:
    task = small_task("return torch.zeros_like(inputs[0])")
    for body in ("return torch.empty_like(inputs[0])", "return inputs[0].new_empty(inputs[0].shape)"):
        assert wrong(check_pool, host(body), task)["kind"] == "NaN"


def test_access_out_of_bounds_has_its_line(check_pool: Pool) -> None:
    source = changed("w = tl.load(w_ptr + index, mask=inside, other=0.0)", "w = tl.load(w_ptr + index)")
    found = check(check_pool, source)["failure"]
    assert found["status"] == "crash" and found["diagnosis"]["kind"] == "OutOfBoundsError"
    assert found["diagnosis"]["line"] == line_of("w = tl.load", source)


def test_error_in_the_forward_is_a_crash_with_its_line(check_pool: Pool) -> None:
    source = changed("        return out\n", "        assert x.is_cuda, 'x.is_cuda'\n        return out\n")
    diagnosis = check(check_pool, source)["failure"]["diagnosis"]
    assert diagnosis["kind"] == "AssertionError" and diagnosis["line"] == line_of("assert x.is_cuda", source)
    assert "device=x.device" in diagnosis["message"]


def test_early_exit_of_the_candidate_is_a_crash(check_pool: Pool) -> None:
    found = check(check_pool, host("raise SystemExit"), small_task("return inputs[0]"))["failure"]
    assert found["status"] == "crash" and found["diagnosis"]["kind"] == "ProcessExit"


def test_equal_seeds_give_equal_weights_and_a_state_replaces_them(check_pool: Pool) -> None:
    import io

    import torch

    state = io.BytesIO()
    torch.save({"weight": torch.linspace(0.5, 1.5, 96)}, state)
    task = replace(TASK, state=state.getvalue(), held_out=())
    assert "metrics" in check(check_pool, HONEST, task)
    drawn = changed("self.weight, out", "torch.ones_like(self.weight), out")
    assert wrong(check_pool, drawn, task)["kind"] == "WrongValues"


def test_a_task_that_fails_by_itself_is_a_task_error(check_pool: Pool) -> None:
    with pytest.raises(TaskError, match="fails at the 'small' shapes"):
        check(check_pool, host("return inputs[0]"), small_task("return inputs[0] @ inputs[0]"))
    with pytest.raises(TaskError, match="get_inputs"):
        check(check_pool, host("return inputs[0]"), small_task("return inputs[0]", "[torch.randn(-1)]"))


def test_a_reference_that_draws_has_no_float64_oracle_but_is_checked(check_pool: Pool) -> None:
    body = "return inputs[0] + torch.randn(inputs[0].shape[1])"
    assert "metrics" in check(check_pool, host(body), small_task(body))
    assert wrong(check_pool, host("return inputs[0] + 1"), small_task(body))["kind"] == "WrongValues"
