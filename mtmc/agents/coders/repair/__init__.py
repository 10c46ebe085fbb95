"""Repair: mechanical failures fixed by rules, on any source, by its concrete syntax tree.

A rule knows one kind of failure. It reads the diagnosis, changes as little of the source as possible, and returns None
unless it is sure: what is left is for a model. To add one: a function in a file of `rules/`, and a line in `RULES` there.
"""

from __future__ import annotations

import logging
from dataclasses import replace

from mtmc.agents.coders.repair.fixed import Fixed
from mtmc.outcome import Diagnosis

__all__ = ["Fixed", "fix"]

_log = logging.getLogger(__name__)


def fix(source: str, diagnosis: Diagnosis, hardware: str) -> Fixed | None:
    """The source with the first rule applied that fits its diagnosis; None where none does.

    hardware: name in the hardware table of the GPU that the source is for. Pure. What it gives may fail in another way:
    the caller evaluates it and may ask again with the new diagnosis.
    Raises: EvaluatorError or ConfigError for unknown hardware, where a rule has to know it.
    """
    from mtmc.agents.coders.repair.program import Program
    from mtmc.agents.coders.repair.rules import RULES

    program = Program.parse(source)
    if program is None:
        return None
    for name, rule in RULES.items():
        fixed = rule(program, diagnosis, hardware)
        if fixed is not None and fixed.source != source and _parses(fixed.source):
            _log.debug("the rule %s fixes %s: %s", name, diagnosis.kind, fixed.what)
            return replace(fixed, rule=name)
    return None


def _parses(source: str) -> bool:
    from mtmc.syntax import parse

    try:
        parse(source)
    except (SyntaxError, ValueError):
        return False
    return True
