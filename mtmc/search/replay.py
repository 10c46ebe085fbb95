"""replay: a strategy's state from a run's store, by telling it again what it was told."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mtmc.action import STOP_KIND, Action
from mtmc.errors import RunError
from mtmc.protocols import Strategy
from mtmc.reward import VALUE_FLOOR, log_speedup
from mtmc.store import Batch, Store
from mtmc.tree import ROOT_ID, KernelNode, Tree


@dataclass(frozen=True)
class Replayed:
    """Where a run stands. next_batch: number of the next batch. pending: the batch in flight, if there is one."""

    state: Any
    next_batch: int
    pending: Batch | None


def tell_node(
    strategy: Strategy, state: Any, tree: Tree, node: KernelNode, actions: Sequence[Action], priors: Sequence[float]
) -> Any:
    """Make a node known to the strategy; returns its state to go on with."""
    stop_index = next((index for index, action in enumerate(actions) if action.kind == STOP_KIND), None)
    value = log_speedup(node.outcome, tree.root.outcome)
    return strategy.add_node(state, node.id, node.parent_id, priors, value, stop_index)


def tell_trial(strategy: Strategy, state: Any, tree: Tree, trial_id: int, child_id: int | None) -> Any:
    """Make the end of a trial known; returns the state to go on with. child_id: the node it led to, None for none."""
    value = VALUE_FLOOR if child_id is None else log_speedup(tree[child_id].outcome, tree.root.outcome)
    return strategy.tell(state, trial_id, child_id, value)


def replay(store: Store, strategy: Strategy, tree: Tree, seed: int, deterministic: bool) -> Replayed:
    """The strategy's state after everything that `store` has recorded.

    tree: the store's. seed, deterministic: what the strategy was started with.

    Raises: RunError if the strategy asks for other trials than it did: it has other settings or is another version.
    """
    state = strategy.start(seed, deterministic)
    if len(tree) == 0:
        return Replayed(state, 0, None)
    state = tell_node(strategy, state, tree, tree.root, *store.legal(ROOT_ID))
    last_node = ROOT_ID
    number = 0
    for batch in store.batches():
        trials, state = strategy.ask(state, batch.asked)
        if trials != [row.trial for row in batch.trials]:
            hint = "resume it with the strategy, the settings and the version of mtmc that made it"
            raise RunError(
                f"{type(strategy).__name__} asks for other trials than the run {store.folder} records: {hint}"
            )
        if batch.seconds is None:
            return Replayed(state, batch.id, batch)
        for row in batch.trials:
            assert row.end is not None
            child_id = row.end.child_id
            if child_id is not None and child_id > last_node:
                last_node = child_id
                state = tell_node(strategy, state, tree, tree[child_id], *store.legal(child_id))
            state = tell_trial(strategy, state, tree, row.trial.id, child_id)
        number = batch.id + 1
    return Replayed(state, number, None)
