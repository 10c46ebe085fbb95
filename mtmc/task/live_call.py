"""Call: one call of a live module, as a flat list of tensors and what is fixed besides.

A structure is nested lists, tuples, mappings and data classes (so the outputs of transformers and diffusers too). Its
tensors are seen as one flat list, in order; everything else in it is part of the call's contract.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from mtmc.errors import TaskError
from mtmc.task.slot import Slot
from mtmc.task.tensors import flat_tensors, leaves, mapped, parts_of

_PLAIN = (type(None), bool, int, float, complex, str, bytes, torch.dtype, torch.device, torch.layout)
_PLAIN_TOO = (torch.memory_format, slice, type(Ellipsis), range)


@dataclass(frozen=True)
class Call:
    """One call of a module: its arguments in the order of forward's signature, defaults included.

    names: of the arguments `args`, for messages; those of a *args are counted on.
    positions, keywords: how many arguments the caller gave by position, and which by name; None: all as they are here.
    """

    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    names: tuple[str, ...] = ()
    positions: int | None = None
    keywords: tuple[str, ...] = ()

    @property
    def passed(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Positional and keyword arguments as the caller gave them, which is what wrappers around a forward look at."""
        if self.positions is None:
            return self.args, dict(self.kwargs)
        values = dict(self.arguments())
        return self.args[: self.positions], {name: values[name] for name in self.keywords}

    @property
    def tensors(self) -> list[torch.Tensor]:
        """The flat list of the call's tensors."""
        return flat_tensors((self.args, dict(self.kwargs)))

    def with_tensors(self, tensors: Sequence[torch.Tensor]) -> Call:
        """The same call with other tensors. Raises: ValueError if there are not as many."""
        args, kwargs = restore((self.args, dict(self.kwargs)), tensors)
        return replace(self, args=args, kwargs=kwargs)

    def arguments(self) -> Iterator[tuple[str, Any]]:
        """Each argument with its name."""
        for index, value in enumerate(self.args):
            yield self.name(index), value
        yield from self.kwargs.items()

    def name(self, index: int) -> str:
        """What forward calls its positional argument `index`."""
        return self.names[index] if index < len(self.names) else f"argument_{index}"


def positional(example_inputs: Sequence[Any] | torch.Tensor) -> tuple[Any, ...]:
    """The positional arguments that example inputs are: a tensor is the only one.

    Raises: TaskError if they are no sequence.
    """
    if isinstance(example_inputs, torch.Tensor):
        return (example_inputs,)
    if isinstance(example_inputs, Sequence) and not isinstance(example_inputs, str | bytes):
        return tuple(example_inputs)
    kind = type(example_inputs).__name__
    raise TaskError(f"the example inputs are a {kind}: give the list of forward's arguments, a dict as example_kwargs")


def bind_call(module: torch.nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Call:
    """A call's arguments in the order of forward's signature, however they were passed.

    Raises: TaskError if forward does not take them, or none of them holds a tensor.
    """
    try:
        bound = inspect.signature(module.forward).bind(*args, **kwargs)
    except TypeError as error:
        raise TaskError(f"the example inputs do not fit forward of {type(module).__name__}: {error}") from error
    bound.apply_defaults()
    call = Call(bound.args, bound.kwargs, _positional_names(bound), len(args), tuple(kwargs))
    if not call.tensors:
        raise TaskError(f"the example inputs of {type(module).__name__} hold no tensor: give those of a real call")
    return call


def _positional_names(bound: inspect.BoundArguments) -> tuple[str, ...]:
    names: list[str] = []
    for name, parameter in bound.signature.parameters.items():
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD):
            names.append(name)
        elif parameter.kind == parameter.VAR_POSITIONAL:
            names += [f"{name}_{index}" for index in range(len(bound.arguments.get(name, ())))]
    return tuple(names)


def flat_inputs(module: torch.nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[torch.Tensor]:
    """The flat list of tensors that a module task's `Model` takes for this call of the module. Raises: TaskError."""
    return bind_call(module, args, kwargs).tensors


def same_call(example: Call, call: Call) -> str | None:
    """The first difference between a call and the example in what is no tensor, None where there is none.

    About a microsecond for a plain call. Shapes and dtypes of the tensors are not looked at.
    """
    found = matched(example, call)
    return found if isinstance(found, str) else None


def matched(example: Call, call: Call) -> list[torch.Tensor] | str:
    """The call's tensors in the order of the example's, or the first difference in what is no tensor.

    Keyword arguments and mappings may come in another order.
    """
    tensors: list[torch.Tensor] = []
    args, others = example.args, call.args
    if len(args) != len(others):
        return f"{len(others)} positional arguments instead of {len(args)}"
    for index, wanted in enumerate(args):
        given = others[index]
        if isinstance(wanted, torch.Tensor):
            if not isinstance(given, torch.Tensor):
                return f"{example.name(index)} is {_kind(given)} instead of a tensor"
            tensors.append(given)
        elif wanted is not given or not isinstance(wanted, _PLAIN):
            reason = _match(wanted, given, example.name(index), tensors)
            if reason is not None:
                return reason
    if example.kwargs or call.kwargs:
        if example.kwargs.keys() != call.kwargs.keys():
            return _other_keys(example.kwargs, call.kwargs, "the call")
        for name, wanted in example.kwargs.items():
            reason = _match(wanted, call.kwargs[name], name, tensors)
            if reason is not None:
                return reason
    return tensors


def _match(wanted: Any, given: Any, name: str, tensors: list[torch.Tensor]) -> str | None:
    """The first difference of two structures; the tensors of the second are added in the order of the first's."""
    if isinstance(wanted, torch.Tensor):
        if not isinstance(given, torch.Tensor):
            return f"{name} is {_kind(given)} instead of a tensor"
        tensors.append(given)
        return None
    if type(wanted) is not type(given):
        return f"{name} is {_kind(given)} instead of {_kind(wanted)}"
    parts = parts_of(wanted)
    if parts is None:
        return None if _equal(wanted, given) else f"{name} is {given!r:.80} instead of {wanted!r:.80}"
    others = parts_of(given)
    assert others is not None
    if parts.keys() != others.keys():
        return _other_keys(parts, others, name)
    for key, value in parts.items():
        reason = _match(value, others[key], f"{name}[{key!r}]", tensors)
        if reason is not None:
            return reason
    return None


def _other_keys(wanted: Mapping[Any, Any], given: Mapping[Any, Any], name: str) -> str:
    more = [key for key in given if key not in wanted]
    return f"{name} has {more[0]!r} besides" if more else f"{name} lacks {next(k for k in wanted if k not in given)!r}"


def _equal(wanted: Any, given: Any) -> bool:
    """Whether two leaves of the same type are the same constant."""
    if isinstance(wanted, float):
        same = wanted == given and math.copysign(1.0, wanted) == math.copysign(1.0, given)
        return same or (wanted != wanted and given != given)
    return wanted is given or (isinstance(wanted, _PLAIN) and bool(wanted == given)) or _same_slice(wanted, given)


def _same_slice(wanted: Any, given: Any) -> bool:
    return isinstance(wanted, slice | range) and bool(wanted == given)


def _kind(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return "a tensor"
    return repr(value) if isinstance(value, _PLAIN) else f"a {type(value).__name__}"


def restore(template: Any, tensors: Sequence[torch.Tensor]) -> Any:
    """A structure with its tensors (or the slots for them) replaced in order; the inverse of `flat_tensors`.

    Raises: ValueError if there are not as many tensors as in the template.
    """
    places = sum(1 for _, leaf in leaves(template) if isinstance(leaf, torch.Tensor | Slot))
    if len(tensors) != places:
        raise ValueError(f"{len(tensors)} tensors for a structure that holds {places}")
    return _restore(template, iter(tensors))


def slotted(structure: Any) -> Any:
    """A structure with a `Slot` in place of each tensor."""
    places = iter(range(len(flat_tensors(structure))))
    return mapped(structure, lambda leaf: Slot(next(places)) if isinstance(leaf, torch.Tensor) else leaf)


def _restore(template: Any, tensors: Iterator[torch.Tensor]) -> Any:
    return mapped(template, lambda leaf: next(tensors) if isinstance(leaf, torch.Tensor | Slot) else leaf)
