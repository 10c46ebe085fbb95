"""The command line: mtmc search | optimize | resume | watch | show | export | report | bench | collect | dataset | train |
knowledge | cache | doctor | completion.

One file for each group of commands; a command says its own arguments and does its own printing. This one reads the
command line, sets up logging, and turns what goes wrong into one line on stderr and an exit status: 2 for bad input
(an `MtmcError`), 3 for a search that ended early because its model gave nothing usable, 130 for Ctrl-C.
"""

from __future__ import annotations

import argparse
import difflib
import logging
import os
import sys
import sysconfig
import types
from collections.abc import Sequence
from typing import Any, NoReturn

from mtmc import __version__
from mtmc.cli import (
    bench,
    cache,
    collect,
    completion,
    documents,
    examine,
    knowledge,
    look,
    optimize,
    search,
    train,
    watch,
)
from mtmc.cli.command import Command, Interrupted
from mtmc.errors import ConfigError, MtmcError, TaskError

COMMANDS: dict[str, Command] = {
    "search": search.SEARCH,
    "optimize": optimize.OPTIMIZE,
    "resume": search.RESUME,
    "watch": watch.WATCH,
    "show": look.SHOW,
    "export": look.EXPORT,
    "report": look.REPORT,
    "bench": bench.BENCH,
    "collect": collect.COLLECT,
    "dataset": collect.DATASET,
    "train": train.TRAIN,
    "knowledge": knowledge.KNOWLEDGE,
    "cache": cache.CACHE,
    "doctor": examine.DOCTOR,
    "completion": completion.COMPLETION,
}
"""Command by name. To add one: a `Command` in a file here, and a line."""

BAD_INPUT = 2
INTERRUPTED = 130
PACKAGES = ("torch", "triton", "langgraph", "hydra", "omegaconf", "networkx", "numpy", "libcst", "psutil", "matplotlib")
"""Packages that a command needs, each imported when it is."""

LEVELS = ("debug", "info", "warning", "error")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status. argv: without the program's name; None: the process's own."""
    given = list(sys.argv[1:] if argv is None else argv)
    try:
        if documents.FLAG in given:
            return _as_json([text for text in given if text != documents.FLAG])
        return _run(given)
    except SystemExit as done:  # --help and --version, when they have printed
        return int(done.code or 0)
    except MtmcError as error:
        return _fail(str(error), BAD_INPUT)
    except ModuleNotFoundError as error:
        return _fail(_not_installed(error), BAD_INPUT)
    except Interrupted as stop:
        return _fail(f"interrupted; {stop.hint}", INTERRUPTED)
    except KeyboardInterrupt:
        return _fail("interrupted", INTERRUPTED)
    except BrokenPipeError:
        # Whoever read our output (head, less) has enough. Python would complain once more when it flushes at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def _as_json(argv: list[str]) -> int:
    """Run one command, print its document alone, and return its exit status."""
    answer: dict[str, Any] = {}
    failed: BaseException | None = None
    try:
        with documents.stdout_kept():
            status = _run(argv, answer)
    except SystemExit as done:  # --help and --version
        return int(done.code or 0)
    except MtmcError as error:
        failed, message, status = error, str(error), BAD_INPUT
    except ModuleNotFoundError as error:
        failed, message, status = error, _not_installed(error), BAD_INPUT
    except KeyboardInterrupt as stop:
        hint = f"; {stop.hint}" if isinstance(stop, Interrupted) else ""
        failed, message, status = stop, f"interrupted{hint}", INTERRUPTED
    if failed is not None:
        answer = {"error": " ".join(message.split()), "kind": type(failed).__name__}
    name = next((text for text in argv if text in COMMANDS), None)
    print(documents.text_of({"command": name, "exit_status": status, **answer}))
    return status


def _not_installed(error: ModuleNotFoundError) -> str:
    """What to do about a package that is not there. Raises: the error itself, where it is none that a command needs."""
    package = (error.name or "").split(".")[0]
    if package not in PACKAGES:
        raise error
    return f"the package {package} is not installed: mtmc doctor says what is missing"


def _run(argv: list[str], answer: dict[str, Any] | None = None) -> int:
    """Run one command and return its exit status. answer: where --json is given, what it says is put there."""
    if not argv and answer is None:
        make_parser().print_help()
        return 0
    arguments, rest = make_parser(_command_name(argv)).parse_known_args(argv)
    if arguments.command is None:
        raise ConfigError("a command is missing: see mtmc --help")
    command = COMMANDS[arguments.command]
    arguments.json, arguments.answer = answer is not None, {} if answer is None else answer
    for text in rest:
        if text.startswith("-") or not command.overrides:
            raise ConfigError(f"mtmc {arguments.command} does not know {text!r}: see mtmc {arguments.command} --help")
    _set_up_logging(arguments.level)
    try:
        return command.run(arguments, rest)
    except SystemExit as error:  # the command line was read, so this is of what it names
        where = _of_the_user(error.__traceback__)
        raise TaskError(
            f"what mtmc {arguments.command} runs exits by itself{where} (SystemExit: {error.code}): take that out"
        ) from error


def _of_the_user(trace: types.TracebackType | None) -> str:
    """The innermost line that is not Python's own, as " at FILE, line N"."""
    where = ""
    while trace is not None:
        name = trace.tb_frame.f_code.co_filename
        if not name.startswith(("<frozen ", sysconfig.get_path("stdlib") + os.sep)):
            where = f" at {os.path.basename(name)}, line {trace.tb_lineno}"
        trace = trace.tb_next
    return where


def make_parser(chosen: str | None = None) -> argparse.ArgumentParser:
    """The parser of the whole command line, without the overrides, which Hydra reads.

    chosen: the command that it is for; only this one's help is whole.
    """
    parser = _Parser(
        prog="mtmc",
        description="Grow a tree of kernel versions of a PyTorch module, and keep the fastest that is right.",
        epilog="For example: mtmc search task=softmax budget.evaluations=32",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"mtmc {__version__}")
    subparsers = parser.add_subparsers(dest="command", metavar="COMMAND", parser_class=_Parser)
    for name, command in COMMANDS.items():
        each = subparsers.add_parser(
            name,
            help=command.summary,
            description=command.description,
            epilog=command.epilog() if name == chosen else "",
            usage=f"mtmc {name} {command.usage}",
            allow_abbrev=False,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        each.add_argument("--level", choices=LEVELS, default="warning", help="how much to log to stderr (warning)")
        each.add_argument(documents.FLAG, action="store_true", help="print one JSON document on stdout, nothing else")
        command.arguments(each)
    return parser


class _Parser(argparse.ArgumentParser):
    """A parser whose complaints are like all others: one line, exit status 2."""

    def error(self, message: str) -> NoReturn:
        raise ConfigError(f"{message}: see {self.prog} --help")


class _ToStderr(logging.Handler):
    """Writes to what is stderr now: a progress bar and a test put another in its place."""

    def emit(self, record: logging.LogRecord) -> None:
        print(self.format(record), file=sys.stderr)


def _set_up_logging(level: str) -> None:
    handler = _ToStderr()
    handler.setFormatter(logging.Formatter("%(levelname)s %(name)s: %(message)s"))
    logger = logging.getLogger("mtmc")
    logger.handlers = [handler]
    logger.setLevel(level.upper())


def _command_name(argv: Sequence[str]) -> str | None:
    """The command on the command line, None for --help and --version. Raises: ConfigError for one that is not there."""
    name = next((text for text in argv if not text.startswith("-")), None)
    if name is not None and name not in COMMANDS:
        near = difflib.get_close_matches(name, COMMANDS, n=1)
        fix = f"did you mean {near[0]}?" if near else f"use one of {', '.join(COMMANDS)}"
        raise ConfigError(f"there is no command {name!r}: {fix}")
    return name


def _fail(message: str, status: int) -> int:
    line = " ".join(message.split())
    print(f"mtmc: {line}", file=sys.stderr)
    return status
