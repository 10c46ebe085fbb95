"""replay: a strategy's state from a run's store, by telling it again what it was told."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mtmc.action import STOP_KIND
from mtmc.errors import RunError
from mtmc.protocols import Strategy
from mtmc.reward import VALUE_FLOOR, log_speedup
from mtmc.store import Batch, Legal, Store
from mtmc.tree import ROOT_ID, KernelNode, Tree


@dataclass(frozen=True)
class Replayed:
    """Where a run stands.

    next_batch: number of the next batch. pending: the batches in flight. ended: how many batches have ended; barren: how
    many had when the strategy last had no trial to give, -1: it always had. told: ids of the trials that have ended, in
    the order in which the strategy was told.
    """

    state: Any
    next_batch: int
    pending: tuple[Batch, ...]
    ended: int
    barren: int
    told: tuple[int, ...]


def tell_node(strategy: Strategy, state: Any, tree: Tree, node: KernelNode, legal: Legal) -> Any:
    """Make a node known to the strategy; returns its state to go on with."""
    actions, priors = legal.actions, legal.priors
    stop_index = next((index for index, action in enumerate(actions) if action.kind == STOP_KIND), None)
    value = log_speedup(node.outcome, tree.root.outcome)
    if legal.gains is None:  # a strategy that knows nothing of expected values need not take them
        return strategy.add_node(state, node.id, node.parent_id, priors, value, stop_index)
    expected = [value + gain for gain in legal.gains]
    return strategy.add_node(state, node.id, node.parent_id, priors, value, stop_index, expected)


def tell_trial(strategy: Strategy, state: Any, tree: Tree, trial_id: int, child_id: int | None) -> Any:
    """Make the end of a trial known; returns the state to go on with. child_id: the node it led to, None for none."""
    value = VALUE_FLOOR if child_id is None else log_speedup(tree[child_id].outcome, tree.root.outcome)
    return strategy.tell(state, trial_id, child_id, value)


def replay(store: Store, strategy: Strategy, tree: Tree, seed: int, deterministic: bool) -> Replayed:
    """The strategy's state after everything that `store` has recorded, each ask and each tell in its turn.

    tree: the store's. seed, deterministic: what the strategy was started with.

    Raises: RunError if the strategy asks for other trials than it did: it has other settings or is another version.
    """
    again = _Replay(store, strategy, tree, strategy.start(seed, deterministic))
    if len(tree) == 0:
        return Replayed(again.state, 0, (), 0, -1, ())
    again.tell_node(ROOT_ID)
    batches = list(store.batches())
    ended = sorted((batch for batch in batches if batch.ended is not None), key=lambda batch: batch.ended or 0)
    told: list[int] = []
    turn = 0
    for batch in batches:
        while turn < batch.after:
            told += again.end(ended[turn])
            turn += 1
        again.ask(batch)
    for batch in ended[turn:]:
        told += again.end(batch)
    pending = tuple(batch for batch in batches if batch.seconds is None)
    barren = max((batch.after for batch in batches if not batch.trials), default=-1)
    return Replayed(again.state, len(batches), pending, len(ended), barren, tuple(told))


class _Replay:
    """A replay under way. state: the strategy's."""

    def __init__(self, store: Store, strategy: Strategy, tree: Tree, state: Any) -> None:
        self._store, self._strategy, self._tree = store, strategy, tree
        self._last_node = ROOT_ID
        self.state = state

    def tell_node(self, node_id: int) -> None:
        """Make a recorded node known."""
        node, legal = self._tree[node_id], self._store.legal_actions(node_id)
        self.state = tell_node(self._strategy, self.state, self._tree, node, legal)

    def ask(self, batch: Batch) -> None:
        """Ask for a batch again. Raises: RunError if the strategy asks for other trials."""
        trials, self.state = self._strategy.ask(self.state, batch.asked)
        if trials != [row.trial for row in batch.trials]:
            hint = "resume it with the strategy, the settings and the version of mtmc that made it"
            name = type(self._strategy).__name__
            raise RunError(f"{name} asks for other trials than the run {self._store.folder} records: {hint}")

    def end(self, batch: Batch) -> list[int]:
        """Tell how the trials of a batch ended; returns their ids."""
        for row in batch.trials:
            assert row.end is not None
            child_id = row.end.child_id
            if child_id is not None and child_id > self._last_node:
                self._last_node = child_id
                self.tell_node(child_id)
            self.state = tell_trial(self._strategy, self.state, self._tree, row.trial.id, child_id)
        return [row.trial.id for row in batch.trials]
