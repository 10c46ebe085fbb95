"""Legal: the actions of a node, and the policy's probabilities for them."""

from __future__ import annotations

import math
from collections.abc import Sequence

from mtmc.action import STOP_KIND, Action
from mtmc.errors import ConfigError
from mtmc.protocols import Observation, Policy, Relatives, Strategy
from mtmc.search.agent_settings import AgentSettings
from mtmc.search.relatives import relatives_of
from mtmc.search.run_state import Run, history
from mtmc.search.trial_context import NodeContext
from mtmc.store import Legal
from mtmc.tree import KernelNode

NOTHING = Legal((), ())
"""What is legal on a version where the line ends."""


def legal_actions(run: Run, node: KernelNode) -> Legal:
    """The legal actions of a node that is in the tree, the policy's probabilities for them, and what is expected of them.

    The policy may propose actions of its own, if the coder takes such (`Coder.freeform`). Empty for a version that failed
    and for one at the greatest depth. Raises: ConfigError if the policy breaks its contract.
    """
    if not node.outcome.ok or run.tree.depth(node.id) >= run.settings.budget.depth:
        return NOTHING
    hardware = run.parts.evaluator.hardware
    steps = history(run.tree, node.id)
    context = NodeContext(run, node)
    relatives = relatives_of(run, node.id, node.id + 1) if run.parts.policy.asks_model else Relatives()
    told = (run.action_statistics.gains, run.facts, relatives)
    observation = Observation(run.task, node.source, node.plan, node.outcome, steps, hardware, context, *told)
    actions = tuple(run.parts.coder.actions(observation, run.failures))
    if not actions:
        return NOTHING
    if run.parts.coder.freeform:
        actions = _with(actions, run.parts.policy.propose(observation, actions))
    priors = tuple(run.parts.policy.prior(observation, actions))
    if len(priors) != len(actions) or not all(prior > 0 for prior in priors) or abs(sum(priors) - 1) > 1e-6:
        name = type(run.parts.policy).__name__
        hint = f"it must give {len(actions)} probabilities above 0 with sum 1"
        raise ConfigError(f"policy {name} gave {list(priors)} for {len(actions)} actions: {hint}")
    agents = run.settings.agents
    gains = _trained(agents, observation, actions) if agents.gain else _gains(run.parts.policy, observation, actions)
    return Legal(actions, priors, gains)


def check_gain(agents: AgentSettings, strategy: Strategy) -> None:
    """Raises: ConfigError where a model of gains is set and the strategy does not go by it, RunError where it cannot be
    read."""
    if not agents.gain:
        return
    if not strategy.by_expected:
        hint = "use strategy=best_first, or strategy=mcts with strategy.untried=predicted"
        raise ConfigError(f"agents.gain={agents.gain} says nothing to {strategy!r}: {hint}")
    from mtmc.agents.policies.learned.gain.model import load_gains

    load_gains(agents.gain)


def _trained(agents: AgentSettings, observation: Observation, actions: Sequence[Action]) -> tuple[float, ...] | None:
    """What the trained model expects of the actions, see `AgentSettings.gain`."""
    from mtmc.agents.policies.learned.gain.model import expected, load_gains

    found = expected(load_gains(agents.gain), observation, actions)
    return None if found is None else tuple(each.gain + agents.gain_spreads * each.spread for each in found)


def _gains(policy: Policy, observation: Observation, actions: Sequence[Action]) -> tuple[float, ...] | None:
    """What the policy expects of the actions. Raises: ConfigError if it breaks its contract."""
    gains = policy.expected_gains(observation, actions)
    if gains is not None and (len(gains) != len(actions) or not all(math.isfinite(gain) for gain in gains)):
        hint = f"it must give {len(actions)} finite numbers, or None"
        raise ConfigError(
            f"policy {type(policy).__name__} gave {list(gains)} as expected gains of {len(actions)} actions: {hint}"
        )
    return None if gains is None else tuple(gains)


def _with(actions: tuple[Action, ...], proposed: Sequence[Action]) -> tuple[Action, ...]:
    """The actions with those proposed that are new, `STOP` still last."""
    known = {action.key for action in actions}
    new = [action for action in {each.key: each for each in proposed}.values() if action.key not in known]
    ordered = sorted((*actions, *new), key=lambda action: action.kind == STOP_KIND)
    return tuple(ordered)
