"""streaming: a reply that comes piece by piece, put together as one that came whole."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

PIECES_MOST = 1 << 20
"""Pieces of one reply that are kept; a server that sends more is not waited for any longer."""


@dataclass
class Pieces:
    """What has come so far. last: when the last piece came, on `time.perf_counter`; 0 before the first."""

    last: float = 0.0
    count: int = 0


async def complete(litellm: Any, arguments: Mapping[str, Any], pieces: Pieces) -> Any:
    """litellm's response to a request. With "stream" among the arguments, `pieces` says how it goes on.

    Raises: what litellm raises.
    """
    response = await litellm.acompletion(**arguments)
    if not arguments.get("stream"):
        return response
    chunks = []
    async for chunk in response:
        pieces.last = time.perf_counter()
        pieces.count += 1
        chunks.append(chunk)
        if pieces.count >= PIECES_MOST:
            break
    return litellm.stream_chunk_builder(chunks, messages=arguments["messages"])
