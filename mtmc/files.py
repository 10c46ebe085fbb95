"""files: whatever is written here is there whole or not at all, however a process ends."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from mtmc.errors import ConfigError, RunError

DRAFTS = ".writing-"
"""What the folders of drafts begin with."""


def user_cache_folder() -> Path:
    """Where things are kept between runs: MTMC_CACHE, else the folder mtmc in XDG_CACHE_HOME or ~/.cache.

    Raises: ConfigError if there is no home folder.
    """
    own = os.environ.get("MTMC_CACHE")
    folder = Path(own) if own else Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache", "mtmc")
    try:
        return folder.expanduser().absolute()
    except RuntimeError as error:
        raise ConfigError(f"the cache folder {folder} is not known ({error}): name one in MTMC_CACHE") from error


@contextmanager
def written_whole(path: Path) -> Iterator[Path]:
    """A draft to write to, which takes the place of `path` where nothing is raised. Missing folders are made.

    Raises: RunError where it cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent, prefix=DRAFTS) as folder:
            draft = Path(folder, path.name)
            yield draft
            os.replace(draft, path)
    except OSError as error:
        reason = error.strerror or str(error)
        raise RunError(
            f"{path} cannot be written ({reason}): choose a folder with space that you may write to"
        ) from error


def write_whole(path: Path, content: str | bytes) -> Path:
    """Write a file; returns its path. Raises: RunError as `written_whole`."""
    with written_whole(path) as draft:
        draft.write_bytes(content if isinstance(content, bytes) else content.encode("utf-8", "replace"))
    return path
