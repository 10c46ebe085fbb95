"""CUDA graphs of versions beside other graphs of the process, on a GPU: the memory that a graph works in is its own.

cuBLAS keeps working memory for each stream. Made during a capture it lies among the memory of that graph; what is captured
later on the same stream is given it too, and reads or writes where nothing is once the first graph has gone. A failed launch
ends a process, so each case has one of its own.
"""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

from mtmc.rewrite.exported import export_graph
from mtmc.rewrite.source import print_plan
from mtmc.task import task_from_source
from tests.rewrite.test_cuda_graph import captured

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")

DEEP = """
import torch
from torch import nn

rows = 16
VARIANTS = {"small": {"rows": 8}, "odd1": {"rows": 5}}


class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(width, width, False).bfloat16() for _ in range(4)])

    def forward(self, x, y):
        for layer in self.layers:
            x = torch.relu(layer(x)) + y
        return x, x * 2


def get_inputs():
    return [torch.randn(rows, 4096).bfloat16(), torch.randn(rows, 4096).bfloat16()]


def get_init_inputs():
    return [4096]
"""
"""Few rows and long sums: cuBLAS adds up parts in its working memory."""
CASES = {
    "another graph goes": """
first, kept = made(), made()
check(first), check(kept)
del first
reclaim()
check(kept)
""",
    "weights are replaced": """
other, kept = made(), made()
check(other), check(kept)
for layer in kept.layers:
    layer.weight = torch.nn.Parameter(torch.randn_like(layer.weight))
check(kept)
del other
reclaim()
check(kept)
""",
    "torch.compile makes graphs": """
first, kept = made(), made()
check(first), check(kept)
del first
net = torch.nn.Sequential(torch.nn.Linear(4096, 4096), torch.nn.Linear(4096, 4096)).bfloat16().cuda()
compiled = torch.compile(net, mode="reduce-overhead")
for _ in range(4):
    torch.compiler.cudagraph_mark_step_begin()
    compiled(torch.randn(16, 4096, device="cuda").bfloat16())
reclaim()
check(kept)
""",
    "two streams": """
one = made()
streams = [torch.cuda.Stream() for _ in range(2)]
x, y = inputs()
torch.cuda.synchronize()
wanted = one.launches(x, y)[0]
for stream in streams:
    with torch.cuda.stream(stream):
        one(x, y)
torch.cuda.synchronize()
for _ in range(200):
    found = []
    for stream in streams:
        with torch.cuda.stream(stream):
            found.append(one(x, y)[0])
    torch.cuda.synchronize()
    for each in found:
        torch.testing.assert_close(each, wanted, rtol=2e-2, atol=2e-1)
""",
    "graphs come and go": """
before = None
for number in range(12):
    check(made())
    reclaim()
    before = torch.cuda.memory_reserved() if number == 2 else before
assert torch.cuda.memory_reserved() <= before + 2**26, (before, torch.cuda.memory_reserved())
""",
}
PREPARED = """
import gc
import sys

import torch

sys.path.insert(0, sys.argv[1])
from version import ModelNew

torch.set_grad_enabled(False)


def inputs():
    return [torch.randn(16, 4096, device="cuda").bfloat16() for _ in range(2)]


def made():
    return ModelNew(4096).cuda()


def reclaim():
    gc.collect()
    torch._C._cuda_clearCublasWorkspaces()
    torch.cuda.empty_cache()


def check(model):
    x, y = inputs()
    for found, wanted in zip(model(x, y), model.launches(x, y), strict=True):
        torch.testing.assert_close(found, wanted, rtol=2e-2, atol=2e-1)
    torch.cuda.synchronize()
"""


def outcome(case: str, text: str, folder: object) -> str:
    """ "" where a case ends well with a version of this text, else the end of what it says."""
    with open(f"{folder}/version.py", "w", encoding="utf-8") as file:
        file.write(text)
    with open(f"{folder}/case.py", "w", encoding="utf-8") as file:
        file.write(PREPARED + CASES[case])
    done = subprocess.run([sys.executable, f"{folder}/case.py", str(folder)], capture_output=True, text=True)
    return "" if done.returncode == 0 else (done.stderr or f"ended with {done.returncode}")[-2000:]


@pytest.fixture(scope="module")
def text() -> str:
    plan = captured(DEEP)
    assert plan is not None
    task = task_from_source(DEEP, "deep")
    return print_plan(task, export_graph(task), plan).source


@pytest.mark.parametrize("case", CASES)
def test_a_graph_lives_beside_others(case: str, text: str, tmp_path: object) -> None:
    assert outcome(case, text, tmp_path) == ""
