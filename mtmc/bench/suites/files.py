"""files: reading the files of a suite."""

from __future__ import annotations

import tokenize
from pathlib import Path

from mtmc.errors import TaskError


def read_text(path: Path) -> str:
    """The text of a Python file. Raises: TaskError where it cannot be read."""
    try:
        with tokenize.open(path) as file:
            return file.read().replace("\r\n", "\n").replace("\r", "\n")
    except (OSError, SyntaxError, ValueError) as error:
        raise TaskError(f"{path.name} cannot be read ({error}): see that the suite's files are whole") from error
