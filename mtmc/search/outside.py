"""outside: parts that are not mtmc's own, found by name.

Two ways to a name: a package that is installed declares an entry point,

    [project.entry-points."mtmc.strategies"]
    annealing = "my_package.annealing:Annealing"

and is then used like any other, strategy=annealing. Or the class itself is named, strategy=my_package.annealing:Annealing.
What has a name of mtmc's own cannot be had by that name.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

from mtmc.errors import ConfigError, MtmcError

GROUPS: Mapping[str, str] = {
    "strategy": "mtmc.strategies",
    "policy": "mtmc.policies",
    "coder": "mtmc.coders",
    "evaluator": "mtmc.evaluators",
}
"""Kind of part -> group of entry points. An entry point is the class of its settings, as in mtmc's own registries."""


def installed(kind: str) -> list[str]:
    """Names of the parts of a kind that installed packages bring, sorted. None of them is imported."""
    return sorted({each.name for each in metadata.entry_points(group=GROUPS[kind])})


def outside(kind: str, name: str) -> Any:
    """The class (or factory) behind a name that is not mtmc's own; None where there is no such name.

    Raises: ConfigError for one that is there but cannot be imported, and for a class that does not exist.
    """
    if ":" in name:
        return _imported(name)
    for each in metadata.entry_points(group=GROUPS[kind]):
        if each.name == name:
            return _imported(each.value)
    return None


def _imported(text: str) -> Any:
    """What "package.module:Class" names; modules in the present folder are found too."""
    module_name, _, path = text.partition(":")
    if not module_name or not path:
        raise ConfigError(f"{text!r} names no class: write it as package.module:Class")
    if "" not in sys.path and str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        found: Any = importlib.import_module(module_name)
    except MtmcError:
        raise
    except Exception as error:  # a module of somebody else may raise whatever it likes
        hint = "run mtmc in the folder that it is in, or install it"
        raise ConfigError(
            f"{module_name} cannot be imported for {text!r} ({type(error).__name__}: {error}): {hint}"
        ) from error
    for name in path.split("."):
        if not hasattr(found, name):
            raise ConfigError(f"{module_name} has no {path!r}: name a class of it, {module_name}:Class")
        found = getattr(found, name)
    if not callable(found):
        raise ConfigError(f"{text} is a {type(found).__name__}: name a class whose fields are the settings")
    return found
