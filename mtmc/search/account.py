"""Account: the evaluations that a batch may make, and those that it has made."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable


class Account:
    """Of one batch. From any thread.

    allowance: evaluations that its trials may make together. made: hashes that it was the first to evaluate, or is about to;
    of a batch that a killed process has left in flight also those that no trial comes across again: a draft of an edit that
    is recorded, or a version that has become another trial's node since.
    """

    def __init__(self, allowance: int, made: Iterable[str] = ()) -> None:
        self.allowance = allowance
        self.made = set(made)
        self._guard = threading.Lock()

    def hold(self, hash_: str, fresh: list[str], allowance: int) -> bool:
        """Whether a trial may have a source evaluated on account of the batch. fresh: what it has had evaluated, to which
        the source is added. allowance: its own."""
        with self._guard:
            if hash_ not in self.made:
                if len(fresh) >= allowance or len(self.made) >= self.allowance:
                    return False
                self.made.add(hash_)
            if hash_ not in fresh:
                fresh.append(hash_)
            return True

    def let_go(self, hash_: str, fresh: list[str]) -> None:
        """Take back what was held: another batch has evaluated the source meanwhile, or nobody could."""
        with self._guard:
            self.made.discard(hash_)
            fresh.remove(hash_)


def charges(account: Account, fresh: Iterable[Collection[str]]) -> list[int]:
    """Evaluations of each trial of a batch: one that two share is charged to the first of them, and what none of them came
    across again to the first of all. Their sum is what the batch has evaluated. fresh: of each trial."""
    left = set(account.made)
    counts = []
    for each in fresh:
        own = left.intersection(each)
        left -= own
        counts.append(len(own))
    if counts:
        counts[0] += len(left)
    return counts
