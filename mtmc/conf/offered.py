"""Offered: the settings that each command takes, with what each may be, for whoever types one.

`Offers` has, by dotted name, the type of a setting, or a tuple of the names that it may be set to.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from mtmc.conf.composing import options
from mtmc.conf.overrides import PATHS
from mtmc.conf.schema import setting_fields
from mtmc.conf.search_config import CONFIG_NAME, GROUPS
from mtmc.errors import ConfigError
from mtmc.search.components import Kind, registry

Offers = Mapping[str, Any]
TASK = "task"


def of_search(texts: Sequence[str], config_dir: str = "") -> dict[str, Any]:
    """Of `mtmc search`. texts: overrides that are typed already: which strategy was chosen says which settings there are.
    config_dir: a folder with more options of the groups."""
    from mtmc.conf import setting_types
    from mtmc.task import builtin_names

    chosen = _defaults() | {kind: name for kind, name in _given(texts).items() if kind in GROUPS}
    known = {kind: name if name in registry(kind) else _defaults()[kind] for kind, name in chosen.items()}
    groups = {str(kind): tuple(options(kind, config_dir)) for kind in GROUPS}
    types = setting_types(known)
    return {TASK: (*builtin_names(), Path), **groups, **{name: hint for name, hint in types.items() if name != TASK}}


def of_resume(texts: Sequence[str], config_dir: str = "") -> dict[str, Any]:
    """Of `mtmc resume`: what may change."""
    return {name: hint for name, hint in of_search(texts).items() if name.startswith(("budget.", "model."))}


def of_doctor(texts: Sequence[str], config_dir: str = "") -> dict[str, Any]:
    """Of `mtmc doctor`: the model to try."""
    return {name: hint for name, hint in of_search(texts).items() if name.startswith("model.")}


def of_optimize(texts: Sequence[str], config_dir: str = "") -> dict[str, Any]:
    """Of `mtmc optimize`."""
    return {"budget": int, **{name: hint for name, hint in of_search(texts).items() if name != TASK}}


def of_bench(texts: Sequence[str], config_dir: str = "") -> dict[str, Any]:
    """Of `mtmc bench`."""
    from mtmc.bench import SUITES, BenchSettings

    return {**setting_fields(BenchSettings), "suite": tuple(SUITES), **of_optimize(texts)}


def of_collect(texts: Sequence[str], config_dir: str = "") -> dict[str, Any]:
    """Of `mtmc collect`."""
    from mtmc.rl.settings import CollectSettings

    searching = {
        name: hint for name, hint in of_search(texts).items() if name == "out" or name.partition(".")[0] == "evaluator"
    }
    return {**setting_fields(CollectSettings), **searching}


def of_train(texts: Sequence[str], config_dir: str = "") -> dict[str, Any]:
    """Of `mtmc train`, of a policy or of something else."""
    from mtmc.conf import train, trainee
    from mtmc.rl.train.algorithms import ALGORITHMS
    from mtmc.rl.train.scorers import SCORERS

    given = _given(texts)
    for other in trainee.TRAINEES:
        if other.key in given:
            searching = of_search(texts) if other.evaluated else {}
            evaluator = {name: hint for name, hint in searching.items() if name.partition(".")[0] == trainee.EVALUATOR}
            return {**other.flat_types(), other.key: other.names or str, "out": Path, **evaluator}
    policy = given.get(train.POLICY, "compact")
    algorithm = given.get(train.ALGORITHM, "ppo")
    types = train.flat_types(
        policy if policy in SCORERS else "compact", algorithm if algorithm in ALGORITHMS else "ppo"
    )
    keys = {other.key: other.names or str for other in trainee.TRAINEES}
    return {train.POLICY: tuple(SCORERS), train.ALGORITHM: tuple(ALGORITHMS), **types, "out": Path, **keys}


OFFERED: Mapping[str, Callable[[Sequence[str], str], dict[str, Any]]] = {
    "search": of_search,
    "resume": of_resume,
    "doctor": of_doctor,
    "optimize": of_optimize,
    "bench": of_bench,
    "collect": of_collect,
    "train": of_train,
}
"""By the name of each command that takes settings."""


def is_path(name: str, hint: Any) -> bool:
    """Whether a setting is a path."""
    return hint is Path or name in (*PATHS, "data")


def _given(texts: Sequence[str]) -> dict[str, str]:
    """The values as they were typed."""
    return {name.lstrip("+~"): value for name, mark, value in (text.partition("=") for text in texts) if mark}


def _defaults() -> dict[Kind, str]:
    """Which option each group has where none is chosen."""
    import yaml

    text = (Path(__file__).parent / f"{CONFIG_NAME}.yaml").read_text(encoding="utf-8")
    listed = [each for each in yaml.safe_load(text)["defaults"] if isinstance(each, dict)]
    found = {kind: name for each in listed for kind, name in each.items() if kind in GROUPS}
    if set(found) != set(GROUPS):
        raise ConfigError(f"{CONFIG_NAME}.yaml has no default for {', '.join(set(GROUPS) - set(found))}: add it")
    return cast(dict[Kind, str], found)
