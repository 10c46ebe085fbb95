"""Action statistics: what an action has gained on other versions of the same run.

The same action is legal on many versions of a tree, and what it did to one it will mostly do to another. Game programs
know this as the history heuristic (Schaeffer 1989) and as all-moves-as-first or RAVE (Gelly and Silver 2011).
"""

from __future__ import annotations

from collections.abc import Mapping

from mtmc.protocols import Gain
from mtmc.reward import log_speedup
from mtmc.tree import KernelNode, Tree

FAILED = -2.0
"""What a failed version counts as: a quarter of its parent's speed. It cost an evaluation and leads nowhere."""


class ActionStatistics:
    """Gains by the action's key. tree: whose nodes are known at first."""

    def __init__(self, tree: Tree) -> None:
        self._gains: dict[str, Gain] = {}
        for node in tree:
            self.note(tree, node)

    @property
    def gains(self) -> Mapping[str, Gain]:
        """As it is now."""
        return self._gains

    def note(self, tree: Tree, node: KernelNode) -> None:
        """A new node: log2 of its speedup over its parent, `FAILED` where it failed. Nothing for the root."""
        if node.action is None:
            return
        gain = FAILED
        if node.outcome.ok:
            gain = log_speedup(node.outcome, tree.root.outcome) - log_speedup(
                tree[node.parent_id].outcome, tree.root.outcome
            )
        known = self._gains.get(node.action.key, Gain(0, 0.0))
        tries = known.tries + 1
        self._gains[node.action.key] = Gain(tries, known.mean + (gain - known.mean) / tries)
