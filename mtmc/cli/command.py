"""Command: what the command line knows of one of its commands."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

CUT_SHORT = 3
"""Exit status of a search that ended before its budget was spent: its model answered nothing, or nothing usable."""


@dataclass(frozen=True)
class Command:
    """One command.

    run: does it; takes the parsed arguments and the overrides ("name=value"), returns the exit status. What it says with
    --json it puts into `arguments.answer`, a dictionary that is there in any case.
    arguments: adds its own arguments to its parser. summary: one line for `mtmc --help`. usage: its arguments in short.
    description, epilog: what its own --help says before and after them. overrides: whether it takes overrides.
    """

    run: Callable[[argparse.Namespace, Sequence[str]], int]
    arguments: Callable[[argparse.ArgumentParser], None]
    summary: str
    usage: str
    description: str
    epilog: Callable[[], str] = str
    overrides: bool = False


class Interrupted(KeyboardInterrupt):
    """Ctrl-C, with what can be done now. hint: e.g. "go on with: mtmc resume runs/softmax-..."."""

    def __init__(self, hint: str) -> None:
        super().__init__(hint)
        self.hint = hint


def add_dry_run(parser: argparse.ArgumentParser) -> None:
    """Add --dry-run, which has a command print its settings alone."""
    parser.add_argument("--dry-run", action="store_true", help="print the settings and do nothing")


def print_settings(settings: Any) -> None:
    """Print settings as a file of them would have them, for --dry-run. settings: plain data, or as Hydra composes them."""
    from omegaconf import OmegaConf

    print(OmegaConf.to_yaml(settings if OmegaConf.is_config(settings) else OmegaConf.create(settings)), end="")
