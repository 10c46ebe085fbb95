"""Runs of fakes to watch, and what a server of their pages answers."""

from __future__ import annotations

import http.client
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mtmc.fakes import FAKE_TASK, FakeCoder, FakeEvaluator, FakePolicy
from mtmc.search import SearchResult, resume, search
from mtmc.watch import LiveFolder, Watcher

Answer = tuple[int, Mapping[str, str], str]


def run(out: Path, budget: int, **more: Any) -> SearchResult:
    """A run of fakes, or more of one that is there."""
    parts: dict[str, Any] = {"policy": FakePolicy(), "coder": FakeCoder(), "evaluator": FakeEvaluator(), **more}
    if (out / "run.sqlite").exists():
        return resume(out, budget=budget, dumps=False, progress=False, **parts)
    return search(FAKE_TASK, budget=budget, batch=2, out=out, dumps=False, progress=False, **parts)


class Served:
    """Pages that are served, and what they answer."""

    def __init__(self, folder: LiveFolder, server: Watcher) -> None:
        self.folder, self.server, self.address = folder, server, server.address

    def get(self, path: str, method: str = "GET", **headers: str) -> Answer:
        """(status, headers, text). headers: e.g. Host="127.0.0.1:80"; Host="" sends none."""
        connection = http.client.HTTPConnection(*self.server.server_address[:2], timeout=300)
        try:
            connection.putrequest(method, path, skip_host="Host" in headers, skip_accept_encoding=True)
            for name, value in headers.items():
                if value:
                    connection.putheader(name, value)
            connection.endheaders()
            answer = connection.getresponse()
            return answer.status, dict(answer.getheaders()), answer.read().decode()
        finally:
            connection.close()
