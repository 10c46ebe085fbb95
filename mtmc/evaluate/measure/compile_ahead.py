"""What torch.compile does for a baseline, done before the device is taken for measuring it.

Compiling takes seconds to minutes of the host's time, and where it tries configurations out, moments of the device's. Here
it goes on beside what is measured, for several tasks at a time, and takes the device for these moments only. It is done in
the process that is measured then, which has the compiled model already, and gives it the numbers of the one it is asked for.
A task that does not compile here says so there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from torch import nn

from mtmc.evaluate.measure.device_lock import DeviceLock
from mtmc.evaluate.reference.reference import Reference
from mtmc.task import Task
from mtmc.task.tensors import flat_tensors

SEED = 1
LARGE_BYTES = 1 << 28
_PLAIN = (bool, int, float, str, type(None))


class Prepared:
    """A reference that was compiled at the full shapes. mode: of torch.compile."""

    def __init__(self, mode: str, model: nn.Module, compiled: Callable[..., Any], device: str) -> None:
        self.mode, self._model, self._compiled, self._device = mode, model, compiled, device

    def with_numbers_of(self, model: nn.Module) -> Callable[..., Any] | None:
        """The compiled model with the parameters and buffers of another one; None where they differ in form, or where there
        is more to the model than these: that one is to be compiled by itself."""
        self._model.to(self._device)
        pairs = [
            (dict(own), dict(given))
            for own, given in (
                (self._model.named_parameters(), model.named_parameters()),
                (self._model.named_buffers(), model.named_buffers()),
            )
        ]
        if any(_forms(own) != _forms(given) for own, given in pairs) or _plain(self._model) != _plain(model):
            return None
        for own, given in pairs:
            for name, tensor in own.items():
                tensor.copy_(given[name])
        return self._compiled


def _forms(tensors: Mapping[str, torch.Tensor]) -> dict[str, tuple[Any, ...]]:
    return {name: (tensor.shape, tensor.dtype, tensor.stride()) for name, tensor in tensors.items()}


def _plain(model: nn.Module) -> list[tuple[str, str, object]]:
    """What the parts of a model have besides tensors and parts, as far as it is plain; of the rest its type. Tensors in
    other places are told by a number that no other model has."""
    return [
        (part, name, _told(value))
        for part, module in model.named_modules()
        for name, value in vars(module).items()
        if not name.startswith("_")
    ]


def _told(value: object) -> object:
    if isinstance(value, _PLAIN):
        return value
    if isinstance(value, list | tuple) and all(isinstance(each, _PLAIN) for each in value):
        return tuple(value)
    return id(value) if isinstance(value, torch.Tensor | list | tuple | dict | set) else type(value).__qualname__


def compile_ahead(task: Task, mode: str, device: str, lock: DeviceLock) -> Prepared:
    """Compile a task's reference at the full shapes. mode: of torch.compile. Raises: whatever compiling raises.

    The device is left without the model, which may be large, until it is asked for.
    """
    torch.set_grad_enabled(False)
    with lock:
        reference = Reference(task, task.full, Path.cwd(), SEED, device)
        inputs = reference.draw(SEED)
    large = [each for each in flat_tensors(inputs) if _is_large(each)]
    inductor, turns = torch._TorchCompileInductorWrapper(mode, None, None), [lock]

    def backend(graph: Any, given: Any) -> Callable[..., Any]:
        with _without_memory(large, lock):
            compiled = inductor(graph, given)

        def run(*arguments: Any) -> Any:
            if not turns:
                return compiled(*arguments)
            with lock:
                return compiled(*arguments)

        return run

    compiled_model = torch.compile(reference.model, backend=backend)
    with _taking_turns(lock):
        compiled_model(*inputs)
    large.clear()
    del inputs
    turns.clear()  # from now on whoever asks has the device
    if device != "cpu":
        torch.cuda.synchronize()
        reference.model.to("cpu")
        torch.cuda.empty_cache()
    return Prepared(mode, reference.model, compiled_model, device)


def _is_large(tensor: torch.Tensor) -> bool:
    """And floating: what is compiled may hang on integers."""
    return tensor.is_floating_point() and tensor.untyped_storage().nbytes() >= LARGE_BYTES


@contextmanager
def _without_memory(large: Sequence[torch.Tensor], lock: DeviceLock) -> Iterator[None]:
    """Inputs have no memory while this is open, and are zeros then. Compiling takes seconds to minutes, and whoever has the
    device meanwhile may need the room."""
    if not large:
        yield
        return
    sizes = [tensor.untyped_storage().nbytes() for tensor in large]
    for tensor in large:
        tensor.untyped_storage().resize_(0)
    if large[0].is_cuda:
        torch.cuda.empty_cache()
    try:
        yield
    finally:
        with lock:
            for tensor, size in zip(large, sizes, strict=True):
                tensor.untyped_storage().resize_(size)
                tensor.zero_()


@contextmanager
def _taking_turns(lock: DeviceLock) -> Iterator[None]:
    """Inductor times configurations when it is its turn on the device: those of one kernel in one turn, for they are
    compiled by then. A template's are compiled as they come, so each of these has its own."""
    from torch._inductor.runtime.benchmarking import benchmarker
    from torch._inductor.runtime.triton_heuristics import CachingAutotuner

    def in_turn(timed: Callable[..., Any]) -> Callable[..., Any]:
        def when_it_is(*arguments: Any, **named: Any) -> Any:
            with lock:
                return timed(*arguments, **named)

        return when_it_is

    with ExitStack() as patched:
        for owner, name in ((benchmarker, "benchmark_gpu"), (CachingAutotuner, "benchmark_all_configs")):
            patched.enter_context(mock.patch.object(owner, name, in_turn(getattr(owner, name))))
        yield
