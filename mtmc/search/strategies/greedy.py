"""greedy: the paper's inference pipeline, one line from the root, the policy's most probable action at each step.

MTMC (arXiv 2511.20100), inference: the Macro policy names an action, the Micro coder applies it, and the next step
starts from the result. Here a step that fails is not taken: the next most probable action of the same version is tried.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from mtmc.protocols import Trial
from mtmc.search.strategies.base import Edge, StrategyNode, TreeState, TreeStrategy
from mtmc.search.strategies.common import check_setting, is_failure
from mtmc.tree import ROOT_ID


@dataclass
class GreedyState(TreeState[StrategyNode]):
    """line: the versions gone on from, root first. `done` is set when it has ended."""

    line: list[int] = field(default_factory=lambda: [ROOT_ID])
    done: bool = False


@dataclass(frozen=True)
class Greedy(TreeStrategy[GreedyState]):
    """Settings of the greedy line.

    follow: "last" goes on from every version that is right, as the paper does, even a slower one; "best" goes on only
        from one that is at least as fast as the version it was made from.
    """

    follow: Literal["last", "best"] = "last"
    state_type = GreedyState

    def __post_init__(self) -> None:
        """Raises: ConfigError for a `follow` that does not exist."""
        check_setting(self.follow in ("last", "best"), "greedy.follow", self.follow, 'use "last" or "best"')

    def next_edge(self, state: GreedyState) -> Edge | None:
        """The next step of the line, none while one is in flight: a step starts from the one before."""
        if state.done or state.in_flight:
            return None
        node = state.nodes[state.line[-1]]
        likeliest = node.order[node.tried] if node.tried < len(node.order) else node.stop_index
        state.done = likeliest is None or likeliest == node.stop_index
        return None if likeliest is None or state.done else (node.id, likeliest)

    def ended(self, state: GreedyState, trial: Trial, child_id: int | None, new: bool) -> None:
        """Go on from a version that is new, right and (follow="best") not slower."""
        if child_id is not None and new:
            value = state.nodes[child_id].value
            if not is_failure(value) and (self.follow == "last" or value >= state.nodes[trial.node_id].value):
                state.line.append(child_id)

    def visits(self, state: GreedyState, node: StrategyNode) -> float:
        """1 on the line, else 0."""
        return float(node.id in state.line)
