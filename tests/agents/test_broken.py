"""The corpus of broken kernels through the lab: rules mend what they must, and leave alone what they cannot know."""

from __future__ import annotations

import pytest

from mtmc.agents.coders.repair.rules import RULES
from mtmc.evaluate.lab import LabSettings
from tests.agents.broken import RIGHT, Broken, corpus
from tests.agents.broken.mending import History, histories
from tests.agents.test_repair import FAILURES
from tests.breadth import WIDE, share

CORPUS = corpus()
ONE_IN = 134
"""A run of the tests takes each 134th kernel of the corpus; a wide run takes all."""
ROWS = {row.name: row for row in share(CORPUS, ONE_IN)}


@pytest.fixture(scope="module")
def found() -> dict[str, History]:
    with LabSettings(workers=2).open() as evaluator:
        return {history.row.name: history for history in histories(list(ROWS.values()), evaluator)}


def test_the_corpus_is_large_and_each_of_its_kernels_differs() -> None:
    sources = {row.source for row in CORPUS}
    assert len(CORPUS) >= 120 and len({row.name for row in CORPUS}) == len(CORPUS) == len(sources)
    assert {row.right for row in CORPUS} == {path.stem for path in RIGHT.glob("*.py")}
    assert sum(not row.left_alone for row in CORPUS) >= 90 and sum(bool(row.left_alone) for row in CORPUS) >= 30


def test_a_change_of_what_is_not_there_is_refused() -> None:
    with pytest.raises(ValueError, match=r"'tl\.nothing' is not in add"):
        _ = Broken("wrong", "add", (("tl.nothing", ""),)).source


@pytest.mark.parametrize("name", ROWS)
def test_rules_mend_what_they_must_and_nothing_else(name: str, found: dict[str, History]) -> None:
    row, history = ROWS[name], found[name]
    wanted = "left alone" if row.left_alone else "not broken" if row.is_taken else "mended"
    assert history.verdict == wanted, (history.repairs, history.outcomes[-1])


def test_each_rule_mends_a_kernel(found: dict[str, History]) -> None:
    used = {fixed.rule for history in found.values() for fixed in history.repairs}
    assert used and used <= set(RULES)
    if WIDE:
        shown = {rule for failure in FAILURES.values() for rule in failure.rules}
        of_triton = {rule for rule in RULES if not rule.startswith("cuda_")}  # `test_cuda_repair.py` has the others
        assert of_triton <= used | shown
