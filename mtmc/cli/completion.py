"""mtmc completion: a shell's Tab completes commands, options and settings.

The script of a shell asks mtmc itself what may stand at the cursor, so it knows the strategies of installed plug-ins, and
need not be written anew when mtmc changes.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any

from mtmc.cli.command import Command
from mtmc.errors import ConfigError

SHELLS = ("bash", "zsh", "fish")
ASKED = "_words"
"""What the scripts ask with: mtmc completion _words LINE."""


def _completion(arguments: argparse.Namespace, overrides: Sequence[str]) -> int:
    if arguments.shell == ASKED:
        if arguments.line is None:
            raise ConfigError(f"mtmc completion {ASKED} is for the scripts: use one of {', '.join(SHELLS)}")
        print("".join(f"{word}\t{told}\n" for word, told in offered(arguments.line)), end="")
        return 0
    if arguments.line is not None:
        raise ConfigError(
            f"mtmc completion takes a shell alone, not {arguments.line!r}: mtmc completion {arguments.shell}"
        )
    text = (files("mtmc.cli") / "shells" / f"completion.{arguments.shell}").read_text(encoding="utf-8")
    arguments.answer.update(shell=arguments.shell, script=text)
    print(text, end="")
    return 0


def offered(line: str) -> list[tuple[str, str]]:
    """What the word at the end of a command line may become: each with what it is, in one line, "" where it says itself."""
    from mtmc.cli import COMMANDS, make_parser
    from mtmc.cli.candidates import candidates, words_of

    parser = make_parser()
    parsers: Mapping[str, Any] = {"": parser, **_subparsers(parser)}
    found = candidates(words_of(line), COMMANDS, parsers)
    return [(each.word, " ".join(each.told.split())) for each in found if "\n" not in each.word]


def _subparsers(parser: argparse.ArgumentParser) -> Mapping[str, Any]:
    action = next(each for each in parser._actions if isinstance(each, argparse._SubParsersAction))
    choices: Mapping[str, Any] = action.choices
    return choices


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", metavar="|".join(SHELLS), choices=(*SHELLS, ASKED), help="whose script to print")
    parser.add_argument("line", nargs="?", help=argparse.SUPPRESS)


COMPLETION = Command(
    run=_completion,
    arguments=_arguments,
    summary="print the script with which a shell completes mtmc's command line",
    usage="|".join(SHELLS),
    description="Print a script that lets Tab complete commands, options, and settings with their values.\n\n"
    "  source <(mtmc completion bash)                                        in ~/.bashrc\n"
    "  source <(mtmc completion zsh)                                         in ~/.zshrc, after compinit\n"
    "  mtmc completion fish > ~/.config/fish/completions/mtmc.fish",
)
