"""What the tests of training share: a small tree whose best way is known, and a scorer that is a table of numbers."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from mtmc.rl.forest import Batch, Forest
from mtmc.rl.scorer import Scorer, Scores
from mtmc.rl.trees import RecordedTree
from tests.rl.recorded import TASK_TEXT, node


def detour_tree() -> RecordedTree:
    """The first step that gains most leads to nothing more; the best version is behind one that gains nothing.

    0 (8 ms) -> 1 (4 ms), 2 (8 ms), 3 (fails)        2 -> 4 (1 ms), 5 (16 ms)        1 -> 6 (4 ms)
    """
    nodes = (
        node(0, None, 8.0, [1, 2, 3]),
        node(1, 0, 4.0, [6]),
        node(2, 0, 8.0, [4, 5]),
        node(3, 0, None, []),
        node(4, 2, 1.0, [], depth=2),
        node(5, 2, 16.0, [], depth=2),
        node(6, 1, 4.0, [], depth=2),
    )
    return RecordedTree("1" * 16, "detour", "train", TASK_TEXT, "H100", None, nodes)


class TableScorer(Scorer):
    """A logit for each edge and a value for each node, all 0 at first. A `mtmc.rl.scorer.Scorer`."""

    device = torch.device("cpu")
    states_at_once = 0

    def __init__(self, forest: Forest, states_at_once: int = 0) -> None:
        self.states_at_once = states_at_once
        self.weights = {
            "logits": torch.zeros(len(forest.known), requires_grad=True),
            "values": torch.zeros(len(forest.ok), requires_grad=True),
        }
        self._reference = torch.zeros(len(forest.known))

    def score(self, batch: Batch) -> Scores:
        return Scores(
            self.weights["logits"][torch.from_numpy(batch.edges)], self.weights["values"][torch.from_numpy(batch.nodes)]
        )

    def reference(self, batch: Batch) -> torch.Tensor:
        return self._reference[torch.from_numpy(batch.edges)]

    def keep_reference(self) -> None:
        self._reference = self.weights["logits"].detach().clone()

    def groups(self, lr: float) -> list[dict[str, Any]]:
        return [{"params": list(self.weights.values()), "lr": lr}]

    def state_dict(self) -> dict[str, Any]:
        kept = {name: tensor.detach() for name, tensor in self.weights.items()}
        return copy.deepcopy({**kept, "reference": self._reference})

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        with torch.no_grad():
            for name, tensor in self.weights.items():
                tensor.copy_(state[name])
        self._reference = state["reference"].clone()

    def export(self, folder: Path, card: str) -> list[Path]:
        (folder / "card.md").write_text(card)
        return [folder / "card.md"]


@dataclass(frozen=True)
class TableSettings:
    """Opens `TableScorer`."""

    states_at_once: int = 0

    def open(self, forest: Forest, seed: int) -> TableScorer:
        return TableScorer(forest, self.states_at_once)
