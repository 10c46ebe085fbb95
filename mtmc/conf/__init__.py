"""Configuration: from what stands on the command line to checked settings, by Hydra.

The schema is made of the settings' own data classes: `SearchConfig` and `Budget`, and behind each name in the
registries of strategies, policies, coders and evaluators the class that is registered there. To add a strategy is one
file and one line in its registry: its settings can then be given as strategy.NAME=VALUE, and nothing is done here.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from mtmc.chat import ModelSettings
from mtmc.conf import overrides as parsing
from mtmc.conf.composing import (
    composed_by_hydra,
    explained,
    first_line,
    groups_of,
    options,
    register,
    run_dir,
    without_hydra,
)
from mtmc.conf.overrides import quoted
from mtmc.conf.schema import MISSING, Part, allowed, in_words, setting_fields, structured, typed
from mtmc.conf.search_config import CONFIG_NAME, GROUPS, MODULE, NAME, RUN_DIR, VERSION_BASE, SearchConfig
from mtmc.errors import ConfigError
from mtmc.search.budget import Budget
from mtmc.search.components import Kind, make, maker_of, registry

if TYPE_CHECKING:
    from hydra.core.override_parser.types import Override

__all__ = [
    "CONFIG_NAME",
    "GROUPS",
    "MODULE",
    "VERSION_BASE",
    "Part",
    "SearchConfig",
    "as_hydra_shows",
    "change",
    "check_sweep",
    "compose",
    "make_parts",
    "make_search",
    "options",
    "quoted",
    "register",
    "registry",
    "setting_types",
    "settings_of",
]


def compose(texts: Sequence[str], config_dir: str = "") -> SearchConfig:
    """The settings of one search.

    texts: overrides as they stand on the command line, "budget.evaluations=64". config_dir: a folder with more options of
    the groups, and with groups of its own, which are added by +group=option; "" for none.

    Raises: ConfigError naming the setting, its value and the fix.
    """
    return _checked(parsing.parse(texts, added=groups_of(config_dir)), config_dir)


def check_sweep(texts: Sequence[str], config_dir: str = "") -> tuple[list[str], list[SearchConfig]]:
    """The overrides of a sweep as Hydra's sweeper takes them, and the settings of each of its runs; for a sweeper that
    draws values by itself, those of runs that have each of the values. config_dir: as `compose`.

    Raises: ConfigError as `compose`, for any run of the sweep.
    """
    added = groups_of(config_dir)
    given = parsing.parse(texts, sweep=True, added=added)
    configs = [_checked(parsing.parse(each, added=added), config_dir) for each in parsing.expand(given)]
    return [parsing.text_of(each) for each in given], configs


def as_hydra_shows(texts: Sequence[str], what: str, config_dir: str = "") -> Any:
    """The composed config as Hydra's own --cfg shows it (a `DictConfig`). what: "job", "hydra" or "all".

    Raises: ConfigError as `compose`.
    """
    from omegaconf import OmegaConf

    compose(texts, config_dir)
    whole = composed_by_hydra(parsing.parse(texts, added=groups_of(config_dir)), {}, config_dir, with_hydra=True)
    if what == "all":
        return whole
    names = ["hydra"] if what == "hydra" else [name for name in whole if name != "hydra"]
    return OmegaConf.masked_copy(whole, names)


def change(budget: Budget, model: ModelSettings, texts: Sequence[str]) -> tuple[Budget, ModelSettings]:
    """A recorded budget and model with overrides of `budget.*` and `model.*`, all that a resumed run may change.

    Raises: ConfigError for any other setting, an unknown one, or a value that cannot be.
    """
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    recorded: dict[str, Any] = {"budget": budget, "model": model}
    types = {name: hint for each, part in recorded.items() for name, hint in _flat(each, type(part)).items()}
    given = parsing.parse(texts)
    for name in (parsing.name_of(each).split(".")[0] for each in given):
        if name not in recorded and name in setting_fields(SearchConfig):
            raise ConfigError(f"a resumed run keeps its {name}: only budget.* and model.* may change")
    parsing.check_keys(given, types, {})
    values = OmegaConf.create(
        {each: structured(cast(Any, type(part)))(**dataclasses.asdict(part)) for each, part in recorded.items()}
    )
    for name, value in ((name, value) for each in given for name, value in parsing.leaves(each).items()):
        try:
            OmegaConf.update(values, name, value)
        except OmegaConfBaseException as error:
            raise explained(error, given, types) from error
    plain: Any = OmegaConf.to_container(values, resolve=True)
    return Budget(**plain["budget"]), ModelSettings(**plain["model"])


def make_parts(config: SearchConfig) -> dict[Kind, Any]:
    """The four parts of a search, made. Raises: ConfigError for a setting out of its range."""
    return {kind: make(kind, getattr(config, kind).name, getattr(config, kind).settings) for kind in GROUPS}


def make_search(config: SearchConfig) -> dict[str, Any]:
    """What `search` and `optimize` take by keyword, but for what each has of its own: the four parts, made, and how they
    search. Raises: ConfigError for a setting out of its range."""
    how = ("budget", "seed", "batch", "asynchronous", "repairs", "model", "agents", "dumps")
    return dict[str, Any](make_parts(config).items()) | {name: getattr(config, name) for name in how}


def settings_of(config: Any) -> SearchConfig:
    """Plain settings from a composed config (an OmegaConf `DictConfig`), each value checked.

    Raises: ConfigError for a value that is missing or is none of those allowed.
    """
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    try:
        plain: Any = OmegaConf.to_container(config, resolve=True)
    except OmegaConfBaseException as error:
        raise ConfigError(first_line(error)) from error
    _check_values(plain, setting_types({kind: plain[kind][NAME] for kind in GROUPS}))
    parts: dict[str, Any] = {kind: _part(kind, plain[kind]) for kind in GROUPS}
    hints = setting_fields(SearchConfig)
    others = {name: typed(value, hints[name]) for name, value in plain.items() if name not in parts}
    return SearchConfig(**others, **parts)


def setting_types(chosen: Mapping[Kind, str]) -> dict[str, Any]:
    """Dotted name -> type of every setting. chosen: which option of each group, e.g. {"strategy": "mcts", ...}."""
    types: dict[str, Any] = {}
    for name, hint in setting_fields(SearchConfig).items():
        if name in GROUPS:
            types.update(_flat(name, _maker(name, chosen[name])))
        elif dataclasses.is_dataclass(hint):
            types.update(_flat(name, hint))
        else:
            types[name] = hint
    return types


def _checked(given: Sequence[Override], config_dir: str) -> SearchConfig:
    """Settings from overrides: first which option of each group, then the keys that these have, then the values."""
    for each in given:
        if parsing.for_hydra(each) and parsing.name_of(each) != RUN_DIR:
            raise ConfigError(f"{parsing.text_of(each)!r} means nothing to a single run: add -m, or leave it out")
    groups = [each for each in given if parsing.name_of(each) in GROUPS and not isinstance(each.value(), dict)]
    for each in groups:
        kind = cast(Kind, parsing.name_of(each))
        if each.value() not in options(kind, config_dir) and ":" not in str(each.value()):
            near = parsing.nearest(str(each.value()), options(kind, config_dir))
            raise ConfigError(f"there is no {kind} {parsing.typed_value(each)!r}: {near}")
    added = [each for each in given if parsing.name_of(each) in groups_of(config_dir)]
    chosen = dict(_chosen(tuple(parsing.text_of(each) for each in (*groups, *added)), config_dir))
    types = setting_types(chosen)
    rest = [each for each in given if each not in groups and each not in added and not parsing.for_hydra(each)]
    for kind, name, value in ((*name.split("."), value) for each in rest for name, value in _two_steps(each)):
        if kind in GROUPS and name == NAME:
            raise ConfigError(f"{kind}.{NAME} follows from the choice: write {kind}={value}")
    parsing.check_keys(rest, types, _owners(chosen))
    composed = composed_by_hydra(given, types, config_dir, with_hydra=True)
    place = run_dir(given, composed)
    config = settings_of(without_hydra(composed))
    return config if place is None else dataclasses.replace(config, out=place)


@functools.lru_cache(maxsize=256)
def _chosen(texts: tuple[str, ...], config_dir: str) -> tuple[tuple[Kind, str], ...]:
    """The name in its registry that each group stands for. texts: overrides of groups only."""
    composed = composed_by_hydra(parsing.parse(texts, added=groups_of(config_dir)), {}, config_dir)
    return tuple((kind, str(composed[kind][NAME])) for kind in GROUPS)


def _two_steps(override: Override) -> list[tuple[str, Any]]:
    return [(name, value) for name, value in parsing.leaves(override).items() if name.count(".") == 1]


def _check_values(plain: Mapping[str, Any], types: Mapping[str, Any]) -> None:
    if plain["task"] in (MISSING, ""):
        from mtmc.task import builtin_names

        names = ", ".join(builtin_names())
        raise ConfigError(f"task is missing: give task=PATH of a .py file or task=NAME, one of {names}")
    for name, hint in types.items():
        value: Any = plain
        for step in name.split("."):
            value = value[step]
        if value == MISSING:
            raise ConfigError(f"{name} is missing: give {name}=VALUE, {in_words(hint)}")
        if not allowed(value, hint):
            raise ConfigError(f"{name} cannot be {value!r}: use {in_words(hint)}")


def _maker(kind: Kind, name: str) -> Any:
    """What stands behind a name. Raises: ConfigError for a name that does not exist or cannot be imported."""
    return maker_of(kind, name)


def _flat(prefix: str, cls: Any) -> dict[str, Any]:
    return {f"{prefix}.{name}": hint for name, hint in setting_fields(cls).items()}


def _owners(chosen: Mapping[Kind, str]) -> dict[str, str]:
    """Settings of options that are not chosen, and which option has them."""
    return {
        name: f"{kind}={other}"
        for kind in GROUPS
        for other, maker in registry(kind).items()
        if other != chosen[kind]
        for name in _flat(kind, maker)
    }


def _part(kind: Kind, plain: Mapping[str, Any]) -> Part:
    name = str(plain[NAME])
    fields = setting_fields(_maker(kind, name))
    return Part(name, {each: typed(plain[each], hint) for each, hint in fields.items()})
