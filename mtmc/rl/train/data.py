"""data: recorded trees as the forests that a training takes."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mtmc.errors import ConfigError
from mtmc.rl.dataset import TABLES, concatenated, read_tables
from mtmc.rl.forest import Forest, forest_of
from mtmc.rl.train.open_space import open_space
from mtmc.rl.train.settings import Space
from mtmc.rl.trees import RecordedTree, trees_of


@dataclass(frozen=True, eq=False)
class Data:
    """about: what a model card says of the trees: folders, hash, number of trees and of transitions; trees by their
    GPU and the kind of their runtimes."""

    train: Forest
    validation: Forest
    about: dict[str, Any]


def load_data(folders: Sequence[str], space: Space, validation_trees: int, seed: int) -> Data:
    """Read the training and validation trees of some folders.

    space, validation_trees: see `TrainSettings`. seed: of the actions that space "all" adds.

    Raises: ConfigError where no folder is given or a split is empty, RunError where a folder holds no recorded trees.
    """
    if not folders:
        raise ConfigError("data is missing: give data=FOLDER of recorded trees, which mtmc collect writes")
    paths = [Path(folder).expanduser() for folder in folders]
    tables = [read_tables(path) for path in paths]
    trees = trees_of(tables[0] if len(tables) == 1 else concatenated(tables))
    splits = {split: [tree for tree in trees if tree.split == split] for split in ("train", "validation")}
    for split, found in splits.items():
        if not found:
            names = ", ".join(map(str, paths))
            raise ConfigError(f"{names} has {len(trees)} trees, none of them for {split}: record more tasks")
    about = _about(paths, splits)
    chosen = splits["validation"][: validation_trees or None]
    if space == "all":
        splits["train"], chosen = ([open_space(tree, seed) for tree in some] for some in (splits["train"], chosen))
    forest = forest_of(splits["train"])
    return Data(forest, forest_of(chosen, like=forest), about)


def data_hash(folders: Sequence[Path]) -> str:
    """16 hex digits of the files' content."""
    digest = hashlib.sha256()
    for folder in folders:
        for table in TABLES:
            digest.update((folder / f"{table}.parquet").read_bytes())
    return digest.hexdigest()[:16]


def _about(paths: Sequence[Path], splits: dict[str, list[RecordedTree]]) -> dict[str, Any]:
    whose = Counter((tree.hardware, _runtimes(tree)) for trees in splits.values() for tree in trees)
    return {
        "folders": [path.name for path in paths],
        "hash": data_hash(paths),
        "trees": {split: len(trees) for split, trees in splits.items()},
        "transitions": {split: sum(map(_known, trees)) for split, trees in splits.items()},
        "hardware": dict(sorted(whose.items())),
    }


def _runtimes(tree: RecordedTree) -> str:
    return f"{tree.root.outcome.runtime_kind or 'unknown'} runtimes"


def _known(tree: RecordedTree) -> int:
    return sum(len(node.known) for node in tree.nodes)
