"""A GPU that is not there: what a version in the lab is told, and graphs that are replayed."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from mtmc.evaluate.compiling.pretended import on_host, pretended_gpu, settle
from mtmc.evaluate.compiling.pretended_graph import NAMES, Journal
from mtmc.evaluate.compiling.stand_in import replacements
from mtmc.evaluate.compiling.target import install_driver, target
from mtmc.evaluate.loading.fake import FakeMode

TRUE = (
    "x.is_cuda and not x.is_cpu and x.device == torch.device('cuda', 0) and x.get_device() == 0",
    "x.cuda() is x and x.to('cuda') is x and x.to(0) is x and x.to(device='cuda:0') is x",
    "not x.cpu().is_cuda and x.cpu().cuda().is_cuda and x.cpu() is not x",
    "torch.empty(2, device='cuda').is_cuda and not torch.empty(2).is_cuda and torch.empty(2).cuda().is_cuda",
    "torch.empty_like(x).is_cuda and x.new_empty(2).is_cuda and (x + 1).is_cuda and x.t()[1:].is_cuda",
    "torch.zeros(2, device=x.device).device == x.device and not torch.zeros(2, device='cpu').is_cuda",
    "x.to(torch.float64).is_cuda and torch.arange(3).to(x).is_cuda and (torch.arange(3) + 1).device.type == 'cpu'",
    "x.type() == 'torch.cuda.FloatTensor' and torch.nn.Linear(3, 4).cuda().weight.is_cuda",
    "torch.nn.functional.softmax(x, -1).device.type == 'cuda'",
    "torch.nn.LSTM(3, 3).cuda()(torch.empty(2, 1, 3, device='cuda'))[0].is_cuda",
    "torch.cuda.is_available() and torch.version.cuda and torch.cuda.current_stream().cuda_stream == 0",
    "torch.cuda.get_device_properties(x.device).multi_processor_count == 132 and torch.cuda.device_count() == 1",
    "in_context(lambda: torch.empty(2).is_cuda) and x.record_stream(torch.cuda.current_stream()) is None",
)
MODULE = """
import torch

def in_context(ask):
    with torch.device("cuda"), torch.cuda.device(0):
        return ask()

def answer(x):
    return bool({})
"""


@pytest.fixture(autouse=True)
def driver() -> Iterator[None]:
    import triton

    before, names = triton.runtime.driver._active, dict(vars(torch.cuda))
    install_driver(target("sm_90"), 132)
    yield
    triton.runtime.driver._active = before
    for name, value in names.items():
        setattr(torch.cuda, name, value)


def module(text: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    exec(compile(text, "/job/mtmc_candidate.py", "exec"), found)
    return found


@pytest.mark.parametrize("mode", [contextlib.nullcontext, FakeMode])
def test_a_version_finds_itself_on_a_gpu(mode: Callable[[], Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.utils, "weakref", type("NoReferences", (), {"getweakrefs": lambda tensor: ()}))
    with mode(), torch.no_grad():
        x = torch.randn(3, 4)
        for text in TRUE:
            asked = module(MODULE.format(text))["answer"]
            with pretended_gpu():
                assert asked(x), text
        assert not x.is_cuda and x.device.type == "cpu"
    assert torch.version.cuda is None or torch.cuda.is_available()


def test_memory_of_a_gpu_is_no_numpy_array() -> None:
    read = module("def read(x): return x.numpy()")["read"]
    x = torch.ones(2)
    with pretended_gpu(), pytest.raises(TypeError, match="cuda:0"):
        read(x)


def test_what_a_constructor_makes_is_on_the_gpu_and_the_rest_on_the_host() -> None:
    text = "import torch\nclass M(torch.nn.Module):\n  def __init__(self):\n    super().__init__()\n"
    text += "    self.a = torch.ones(2)\n    self.b = torch.ones(2, device='cpu')\n    self.c = self.a.is_cuda\n"
    made = module(text)["M"]
    with pretended_gpu(constructing=True):
        model = made()
    assert model.c and not on_host(model.a) and on_host(model.b)
    settle(model)
    assert not on_host(model.b)
    with pretended_gpu():
        assert on_host(torch.ones(2)) and not on_host(torch.ones(2).cuda())


CAPTURED = """
import torch

def capture(x):
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = torch.empty_like(x)
        y.copy_(x.relu() + 1)
        z = y.t().sum(0)
    return graph, z
"""


def test_a_graph_does_again_what_was_captured(tmp_path: Path) -> None:
    noted: list[str] = []
    x = torch.tensor([[1.0, -2.0], [3.0, 4.0]])
    with torch.no_grad(), pretended_gpu(journal=Journal(noted, lambda entries, graph: entries.append(str(graph)))):
        graph, z = module(CAPTURED)["capture"](x)
        assert not torch.cuda.is_current_stream_capturing() and noted == []
        x.copy_(torch.ones(2, 2))
        graph.replay()
    assert z.tolist() == [4.0, 4.0] and noted == ["[]"]


def test_each_name_has_a_stand_in_of_its_own() -> None:
    """torch keeps rules by object: where its compiler is imported while these stand, it refuses one that has two."""
    names = {**replacements(True), **NAMES}
    assert len({id(value) for value in names.values()}) == len(names)
    assert issubclass(names["ExternalStream"], names["Stream"])
    ranges = vars(names["nvtx"]).values()
    assert len({id(value) for value in ranges}) == len(ranges)
