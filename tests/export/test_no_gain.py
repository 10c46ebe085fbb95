"""Why a search found nothing that is faster."""

from __future__ import annotations

from mtmc.export.no_gain import why_no_gain
from mtmc.outcome import Diagnosis, Outcome, Status
from mtmc.tree import NO_PARENT, ROOT_ID, KernelNode, Tree


def tree(*outcomes: Outcome) -> Tree:
    """A root of 1 ms, and versions with these outcomes."""
    grown = Tree("task")
    grown.add(KernelNode(ROOT_ID, NO_PARENT, None, "root", None, Outcome("ok", 1.0)))
    for number, outcome in enumerate(outcomes, 1):
        grown.add(KernelNode(number, ROOT_ID, None, f"version {number}", None, outcome))
    return grown


def failed(status: Status, message: str = "no such name") -> Outcome:
    return Outcome(status, diagnosis=Diagnosis("build", "NameError", message))


def test_failures_are_counted_by_status_and_the_first_is_told() -> None:
    found = why_no_gain(
        tree(Outcome("ok", 2.0), failed("build_error"), failed("crash", "later"), failed("build_error"))
    )
    assert found == (
        "no version is faster: 1 of 4 are right and none beats the reference; 3 failed (2 build error, 1 crash), "
        "the first one, version 2, in build: NameError: no such name"
    )


def test_versions_that_are_right_and_slower_are_counted() -> None:
    found = why_no_gain(tree(Outcome("ok", 2.0), Outcome("ok", 1.0)))
    assert found == "no version is faster: 2 of 2 are right and none beats the reference"


def test_nothing_was_made_or_something_is_faster() -> None:
    assert why_no_gain(tree()) == "no version is faster: none was made"
    assert why_no_gain(tree(Outcome("ok", 0.5), failed("crash"))) == ""
