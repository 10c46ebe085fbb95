"""Tree: the append-only record of all kernel versions of a run.

A node is a fact (who made it, from what, what evaluation found). Visits, values and priors are search statistics
and live in the strategy's state; a dump joins the two by node id.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field

from mtmc.action import Action
from mtmc.errors import RunError
from mtmc.outcome import Cost, Outcome, speedup

ROOT_ID = 0
NO_PARENT = -1


def source_hash(source: str) -> str:
    """Identity of a kernel version's text: SHA-256 of it without trailing white space, as 16 hex digits."""
    text = "\n".join(line.rstrip() for line in source.strip().splitlines())
    return hashlib.sha256(text.encode()).hexdigest()[:16]


@dataclass(frozen=True)
class KernelNode:
    """One kernel version.

    id: position in creation order; the root is `ROOT_ID`.
    parent_id: id of the version it was made from, `NO_PARENT` for the root.
    action: what was done to the parent; None for the root.
    source: the whole file.
    plan: the coder's own record of how the source is made (JSON text, see `mtmc.rewrite.plan`), or None where the
        source came without one (a model wrote it).
    outcome: what evaluation found.
    trial_id: the trial that made it, -1 for the root.
    repairs: edits of the same trial before this source was reached, each followed by a repair or a refinement.
    cost: what coding took (seconds are kept in the store's trials, not here, so that equal runs give equal trees).
    """

    id: int
    parent_id: int
    action: Action | None
    source: str
    plan: str | None
    outcome: Outcome
    trial_id: int = -1
    repairs: int = 0
    cost: Cost = field(default_factory=Cost)

    @property
    def hash(self) -> str:
        """Identity of the source, see `source_hash`."""
        return source_hash(self.source)


class Tree:
    """All versions of one run, append-only, looked up by id in O(1)."""

    def __init__(self, task_name: str) -> None:
        self.task_name = task_name
        self._nodes: list[KernelNode] = []
        self._children: list[list[int]] = []
        self._by_hash: dict[str, int] = {}
        self._best: int = ROOT_ID

    def add(self, node: KernelNode) -> None:
        """Append one node. Raises: RunError if its id is not the next one or its parent is unknown."""
        if node.id != len(self._nodes):
            raise RunError(f"node {node.id} cannot be added: the next id is {len(self._nodes)}; nodes are append-only")
        if node.id == ROOT_ID and node.parent_id != NO_PARENT:
            raise RunError(f"the root cannot have a parent, got {node.parent_id}")
        if node.id != ROOT_ID and not 0 <= node.parent_id < node.id:
            raise RunError(f"node {node.id} has parent {node.parent_id}, which is not an earlier node")
        self._nodes.append(node)
        self._children.append([])
        self._by_hash.setdefault(node.hash, node.id)
        if node.id != ROOT_ID:
            self._children[node.parent_id].append(node.id)
            self._keep_best(node)

    def _keep_best(self, node: KernelNode) -> None:
        best = self._nodes[self._best]
        gain = speedup(node.outcome, best.outcome)
        if node.outcome.ok and (gain is None or gain > 1.0):
            self._best = node.id

    def __len__(self) -> int:
        return len(self._nodes)

    def __iter__(self) -> Iterator[KernelNode]:
        return iter(self._nodes)

    def __getitem__(self, node_id: int) -> KernelNode:
        if not 0 <= node_id < len(self._nodes):
            raise RunError(f"no node {node_id} in this tree: it has nodes 0 to {len(self._nodes) - 1}")
        return self._nodes[node_id]

    @property
    def root(self) -> KernelNode:
        """The reference itself as ModelNew."""
        return self[ROOT_ID]

    @property
    def best(self) -> KernelNode:
        """The fastest version with status "ok"; the earliest of equals; the root where nothing is faster."""
        return self[self._best]

    def children(self, node_id: int) -> tuple[KernelNode, ...]:
        """Direct children in creation order."""
        return tuple(self._nodes[child] for child in self._children[node_id])

    def path(self, node_id: int) -> tuple[KernelNode, ...]:
        """Nodes from the root to `node_id`, both included."""
        nodes = [self[node_id]]
        while nodes[-1].parent_id != NO_PARENT:
            nodes.append(self[nodes[-1].parent_id])
        return tuple(reversed(nodes))

    def depth(self, node_id: int) -> int:
        """Number of actions between the root and this node."""
        return len(self.path(node_id)) - 1

    def find(self, source: str) -> KernelNode | None:
        """The first node with this very source, or None."""
        node_id = self._by_hash.get(source_hash(source))
        return None if node_id is None else self._nodes[node_id]

    def speedup(self, node_id: int) -> float | None:
        """Speedup of a node over the root; None for a failed version."""
        return speedup(self[node_id].outcome, self.root.outcome)
