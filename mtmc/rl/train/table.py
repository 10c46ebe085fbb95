"""table: what a scorer says, kept by number of node and edge, so that it is asked once for each state."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from mtmc.rl.forest import Batch, Floats, Forest, Ints
from mtmc.rl.scorer import Scorer

if TYPE_CHECKING:
    import torch

Ask = Callable[[Batch], "tuple[torch.Tensor, torch.Tensor | None]"]


class Table:
    """Logits of known edges and values of nodes of a forest; those of a node are there once it was needed.

    logits: [edges]. values: [nodes].
    """

    def __init__(self, forest: Forest, ask: Ask, at_once: int) -> None:
        self._forest, self._ask, self._at_once = forest, ask, at_once or len(forest.ok)
        self._there = np.zeros(len(forest.ok), bool)
        self.logits: Floats = np.zeros(len(forest.known), np.float32)
        self.values: Floats = np.zeros(len(forest.ok), np.float32)

    def need(self, nodes: Ints) -> None:
        """See that these nodes are there."""
        import torch

        missing = np.unique(nodes[~self._there[nodes]])
        for first in range(0, len(missing), self._at_once):
            some = missing[first : first + self._at_once]
            batch = self._forest.batch(some)
            with torch.no_grad():
                logits, values = self._ask(batch)
            self.logits[batch.edges] = logits.float().cpu().numpy()
            if values is not None:
                self.values[some] = values.float().cpu().numpy()
            self._there[some] = True


def policy_table(forest: Forest, scorer: Scorer) -> Table:
    """The scorer as it is now; make a new one when its weights have changed."""

    def ask(batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
        scores = scorer.score(batch)
        return scores.logits, scores.values

    return Table(forest, ask, scorer.states_at_once)


def reference_table(forest: Forest, scorer: Scorer) -> Table:
    """The policy that training stays close to: logits only."""
    return Table(forest, lambda batch: (scorer.reference(batch), None), scorer.states_at_once)
