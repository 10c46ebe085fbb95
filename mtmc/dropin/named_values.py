"""NamedValues: plain values of classes and files that the code of modules names, which no module has as its attribute.

`scale` where a class says `scale = 2.0` and forward `self.scale`, `EPS` where a file says `EPS = 1e-6`. Kernels have them
as they were at capture.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import itemgetter
from types import CodeType, FunctionType
from typing import Any

_PLAIN = (type(None), bool, int, float, str)
_OF_LIBRARIES = ("torch.", "builtins")
_MOST = 256
"""Functions of a class and its file that are read."""
_MISSING = object()


class NamedValues:
    """What such values were when this was made."""

    def __init__(self, kinds: Sequence[type]) -> None:
        """kinds: the modules' classes."""
        held: dict[Owner, dict[str, None]] = {}
        for kind in kinds:
            for owner, name in named(kind):
                held.setdefault(owner, {})[name] = None
        self._held = [(owner.values, itemgetter(*names), tuple(names)) for owner, names in held.items()]
        self._were = [get(values) for values, get, _ in self._held]

    def same(self) -> bool:
        """Whether they all are as they were. Raises: KeyError where one is gone."""
        return [get(values) for values, get, _ in self._held] == self._were

    def changed(self) -> str | None:
        """What is another value than it was, None where nothing is."""
        for (values, _, names), were in zip(self._held, self._were, strict=True):
            for name, was in zip(names, were if len(names) > 1 else (were,), strict=True):
                now = values.get(name, _MISSING)
                if now is not was and (type(now) is not type(was) or now != was):
                    return f"{name}, which forward reads, has changed since capture"
        return None


class Owner:
    """A mapping by what it is, not by what it holds. A class's is another object whenever it is asked for."""

    def __init__(self, values: Mapping[str, Any], of: object = None) -> None:
        """of: the class that they are of, None where they are a file's."""
        self.values, self._of, self.is_class = values, of or values, of is not None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Owner) and self._of is other._of

    def __hash__(self) -> int:
        return id(self._of)


def named(kind: type) -> Iterator[tuple[Owner, str]]:
    """Where the values are that the methods of a class name: in a class, or in a file."""
    own = _own(kind)
    for function in _followed(own):
        for name in _names(function.__code__):
            if isinstance(function.__globals__.get(name, _MISSING), _PLAIN):
                yield Owner(function.__globals__), name
            owner = next((base for base in own if name in vars(base)), None)
            if owner is not None and isinstance(vars(owner)[name], _PLAIN):
                yield Owner(vars(owner), owner), name


def names_in_code(kinds: Iterable[type]) -> set[str]:
    """All that the methods of classes name, by words or by strings."""
    found: set[str] = set()
    for kind in dict.fromkeys(kinds):
        for function in _followed(_own(kind)):
            found.update(_names(function.__code__))
            found.update(each for each in function.__code__.co_consts if isinstance(each, str))
    return found


def asks_for_gradient_mode(kinds: Iterable[type]) -> bool:
    """Whether the methods of classes ask whether gradients are on, or torch is in inference mode."""
    return not {"is_grad_enabled", "is_inference_mode_enabled"}.isdisjoint(names_in_code(kinds))


def _followed(kinds: Sequence[type]) -> list[FunctionType]:
    """The methods of classes, and the functions of their files that they name."""
    found: dict[int, FunctionType] = {}
    todo = [each for kind in kinds for each in _functions(kind)]
    while todo and len(found) < _MOST:
        function = todo.pop()
        if id(function) not in found:
            found[id(function)] = function
            values = (function.__globals__.get(name) for name in _names(function.__code__))
            todo += [v for v in values if isinstance(v, FunctionType) and v.__globals__ is function.__globals__]
    return list(found.values())


def _own(kind: type) -> list[type]:
    """The class and its bases that are no library's."""
    return [base for base in kind.__mro__ if not f"{base.__module__}.".startswith(_OF_LIBRARIES)]


def _functions(kind: type) -> Iterator[FunctionType]:
    for value in vars(kind).values():
        function = getattr(value, "fget", None) or getattr(value, "__func__", value)
        if isinstance(function, FunctionType):
            yield function


def _names(code: CodeType) -> Iterator[str]:
    """All names that a function's code looks up, and those of the functions in it."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)
