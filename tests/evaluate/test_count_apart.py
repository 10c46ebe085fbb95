"""A version's host code has no say in what it is counted to: whatever it does to its own process, the count is the same, or
there is none.

The sources here go past the audit on purpose, straight to the jobs that count.
"""

from __future__ import annotations

import ast
import math
from dataclasses import replace
from typing import Any

import pytest
import triton
import triton.language as tl
from triton.runtime import interpreter

from mtmc.evaluate.compiling.build import Built, compiled
from mtmc.evaluate.counting.count import Counted
from mtmc.evaluate.counting.kernel_text import attribute, refuse_host_code
from mtmc.evaluate.counting.program import UncountableError
from mtmc.evaluate.counting.refusals import other_launches
from mtmc.evaluate.lab import LabEvaluator
from mtmc.outcome import Outcome
from mtmc.protocols import EvaluationRequest
from mtmc.task import task_from_source

TASK = task_from_source(
    """
import torch
from torch import nn

rows = 256


class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x) * 3.0


def get_inputs():
    return [torch.randn(rows, 4096)]


def get_init_inputs():
    return []
""",
    "apart",
)
SOURCE = """
import gc
import sys

import torch
import triton
import triton.language as tl
from torch import nn

SCALE = tl.constexpr(3.0)


@triton.jit
def part(x):
    return tl.maximum(x, 0.0) * SCALE


@triton.jit
def kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + at, part(tl.load(x_ptr + at, mask=at < n)), mask=at < n)


def tamper():
    {tamper}


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        {before}
        kernel[(triton.cdiv(x.numel(), 1024),)](x, out, x.numel(), BLOCK=1024)
        {after}
        return out
"""
PATCHES_THE_METER = """
    meter = sys.modules["mtmc.evaluate.counting.meter"]
    meter.count_sectors = lambda *rest: 0
    meter.Meter._spend = lambda *rest, **named: None
"""
EDITS_RECORDS_IN_FRAMES = """
    frame = sys._getframe()
    while frame is not None:
        for each in list(frame.f_locals.values()):
            for record in each if type(each) is list else ():
                if type(record) is dict and "sector_read" in record:
                    record.update(sector_read=0, sector_written=0, unique_read=0, flops=0)
        frame = frame.f_back
"""
LOSES_STORAGES = """
    for each in gc.get_objects():
        if type(each).__name__ == "Storages":
            type(each).find = lambda storages, address: None
"""
SHRINKS_STORAGES = """
    for each in gc.get_objects():
        if type(each).__name__ == "Storages":
            each.sizes[:] = [4096] * len(each.sizes)
"""
ANSWERS_BY_ITSELF = """
    sys.modules["mtmc.evaluate.pool.server"].asdict = lambda value: {"records": [], "inputs": [1]}
"""
LAUNCHES_LESS = """
    for each in gc.get_objects():
        if type(each).__name__ == "Asked":
            object.__setattr__(each, "grid", (1, 1, 1))
"""
SAYS_ANOTHER_CONSTANT = """
    for each in gc.get_objects():
        if type(each).__name__ == "Asked":
            each.kernel.values["part"]["function"]["values"]["SCALE"]["constexpr"] = 0.0
"""
TELLS_OF_DATA_THAT_IS_NOT_THERE = """
    noting = sys.modules["mtmc.evaluate.counting.noting"]
    noting._Notes._known = lambda notes: (noting.Known(1, "float32", 0, 64),)
"""
NO_EFFECT = [("before", PATCHES_THE_METER), ("after", EDITS_RECORDS_IN_FRAMES), ("before", LOSES_STORAGES)]
REFUSED = [("after", SHRINKS_STORAGES), ("before", ANSWERS_BY_ITSELF), ("before", TELLS_OF_DATA_THAT_IS_NOT_THERE)]
OTHER_LAUNCHES = [("after", LAUNCHES_LESS), ("after", SAYS_ANOTHER_CONSTANT)]


def version(when: str = "", what: str = "pass") -> EvaluationRequest:
    calls = {name: "tamper()" if name == when else "" for name in ("before", "after")}
    source = SOURCE
    for name, text in {**calls, "tamper": what.strip()}.items():
        source = source.replace(f"{{{name}}}", text)
    return EvaluationRequest(TASK, source)


def counted(lab: LabEvaluator, request: EvaluationRequest) -> Counted | Outcome:
    return lab._counted(request, TASK.full, {"autotuned": {}}, {"least_bytes": 1, "secret": 3})


@pytest.fixture(scope="module")
def honest(usual_lab: LabEvaluator) -> Counted:
    found = counted(usual_lab, version())
    assert isinstance(found, Counted)
    (record,) = found.records
    assert "kernel" in record and record["unique_read"] == record["unique_written"] == 4 * 256 * 4096
    return found


@pytest.mark.parametrize(("when", "what"), NO_EFFECT)
def test_the_count_is_that_of_honest_work(usual_lab: LabEvaluator, honest: Counted, when: str, what: str) -> None:
    assert counted(usual_lab, version(when, what)) == honest


@pytest.mark.parametrize(("when", "what"), REFUSED)
def test_there_is_no_count(usual_lab: LabEvaluator, when: str, what: str) -> None:
    found = counted(usual_lab, version(when, what))
    assert isinstance(found, Outcome) and found.status == "crash", found


@pytest.fixture(scope="module")
def built(usual_lab: LabEvaluator) -> Built:
    request = version()
    arguments = {"task": request.task, "source": request.source, "target_name": "sm_90"}
    found = usual_lab._build.run(compiled, arguments).value
    assert isinstance(found, Built)
    return found


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("tl.load(x_ptr + at, mask=at < n)", "tl.load(x_ptr + at, mask=at < n, other=-np.inf)"),
        ("* SCALE", "* (SCALE + 0 * torch.pi)"),
        pytest.param(
            "mask=at < n)",
            "mask=0 <= at < n)",
            marks=pytest.mark.skipif(
                not hasattr(interpreter, "_InterpreterComparison"), reason="this Triton has no such chains"
            ),
        ),
    ],
)
def test_numbers_of_other_modules_and_chains_of_comparisons(
    usual_lab: LabEvaluator, honest: Counted, old: str, new: str
) -> None:
    assert old in SOURCE
    request = version()
    text = "import numpy as np\n" + request.source.replace(old, new, 1)
    found = counted(usual_lab, replace(request, source=text))
    assert isinstance(found, Counted), found
    (mine,), (theirs,) = found.records, honest.records
    assert mine["unique_read"] == theirs["unique_read"] and mine["unique_written"] == theirs["unique_written"]


def test_what_is_kept_of_inputs_is_counted_as_if_it_were_not(usual_lab: LabEvaluator, honest: Counted) -> None:
    """A version that asks for `_version` is counted at its second call, whose inputs are others."""
    request = version("before", "pass")
    keyed = (
        "key = (id(x), x.data_ptr(), x._version)\n"
        "        if getattr(self, 'kept', (None, None))[0] == key:\n"
        "            return self.kept[1] + 0 * x\n        out ="
    )
    text = request.source.replace("out =", keyed, 1).replace("return out", "self.kept = key, out\n        return out")
    found = counted(usual_lab, replace(request, source=text))
    assert "self.kept = key" in text and isinstance(found, Counted), found
    assert [record.get("kernel") for record in found.records] == ["kernel"]


def test_functions_of_other_modules_are_none_of_a_kernels(usual_lab: LabEvaluator) -> None:
    request = version()
    text = "import numpy as np\n" + request.source.replace("* SCALE", "* SCALE + np.load('/etc/passwd')", 1)
    found = counted(usual_lab, replace(request, source=text))
    assert isinstance(found, Outcome) and found.diagnosis is not None and found.diagnosis.kind == "NameError"


def test_what_was_built_is_what_is_counted(built: Built, honest: Counted) -> None:
    assert other_launches(built, honest) is None
    other = replace(built, launches=tuple(replace(each, function="another") for each in built.launches))
    assert other_launches(other, honest) is not None


@pytest.mark.parametrize(("when", "what"), OTHER_LAUNCHES)
def test_what_is_told_of_launches_must_be_what_was_built(
    usual_lab: LabEvaluator, built: Built, honest: Counted, when: str, what: str
) -> None:
    found = counted(usual_lab, version(when, what))
    assert isinstance(found, Counted) and found != honest
    outcome = other_launches(built, found)
    assert outcome is not None and outcome.diagnosis is not None and outcome.diagnosis.kind == "OtherLaunches"


@pytest.mark.parametrize(
    "line",
    [
        "import gc",
        "x.handle.data.fill(0)",
        "x.handle = 0",
        "y = getattr(x, 'to').__globals__",
        "y = tl.core.inspect",
        "y = triton.runtime",
        "y = tl.core",
        "y = [tl][0].core.builtins",
        "y = tl.target_info.driver.active",
        "y = interpreter_semantic.builder",
        "y = __import__('gc')",
        "f = lambda: x",
        "y = helper.fn",
    ],
)
def test_a_kernel_that_is_more_than_triton_is_refused(line: str) -> None:
    names: dict[str, Any] = {"tl": tl, "triton": triton, "math": math, "helper": object()}
    kernel = "def kernel(x, DEAD: tl.constexpr):\n    for _ in range(2):\n        x += tl.exp(x) * triton.cdiv(4, 2)\n"
    (plain,) = ast.parse(kernel).body
    assert isinstance(plain, ast.FunctionDef)
    refuse_host_code(plain, names)
    (other,) = ast.parse(f"{kernel}    if DEAD:\n        {line}\n").body
    assert isinstance(other, ast.FunctionDef)
    with pytest.raises(UncountableError, match="no part of Triton's language"):
        refuse_host_code(other, names)


def test_attributes_by_their_names_are_held_to_the_same() -> None:
    assert attribute(tl, "float32") == "float32"
    for owner, name in (
        (tl, "_experimental"),
        (object(), "handle"),
        (tl, "core"),
        (tl.core, "builtins"),
        (triton, "runtime"),
    ):
        with pytest.raises(UncountableError, match="nothing that a kernel needs"):
            attribute(owner, name)
