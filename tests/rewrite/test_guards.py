"""What a handed-out version holds for: each call gives what the reference gives, or is refused with the reason."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.rewrite.guarded_references import CASES, RANDOM

ROOT = Path(__file__).parents[2]
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
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("guarding.py"))],
        input=json.dumps(cases),
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "ignore"},
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found: Answers = json.loads(done.stdout)
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
