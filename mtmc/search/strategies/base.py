"""TreeStrategy: what all strategies do alike, so that a new one is little more than its choice of the next edge.

It knows the nodes, numbers the trials, takes the end of a trial once, and remembers which action led to which version.
To write is `next_edge`; a strategy that needs more has a state of its own (`state_type`), hears of each node (`added`)
and of the end of each trial (`ended`), and says what a dump shows (`visits`, `note`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, TypeVar

from mtmc.errors import RunError
from mtmc.protocols import Strategy, Trial
from mtmc.search.strategies.common import derived_random
from mtmc.tree import ROOT_ID

Edge = tuple[int, int]
"""(node id, index of one of the node's legal actions)."""


@dataclass(eq=False, slots=True)
class StrategyNode:
    """One version, as a strategy knows it.

    priors: of its legal actions. stop_index: which of them is `STOP`. seed: of the search. expected: value that each action
    is expected to lead to, None where the policy does not say. order: all actions, likeliest first; of equals the seed
    decides. untried: those of `order` that were not tried, without `STOP`. tried: trials begun from here. linked: whether it
    is known which trial led here, and prior: of that trial's action.
    """

    id: int
    parent_id: int
    value: float
    priors: tuple[float, ...]
    stop_index: int | None
    seed: int
    expected: tuple[float, ...] | None = None
    order: tuple[int, ...] = field(init=False)
    untried: list[int] = field(init=False)
    tried: int = 0
    linked: bool = False
    prior: float = 1.0

    def __post_init__(self) -> None:
        self.order = likeliest_first(self.priors, self.stop_index, self.seed, self.id)
        self.untried = [index for index in self.order if index != self.stop_index]
        self.linked = self.id == ROOT_ID


def likeliest_first(priors: Sequence[float], stop_index: int | None, seed: int, node_id: int) -> tuple[int, ...]:
    """Indices of `priors`, greatest first; of equals `STOP` last, and the others in an order that `seed` draws for each
    version anew: were it the order in which they are listed, every seed would grow the same tree."""
    ties = list(range(len(priors)))
    if len(set(priors)) < len(priors):
        derived_random(seed, "ties", node_id).shuffle(ties)
    return tuple(sorted(range(len(priors)), key=lambda index: (-priors[index], index == stop_index, ties[index])))


NodeT = TypeVar("NodeT", bound=StrategyNode)


@dataclass
class TreeState(Generic[NodeT]):
    """What a strategy knows. seed, deterministic: see `protocols.Strategy.start`. asked: how many trials so far.
    in_flight: trials that have not ended, by id."""

    seed: int = 0
    deterministic: bool = True
    nodes: dict[int, NodeT] = field(default_factory=dict)
    asked: int = 0
    in_flight: dict[int, Trial] = field(default_factory=dict)

    def begin(self, edge: Edge) -> Trial:
        """A new trial; ids count up from 0."""
        trial = Trial(self.asked, *edge)
        node = self.nodes[trial.node_id]
        node.tried += 1
        if trial.action_index in node.untried:
            node.untried.remove(trial.action_index)
        self.asked += 1
        self.in_flight[trial.id] = trial
        return trial

    def end(self, trial_id: int) -> Trial | None:
        """The trial that ends now, or None if it ended before. Raises: RunError if it was never asked."""
        if not 0 <= trial_id < self.asked:
            raise RunError(f"trial {trial_id} was never asked: this strategy has asked for {self.asked} so far")
        return self.in_flight.pop(trial_id, None)

    @property
    def edges_in_flight(self) -> set[Edge]:
        """The edges of the trials in flight."""
        return {(trial.node_id, trial.action_index) for trial in self.in_flight.values()}


PlainState = TreeState[StrategyNode]
"""The state of a strategy that needs to know no more than this."""

StateT = TypeVar("StateT", bound=TreeState[Any])


class TreeStrategy(Strategy, Generic[StateT]):
    """Base of a strategy, which is a frozen data class of its settings; see `protocols.Strategy` for the contract."""

    state_type: ClassVar[type[Any]] = TreeState
    node_type: ClassVar[type[Any]] = StrategyNode

    def next_edge(self, state: StateT) -> Edge | None:
        """The edge to try next, never that of a `STOP`; None where nothing is to be tried before a trial has ended."""
        raise NotImplementedError("a strategy has `next_edge`, or a `begin_trials` of its own")

    def added(self, state: StateT, node: Any) -> None:
        """A node has become known."""
        return

    def ended(self, state: StateT, trial: Trial, child_id: int | None, new: bool) -> None:
        """A trial has ended, for the first time. new: whether `child_id` is a version that no trial led to before."""
        return

    def visits(self, state: StateT, node: Any) -> float:
        """How often the search was at a node."""
        return float(node.tried)

    def note(self, state: StateT, node: Any) -> dict[str, float]:
        """What a dump shows of a node: `visits`, `value`, `prior` of the action that led to it."""
        return {"visits": self.visits(state, node), "value": node.value, "prior": node.prior}

    def start(self, seed: int, deterministic: bool = True) -> StateT:
        """The state before the root is known."""
        state: StateT = self.state_type(seed, deterministic)
        return state

    def add_node(
        self,
        state: StateT,
        node_id: int,
        parent_id: int,
        priors: Sequence[float],
        value: float,
        stop_index: int | None = None,
        expected: Sequence[float] | None = None,
    ) -> StateT:
        """Make a node known, see `protocols.Strategy.add_node`."""
        if node_id not in state.nodes:
            given = None if expected is None else tuple(expected)
            node = self.node_type(node_id, parent_id, value, tuple(priors), stop_index, state.seed, given)
            state.nodes[node_id] = node
            self.added(state, node)
        return state

    def ask(self, state: StateT, n: int) -> tuple[list[Trial], StateT]:
        """Up to `n` trials. Raises: RunError before the root is known."""
        if ROOT_ID not in state.nodes:
            name = type(self).__name__
            raise RunError(f"{name} was asked before its root was known: call add_node for the root first")
        return self.begin_trials(state, n), state

    def begin_trials(self, state: StateT, n: int) -> list[Trial]:
        """Up to `n` trials, each on the next edge given those before it."""
        trials: list[Trial] = []
        while len(trials) < n and (edge := self.next_edge(state)) is not None:
            trials.append(state.begin(edge))
        return trials

    def tell(self, state: StateT, trial_id: int, child_id: int | None, value: float) -> StateT:
        """The end of a trial, see `protocols.Strategy.tell`."""
        trial = state.end(trial_id)
        if trial is None:
            return state
        new = child_id is not None and not state.nodes[child_id].linked
        if child_id is not None and new:
            state.nodes[child_id].linked = True
            state.nodes[child_id].prior = state.nodes[trial.node_id].priors[trial.action_index]
        self.ended(state, trial, child_id, new)
        return state

    def annotations(self, state: StateT) -> Mapping[int, Mapping[str, float]]:
        """Per node, see `note`."""
        return {node_id: self.note(state, node) for node_id, node in sorted(state.nodes.items())}
