"""ab_mcts: one more version from here, or deeper below one that is there? Thompson sampling decides, at every version.

AB-MCTS-A (Inoue et al. 2025, arXiv 2503.04412), made for models, which give another edit each time they are asked. At a
version there are two arms: *wider* has the values of the versions that were made from it, *deeper* those of all that came
of these. The arm whose draw from its posterior is greater is taken; wider begins a trial, deeper draws once more for each
child, from the values of that child and of all below it, and goes on there. Nothing else explores: there is no constant.

Values are 0 to 1 of the tree's range, a failure counts as 0. What an arm is expected to give before it was tried is the
value of its own version. Actions are taken likeliest first, and again only once each was taken.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field

from mtmc.protocols import Trial
from mtmc.reward import VALUE_FLOOR
from mtmc.search.strategies.arm import Arm, thompson
from mtmc.search.strategies.base import Edge, StrategyNode, TreeStrategy
from mtmc.search.strategies.common import check_setting, derived_random
from mtmc.search.strategies.value_range import RangedState, norm, note_value
from mtmc.tree import ROOT_ID


@dataclass(eq=False, slots=True)
class AbNode(StrategyNode):
    """One version. wider: values of what was made from it. deeper: of what came of these. all: of itself and all below.

    actions: indices of its actions without `STOP`, likeliest first. left: trials that may still be begun from here.
    below: trials that may still be begun from all versions below. children: those that this version led to.
    """

    wider: Arm = field(default_factory=Arm)
    deeper: Arm = field(default_factory=Arm)
    all: Arm = field(default_factory=Arm)
    actions: tuple[int, ...] = ()
    left: int = 0
    below: int = 0
    parent: AbNode | None = None
    children: list[AbNode] = field(default_factory=list)

    def ancestors(self) -> Iterator[AbNode]:
        """The versions above, the parent first."""
        node = self.parent
        while node is not None:
            yield node
            node = node.parent


@dataclass
class AbState(RangedState[AbNode]):
    """tries: trials that one action may have."""

    tries: int = 1


@dataclass(frozen=True)
class AbMcts(TreeStrategy[AbState]):
    """Settings of the search.

    spread: standard deviation that values are expected to have before any is known, of the tree's range; above 0.
    tries: trials that one action of one version may have from a coder that is not deterministic; a deterministic coder's
        has one.
    """

    spread: float = 0.3
    tries: int = 3
    state_type = AbState
    node_type = AbNode

    def __post_init__(self) -> None:
        """Raises: ConfigError for a setting out of its range."""
        check_setting(self.spread > 0, "ab_mcts.spread", self.spread, "use a number above 0")
        check_setting(self.tries >= 1, "ab_mcts.tries", self.tries, "use 1 or more")

    def start(self, seed: int, deterministic: bool = True) -> AbState:
        """The state before the root is known."""
        return AbState(seed, deterministic, tries=1 if deterministic else self.tries)

    def added(self, state: AbState, node: AbNode) -> None:
        """It joins the tree when its trial is told; its value counts at once."""
        node.actions = tuple(node.untried)
        node.left = len(node.actions) * state.tries
        note_value(state, node.value)
        if node.id == ROOT_ID:
            node.all.note(node.value)

    def next_edge(self, state: AbState) -> Edge | None:
        """From the root down to a version from which one more is made; None where none may be begun anywhere."""
        node = state.nodes[ROOT_ID]
        if not node.left + node.below:
            return None
        chance = derived_random(state.seed, "ab_mcts", state.asked)
        while not (node.left and (not node.below or self._goes_wider(state, node, chance))):
            open_children = [child for child in node.children if child.left + child.below]
            node = max(open_children, key=lambda child: self._draw(state, child, child.all, chance))
        node.left -= 1
        for above in node.ancestors():
            above.below -= 1
        return node.id, node.actions[node.tried % len(node.actions)]

    def ended(self, state: AbState, trial: Trial, child_id: int | None, new: bool) -> None:
        """What the trial gave counts for its own version and all above; a failure to give any counts as a failed version."""
        node = state.nodes[trial.node_id]
        value = VALUE_FLOOR if child_id is None else state.nodes[child_id].value
        node.wider.note(value)
        if child_id is None or not new:
            return
        child = state.nodes[child_id]
        child.parent = node
        node.children.append(child)
        child.all.note(value)
        node.all.note(value)
        node.below += child.left
        for above in node.ancestors():
            above.deeper.note(value)
            above.all.note(value)
            above.below += child.left

    def note(self, state: AbState, node: AbNode) -> dict[str, float]:
        """As for any strategy, and the means of its arms where they have any value, 0 to 1 of the tree's range."""
        note = super().note(state, node)
        for name, arm in (("wider", node.wider), ("deeper", node.deeper)):
            if arm.count:
                note[name] = arm.moments(state.low, state.high)[0]
        return note

    def _goes_wider(self, state: AbState, node: AbNode, chance: random.Random) -> bool:
        wider = self._draw(state, node, node.wider, chance)
        return wider >= self._draw(state, node, node.deeper, chance)

    def _draw(self, state: AbState, node: AbNode, arm: Arm, chance: random.Random) -> float:
        count = arm.count
        mean, squares = arm.moments(state.low, state.high)
        return thompson(chance, count, mean, squares, norm(state, node.value), self.spread)
