"""Arguments and results of a live module's call: what is a tensor, what is fixed, and what no capture can follow."""

from __future__ import annotations

import enum
import functools
from collections import OrderedDict, namedtuple
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import nn

from mtmc.errors import TaskError
from mtmc.task import Slot, capture_module
from mtmc.task.live_call import bind_call, matched, restore, same_call, slotted
from tests.task.printed import printed

Pair = namedtuple("Pair", "left right")
X, Y = torch.randn(6, 8), torch.randn(6, 8)


@dataclass
class Points:
    at: torch.Tensor
    scale: float = 1.0


class Mode(enum.Enum):
    ADD = 1
    SUBTRACT = 2


class Everything(nn.Module):
    def forward(
        self, x: torch.Tensor, bias: Any = None, mask: Any = None, scale: Any = 1.0, *rest: Any, **more: Any
    ) -> Any:
        x = x * scale if mask is None else x * mask * scale
        x = x + sum(rest, torch.zeros(())) if bias is None else x + bias
        if "points" in more:
            x = x + more["points"].at * more["points"].scale
        if "pairs" in more:
            x = x + more["pairs"][0].left - more["pairs"][0].right["deep"]
        return x.to(more["dtype"]) if "dtype" in more else x


CALLS: dict[str, tuple[tuple[Any, ...], dict[str, Any]]] = {
    "plain": ((X,), {}),
    "scalar": ((X, None, None, 2.0), {}),
    "bias": ((X, Y), {}),
    "mask by name": ((X,), {"mask": Y}),
    "more": ((X, None, None, 1.0, Y, Y), {}),
    "data class": ((X,), {"points": Points(Y, 3.0)}),
    "nested": ((X,), {"pairs": [Pair(X, {"deep": Y})]}),
    "dtype": ((X,), {"dtype": torch.float64}),
}


@pytest.mark.parametrize("kind", CALLS)
def test_a_call_of_any_form_is_captured_and_only_its_like_is_the_same(kind: str) -> None:
    args, kwargs = CALLS[kind]
    module = Everything()
    capture = capture_module(module, args, kwargs)
    model, inputs = printed(capture.task)
    live = capture.call.with_tensors(inputs)
    assert torch.allclose(model(*inputs), module(*live.args, **live.kwargs))
    for other in CALLS:
        reason = same_call(capture.call, bind_call(module, *CALLS[other]))
        assert (reason is None) == (other == kind), reason


@pytest.mark.parametrize(
    ("args", "kwargs", "reason"),
    [
        ((X, None, None, 2.0), {}, "scale is 2.0 instead of 1.0"),
        ((X, None, None, 1), {}, "scale is 1 instead of 1.0"),
        ((X, None, None, True), {}, "scale is True instead of 1.0"),
        ((X, None, None, X), {}, "scale is a tensor instead of 1.0"),
        ((X, Y), {}, "bias is a tensor instead of None"),
        ((X,), {"other": 3}, "the call has 'other' besides"),
        ((X, None, None, 1.0, Y), {}, "5 positional arguments instead of 4"),
    ],
)
def test_the_first_difference_of_a_call_is_named(args: Any, kwargs: Any, reason: str) -> None:
    module = Everything()
    example = bind_call(module, (X,), {})
    assert same_call(example, bind_call(module, args, kwargs)) == reason
    assert same_call(example, bind_call(module, (), {"scale": 1.0, "mask": None, "x": Y})) is None


def test_a_none_where_a_tensor_was_and_other_keys_are_differences_at_any_depth() -> None:
    class Deep(nn.Module):
        def forward(self, x: dict[str, Any], mode: Mode = Mode.ADD, flag: float = 0.0) -> Any:
            return x["a"]

    module = Deep()
    example = bind_call(module, ({"a": X, "b": [Y, None, "s"]},), {})
    cases = {
        "x['b'][0] is None instead of a tensor": {"a": X, "b": [None, None, "s"]},
        "x['b'][2] is 't' instead of 's'": {"a": X, "b": [Y, None, "t"]},
        "x lacks 'b'": {"a": X},
        "x['b'] has 3 besides": {"a": X, "b": [Y, None, "s", 4]},
        "x['b'] is a tuple instead of a list": {"a": X, "b": (Y, None, "s")},
    }
    for reason, value in cases.items():
        assert same_call(example, bind_call(module, (value,), {})) == reason
    assert same_call(example, bind_call(module, ({"a": X, "b": [Y, None, "s"]}, Mode.SUBTRACT), {})) is not None
    assert same_call(example, bind_call(module, ({"a": X, "b": [Y, None, "s"]}, Mode.ADD, -0.0), {})) is not None
    turned = bind_call(module, ({"b": [Y, None, "s"], "a": X},), {})
    tensors = matched(example, turned)
    assert not isinstance(tensors, str) and tensors[0] is X and tensors[1] is Y


def test_structures_are_restored_with_their_types() -> None:
    structure = {
        "pair": Pair(X, 1),
        "ordered": OrderedDict(a=[X, None], b="s"),
        "points": Points(Y, 2.0),
        "size": torch.Size([1, 2]),
    }
    slots = slotted(structure)
    assert slots["ordered"]["a"][0] == Slot(1) and slots["points"].scale == 2.0
    again = restore(slots, [Y, X, X])
    assert again["pair"] == (Y, 1) and type(again["pair"]) is Pair and again["points"].at is X
    assert type(again["ordered"]) is OrderedDict and again["ordered"]["a"][0] is X and again["size"] == (1, 2)
    assert structure["points"].at is Y


class Store:
    """A cache: it holds tensors, and forward puts more there."""

    def __init__(self, *tensors: torch.Tensor) -> None:
        self.tensors = list(tensors)


class UsesStore(nn.Module):
    def forward(self, x: torch.Tensor, store: Any = None, give: bool = False) -> Any:
        if store is not None:
            store.tensors.append(x)
        return (x * 2, Store(x)) if give else x * 2


def test_objects_that_hold_tensors_are_refused_and_stay_as_they_were() -> None:
    full, empty = Store(X), Store()
    with pytest.raises(TaskError, match=r"argument store is a Store that holds tensors.*call with use_cache=False"):
        capture_module(UsesStore(), (X, full))
    with pytest.raises(TaskError, match="after the call, argument store is a Store that holds tensors"):
        capture_module(UsesStore(), (X, empty))
    with pytest.raises(TaskError, match=r"output\[1\] is a Store that holds tensors"):
        capture_module(UsesStore(), (X,), {"give": True})
    assert len(full.tensors) == 1 and not empty.tensors


def test_constants_of_a_result_are_kept_and_sizes_are_refused() -> None:
    class Result(nn.Module):
        def forward(self, x: torch.Tensor, size: bool = False) -> Any:
            return Points(x * 2, x.shape[0] if size else x.shape[1]), None, "name", x.dim()

    class Sized(nn.Module):
        def forward(self, x: torch.Tensor) -> Any:
            return x * 2, x.shape[-1] if x.shape[-1] == 8 else 0

    assert capture_module(Sized(), X).output == (Slot(0), 8)
    with pytest.raises(TaskError, match=r"returns a size that depends on its inputs \(output\[0\]\['scale'\]\)"):
        capture_module(Result(), X)

    class NoTensor(nn.Module):
        def forward(self, x: torch.Tensor) -> Any:
            return None

    with pytest.raises(TaskError, match="gives no tensor for its example inputs"):
        capture_module(NoTensor(), X)


def test_a_forward_bound_on_the_instance_and_hooks_are_what_is_captured() -> None:
    module = nn.Linear(8, 8)
    module.forward = functools.partial(Everything.forward, module, scale=3.0)  # type: ignore[method-assign]
    module.register_forward_hook(lambda _module, _args, output: output + 1)
    model, (x,) = printed(capture_module(module, X).task)
    assert torch.allclose(model(x), x * 3 + 1)
    with pytest.raises(TaskError, match=r"a function is no torch\.nn\.Module: wrap it"):
        capture_module(lambda x: x, X)  # type: ignore[arg-type]


class _Wrapped(nn.Module):
    """Its forward is wrapped by one that sets an argument by name, as transformers wraps those of its models."""

    def forward(self, x: torch.Tensor, scale: float | None = None, shift: torch.Tensor | None = None) -> torch.Tensor:
        return x * (scale or 1.0) + (0.0 if shift is None else shift)

    inner = forward

    @functools.wraps(inner)
    def forward(self, *args: object, **kwargs: object) -> torch.Tensor:  # type: ignore[no-redef]
        kwargs["scale"] = kwargs.get("scale") or 3.0
        return type(self).inner(self, *args, **kwargs)


def test_a_forward_is_called_as_its_caller_does() -> None:
    x = torch.randn(4, 8)
    capture = capture_module(_Wrapped(), (), {"shift": torch.ones(8), "x": x})
    model, _ = printed(capture.task)
    assert torch.allclose(model(x, torch.ones(8)), 3 * x + 1)
    assert capture_module(_Wrapped(), (x,), {"scale": 2.0}).call.passed[1] == {"scale": 2.0}


@torch.library.custom_op("mtmc_test_call::twice", mutates_args=())
def _twice(x: torch.Tensor) -> torch.Tensor:
    return x * 2


@_twice.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


class Twice(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return _twice(x) + 1


def test_an_operator_of_another_library_is_refused_by_its_name_with_what_helps() -> None:
    with pytest.raises(
        TaskError, match=r"mtmc_test_call\.twice\.default \(line \d+ of .*\), an operator of the library"
    ):
        capture_module(Twice(), torch.ones(3, 4))
