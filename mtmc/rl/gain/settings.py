"""GainSettings: what `mtmc train gain=boosted` takes."""

from __future__ import annotations

from dataclasses import dataclass

from mtmc.errors import ConfigError
from mtmc.rl.bounds import above_zero, at_least, from_0_to_1


@dataclass(frozen=True)
class GainSettings:
    """How a model of gains is trained.

    data: folders of recorded trees; those of the split "train" are learned from. seed: of all that is drawn. members: models
    whose mean is the prediction, each grown from its own draws. trees, depth: of a member. lr: share of each tree that
    counts. rows, columns: share of the rows and of the features that a tree is grown from. leaf: rows of a leaf at least.
    shrink: rows by which each leaf's mean is drawn to 0. bins: values of a feature that are told apart. huber: error, log2,
    beyond which it pulls no harder. clip: gains beyond plus and minus this, log2, count as this. spread_trees: of the model
    of how far off predictions are. inner: folds by which that is found out; folds: of the cross-validation that the card
    tells of. All folds are by task.
    """

    data: tuple[str, ...] = ()
    seed: int = 0
    members: int = 4
    trees: int = 300
    depth: int = 5
    lr: float = 0.06
    rows: float = 0.3
    columns: float = 0.3
    leaf: int = 10
    shrink: float = 5.0
    bins: int = 32
    huber: float = 1.0
    clip: float = 3.0
    spread_trees: int = 100
    inner: int = 3
    folds: int = 5

    def __post_init__(self) -> None:
        """Raises: ConfigError naming the setting, its value and what it may be."""
        at_least(self, members=1, trees=1, depth=1, leaf=1, shrink=0, bins=2, spread_trees=1, inner=2, folds=2)
        above_zero(self, "lr", "huber", "clip", "rows", "columns")
        from_0_to_1(self, "lr", "rows", "columns")
        for name, most in (("depth", 10), ("bins", 256)):
            if getattr(self, name) > most:
                raise ConfigError(f"{name} cannot be {getattr(self, name)}: use {most} or less")
