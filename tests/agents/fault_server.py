"""A chat server on loopback that says what a test tells it to, faults included.

It speaks OpenAI's protocol over real HTTP, so whatever a client does about a reply is done for real:

    with FaultServer(["first reply", rate_limited(2), "second reply"]) as server:
        settings = ModelSettings("openai/scripted", api_base=server.url)
        ...
        assert server.requests[0]["messages"][-1]["content"] == "..."

Each request takes the next item of the script: a string is a normal completion with that text, a `Fault` anything else
(the functions below make the usual ones). What comes after the script goes to `reply(body)`, a function of the request's
body that gives a string or a `Fault`: with it a test can write a conversation that depends on what is asked, and on it
alone, so that parallel trials stay deterministic. Without one, further requests get status 400.

Usage is reported as the number of words: of all messages together, and of the reply.
"""

from __future__ import annotations

import json
import socket
import struct
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Literal
from urllib.parse import urlsplit

JSON_TYPE = {"Content-Type": "application/json"}
TRICKLE_S = 0.02


@dataclass(frozen=True)
class Fault:
    """One scripted answer of HTTP.

    body: sent as it is; None: a normal completion with `text`. headers: besides Content-Type and Content-Length.
    act: "answer" sends it whole; "hang" sends nothing and "hang_after_headers" no body, until the client goes away or the
    server is closed; "trickle" sends blanks for ever, one every `TRICKLE_S`; "reset" resets the connection; "stall" sends
    half of a reply that is streamed, and no more. pause_s: between two pieces of such a reply.
    echo: whether the request's Authorization header is put into the body in place of "{authorization}".
    """

    status: int = 200
    body: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    act: Literal["answer", "hang", "hang_after_headers", "trickle", "reset", "stall"] = "answer"
    text: str = ""
    echo: bool = False
    pause_s: float = 0.0


Reply = str | Fault
"""A string is the text of a normal completion."""


def error_reply(status: int, message: str, code: str = "", headers: Mapping[str, str] | None = None) -> Fault:
    """An error in the shape of OpenAI's. code: "context_length_exceeded", "model_not_found", "insufficient_quota", ..."""
    kind = "server_error" if status >= 500 else "invalid_request_error"
    error = {"message": message, "type": kind, "param": None, "code": code or None}
    return Fault(status, json.dumps({"error": error}), headers or {}, echo="{authorization}" in message)


def rate_limited(retry_after: str | float | None = None) -> Fault:
    """429. retry_after: seconds or an HTTP date."""
    headers = {} if retry_after is None else {"Retry-After": str(retry_after)}
    return error_reply(429, "too many requests", "rate_limit_exceeded", headers)


def server_error(status: int = 500) -> Fault:
    """5xx."""
    return error_reply(status, "the server is out of order")


def invalid_json() -> Fault:
    """Half a completion: status 200, and a body that ends in the middle."""
    return Fault(body='{"id": "chatcmpl-1", "object": "chat.completion", "choices": [{"index": 0, "mess')


def completion(
    text: str | None,
    *,
    finish: str = "stop",
    refusal: str | None = None,
    usage: tuple[int, int] | None = None,
    model: str = "scripted",
) -> Fault:
    """A completion that is not quite the usual one. usage: tokens of prompt and reply; None: none are reported."""
    return Fault(body=json.dumps(_completion(text, model, finish, refusal, usage)))


def tool_calls(*calls: tuple[str, str], text: str | None = None, usage: tuple[int, int] | None = (100, 10)) -> Fault:
    """A completion that calls functions, by name and arguments (JSON)."""
    whole = _completion(text, "scripted", "tool_calls", None, usage)
    whole["choices"][0]["message"]["tool_calls"] = [
        {"id": f"id_{at}", "type": "function", "function": {"name": name, "arguments": arguments}}
        for at, (name, arguments) in enumerate(calls)
    ]
    return Fault(body=json.dumps(whole))


def anthropic(*content: dict[str, Any], usage: dict[str, int], stop: str = "end_turn") -> Fault:
    """A reply in Anthropic's form, which is asked for at "/v1/messages"."""
    whole = {"id": "msg_1", "type": "message", "role": "assistant", "model": "scripted", "content": list(content)}
    return Fault(body=json.dumps({**whole, "stop_reason": stop, "stop_sequence": None, "usage": usage}))


def choices(*texts: str, usage: tuple[int, int] = (100, 10)) -> Fault:
    """A completion with several choices, as a request with `n` gets."""
    whole = _completion(texts[0], "scripted", "stop", None, usage)
    parts = [_completion(text, "scripted", "stop", None, None)["choices"][0] for text in texts]
    return Fault(body=json.dumps({**whole, "choices": [{**part, "index": at} for at, part in enumerate(parts)]}))


def hang() -> Fault:
    """The request is taken and never answered."""
    return Fault(act="hang")


def hang_after_headers() -> Fault:
    """Status and headers come, the body does not."""
    return Fault(act="hang_after_headers")


def trickle() -> Fault:
    """The body comes, a blank at a time, without an end: no pause is long, the whole is."""
    return Fault(act="trickle")


def reset() -> Fault:
    """The connection is reset once the request is read."""
    return Fault(act="reset")


def unserved_url() -> str:
    """An address on loopback where nobody listens."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{listener.getsockname()[1]}/v1"


class FaultServer:
    """The server; use it as a context manager. Requests are served at once, each in a thread of its own.

    url: what `model.api_base` is set to. requests: bodies of the requests so far, in the order they came.
    headers: their headers, names in lower case.
    """

    def __init__(self, script: Iterable[Reply] = (), reply: Callable[[dict[str, Any]], Reply] | None = None) -> None:
        self.requests: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self._script = list(script)
        self._reply = reply
        self._lock = threading.Lock()
        self._closing = threading.Event()
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                server._answer(self)

            def log_message(self, format: str, *args: object) -> None:
                pass

        class Server(ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = 128

            def handle_error(self, request: object, client_address: object) -> None:
                pass  # a client that gave up waiting: what it does then is the test's business

        self._http = Server(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.02,), daemon=True)

    @property
    def url(self) -> str:
        """Address with the "/v1" that OpenAI's clients want."""
        return f"http://127.0.0.1:{self._http.server_port}/v1"

    @property
    def left(self) -> int:
        """Items of the script that nobody has asked for."""
        return len(self._script)

    def __enter__(self) -> FaultServer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.set()
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()

    def _answer(self, handler: BaseHTTPRequestHandler) -> None:
        body = json.loads(handler.rfile.read(int(handler.headers["Content-Length"])))
        known = ("/chat/completions", "/v1/messages", "/v1", "/v1/")  # the last two where the address has a query
        if not urlsplit(handler.path).path.endswith(known):
            _send(handler, error_reply(404, f"nothing is served at {handler.path}"), body, self._closing)
            return
        with self._lock:
            self.requests.append(body)
            self.headers.append({name.lower(): value for name, value in handler.headers.items()})
            reply = self._script.pop(0) if self._script else None
        if reply is None:
            spent = error_reply(400, "the script of this test has no further reply")
            reply = spent if self._reply is None else self._reply(body)
        _send(handler, Fault(text=reply) if isinstance(reply, str) else reply, body, self._closing)


def _send(handler: BaseHTTPRequestHandler, fault: Fault, body: Mapping[str, Any], closing: threading.Event) -> None:
    if fault.act == "reset":
        now = struct.pack("ii", 1, 0)  # linger for no time: closing sends RST
        handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, now)
        handler.rfile.close()
        handler.wfile.close()
        handler.connection.close()
        return
    if fault.act == "hang":
        closing.wait()
        return
    if body.get("stream") and fault.body is None and fault.act in ("answer", "stall"):
        _stream(handler, fault, body, closing)
        return
    text = fault.body
    if text is None:
        words = sum(len(str(message["content"]).split()) for message in body["messages"])
        usage = (words, len(fault.text.split()))
        text = json.dumps(_completion(fault.text, str(body["model"]), "stop", None, usage))
    if fault.echo:
        text = text.replace("{authorization}", handler.headers.get("Authorization", "none"))
    payload = text.encode()
    endless = fault.act in ("hang_after_headers", "trickle")
    handler.send_response(fault.status)
    length = {"Content-Length": "1000000" if endless else str(len(payload))}
    for name, value in {**JSON_TYPE, **length, **fault.headers}.items():
        handler.send_header(name, value)
    handler.end_headers()
    if not endless:
        handler.wfile.write(payload)
    while endless and not closing.wait(TRICKLE_S):
        if fault.act == "trickle":
            handler.wfile.write(b" ")


def _stream(handler: BaseHTTPRequestHandler, fault: Fault, body: Mapping[str, Any], closing: threading.Event) -> None:
    """A completion as server-sent events, a word a piece; usage comes last, where it is asked for."""
    handler.send_response(200)
    handler.send_header("Content-Type", "text/event-stream")
    handler.end_headers()
    words = fault.text.split(" ")
    pieces = [word if at == 0 else f" {word}" for at, word in enumerate(words)]
    head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": body["model"]}
    for at, piece in enumerate(pieces):
        if fault.act == "stall" and at == len(pieces) // 2:
            closing.wait()
            return
        closing.wait(fault.pause_s)
        choice = {"index": 0, "delta": {"role": "assistant", "content": piece}, "finish_reason": None}
        handler.wfile.write(f"data: {json.dumps({**head, 'choices': [choice]})}\n\n".encode())
        handler.wfile.flush()
    ends = [{**head, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}]
    if (body.get("stream_options") or {}).get("include_usage"):
        sent = sum(len(str(message["content"]).split()) for message in body["messages"])
        usage = {"prompt_tokens": sent, "completion_tokens": len(words), "total_tokens": sent + len(words)}
        ends.append({**head, "choices": [], "usage": usage})
    text = "".join(f"data: {json.dumps(each)}\n\n" for each in ends)
    handler.wfile.write(f"{text}data: [DONE]\n\n".encode())


def _completion(
    text: str | None, model: str, finish: str, refusal: str | None, usage: tuple[int, int] | None
) -> dict[str, Any]:
    message = {"role": "assistant", "content": text}
    if refusal is not None:
        message["refusal"] = refusal
    whole: dict[str, Any] = {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": model,
        "choices": [{"index": 0, "message": message, "finish_reason": finish}],
    }
    if usage is not None:
        prompt, reply = usage
        whole["usage"] = {"prompt_tokens": prompt, "completion_tokens": reply, "total_tokens": prompt + reply}
    return whole
