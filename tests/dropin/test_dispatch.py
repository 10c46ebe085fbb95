"""Kernels run for the calls that they hold for, and the original for every other: never a wrong result, never for good."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrize
from torch.utils._python_dispatch import TorchDispatchMode

from mtmc.dropin import drop_in
from mtmc.dropin.recent import Recent
from mtmc.task import Capture, capture_module
from tests.dropin.conftest import made
from tests.dropin.modules import BLOCK, COUNTER, Block, Counter

X = torch.linspace(-2, 2, 48).reshape(6, 8)
WANTING = X.clone().requires_grad_()
"""Of a form that no version is tried on before it is used."""


def by_kernels(block: nn.Module, *args: Any, **kwargs: Any) -> None:
    """The call runs kernels, with the original's result."""
    before = block.mtmc.kernel_calls
    with torch.no_grad():
        found = block(*args, **kwargs)
        wanted = Block.forward(block, *args, **kwargs)
    assert block.mtmc.kernel_calls == before + 1, dict(block.mtmc.reasons)
    assert found.dtype == wanted.dtype and torch.allclose(found, wanted, atol=1e-5)


def by_original(block: nn.Module, reason: str, call: Callable[[], Any]) -> Any:
    """The call runs the original alone, for a reason in these words."""
    before = block.mtmc.kernel_calls, block.mtmc.original_calls
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = call()
    assert (block.mtmc.kernel_calls, block.mtmc.original_calls) == (before[0], before[1] + 1)
    assert any(reason in each for each in block.mtmc.reasons), dict(block.mtmc.reasons)
    return found


@pytest.mark.parametrize(
    "call",
    [
        lambda b: b(X),
        lambda b: b(x=X),
        lambda b: b(X, 2.0, None, False),
        lambda b: b(X, twice=False, scale=2.0),
        lambda b: b(X[:1].repeat(5, 1)),
    ],
)
def test_the_examples_call_runs_kernels_however_it_is_written(block: Block, call: Callable[[Block], Any]) -> None:
    with torch.no_grad(), torch.inference_mode():
        call(block)
    assert (block.mtmc.kernel_calls, block.mtmc.original_calls) == (1, 0)


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        (lambda b: b(X, 3.0), "scale"),
        (lambda b: b(X, 2), "scale"),
        (lambda b: b(X, True), "scale"),
        (lambda b: b(X, twice=True), "twice"),
        (lambda b: b(X, add=X), "add"),
        (lambda b: b(X, add=1.0), "add"),
        (lambda b: b(X[None]), "3 dimensions"),
        (lambda b: b(X[0]), "1 dimensions"),
        (lambda b: b(X[:1]), "other sizes than were captured"),
        (lambda b: b(X[:0]), "other sizes than were captured"),
        (lambda b: b(X[:1].repeat(9, 1)), "other sizes than were captured"),
        (lambda b: b(X.t().contiguous().t()), "strides"),
        (lambda b: b(torch.stack([X, X], 1)[:, 0]), "strides"),
        (lambda b: b(nn.Buffer(X).as_subclass(Odd)), "Odd"),
        (lambda b: torch.vmap(b)(X[None]), "vmap"),
        (lambda b: torch.func.jvp(b, (X,), (X,)), "vmap"),
        (lambda b: torch.jit.trace(b, X, check_trace=False), "traced"),
        (lambda b: under(Watching(), b), "dispatch mode"),
        (lambda b: under(torch.autocast("cpu", torch.bfloat16), b), "autocast"),
    ],
)
def test_another_call_than_the_examples_runs_the_original(
    block: Block, call: Callable[[Block], Any], reason: str
) -> None:
    found = by_original(block, reason, lambda: call(block))
    with torch.no_grad():
        wanted = call(block.mtmc.original)
    for one, other in zip(*(each if isinstance(each, tuple) else (each,) for each in (found, wanted)), strict=True):
        if isinstance(one, torch.Tensor):
            assert one.dtype == other.dtype and torch.equal(one, other)
    by_kernels(block, X)


class Odd(torch.Tensor):
    """A tensor that is more than its memory."""


class Watching(TorchDispatchMode):
    """Sees every op."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


def under(mode: Any, block: nn.Module) -> Any:
    with mode:
        return block(X)


def test_what_the_original_refuses_is_refused_in_its_words(block: Block) -> None:
    for call in (lambda b: b(), lambda b: b(X, mask=X), lambda b: b(X.double()), lambda b: b(X.numpy())):
        errors = []
        for module in (block.mtmc.original, block):
            with pytest.raises((TypeError, RuntimeError)) as caught:
                call(module)
            errors.append(str(caught.value))
        assert errors[0] == errors[1]


def test_gradients_flow_as_through_the_original(block: Block) -> None:
    with pytest.warns(RuntimeWarning, match="gradients are wanted"):
        block(X).sum().backward()
    assert block.fc.weight.grad is not None
    frozen = block.requires_grad_(False)
    x = X.clone().requires_grad_()
    frozen(x).sum().backward()
    assert x.grad is not None
    assert frozen.mtmc.kernel_calls == 0
    assert not frozen(X).requires_grad and frozen.mtmc.kernel_calls == 1
    assert torch.is_grad_enabled()


def changed(change: Callable[[Block], Any]) -> Any:
    return pytest.param(change, id=change.__name__ if change.__name__ != "<lambda>" else None)


def low_rank(block: Block) -> None:
    inner = block.fc
    block.fc = nn.Sequential(inner, nn.Linear(8, 8))


def patched(block: Block) -> None:
    block.act.forward = lambda x: x


def parametrized(block: Block) -> None:
    parametrize.register_parametrization(block.fc, "weight", nn.Tanh())


def quantized(block: Block) -> None:
    block.fc.weight = nn.Parameter(block.fc.weight.detach().as_subclass(Odd), False)


def reconfigured(block: Block) -> None:
    block.config["width"] = 9


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda b: b.train(), "training mode"),
        (lambda b: b.act.train(), "act is in training mode"),
        (lambda b: b.fc.register_forward_hook(lambda m, a, y: y + 1), "fc has forward hooks"),
        (lambda b: b.act.register_forward_pre_hook(lambda m, a: (a[0] + 1,)), "act has forward hooks"),
        (low_rank, "replaced"),
        (patched, "forward of act"),
        (parametrized, "fc has another class"),
        (quantized, "Odd"),
        (reconfigured, "config"),
        (lambda b: setattr(b, "limit", 0.5), "limit"),
        (lambda b: b.double(), "float64"),
        (lambda b: b.to(torch.bfloat16), "bfloat16"),
        (lambda b: setattr(b.fc.weight, "data", b.fc.weight.data.t()), "strides"),
        (lambda b: setattr(b.fc, "bias", None), "lacks"),
    ],
)
def test_a_module_that_has_changed_runs_the_original(block: Block, change: Callable[[Block], Any], reason: str) -> None:
    by_kernels(block, X)
    change(block)
    dtype = block.shift.dtype
    found = by_original(block, reason, lambda: block(X.to(dtype)))
    with torch.no_grad():
        wanted = block.fc(X.to(dtype))
        wanted = block.act(wanted).clamp(max=block.limit) * 2 + block.shift
    assert torch.equal(found, wanted)


def test_what_is_changed_back_runs_kernels_again(block: Block) -> None:
    block.train()
    by_original(block, "training mode", lambda: block(X))
    by_kernels(block.eval(), X)
    handle = block.act.register_forward_hook(lambda m, a, y: None)
    by_original(block, "hooks", lambda: block(X))
    handle.remove()
    by_kernels(block, X)
    by_kernels(block.double().float(), X)


def test_global_hooks_reach_submodules(block: Block) -> None:
    seen = []
    handle = nn.modules.module.register_module_forward_hook(lambda m, a, y: seen.append(type(m)))
    try:
        by_original(block, "global hooks", lambda: block(X))
    finally:
        handle.remove()
    assert seen[:2] == [nn.Linear, nn.SiLU]


def test_kernels_read_the_tensors_that_the_module_has_now(block: Block) -> None:
    by_kernels(block, X)
    with torch.no_grad():
        block.fc.weight.mul_(2)
    by_kernels(block, X)
    block.load_state_dict(Block().state_dict(), assign=True)
    by_kernels(block, X)
    block.fc.weight = nn.Parameter(torch.eye(8))
    block.shift = torch.ones(8)
    by_kernels(block, X)
    block.fc.bias.data = torch.ones(8)
    by_kernels(block, X)


def test_a_plain_tensor_attribute_is_read_where_it_is_now() -> None:
    class Plain(Block):
        def __init__(self) -> None:
            super().__init__()
            del self.shift
            self.shift = torch.ones(8)

    module = Plain().eval()
    optimized = made(module, capture_module(module, X))
    optimized.shift = torch.linspace(0, 1, 8)
    by_kernels(optimized, X)


def test_a_launch_that_fails_is_never_tried_again_for_its_signature_and_others_are_unaffected(
    captured: Capture,
) -> None:
    source = BLOCK.replace("        x = torch", "        assert not x.requires_grad\n        x = torch")
    block = made(Block().eval(), captured, source)
    with torch.no_grad():
        with pytest.warns(RuntimeWarning, match="could not be launched: AssertionError"):
            by_original_result = block(WANTING)
        assert torch.equal(by_original_result, Block.forward(block, WANTING))
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # one warning for a reason
            block(WANTING)
    assert block.mtmc.original_calls == 2
    by_kernels(block, X)


def test_buffers_and_inputs_change_as_the_original_changes_them(counted: Capture) -> None:
    optimized = made(Counter(), counted, COUNTER)
    assert torch.equal(optimized.total, torch.zeros(8)), "trying it has left the module as it was"
    x, cache, other, others = torch.randn(3, 8), torch.ones(4), Counter(), torch.ones(4)
    for _ in range(3):
        assert torch.allclose(optimized(x, cache), other(x, others))
    assert torch.allclose(optimized.total, other.total) and torch.equal(cache, others)
    assert (optimized.mtmc.kernel_calls, optimized.mtmc.original_calls) == (3, 0)


def test_a_launch_that_fails_in_its_middle_leaves_no_half_changed_module(counted: Capture) -> None:
    source = COUNTER.replace("        y = torch", "        assert not x.requires_grad\n        y = torch")
    optimized = made(Counter(), counted, source)
    x, cache = torch.ones(5, 8, requires_grad=True), torch.ones(4)
    with torch.no_grad(), pytest.warns(RuntimeWarning, match="could not be launched"):
        optimized(x, cache)
    assert torch.equal(optimized.total, torch.full((8,), 5.0)) and torch.equal(cache, torch.full((4,), 2.0))


def test_tensors_that_share_memory_with_one_that_is_changed_run_the_original(counted: Capture) -> None:
    optimized = made(Counter(), counted, COUNTER)
    x = torch.ones(3, 8)
    by_original(optimized, "share memory", lambda: optimized(x, x[0, :4]))


def test_a_tensor_that_is_given_twice_runs_kernels() -> None:
    class Twice(Block):
        def forward(self, x: torch.Tensor, add: torch.Tensor) -> torch.Tensor:
            return super().forward(x) + add

    source = BLOCK.replace("def forward(self, x)", "def forward(self, x, add)").replace("return y", "return y + add")
    module = Twice().eval()
    optimized = made(module, capture_module(module, (X, X + 1)), source)
    for x, add in ((X, X), (X, X + 1), (X, X)):
        with torch.no_grad():
            assert torch.allclose(optimized(x, add), Twice.forward(optimized, x, add), atol=1e-6)
    assert (optimized.mtmc.kernel_calls, optimized.mtmc.original_calls) == (3, 0), dict(optimized.mtmc.reasons)


def test_reasons_are_counted_and_told_once(block: Block) -> None:
    with torch.no_grad(), warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        for _ in range(3):
            block(X[0])
            block(X, 3.0)
    assert len(told) == 2 and __file__ in {each.filename for each in told}
    assert sorted(block.mtmc.reasons.values()) == [3, 3]
    assert "kernels of 1 version" in repr(block.mtmc)


def test_without_a_version_the_reason_says_why(captured: Capture) -> None:
    optimized = drop_in(Block().eval(), captured, [], reason="nothing was faster")
    assert torch.equal(optimized(X), Block.forward(optimized, X))
    assert optimized.mtmc.reason == "nothing was faster" and optimized.mtmc.reasons == {"nothing was faster": 1}


def test_a_form_with_one_tensor_twice_is_found_again() -> None:
    recent, x, y = Recent(), torch.zeros(3, 4), torch.zeros(5)
    recent.keep((x, x, y), "kept")
    other = torch.ones(3, 4)
    assert recent.find((x, x, y)) == recent.find((other, other, y.clone())) == "kept"
    for tensors in ((x, x.clone(), y), (x, x, y.double()), (x[:2], x[:2], y), (y, y, x)):
        assert recent.find(tensors) is None
