"""The settings of `mtmc train`: its own (`mtmc.rl.train.settings.TrainSettings`), and those of the policy's network and the
algorithm that were chosen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mtmc.conf import overrides as parsing
from mtmc.conf.schema import flat, made_settings
from mtmc.errors import ConfigError
from mtmc.rl.train.algorithms import ALGORITHMS
from mtmc.rl.train.run import Plan
from mtmc.rl.train.scorers import SCORERS, scorer_settings
from mtmc.rl.train.settings import TrainSettings

OUT, POLICY, ALGORITHM = "out", "policy", "algorithm"


def compose_train(texts: Sequence[str]) -> tuple[Plan, str | None]:
    """A training, and its folder (None where none is given).

    texts: overrides as they stand on the command line, "policy=compact", "algorithm.clip=0.1", "pretraining.epochs=0".

    Raises: ConfigError naming the setting, its value and the fix.
    """
    given = parsing.parse(texts)
    chosen = {
        kind: _choice(kind, given, names, default)
        for kind, names, default in ((POLICY, SCORERS, "compact"), (ALGORITHM, ALGORITHMS, "ppo"))
    }
    network, method = scorer_settings(chosen[POLICY]), ALGORITHMS[chosen[ALGORITHM]]
    types = flat_types(chosen[POLICY], chosen[ALGORITHM])
    rest = [each for each in given if parsing.name_of(each) not in (POLICY, ALGORITHM)]
    parsing.check_keys(rest, {**types, OUT: str, POLICY: str, ALGORITHM: str}, {})
    values: dict[str, dict[str, Any]] = {POLICY: {}, ALGORITHM: {}, "": {}}
    for name, value in ((name, value) for each in rest for name, value in parsing.leaves(each).items()):
        group = name.split(".")[0]
        values[group if group in values else ""][name] = value
    out = values[""].pop(OUT, None)
    settings = made_settings(TrainSettings, "", values[""], types)
    plan = Plan(
        settings,
        chosen[POLICY],
        made_settings(network, f"{POLICY}.", values[POLICY], types),
        chosen[ALGORITHM],
        made_settings(method, f"{ALGORITHM}.", values[ALGORITHM], types),
        " ".join(["mtmc train", *texts]),
    )
    return plan, None if out is None else str(out)


def flat_types(policy: str, algorithm: str) -> dict[str, Any]:
    """Dotted name -> type of every setting. policy, algorithm: those chosen. Raises: ConfigError as `scorer_settings`."""
    parts: tuple[tuple[str, Any], ...] = (
        ("", TrainSettings),
        (f"{POLICY}.", scorer_settings(policy)),
        (f"{ALGORITHM}.", ALGORITHMS[algorithm]),
    )
    return {name: hint for prefix, cls in parts for name, hint in flat(prefix, cls)}


def _choice(kind: str, given: Sequence[Any], names: Mapping[str, Any], default: str) -> str:
    chosen = [str(each.value()) for each in given if parsing.name_of(each) == kind]
    name = chosen[-1] if chosen else default
    if name not in names:
        raise ConfigError(f"there is no {kind} {name!r} that can be trained: {parsing.nearest(name, names)}")
    return name
