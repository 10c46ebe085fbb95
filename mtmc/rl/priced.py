"""priced: recorded trees of run folders, with what each version had taken. A data set has no times and no prices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from mtmc.errors import RunError
from mtmc.rl.dataset import tables_of
from mtmc.rl.record import record_run
from mtmc.rl.trees import RecordedTree, trees_of
from mtmc.store import Store, runs_below
from mtmc.tree import source_hash


@dataclass(frozen=True)
class PricedTree:
    """A tree with the wall seconds and US dollars of each version: its coder's, its repairs' and its evaluations', as the
    run that recorded it had them. What a policy took is not among them: a replay may have another."""

    tree: RecordedTree
    seconds: tuple[float, ...]
    usd: tuple[float, ...]


def priced_trees(folder: Path) -> list[PricedTree]:
    """The trees of all runs in a folder or below it, by path.

    Raises: RunError where there is none, or one cannot be read.
    """
    found = runs_below(folder)
    if not found:
        raise RunError(f"there is no run in {folder} or below it: name a run's folder, or one that holds runs")
    return [_priced(each) for each in found]


def _priced(folder: Path) -> PricedTree:
    store = Store.read(folder)
    try:
        [tree] = trees_of(tables_of(record_run(folder, store=store)))
        trials = [node.trial_id for node in store.tree()]
        evaluated: dict[str, float] = {}
        for hash_, _, seconds, _ in store.evaluations_made():
            evaluated[hash_] = evaluated.get(hash_, 0.0) + seconds
        costs = [_cost(store, trial_id, evaluated) for trial_id in trials]
    finally:
        store.close()
    return PricedTree(tree, tuple(seconds for seconds, _ in costs), tuple(usd for _, usd in costs))


def _cost(store: Store, trial_id: int, evaluated: dict[str, float]) -> tuple[float, float]:
    attempts = store.attempts(trial_id)
    hashes: Sequence[str] = list(
        dict.fromkeys(source_hash(each.source) for each in attempts if each.source is not None)
    )
    seconds = sum(each.cost.seconds for each in attempts) + sum(evaluated.get(each, 0.0) for each in hashes)
    return seconds, sum(each.cost.usd for each in attempts)
