"""What a forward may return, and how it is taken apart: one rule for references and candidates, in checks and timed calls.

Leaves are plain tensors (`torch.Tensor`, `torch.nn.Parameter`), None, bool, int, float, complex and str. They may lie in
tuples, lists and dicts, to any depth. A class of the candidate's own passes only where the reference returns one of the
same name and fields: a named tuple, a dataclass, a subclass of tuple, list or dict.

Everything is read with the methods of the built-in classes, out of what lies in the object. No method of a candidate's
class runs, nor of that class's class: what it would compute when it is unpacked, looked up, compared or printed is not
computed. So classes are told apart by identity, and Python's collector stands still.
"""

from __future__ import annotations

import contextlib
import gc
import re
import types
from collections.abc import Iterator
from typing import Any

import torch

TENSORS = (torch.Tensor, torch.nn.Parameter)
_VALUES = (type(None), bool, int, float, complex, str, torch.dtype, torch.device)
_KEYS = (str, int, bool, type(None), float)
_PLAIN = (
    tuple,
    list,
    dict,
    torch.Size,
    *(kind for kind in vars(torch.return_types).values() if isinstance(kind, type)),
)
"""Classes that count as their base: those of torch are written in C, and hold nothing but their items."""
_no_functions, _no_dispatch = torch._C.DisableTorchFunction, torch._C._DisableTorchDispatch
_name_of = type.__dict__["__name__"].__get__
_bases_of = type.__dict__["__mro__"].__get__
_namespace_of = type.__dict__["__dict__"].__get__


def flatten(value: Any) -> tuple[list[Any], str]:
    """Leaves of nested tuples, lists, dicts and dataclasses in order, and the structure as text ("(*, [*, *])").

    A class that is not plain is marked in the text: "<Pair first second>(*, *)", "@Result{loss: *}".
    """
    kind = type(value)
    if issubclass(kind, tuple):
        return _joined(f"{_mark(kind)}(", [flatten(item) for item in tuple.__iter__(value)], ")")
    if issubclass(kind, list):
        return _joined(f"{_mark(kind)}[", [flatten(item) for item in list.__iter__(value)], "]")
    if issubclass(kind, dict):
        return _named(_mark(kind), dict(dict.items(value)))
    fields = _fields(value)
    return ([value], "*") if fields is None else _named(f"@{_class_name(kind)}", fields)


def tensors_in(value: Any) -> list[torch.Tensor]:
    """The tensors among the leaves of a value, in the order of `flatten`."""
    return [leaf for leaf in flatten(value)[0] if isinstance(leaf, torch.Tensor)]


def fits(structure: str, expected: str) -> bool:
    """Whether a result of that structure may stand for one that is expected: the same, or with plain tuples, lists and dicts
    where the reference returns classes derived from them."""
    return structure == expected or structure == re.sub(r"<[^<>]*>", "", expected)


def describe(value: Any) -> str:
    """Text by which two leaves that are no plain tensors are compared. Those of other classes are never the same."""
    kind = type(value)
    if _is_one_of(kind, _VALUES):
        return f"{kind.__module__}.{kind.__qualname__} {value!r}"[:200]
    return f"an object of class {_class_name(kind)} at {id(value):#x}, which is no value that can be compared"


def comparable(value: Any) -> bool:
    """Whether a leaf is one that another can be compared with."""
    return is_plain(value) or _is_one_of(type(value), _VALUES)


@contextlib.contextmanager
def undisturbed() -> Iterator[None]:
    """While open, torch's calls on plain tensors run no code of a mode that a candidate has left open, and nothing that it
    has left for the collector goes."""
    collects = gc.isenabled()
    gc.disable()
    try:
        with _no_functions(), _no_dispatch():
            yield
    finally:
        if collects:
            gc.enable()


def is_plain(value: Any) -> bool:
    """Whether a leaf is a plain tensor: by identity, since a class can say that it is equal to another one."""
    return _is_one_of(type(value), TENSORS)


def _is_one_of(kind: type, kinds: tuple[type, ...]) -> bool:
    return any(kind is each for each in kinds)


def _joined(left: str, parts: list[tuple[list[Any], str]], right: str) -> tuple[list[Any], str]:
    return [leaf for leaves, _ in parts for leaf in leaves], left + ", ".join(text for _, text in parts) + right


def _named(mark: str, items: dict[Any, Any]) -> tuple[list[Any], str]:
    """Of a dict or dataclass: by name, so that the order in which they were put there says nothing."""
    if not all(_is_one_of(type(key), _KEYS) for key in items):
        return [object()], "*"  # a key of the candidate's own class: printing or sorting it would run its code
    keys = sorted(items, key=str)
    parts = [(leaves, f"{_shown(key)}: {text}") for key in keys for leaves, text in [flatten(items[key])]]
    return _joined(f"{mark}{{", parts, "}")


def _shown(key: Any) -> str:
    """A key as text that no mark can be mistaken for."""
    return key if type(key) is str and key.isidentifier() else repr(key).replace("<", "\\x3c").replace("@", "\\x40")


def _mark(kind: type) -> str:
    """What tells a class of somebody's own from the built-in one: its name, and the fields of a named tuple."""
    if _is_one_of(kind, _PLAIN):
        return ""
    fields = _looked_up(kind, "_fields")
    names = [_identifier(name) for name in fields] if type(fields) is tuple else []
    return f"<{' '.join([_class_name(kind), *names])}>"


def _fields(value: Any) -> dict[str, Any] | None:
    """Names and values of a dataclass instance; None for what is none, or keeps them where only its own code reaches."""
    kind = type(value)
    if _is_one_of(kind, TENSORS) or _is_one_of(kind, _VALUES):
        return None
    declared = _looked_up(kind, "__dataclass_fields__")
    if type(declared) is not dict or not all(type(name) is str for name in declared):
        return None
    place = _looked_up(kind, "__dict__")
    kept = place.__get__(value) if type(place) is types.GetSetDescriptorType else {}
    found = dict(kept) if type(kept) is dict else {}
    for name in declared:
        slot = _looked_up(kind, name)
        if type(slot) is types.MemberDescriptorType:
            found[name] = slot.__get__(value)
    return {name: found[name] for name in declared} if all(name in found for name in declared) else None


def _looked_up(kind: type, name: str) -> Any:
    """An attribute of a class, as it lies there; None where it has none."""
    namespaces: Iterator[Any] = (_namespace_of(base) for base in _bases_of(kind))
    return next((space[name] for space in namespaces if name in space), None)


def _class_name(kind: type) -> str:
    return _identifier(_name_of(kind))


def _identifier(name: Any) -> str:
    return name if type(name) is str and name.isidentifier() else "?"
