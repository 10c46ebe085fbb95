"""A share of the table of faults (`tests.agents.model_faults`), and that it can fail."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from tests.agents.model_faults import KINDS, LIMITS, main, page

SHARE = ("status 503", "status 400", "status 401", "native tool calls", "streams half a reply", "negative usage")


def test_faults_do_to_a_search_what_is_expected_of_them_and_no_limit_is_exceeded() -> None:
    wide = bool(os.environ.get("MTMC_WIDE"))
    text, holds = page([kind for kind in KINDS if wide or kind.name in SHARE], tuple(LIMITS) if wide else ("tokens",))
    assert holds, text
    assert text.count("| goes on |") >= 4 and "status 503" in text and " tokens " in text


def test_the_table_says_what_is_not_as_expected() -> None:
    [kind] = [each for each in KINDS if each.name == "status 401"]
    text, holds = page([replace(kind, once="goes on")], ())
    assert not holds and "error (expected: goes on)" in text


def test_the_command_writes_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.agents.model_faults.page", lambda kinds, limits: (f"{len(kinds)} {len(limits)}\n", True))
    assert main(["--out", str(tmp_path / "faults")]) == 0
    assert "Everything is as expected: True." in (tmp_path / "faults.md").read_text()
