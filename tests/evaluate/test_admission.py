"""A task that cannot be searched is refused with its reason; one that invites cheating is warned of."""

from __future__ import annotations

from pathlib import Path

import pytest

from mtmc.errors import TaskError
from mtmc.evaluate.reference.admission import FIXED_BYTES, Admission, admit, bytes_needed
from mtmc.evaluate.reference.memory import Footprint
from mtmc.task import Task, Variant, load_task

MODEL = """
import torch
import torch.nn as nn

rows = 512
cols = 4096


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        INIT

    def forward(self, *inputs):
        FORWARD


def get_inputs():
    return INPUTS


def get_init_inputs():
    return []
"""


def task(forward: str, inputs: str = "[torch.randn(rows, cols)]", init: str = "pass") -> Task:
    """A task whose reference has this statement as its forward."""
    source = MODEL.replace("FORWARD", forward).replace("INPUTS", inputs).replace("INIT", init)
    return Task("small", source, Variant("full"), Variant("small", (("rows", 6), ("cols", 40))))


def admitted(folder: Path, forward: str, inputs: str = "[torch.randn(rows, cols)]", init: str = "pass") -> Admission:
    return admit(task(forward, inputs, init), "cpu", folder)


TWO = "[torch.randn(rows, cols), torch.randn(rows, cols)]"


def test_an_honest_task_is_admitted_without_a_warning(tmp_path: Path) -> None:
    found = admit(load_task("residual_norm"), "cpu", tmp_path)
    assert found.warnings == () and found.variant == "small"
    [precision] = found.calibration.precisions
    assert precision is not None and 1e-9 < precision.own < 1e-6


def test_memory_is_that_of_all_copies(tmp_path: Path) -> None:
    # 6 x 40 floats are 960 bytes: twice the input, three times the output, twice the product that is needed between.
    assert admitted(tmp_path, "return (inputs[0] * 2).sin()").bytes_needed == (2 + 3 + 2) * 960
    weighed = Footprint(inputs=10, weights=100, outputs=1000, peak=11110)
    assert weighed.temporaries == 10000
    assert bytes_needed(weighed, "cuda:0") == 20 + 200 + 3000 + 20000 + FIXED_BYTES


def test_a_task_that_does_not_fit_is_refused_before_it_is_allocated(tmp_path: Path) -> None:
    with pytest.raises(TaskError, match=r"at its small shapes needs about 655360\.0 GiB of memory and .* are free"):
        admitted(tmp_path, "return inputs[0].relu()", "[torch.randn(2**20, 2**25)]")
    with pytest.raises(TaskError, match=r"outputs 4096\.0 GiB"):  # a view of 4 MiB, handed over as what it stands for
        admitted(tmp_path, "return inputs[0].expand(2**20, -1)", "[torch.randn(1, 2**20)]")


@pytest.mark.parametrize(
    "forward",
    [
        "return torch.nn.functional.dropout(inputs[0])",
        "return inputs[0] + 1e-3 * torch.randn_like(inputs[0])",
        "return torch.bernoulli(torch.sigmoid(inputs[0])) > 0",
    ],
)
def test_a_reference_that_draws_is_refused(tmp_path: Path, forward: str) -> None:
    with pytest.raises(TaskError, match=r"between two runs on the same inputs.*make it deterministic"):
        admitted(tmp_path, forward)


def test_a_reference_that_counts_its_calls_is_refused(tmp_path: Path) -> None:
    forward = "self.calls += 1\n        return inputs[0] * self.calls"
    with pytest.raises(TaskError, match="state that it keeps"):
        admitted(tmp_path, forward, init="self.calls = 0")


def test_noise_of_rounding_is_no_other_result(tmp_path: Path) -> None:
    # Every second call sums in another order, as atomic additions do.
    forward = (
        "self.calls += 1\n        return inputs[0].flip(-1).cumsum(-1)[:, -1] if self.calls % 2 else inputs[0].sum(-1)"
    )
    assert admitted(tmp_path, forward, init="self.calls = 0").warnings == ()


def test_a_reference_that_gives_nan_or_raises_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TaskError, match="output 0 of the reference holds NaN"):
        admitted(tmp_path, "return torch.log(inputs[0])")
    with pytest.raises(TaskError, match="output 1 of the reference is infinite throughout"):
        admitted(tmp_path, "return inputs[0], inputs[0] * float('inf')")
    with pytest.raises(TaskError, match="the reference fails at the 'small' shapes: RuntimeError"):
        admitted(tmp_path, "return inputs[0] @ inputs[0]")
    assert admitted(tmp_path, "return inputs[0].tril().masked_fill(inputs[0] > 1, float('-inf'))").warnings == ()


def test_a_reference_that_reads_values_is_weighed_by_running_it(tmp_path: Path) -> None:
    found = admitted(tmp_path, "return inputs[0] * (2 if float(inputs[0][0, 0]) > 9 else 3)")
    assert found.bytes_needed == (2 + 3) * 960 and found.warnings == ()


@pytest.mark.parametrize(
    ("forward", "inputs", "warning"),
    [
        ("return inputs[0] * 0 + 3", "[torch.randn(rows, cols)]", "output 0 is 3 throughout"),
        ("return inputs[0], inputs[0] * 1e-5", "[torch.randn(rows, cols)]", "output 1 is zero within KernelBench's"),
        ("return inputs[0] + 1e-6 * inputs[1]", TWO, "output 0 stays the same when input 1 alone is drawn anew"),
        ("return (inputs[0] / inputs[0].norm()).norm()", "[torch.randn(rows, cols)]", "when all inputs are drawn anew"),
        (
            "return inputs[0] * inputs[1]",
            "[torch.randn(rows, cols), torch.ones(cols)]",
            "input 1 is the same in every draw",
        ),
    ],
)
def test_degenerate_tasks_are_warned_of(tmp_path: Path, forward: str, inputs: str, warning: str) -> None:
    found = admitted(tmp_path, forward, inputs).warnings
    assert any(warning in text for text in found), found


LINEAR = "self.layer = nn.Linear(40, 40)"


@pytest.mark.parametrize(
    ("forward", "init", "reason"),
    [
        ("return inputs[0] * 0 + 3", "pass", "output 0: one number throughout passes for it"),
        ("return (self.layer(inputs[0]) * 0, inputs[0] > 1e9)", LINEAR, "output 0: zeros pass for it; output 1: zeros"),
        ("x = self.layer(inputs[0]); return (x - x.mean(-1, keepdim=True)).mean(-1)", LINEAR, "zeros pass for it"),
        ("x = inputs[0]; return torch.linalg.vector_norm(x / x.norm())", "pass", "one number throughout passes"),
        ("return (inputs[0].sign() * 0 + self.layer.weight[0])", LINEAR, "the same whatever the inputs are"),
        ("return inputs[0] + 1e-30 * self.layer(inputs[0])", LINEAR, "the same whatever the weights are"),
    ],
)
def test_a_task_that_tells_no_work_from_none_is_undecided(tmp_path: Path, forward: str, init: str, reason: str) -> None:
    found = admitted(tmp_path, forward, init=init)
    assert found.warnings and reason in found.undecided
    assert found.undecided in found.weaknesses.sentences[-1] and "earns a reward" in found.weaknesses.sentences[-1]


@pytest.mark.parametrize(
    ("forward", "init"),
    [
        ("return inputs[0] * 0 + 3, inputs[0] * 1e-5", "pass"),  # float64 tells zeros from small numbers
        ("return inputs[0] + self.scale * inputs[0].tanh()", "self.scale = nn.Parameter(torch.full((40,), 1e-8))"),
        ("return inputs[0] + torch.relu(self.layer(inputs[0]) - 20)", LINEAR),
        ("return inputs[0] * 2, inputs[0] > 1e9", "pass"),
        ("return inputs[0].square().mean()", "pass"),  # a single number is its own mean
        ("return nn.functional.cross_entropy(self.layer(inputs[0]), inputs[0].argmax(-1))", LINEAR),
    ],
)
def test_a_task_that_some_check_tells_from_none_is_not(tmp_path: Path, forward: str, init: str) -> None:
    assert admitted(tmp_path, forward, init=init).undecided == ""


def test_a_task_that_does_not_use_its_weights_is_warned_of(tmp_path: Path) -> None:
    init = "self.layer = nn.Linear(40, 40)"
    [warning] = admitted(tmp_path, "return inputs[0] + 1e-5 * self.layer(inputs[0])", init=init).warnings
    assert "output 0 stays the same with other weights" in warning
    assert admitted(tmp_path, "return self.layer(inputs[0])", init=init).warnings == ()
