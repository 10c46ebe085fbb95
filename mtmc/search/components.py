"""Names to parts and back: the registries of strategies, policies, coders and evaluators, seen from a search.

A part is given as a name ("mcts", one that an installed package brings, or "package.module:Class", see `outside`) or as an
object; an evaluator also as settings that are opened here. What a run records is enough to make a part that has a name again
when it is resumed; any other object must be given again.
"""

from __future__ import annotations

import difflib
import importlib
import inspect
import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import fields, is_dataclass
from typing import Any, Literal

from mtmc.errors import ConfigError, RunError
from mtmc.protocols import Coder, Evaluator, EvaluatorSettings, Policy, Strategy
from mtmc.renamed import refuse_old, under_new_names
from mtmc.search.outside import installed, outside

Kind = Literal["strategy", "policy", "coder", "evaluator"]

_REGISTRIES: Mapping[Kind, tuple[str, str]] = {
    "strategy": ("mtmc.search.strategies", "STRATEGIES"),
    "policy": ("mtmc.agents.policies", "POLICIES"),
    "coder": ("mtmc.agents.trained", "CODERS"),
    "evaluator": ("mtmc.evaluate", "EVALUATORS"),
}
_NAMED = "_mtmc_name"
"""Attribute of a part that is not mtmc's own: the name that it was made by, which is recorded, wherever the object is handed
on to. An object whose class takes no such attribute is recorded as an object."""
_PROTOCOLS: Mapping[Kind, type] = {"strategy": Strategy, "policy": Policy, "coder": Coder, "evaluator": Evaluator}


def registry(kind: Kind) -> Mapping[str, Any]:
    """Name -> class (or factory) of one kind of part, imported on first use."""
    module, name = _REGISTRIES[kind]
    found: Mapping[str, Any] = getattr(importlib.import_module(module), name)
    return found


def maker_of(kind: Kind, name: str) -> Any:
    """The class (or factory) behind a name, mtmc's own or another's.

    Raises: ConfigError for a name that does not exist or that cannot be imported.
    """
    known = registry(kind)
    if name in known:
        return known[name]
    maker = outside(kind, name)
    if maker is None:
        names = [*known, *installed(kind)]
        near = difflib.get_close_matches(name, names, n=1)
        hint = f"did you mean {near[0]!r}? " if near else ""
        raise ConfigError(f"there is no {kind} {name!r}: {hint}use one of {', '.join(names)}, or package.module:Class")
    return maker


def resolve(kind: Kind, part: Any) -> Any:
    """The part itself (or its settings): made with its defaults from a name, or the object that was given.

    Raises: ConfigError for a name that does not exist, or an object that lacks a member of its protocol.
    """
    if isinstance(part, str):
        part = make(kind, part, {})
    if kind == "evaluator" and isinstance(part, EvaluatorSettings) and not isinstance(part, type):
        return part
    lacking = _lacking(part, _PROTOCOLS[kind])
    if lacking or isinstance(part, type):
        named = f"mtmc.protocols.{_PROTOCOLS[kind].__name__}"
        hint = f"give a name ({', '.join(registry(kind))}) or an object whose class has the base {named}"
        raise ConfigError(f"{part!r} is no {kind}: {hint}" + (f"; it lacks {', '.join(lacking)}" if lacking else ""))
    return part


def make(kind: Kind, name: str, settings: Mapping[str, Any]) -> Any:
    """A named part with `settings`. Raises: ConfigError for a name that does not exist or settings it does not take."""
    maker = maker_of(kind, name)
    if not callable(maker) and not settings:
        return maker
    try:
        part = maker(**settings)
    except TypeError as error:
        for each in settings:
            refuse_old(f"{kind}.{each}", [f"{kind}.{known}" for known in _setting_names(maker)])
        raise ConfigError(f"{kind} {name!r} cannot be made with {dict(settings)}: {error}") from error
    if name not in registry(kind):
        with suppress(AttributeError):
            object.__setattr__(part, _NAMED, name)
    return part


def describe(kind: Kind, given: Any, part: Any) -> dict[str, Any]:
    """What a run records of a part: {"name", "settings"} where `make` makes it again, else {"object", "settings"}.

    given: the name or object that `part` was resolved from. An evaluator that stands for another one is recorded as that.
    """
    if isinstance(part, Evaluator) and part.recorded_as is not None:
        return dict(part.recorded_as)
    settings = plain_settings(part)
    for name, maker in _loaded(kind).items():
        if maker is type(part) and settings is not None:
            return {"name": name, "settings": settings}
    if settings is not None and hasattr(part, _NAMED):
        return {"name": getattr(part, _NAMED), "settings": settings}
    if isinstance(given, str):
        return {"name": given, "settings": {}}
    return {"object": f"{type(part).__module__}.{type(part).__qualname__}", "settings": settings or {}}


def remake(kind: Kind, recorded: Mapping[str, Any], given: Any) -> Any:
    """The part that a resumed run goes on with: the one given now, or made again from what was recorded.

    Raises: ConfigError as `resolve`, RunError where it must be given and is not.
    """
    if given is not None:
        return resolve(kind, given)
    if "name" not in recorded:
        raise RunError(f"the {kind} of this run was an object of {recorded['object']}: give it again as {kind}=...")
    name = recorded["name"]
    settings = under_new_names(kind, recorded["settings"], _setting_names(maker_of(kind, name)))
    return resolve(kind, make(kind, name, settings))


def opened(evaluator: Evaluator | EvaluatorSettings) -> Evaluator:
    """The evaluator of settings, which are opened; any other evaluator as it is.

    Raises: EvaluatorError or ConfigError where it cannot be opened, RunError where a record to replay is missing.
    """
    return evaluator.open() if isinstance(evaluator, EvaluatorSettings) else evaluator


def _lacking(part: Any, protocol: type) -> list[str]:
    """What a protocol has and an object has not."""
    members = [*inspect.get_annotations(protocol), *vars(protocol)]
    return [name for name in dict.fromkeys(members) if not name.startswith("_") and not hasattr(part, name)]


def _loaded(kind: Kind) -> Mapping[str, Any]:
    """The registry, or nothing where its own package cannot be imported: an object does without it."""
    try:
        return registry(kind)
    except ImportError:
        return {}


def plain_settings(part: Any) -> dict[str, Any] | None:
    """The settings of a part as plain JSON data; None where they are not plain, or it is no data class."""
    if not is_dataclass(part):
        return None
    settings = {name: getattr(part, name) for name in _setting_names(part)}
    try:
        if json.loads(json.dumps(settings)) == settings:
            return settings
    except TypeError:
        pass
    return None


def _setting_names(part: Any) -> list[str]:
    """Names of the settings of a data class or of an object of one; none for anything else."""
    return [each.name for each in fields(part) if each.init] if is_dataclass(part) else []
