"""Every fault of a model's server that we know, in a search each, by one command:

    python -m tests.agents.model_faults --out results/model_faults

Once: the first request fails so, all others are answered. Always: all do. What a search does about it is beside what is
expected of it, and the second table has what the server billed under each limit beside the limit, eight questions at a time.
Exit status 1 if anything is not as expected.
"""

from __future__ import annotations

import argparse
import json
import platform
import re
import sys
import tempfile
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import date
from importlib import metadata
from pathlib import Path
from typing import Any, Literal
from unittest.mock import patch

from mtmc.chat import ModelSettings
from mtmc.errors import ModelError
from mtmc.fakes import FAKE_TASK, FakeEvaluator, FakePolicy
from mtmc.search import Budget, breaker, search
from mtmc.store import Store
from tests.agents import fault_server as faults
from tests.agents.asking import AskingFake
from tests.agents.fault_server import Fault, FaultServer, completion, error_reply

Expected = Literal["goes on", "an edge", "cut short", "error"]
"""What a fault may do to a search: nothing; it loses the edge that was asked for; it ends and can be resumed; it does not
go on before what the message names is set right (exit status 2)."""

GOOD = "edit"
IN_TOKENS, OUT_TOKENS = 20, 100
"""Tokens that the server bills for each reply that it makes, whether or not it arrives."""
USAGE = (IN_TOKENS, OUT_TOKENS)
MAX_TOKENS = 512
USD_IN, USD_OUT = 1.0, 10.0
"""A million tokens."""
EVALUATIONS = 8


@dataclass(frozen=True)
class Kind:
    """One kind of fault. reply: what the server answers. once, always: what is expected. billed: whether the server bills
    it. settings: of the model."""

    name: str
    reply: Fault | str
    once: Expected
    always: Expected
    billed: bool = False
    settings: dict[str, Any] = field(default_factory=dict)


def _status(status: int, once: Expected, always: Expected, code: str = "") -> Kind:
    return Kind(f"status {status}{f', {code}' if code else ''}", error_reply(status, "no", code), once, always)


TOOL_CALLS = {
    **json.loads(completion(None, usage=(IN_TOKENS, OUT_TOKENS)).body or ""),
    "choices": [
        {
            "index": 0,
            "finish_reason": "tool_calls",
            "message": {
                "role": "assistant",
                "content": None,
                "tool_calls": [{"id": "1", "type": "function", "function": {"name": "draft", "arguments": "{}"}}],
            },
        }
    ],
}
BRIEF = {"timeout_s": 0.3}
STALLED = Fault(text="one two three four", act="stall")
HTML = Fault(body="<html>busy</html>", headers={"Content-Type": "text/html"})

KINDS: tuple[Kind, ...] = (
    *(_status(status, "goes on", "cut short") for status in (408, 409, 425, 429, 500, 502, 503, 504, 524, 529)),
    *(_status(status, "an edge", "cut short") for status in (400, 405, 413, 422)),
    _status(400, "an edge", "cut short", "context_length_exceeded"),
    _status(400, "an edge", "cut short", "content_policy_violation"),
    *(_status(status, "error", "error") for status in (401, 402, 403, 404)),
    _status(429, "error", "error", "insufficient_quota"),
    *(
        Kind(f"429, Retry-After: {value}", faults.rate_limited(value), "goes on", "cut short")
        for value in ("0.05", "-3", "soon", "Wed, 21 Oct 2015 07:28:00 GMT")
    ),
    Kind("reset connection", faults.reset(), "goes on", "cut short", True),
    Kind("hangs", faults.hang(), "goes on", "cut short", True, BRIEF),
    Kind("hangs after its headers", faults.hang_after_headers(), "goes on", "cut short", True, BRIEF),
    Kind("trickles blanks", faults.trickle(), "goes on", "cut short", True, BRIEF),
    Kind("streams half a reply", STALLED, "goes on", "cut short", True, {**BRIEF, "stream": True}),
    Kind("half a body of JSON", faults.invalid_json(), "goes on", "cut short", True),
    Kind("an empty body", Fault(body=""), "goes on", "cut short", True),
    Kind("{}", Fault(body="{}"), "goes on", "cut short", True),
    Kind("no choices", Fault(body='{"choices": []}'), "goes on", "cut short", True),
    Kind("a page of HTML", HTML, "goes on", "cut short", True),
    Kind("an empty reply", completion("", usage=USAGE), "an edge", "cut short", True),
    Kind("a refusal", completion(None, refusal="I will not.", usage=USAGE), "an edge", "cut short", True),
    Kind("a filtered reply", completion("", finish="content_filter", usage=USAGE), "an edge", "cut short", True),
    Kind("a truncated reply", completion("def f(", finish="length", usage=USAGE), "an edge", "cut short", True),
    Kind("native tool calls", Fault(body=json.dumps(TOOL_CALLS)), "an edge", "cut short", True),
    Kind("prose", completion("First I would tile it.", usage=USAGE), "an edge", "cut short", True),
    Kind("five megabytes", completion("x = 1\n" * 900_000, usage=USAGE), "an edge", "cut short", True),
    Kind("half a surrogate pair", completion("a\ud800b", usage=USAGE), "an edge", "cut short", True),
    Kind("negative usage", completion(GOOD, usage=(-50, -OUT_TOKENS)), "goes on", "goes on", True),
    Kind("usage of nothing", completion(GOOD, usage=(0, 0)), "goes on", "goes on", True),
    Kind("no usage", completion(GOOD, usage=None), "goes on", "goes on", True),
)  # fmt: skip


class Bill:
    """What the server has really taken: requests, tokens, and dollars at list price.

    kind: of fault, of the first request ("once"), of every second one ("half") or of all ("always").
    """

    def __init__(self, kind: Kind | None, when: Literal["once", "half", "always"]) -> None:
        self.requests, self.tokens, self.usd = 0, 0, 0.0
        self._kind = kind
        self._when = when
        self._lock = threading.Lock()

    def reply(self, body: dict[str, Any]) -> Fault | str:
        """See `FaultServer`."""
        with self._lock:
            self.requests += 1
            faulty = {"once": self.requests == 1, "half": self.requests % 2 == 1, "always": True}[self._when]
            kind = self._kind if faulty else None
            if kind is None or kind.billed:
                tokens_out = min(OUT_TOKENS, int(body.get("max_tokens", OUT_TOKENS)))
                self.tokens += IN_TOKENS + tokens_out
                self.usd += (IN_TOKENS * USD_IN + tokens_out * USD_OUT) / 1e6
        if kind is not None:
            return kind.reply
        return GOOD if body.get("stream") else completion(GOOD, usage=(IN_TOKENS, OUT_TOKENS))


@dataclass(frozen=True)
class Seen:
    """What came of one search. requests: that were sent. lost: edges that ended without a version for want of a reply.
    ended: why, in words. effect: see `Expected`."""

    requests: int
    lost: int
    ended: str
    effect: Expected


def observe(kind: Kind | None, once: bool, folder: Path) -> Seen:
    """One search with a fault."""
    bill = Bill(kind, "once" if once else "always")
    with FaultServer(reply=bill.reply) as server:
        given = {"retries": 1, "patience_s": 0.0, "timeout_s": 30.0, "max_tokens": MAX_TOKENS}
        given |= kind.settings if kind is not None else {}
        given |= {"patience_s": 600.0} if once else {}
        try:
            result = search(
                FAKE_TASK,
                coder=AskingFake(width=40),
                policy=FakePolicy(),
                evaluator=FakeEvaluator(failing=0.0),
                model=ModelSettings("openai/scripted", server.url, **given),
                budget=EVALUATIONS,
                out=folder,
                dumps=False,
            )
        except ModelError as error:
            return Seen(bill.requests, _lost(folder), str(error), "error")
    lost = _lost(folder)
    return Seen(
        bill.requests,
        lost,
        result.finished or "",
        "cut short" if result.cut_short else "an edge" if lost else "goes on",
    )


def _lost(folder: Path) -> int:
    store = Store.read(folder)
    try:
        rows = [row for batch in store.batches() for row in batch.trials]
        return sum(row.end is not None and row.end.kind == "coder_error" for row in rows)
    finally:
        store.close()


LIMITS: dict[str, Callable[[], Budget]] = {
    "usd": lambda: Budget(64, usd=0.02),
    "tokens": lambda: Budget(64, tokens=4000),
    "calls": lambda: Budget(64, calls=10),
}
LIMITED = ("", "status 503", "hangs", "reset connection", "half a body of JSON", "negative usage", "no usage", "prose")
"""Kinds that are held against each limit; "" is a server without a fault."""


def overshoot(kind: Kind | None, limit: str, folder: Path) -> tuple[float, float]:
    """(what the server billed, the limit) of a search with eight questions at a time, half of its requests at fault."""
    bill, budget = Bill(kind, "half"), LIMITS[limit]()
    with FaultServer(reply=bill.reply) as server:
        given: dict[str, Any] = {"retries": 1, "patience_s": 600.0, "timeout_s": 30.0, "max_tokens": MAX_TOKENS}
        given |= kind.settings if kind is not None else {}
        settings = ModelSettings(
            "openai/scripted", server.url, **given, usd_per_million_in=USD_IN, usd_per_million_out=USD_OUT
        )
        parts = {"coder": AskingFake(width=40), "policy": FakePolicy(), "evaluator": FakeEvaluator()}
        search(FAKE_TASK, **parts, model=settings, budget=budget, batch=8, out=folder, dumps=False)
    billed = {"usd": bill.usd, "tokens": float(bill.tokens), "calls": float(bill.requests)}[limit]
    return billed, float(getattr(budget, limit))


def page(kinds: Sequence[Kind], limits: Sequence[str]) -> tuple[str, bool]:
    """Both tables in Markdown, and whether everything is as expected."""
    lines = [
        "# Faults of a model's server",
        "",
        "| fault | once: requests | effect | always: requests | edges lost | effect | ended |",
    ]
    lines.append("|---|---:|---|---:|---:|---|---|")
    holds = True
    with tempfile.TemporaryDirectory() as root, patch.object(breaker, "PAUSE_S", 0.01), _quick():
        for at, kind in enumerate(kinds):
            once, always = (observe(kind, first, Path(root, f"{at}-{first}")) for first in (True, False))
            marks = [seen.effect + ("" if seen.effect == wanted else f" (expected: {wanted})")
                     for seen, wanted in ((once, kind.once), (always, kind.always))]  # fmt: skip
            holds &= not any("expected" in mark for mark in marks)
            ended = re.sub(r"127\.0\.0\.1:\d+", "127.0.0.1:PORT", always.ended.replace("|", "/").replace("\n", " "))
            ended = re.sub(r"\d+\.\d s\b", "TIME s", ended)[:200]
            cells = (kind.name, once.requests, marks[0], always.requests, always.lost, marks[1], ended)
            lines.append("| " + " | ".join(map(str, cells)) + " |")
        if limits:
            lines += ["", "| half of all requests | limit | billed | of | over |", "|---|---|---:|---:|---:|"]
        for name in LIMITED if limits else ():
            kind_ = next((each for each in kinds if each.name == name), None)
            for limit in limits:
                billed, most = overshoot(kind_, limit, Path(root, f"{name or 'none'}-{limit}"))
                over = max(0.0, billed - most)
                holds &= over <= 1e-12
                lines.append(f"| {name or 'no fault'} | {limit} | {billed:.6g} | {most:g} | {over:.6g} |")
    return "\n".join(lines) + "\n", holds


def _quick() -> Any:
    return patch("mtmc.agents.llm.client.BACKOFF_S", 0.01)


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the page. Returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.agents.model_faults", description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("results/model_faults"), help="the page, without .md")
    asked = parser.parse_args(arguments)
    text, holds = page(KINDS, tuple(LIMITS))
    used = ", ".join(f"{name} {metadata.version(name)}" for name in ("litellm", "openai"))
    text += (
        f"\nEverything is as expected: {holds}.\n\n{used}, Python {platform.python_version()}, no GPU, {date.today()}. "
    )
    text += f"Command: `{parser.prog} --out {asked.out}`.\n"
    asked.out.with_suffix(".md").write_text(text, encoding="utf-8")
    print(text, end="")
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main())
