"""From plain JSON back to typed facts: what another process says is validated before it is used.

Answers cross the border of a process that runs candidates as JSON (nothing of it is ever unpickled), written with
`dataclasses.asdict`. The types are those of the annotations; no value is converted but a whole number that stands for
a float.
"""

from __future__ import annotations

import dataclasses
import functools
import types
from collections.abc import Mapping, Sequence, Set
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints, is_typeddict


class MalformedError(ValueError):
    """Plain data that is not of the wanted type."""


def from_plain(kind: Any, data: Any) -> Any:
    """`data` as `kind`: a data class or typed dict, a scalar, or a union, tuple, list, Sequence or Mapping (with string
    keys) of such.

    A data class takes an object with its fields alone; those that have a default may be missing. Of a union the first
    type that fits is taken. Any, object: whatever it is. Raises: MalformedError naming what was found instead.
    """
    origin, arguments = get_origin(kind), get_args(kind)
    if kind in (Any, object):
        return data
    if origin in (Union, types.UnionType):
        return _first_that_fits(arguments, data)
    if origin is Literal and any(data is each or (type(data) is str and data == each) for each in arguments):
        return data
    if (dataclasses.is_dataclass(kind) or is_typeddict(kind)) and isinstance(data, dict):
        return _object(kind, data)
    if origin in (tuple, list, Sequence) and isinstance(data, list | tuple):
        return _items(origin, arguments, data)
    if origin in (dict, Mapping) and isinstance(data, dict) and all(type(key) is str for key in data):
        return {key: from_plain(arguments[1], value) for key, value in data.items()}
    if kind is float and type(data) in (int, float):
        return float(data)
    if kind in (int, str, bool, dict, type(None)) and type(data) is kind:
        return data
    raise MalformedError(f"{str(data)[:100]!r} is no {getattr(kind, '__name__', kind)}")


def returned(function: Any, data: Any) -> Any:
    """`data` as what a function says that it returns. Raises: MalformedError."""
    return from_plain(_hints(function)["return"], data)


def _first_that_fits(kinds: Sequence[Any], data: Any) -> Any:
    why: list[str] = []
    for kind in _likely(kinds, data):
        try:
            return from_plain(kind, data)
        except MalformedError as error:
            why.append(str(error))
    raise MalformedError("; ".join(why)[:500])


def _likely(kinds: Sequence[Any], data: Any) -> Sequence[Any]:
    """Of the types of a union the one whose fields an object has, if there is one; else all: who is told why nothing fits is
    told it of each."""
    if isinstance(data, dict):
        for kind in kinds:
            if getattr(kind, "__dataclass_fields__", {}).keys() == data.keys() != set():
                return (kind,)
    return kinds


def _object(kind: Any, data: Mapping[str, Any]) -> Any:
    hints = _hints(kind)
    missing = [name for name in hints if name not in data and name in _required(kind)]
    unknown = [name for name in data if name not in hints]
    if missing or unknown:
        what = f"lacks {missing[0]}" if missing else f"has {str(unknown[0])[:100]!r}"
        raise MalformedError(f"an object {what}, and so is no {kind.__name__}")
    return kind(**{name: from_plain(hints[name], value) for name, value in data.items()})


@functools.cache
def _required(kind: Any) -> Set[str]:
    """Names of the fields that cannot be left out."""
    if is_typeddict(kind):
        return kind.__required_keys__
    none = (dataclasses.MISSING, dataclasses.MISSING)
    return {field.name for field in dataclasses.fields(kind) if (field.default, field.default_factory) == none}


def _items(origin: Any, arguments: Sequence[Any], data: Sequence[Any]) -> Any:
    if origin is not tuple or arguments[-1:] == (...,):
        items = [from_plain(arguments[0], item) for item in data]
        return items if origin is list else tuple(items)
    if len(arguments) != len(data):
        raise MalformedError(f"{len(data)} items instead of {len(arguments)}")
    return tuple(from_plain(kind, item) for kind, item in zip(arguments, data, strict=True))


_hints = functools.cache(get_type_hints)
