"""A GPU that is not there, as a version in the lab sees it: its tensors lie on the host and say that they are on a GPU.

Versions ask (`assert x.is_cuda`, `if not x.is_cuda: return torch...`) and move (`.cuda()`, `device="cuda"`). Were they told
the truth, the first kind would fail and the second would take a path that no GPU takes, whose result is right and whose
kernels are never run. So whatever code of a version runs, in the build, the check and the count, it runs in
`pretended_gpu`. What torch is made of inside is told the truth, which it needs in order to work.

What a version makes on the host stays known as such (`on_host`), as it would be on a machine with a GPU: a kernel that is
launched with it fails there.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.utils._device
import triton
from torch._subclasses.fake_tensor import FakeTensor
from torch.overrides import TorchFunctionMode

import mtmc
from mtmc.evaluate.compiling.pretended_graph import NAMES, Journal, writing
from mtmc.evaluate.compiling.stand_in import DEVICE, OF_C, replacements
from mtmc.task.tensors import flat_tensors

_HOST = "_mtmc_on_host"
_CPU = torch.device("cpu")
_NO_WAIT: dict[str, Any] = {
    "record_stream": lambda self, stream: None,
    "pin_memory": lambda self, device=None: self,
}
_CUDA_VERSION, _HIP_VERSION = "12.8", "6.3"
_PACKAGES = tuple(f"{Path(str(each.__file__)).parent}{os.sep}" for each in (torch, mtmc))
_INSIDE = (f"{_PACKAGES[0]}_", f"{_PACKAGES[0]}fx{os.sep}", _PACKAGES[1])
"""Starts of the paths of torch's inner packages and mtmc: by the file, since a module can call itself anything."""
_BETWEEN = tuple(str(Path(str(each.__file__))) for each in (torch.utils._device, torch.overrides))
"""Files through which a question passes on its way: whoever asked stands behind them."""


@contextlib.contextmanager
def pretended_gpu(constructing: bool = False, journal: Journal | None = None) -> Iterator[None]:
    """While open, code other than torch's inner one finds itself on a machine with one GPU, which its tensors are on.

    constructing: whether tensors are made on that GPU where no device is named, as `loading.construct` has it.
    journal: of what is launched; graphs that are replayed write into it too.
    """
    hip = triton.runtime.driver.active.get_current_target().backend == "hip"
    accelerator = {
        "is_available": lambda: True,
        "device_count": lambda: 1,
        "current_accelerator": lambda check_available=False: torch.device("cuda"),
        "current_device_index": lambda: 0,
        "synchronize": lambda device=None: None,
    }
    with contextlib.ExitStack() as stack:
        for owner, names in (
            (torch.cuda, {**replacements(True), **NAMES}),
            (torch._C, OF_C),
            (torch.accelerator, accelerator),
            (torch.version, {"cuda": None if hip else _CUDA_VERSION, "hip": _HIP_VERSION if hip else None}),
            (torch.backends.cuda, {"is_built": lambda: True}),
            (torch.Tensor, _NO_WAIT),
            (torch.nn.RNNBase, {"flatten_parameters": lambda self: None}),
            (FakeTensor, {"device": property(_as_told(vars(FakeTensor)["device"].fget, _stated_device))}),
        ):
            stack.enter_context(_with_names(owner, names))
        stack.enter_context(writing(journal))
        stack.enter_context(_Pretence(constructing))
        yield


@contextlib.contextmanager
def _with_names(owner: Any, names: Mapping[str, Any]) -> Iterator[None]:
    """While open, `owner` has other values under some of its own names."""
    before = {name: vars(owner)[name] for name in names if name in vars(owner)}
    for name, value in names.items():
        setattr(owner, name, value)
    try:
        yield
    finally:
        for name in names:
            if name in before:
                setattr(owner, name, before[name])
            else:
                delattr(owner, name)


def on_host(tensor: torch.Tensor) -> bool:
    """Whether a version has made this tensor on the host."""
    return _HOST in vars(tensor)


def settle(model: Any) -> None:
    """What a module keeps is on the GPU: whoever constructs it there moves what its constructor has made on the host."""
    for module in model.modules():
        for held in (module._parameters, module._buffers, vars(module)):
            for value in held.values():
                if isinstance(value, torch.Tensor):
                    vars(value).pop(_HOST, None)


class _Pretence(TorchFunctionMode):
    """Answers what is asked of tensors, and does on the host what is to be done on a GPU."""

    def __init__(self, constructing: bool) -> None:
        super().__init__()
        self._constructing = constructing

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        named = kwargs or {}
        answer = _ANSWERS.get(func)
        if answer is not None and not _told_the_truth(sys._getframe(1)):
            return answer(func, args, named)
        if func is torch.device:
            return func(*args, **named)
        if func in _MOVES:
            return _moved(func, args, named)
        asked = _device_of([*(each for each in args if isinstance(each, torch.device)), named.get("device")])
        if asked is not None and asked.type == "cuda":
            args = tuple(_CPU if isinstance(each, torch.device) else each for each in args)
            named = {**named, "device": _CPU} if "device" in named else named
        if named.get("pin_memory"):
            named = {**named, "pin_memory": False}
        result = func(*args, **named)
        given = flat_tensors((args, named))
        if asked is not None:
            _mark(result, given, asked.type == "cpu")
        elif given:
            _mark(result, given, all(map(on_host, given)))
        else:
            _mark(result, given, not self._constructing)
        return result


def _moved(func: Callable[..., Any], args: tuple[Any, ...], named: dict[str, Any]) -> torch.Tensor:
    """`Tensor.to`, `cuda` or `cpu`: another tensor wherever a GPU would make one."""
    tensor, *given = args
    if func is torch.Tensor.to:
        given = [_stated_device(each) if isinstance(each, torch.Tensor) else each for each in given]
        other = named.get("other")
        asked = _device_of([*given, named.get("device"), None if other is None else _stated_device(other)])
        if asked is not None and asked.type == "cuda":
            args = tuple(_CPU if _device_of([each]) is not None else each for each in args)
            named = {**named, "device": _CPU} if "device" in named else named
        result: torch.Tensor = func(*args, **named)
        host = on_host(tensor) if asked is None else asked.type == "cpu"
    else:
        result, host = tensor, func is torch.Tensor.cpu
    if result is tensor and host != on_host(tensor):
        result = tensor.clone()
    if result is not tensor:
        _mark(result, [], host)
    return result


def _device_of(values: Sequence[Any]) -> torch.device | None:
    """The device among arguments that may be one."""
    for value in values:
        if isinstance(value, torch.device):
            return value
        if isinstance(value, str):
            return torch.device(value)
        if type(value) is int:
            return torch.device("cuda", value)
    return None


def _mark(result: Any, given: list[torch.Tensor], host: bool) -> None:
    """Note of new tensors where they have been made."""
    for tensor in flat_tensors(result):
        if not any(tensor is each for each in given):
            if host:
                vars(tensor)[_HOST] = True
            else:
                vars(tensor).pop(_HOST, None)


def _told_the_truth(frame: Any) -> bool:
    """Whether it is torch's inner code that asks, or mtmc's."""
    while frame is not None and frame.f_code.co_filename in _BETWEEN:
        frame = frame.f_back
    return frame is not None and frame.f_code.co_filename.startswith(_INSIDE)


def _as_told(truth: Callable[[Any], Any], stated: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A property's function: the truth for whoever is told it."""

    def answered(owner: Any) -> Any:
        return truth(owner) if _told_the_truth(sys._getframe(1)) else stated(owner)

    return answered


def _stated_device(tensor: torch.Tensor) -> torch.device:
    return torch.device("cpu" if on_host(tensor) else DEVICE)


def _on_device(answer: Any, otherwise: Any = None) -> Callable[..., Any]:
    """An answer of tensors on the GPU. otherwise: of those on the host; None for the truth."""

    def answered(func: Callable[..., Any], args: tuple[Any, ...], named: dict[str, Any]) -> Any:
        if on_host(args[0]):
            return func(*args, **named) if otherwise is None else otherwise
        return answer

    return answered


def _refused(func: Callable[..., Any], args: tuple[Any, ...], named: dict[str, Any]) -> Any:
    """What only memory of the host can be asked for."""
    if on_host(args[0]):
        return func(*args, **named)
    raise TypeError(
        "can't convert cuda:0 device type tensor to numpy. Use Tensor.cpu() to copy it to host memory first."
    )


def _type(func: Callable[..., Any], args: tuple[Any, ...], named: dict[str, Any]) -> Any:
    found = func(*args, **named)
    if isinstance(found, str) and not on_host(args[0]):
        return found.replace("torch.", "torch.cuda.", 1)
    return found


_TENSOR: Any = torch.Tensor
_MOVES = (_TENSOR.to, _TENSOR.cuda, _TENSOR.cpu)
_ANSWERS: dict[Any, Callable[..., Any]] = {
    _TENSOR.is_cuda.__get__: _on_device(True),
    _TENSOR.is_cpu.__get__: _on_device(False),
    _TENSOR.device.__get__: lambda func, args, named: _stated_device(args[0]),
    _TENSOR.get_device: _on_device(0, -1),
    torch.get_device: _on_device(0, -1),
    _TENSOR.__dlpack_device__: _on_device((2, 0)),
    _TENSOR.is_pinned: _on_device(False),
    _TENSOR.type: _type,
    _TENSOR.numpy: _refused,
    _TENSOR.__array__: _refused,
}
"""What tells where a tensor is -> its answer."""
