"""The forward of a drop-in as torch.compile sees it: plain comparisons, which become its guards, and one custom operator.

What the compiler cannot follow (arguments that are data classes, say) leaves the original to be compiled.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

import torch

from mtmc.dropin.loaded import guards_of
from mtmc.dropin.module_state import DEEP, NO_OBJECTS, REGISTRIES
from mtmc.dropin.named_values import asks_for_gradient_mode, named, names_in_code
from mtmc.dropin.operator import operator
from mtmc.dropin.recipe import Recipe
from mtmc.task import Slot

_PLAIN = (type(None), bool, int, float, str)


class Traced:
    """What the compiler needs of a winner, in tuples.

    A form is None for a tensor, (value,) for a constant, and (type, keys, forms) for a structure.
    """

    def __init__(
        self, recipe: Recipe, module: torch.nn.Module, forward: Callable[..., Any], mutated: Sequence[int]
    ) -> None:
        """module: the drop-in. forward: the original's, bound, for its signature.

        Raises: TypeError if the compiler cannot follow a call of it.
        """
        self.operator = operator(recipe, mutated)
        self.paths = tuple(tuple(path.split(".")) for path in recipe.places.values())
        order = list(recipe.places)
        self.ties = tuple((order.index(attribute), tuple(path.split("."))) for attribute, path in recipe.ties)
        self.asks = asks_for_gradient_mode(map(type, module.modules()))
        self.default_dtype: torch.dtype = getattr(torch, recipe.default_dtype)
        self.result = _form(recipe.output)
        self.mutated = tuple(mutated)
        self.arguments = _arguments(recipe, forward)
        self.examples = tuple((x.dtype, tuple(x.shape), tuple(x.stride())) for x in recipe.call.tensors)
        self.why_not, self.asked = _asked(recipe)
        self.parts = tuple(_part(path, part) for path, part in module.named_modules())
        self.objects = tuple(_objects(module, names_in_code(map(type, module.modules()))))


def _arguments(recipe: Recipe, forward: Callable[..., Any]) -> tuple[tuple[str, int, Any, Any], ...]:
    """Name, place, form and default of each of forward's arguments; -1 for a place that has to be given by name."""
    call = recipe.call
    found: list[tuple[str, int, Any, Any]] = []
    for name, parameter in inspect.signature(forward).parameters.items():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            raise TypeError(f"*{name}")
        by_place = parameter.kind != parameter.KEYWORD_ONLY
        wanted = call.args[len(found)] if by_place else call.kwargs[name]
        found.append((name, len(found) if by_place else -1, _form(wanted), parameter.default))
    return tuple(found)


def _part(path: str, module: torch.nn.Module) -> tuple[Any, ...]:
    """Path, class, submodules' names, and plain attributes (the training mode too) of a module."""
    of_class = {name: owner.values[name] for owner, name in named(type(module)) if owner.is_class}
    plain = tuple(_plain({**of_class, **vars(module)}))
    return tuple(path.split(".")) if path else (), type(module), tuple(module._modules), plain


def _plain(attributes: Mapping[str, Any], names: Collection[str] | None = None) -> Iterator[tuple[str, Any]]:
    """Attributes that are plain values or containers of such, each with its form. names: those that count, None for all."""
    for key, value in attributes.items():
        if (key not in REGISTRIES or key == "training") and (names is None or key in names):
            try:
                form = _form(value)
            except TypeError:
                continue
            if form is not None and not _holds_tensors(form):
                yield key, form


def _holds_tensors(form: Any) -> bool:
    return form is None or (len(form) == 3 and any(map(_holds_tensors, form[2])))


def _objects(
    module: torch.nn.Module, names: Collection[str]
) -> Iterator[tuple[tuple[str, ...], tuple[tuple[str, Any], ...]]]:
    """Objects that are attributes of the module's parts or of each other: the way there, and their plain attributes, of
    which only those count that code names. names: that the modules' code does."""
    seen: set[int] = set()
    todo = [(tuple(path.split(".")) if path else (), part, 0) for path, part in module.named_modules()]
    while todo:
        path, held, depth = todo.pop()
        for key, value in vars(held).items():
            skipped = key in REGISTRIES or key == "mtmc" or isinstance(value, NO_OBJECTS) or id(value) in seen
            if not skipped and isinstance(getattr(value, "__dict__", None), dict) and depth < DEEP:
                seen.add(id(value))
                todo.append(((*path, key), value, depth + 1))
                yield (*path, key), tuple(_plain(vars(value), {*names, *names_in_code([type(value)])}))


def _asked(recipe: Recipe) -> tuple[Callable[..., str | None] | None, tuple[int, ...]]:
    """The version's guards as a function of tensors, and which of the inputs and then the module's tensors it takes.

    Raises: TypeError if it takes anything else.
    """
    found = guards_of(recipe.source)
    if found is None:
        return None, ()
    check, inputs = found
    names = {name: index for index, name in enumerate(inputs)}
    names |= {name: len(inputs) + index for index, name in enumerate(recipe.places) if name not in names}
    wanted = [name if name in names else name.rstrip("_") for name in inspect.signature(check).parameters]
    if len(inputs) != len(recipe.call.tensors) or not {*wanted} <= names.keys():
        raise TypeError("guards of numbers")
    return check, tuple(names[name] for name in wanted)


def _form(structure: Any) -> Any:
    if isinstance(structure, torch.Tensor | Slot):
        return None
    if isinstance(structure, _PLAIN):
        return (structure,)
    if type(structure) in (tuple, list):
        return (type(structure), tuple(range(len(structure))), tuple(_form(each) for each in structure))
    if type(structure) is dict:
        return (dict, tuple(structure), tuple(_form(each) for each in structure.values()))
    raise TypeError(f"a {type(structure).__name__}")


def traced_call(traced: Traced, module: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[bool, Any]:
    """Whether the operator holds for a call, and its result then."""
    inputs = _inputs(traced, args, kwargs)
    if inputs is None or _changed(traced, module):
        return False, None
    tensors = [_at(module, path) for path in traced.paths]
    for index, path in traced.ties:
        if _at(module, path) is not tensors[index]:
            return False, None
    if torch.get_default_dtype() != traced.default_dtype or (traced.asks and torch.is_grad_enabled()):
        return False, None
    every = [*inputs, *tensors]
    if torch.is_grad_enabled():
        for tensor in every:
            if tensor.requires_grad:
                return False, None
    if torch.is_autocast_enabled("cuda") or torch.is_autocast_enabled("cpu"):
        return False, None
    if not _admitted(traced, inputs, every):
        return False, None
    returned = traced.operator(*every)
    result, _ = _put(traced.result, (returned,) if isinstance(returned, torch.Tensor) else returned, 0)
    return True, result


def _at(module: Any, path: tuple[str, ...]) -> Any:
    for part in path:
        module = getattr(module, part)
    return module


def _changed(traced: Traced, module: Any) -> bool:
    """Whether a module of the drop-in is not as it was at capture; the compiler keeps watch over all that is read here, but
    for hooks, which it takes as they are at compilation."""
    for path, kind, names, plain in traced.parts:
        part = _at(module, path)
        if type(part) is not kind or tuple(part._modules.keys()) != names:
            return True
        if path and (len(part._forward_hooks) > 0 or len(part._forward_pre_hooks) > 0):
            return True
        if _others(part, plain):
            return True
    for path, plain in traced.objects:  # noqa: SIM110 (as above, in words that the compiler follows)
        if _others(_at(module, path), plain):
            return True
    return False


def _others(owner: Any, plain: Sequence[tuple[str, Any]]) -> bool:
    """Whether one of these attributes has another value."""
    for key, form in plain:  # noqa: SIM110
        if not hasattr(owner, key) or not _take(form, getattr(owner, key), []):
            return True
    return False


def _inputs(traced: Traced, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> list[torch.Tensor] | None:
    """The tensors of a call that is the example's in all else."""
    tensors: list[torch.Tensor] = []
    used = 0
    for name, place, wanted, default in traced.arguments:
        if 0 <= place < len(args):
            given = args[place]
        elif name in kwargs:
            given, used = kwargs[name], used + 1
        else:
            given = default
        if not _take(wanted, given, tensors):
            return None
    return tensors if used == len(kwargs) and len(args) <= len(traced.arguments) else None


def _admitted(traced: Traced, inputs: list[torch.Tensor], every: list[torch.Tensor]) -> bool:
    if traced.why_not is not None:
        return traced.why_not(*[every[index] for index in traced.asked]) is None
    for tensor, (dtype, shape, strides) in zip(inputs, traced.examples):  # noqa: B905 (the compiler knows no strict)
        if tensor.dtype != dtype or tuple(tensor.shape) != shape or tuple(tensor.stride()) != strides:
            return False
    return True


def _take(wanted: Any, given: Any, tensors: list[torch.Tensor]) -> bool:
    """Whether a value has this form; its tensors are added."""
    if wanted is None:
        if not isinstance(given, torch.Tensor):
            return False
        tensors.append(given)
        return True
    if len(wanted) == 1:
        return type(given) is type(wanted[0]) and given == wanted[0]
    kind, keys, forms = wanted
    if type(given) is not kind or len(given) != len(keys):
        return False
    for key, each in zip(keys, forms):  # noqa: B905
        if kind is dict and key not in given:
            return False
        if not _take(each, given[key], tensors):
            return False
    return True


def _put(wanted: Any, tensors: Sequence[torch.Tensor], start: int) -> tuple[Any, int]:
    """A structure of this form with the tensors from `start` on, and how many of all are used then."""
    if wanted is None:
        return tensors[start], start + 1
    if len(wanted) == 1:
        return wanted[0], start
    kind, keys, forms = wanted
    values = []
    for each in forms:
        value, start = _put(each, tensors, start)
        values.append(value)
    return (dict(zip(keys, values)) if kind is dict else kind(values)), start  # noqa: B905
