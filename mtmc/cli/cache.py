"""mtmc cache: what is kept of finished searches, and removing it."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from mtmc.cli.command import Command
from mtmc.errors import ConfigError

if TYPE_CHECKING:
    from mtmc.cache import Listed

DOES = ("list", "clear", "path")
_COLUMNS = ("task", "hardware", "speedup", "evaluations", "date", "size")


def _cache(arguments: argparse.Namespace, overrides: Sequence[str]) -> int:
    from mtmc.cache import WinnerCache
    from mtmc.export.text import quantity

    cache = WinnerCache()
    if arguments.task is not None and arguments.does != "clear":
        raise ConfigError(
            f"mtmc cache {arguments.does} takes no task: mtmc cache clear {arguments.task} removes its winners"
        )
    arguments.answer.update(does=arguments.does, folder=cache.folder.parent)
    if arguments.does == "path":
        print(cache.folder.parent)
    elif arguments.does == "list":
        listed = cache.entries()
        arguments.answer["entries"] = [
            {**asdict(each.entry), "digest": each.digest, "bytes": each.size} for each in listed
        ]
        print("\n".join(_table(listed)) if listed else f"no winners are kept in {cache.folder}")
    else:
        cleared = cache.clear(arguments.task)
        arguments.answer.update(removed=cleared.entries, bytes=cleared.size)
        count = f"{cleared.entries} {'entry' if cleared.entries == 1 else 'entries'}"
        print(f"removed {count}, {quantity('bytes', cleared.size)}, from {cache.folder}")
    return 0


def _table(listed: Sequence[Listed]) -> list[str]:
    rows = [_COLUMNS, *(_row(each) for each in listed)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_COLUMNS))]
    return ["  ".join(f"{text:<{width}}" for text, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def _row(listed: Listed) -> tuple[str, ...]:
    from mtmc.export.text import factor, quantity

    entry = listed.entry
    gain = "none" if not entry.sources or entry.speedup is None else f"{factor(entry.speedup)} {entry.runtime_kind}"
    return entry.task, entry.hardware, gain, str(entry.evaluations), entry.made, quantity("bytes", listed.size)


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "does", metavar="|".join(DOES), choices=DOES, help="show the entries, remove them, or say where"
    )
    parser.add_argument("task", metavar="TASK", nargs="?", help="with clear: remove the entries of this task alone")


CACHE = Command(
    run=_cache,
    arguments=_arguments,
    summary="list or clear what is kept of finished searches",
    usage="list | clear [TASK] | path",
    description="What mtmc.optimize has found is kept, so that the same module is not searched twice. List it (last used\n"
    "first), remove all or one task's, or print the cache folder. The environment variable MTMC_CACHE names another one.",
)
