"""Configuration: from what stands on the command line to checked settings, by Hydra.

The schema is made of the settings' own data classes: `SearchConfig` and `Budget`, and behind each name in the
registries of strategies, policies, coders and evaluators the class that is registered there. To add a strategy is one
file and one line in its registry: its settings can then be given as strategy.NAME=VALUE, and nothing is done here.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from mtmc.chat import ModelSettings
from mtmc.conf import overrides as parsing
from mtmc.conf.overrides import quoted
from mtmc.conf.schema import MISSING, Part, allowed, in_words, setting_fields, structured, typed
from mtmc.errors import ConfigError
from mtmc.renamed import refuse_old
from mtmc.search.budget import Budget
from mtmc.search.components import Kind, make, maker_of, registry
from mtmc.search.outside import installed

if TYPE_CHECKING:
    from hydra.core.override_parser.types import Override

__all__ = [
    "CONFIG_NAME",
    "GROUPS",
    "MODULE",
    "VERSION_BASE",
    "Part",
    "SearchConfig",
    "change",
    "check_sweep",
    "compose",
    "make_parts",
    "options",
    "quoted",
    "register",
    "registry",
    "setting_types",
    "settings_of",
]

GROUPS: tuple[Kind, ...] = ("strategy", "policy", "coder", "evaluator")
MODULE = "mtmc.conf"
CONFIG_NAME = "config"
VERSION_BASE = "1.3"
NAME = "name"
"""Key under which a group's config keeps which of its options was chosen."""


@dataclass(frozen=True)
class SearchConfig:
    """All settings of one search, as `mtmc.search.search` takes them. The defaults are those of config.yaml.

    task: a built-in name or a path. out: the run's folder; None: one is made under runs/. seed: of everything drawn.
    batch: versions tried at once. asynchronous: whether the next begins as soon as one ends. repairs: rounds of repair of
    one version at most. dumps: whether the tree's files and the report are written at the end. model: of a coder or a
    policy that asks one.
    """

    task: str
    strategy: Part
    policy: Part
    coder: Part
    evaluator: Part
    out: str | None = None
    seed: int = 0
    batch: int = 1
    asynchronous: bool = False
    repairs: int = 2
    dumps: bool = True
    budget: Budget = field(default_factory=Budget)
    model: ModelSettings = field(default_factory=ModelSettings)


def compose(texts: Sequence[str]) -> SearchConfig:
    """The settings of one search. texts: overrides as they stand on the command line, "budget.evaluations=64".

    Raises: ConfigError naming the setting, its value and the fix.
    """
    return _checked(parsing.parse(texts))


def check_sweep(texts: Sequence[str]) -> tuple[list[str], list[SearchConfig]]:
    """The overrides of a sweep as Hydra's sweeper takes them, and the settings of each of its runs.

    Raises: ConfigError as `compose`, for any run of the sweep.
    """
    given = parsing.parse(texts, sweep=True)
    configs = [_checked(parsing.parse(combination)) for combination in parsing.expand(given)]
    return [parsing.text_of(each) for each in given], configs


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
            raise _explained(error, given, types) from error
    plain: Any = OmegaConf.to_container(values, resolve=True)
    return Budget(**plain["budget"]), ModelSettings(**plain["model"])


def make_parts(config: SearchConfig) -> dict[Kind, Any]:
    """The four parts of a search, made. Raises: ConfigError for a setting out of its range."""
    return {kind: make(kind, getattr(config, kind).name, getattr(config, kind).settings) for kind in GROUPS}


def register() -> None:
    """Hand the schema and every option of every group to Hydra. May be called again after a registry has changed."""
    from hydra.core.config_store import ConfigStore

    store = ConfigStore.instance()
    store.store(name="schema", node=structured(SearchConfig))
    for kind in GROUPS:
        for name, maker in registry(kind).items():
            store.store(group=kind, name=name, node=structured(maker, **{NAME: name}))


def settings_of(config: Any) -> SearchConfig:
    """Plain settings from a composed config (an OmegaConf `DictConfig`), each value checked.

    Raises: ConfigError for a value that is missing or is none of those allowed.
    """
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    try:
        plain: Any = OmegaConf.to_container(config, resolve=True)
    except OmegaConfBaseException as error:
        raise ConfigError(_first_line(error)) from error
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


def options(kind: Kind) -> list[str]:
    """What a group may be set to: the names of its registry, of the files that mtmc/conf has for it, and of what installed
    packages bring; besides these any package.module:Class."""
    files = sorted(path.stem for path in (Path(__file__).parent / kind).glob("*.yaml"))
    return list(dict.fromkeys([*registry(kind), *files, *installed(kind)]))


def _checked(given: Sequence[Override]) -> SearchConfig:
    """Settings from overrides: first which option of each group, then the keys that these have, then the values."""
    for each in given:
        if parsing.for_hydra(each):
            raise ConfigError(f"{parsing.text_of(each)!r} means nothing to a single run: add -m, or leave it out")
    groups = [each for each in given if parsing.name_of(each) in GROUPS and not isinstance(each.value(), dict)]
    for each in groups:
        kind = cast(Kind, parsing.name_of(each))
        if each.value() not in options(kind) and ":" not in str(each.value()):
            near = parsing.nearest(str(each.value()), options(kind))
            raise ConfigError(f"there is no {kind} {parsing.typed_value(each)!r}: {near}")
    chosen = dict(_chosen(tuple(parsing.text_of(each) for each in groups)))
    types = setting_types(chosen)
    rest = [each for each in given if each not in groups]
    for kind, name, value in ((*name.split("."), value) for each in rest for name, value in _two_steps(each)):
        if kind in GROUPS and name == NAME:
            raise ConfigError(f"{kind}.{NAME} follows from the choice: write {kind}={value}")
    parsing.check_keys(rest, types, _owners(chosen))
    return settings_of(_compose(given, types))


@functools.lru_cache(maxsize=256)
def _chosen(texts: tuple[str, ...]) -> tuple[tuple[Kind, str], ...]:
    """The name in its registry that each group stands for. texts: overrides of groups only."""
    composed = _compose(parsing.parse(texts), {})
    return tuple((kind, str(composed[kind][NAME])) for kind in GROUPS)


def _two_steps(override: Override) -> list[tuple[str, Any]]:
    return [(name, value) for name, value in parsing.leaves(override).items() if name.count(".") == 1]


def _compose(given: Sequence[Override], types: Mapping[str, Any]) -> Any:
    from hydra import compose, initialize_config_module
    from hydra.errors import HydraException
    from omegaconf.errors import OmegaConfBaseException

    register()
    _register_outside(given)
    try:
        with initialize_config_module(MODULE, version_base=VERSION_BASE):
            return compose(CONFIG_NAME, [parsing.text_of(each) for each in given])
    except (HydraException, OmegaConfBaseException) as error:
        raise _explained(error, given, types) from error


def _register_outside(given: Sequence[Override]) -> None:
    """Hand Hydra the options that are not mtmc's own, those alone that were chosen: no other is imported."""
    from hydra.core.config_store import ConfigStore

    for each in given:
        kind, name = cast(Kind, parsing.name_of(each)), each.value()
        if kind not in GROUPS or not isinstance(name, str) or name in registry(kind):
            continue
        if ":" in name or name in installed(kind):
            node = structured(maker_of(kind, name), **{NAME: name})
            ConfigStore.instance().store(group=kind, name=name, node=node)


def _explained(error: BaseException, given: Sequence[Override], types: Mapping[str, Any]) -> ConfigError:
    """What Hydra or OmegaConf says, in words of the settings: name, value, what it may be."""
    from omegaconf.errors import ConfigKeyError, OmegaConfBaseException

    inner = error if isinstance(error, OmegaConfBaseException) else error.__cause__ or error.__context__
    name = str(getattr(inner, "full_key", None) or "")
    if isinstance(inner, ConfigKeyError):  # in a file: those of the command line were looked at before
        refuse_old(name)
    for override in given:
        whole, values = parsing.name_of(override), parsing.leaves(override)
        if name in values:
            value = parsing.typed_value(override) if name == whole else values[name]
            inside = ", ".join(each for each in types if each.startswith(f"{name}."))
            fix = f"use {in_words(types[name])}" if name in types else f"give its settings one by one: {inside}"
            return ConfigError(f"{name} cannot be {value!r}: {fix}")
    return ConfigError(_first_line(inner or error))


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


def _first_line(error: BaseException) -> str:
    return str(error).strip().splitlines()[0]


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
