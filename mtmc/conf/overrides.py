"""Overrides: what stands on the command line, `name=value`, read with Hydra's grammar and checked against the settings.

Hydra refuses an unknown key, too, but cannot say which one was meant. Everything is checked here before Hydra composes
anything, so that a mistake costs one message and leaves nothing behind.
"""

from __future__ import annotations

import difflib
import itertools
import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mtmc.errors import ConfigError
from mtmc.renamed import refuse_old

if TYPE_CHECKING:
    from hydra.core.override_parser.types import Override

PATHS = ("task", "out", "path", "score")
"""Settings that are paths: a value that Hydra's grammar cannot read is taken as it stands."""

_SHORT_BUDGET = re.compile(r"budget=(\d+)")

OPEN = ("model.extra", "evaluator.settings", "agents.models")
"""Settings that take any entries: model.extra={top_p: 0.9}, or model.extra.top_p=0.9."""

_HYDRA = "hydra"


def parse(texts: Sequence[str], sweep: bool = False, added: Collection[str] = ()) -> list[Override]:
    """Overrides from the command line. sweep: whether one may have several values. added: what may be added, +name=value.

    Raises: ConfigError for text that is no setting, and for what Hydra's grammar has and mtmc has no use for.
    """
    return [_parse_one(text, sweep, added) for text in texts]


def text_of(override: Override) -> str:
    """The override as Hydra reads it: an entry of a setting that takes any is added, in its words."""
    text = str(override.input_line)
    return f"++{text.lstrip('+')}" if _is_open(name_of(override)) else text


def _is_open(name: str) -> bool:
    return any(name == each or name.startswith(f"{each}.") for each in OPEN)


def name_of(override: Override) -> str:
    """The setting's dotted name."""
    return str(override.key_or_group)


def name_in(text: str) -> str:
    """The dotted name of the setting that a text sets, whatever it sets it to."""
    return text.partition("=")[0].lstrip("+~")


def with_long_names(texts: Sequence[str]) -> list[str]:
    """The same texts, "budget=48" as "budget.evaluations=48"."""
    return [f"budget.evaluations={short[1]}" if (short := _SHORT_BUDGET.fullmatch(text)) else text for text in texts]


def typed_value(override: Override) -> str:
    """The value as it was typed."""
    return str(override.input_line).partition("=")[2]


def for_hydra(override: Override) -> bool:
    """Whether a setting is Hydra's own ("hydra.sweep.dir", "hydra/launcher")."""
    return name_of(override).replace("/", ".").split(".")[0] == _HYDRA


def nearest(name: str, known: Collection[str]) -> str:
    """ "did you mean ...?" for a name that does not exist, or all that do where none is near."""
    near = difflib.get_close_matches(name, known, n=1)
    return f"did you mean {near[0]}?" if near else f"use one of {', '.join(known)}"


def leaves(override: Override) -> dict[str, Any]:
    """Dotted name -> value of every setting that an override gives: several for budget={evaluations: 8, depth: 4}."""
    found: dict[str, Any] = {}

    def visit(name: str, value: Any) -> None:
        if isinstance(value, dict) and value:
            for key, inner in value.items():
                visit(f"{name}.{key}", inner)
        else:
            found[name] = value

    visit(name_of(override), override.value())
    return found


def check_keys(overrides: Sequence[Override], types: Mapping[str, Any], owners: Mapping[str, str]) -> None:
    """See that every override names a setting. types: of all settings, by dotted name. owners: which choice has the
    settings that the present choices do not have ("strategy.follow" -> "strategy=greedy").

    Raises: ConfigError naming the nearest setting, or the new name of one that is called otherwise now.
    """
    for name in (name for override in overrides for name in leaves(override)):
        if name in types or any(known.startswith(f"{name}.") for known in types):
            continue
        if any(name.startswith(f"{each}.") and each in types for each in OPEN):
            continue
        if name in owners:
            raise ConfigError(f"{name} is a setting of {owners[name]}, which was not chosen: leave one of the two out")
        refuse_old(name)
        raise ConfigError(f"there is no setting {name!r}: {nearest(name, types)}")


def sweeper_of(overrides: Sequence[Override]) -> str:
    """Which of Hydra's sweepers runs a sweep: "basic", or what hydra/sweeper names."""
    return next((str(each.value()) for each in overrides if name_of(each) == "hydra/sweeper"), "basic")


def launcher_of(overrides: Sequence[Override]) -> str:
    """Which of Hydra's launchers starts the runs of a sweep: "basic", or what hydra/launcher names."""
    return next((str(each.value()) for each in overrides if name_of(each) == "hydra/launcher"), "basic")


def expand(overrides: Sequence[Override]) -> list[list[str]]:
    """Every combination of a sweep's values, in the order in which Hydra's basic sweeper runs them; for another sweeper,
    which chooses by itself, each value once, with the first of the others, and of an interval its two ends.

    Settings of Hydra itself are left out. Raises: ConfigError for an interval, of which the basic sweeper has no values.
    """
    choices = _choices(overrides, sweeper_of(overrides) == "basic")
    if sweeper_of(overrides) == "basic":
        return [list(combination) for combination in itertools.product(*choices.values())]
    first = {name: values[0] for name, values in choices.items()}
    others = [{**first, name: value} for name, values in choices.items() for value in values[1:]]
    return [list(each.values()) for each in (first, *others)]


def _choices(overrides: Sequence[Override], basic: bool) -> dict[str, list[str]]:
    choices: dict[str, list[str]] = {}
    for override in overrides:
        if for_hydra(override):
            continue
        name = name_of(override)
        if not override.is_sweep_override():
            choices[name] = [text_of(override)]
        elif override.is_discrete_sweep():
            sign = "+" if override.is_add() else ""
            choices[name] = [f"{sign}{name}={value}" for value in override.sweep_string_iterator()]
        elif basic:
            hint = f"give a list of values, {name}=a,b,c, or a sweeper that draws from it, hydra/sweeper=optuna"
            raise ConfigError(f"{text_of(override)!r} cannot be swept: {hint}")
        else:
            interval: Any = override.value()
            choices[name] = [f"{name}={interval.start}", f"{name}={interval.end}"]
    return choices


def quoted(value: str) -> str:
    """A value in quotes of Hydra's grammar, where a backslash counts only before a quote."""
    escaped = value.replace("\\'", "\\\\'").replace("'", "\\'")
    if value.endswith("\\"):
        escaped += "\\" * (len(value) - len(value.rstrip("\\")))
    return f"'{escaped}'"


def _parse_one(text: str, sweep: bool, added: Collection[str]) -> Override:
    override = _read(text, sweep)
    name = name_of(override)
    if override.is_delete():
        raise ConfigError(f"{text!r} takes a setting away, which no search can do without: write {name}=value")
    if override.is_add() and not override.is_force_add() and name not in (*OPEN, *added) and not _is_open(name):
        raise ConfigError(f"{text!r}: settings cannot be added, they are all there: write {text.lstrip('+')}")
    if override.package is not None:
        raise ConfigError(f"{text!r} moves a setting to another place: write {name}=value")
    if override.is_sweep_override() and not sweep:
        raise ConfigError(f"{text!r} has several values: add -m to run them all, or give one")
    return override


def _read(text: str, sweep: bool) -> Override:
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import HydraException

    parser = OverridesParser.create()
    name, equals, value = text.partition("=")
    try:
        override = parser.parse_override(text)
        literal = not sweep and name in PATHS and override.is_sweep_override() and Path(value).exists()
    except HydraException as error:
        literal = name in PATHS and bool(equals)
        if not literal:
            fix = "write name=value, and put a value with special characters in quotes: name='\"...\"'"
            raise ConfigError(f"{text!r} is no setting: {fix}") from error
    return parser.parse_override(f"{name}={quoted(value)}") if literal else override
