"""renamed: settings that had another name once. Pure.

Whoever types an old name is told the new one; what an older version has recorded is read under the new one.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from mtmc.errors import ConfigError

RENAMED: dict[str, str] = {
    # mtmc search, and all that searches
    "policy.experience": "policy.action_statistics",
    # mtmc train
    "anywhere": "random_start_prob",
    "policy.opinion": "policy.heuristic_weight",
    "algorithm.rate": "algorithm.lr",
    "algorithm.entropy": "algorithm.ent_coef",
    "algorithm.kl": "algorithm.kl_coef",
    "algorithm.value": "algorithm.vf_coef",
    "algorithm.discount": "algorithm.gamma",
    "algorithm.trace": "algorithm.gae_lambda",
    "algorithm.norm": "algorithm.max_grad_norm",
    "algorithm.members": "algorithm.group_size",
    "warm": "pretraining",
    "warm.rate": "pretraining.lr",
    "warm.discount": "pretraining.gamma",
    "warm.decay": "pretraining.weight_decay",
    "warm.opinion": "pretraining.heuristic_weight",
    # mtmc train coder=
    "sft.rate": "sft.lr",
    "grpo.rate": "grpo.lr",
    "grpo.kl": "grpo.kl_coef",
}
"""Old dotted name -> new one, as both are typed. A group's name stands for all its settings that have no line of their own:
"warm" makes of warm.epochs pretraining.epochs. To rename a setting: its field, and a line here."""


def new_name(old: str) -> str | None:
    """What a setting is called now; None where it was never called otherwise. old: dotted, "policy.experience"."""
    steps = old.split(".")
    for end in range(len(steps), 0, -1):
        found = RENAMED.get(".".join(steps[:end]))
        if found is not None:
            return ".".join([found, *steps[end:]])
    return None


def refuse_old(name: str, known: Collection[str] = ()) -> None:
    """Refuse a setting's old name. name: dotted. known: names that settings have; one of these is never refused.

    Raises: ConfigError with the new name.
    """
    new = None if name in known else new_name(name)
    if new is not None:
        raise ConfigError(f"the setting {name} is called {new} now: write {new}=...")


def under_new_names(group: str, recorded: Mapping[str, Any], known: Collection[str] = ()) -> dict[str, Any]:
    """A group's settings as they were recorded, those with old names under the new ones.

    group: "policy". recorded: name within the group -> value. known: names within the group that settings have.
    """
    found = {}
    for name, value in recorded.items():
        new = None if name in known else new_name(f"{group}.{name}")
        found[name if new is None else new.removeprefix(f"{group}.")] = value
    return found
