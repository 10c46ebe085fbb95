"""Legal: the actions of a node, and the policy's probabilities for them."""

from __future__ import annotations

from collections.abc import Sequence

from mtmc.action import STOP_KIND, Action
from mtmc.errors import ConfigError
from mtmc.protocols import Observation
from mtmc.search.run_state import Run, history
from mtmc.search.trial_context import NodeContext
from mtmc.tree import KernelNode


def legal_actions(run: Run, node: KernelNode) -> tuple[tuple[Action, ...], tuple[float, ...]]:
    """The legal actions of a node that is in the tree, and the policy's probabilities for them.

    The policy may propose actions of its own, if the coder takes such (`Coder.freeform`). Empty for a version that failed
    and for one at the greatest depth. Raises: ConfigError if the policy breaks its contract.
    """
    if not node.outcome.ok or run.tree.depth(node.id) >= run.settings.budget.depth:
        return (), ()
    hardware = run.parts.evaluator.hardware
    steps = history(run.tree, node.id)
    context = NodeContext(run, node)
    observation = Observation(
        run.task, node.source, node.plan, node.outcome, steps, hardware, context, run.action_statistics.gains
    )
    actions = tuple(run.parts.coder.actions(observation, run.failures))
    if not actions:
        return (), ()
    if run.parts.coder.freeform:
        actions = _with(actions, run.parts.policy.propose(observation, actions))
    priors = tuple(run.parts.policy.prior(observation, actions))
    if len(priors) != len(actions) or not all(prior > 0 for prior in priors) or abs(sum(priors) - 1) > 1e-6:
        name = type(run.parts.policy).__name__
        hint = f"it must give {len(actions)} probabilities above 0 with sum 1"
        raise ConfigError(f"policy {name} gave {list(priors)} for {len(actions)} actions: {hint}")
    return actions, priors


def _with(actions: tuple[Action, ...], proposed: Sequence[Action]) -> tuple[Action, ...]:
    """The actions with those proposed that are new, `STOP` still last."""
    known = {action.key for action in actions}
    new = [action for action in {each.key: each for each in proposed}.values() if action.key not in known]
    ordered = sorted((*actions, *new), key=lambda action: action.kind == STOP_KIND)
    return tuple(ordered)
