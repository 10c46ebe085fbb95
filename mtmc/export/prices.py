"""Prices: what a run's language models have taken, version by version and improvement by improvement."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from mtmc.booking import Booking
from mtmc.chat import POLICY, ModelCall
from mtmc.tree import Tree


@dataclass(frozen=True)
class Price:
    """What some calls took. usd: of those that have a price. unpriced: how many replies have none."""

    calls: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    usd: float = 0.0
    unpriced: int = 0

    def __add__(self, other: Price) -> Price:
        return Price(
            self.calls + other.calls,
            self.tokens_in + other.tokens_in,
            self.tokens_out + other.tokens_out,
            self.usd + other.usd,
            self.unpriced + other.unpriced,
        )

    @property
    def money(self) -> str:
        """ "0.0123 USD"; says so where there is no price."""
        if self.unpriced:
            known = f"{self.usd:.4f} USD and " if self.usd else ""
            return f"{known}{self.unpriced} replies without a known price"
        return f"{self.usd:.4f} USD"


def price(calls: Iterable[ModelCall]) -> Price:
    """What calls took together. One that was never asked (the budget was spent) counts nothing."""
    total = Price()
    for call in calls:
        reply = call.reply
        if reply is not None:
            total += Price(1, reply.tokens_in, reply.tokens_out, reply.usd or 0.0, int(reply.usd is None))
        elif not call.spent:
            total += Price(1)
    return total


def by_node(tree: Tree, calls: Sequence[ModelCall]) -> dict[int | None, Price]:
    """Price of each version that cost something: of making it, and of a policy's look at it. None: trials without one."""
    made = {node.trial_id: node.id for node in tree}
    found: dict[int | None, list[ModelCall]] = {}
    for call in calls:
        where = call.node_id if call.purpose == POLICY else made.get(call.trial_id)
        found.setdefault(where, []).append(call)
    ordered = sorted(found, key=lambda node_id: (node_id is None, node_id or 0))
    return {node_id: price(found[node_id]) for node_id in ordered}


def improvements(tree: Tree) -> list[int]:
    """Versions that were the best so far when they were made, the root left out, in that order."""
    best, found = tree.root.outcome.runtime_ms, list[int]()
    for node in tree:
        runtime = node.outcome.runtime_ms
        if node.outcome.ok and runtime is not None and best is not None and runtime < best:
            best = runtime
            found.append(node.id)
    return found


def verdicts(calls: Iterable[ModelCall]) -> Mapping[str, int]:
    """How often each verdict came, the commonest first; failed and unasked questions have their own."""
    counts: Counter[str] = Counter()
    for call in calls:
        if call.reply is None:
            counts["not asked: the budget was spent" if call.spent else "failed"] += 1
        else:
            counts[call.verdict or "not judged"] += 1
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


def unanswered(bookings: Iterable[Booking]) -> str:
    """What is booked of requests that brought no reply with its usage, in words; "" where there are none."""
    lost = [each for each in bookings if each.state in ("begun", "failed", "unknown")]
    if not lost:
        return ""
    tokens, usd = sum(each.tokens for each in lost), sum(each.usd for each in lost)
    most = f"at most {tokens:,} tokens and {usd:.4f} USD are booked for these"
    return f"{len(lost)} requests without a reply or without its usage, {most}"


def price_lines(tree: Tree, calls: Sequence[ModelCall], bookings: Sequence[Booking] = ()) -> Iterator[str]:
    """The run's prices as text, nothing where it has asked no model. bookings: of the run's requests."""
    if not calls:
        return
    total, steps = price(calls), improvements(tree)
    names = ", ".join(sorted({call.model for call in calls}))
    yield f"{names}: {total.calls} calls, {total.tokens_in:,} tokens in, {total.tokens_out:,} out, {total.money}"
    if lost := unanswered(bookings):
        yield lost
    yield "replies: " + ", ".join(f"{count} {verdict}" for verdict, count in verdicts(calls).items())
    tokens = total.tokens_in + total.tokens_out
    if steps:
        each = f"{tokens / len(steps):,.0f} tokens, {total.usd / len(steps):.4f} USD"
        told = each if not total.unpriced else f"{tokens / len(steps):,.0f} tokens"
        many = "s" * (len(steps) > 1)
        yield f"{len(steps)} improvement{many} (version{many} {', '.join(map(str, steps))}): {told} for each"
    else:
        yield "no improvement"
    yield ""
    yield "version   calls  tokens in  tokens out  price"
    for node_id, found in by_node(tree, calls).items():
        name = "none" if node_id is None else f"{node_id}{'*' if node_id in steps else ''}"
        yield f"{name:<8} {found.calls:>6} {found.tokens_in:>10,} {found.tokens_out:>11,}  {found.money}"
    yield "* an improvement; none: trials that made no version"
