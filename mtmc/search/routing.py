"""Routing: which of a run's models is asked what. All of them are paid from one account.

The roles that `agents.models` may name are "repair", for repairs, a cheap one say, and "strong", for what has failed: the
second repair of a trial, and an edit that failed before. Further candidates and refinements are asked of the model that the
trial began with. Any other name is a further model for edits. Between these and the run's own a bandit chooses, UCB1 (Auer,
Cesa-Bianchi and Fischer 2002), with the price in its reward:

    reward = worth of the trial - PRICE_WEIGHT x its price / the highest price of a trial
    worth  = 0 where no right version came of it, else 0.5 + 0.5 x log2 of its speedup over the parent, cut to 0 ... 1
    chosen = the greatest mean reward + EXPLORATION x sqrt(2 ln(all trials) / trials of the model)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from mtmc.chat import POLICY, ChatRequest, ModelSettings
from mtmc.outcome import speedup
from mtmc.search.run_state import Run, TrialRun

REPAIR, STRONG = "repair", "strong"
PRICE_WEIGHT = 0.25
"""Of the dearest trial, in worth: a quarter of what a version is worth that is twice as fast as its parent."""
EXPLORATION = 0.5
"""Rewards lie within 1 of each other; UCB1's own factor is 1, which explores for long."""
HOTTER = 1.5
"""The most that `agents.heat` raises a temperature to."""


@dataclass(frozen=True)
class Tried:
    """What one trial gave: by which model (its name), of what worth, for how many USD."""

    model: str
    worth: float
    usd: float


def chosen(models: Sequence[str], tried: Sequence[Tried]) -> int:
    """Which of some models is asked next: one that was never asked first, in order, else the one of the greatest bound."""
    rewards = _rewards(tried)
    by_model = {
        name: [reward for each, reward in zip(tried, rewards, strict=True) if each.model == name] for name in models
    }
    for at, name in enumerate(models):
        if not by_model[name]:
            return at
    total = sum(map(len, by_model.values()))

    def bound(at: int) -> float:
        own = by_model[models[at]]
        return sum(own) / len(own) + EXPLORATION * math.sqrt(2 * math.log(total) / len(own))

    return max(range(len(models)), key=lambda at: (bound(at), -at))


def worth(gain: float | None) -> float:
    """Of a trial, from 0 to 1. gain: the child's speedup over its parent; None where no right version came of it."""
    return 0.0 if gain is None or gain <= 0 else 0.5 + 0.5 * min(1.0, max(0.0, math.log2(gain)))


def route(run: Run, trial_run: TrialRun, request: ChatRequest) -> ModelSettings:
    """The settings by which a question of a trial is asked that was not asked yet."""
    number = len(trial_run.attempts)
    if number not in trial_run.routes:
        role = _role(run, trial_run, request, number)
        settings = run.models.known[role]
        trial_run.routes[number] = heated(settings, run.settings.agents.heat, _failures(run, trial_run))
    return trial_run.routes[number]


def variants(run: Run, trial_run: TrialRun) -> tuple[ModelSettings, ...]:
    """The settings by which a question of a trial may have been asked before: a killed process has chosen one of them."""
    failures = _failures(run, trial_run)
    return tuple(heated(settings, run.settings.agents.heat, failures) for settings in run.models.known.values())


def heated(settings: ModelSettings, heat: float, failures: int) -> ModelSettings:
    """The settings after so many failures of the same action: `heat` hotter for each, to `HOTTER` at most."""
    if settings.temperature is None or not heat or not failures:
        return settings
    temperature = max(settings.temperature, min(HOTTER, settings.temperature + heat * failures))
    return replace(settings, temperature=round(temperature, 6))


def _role(run: Run, trial_run: TrialRun, request: ChatRequest, number: int) -> str:
    known = run.models.known
    if request.purpose == POLICY or len(known) == 1:
        return ""
    if trial_run.goes_on:
        return _began_with(run, trial_run)
    if number > 0:
        if STRONG in known and (trial_run.repairs > 1 or REPAIR not in known):
            return STRONG
        return REPAIR if REPAIR in known else ""
    if STRONG in known and _failures(run, trial_run):
        return STRONG
    arms = [role for role in known if role not in (REPAIR, STRONG)]
    return arms[chosen([known[role].name for role in arms], tried_models(run))]


def _began_with(run: Run, trial_run: TrialRun) -> str:
    """The role of the model that made a trial's first edit, as the record has it: a resumed run knows no other."""
    calls = run.store.model_calls(trial_run.row.trial.id, texts=False)
    names = [call.model for call in calls if call.purpose != POLICY]
    return next((role for role, each in run.models.known.items() if names and each.name == names[0]), "")


def _failures(run: Run, trial_run: TrialRun) -> int:
    """How often the same action of the same version has failed so far: with a version that is not right, or with none."""
    children = run.tree.children(trial_run.parent.id)
    key = trial_run.action.key
    return sum(
        not child.outcome.ok and child.id < trial_run.known and child.action is not None and child.action.key == key
        for child in children
    )


def tried_models(run: Run) -> list[Tried]:
    """What each trial that has ended gave, of those in which a model made the first edit, in the trials' order.

    One that is under way counts as one that gives nothing, so that a batch is spread over the models.
    """
    first: dict[int, str] = {}
    usd: dict[int, float] = {}
    for call in run.store.model_calls(texts=False):
        if call.purpose == POLICY or call.trial_id < 0 or call.reply is None:
            continue
        first.setdefault(call.trial_id, call.model)
        usd[call.trial_id] = usd.get(call.trial_id, 0.0) + (call.reply.usd or 0.0)
    for trial_id, trial_run in list(run.trial_runs.items()):
        if 0 in trial_run.routes:
            first.setdefault(trial_id, trial_run.routes[0].name)
    made = {node.trial_id: node for node in run.tree if node.action is not None}
    found = []
    for trial_id in sorted(first):
        node = made.get(trial_id)
        gain = None
        if node is not None and node.outcome.ok:
            gain = speedup(node.outcome, run.tree[node.parent_id].outcome) or 1.0
        found.append(Tried(first[trial_id], worth(gain), usd.get(trial_id, 0.0)))
    return found


def _rewards(tried: Sequence[Tried]) -> list[float]:
    dearest = max((each.usd for each in tried), default=0.0)
    return [each.worth - (PRICE_WEIGHT * each.usd / dearest if dearest else 0.0) for each in tried]
