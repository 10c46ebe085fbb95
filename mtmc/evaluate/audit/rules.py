"""The rules by which names, dotted paths and strings of a file are refused, over the lists of `.denylist` and `.allowlist`.

Torch, triton, numpy and most modules of the standard library import os, sys and each other, so that a door which is
shut at `import` stands open at `torch.os`, `collections._sys` or `enum.bltns`. Hence three rules beside the lists: no
path that starts at a module leads through another module's name (`denylist.REACHED`), none through a private part of it
(`allowlist.PUBLIC_PRIVATE` are the exceptions), and nothing looks up attributes by names that are made at run time.
"""

from __future__ import annotations

import re
import string
from collections.abc import Iterator, Sequence

from mtmc.evaluate.audit.allowlist import ALLOWED_MODULES, ALLOWED_PATHS, BEHIND_ALLOWED, PUBLIC_PRIVATE
from mtmc.evaluate.audit.denylist import (
    DEFINED,
    FORBIDDEN_ATTRIBUTES,
    FORBIDDEN_NAMES,
    FORBIDDEN_PATHS,
    FOREIGN,
    LAYERS,
    MODULES,
    NOT_TO_DERIVE,
    OWN_DUNDERS,
    REACHED_BY_PATH,
)
from mtmc.evaluate.audit.gluon_names import MODULES as GLUON_MODULES
from mtmc.evaluate.audit.gluon_names import is_of_experimental, refused_gluon

_OF_TRITON = frozenset(("build", "cache", "driver", "interpreter"))
_DUNDER = re.compile(r"__\w+?__")


def refused_path(path: str) -> str | None:
    """Why a dotted path that starts at a module is refused; None where it is not."""
    within, _, last = path.rpartition(".")
    if path in ALLOWED_PATHS or (within in ALLOWED_PATHS and last in BEHIND_ALLOWED):
        return None
    if is_of_experimental(path):
        return refused_gluon(path)
    for name in _names(path):
        for prefix, what in FORBIDDEN_PATHS.items():
            if name == prefix or name.startswith(prefix + "."):
                return f"use of {prefix} ({what})"
    parts = path.split(".")[1:]
    for part in parts:
        if part in FORBIDDEN_ATTRIBUTES or part in REACHED_BY_PATH:
            return f"use of {path} (reaches {part})"
    private = path.split(".")[0] in ALLOWED_MODULES and any(part.startswith("_") for part in parts)
    if private and not PUBLIC_PRIVATE.fullmatch(path):
        return f"use of {path} (a private part of {path.split('.')[0]})"
    return None


def _names(path: str) -> Iterator[str]:
    """A path, and the same from each module of `ALLOWED_MODULES` that it leads through: torch.nn.functional.torch.load
    is torch.load."""
    yield path
    parts = path.split(".")
    for at, part in enumerate(parts[1:], 1):
        part = "numpy" if part == "np" else part
        if part in ALLOWED_MODULES:
            yield ".".join([part, *parts[at + 1 :]])
        elif part in _OF_TRITON and parts[0] == "triton":
            yield ".".join(["triton", "runtime", *parts[at:]])


def leads_on(path: str) -> bool:
    """Whether a path is on the way to something that is allowed where it is not."""
    return any(allowed.startswith(path + ".") for allowed in ALLOWED_PATHS)


def is_module(path: str) -> bool:
    """Whether a path is known to be a module, which must not be handed around: through it others are reached."""
    leads = any(name.startswith(path + ".") for name in (*FORBIDDEN_PATHS, *ALLOWED_PATHS))
    return leads or path in ALLOWED_MODULES or path in GLUON_MODULES or MODULES.fullmatch(path) is not None


def is_patchable(path: str) -> bool:
    """Whether a path is a class that others use too, so that it must not be handed around."""
    last = path.rpartition(".")[2]
    named = path.startswith(("torch.", "triton.")) and last[0].isupper() and not last.isupper()
    return named and not LAYERS.fullmatch(path)


def refused_attribute(name: str) -> str | None:
    """Why an attribute of anything is refused; None where it is not."""
    return f"use of .{name}" if name in FORBIDDEN_ATTRIBUTES else None


def may_bind(name: str) -> bool:
    """Whether a file may give a name a meaning: `super` and `object` are read as Python's own, and names like `__name__`
    say what a module or class is."""
    return name not in ("super", "object") and (_DUNDER.fullmatch(name) is None or name in OWN_DUNDERS)


def may_derive(path: str) -> bool:
    """Whether a file may have a subclass of a class: one of Triton's could give another text for the kernel that it is."""
    return path not in NOT_TO_DERIVE and path.split(".")[0] != "triton"


def may_define(name: str) -> bool:
    """Whether a file may have a function or class of a name."""
    if name in FORBIDDEN_NAMES:
        return False
    if _DUNDER.fullmatch(name) is not None:
        return name in DEFINED or name not in FORBIDDEN_ATTRIBUTES
    return may_bind(name)


def refused_format(texts: Sequence[str] | None) -> str | None:
    """Why `str.format` is refused: the fields of its text may lead to attributes, and so are read like these.

    texts: what the text may be, None where the file does not show it.
    """
    if texts is None:
        return "a format that does not stand in the file"
    try:
        names = {part for text in texts for field in _fields(text) for part in re.findall(r"\.\s*([^.\[]+)", field)}
    except ValueError:
        return None  # as it will raise where it is used
    bad = next((name for name in sorted(names) if name.startswith("_") or name in FORBIDDEN_ATTRIBUTES | FOREIGN), None)
    return None if bad is None else f"use of .{bad} in a format"


def _fields(text: str) -> Iterator[str]:
    """The fields of a format, also those inside of another's."""
    for _, field, inner, _ in string.Formatter().parse(text):
        if field is not None:
            yield field
            yield from _fields(inner or "")


def refused_text(text: str) -> str | None:
    """Why a string is refused: it names an attribute that is; None where it does not."""
    for word in _DUNDER.findall(text):
        if word in FORBIDDEN_ATTRIBUTES or word in FORBIDDEN_NAMES:
            return f"{word} in a string"
    return None


def may_name_forbidden(prefix: str) -> bool:
    """Whether a name that is made at run time and begins with `prefix` could be a forbidden attribute."""
    return not prefix.isidentifier() or any(name.startswith(prefix) for name in FORBIDDEN_ATTRIBUTES | REACHED_BY_PATH)
