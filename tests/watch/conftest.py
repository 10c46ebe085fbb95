"""A server of the pages of runs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from mtmc.watch import LiveFolder, Watcher
from tests.watched import Served


@pytest.fixture
def serve() -> Iterator[Callable[[Path], Served]]:
    """Serves a folder's pages until the test ends."""
    with ExitStack() as stack:

        def start(folder: Path) -> Served:
            found = LiveFolder(folder)
            server = stack.enter_context(Watcher(found, 0))
            thread = threading.Thread(target=server.serve_forever, args=(0.01,))
            thread.start()
            stack.callback(thread.join)
            stack.callback(server.shutdown)
            return Served(found, server)

        yield start
