"""Secrets of a model, of any length and in any form, are in no file of a run: searched for byte by byte."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote

import pytest

from mtmc.agents.llm import Client
from mtmc.chat import ChatRequest, Message, ModelSettings
from mtmc.cli import main
from mtmc.conf import SearchConfig
from mtmc.errors import MtmcError
from mtmc.fakes import FAKE_TASK, FakeCoder, FakeEvaluator, FakePolicy
from mtmc.redaction import REDACTED, redact, secrets_of
from mtmc.search import Budget, SearchResult, resume, search
from mtmc.store import Store
from tests.agents.asking import AskingFake
from tests.agents.fault_server import FaultServer, completion, error_reply
from tests.breadth import share

KEYS = ("q7Zt", "k3y-9", "hunter2", "a b!c", "pass.w0rd", "sk-proj-0123456789abcdefghij", "Zx9" * 40)
"""Four characters and more."""


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "HTTP_PROXY", "http_proxy"):
        monkeypatch.delenv(name, raising=False)
    yield


def echoes(key: str) -> list[str]:
    """Texts in which a server gives a key back: in code, in prose, in JSON, in an address."""
    return [
        f"key = '{key}'  # {key}",
        f"I was given {key}, {key}.",
        json.dumps({"authorization": f"Bearer {key}"}),
        f"GET /v1?api_key={quote(key, safe='')}",
        f"Basic {base64.b64encode(f'user:{key}'.encode()).decode()}",
    ]


def files(folder: Path) -> dict[str, bytes]:
    found = {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert "run.sqlite" in found and "config.yaml" in found
    return found


@pytest.mark.parametrize("key", share(KEYS, 3))
def test_no_file_of_a_run_has_a_key_or_a_password_however_it_is_echoed(
    key: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", key)
    user = f"me:{quote(key, safe='')}@"
    texts = iter([*echoes(key), "edit", *echoes(key)])

    def reply(body: dict[str, object]) -> object:
        text = next(texts, "edit")
        failing = "I was given" in text or "hello" in str(body["messages"])
        return error_reply(400, f"{text} {{authorization}}") if failing else completion(text, usage=(6, 4))

    with FaultServer(reply=reply) as server:  # type: ignore[arg-type]
        address = server.url.replace("http://", f"http://{user}") + f"?token={quote(key, safe='')}"
        settings = ModelSettings("openai/scripted", server.url, retries=0, patience_s=0.0, max_tokens=512)
        parts = {"coder": AskingFake(), "policy": FakePolicy(), "evaluator": FakeEvaluator()}
        search(FAKE_TASK, **parts, model=settings, budget=6, out=tmp_path / "run", dumps=False)
        resume(tmp_path / "run", **parts, model=settings, budget=Budget(8))
        dead = replace(settings, api_base=address, replay=str(tmp_path / "run"))
        search(FAKE_TASK, **parts, model=dead, budget=6, out=tmp_path / "replayed", dumps=False)
        asked = ChatRequest((Message("user", "hello"),), "edit")
        texts = iter([f"Incorrect key {key}, of {address}"])
        with pytest.raises(MtmcError, match="Incorrect key") as caught:
            Client(replace(settings, api_base=address)).send(asked)
    forms = {key, quote(key, safe=""), base64.b64encode(f"me:{key}".encode()).decode()}
    for form in forms:
        for folder in ("run", "replayed"):
            found = [name for name, content in files(tmp_path / folder).items() if form.encode() in content]
            assert not found, f"{form} in {found}"
        assert form not in str(caught.value) + repr(caught.value.__context__)
    store = Store.read(tmp_path / "run")
    assert sum(REDACTED in (call.reply.text if call.reply else call.error) for call in store.model_calls()) >= 5
    store.close()


def test_a_run_whose_address_had_secrets_is_resumed_with_the_address_given_again(tmp_path: Path) -> None:
    with FaultServer(reply=lambda body: "edit") as server:
        address = server.url.replace("http://", "http://me:k3y-9@")
        parts = {"coder": AskingFake(), "policy": FakePolicy(), "evaluator": FakeEvaluator()}
        settings = ModelSettings("openai/scripted", address, retries=0, patience_s=0.0, max_tokens=512)
        search(FAKE_TASK, **parts, model=settings, budget=3, out=tmp_path / "run", dumps=False)
        recorded = Store.read(tmp_path / "run").settings()["model"]["api_base"]
        assert recorded == server.url.replace("http://", f"http://me:{REDACTED}@")
        with pytest.raises(
            MtmcError, match=r"was recorded without its secrets: give it again, mtmc resume RUN model\."
        ):
            resume(tmp_path / "run", **parts, budget=5)
        sent = len(server.requests)
        assert resume(tmp_path / "run", **parts, budget=5, model=settings, dumps=False).evaluations == 5
        assert server.headers[sent]["authorization"] == f"Basic {base64.b64encode(b'me:k3y-9').decode()}"


def test_code_is_left_as_it_is_where_a_key_is_a_common_word_or_none(monkeypatch: pytest.MonkeyPatch) -> None:
    code = 'x = A[i//2:j]@B\ny = tl.load(x, other=0.0)  # basic blocks, sk-start_k\nlocal = "none"\nz = sk-blocks_per_row\n'
    for key in ("none", "x", "dummy", "local", "EMPTY", "tl", "i"):
        monkeypatch.setenv("OPENAI_API_KEY", key)
        assert secrets_of("openai/any", "http://127.0.0.1/v1").redact_reply(code) == code, key
    monkeypatch.setenv("OPENAI_API_KEY", "load")
    assert "tl.[redacted](x" in secrets_of("openai/any", "").redact_reply(code), "four characters are a secret"
    monkeypatch.setenv("GITHUB_TOKEN", "start_k")
    assert "sk-start_k" in secrets_of("openai/any", "").redact_reply(code), "this one no model was told"


def test_a_key_of_one_character_is_taken_out_where_it_is_quoted_or_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "q")
    secrets = secrets_of("openai/any", "")
    assert secrets.redact_reply("q = tl.load(q_ptr)") == "q = tl.load(q_ptr)"
    assert secrets.redact_reply("key = 'q', Bearer q, key=q") == "key = '[redacted]', Bearer [redacted], key=[redacted]"


def test_a_sweep_keeps_no_secret_of_an_address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = ["task=softmax", "evaluator=lab", "budget.evaluations=1", "seed=0,1", "dumps=false"]
    address = "model.api_base='http://me:k3y-9@127.0.0.1:9/v1'"
    monkeypatch.setattr("mtmc.cli.sweep.run", _written_run)
    main(["search", "-m", *settings, address, f"out={tmp_path / 'sweep'}"])
    found = {path.name: path.read_bytes() for path in (tmp_path / "sweep").rglob("*") if path.is_file()}
    assert "multirun.yaml" in found
    assert not [name for name, content in found.items() if b"k3y-9" in content]


def _written_run(config: SearchConfig, **_: object) -> SearchResult:
    """A search of nothing, with the model's settings of the sweep."""
    return search(FAKE_TASK, coder=FakeCoder(), policy=FakePolicy(), evaluator=FakeEvaluator(), model=config.model,
                  budget=1, out=config.out, dumps=False)  # fmt: skip


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("https://me:s3cret@host/v1", "https://me:[redacted]@host/v1"),
        ("https://s3cret@host/v1", "https://[redacted]@host/v1"),
        ("https://host/v1?api-key=s3cret&x=1", "https://host/v1?api-key=[redacted]&x=1"),
        ("https://host/v1?access_token=s3cret", "https://host/v1?access_token=[redacted]"),
        ("https://host/v1", "https://host/v1"),
    ],
)
def test_secrets_of_an_address_are_found_by_pattern_alone(address: str, expected: str) -> None:
    assert redact(address) == expected
