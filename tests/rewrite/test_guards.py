"""What a handed-out version holds for: each call gives what the reference gives, or is refused with the reason."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.interpreter import interpreted
from tests.rewrite.guarded_references import CASES, RANDOM

DRAWN = 30
"""Calls by chance of each reference of `RANDOM`."""

Answers = dict[str, dict[str, str]]


@pytest.fixture(scope="module")
def answers() -> Answers:
    cases: list[dict[str, object]] = []
    for name, case in CASES.items():
        calls = [
            {"name": call, "do": do, "inputs": inputs} | ({"under": rest[1]} if len(rest) > 1 else {})
            for call, (do, inputs, *rest) in case["calls"].items()
        ]
        cases.append({"name": name, "source": case["source"], "calls": calls})
    cases += [{"name": f"random_{name}", "source": source, "calls": DRAWN} for name, source in RANDOM.items()]
    program = Path(__file__).with_name("guarding.py")
    found: Answers = json.loads(interpreted(program, given=json.dumps(cases)))
    return found


@pytest.mark.parametrize("name", list(CASES))
def test_a_call_is_right_or_refused_with_the_reason(answers: Answers, name: str) -> None:
    wanted = {call: rest[2] for call, rest in CASES[name]["calls"].items()}
    assert answers[name].keys() == wanted.keys(), answers[name]
    assert {call: found for call, found in answers[name].items() if not re.match(wanted[call], found)} == {}


@pytest.mark.parametrize("name", list(RANDOM))
def test_no_call_drawn_by_chance_is_wrong(answers: Answers, name: str) -> None:
    found = answers[f"random_{name}"]
    assert {call: answer for call, answer in found.items() if answer.startswith("WRONG")} == {}
    assert any(answer == "right" for answer in found.values())
    assert any(answer.startswith("refused") for answer in found.values())
