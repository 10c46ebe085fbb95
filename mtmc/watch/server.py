"""Watcher: the pages of a run or a sweep, for this machine alone.

It listens on 127.0.0.1, answers only those who call it by a name of this machine (a page of another site that had its own
name lead here would be told nothing), and has five answers, all made from what the stores hold: no path is ever opened for a
request. Texts of kernels and models go out as JSON only, and the pages show them as text.
"""

from __future__ import annotations

import errno
import json
import logging
import re
from functools import partial
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from mtmc.errors import ConfigError, MtmcError
from mtmc.export.page import json_text, page_html
from mtmc.watch.live_folder import LiveFolder
from mtmc.watch.live_run import COUNTS

_log = logging.getLogger(__name__)

HOST = "127.0.0.1"
NAMES = frozenset({HOST, "localhost", "[::1]"})
"""What a request may call this machine. The port is free: that of a tunnel is another."""

HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
HTML, JSON = "text/html; charset=utf-8", "application/json; charset=utf-8"

_RUN = re.compile(r"/runs/([0-9]{1,6})/(changes)?", re.ASCII)


class Watcher(ThreadingHTTPServer):
    """A server of one folder's runs. Open from the start; `serve_forever` serves, and `server_close` ends it."""

    daemon_threads = True

    def __init__(self, folder: LiveFolder, port: int) -> None:
        """port: 0 for any that is free. Raises: ConfigError for a port that cannot be had."""
        if not 0 <= port <= 65535:
            raise ConfigError(f"there is no port {port}: use a number from 0 (any that is free) to 65535")
        try:
            super().__init__((HOST, port), partial(_Handler, folder))
        except OSError as error:
            why = "is in use" if error.errno == errno.EADDRINUSE else f"cannot be had ({error.strerror})"
            raise ConfigError(
                f"port {port} {why}: choose another with --port, or --port 0 for any that is free"
            ) from error

    @property
    def address(self) -> str:
        """Where the pages are."""
        return f"http://{HOST}:{self.server_address[1]}/"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A browser that has left is nothing to tell of."""
        _log.debug("a request ended early", exc_info=True)


class _Refused(Exception):
    """A request that gets no page. status: of HTTP; the text says why."""

    def __init__(self, status: HTTPStatus, why: str) -> None:
        super().__init__(why)
        self.status = status


class _Handler(BaseHTTPRequestHandler):
    server_version, sys_version = "mtmc", ""
    timeout = 20

    def __init__(self, folder: LiveFolder, *given: Any) -> None:
        self._folder = folder
        super().__init__(*given)

    def do_GET(self) -> None:
        """Answer a question."""
        try:
            self._check_host()
            self._send(HTTPStatus.OK, *self._answer())
        except _Refused as refused:
            self._send(refused.status, JSON, json.dumps({"error": str(refused)}))
        except MtmcError as error:
            self._send(HTTPStatus.SERVICE_UNAVAILABLE, JSON, json.dumps({"error": str(error)}))

    def do_HEAD(self) -> None:
        """Answer without the text."""
        self.do_GET()

    def _check_host(self) -> None:
        host = (self.headers.get("Host") or "").strip().lower()
        if re.sub(r":[0-9]+$", "", host) not in NAMES:
            raise _Refused(HTTPStatus.FORBIDDEN, f"this is a page of this machine alone: ask for it as {HOST}")

    def _answer(self) -> tuple[str, str]:
        """The type and text of the answer."""
        try:
            asked = urlsplit(self.path)
        except ValueError as error:
            raise _Refused(HTTPStatus.NOT_FOUND, "there is no such page") from error
        if asked.path == "/":
            return HTML, self._tree(0) if self._folder.single else self._overview()
        if asked.path == "/overview" and not self._folder.single:
            return JSON, json_text(self._folder.overview())
        if found := _RUN.fullmatch(asked.path):
            number = int(found[1])
            if number < len(self._folder.runs):
                return (JSON, self._changes(number, asked.query)) if found[2] else (HTML, self._tree(number))
        raise _Refused(HTTPStatus.NOT_FOUND, "there is no such page")

    def _overview(self) -> str:
        data = {**self._folder.overview(), "live": True}
        return page_html(f"{len(data['runs'])} runs, {data['folder']}", data, "runs.html", connect=True)

    def _tree(self, number: int) -> str:
        data = self._folder.runs[number].changes(dict.fromkeys(COUNTS, 0))
        back = None if self._folder.single else "/"
        return page_html(data["task"], {**data, "address": f"/runs/{number}/changes", "back": back}, connect=True)

    def _changes(self, number: int, query: str) -> str:
        given = dict(parse_qsl(query))
        try:
            known = {name: max(0, int(given[name])) for name in COUNTS}
        except (KeyError, ValueError) as error:
            raise _Refused(HTTPStatus.BAD_REQUEST, f"a whole number each is needed: {', '.join(COUNTS)}") from error
        return json_text(self._folder.runs[number].changes(known))

    def _send(self, status: HTTPStatus, kind: str, text: str) -> None:
        body = text.encode()
        self.send_response(status)
        for name, value in {**HEADERS, "Content-Type": kind, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """To the log, not to stderr."""
        _log.debug(format, *args)
