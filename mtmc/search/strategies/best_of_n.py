"""best_of_n: independent rollouts from the root, each action drawn from the policy's prior.

The baseline that a tree search must beat at equal evaluations. A rollout ends at `STOP`, at a version without legal
actions (a failed one, or one at the greatest depth) or where the coder has no edit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from mtmc.errors import RunError
from mtmc.protocols import Strategy, Trial
from mtmc.search.strategies.common import Flights, check_setting, derived_random
from mtmc.tree import ROOT_ID

Edge = tuple[int, int]
"""(node id, action index)."""


@dataclass
class _Node:
    value: float
    priors: tuple[float, ...]
    stop_index: int | None
    prior: float = 1.0
    visits: int = 0


@dataclass
class _Rollout:
    number: int
    node_id: int = ROOT_ID
    step: int = 0
    waits_for: Edge | None = None
    trial_id: int | None = None


@dataclass
class BestOfNState:
    """What the rollouts have made so far.

    ends: where an edge led (None: nowhere), for edges that a deterministic coder has taken.
    idle: rollouts that ended without a new node since the last new node.
    """

    seed: int
    deterministic: bool
    nodes: dict[int, _Node] = field(default_factory=dict)
    linked: set[int] = field(default_factory=lambda: {ROOT_ID})
    ends: dict[Edge, int | None] = field(default_factory=dict)
    rollouts: list[_Rollout] = field(default_factory=list)
    started: int = 0
    idle: int = 0
    flights: Flights = field(default_factory=Flights)


@dataclass(frozen=True)
class BestOfN(Strategy):
    """Settings of the rollouts.

    rollouts: how many; None goes on until the budget is spent.
    steps: the most steps of one rollout, also through versions that are there already.
    patience: give up after so many rollouts in a row that made nothing new.
    """

    rollouts: int | None = None
    steps: int = 64
    patience: int = 200

    def __post_init__(self) -> None:
        """Raises: ConfigError for a setting below 1."""
        for name in ("rollouts", "steps", "patience"):
            value = getattr(self, name)
            allowed = (value is None and name == "rollouts") or (value is not None and value >= 1)
            check_setting(allowed, f"best_of_n.{name}", value, "use 1 or more")

    def start(self, seed: int, deterministic: bool = True) -> BestOfNState:
        """The state before the root is known. `seed` decides every draw."""
        return BestOfNState(seed, deterministic)

    def add_node(
        self,
        state: BestOfNState,
        node_id: int,
        parent_id: int,
        priors: Sequence[float],
        value: float,
        stop_index: int | None = None,
    ) -> BestOfNState:
        """Make a node known, see `protocols.Strategy.add_node`."""
        state.nodes.setdefault(node_id, _Node(value, tuple(priors), stop_index))
        return state

    def ask(self, state: BestOfNState, n: int) -> tuple[list[Trial], BestOfNState]:
        """The next trial of up to `n` rollouts; none where `rollouts` or `patience` is used up."""
        if ROOT_ID not in state.nodes:
            raise RunError("best_of_n was asked before its root was known: call add_node for the root first")
        trials = [trial for rollout in list(state.rollouts[:n]) if (trial := self._advance(state, rollout))]
        while len(state.rollouts) < n and self._may_start(state):
            rollout = _Rollout(state.started)
            state.started += 1
            state.nodes[ROOT_ID].visits += 1
            state.rollouts.append(rollout)
            trial = self._advance(state, rollout)
            if trial is not None:
                trials.append(trial)
        return trials, state

    def _may_start(self, state: BestOfNState) -> bool:
        return state.idle < self.patience and (self.rollouts is None or state.started < self.rollouts)

    def _advance(self, state: BestOfNState, rollout: _Rollout) -> Trial | None:
        """Walk on until a new trial is needed. None where the rollout ended, or waits for another's trial."""
        if rollout.trial_id is not None:
            return None
        flying = {(trial.node_id, trial.action_index) for trial in state.flights.flying.values()}
        while True:
            edge = rollout.waits_for or self._draw(state, rollout)
            rollout.waits_for = edge
            if edge is None:
                self._end(state, rollout)
                return None
            if not state.deterministic or (edge not in state.ends and edge not in flying):
                trial = state.flights.start(*edge)
                rollout.trial_id = trial.id
                return trial
            if edge not in state.ends:
                return None
            if not self._step(state, rollout, state.ends[edge]):
                return None

    def _draw(self, state: BestOfNState, rollout: _Rollout) -> Edge | None:
        """The edge this rollout takes from where it stands; None where it ends there."""
        node = state.nodes[rollout.node_id]
        if not node.priors or rollout.step >= self.steps:
            return None
        draw = derived_random(state.seed, "best_of_n", rollout.number, rollout.step).random() * sum(node.priors)
        index = len(node.priors) - 1
        for candidate, prior in enumerate(node.priors):
            draw -= prior
            if draw < 0.0:
                index = candidate
                break
        return None if index == node.stop_index else (rollout.node_id, index)

    def _step(self, state: BestOfNState, rollout: _Rollout, child_id: int | None) -> bool:
        """Move the rollout to where its edge led. False where it led nowhere and the rollout has ended."""
        rollout.waits_for = None
        rollout.trial_id = None
        if child_id is None:
            self._end(state, rollout)
            return False
        rollout.node_id = child_id
        rollout.step += 1
        state.nodes[child_id].visits += 1
        return True

    def _end(self, state: BestOfNState, rollout: _Rollout) -> None:
        state.rollouts.remove(rollout)
        state.idle += 1

    def tell(self, state: BestOfNState, trial_id: int, child_id: int | None, value: float) -> BestOfNState:
        """The end of a trial: its rollout goes on from the node it led to, also where that was there already."""
        trial = state.flights.land(trial_id)
        if trial is None:
            return state
        if state.deterministic:
            state.ends[(trial.node_id, trial.action_index)] = child_id
        if child_id is not None and child_id not in state.linked:
            state.linked.add(child_id)
            state.nodes[child_id].prior = state.nodes[trial.node_id].priors[trial.action_index]
            state.idle = 0
        rollout = next(rollout for rollout in state.rollouts if rollout.trial_id == trial_id)
        self._step(state, rollout, child_id)
        return state

    def annotations(self, state: BestOfNState) -> Mapping[int, Mapping[str, float]]:
        """Per node: `visits` (rollouts that came through), `value`, `prior` of the action that led to it."""
        return {
            node_id: {"visits": float(node.visits), "value": node.value, "prior": node.prior}
            for node_id, node in sorted(state.nodes.items())
        }
