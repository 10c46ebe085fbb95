"""Watch: a run or a sweep as it grows, as pages on this machine.

    live_run.py     one run: what is new in its store, as the page of the tree takes it
    live_folder.py  the runs of a folder, and how they compare
    server.py       the pages, for this machine alone

The pages are those of `mtmc.export`. Stores are only read, and no file is served.
"""

from __future__ import annotations

from mtmc.watch.live_folder import LiveFolder
from mtmc.watch.live_run import LiveRun, Progress
from mtmc.watch.server import Watcher

__all__ = ["LiveFolder", "LiveRun", "Progress", "Watcher"]
