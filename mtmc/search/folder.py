"""What a run writes into its folder besides its store. All of it can be written again from the store."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mtmc.errors import RunError
from mtmc.files import write_whole
from mtmc.store import STORE_NAME
from mtmc.tree import Tree

if TYPE_CHECKING:
    from mtmc.export.record import RunRecord


def write_config(folder: Path, settings: Mapping[str, Any]) -> None:
    """config.yaml: the resolved settings, the seed and the versions of what ran."""
    from omegaconf import OmegaConf

    write_whole(folder / "config.yaml", OmegaConf.to_yaml(OmegaConf.create(dict(settings))))


def write_best(folder: Path, tree: Tree) -> None:
    """best.py: the best version so far, standalone."""
    write_whole(folder / "best.py", tree.best.source)


def write_nodes(folder: Path, tree: Tree) -> None:
    """nodes/ID.py: every version."""
    for node in tree:
        write_whole(folder / "nodes" / f"{node.id}.py", node.source)


def write_dumps(folder: Path, record: RunRecord) -> None:
    """The dumps of the tree: JSON, GraphML, HTML, pictures and the report."""
    from mtmc import export

    export.write_dumps(record, folder)


def copy_store(source: Path, target: Path) -> None:
    """A copy of one run's store in another folder; the run may be open.

    Raises: RunError if it cannot be copied.
    """
    try:
        with (
            closing(sqlite3.connect(source / STORE_NAME)) as original,
            closing(sqlite3.connect(target / STORE_NAME)) as copy,
        ):
            original.backup(copy)
    except sqlite3.Error as error:
        raise RunError(
            f"{source / STORE_NAME} cannot be copied to {target} ({error}): choose another folder"
        ) from error
