"""What forward reads besides tensors and submodules: kernels have it as it was at capture, and where it is another now the
original runs, eagerly and as the compiler sees it."""

from __future__ import annotations

import copy
import gc
import warnings
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from mtmc.errors import TaskError
from mtmc.task import capture_module
from tests.dropin.conftest import made
from tests.dropin.modules import BLOCK, Block

X = torch.linspace(-2, 2, 48).reshape(6, 8)
FACTOR = 1.0
TABLE = torch.ones(8)


class Gain:
    """An activation that is no module."""

    def __init__(self) -> None:
        self.slope = 1.0

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.slope


def scaled(x: torch.Tensor) -> torch.Tensor:
    return x * FACTOR


class Deep(Block):
    """A `Block` times many ones."""

    gain = 1.0

    def __init__(self) -> None:
        super().__init__()
        self.options: dict[str, Any] = {"inner": {"factors": [1.0]}}
        self.settings = SimpleNamespace(inner=SimpleNamespace(factor=1.0))
        self.pairs = ([1.0], 2)
        self.apply_gain = Gain()

    @property
    def factor(self) -> float:
        return self.options["inner"]["factors"][0] * self.settings.inner.factor * self.pairs[0][0]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return scaled(self.apply_gain(super().forward(x) * self.factor * self.gain))


class Tied(Block):
    """A `Block` that reads its weight and its buffer at two places."""

    def __init__(self) -> None:
        super().__init__()
        self.again = nn.Linear(8, 8, bias=False)
        self.again.weight = self.fc.weight
        self.register_buffer("second", self.shift)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x) + (self.again.weight - self.fc.weight).sum(0) + (self.second - self.shift)


@pytest.fixture
def deep() -> Iterator[Any]:
    module = Deep().eval()
    torch.compiler.reset()
    yield made(module, capture_module(module, X))
    torch.compiler.reset()


@pytest.fixture
def tied() -> Any:
    module = Tied().eval()
    source = (
        BLOCK.replace("fc_weight", "again_weight").replace("self.shift", "self.second").replace('"shift"', '"second"')
    )
    return made(module, capture_module(module, X), source)


def original(block: Any, reason: str, compiled: bool = False) -> None:
    """A call runs the original, for a reason in these words, and so does what is compiled."""
    kernels = block.mtmc.kernel_calls
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        wanted = block.mtmc.original(X)
        assert torch.equal(block(X), wanted)
        if compiled:
            assert torch.allclose(torch.compile(block, backend="eager")(X), wanted)
    assert block.mtmc.kernel_calls == kernels
    assert any(reason in each for each in block.mtmc.reasons), dict(block.mtmc.reasons)


def kernels(block: Any) -> None:
    """A call runs kernels, with the original's result."""
    before = block.mtmc.kernel_calls
    with torch.no_grad():
        assert torch.allclose(block(X), type(block.mtmc.original).forward(block, X), atol=1e-5)
    assert block.mtmc.kernel_calls == before + 1, dict(block.mtmc.reasons)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda b: b.options["inner"]["factors"].append(2.0), "options"),
        (lambda b: b.options["inner"].update(factors=[3.0]), "options"),
        (lambda b: b.options["inner"]["factors"].__setitem__(0, 3.0), "options"),
        (lambda b: b.pairs[0].append(3.0), "pairs"),
        (lambda b: setattr(b.settings.inner, "factor", 3.0), "factor of settings.inner"),
        (lambda b: setattr(b.apply_gain, "slope", 3.0), "slope of apply_gain"),
    ],
)
def test_what_lies_deep_in_attributes_is_looked_at(deep: Any, change: Callable[[Any], Any], reason: str) -> None:
    kernels(deep)
    with torch.no_grad():
        torch.compile(deep, backend="eager")(X)
    change(deep)
    original(deep, reason, compiled=True)


def test_a_value_of_the_class_that_forward_names_is_looked_at(deep: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    kernels(deep)
    monkeypatch.setattr(Deep, "gain", 3.0)
    original(deep, "gain", compiled=True)
    monkeypatch.undo()
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    kernels(deep)


def test_a_value_of_the_file_that_a_function_of_it_names_is_looked_at(
    deep: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernels(deep)
    monkeypatch.setitem(scaled.__globals__, "FACTOR", 3.0)
    original(deep, "FACTOR")


def test_another_default_dtype_runs_the_original(deep: Any) -> None:
    torch.set_default_dtype(torch.float64)
    try:
        original(deep, "default dtype", compiled=True)
    finally:
        torch.set_default_dtype(torch.float32)
    kernels(deep)


@pytest.mark.parametrize("name", ["again.weight", "fc.weight", "second", "shift"])
@pytest.mark.parametrize("copied", [False, True])
def test_a_tensor_at_two_places_that_becomes_two_runs_the_original(tied: Any, name: str, copied: bool) -> None:
    kernels(tied)
    owner, _, attribute = name.rpartition(".")
    held = getattr(tied.get_submodule(owner), attribute)
    with torch.no_grad():
        changed = nn.Parameter(held * 2) if isinstance(held, nn.Parameter) else held * 2
    setattr(tied.get_submodule(owner), attribute, changed)
    tied = copy.deepcopy(tied) if copied else tied
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert torch.equal(tied(X), Tied.forward(tied, X))
        assert torch.allclose(torch.compile(tied, backend="eager")(X), Tied.forward(tied, X))
    assert any("no longer one tensor" in each for each in tied.mtmc.reasons)


def test_a_tensor_at_two_places_may_change_as_one(tied: Any) -> None:
    with torch.no_grad():
        tied.again.weight.mul_(2)
    kernels(tied)
    weight = nn.Parameter(torch.eye(8))
    tied.fc.weight, tied.again.weight = weight, weight
    kernels(tied)
    kernels(copy.deepcopy(tied))
    tied.load_state_dict(Tied().state_dict(), assign=True)
    kernels(tied)


class AsksForMode(Block):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x) * (3.0 if torch.is_grad_enabled() else 1.0)


def test_a_forward_that_asks_for_the_gradient_mode_runs_kernels_in_that_of_the_capture_alone() -> None:
    module = AsksForMode().eval().requires_grad_(False)
    block = made(module, capture_module(module, X))
    kernels(block)
    with pytest.warns(RuntimeWarning, match="gradient mode"):
        assert torch.equal(block(X), AsksForMode.forward(block, X))
    assert torch.allclose(torch.compile(block, backend="eager")(X), AsksForMode.forward(block, X))
    assert block.mtmc.kernel_calls == 1
    kernels(block)


class InAList(Block):
    def __init__(self) -> None:
        super().__init__()
        self.layers = [nn.Linear(8, 8)]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(self.layers[0](x))


class InAClosure(Block):
    def __init__(self) -> None:
        super().__init__()
        table = torch.ones(8)
        self.scale = lambda x: x * table

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(self.scale(x))


class InAnObject(Block):
    def __init__(self) -> None:
        super().__init__()
        self.tables = SimpleNamespace(first=torch.ones(8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x * self.tables.first)


class InTheFile(Block):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x * TABLE)


@pytest.mark.parametrize("kind", [InAList, InAClosure, InAnObject, InTheFile])
def test_a_tensor_that_is_not_the_modules_own_is_refused(kind: type[Block]) -> None:
    with pytest.raises(TaskError, match="does not hold as its own"):
        capture_module(kind().eval(), X)


def test_a_tensor_is_found_that_the_collector_no_longer_sees() -> None:
    """As in a server that has frozen what it loaded before it forks."""
    module = InAnObject().eval()
    before = gc.get_freeze_count()
    gc.freeze()
    with pytest.raises(TaskError, match="does not hold as its own"):
        capture_module(module, X)
    assert gc.get_freeze_count() > before


class OwnConstant(Block):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x * torch.tensor([1.0] * 8))


class Listed(Block):
    def __init__(self) -> None:
        super().__init__()
        self.layers = [nn.Identity(), nn.Softplus()]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(self.layers[0](x))


def test_a_tensor_that_forward_makes_is_a_constant() -> None:
    capture = capture_module(OwnConstant().eval(), X)
    assert "lifted_tensor_0" not in capture.places and "lifted_tensor_0" in capture.task.source


def test_layers_in_a_list_are_looked_at_as_submodules_are() -> None:
    module = Listed().eval()
    block = made(module, capture_module(module, X))
    kernels(block)
    handle = block.layers[0].register_forward_hook(lambda module, args, result: result + 1)
    original(block, "layers.0 has forward hooks")
    handle.remove()
    kernels(block)
    block.layers[0] = nn.ReLU()
    original(block, "layers")
