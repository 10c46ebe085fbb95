"""checkpoints: where the checkpoints of a graph of `build_graph` are kept: a SQLite file, or a PostgreSQL server.

LangGraph's savers for both can be asked either in an event loop or outside of one. A graph can be called both ways, so here
what is asked in a loop is done in a thread.
"""

from __future__ import annotations

import asyncio
import sqlite3
import weakref
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import Any

from langgraph.checkpoint.base import BaseCheckpointSaver

from mtmc.errors import ConfigError
from mtmc.store.postgres import graph_saver

_BUSY_S = 30.0
"""Seconds that another process may take to write."""


class Checkpoints(BaseCheckpointSaver[Any]):
    """A saver that is asked from threads and event loops alike. saver: LangGraph's, which is asked. connection: its own,
    closed when nobody knows of these any more."""

    def __init__(self, saver: Any, connection: Any) -> None:
        super().__init__(serde=saver.serde)
        self._saver = saver
        weakref.finalize(self, connection.close)

    @property
    def config_specs(self) -> list[Any]:
        """See `BaseCheckpointSaver`."""
        return list(self._saver.config_specs)

    def get_next_version(self, current: Any, channel: None) -> Any:
        """See `BaseCheckpointSaver`."""
        return self._saver.get_next_version(current, channel)

    def get_tuple(self, config: Any) -> Any:
        """See `BaseCheckpointSaver`."""
        return self._saver.get_tuple(config)

    def list(self, config: Any, **options: Any) -> Iterator[Any]:
        """See `BaseCheckpointSaver`."""
        yield from self._saver.list(config, **options)

    def put(self, config: Any, checkpoint: Any, metadata: Any, new_versions: Any) -> Any:
        """See `BaseCheckpointSaver`."""
        return self._saver.put(config, checkpoint, metadata, new_versions)

    def put_writes(self, config: Any, writes: Sequence[Any], task_id: str, task_path: str = "") -> None:
        """See `BaseCheckpointSaver`."""
        self._saver.put_writes(config, writes, task_id, task_path)

    def delete_thread(self, thread_id: str) -> None:
        """See `BaseCheckpointSaver`."""
        self._saver.delete_thread(thread_id)

    async def aget_tuple(self, config: Any) -> Any:
        """See `BaseCheckpointSaver`."""
        return await asyncio.to_thread(self.get_tuple, config)

    async def alist(self, config: Any, **options: Any) -> AsyncIterator[Any]:
        """See `BaseCheckpointSaver`."""
        for each in await asyncio.to_thread(lambda: [*self.list(config, **options)]):
            yield each

    async def aput(self, config: Any, checkpoint: Any, metadata: Any, new_versions: Any) -> Any:
        """See `BaseCheckpointSaver`."""
        return await asyncio.to_thread(self.put, config, checkpoint, metadata, new_versions)

    async def aput_writes(self, config: Any, writes: Sequence[Any], task_id: str, task_path: str = "") -> None:
        """See `BaseCheckpointSaver`."""
        await asyncio.to_thread(self.put_writes, config, writes, task_id, task_path)

    async def adelete_thread(self, thread_id: str) -> None:
        """See `BaseCheckpointSaver`."""
        await asyncio.to_thread(self.delete_thread, thread_id)


def is_server(store: str) -> bool:
    """Whether a `store` is the address of a PostgreSQL server, not the path of a SQLite file."""
    return "://" in store


def checkpoints_in(store: str) -> Checkpoints:
    """The checkpoints that are kept there, made where there are none.

    store: path of a SQLite file, or postgresql://USER@HOST/DATABASE.

    Raises: ConfigError for an address or a path that cannot be, RunError where the server or its driver is not there.
    """
    if is_server(store):
        return Checkpoints(*graph_saver(store))
    from langgraph.checkpoint.sqlite import SqliteSaver

    path = Path(store).expanduser()
    connection: sqlite3.Connection | None = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        connection = sqlite3.connect(path, timeout=_BUSY_S, check_same_thread=False)
        saver = SqliteSaver(connection)
        saver.setup()
    except (OSError, sqlite3.Error) as error:
        if connection is not None:
            connection.close()
        raise ConfigError(f"store={store} cannot keep checkpoints ({error}): give the path of a SQLite file") from error
    return Checkpoints(saver, connection)
