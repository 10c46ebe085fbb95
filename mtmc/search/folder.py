"""What a run writes into its folder besides its store. All of it can be written again from the store."""

from __future__ import annotations

import os
import sqlite3
import tempfile
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mtmc.errors import RunError
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
    nodes = folder / "nodes"
    try:
        nodes.mkdir(exist_ok=True)
    except OSError as error:
        raise RunError(
            f"{nodes} cannot be made ({error.strerror}): see that the run's folder can be written"
        ) from error
    for node in tree:
        write_whole(nodes / f"{node.id}.py", node.source)


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


def write_whole(path: Path, text: str) -> None:
    """Write a file whole or not at all, replacing an older one. Raises: RunError if it cannot be written."""
    try:
        descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=".writing-")
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                file.write(text)
            os.chmod(name, 0o644)
            os.replace(name, path)
        except BaseException:
            os.unlink(name)
            raise
    except OSError as error:
        raise RunError(f"{path} cannot be written ({error.strerror}): see that its folder can be written") from error
