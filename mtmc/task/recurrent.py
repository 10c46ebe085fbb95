"""recurrent: recurrent layers of fake tensors, where only shapes count.

torch makes one of these layers in as many ops as it has steps, or has them decomposed in Python where it is exported: six
layers of 512 steps take 17 s for each set of shapes, and nothing is kept but the shapes of what they give. Here these are
made at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from mtmc.task.tensors import flat_tensors

if TYPE_CHECKING:
    import torch

NAMES = ("gru", "lstm", "rnn_tanh", "rnn_relu")
"""Functions of `torch` and ops of ATen, whose overload `input` takes (input, state, parameters, has biases, layers, dropout,
whether it is training, bidirectional, batch first)."""
_BIDIRECTIONAL, _BATCH_FIRST = 7, 8


def results(name: str, arguments: Sequence[Any]) -> tuple[torch.Tensor, ...] | None:
    """What a layer gives for fake tensors: (steps, batch, directions * width), or the batch first, and each state.

    None where there are others among its tensors, or its steps are packed.
    """
    from torch._subclasses.fake_tensor import FakeTensor

    tensors = flat_tensors(arguments)
    if name not in NAMES or len(arguments) <= _BATCH_FIRST or not all(isinstance(each, FakeTensor) for each in tensors):
        return None
    if not isinstance(arguments[3], bool):  # the parameters of packed steps stand there
        return None
    given, states = arguments[0], arguments[1]
    states = tuple(states) if isinstance(states, list | tuple) else (states,)
    width = states[0].shape[-1] * (2 if arguments[_BIDIRECTIONAL] else 1)
    batch_first = arguments[_BATCH_FIRST]
    steps, batch = (given.shape[1], given.shape[0]) if batch_first else given.shape[:2]
    output = given.new_empty((steps, batch, width))
    return output.transpose(0, 1) if batch_first else output, *(state.new_empty(state.shape) for state in states)


def quick(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of `NAMES`, or an overload, that gives `results` where there are any."""

    def made(*arguments: Any, **named: Any) -> Any:
        found = None if named else results(name, arguments)
        return function(*arguments, **named) if found is None else found

    made.__name__ = getattr(function, "__name__", name)
    return made


class QuickCall:
    """As `quick`, for what is called by name: modes of torch functions see the call, as they see `function`'s. It has that
    one's hash, by which torch finds an overload in its tables."""

    def __init__(self, name: str, function: Callable[..., Any]) -> None:
        self._function, self._made = function, quick(name, function)
        self.__name__ = self._made.__name__

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        from torch.overrides import handle_torch_function, has_torch_function

        tensors = tuple(flat_tensors(arguments))
        if has_torch_function(tensors):
            return handle_torch_function(self, tensors, *arguments, **named)
        return self._made(*arguments, **named)

    def __hash__(self) -> int:
        return hash(self._function)


@contextmanager
def exported_quickly() -> Iterator[None]:
    """While this is open, torch.export takes the results of fake layers from `results` where it would decompose them."""
    import torch
    from torch._C import DispatchKey

    keys = (DispatchKey.CompositeImplicitAutograd, DispatchKey.Autograd)
    ops = {name: getattr(torch.ops.aten, name).input for name in NAMES}
    before = {name: {key: op.py_kernels[key] for key in keys if key in op.py_kernels} for name, op in ops.items()}
    try:
        for name, op in ops.items():
            for key, kernel in before[name].items():
                op.py_kernels[key] = quick(name, kernel)
            op._dispatch_cache.clear()
        yield
    finally:
        for name, op in ops.items():
            op.py_kernels.update(before[name])
            op._dispatch_cache.clear()
