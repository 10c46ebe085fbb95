"""Nodes: the table of a run's store that has its tree, and what may be done to each version."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from mtmc.action import Action, action_from_json, action_to_json
from mtmc.errors import RunError
from mtmc.outcome import Cost, Outcome, outcome_from_json
from mtmc.store.attempts import coding_cost
from mtmc.store.facts import FactTable, outcomes_text
from mtmc.store.rows import Legal, NewNode
from mtmc.tree import ROOT_ID, KernelNode, Tree

_LEGAL = slice(6, None)
"""Columns of a node that say what may be done to it."""


class NodeTable(FactTable):
    """A database with the table of nodes."""

    def add_root(self, root: NewNode, baselines: Mapping[str, Outcome], hardware: str) -> None:
        """Record the root, what it is compared with besides itself, and the hardware that runtimes are for."""
        with self._writing() as connection:
            insert_nodes(connection, [root])
            facts = [("baselines", outcomes_text(baselines)), ("hardware", hardware)]
            connection.executemany("INSERT INTO meta VALUES (?, ?) ON CONFLICT DO NOTHING", facts)

    def has_root(self) -> bool:
        """Whether the root is recorded: without it there is nothing to resume."""
        return bool(self._all("SELECT 1 FROM nodes LIMIT 1"))

    def legal(self, node_id: int) -> tuple[tuple[Action, ...], tuple[float, ...]]:
        """The legal actions of a node and their priors. Raises: RunError for a node that is not recorded."""
        legal = self.legal_actions(node_id)
        return legal.actions, legal.priors

    def legal_actions(self, node_id: int) -> Legal:
        """What may be done to a node. Raises: RunError for a node that is not recorded."""
        rows = self._all("SELECT * FROM nodes WHERE id = ?", node_id)
        if not rows:
            raise RunError(f"no node {node_id} in the run {self.folder}")
        actions, priors, *more = rows[0][_LEGAL]
        gains = json.loads(more[0]) if more and more[0] is not None else None  # before version 4 nobody expected any
        return Legal(
            tuple(action_from_json(each) for each in json.loads(actions)),
            tuple(json.loads(priors)),
            None if gains is None else tuple(gains),
        )

    def tree(self, known: Tree | None = None) -> Tree:
        """All recorded versions, rebuilt. known: the tree as it was, to which those that were recorded since are added."""
        tree = Tree(json.loads(self._meta("task"))["name"]) if known is None else known
        for node in self._nodes(len(tree)):
            tree.add(node)
        return tree

    def _nodes(self, first: int) -> Iterator[KernelNode]:
        costs: dict[int, Cost] = {}
        made = (
            "SELECT trial_id, number, cost FROM attempts WHERE trial_id IN (SELECT trial_id FROM nodes WHERE id >= ?)"
        )
        for trial_id, _, cost in self._all(f"{made} ORDER BY trial_id, number", first):
            costs[trial_id] = coding_cost(costs.get(trial_id, Cost()), Cost(**json.loads(cost)))
        query = """
            SELECT n.id, n.parent_id, n.trial_id, n.attempt, e.source, e.plan, o.outcome, t.action_index
            FROM nodes n JOIN edits e ON e.trial_id = n.trial_id AND e.number = n.attempt
            JOIN outcomes o ON o.hash = n.hash AND o.gate = n.gate
            LEFT JOIN trials t ON t.id = n.trial_id WHERE n.id >= ? ORDER BY n.id"""
        for id_, parent_id, trial_id, attempt, source, plan, outcome, index in self._all(query, first):
            action = None if id_ == ROOT_ID else self.legal(parent_id)[0][index]
            found = outcome_from_json(json.loads(outcome))
            yield KernelNode(id_, parent_id, action, source, plan, found, trial_id, attempt, costs[trial_id])


def insert_nodes(connection: Any, nodes: Sequence[NewNode]) -> None:
    """Record nodes within a transaction."""
    rows = []
    for new in nodes:
        node = new.node
        actions = json.dumps([action_to_json(action) for action in new.legal.actions])
        gains = None if new.legal.gains is None else json.dumps(new.legal.gains)
        facts = (node.id, node.parent_id, node.trial_id, node.repairs, node.hash, new.gate)
        rows.append((*facts, actions, json.dumps(new.legal.priors), gains))
    connection.executemany("INSERT INTO nodes VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING", rows)
