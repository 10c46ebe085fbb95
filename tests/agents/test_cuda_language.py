"""The second language of the coders that ask a model: what they are told, and that the example is one."""

from __future__ import annotations

import re

import pytest

from mtmc.agents.coders.agent.coder import AgentCoder
from mtmc.agents.coders.agent.prompt import first_messages
from mtmc.agents.coders.cuda_page import EXAMPLE, PAGE
from mtmc.agents.coders.editing.prompt import edit_messages
from mtmc.agents.coders.editing.reply import parse_reply
from mtmc.agents.coders.model import ModelCoder
from mtmc.cuda import RawKernel
from mtmc.errors import ConfigError
from mtmc.evaluate.audit.audit import audit
from mtmc.evaluate.audit.cuda_text import HEADERS
from mtmc.evaluate.lab import LabSettings
from mtmc.protocols import EvaluationRequest
from mtmc.task import load_task
from tests.agents.versions import edit_request

try:
    RawKernel.raw_nvrtc()
    NVRTC = True
except OSError:
    NVRTC = False


def test_the_example_passes_the_audit_and_is_what_a_reply_gives() -> None:
    assert audit(EXAMPLE) is None
    assert parse_reply(f"Here it is.\n```python\n{EXAMPLE}```\n", "import torch\n").source.strip() == EXAMPLE.strip()


def test_the_page_names_headers_that_the_audit_allows() -> None:
    named = set(re.findall(r"[\w/]+\.h\b", PAGE))
    assert len(named) >= 8
    assert named <= HEADERS


@pytest.mark.skipif(not NVRTC, reason="needs NVRTC: pip install 'mtmc[cuda]'")
def test_the_example_compiles() -> None:
    with LabSettings().open() as lab:
        [outcome] = lab.evaluate([EvaluationRequest(load_task("softmax"), EXAMPLE)])
    assert (outcome.status, outcome.metrics["spills"]) == ("not_run", 0)


def test_a_model_is_told_of_the_language_where_it_is_asked_for() -> None:
    system, user = (message.content for message in edit_messages(edit_request(), language="cuda"))
    assert system.startswith("You write GPU kernels in CUDA C++.")
    assert "RawKernel of mtmc.cuda" in system
    assert "only torch and triton" not in system
    assert PAGE.strip() in user
    assert EXAMPLE.strip() in user
    agent = first_messages(edit_request(), 4, 1000, "cuda")[1].content
    assert PAGE.strip() in agent
    for plain in (edit_messages(edit_request()), first_messages(edit_request(), 4, 1000)):
        assert "RawKernel" not in "".join(message.content for message in plain)


@pytest.mark.parametrize("coder", [ModelCoder, AgentCoder])
def test_a_language_that_there_is_not(coder: type[ModelCoder] | type[AgentCoder]) -> None:
    with pytest.raises(ConfigError, match=r"coder\.language cannot be 'hip': use triton or cuda"):
        coder(language="hip")
