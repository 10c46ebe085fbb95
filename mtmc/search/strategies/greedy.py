"""greedy: the paper's inference pipeline, one line from the root, the policy's most probable action at each step.

MTMC (arXiv 2511.20100), inference: the Macro policy names an action, the Micro coder applies it, and the next step
starts from the result. Here a step that fails is not taken: the next most probable action of the same version is tried.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from mtmc.errors import RunError
from mtmc.protocols import Strategy, Trial
from mtmc.search.strategies.common import Flights, check_setting, is_failure
from mtmc.tree import ROOT_ID

Follow = Literal["last", "best"]


@dataclass
class _Node:
    parent_id: int
    value: float
    priors: tuple[float, ...]
    stop_index: int | None
    order: tuple[int, ...]
    """Actions, most probable first; of equals the first listed."""
    tried: int = 0
    """How many of `order` were tried."""
    prior: float = 1.0
    """Of the action that led here."""


@dataclass
class GreedyState:
    """Where the line stands. `done` is set when it has ended."""

    seed: int
    nodes: dict[int, _Node] = field(default_factory=dict)
    linked: set[int] = field(default_factory=lambda: {ROOT_ID})
    line: list[int] = field(default_factory=lambda: [ROOT_ID])
    flights: Flights = field(default_factory=Flights)
    done: bool = False


@dataclass(frozen=True)
class Greedy(Strategy):
    """Settings of the greedy line.

    follow: "last" goes on from every version that is right, as the paper does, even a slower one; "best" goes on only
        from one that is at least as fast as the version it was made from.
    """

    follow: Follow = "last"

    def __post_init__(self) -> None:
        """Raises: ConfigError for a `follow` that does not exist."""
        check_setting(self.follow in ("last", "best"), "greedy.follow", self.follow, 'use "last" or "best"')

    def start(self, seed: int, deterministic: bool = True) -> GreedyState:
        """The state before the root is known. Nothing is drawn: `seed` changes nothing."""
        return GreedyState(seed)

    def add_node(
        self,
        state: GreedyState,
        node_id: int,
        parent_id: int,
        priors: Sequence[float],
        value: float,
        stop_index: int | None = None,
    ) -> GreedyState:
        """Make a node known, see `protocols.Strategy.add_node`."""
        order = tuple(sorted(range(len(priors)), key=lambda index: (-priors[index], index)))
        state.nodes.setdefault(node_id, _Node(parent_id, value, tuple(priors), stop_index, order))
        return state

    def ask(self, state: GreedyState, n: int) -> tuple[list[Trial], GreedyState]:
        """The next step of the line: one trial at most, whatever `n`, for a step starts from the one before."""
        if ROOT_ID not in state.nodes:
            raise RunError("greedy was asked before its root was known: call add_node for the root first")
        if n < 1 or state.done or state.flights.flying:
            return [], state
        node_id = state.line[-1]
        node = state.nodes[node_id]
        if node.tried == len(node.order) or node.order[node.tried] == node.stop_index:
            state.done = True
            return [], state
        node.tried += 1
        return [state.flights.start(node_id, node.order[node.tried - 1])], state

    def tell(self, state: GreedyState, trial_id: int, child_id: int | None, value: float) -> GreedyState:
        """The end of a step: go on from its node if that is new, right and (follow="best") not slower."""
        trial = state.flights.land(trial_id)
        if trial is None or child_id is None or child_id in state.linked:
            return state
        state.linked.add(child_id)
        child, parent = state.nodes[child_id], state.nodes[trial.node_id]
        child.prior = parent.priors[trial.action_index]
        if not is_failure(value) and (self.follow == "last" or value >= parent.value):
            state.line.append(child_id)
        return state

    def annotations(self, state: GreedyState) -> Mapping[int, Mapping[str, float]]:
        """Per node: `value`, `prior` of the action that led to it, `visits` (1 on the line, else 0)."""
        line = set(state.line)
        return {
            node_id: {"visits": float(node_id in line), "value": node.value, "prior": node.prior}
            for node_id, node in sorted(state.nodes.items())
        }
