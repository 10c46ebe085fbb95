"""The client of models against a server that fails in every way a server can, over real HTTP on loopback.

Waits between tries are recorded instead of waited; the server counts the requests that were really sent.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import subprocess
import sys
import threading
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from email.utils import formatdate
from typing import Any

import pytest

from mtmc.agents.llm import Client, check_model, redact
from mtmc.agents.llm.errors import RETRY_AFTER_CAP_S, lengths
from mtmc.agents.llm.litellm_api import TEXT_MOST, load_litellm
from mtmc.chat import ChatReply, ChatRequest, Message, ModelSettings
from mtmc.errors import CoderError, ModelError, NoReply
from tests.agents.fault_server import (
    Fault,
    FaultServer,
    Reply,
    completion,
    error_reply,
    hang,
    hang_after_headers,
    invalid_json,
    rate_limited,
    reset,
    server_error,
    trickle,
    unserved_url,
)

NOW = 1_700_000_000.0
KEY = "sk-loopback-0123456789abcdef"
OPENAI_TOO_LONG = (
    "This model's maximum context length is 8192 tokens. However, you requested 10000 tokens (1808 in the messages, "
    "8192 in the completion). Please reduce the length of the messages or completion."
)


class Waits(list[float]):
    """A sleep that only notes how long it was to be."""

    async def __call__(self, seconds: float) -> None:
        self.append(seconds)


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "HTTP_PROXY", "http_proxy"):
        monkeypatch.delenv(name, raising=False)


def settings(url: str, **others: Any) -> ModelSettings:
    return ModelSettings(**{"name": "openai/scripted", "api_base": url, "retries": 2, **others})


def question(text: str = "make it fast", seed: int = 0) -> ChatRequest:
    return ChatRequest((Message("system", "You write kernels."), Message("user", text)), "edit", seed)


def ask(*script: Reply, request: ChatRequest | None = None, **others: Any) -> tuple[ChatReply, FaultServer, Waits]:
    waits = Waits()
    with FaultServer(script) as server:
        client = Client(settings(server.url, **others), sleep=waits, now=lambda: NOW)
        return client.send(request or question()), server, waits


def fail(kind: type[Exception], *script: Reply, **others: Any) -> tuple[str, FaultServer, Waits]:
    waits = Waits()
    with FaultServer(script) as server:
        client = Client(settings(server.url, **others), sleep=waits, now=lambda: NOW)
        with pytest.raises(kind) as caught:
            client.send(question())
    assert type(caught.value) in (NoReply, ModelError)
    return str(caught.value), server, waits


def test_a_reply_comes_with_its_tokens_and_the_request_is_as_the_settings_say() -> None:
    reply, server, waits = ask("def f(): pass", request=question(seed=2**40 + 7), temperature=0.3, max_tokens=99)
    assert reply.text == "def f(): pass"
    assert (reply.tokens_in, reply.tokens_out) == (6, 3)
    assert (reply.tries, reply.truncated, reply.id, waits) == (1, False, -1, [])
    assert reply.seconds > 0
    [body] = server.requests
    assert body["model"] == "scripted"
    assert body["messages"][0] == {"role": "system", "content": "You write kernels."}
    assert (body["temperature"], body["max_tokens"], body["seed"]) == (0.3, 99, 7)


def test_a_temperature_of_none_is_left_to_the_model() -> None:
    _, server, _ = ask("ready", temperature=None)
    assert "temperature" not in server.requests[0]


def test_a_local_server_gets_a_placeholder_where_no_key_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    _, server, _ = ask("ready")
    assert server.headers[0]["authorization"] == "Bearer none"
    monkeypatch.setenv("OPENAI_API_KEY", "")
    _, server, _ = ask("ready")
    assert server.headers[0]["authorization"] == "Bearer none"
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    _, server, _ = ask("ready")
    assert server.headers[0]["authorization"] == f"Bearer {KEY}"


def test_a_name_without_a_provider_is_asked_for_at_the_api_base() -> None:
    reply, server, _ = ask("ready", name="Local/Model-1B")
    assert (reply.text, server.requests[0]["model"]) == ("ready", "Local/Model-1B")


@pytest.mark.parametrize(
    ("fault", "word"),
    [
        (rate_limited(), "429"),
        (server_error(500), "500"),
        (server_error(503), "503"),
        (error_reply(408, "too slow"), "408"),
        (reset(), "connection lost"),
        (invalid_json(), "unreadable reply"),
        (Fault(body=""), "unreadable reply"),
        (Fault(body="{}"), "unreadable reply"),
        (Fault(body='{"choices": []}'), "unreadable reply"),
        (Fault(body="<html>busy</html>", headers={"Content-Type": "text/html"}), "unreadable reply"),
    ],
)
def test_what_may_pass_is_tried_again(fault: Fault, word: str) -> None:
    reply, server, waits = ask(fault, "fine")
    assert (reply.text, reply.tries, len(server.requests)) == ("fine", 2, 2)
    assert len(waits) == 1 and 0.5 <= waits[0] <= 1.0
    message, server, waits = fail(CoderError, fault, fault, fault, "too late")
    assert len(server.requests) == 3 and server.left == 1 and len(waits) == 2
    assert f"3 x {'status ' if word.isdigit() else ''}{word}" in message
    assert "model.retries (2)" in message


@pytest.mark.parametrize("fault", [hang(), hang_after_headers(), trickle()])
def test_a_request_ends_when_its_time_is_up_whatever_trickles_in(fault: Fault) -> None:
    ask("ready")  # what the first request of all has to import takes longer
    message, server, waits = fail(CoderError, fault, fault, retries=1, timeout_s=0.1)
    assert len(server.requests) <= 2 and len(waits) == 1  # a busy machine may not come as far as to send one
    assert "2 x no reply in 0.1 s" in message and "model.timeout_s (0.1)" in message


def test_a_request_that_hung_is_tried_again() -> None:
    with FaultServer([hang()], reply=lambda body: "fine") as server:
        reply = Client(settings(server.url, retries=50, timeout_s=0.3), sleep=Waits()).send(question())
    assert reply.text == "fine" and reply.tries >= 2  # more on a machine that is so busy that others are late
    assert reply.seconds >= 0.3


async def leaving(seconds: float) -> None:
    raise SystemExit("a library of a provider wants to end the process")


@pytest.mark.parametrize("ends", ["by an exit", "stopped"])
def test_a_loop_that_has_ended_lets_nobody_wait_and_another_takes_its_place(
    ends: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def stopped(seconds: float) -> None:
        asyncio.get_running_loop().stop()
        await asyncio.sleep(0.0)
        await asyncio.sleep(3600.0)

    ask("ready")
    [before] = [each for each in threading.enumerate() if each.name == "mtmc-llm"]
    with FaultServer([server_error(503), "fine"]) as server:
        waits = leaving if ends == "by an exit" else stopped
        with pytest.raises(NoReply, match="the thread that asks model openai/scripted has ended: see the log for why"):
            Client(settings(server.url), sleep=waits).send(question())
    before.join(10.0)
    assert not before.is_alive()
    assert ("wants to end the process" if ends == "by an exit" else "was stopped by somebody") in caplog.text
    assert ask("here again")[0].text == "here again"
    assert [each.is_alive() for each in threading.enumerate() if each.name == "mtmc-llm"] == [True]


def test_who_waits_when_the_loop_ends_is_told_so() -> None:
    ask("ready")
    with FaultServer([hang(), server_error(503)]) as server, ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(Client(settings(server.url, timeout_s=600.0)).send, question())
        while not server.requests:
            time.sleep(0.01)
        with pytest.raises(NoReply, match="has ended"):
            Client(settings(server.url), sleep=leaving).send(question("another"))
        with pytest.raises(NoReply, match="has ended"):
            waiting.result(60.0)


@pytest.mark.parametrize(
    ("header", "wait_s"),
    [
        (7, 7.0),
        ("2.5", 2.5),
        (formatdate(NOW + 30, usegmt=True), 30.0),
        (86400, RETRY_AFTER_CAP_S),
        (formatdate(NOW + 86400, usegmt=True), RETRY_AFTER_CAP_S),
    ],
)
def test_retry_after_is_honoured_up_to_a_limit(header: str | float, wait_s: float) -> None:
    reply, server, waits = ask(rate_limited(header), "fine")
    assert (reply.text, reply.tries, len(server.requests), waits) == ("fine", 2, 2, [wait_s])


@pytest.mark.parametrize("header", [0, -5, "soon", "nan", formatdate(NOW - 30, usegmt=True)])
def test_a_retry_after_that_says_nothing_leaves_the_usual_wait(header: str | float) -> None:
    _, _, waits = ask(rate_limited(header), "fine")
    assert len(waits) == 1 and 0.5 <= waits[0] <= 1.0


def test_waits_double_and_are_the_same_for_the_same_question() -> None:
    faults = [server_error()] * 8
    _, _, waits = ask(*faults, "fine", retries=8)
    longest = [1, 2, 4, 8, 16, 32, 60, 60]
    assert len(waits) == 8
    assert all(most / 2 <= wait <= most for wait, most in zip(waits, longest, strict=True))
    assert ask(*faults, "fine", retries=8)[2] == waits
    assert ask(*faults, "fine", retries=8, request=question(seed=1))[2] != waits


def test_what_was_tried_is_told() -> None:
    message, server, _ = fail(CoderError, rate_limited(), reset(), rate_limited(), retries=2)
    assert len(server.requests) == 3
    assert "openai/scripted gave no reply to 3 requests" in message
    assert "2 x status 429: too many requests" in message and "connection lost" in message


def test_without_retries_there_is_one_request() -> None:
    message, server, waits = fail(CoderError, rate_limited(1), "too late", retries=0)
    assert (len(server.requests), waits) == (1, [])
    assert "gave no reply to 1 request in" in message


def test_no_reply_says_what_it_took() -> None:
    with FaultServer([server_error()] * 3) as server, pytest.raises(NoReply) as caught:
        Client(settings(server.url), sleep=Waits()).send(question())
    assert caught.value.tries == 3 and caught.value.seconds > 0


def test_an_empty_reply_is_a_reply() -> None:
    for empty in ("", completion(None, usage=(6, 0)), completion("", finish="content_filter", usage=(6, 0))):
        reply, server, _ = ask(empty)
        assert (reply.text, reply.tries, len(server.requests)) == ("", 1, 1)
        assert (reply.tokens_in, reply.tokens_out) == (6, 0)


def test_a_refusal_is_passed_on_as_text() -> None:
    assert ask("I cannot help with that.")[0].text == "I cannot help with that."
    reply, server, _ = ask(completion(None, refusal="I will not write this.", usage=(6, 5)))
    assert (reply.text, reply.tokens_out, len(server.requests)) == ("I will not write this.", 5, 1)
    reply, server, _ = ask(error_reply(400, "The prompt was filtered.", "content_policy_violation"))
    assert (reply.text, reply.tries, len(server.requests)) == ("The prompt was filtered.", 1, 1)


def test_a_reply_of_five_megabytes_is_cut_off() -> None:
    reply, server, _ = ask(completion("ab " * 1_700_000, usage=None))
    assert len(reply.text) == TEXT_MOST and reply.text == ("ab " * 1_700_000)[:TEXT_MOST]
    assert reply.truncated and reply.tries == len(server.requests) == 1
    assert 1_000_000 < reply.tokens_out < 4_000_000  # all that was made, not what was kept
    assert not ask(completion("x" * TEXT_MOST, usage=(6, 9)))[0].truncated


def test_a_reply_that_reached_max_tokens_is_truncated() -> None:
    assert ask(completion("def f(", finish="length", usage=(6, 2)))[0].truncated


def test_half_a_surrogate_pair_does_not_get_through() -> None:
    assert ask(completion("a\ud800b", usage=(6, 1)))[0].text == "a?b"


def test_tokens_are_counted_where_none_are_reported() -> None:
    reply, _, _ = ask(completion("one two three four", usage=None))
    assert reply.tokens_out == 4
    assert 6 <= reply.tokens_in <= 12


def test_the_price_is_that_of_the_model_asked_for_and_none_where_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    litellm = load_litellm()
    priced = {"input_cost_per_token": 2e-6, "output_cost_per_token": 5e-6, "litellm_provider": "openai", "mode": "chat"}
    monkeypatch.setitem(litellm.model_cost, "priced-model", priced)
    free = {**priced, "input_cost_per_token": 0.0, "output_cost_per_token": 0.0}
    monkeypatch.setitem(litellm.model_cost, "free-model", free)
    answer = completion("ready", usage=(1000, 100), model="priced-model")
    assert ask(answer, name="openai/priced-model")[0].usd == pytest.approx(2.5e-3)
    assert ask(answer, name="openai/free-model")[0].usd is None
    assert ask(answer, name="openai/scripted")[0].usd is None
    assert ask(answer, name="Local/Model-1B")[0].usd is None


@pytest.mark.parametrize("status", [401, 403])
def test_a_bad_key_ends_it_and_is_nowhere_to_be_seen(
    status: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG)
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    refusal = error_reply(status, "Incorrect API key provided: {authorization} (or sk-1234567890)", "invalid_api_key")
    with FaultServer([server_error(), refusal]) as server, pytest.raises(ModelError) as caught:
        Client(settings(server.url), sleep=Waits()).send(question())
    assert server.headers[1]["authorization"] == f"Bearer {KEY}" and len(server.requests) == 2
    assert "set OPENAI_API_KEY to one that may" in str(caught.value) and "openai/scripted" in str(caught.value)
    assert "Incorrect API key provided: Bearer [redacted] (or [redacted])" in str(caught.value)
    told = "".join(traceback.format_exception(caught.value)) + repr(caught.value.__context__)
    written = capfd.readouterr()
    assert "try 2" in caplog.text
    for text in (told, caplog.text, written.out, written.err):
        assert KEY not in text and "sk-1234567890" not in text


def test_a_key_that_the_server_echoes_on_success_or_failure_is_taken_out(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    echo = dataclasses.replace(completion("token = '{authorization}'", usage=(6, 3)), echo=True)
    assert ask(echo)[0].text == "token = 'Bearer [redacted]'"
    for kind, fault in (
        (CoderError, error_reply(500, "{authorization}")),
        (CoderError, error_reply(400, "{authorization}")),
        (ModelError, error_reply(404, "{authorization}")),
        (CoderError, error_reply(400, f"{OPENAI_TOO_LONG} {{authorization}}")),
    ):
        message, _, _ = fail(kind, fault, fault, retries=1)
        assert KEY not in message and "[redacted]" in message
    assert KEY not in caplog.text


def test_no_key_names_the_variable_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, variable in (
        ("openai/gpt-4o", "OPENAI_API_KEY"),
        ("anthropic/claude-3-5-haiku-latest", "ANTHROPIC_API_KEY"),
    ):
        with pytest.raises(ModelError, match=f"there is no key for model.name={name} .*variable {variable}$"):
            Client(ModelSettings(name)).send(question())
    message, server, _ = fail(ModelError, error_reply(401, "who are you?"), "too late")
    assert "set the environment variable OPENAI_API_KEY" in message and len(server.requests) == 1


def test_an_account_without_credit_ends_it() -> None:
    for fault in (
        error_reply(402, "pay first"),
        error_reply(429, "You exceeded your quota.", "insufficient_quota"),
        error_reply(400, "Your credit balance is too low to access the API."),
    ):
        message, server, _ = fail(ModelError, fault, "too late")
        assert "no credit left" in message and len(server.requests) == 1


def test_an_unknown_model_ends_it() -> None:
    message, server, waits = fail(ModelError, error_reply(404, "The model `scripted` does not exist"), "too late")
    assert (len(server.requests), waits) == (1, [])
    assert "there is no model.name=openai/scripted at model.api_base=http" in message
    assert "The model `scripted` does not exist" in message and "set model.name" in message


@pytest.mark.parametrize(
    ("name", "api_base", "words"),
    [
        ("", "", "set model.name"),
        ("no-such-provider/model", "", "the provider of model.name=no-such-provider/model is not known"),
        ("openai/scripted", "127.0.0.1:80/v1", "model.api_base=127.0.0.1:80/v1 is no address"),
        ("openai/scripted", "http://[::1/v1", "model.api_base=http://[::1/v1 is no address"),
    ],
)
def test_settings_that_name_no_model_end_it(name: str, api_base: str, words: str) -> None:
    with pytest.raises(ModelError) as caught:
        Client(ModelSettings(name, api_base=api_base)).send(question())
    assert words in str(caught.value)


def test_a_context_that_is_too_long_names_both_lengths() -> None:
    message, server, waits = fail(CoderError, error_reply(400, OPENAI_TOO_LONG, "context_length_exceeded"), "too late")
    assert (len(server.requests), waits) == (1, [])
    assert "has a context of 8192 tokens, the request needs 10000 tokens" in message
    assert "lower model.max_tokens (8192)" in message


def test_a_length_that_the_server_does_not_name_is_counted() -> None:
    fault = error_reply(400, "the request exceeds the available context size. try increasing it")
    message, _, _ = fail(CoderError, fault, max_tokens=5000)
    assert "a context of unknown length" in message
    assert any(f"needs {5000 + words} tokens" in message for words in range(6, 13))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (OPENAI_TOO_LONG, (8192, 10000)),
        ("prompt is too long: 208310 tokens > 200000 maximum", (200000, 208310)),
        ("request (5210 tokens) exceeds the available context size (4096 tokens), try increasing it", (4096, 5210)),
        ("Requested tokens (5000) exceed context window of 2048", (2048, 5000)),
        (
            "The input token count (1,200,000) exceeds the maximum number of tokens allowed (1,048,576).",
            (1048576, 1200000),
        ),
        ("the context window is exceeded", (None, None)),
        ("maximum context length is 8192 tokens", (8192, None)),
    ],
)
def test_lengths_are_read_from_what_providers_say(text: str, expected: tuple[int | None, int | None]) -> None:
    assert lengths(text) == expected


def test_any_other_refusal_is_not_tried_again() -> None:
    message, server, waits = fail(CoderError, error_reply(400, "Unsupported value: 'temperature'"), "too late")
    assert (len(server.requests), waits) == (1, [])
    assert "did not take the request (status 400: Unsupported value: 'temperature')" in message


def test_no_server_at_the_first_call_ends_it() -> None:
    url, waits = unserved_url(), Waits()
    with pytest.raises(ModelError) as caught:
        Client(settings(url), sleep=waits).send(question())
    assert f"no server answers at model.api_base={url}" in str(caught.value)
    assert "3 tries" in str(caught.value) and "set model.api_base" in str(caught.value)
    assert len(waits) == 2


def test_a_server_that_answered_once_may_come_back() -> None:
    with FaultServer(["ready"]) as server:
        client = Client(settings(server.url), sleep=Waits())
        client.send(question())
    with pytest.raises(NoReply, match="3 x no connection"):
        client.send(question())


def test_a_server_that_only_ever_failed_is_not_taken_for_none() -> None:
    fail(CoderError, reset(), reset(), reset())


def test_many_threads_ask_at_once() -> None:
    together = threading.Barrier(8, timeout=100)

    def reply(body: dict[str, Any]) -> str:
        together.wait()  # broken, and the test with it, unless all eight requests are there
        return f"echo {body['messages'][-1]['content']} {body['seed']}"

    with FaultServer(reply=reply) as server, ThreadPoolExecutor(8) as threads:
        client = Client(settings(server.url, retries=0))
        texts = list(threads.map(lambda i: client.send(question(f"number {i}", seed=i)).text, range(8)))
    assert texts == [f"echo number {i} {i}" for i in range(8)]
    assert len(server.requests) == 8


def test_closing_ends_the_requests_under_way() -> None:
    arrived = threading.Event()

    def reply(_: dict[str, Any]) -> Fault:
        arrived.set()
        return hang()

    with FaultServer(reply=reply) as server, ThreadPoolExecutor(1) as threads:
        client = Client(settings(server.url))
        sending = threads.submit(client.send, question())
        assert arrived.wait(100)
        client.close()
        client.close()
        with pytest.raises(NoReply, match="closed before a reply came"):
            sending.result(timeout=100)
        with pytest.raises(NoReply, match="is closed"):
            client.send(question())
    assert len(server.requests) == 1


def test_clients_one_after_the_other_do_not_disturb_each_other() -> None:
    with FaultServer(reply=lambda body: "ready") as server:
        for _ in range(3):
            client = Client(settings(server.url))
            assert client.send(question()).text == "ready"
            client.close()


def test_check_model_describes_the_model_in_a_line() -> None:
    with FaultServer(["ready\n"], reply=lambda body: error_reply(404, "no such model")) as server:
        line = check_model(settings(server.url))
        where = f"openai/scripted at {server.url}"
        assert line.startswith(f"{where} replied 'ready', 5 + 1 tokens, no known price, ") and line.endswith(" s")
        assert server.requests[0]["messages"] == [{"role": "user", "content": "Reply with the word ready"}]
        assert len(server.requests) == 1
        with pytest.raises(ModelError, match="no such model"):
            check_model(settings(server.url))


def test_check_model_names_the_price() -> None:
    with FaultServer([completion("", usage=(1_000_000, 0))]) as server:
        line = check_model(settings(server.url, name="openai/gpt-4o"))
    assert "replied nothing, 1000000 + 0 tokens, " in line and " USD, " in line


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Authorization: Bearer abcdef.123-x, next", "Authorization: Bearer [redacted], next"),
        ("key sk-proj-abc_DEF-12345 and sk-ab***89xyz.", "key [redacted] and [redacted]"),
        ("https://host/v1?key=AbC123&alt=json", "https://host/v1?key=[redacted]&alt=json"),
        ("http://user:pass@host/v1", "http://user:[redacted]@host/v1"),
        ("the task-force of 12 tokens, a bearer of news", "the task-force of 12 tokens, a bearer of news"),
    ],
)
def test_what_looks_like_a_key_is_redacted(text: str, expected: str) -> None:
    assert redact(text) == expected


def test_values_of_secret_variables_are_redacted(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ANY_API_KEY", "HF_TOKEN", "CLIENT_SECRET", "AWS_SECRET_ACCESS_KEY", "MYKEY", "DB_PASSWORD"):
        monkeypatch.setenv(name, f"value-of-{name.lower()}")
        assert redact(f"it is value-of-{name.lower()}!") == "it is [redacted]!"
    monkeypatch.setenv("SHORT_KEY", "none")
    monkeypatch.setenv("TOKENIZERS_PARALLELISM", "something")
    assert redact("none of something") == "none of something"
    monkeypatch.setenv("LONGER_KEY", "value-of-mykey-and-more")
    assert redact("value-of-mykey-and-more") == "[redacted]"


def test_litellm_is_loaded_late_without_the_network_and_the_process_ends_quietly() -> None:
    program = """
import logging, os, sys
import mtmc.agents.llm
assert not {"litellm", "openai", "httpx"} & set(sys.modules), "loaded too early"
from mtmc.chat import ChatRequest, Message, ModelSettings
from tests.agents.fault_server import FaultServer, hang
logging.basicConfig(level=logging.DEBUG)
with FaultServer(["ready"], reply=lambda body: hang()) as server:
    client = mtmc.agents.llm.Client(ModelSettings("openai/scripted", api_base=server.url, retries=0, timeout_s=30))
    print(client.send(ChatRequest((Message("user", "hello"),), "edit")).text)
assert os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] == "True"
import litellm
assert not (litellm.callbacks or litellm.success_callback or litellm.failure_callback)
assert litellm.suppress_debug_info
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300)
    assert (ended.returncode, ended.stdout) == (0, "ready\n"), ended.stderr
    ours = ("DEBUG:asyncio:", "DEBUG:mtmc.")
    assert [line for line in ended.stderr.splitlines() if not line.startswith(ours)] == []


def test_a_used_up_script_is_an_error_of_the_test() -> None:
    assert "no further reply" in fail(CoderError)[0]
