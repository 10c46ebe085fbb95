"""What a run's models have taken, by hand: two versions, one of them an improvement, one trial without a version."""

from __future__ import annotations

from mtmc.action import Action, Region
from mtmc.booking import Booking
from mtmc.chat import ChatReply, ChatRequest, ModelCall
from mtmc.export.prices import Price, by_node, improvements, price, price_lines, verdicts
from mtmc.outcome import Outcome
from mtmc.tree import NO_PARENT, KernelNode, Tree


def call(trial: int, node: int, purpose: str = "edit", usd: float | None = 0.01, verdict: str = "usable") -> ModelCall:
    reply = ChatReply("", 100, 20, usd, 1.0)
    return ModelCall(0, trial, node, f"{trial}{purpose}{usd}", "a/b", ChatRequest((), purpose), reply, verdict=verdict)


def tree() -> Tree:
    found = Tree("t")
    act = Action("fuse", Region("x", 1, 1), (), "fuse x")
    for node_id, (parent, runtime, trial) in enumerate([(NO_PARENT, 1.0, -1), (0, 0.5, 0), (0, 0.7, 2)]):
        outcome = Outcome("ok", runtime, runtime_kind="estimated")
        found.add(KernelNode(node_id, parent, act if node_id else None, f"# {node_id}", None, outcome, trial, 0))
    return found


CALLS = (
    call(0, 0),
    call(0, 0, "repair", verdict="unusable: no code"),
    call(1, 0, verdict="unusable: no code"),
    call(2, 0),
    call(0, 1, "policy"),
    ModelCall(0, 3, 0, "f", "a/b", ChatRequest((), "edit"), None, "500"),
    ModelCall(0, 4, 0, "s", "a/b", ChatRequest((), "edit"), None, "spent", spent=True),
)


def test_calls_belong_to_the_version_they_made_or_looked_at() -> None:
    found = by_node(tree(), CALLS)
    assert found[1] == Price(3, 300, 60, 0.03)  # edit, repair, and the policy's look at it
    assert found[2] == Price(1, 100, 20, 0.01)
    assert found[None] == Price(2, 100, 20, 0.01)  # trial 1 made no version, trial 3 got no answer
    assert price(CALLS) == sum(found.values(), Price())


def test_improvements_and_verdicts() -> None:
    assert improvements(tree()) == [1]
    told = {"usable": 3, "unusable: no code": 2, "failed": 1, "not asked: the budget was spent": 1}
    assert dict(verdicts(CALLS)) == told


def test_text_says_where_there_is_no_price() -> None:
    assert list(price_lines(tree(), ())) == []
    lines = list(price_lines(tree(), CALLS))
    assert lines[0] == "a/b: 6 calls, 500 tokens in, 100 out, 0.0500 USD"
    assert lines[2] == "1 improvement (version 1): 600 tokens, 0.0500 USD for each"
    unpriced = list(price_lines(tree(), [call(0, 0, usd=None)]))
    assert unpriced[0].endswith("1 replies without a known price")
    assert "USD" not in unpriced[2]


def test_requests_without_a_reply_are_told_with_what_is_booked_for_them() -> None:
    bookings = [Booking("a", "answered", 1, 120, 0.01), Booking("f", "failed"), Booking("f", "unknown", 1, 9000, 0.02)]
    lines = list(price_lines(tree(), CALLS, [*bookings, Booking("s", "refused", 0, 5000, 1.0)]))
    told = "2 requests without a reply or without its usage, at most 9,000 tokens and 0.0200 USD are booked for these"
    assert lines[1] == told
    assert list(price_lines(tree(), CALLS, bookings[:1])) == list(price_lines(tree(), CALLS))
