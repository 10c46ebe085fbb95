"""Steps: one change after another, for calls that stand inside each other."""

from __future__ import annotations

from collections.abc import Callable

import libcst as cst

from mtmc.agents.coders.repair.fixed import Fixed
from mtmc.agents.coders.repair.program import New, Program

Change = dict[cst.CSTNode, New]
MOST = 12
"""Steps of one rule."""


def innermost(program: Program, kernel: cst.FunctionDef | None) -> list[cst.Call]:
    """The calls of a kernel, each after the calls inside it."""
    return [] if kernel is None else sorted(program.find(cst.Call, kernel), key=lambda call: len(program.code(call)))


def repeated(program: Program, step: Callable[[Program], Change | None], what: str) -> Fixed | None:
    """A program after one step, and all further ones that there are; what: text with places for {new} and {old}."""
    said = ""
    for _ in range(MOST):
        change = step(program)
        changed = Program.parse(program.changed(change)) if change else None
        if change is None or changed is None:
            break
        old, new = next((old, new) for old, new in change.items() if isinstance(new, cst.CSTNode))
        said = said or what.format(new=program.code(new), old=program.code(old))
        program = changed
    return Fixed(program.source, said) if said else None
