"""checkpoint: all that a training needs to go on as if it had never stopped."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mtmc.errors import ConfigError, RunError
from mtmc.files import written_whole
from mtmc.rl.curves import Row
from mtmc.rl.train.card import flat

NAME = "checkpoint.pt"


@dataclass
class Checkpoint:
    """identity: what must be the same for the training to be the same one, as plain data. done: units that are behind it.
    scorer, optimizer: their states; the optimizer's is None between two phases. best, best_score, best_unit: state of the
    scorer that was best at a validation. What is drawn in a unit follows from the seed and its number, so no state of a
    generator is kept."""

    identity: Mapping[str, Any]
    done: int = 0
    scorer: Mapping[str, Any] = field(default_factory=dict)
    optimizer: Mapping[str, Any] | None = None
    best: Mapping[str, Any] = field(default_factory=dict)
    best_score: float = -1.0
    best_unit: int = 0
    history: list[Row] = field(default_factory=list)


def write_checkpoint(checkpoint: Checkpoint, folder: Path) -> None:
    """Written whole or not at all. Raises: RunError where it cannot be."""
    import torch

    with written_whole(folder / NAME) as draft:
        torch.save(dict(vars(checkpoint)), draft)


def read_checkpoint(folder: Path, identity: Mapping[str, Any], device: Any) -> Checkpoint | None:
    """The checkpoint of a folder; None where there is none. device: for the tensors.

    Raises: ConfigError where it is of a training with other settings, RunError where it cannot be read.
    """
    import torch

    path = folder / NAME
    if not path.is_file():
        return None
    try:
        found = Checkpoint(**torch.load(path, map_location=device, weights_only=True))
    except Exception as error:  # torch raises whatever its readers do
        raise RunError(
            f"{path} cannot be read ({type(error).__name__}): take it away to train from the start"
        ) from error
    was, now = flat(found.identity), flat(identity)
    differing = sorted(name for name in {**was, **now} if was.get(name) != now.get(name))
    if differing:
        name = differing[0]
        has = f"{folder} holds a training with {name}={was.get(name)}, this one has {now.get(name)}"
        raise ConfigError(f"{has}: choose another out=")
    return found
