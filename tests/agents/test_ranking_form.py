"""A ranking as JSON that a provider is held to: the same meaning as its text, in the record and in the search."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from mtmc.agents.policies.ranking import Proposal, Ranking, RankingForm, parse_ranking
from mtmc.chat import ModelSettings
from mtmc.fakes import FAKE_TASK, FakeCoder, FakeEvaluator
from mtmc.search import Budget, search
from mtmc.store import Store
from tests.agents import fault_server
from tests.agents.fault_server import Fault, FaultServer

FORM = RankingForm()
ANSWER = {
    "ranking": ["3", "P1", "1"],
    "proposals": [{"name": "P1", "first_line": 1, "last_line": 2, "text": "keep the row\nin registers"}],
}
TEXT = "RANKING: 3, P1, 1\nPROPOSAL P1 lines 1-2: keep the row in registers"


def test_an_answer_means_what_its_text_means() -> None:
    assert FORM.written(json.dumps(ANSWER)) == TEXT
    found = parse_ranking(FORM.written(json.dumps(ANSWER)), 4, 9, 2)
    assert found == parse_ranking(TEXT, 4, 9, 2) == Ranking((2, 4, 0), (Proposal("keep the row in registers", 1, 2),))
    assert set(FORM.schema["properties"]) == set(ANSWER) == set(FORM.schema["required"])


@pytest.mark.parametrize(
    "text", ["", TEXT, "[]", "{}", "3", '{"ranking": 3, "proposals": []}', '{"ranking": ["1"', "null"]
)
def test_what_is_no_such_answer_is_read_as_text(text: str) -> None:
    assert FORM.written(text) == text


@pytest.mark.parametrize("how", ["held", "refuses", "unknown"])
def test_a_policy_asks_for_json_where_the_model_takes_it(how: str, tmp_path: Path) -> None:
    def reply(body: dict[str, Any]) -> str | Fault:
        if "response_format" not in body:
            return TEXT.partition("\n")[0]
        if how == "refuses":
            return fault_server.error_reply(400, "response_format is not supported by this server")
        return json.dumps({**ANSWER, "ranking": ["3", "1"], "proposals": []})

    name = "openai/scripted" if how == "unknown" else "openai/gpt-4o"
    with FaultServer(reply=reply) as server:
        result = search(
            FAKE_TASK, coder=FakeCoder(), policy="llm", evaluator=FakeEvaluator(failing=0.0), strategy="greedy",
            model=ModelSettings(name, server.url, usd_per_million_in=1.0, usd_per_million_out=1.0), progress=False,
            budget=Budget(evaluations=2, usd=1.0), dumps=False, out=tmp_path / "run",
        )  # fmt: skip
        held = ["response_format" in body for body in server.requests]
    assert held[:2] == {"held": [True, True], "refuses": [True, False], "unknown": [False, False]}[how]
    assert not any(held[1:]) or how == "held"
    store = Store.read(result.run_dir)
    calls, priors = store.model_calls(), store.legal(0)[1]
    store.close()
    assert calls[0].reply is not None and calls[0].reply.text.startswith("RANKING: 3")
    assert priors[2] == max(priors), "the third action is the first of the ranking"
