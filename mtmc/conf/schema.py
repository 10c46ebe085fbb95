"""Schema: settings data classes as OmegaConf's structured configs, and the types of settings in words.

The settings live in frozen data classes next to what they set. OmegaConf wants its own: mutable (a frozen one makes a
read-only config) and in the types that it knows. `structured` makes the one from the other.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import types
import typing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Union, cast, get_args, get_origin

from mtmc.errors import ConfigError


@dataclass(frozen=True)
class Part:
    """One of the four parts of a search: its name in the registry, and its settings.

    In a config it may hold whatever is registered, so that there its type is `Any`.
    """

    name: str
    settings: Mapping[str, Any] = field(default_factory=dict)


MISSING = "???"
"""OmegaConf's mark of a setting without a value."""

_PLAIN = (bool, int, float, str, bytes, Path)
_WORDS = {bool: "true or false", int: "a whole number", float: "a number", str: "text", Path: "a path"}


def setting_fields(cls: Any) -> dict[str, Any]:
    """Name -> type of the settings of a class: the fields that its constructor takes; {} for anything else."""
    if not (isinstance(cls, type) and dataclasses.is_dataclass(cls)):
        return {}
    hints = typing.get_type_hints(cls)
    return {each.name: hints[each.name] for each in dataclasses.fields(cls) if each.init}


@functools.cache
def structured(cls: Any, **more: Any) -> type:
    """A mutable copy of a settings class for OmegaConf. more: fields of text to put first, name=default."""
    made: list[Any] = [(name, str, field(default=default)) for name, default in more.items()]
    types_by_name = setting_fields(cls)
    clash = sorted(set(more) & set(types_by_name))
    if clash:
        raise TypeError(f"{cls.__qualname__} cannot have a setting called {clash[0]!r}: it is used for its own name")
    for each in dataclasses.fields(cls) if types_by_name else ():
        if each.init:
            made.append((each.name, config_type(types_by_name[each.name]), _default(each)))
    name = getattr(cls, "__name__", type(cls).__name__)
    return dataclasses.make_dataclass(f"{name}Config", made)


def config_type(hint: Any) -> Any:
    """The type that OmegaConf checks a setting against; `Any` where it knows none."""
    inner = optional_inner(hint)
    if inner is not None:
        return typing.Optional[config_type(inner)]  # noqa: UP045 - a value, built at run time
    if hint in _PLAIN or (isinstance(hint, type) and issubclass(hint, enum.Enum)):
        return hint
    if dataclasses.is_dataclass(hint):
        return Any if hint is Part else structured(cast(type, hint))
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Literal:
        kinds = {type(value) for value in arguments}
        return kinds.pop() if len(kinds) == 1 else Any
    if origin in (list, tuple, Sequence):
        return list[config_type(arguments[0])]  # type: ignore[misc]
    if origin in (dict, Mapping):
        return dict[config_type(arguments[0]), config_type(arguments[1])]  # type: ignore[misc]
    return Any


def optional_inner(hint: Any) -> Any:
    """T of `T | None`, None for a type that does not take None."""
    if get_origin(hint) not in (Union, types.UnionType):
        return None
    others = [each for each in get_args(hint) if each is not type(None)]
    if len(others) == len(get_args(hint)):
        return None
    return others[0] if len(others) == 1 else Any


def in_words(hint: Any) -> str:
    """What a setting of this type may be: "a whole number, or null"."""
    inner = optional_inner(hint)
    if inner is not None:
        return f"{in_words(inner)}, or null"
    if get_origin(hint) is Literal:
        return "one of " + ", ".join(str(value) for value in get_args(hint))
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return "one of " + ", ".join(member.name for member in hint)
    if get_origin(hint) in (list, tuple, Sequence):
        return f"a list [..., ...], each {in_words(get_args(hint)[0])}"
    if dataclasses.is_dataclass(hint) or get_origin(hint) in (dict, Mapping):
        return "settings {name: value, ...}"
    return _WORDS.get(hint, f"a value of type {getattr(hint, '__name__', hint)}")


def setting_lines(cls: Any, words: Mapping[str, str] | None = None) -> list[str]:
    """A line of help for each setting of a class: what it may be, and its default. words: what else to say of some."""
    defaults = {each.name: each.default for each in dataclasses.fields(cls)}
    lines = []
    for name, hint in setting_fields(cls).items():
        told = "" if defaults[name] in ("", (), None) else f" ({defaults[name]})"
        lines.append(f"  {name}=  {(words or {}).get(name, in_words(hint))}{told}")
    return lines


def flat(prefix: str, cls: Any) -> list[tuple[str, Any]]:
    """Dotted name and type of every setting of a class, those within settings too. prefix: of the names."""
    found: list[tuple[str, Any]] = []
    for name, hint in setting_fields(cls).items():
        found += flat(f"{prefix}{name}.", hint) if dataclasses.is_dataclass(hint) else [(f"{prefix}{name}", hint)]
    return found


def typed(value: Any, hint: Any) -> Any:
    """A plain value from a config as the settings class declares it: lists become the tuples that they stand for."""
    inner = optional_inner(hint)
    if inner is not None:
        return None if value is None else typed(value, inner)
    if get_origin(hint) is tuple and isinstance(value, list):
        return tuple(typed(each, get_args(hint)[0]) for each in value)
    if dataclasses.is_dataclass(hint) and isinstance(value, dict):
        return hint(**{name: typed(value[name], kind) for name, kind in setting_fields(hint).items()})  # type: ignore[operator]
    return value


def allowed(value: Any, hint: Any) -> bool:
    """Whether a value that has the right plain type is one of those that a `Literal` allows."""
    inner = optional_inner(hint)
    if inner is not None:
        return value is None or allowed(value, inner)
    return get_origin(hint) is not Literal or value in get_args(hint)


def made_settings(cls: Any, prefix: str, values: Mapping[str, Any], types: Mapping[str, Any]) -> Any:
    """Settings of a class with some changed. values: by dotted name, with the prefix. types: of all settings, by
    dotted name.

    Raises: ConfigError for a value that cannot be.
    """
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    config = OmegaConf.create(structured(cls)())
    for name, value in values.items():
        hint = types.get(name)
        listed = get_origin(hint) is tuple and not isinstance(value, list)
        problem = ConfigError(f"{name} cannot be {'null' if value is None else value!r}: use {in_words(hint)}")
        try:
            OmegaConf.update(config, name.removeprefix(prefix), [value] if listed else value)
        except OmegaConfBaseException as error:
            raise problem from error
        if not allowed(value, hint):
            raise problem
    plain: Any = OmegaConf.to_container(config, resolve=True)
    return cls(**{name: typed(plain[name], hint) for name, hint in setting_fields(cls).items()})


def _default(declared: dataclasses.Field[Any]) -> Any:
    if declared.default_factory is not dataclasses.MISSING:
        factory = declared.default_factory
        return field(default_factory=lambda: _plain_default(factory()))
    if declared.default is dataclasses.MISSING:
        return field(default=MISSING)
    return field(default_factory=lambda: _plain_default(declared.default))


def _plain_default(value: Any) -> Any:
    """A default as a structured config can hold it."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        given = {name: _plain_default(getattr(value, name)) for name in setting_fields(type(value))}
        return structured(type(value))(**given)
    if isinstance(value, (list, tuple)):
        return [_plain_default(each) for each in value]
    return dict(value) if isinstance(value, Mapping) else value
