"""best_of_n: independent rollouts from the root, each action drawn from the policy's prior.

The baseline that a tree search must beat at equal evaluations. A rollout ends at `STOP`, at a version without legal
actions (a failed one, or one at the greatest depth) or where the coder has no edit.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from mtmc.protocols import Trial
from mtmc.search.strategies.base import Edge, StrategyNode, TreeState, TreeStrategy
from mtmc.search.strategies.common import check_setting, derived_random
from mtmc.tree import ROOT_ID


@dataclass
class _Rollout:
    """edge: which it takes next, while it waits for the trial of another rollout there. trial_id: of its own trial."""

    number: int
    node_id: int = ROOT_ID
    step: int = 0
    edge: Edge | None = None
    trial_id: int | None = None


@dataclass
class BestOfNState(TreeState[StrategyNode]):
    """What the rollouts have made so far.

    came_through: rollouts by node. ends: where an edge led (None: nowhere), for edges that a deterministic coder has
    taken. started: rollouts so far. idle: rollouts that ended without a new node since the last new node.
    """

    came_through: Counter[int] = field(default_factory=Counter)
    ends: dict[Edge, int | None] = field(default_factory=dict)
    rollouts: list[_Rollout] = field(default_factory=list)
    started: int = 0
    idle: int = 0


@dataclass(frozen=True)
class BestOfN(TreeStrategy[BestOfNState]):
    """Settings of the rollouts.

    rollouts: how many; None goes on until the budget is spent.
    steps: the most steps of one rollout, also through versions that are there already.
    patience: give up after so many rollouts in a row that made nothing new.
    """

    rollouts: int | None = None
    steps: int = 64
    patience: int = 200
    state_type = BestOfNState

    def __post_init__(self) -> None:
        """Raises: ConfigError for a setting below 1."""
        check_setting(self.rollouts is None or self.rollouts >= 1, "best_of_n.rollouts", self.rollouts, "use 1 or more")
        check_setting(self.steps >= 1, "best_of_n.steps", self.steps, "use 1 or more")
        check_setting(self.patience >= 1, "best_of_n.patience", self.patience, "use 1 or more")

    def begin_trials(self, state: BestOfNState, n: int) -> list[Trial]:
        """The next trial of up to `n` rollouts that have none in flight; none where `rollouts` or `patience` is used up."""
        waiting = [rollout for rollout in state.rollouts if rollout.trial_id is None]
        most = len(state.rollouts) - len(waiting) + n
        trials: list[Trial] = []
        for rollout in waiting:
            if len(trials) < n:
                trials += self._go_on(state, rollout)
        while len(trials) < n and len(state.rollouts) < most:
            if state.idle >= self.patience or state.started == self.rollouts:
                break
            rollout = _Rollout(state.started)
            state.started += 1
            state.came_through[ROOT_ID] += 1
            state.rollouts.append(rollout)
            trials += self._go_on(state, rollout)
        return trials

    def _go_on(self, state: BestOfNState, rollout: _Rollout) -> list[Trial]:
        """Go on until a new trial is needed, which is begun; none where the rollout ended, or waits for a trial."""
        while rollout.trial_id is None:
            rollout.edge = edge = rollout.edge or self._draw(state, rollout)
            if edge is None:
                self._end(state, rollout)
                return []
            if edge in state.ends:
                if not self._step(state, rollout, state.ends[edge]):
                    return []
            elif state.deterministic and edge in state.edges_in_flight:
                return []
            else:
                trial = state.begin(edge)
                rollout.trial_id = trial.id
                return [trial]
        return []

    def _draw(self, state: BestOfNState, rollout: _Rollout) -> Edge | None:
        """The edge this rollout takes from where it stands; None where it ends there."""
        node = state.nodes[rollout.node_id]
        if not node.priors or rollout.step >= self.steps:
            return None
        draw = derived_random(state.seed, "best_of_n", rollout.number, rollout.step).random() * sum(node.priors)
        index = -1
        while draw >= 0.0 and index + 1 < len(node.priors):
            index += 1
            draw -= node.priors[index]
        return None if index == node.stop_index else (rollout.node_id, index)

    def _step(self, state: BestOfNState, rollout: _Rollout, child_id: int | None) -> bool:
        """Move the rollout to where its edge led. False where it led nowhere and the rollout has ended."""
        rollout.edge = rollout.trial_id = None
        if child_id is None:
            self._end(state, rollout)
            return False
        rollout.node_id = child_id
        rollout.step += 1
        state.came_through[child_id] += 1
        return True

    def _end(self, state: BestOfNState, rollout: _Rollout) -> None:
        state.rollouts.remove(rollout)
        state.idle += 1

    def ended(self, state: BestOfNState, trial: Trial, child_id: int | None, new: bool) -> None:
        """The trial's rollout goes on from the node it led to, also where that was there already."""
        if state.deterministic:
            state.ends[(trial.node_id, trial.action_index)] = child_id
        if new:
            state.idle = 0
        rollout = next(rollout for rollout in state.rollouts if rollout.trial_id == trial.id)
        self._step(state, rollout, child_id)

    def visits(self, state: BestOfNState, node: StrategyNode) -> float:
        """Rollouts that came through."""
        return float(state.came_through[node.id])
