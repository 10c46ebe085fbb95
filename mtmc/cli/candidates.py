"""Candidates: what may stand where the cursor is on a command line of mtmc."""

from __future__ import annotations

import argparse
import itertools
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from mtmc.cli.command import Command

PATH_NAMES = ("RUN", "FOLDER", "FILE", "PATH")
"""Metavars of arguments that are paths."""

WORDS: Mapping[str, tuple[str, ...]] = {"VERSION": ("root", "best")}
"""What an argument may be besides anything else, by its metavar."""


@dataclass(frozen=True)
class Candidate:
    """word: the whole word at the cursor, as it would be. told: what it is, "" where that says itself. An open one ends in
    "=" or "/": more is to come."""

    word: str
    told: str = ""


def words_of(line: str) -> list[str]:
    """The words of a command line up to the cursor as a shell would read them, the last one as far as it is typed ("" after
    a space), without the name of the program."""
    reader = shlex.shlex(line, posix=True, punctuation_chars=False)
    reader.whitespace_split, reader.commenters = True, ""
    words: list[str] = []
    try:
        words.extend(reader)
    except ValueError:  # a quote that is still open
        words.append(reader.token)
    if line[-1:].isspace() or not words:
        words.append("")
    at = next((index for index, word in enumerate(words[:-1]) if Path(word).name == "mtmc"), 0)
    return words[at + 1 :] or [""]


def candidates(words: Sequence[str], commands: Mapping[str, Command], parsers: Mapping[str, Any]) -> list[Candidate]:
    """What the last word may become, in the order in which --help has it. words: as `words_of` gives them. parsers: of each
    command's arguments, by its name, and of the program's own as ""."""
    *before, current = words
    name = next((word for word in before if not word.startswith("-")), None)
    if name is None:
        found = [*(Candidate(each, command.summary) for each, command in commands.items()), *_flags(parsers[""])]
    elif name not in commands:
        found = []
    else:
        rest = before[before.index(name) + 1 :]
        found = list(_of_command(commands[name], parsers[name], rest, current, name))
    return [each for each in dict.fromkeys(found) if each.word.startswith(current)]


def _of_command(command: Command, parser: Any, rest: Sequence[str], current: str, name: str) -> Iterator[Candidate]:
    options = {text: action for action in parser._actions for text in action.option_strings}
    last = options.get(rest[-1]) if rest else None
    if last is not None and last.nargs is None:  # an option that takes a value, and here it stands
        yield from _values(last, current)
        return
    if current.startswith("--") and "=" in current and current.partition("=")[0] in options:
        flag, _, value = current.partition("=")
        yield from (Candidate(f"{flag}={each.word}", each.told) for each in _values(options[flag], value))
        return
    if current.startswith("-"):
        yield from _flags(parser)
        return
    plain = _without_options(rest, options)
    positional = [action for action in parser._actions if not action.option_strings]
    own = [word for word in plain if "=" not in word]
    if positional:
        repeated = positional[-1].nargs == "+"
        if len(own) < len(positional) or repeated:
            yield from _values(positional[min(len(own), len(positional) - 1)], current)
    if command.overrides:
        yield from _settings(name, rest, plain, current)
    yield from _flags(parser)


def _without_options(rest: Sequence[str], options: Mapping[str, argparse.Action]) -> list[str]:
    """The words that are neither options nor their values."""
    found: list[str] = []
    value = False
    for word in rest:
        if value:
            value = False
        elif word.startswith("-"):
            value = word in options and options[word].nargs is None
        else:
            found.append(word)
    return found


def _flags(parser: Any) -> Iterator[Candidate]:
    for action in parser._actions:
        if action.option_strings and action.help is not argparse.SUPPRESS:
            yield Candidate(action.option_strings[-1], action.help or "")


def _values(action: argparse.Action, current: str) -> Iterator[Candidate]:
    """What an argument or an option's value may be."""
    metavar = str(action.metavar or "")
    if action.choices:
        yield from (Candidate(str(each)) for each in action.choices if not str(each).startswith("_"))
    elif metavar in PATH_NAMES:
        yield from map(Candidate, _paths(current))
    elif metavar == "FORMAT" and action.help:  # the help lists them
        known = action.help.partition(";")[0]
        yield from (Candidate(each.strip()) for each in known.split(","))
    yield from map(Candidate, WORDS.get(metavar, ()))


def _settings(name: str, rest: Sequence[str], plain: Sequence[str], current: str) -> Iterator[Candidate]:
    from mtmc.conf.offered import OFFERED, is_path

    folder = dict(itertools.pairwise(rest)).get("--config-dir", "")
    offers = OFFERED[name](plain, folder)
    key, mark, value = current.partition("=")
    if not mark:
        yield from (Candidate(f"{each}=", _told(hint)) for each, hint in offers.items())
        return
    hint = offers.get(key.lstrip("+~"))
    several = "-m" in rest or "--multirun" in rest
    done, comma, typed = value.rpartition(",") if several else ("", "", value)
    start = f"{key}={done}{comma}"
    yield from (Candidate(start + each) for each in _choices(hint) if each not in done.split(","))
    if is_path(key, hint) or (isinstance(hint, tuple) and Path in hint):
        yield from (Candidate(start + each) for each in _paths(typed))


def _choices(hint: Any) -> Iterable[str]:
    """The values of a setting where there are but a few."""
    if isinstance(hint, tuple):
        return [each for each in hint if isinstance(each, str)]
    if hint is bool:
        return ("true", "false")
    if get_origin(hint) is Literal:
        return [str(each) for each in get_args(hint)]
    inner = [each for each in get_args(hint) if each is not type(None)]
    if len(inner) < len(get_args(hint)):  # T | None
        return [*(value for each in inner for value in _choices(each)), "null"]
    return ()


def _told(hint: Any) -> str:
    from mtmc.conf.schema import in_words

    if isinstance(hint, tuple):
        return ", ".join([*_choices(hint), *(["a path"] if Path in hint else [])])
    return in_words(hint)


def _paths(current: str) -> list[str]:
    """Files and folders whose path begins so, folders with a "/" at their end."""
    folder, slash, name = current.rpartition("/")
    place = Path(f"{folder}{slash}" or ".").expanduser()
    try:
        found = sorted(place.iterdir())
    except OSError:
        return []
    shown = [each for each in found if each.name.startswith(name) and (name or not each.name.startswith("."))]
    return [f"{folder}{slash}{each.name}{'/' if each.is_dir() else ''}" for each in shown]
