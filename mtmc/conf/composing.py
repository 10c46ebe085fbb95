"""Composing: what Hydra is handed, what it makes of overrides, and its errors in words of the settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from mtmc.conf import overrides as parsing
from mtmc.conf.overrides import quoted
from mtmc.conf.schema import in_words, structured
from mtmc.conf.search_config import CONFIG_NAME, GROUPS, MODULE, NAME, RUN_DIR, VERSION_BASE, SearchConfig
from mtmc.errors import ConfigError
from mtmc.renamed import refuse_old
from mtmc.search.components import Kind, maker_of, registry
from mtmc.search.outside import installed

if TYPE_CHECKING:
    from hydra.core.override_parser.types import Override


def register() -> None:
    """Hand the schema and every option of every group to Hydra. May be called again after a registry has changed."""
    from hydra.core.config_store import ConfigStore

    store = ConfigStore.instance()
    store.store(name="schema", node=structured(SearchConfig))
    for kind in GROUPS:
        for name, maker in registry(kind).items():
            store.store(group=kind, name=name, node=structured(maker, **{NAME: name}))


def options(kind: Kind, config_dir: str = "") -> list[str]:
    """What a group may be set to: the names of its registry, of the files that mtmc/conf and `config_dir` have for it, and
    of what installed packages bring; besides these any package.module:Class."""
    folders = [Path(__file__).parent, *([Path(config_dir).expanduser()] if config_dir else [])]
    files = [path.stem for folder in folders for path in sorted((folder / kind).glob("*.yaml"))]
    return list(dict.fromkeys([*registry(kind), *files, *installed(kind)]))


def groups_of(config_dir: str) -> tuple[str, ...]:
    """Groups that a folder brings besides those of mtmc. Raises: ConfigError where there is no such folder."""
    if not config_dir:
        return ()
    folder = Path(config_dir).expanduser()
    if not folder.is_dir():
        raise ConfigError(f"there is no folder {config_dir!r}: give the one with your config files as --config-dir")
    return tuple(sorted(path.name for path in folder.iterdir() if path.is_dir() and path.name not in GROUPS))


def run_dir(given: Sequence[Override], composed: Any) -> str | None:
    """The folder of a single run in Hydra's words, None where it is not given so. Raises: ConfigError beside out=."""
    from omegaconf.errors import OmegaConfBaseException

    names = [parsing.name_of(each) for each in given]
    if RUN_DIR not in names:
        return None
    if "out" in names:
        raise ConfigError(f"out and {RUN_DIR} both name the run's folder: leave one of the two out")
    try:
        return str(composed.hydra.run.dir)
    except OmegaConfBaseException as error:
        raise ConfigError(f"{RUN_DIR} cannot be resolved: {first_line(error)}") from error


def without_hydra(composed: Any) -> Any:
    """The config without Hydra's own settings."""
    from omegaconf import OmegaConf

    return OmegaConf.masked_copy(composed, [name for name in composed if name != "hydra"])


def composed_by_hydra(
    given: Sequence[Override], types: Mapping[str, Any], config_dir: str = "", with_hydra: bool = False
) -> Any:
    """What Hydra composes of overrides (a `DictConfig`). types: of all settings, for what is said of a bad value.
    with_hydra: with Hydra's own settings too. Raises: ConfigError in words of the settings."""
    from hydra import compose, initialize_config_module
    from hydra.errors import HydraException
    from omegaconf.errors import OmegaConfBaseException

    register()
    _register_outside(given)
    try:
        with initialize_config_module(MODULE, version_base=VERSION_BASE):
            texts = [parsing.text_of(each) for each in given]
            if config_dir:
                place = quoted(f"file://{Path(config_dir).expanduser().absolute()}")
                texts.append(f"hydra.searchpath=[{place}]")
            return compose(CONFIG_NAME, texts, return_hydra_config=with_hydra)
    except (HydraException, OmegaConfBaseException) as error:
        raise explained(error, given, types) from error


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


def explained(error: BaseException, given: Sequence[Override], types: Mapping[str, Any]) -> ConfigError:
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
    return ConfigError(first_line(inner or error))


def first_line(error: BaseException) -> str:
    """What an error of Hydra or OmegaConf says first."""
    return str(error).strip().splitlines()[0]
