"""freeform: an action that is on nobody's list, an idea in words about some lines. Only a model can carry it out."""

from __future__ import annotations

import ast
import hashlib

from mtmc.action import Action, Region
from mtmc.syntax import parse

FREEFORM_KIND = "freeform"

_MODULE = "module"
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def freeform_action(source: str, text: str, first_line: int, last_line: int) -> Action:
    """An idea as an action on `source`.

    text: the idea, one sentence. first_line, last_line: 1-based, inclusive, within the source. The region is named after
    the innermost function or class around these lines. Two ideas are the same if they say the same, whatever their case
    and spacing, about the same function.
    """
    digest = hashlib.sha256(" ".join(text.split()).casefold().encode()).hexdigest()[:12]
    region = Region(_around(source, first_line, last_line), first_line, last_line)
    lines = str(region).removeprefix(region.name)
    return Action(FREEFORM_KIND, region, (("digest", digest),), f"{text.rstrip(' .')}{lines}")


def is_freeform(action: Action) -> bool:
    """Whether an action is an idea in words."""
    return action.kind == FREEFORM_KIND


def _around(source: str, first_line: int, last_line: int) -> str:
    try:
        tree = parse(source)
    except (SyntaxError, ValueError):
        return _MODULE
    name, begin = _MODULE, 0
    for node in ast.walk(tree):
        if isinstance(node, _SCOPES):
            first = min([node.lineno, *(each.lineno for each in node.decorator_list)])
            if begin < first <= first_line and last_line <= (node.end_lineno or first):
                name, begin = node.name, first
    return name
