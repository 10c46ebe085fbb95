"""licence: what a collection that somebody else made says about its use, read before any of its problems is.

A text that is known to allow use (MIT, Apache, BSD, ...) is taken. Where there is none, or one that is not known or sets
conditions for use, the collection is refused in one sentence, and only a person can say that it may be used: `licence=ack`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from mtmc.errors import ConfigError

_NAMES = re.compile(r"(licen[cs]e|copying|unlicense)([-._].*)?", re.IGNORECASE)
_PARENTS = 6
"""Folders above the one that is named, in which its licence may lie."""
_OPEN = {
    "Apache": r"apache license",
    "MIT": r"permission is hereby granted, free of charge, to any person obtaining a copy",
    "BSD": r"redistribution and use in source and binary forms, with or without modification, are permitted",
    "ISC": r"permission to use, copy, modify, and/?(or)? distribute this software",
    "MPL": r"mozilla public license",
    "GPL": r"gnu (lesser |affero )?general public license",
    "Unlicense": r"this is free and unencumbered software released into the public domain",
    "CC0": r"cc0 1\.0 universal",
    "CC BY": r"creative commons attribution (sharealike )?4\.0 international",
}
"""Licences that allow everybody to use what they are of, by a phrase that each has."""
_CONDITIONS = (
    r"non-?commercial(?!ly)",  # the GPL speaks of copies that are made noncommercially
    r"use[- ]based restriction",
    r"\bnoderivatives\b",
    r"all rights reserved\. no part",
    r"research purposes only",
    r"commons clause",
)
"""Phrases by which a text sets conditions for use, whatever else it has."""
_FIX = "read what its makers allow, and write licence=ack if it may be used here"


@dataclass(frozen=True)
class Licence:
    """What was found. file: None where there is none. name: of a licence that allows use, else "". text: its first line."""

    file: Path | None
    name: str = ""
    text: str = ""

    def sentence(self, what: str) -> str:
        """What it says, in one sentence. what: the collection, as it was named."""
        if self.file is None:
            return f"{what} has no licence file, so nothing says that it may be used"
        if not self.name:
            return f"{what} has a licence with terms of its own ({self.file.name}: {self.text!r})"
        return f"{what} may be used: {self.file.name} is {self.name}"


def find_licence(folder: Path) -> Licence:
    """The licence of a folder: the nearest licence file in it or above it, up to the root of its repository."""
    inside = folder.resolve()
    for place in [inside, *inside.parents][: _PARENTS + 1]:
        files = sorted(each for each in place.iterdir() if each.is_file() and _NAMES.fullmatch(each.name))
        if files:
            return _read(files[0])
        if (place / ".git").exists():
            break
    return Licence(None)


def check_licence(folder: Path, acknowledged: bool) -> None:
    """Raises: ConfigError, in one sentence, where no licence allows use and nobody has said that it may be used, or where
    the folder cannot be read."""
    try:
        if not folder.is_dir():
            raise ConfigError(f"there is no folder {str(folder)!r}: give path=FOLDER of the collection")
        found = find_licence(folder)
    except OSError as error:
        raise ConfigError(f"{str(folder)!r} cannot be read ({error.strerror}): give another path") from error
    if not found.name and not acknowledged:
        raise ConfigError(f"{found.sentence(repr(str(folder)))}: {_FIX}")


def _read(file: Path) -> Licence:
    text = " ".join(file.read_text(encoding="utf-8", errors="replace").split())
    first = next((line.strip() for line in file.read_text("utf-8", "replace").splitlines() if line.strip()), "")
    known = next((name for name, phrase in _OPEN.items() if re.search(phrase, text, re.IGNORECASE)), "")
    limited = any(re.search(phrase, text, re.IGNORECASE) for phrase in _CONDITIONS)
    return Licence(file, "" if limited else known, first[:80])
