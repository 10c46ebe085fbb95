"""mtmc watch: a run or a sweep as it grows, in a browser."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mtmc.cli.command import Command

PORT = 8765
"""Of the page, where none is given."""

if TYPE_CHECKING:
    from mtmc.watch import LiveFolder


def _watch(arguments: argparse.Namespace, overrides: Sequence[str]) -> int:
    from mtmc.watch import LiveFolder, Watcher

    folder = LiveFolder(Path(arguments.folder).expanduser())
    if arguments.once:
        found = folder.overview()
        arguments.answer.update(found)
        print("\n".join(line for run in found["runs"] for line in _told(run, str(folder.folder))))
        return 0
    with Watcher(folder, arguments.port) as server:
        arguments.answer.update(address=server.address, folder=folder.folder)
        print(f"{_what(folder)} at {server.address} (Ctrl-C ends this page, not the search)", flush=True)
        if not arguments.no_browser:
            _open(server.address)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            print()
    return 0


def _what(folder: LiveFolder) -> str:
    return f"run {folder.folder}" if folder.single else f"runs below {folder.folder}"


def _open(address: str) -> None:
    """Open a browser, where there is a screen to open one on: on others a text browser would take the terminal."""
    if sys.platform == "darwin" or os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"):
        import webbrowser

        webbrowser.open(address)


def _told(run: Mapping[str, Any], folder: str) -> Iterator[str]:
    """A run in a line, and a line for each trial under way."""
    from mtmc.export.text import factor, one_line

    name = folder if run["name"] == "." else run["name"]
    if "versions" not in run:
        yield f"{name}: {run['state']}: {one_line(run['finished'])}"
        return
    state = f"ended, {run['finished']}" if run["state"] == "ended" else run["state"]
    best = "no speedup known" if run["speedup"] is None else f"{factor(run['speedup'])} {run['speedup_kind']}"
    counts = f"{run['evaluations']}/{run['budget']} evaluations, {run['versions']} versions"
    paid = f", {run['usd']:.4f} USD" if run["usd"] else ""
    yield f"{name}: {state}: {counts}, best {best}, {run['seconds']:.0f} s{paid}"
    for trial in run["trials"]:
        yield f"  trial {trial['trial']}, {trial['stage']}: {one_line(trial['sentence'])}, from version {trial['node']}"


def _watch_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", metavar="FOLDER", help="of a run, or of a sweep")
    parser.add_argument("--port", type=int, default=PORT, help=f"of the page ({PORT}); 0: any that is free")
    parser.add_argument("--no-browser", action="store_true", help="open no browser")
    parser.add_argument("--once", action="store_true", help="say where the runs stand and end; serve no page")


WATCH = Command(
    run=_watch,
    arguments=_watch_arguments,
    summary="watch a run or a sweep as it grows, in a browser",
    usage="FOLDER [--port PORT] [--no-browser] [--once]",
    description="Serve a page of a run or of all runs of a sweep, which goes on as they do. For this machine alone.",
)
