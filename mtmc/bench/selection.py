"""selection: which problems of a suite a benchmark takes. Pure."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence

from mtmc.bench.problem import Problem
from mtmc.bench.settings import BenchSettings
from mtmc.errors import ConfigError

_SHOWN = 12


def select(problems: Sequence[Problem], settings: BenchSettings) -> list[Problem]:
    """The problems of the chosen levels with the chosen numbers or names, in the suite's order.

    Raises: ConfigError naming a level, number or name that the suite does not have, or where nothing is left.
    """
    levels = list(dict.fromkeys(each.level for each in problems))
    wanted = {_level(text, levels) for text in settings.levels} or set(levels)
    chosen = [each for each in problems if each.level in wanted]
    if settings.problems:
        named = [_named(text, chosen) for text in settings.problems]
        kept = {each for some in named for each in some}
        chosen = [each for each in chosen if each in kept]
    chosen = [each for each in chosen if each.number % settings.every == 0]
    if not chosen:
        raise ConfigError(f"no problem is left with every={settings.every}: use a smaller number")
    return chosen


def as_asked(problems: Sequence[Problem], settings: BenchSettings) -> list[Problem]:
    """Chosen problems in the order in which `settings` names them: what is named first is worked on first."""

    def place(problem: Problem) -> int:
        texts = settings.problems
        return next((at for at, text in enumerate(texts) if _names(text, problem)), len(texts))

    return sorted(problems, key=place)


def _names(text: str, problem: Problem) -> bool:
    level, slash, last = text.rpartition("/")
    return (not slash or _is_level(level, problem.level)) and matches(problem, last)


def _is_level(text: str, level: str) -> bool:
    """ "1" and "level1" are the same."""
    return text.lower() in (level.lower(), level.lower().removeprefix("level"))


def _level(text: str, levels: Sequence[str]) -> str:
    for level in levels:
        if _is_level(text, level):
            return level
    raise ConfigError(f"the suite has no level {text!r}: use {', '.join(levels)}")


def _named(text: str, problems: Sequence[Problem]) -> list[Problem]:
    """All problems with this number or name: a number may stand in several levels. Also "level1/19"."""
    level, slash, last = text.rpartition("/")
    known = _level(level, [each.level for each in problems]) if slash else ""
    inside = [each for each in problems if known in ("", each.level)]
    found = [each for each in inside if matches(each, last)]
    if not found:
        names = [each.name for each in inside]
        near = difflib.get_close_matches(last, names, n=1)
        shown = f"{', '.join(names[:_SHOWN])}{', ...' if len(names) > _SHOWN else ''}"
        raise ConfigError(f"no problem {text!r}: " + (f"did you mean {near[0]}?" if near else f"there are {shown}"))
    return found


def matches(problem: Problem, text: str) -> bool:
    """Whether a text names this problem within its level: its number, its whole name, or its name without the number."""
    if text.isdigit():
        return int(text) == problem.number
    return text in (problem.name, bare_name(problem))


def bare_name(problem: Problem) -> str:
    """The name without a number in front: "19_ReLU" -> "ReLU"."""
    return re.sub(r"^\d+_", "", problem.name)
