"""stamped: small JSON files that say first of which format and version they are."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mtmc.errors import RunError


def write_stamped(path: Path, form: str, version: int, data: Mapping[str, Any]) -> Path:
    """Raises: OSError where it cannot be written."""
    path.write_text(json.dumps({"format": form, "version": version, **data}, indent=1) + "\n", encoding="utf-8")
    return path


def read_stamped(path: Path, form: str, version: int) -> dict[str, Any]:
    """Inverse of `write_stamped`, without the stamp.

    Raises: RunError for another format or a newer version; OSError, ValueError, KeyError, TypeError or AttributeError where
    it is no such file.
    """
    data = json.loads(path.read_text(encoding="utf-8"))
    found, number = data.pop("format"), data.pop("version")
    if found != form or number > version:
        raise RunError(f"{path} is {found} {number}, this mtmc reads {form} up to {version}: upgrade mtmc")
    return dict(data)
