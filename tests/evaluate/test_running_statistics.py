"""Running statistics, which torch's batch norms write into without their schemas' saying so."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from mtmc.evaluate.lab import LabSettings
from mtmc.evaluate.reference.reaching import UNDECLARED, Reaching, mutated
from mtmc.outcome import Outcome
from mtmc.protocols import EvaluationRequest
from mtmc.rewrite.exported import export_graph
from mtmc.rewrite.plan import graph_of, root_plan
from mtmc.rewrite.source import print_plan
from mtmc.task import Task, task_from_source
from tests.rewrite.stepping import after, version

MODULE = """
import torch
import torch.nn as nn

batch, size = 16, 32
VARIANTS = {"small": {"batch": 3, "size": 5}, "odd1": {"batch": 2, "size": 7}}


class Model(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.layer = nn.Conv2d(channels, 8, 3)
        self.norm = nn.BatchNorm2d(8)

    def forward(self, x):
        return torch.relu(self.norm(self.layer(x)))


def get_inputs():
    return [torch.randn(batch, 4, size, size)]


def get_init_inputs():
    return [4]
"""
CASES = {
    "batch_norm": MODULE,
    "one_dimension": MODULE.replace("self.layer(x)", "self.layer(x).flatten(2)").replace("BatchNorm2d", "BatchNorm1d"),
    "two_norms": MODULE.replace("self.norm(self.layer(x))", "self.norm(self.norm(self.layer(x)))"),
}


class Written(TorchDispatchMode):
    """Notes what ops write into."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[torch.Tensor] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        self.found += mutated(func._schema, args, kwargs or {})
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("training", [True, False])
def test_they_are_written_in_training_alone(training: bool) -> None:
    mean, var, x = torch.zeros(3), torch.ones(3), torch.randn(2, 3, 4)
    with Written() as seen, torch.no_grad():
        F.batch_norm(x, mean, var, training=training)
    assert ({id(mean), id(var)} <= {id(tensor) for tensor in seen.found}) is training
    with Reaching([x]) as ways, torch.no_grad():
        F.batch_norm(x, mean, var, training=training)
    assert ways.depends(mean) is training


def test_every_schema_that_keeps_silent_is_known() -> None:
    """All of torch's ops that take running statistics, but for those that hand the new ones out or write none."""
    silent = set[str]()
    for schema in torch._C._jit_get_all_schemas():
        given = [each.alias_info for each in schema.arguments if each.name == "running_mean"]
        apart = schema.overload_name.endswith("out") or "backward" in schema.name
        if given and not apart and not any(alias is not None and alias.is_write for alias in given):
            silent.add(schema.name)
    harmless = {name for name in silent if name.endswith(("_functional", "_no_training", "_no_update"))}
    assert {name for name in silent - harmless if name.startswith("aten::")} <= UNDECLARED


@pytest.fixture(scope="module")
def outcomes() -> dict[tuple[str, str], Outcome]:
    """What the lab makes of each reference, of a version by one action, and of one that forgets the statistics."""
    asked: dict[tuple[str, str], tuple[Task, str]] = {}
    for name, text in CASES.items():
        task = task_from_source(text, name)
        root = root_plan(export_graph(task))
        asked[name, "reference"] = task, text.replace("class Model(", "class ModelNew(")
        plan = after(version(task, root), "fuse")[1].plan
        asked[name, "version"] = task, print_plan(task, graph_of(export_graph(task), plan), plan).source
        lying = "F.batch_norm(y, None, None, self.norm.weight, self.norm.bias, True)"
        if name == "batch_norm":
            forward = f"y = self.layer(x)\n        return torch.relu(torch.nn.functional.{lying[2:]})"
            asked[name, "lying"] = (
                task,
                asked[name, "reference"][1].replace("return torch.relu(self.norm(self.layer(x)))", forward),
            )
    with LabSettings(workers=1).open() as lab:
        found = lab.evaluate([EvaluationRequest(task, text, 0, "screen") for task, text in asked.values()])
    return dict(zip(asked, found, strict=True))


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("what", ["reference", "version"])
def test_modules_in_training_are_evaluated(outcomes: dict[tuple[str, str], Outcome], name: str, what: str) -> None:
    assert outcomes[name, what].ok, outcomes[name, what].diagnosis


def test_what_forgets_them_is_refused(outcomes: dict[tuple[str, str], Outcome]) -> None:
    found = outcomes["batch_norm", "lying"]
    assert not found.ok and "norm.running_mean" in str(found.diagnosis)
