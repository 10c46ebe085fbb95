"""Run: one search in progress, its parts and what it knows, shared by the steps of the state machine.

Everything in it is either a setting or rebuilt from the store, see `rebuild`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from mtmc.action import Action
from mtmc.chat import ModelSettings
from mtmc.errors import ConfigError
from mtmc.knowledge import Entry, from_text
from mtmc.outcome import RESOURCE_ERROR, Outcome
from mtmc.protocols import Coder, Depth, Evaluator, Policy, RunFacts, Step, Strategy
from mtmc.search.account import Account
from mtmc.search.action_statistics import ActionStatistics
from mtmc.search.agent_settings import AgentSettings
from mtmc.search.budget import Budget, Spent
from mtmc.search.events import Event
from mtmc.search.keyed_locks import KeyedLocks
from mtmc.search.models import Models
from mtmc.search.replay import replay, tell_node, tell_trial
from mtmc.search.slow_baselines import SlowBaselines
from mtmc.search.stagnation import Stagnation, stagnation_of
from mtmc.store import Attempt, Batch, Legal, Store, TrialRow
from mtmc.task import Task
from mtmc.tree import KernelNode, Tree, source_hash

ACTIONS_KEPT = 4096
"""Nodes whose legal actions are kept in memory; those of the others are read from the store when they are needed."""


@dataclass(frozen=True)
class Progress:
    """What a caller is told after the root and after each batch.

    evaluations: spent so far, of `budget`. speedup: of the best version over the root. runtime_ms: of the best version.
    seconds: wall time of the run so far. finished: why the search has ended, None while it goes on. waits: for what a search
    waits that has nothing else left to do, "" while it has. what: which of several searches that are told of together, ""
    where there is one.
    """

    evaluations: int
    budget: int
    nodes: int
    speedup: float | None
    runtime_ms: float | None
    runtime_kind: str | None
    seconds: float
    finished: str | None = None
    waits: str = ""
    what: str = ""


@dataclass(frozen=True)
class Watch:
    """Who is told of a search as it goes on.

    progress: after the root, after each batch and at the end. event: of each trial, from several threads. stopping: set
    where the search shall end after the trials under way; the run can be resumed. accept: asked whether a version that
    passed verification may become the best.
    """

    progress: Callable[[Progress], None] | None = None
    event: Callable[[Event], None] | None = None
    stopping: threading.Event = field(default_factory=threading.Event)
    accept: Callable[[TrialRun, Outcome], bool] | None = None


@dataclass(frozen=True)
class Parts:
    """The four boundaries of one run."""

    strategy: Strategy
    policy: Policy
    coder: Coder
    evaluator: Evaluator


@dataclass(frozen=True)
class Settings:
    """What a run may do.

    batch: trials at once. asynchronous: whether a new trial begins as soon as one ends, and not when all of a batch have.
    repairs: rounds of repair of one trial at most. model: the language model of those parts that ask one. agents: what these
    are told and may do.
    """

    budget: Budget = field(default_factory=Budget)
    seed: int = 0
    batch: int = 1
    repairs: int = 2
    model: ModelSettings = field(default_factory=ModelSettings)
    asynchronous: bool = False
    agents: AgentSettings = field(default_factory=AgentSettings)

    def __post_init__(self) -> None:
        """Raises: ConfigError naming the setting, its value and what it may be."""
        for name, least in (("seed", None), ("batch", 1), ("repairs", 0)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int):
                raise ConfigError(f"{name} cannot be {value!r}: use a whole number")
            if least is not None and value < least:
                raise ConfigError(f"{name} cannot be {value}: use {least} or more")
        if not isinstance(self.asynchronous, bool):
            raise ConfigError(f"asynchronous cannot be {self.asynchronous!r}: use true or false")


@dataclass
class TrialRun:
    """One trial on its way, touched by one thread at a time.

    batch: id of its batch. recorded: attempts that a killed process has left; screened: hashes that its batch has evaluated
    and this trial asked for, each with the number of its attempt. at: number of the attempt that it is at. fresh: hashes
    that this batch is the first to evaluate. evaluated: the attempts that were screened, with what was found.
    goes_on: whether the edit that it is at is for the model that the trial began with. repairs, refinements, others: how
    many rounds of repair and of refinement there were, and how many further candidates.
    outcome, gate, attempt: the version that becomes the child, see `refinement.choose`. duplicate_of: the node that has the
    edit's source already.
    reason: why there is no new version. known: how many versions the tree had when the trial was asked for. routes: by which
    model each attempt is made, by its number.
    """

    row: TrialRow
    batch: int
    parent: KernelNode
    action: Action
    recorded: Sequence[Attempt] = ()
    screened: Mapping[str, int] = field(default_factory=dict)
    attempts: list[Attempt] = field(default_factory=list)
    fresh: list[str] = field(default_factory=list)
    evaluated: list[tuple[Attempt, Outcome]] = field(default_factory=list)
    outcome: Outcome | None = None
    gate: Depth = "screen"
    attempt: int = 0
    repairs: int = 0
    refinements: int = 0
    others: int = 0
    goes_on: bool = False
    duplicate_of: int | None = None
    reason: str = ""
    known: int = 1
    at: int = 0
    routes: dict[int, ModelSettings] = field(default_factory=dict)


@dataclass
class Run:
    """One search in progress.

    state: the strategy's. failures: versions of ended batches that failed for lack of resources. next_batch: id of the next
    batch. ended: how many batches have ended; barren: how many had when the strategy last had no trial to give.
    in_flight: batches that have not ended, by id; accounts: their evaluations, by id; trial_runs: their trials, by id.
    pending: batches that a killed process has left in flight, to be started again. before: seconds spent before this
    process. finished: why the search has ended;
    cut_short: whether for want of a model that answers with something usable. stagnation: of its questions.
    action_statistics: of the tree's actions. facts: what agents are told of the run. slow_baselines: being measured.
    """

    store: Store
    task: Task
    parts: Parts
    settings: Settings
    models: Models
    tree: Tree
    state: Any
    watch: Watch = field(default_factory=Watch)
    failures: list[tuple[str | None, Outcome]] = field(default_factory=list)
    failed: set[str] = field(default_factory=set)
    trial_runs: dict[int, TrialRun] = field(default_factory=dict)
    evaluations: int = 0
    next_batch: int = 0
    ended: int = 0
    barren: int = -1
    in_flight: dict[int, Batch] = field(default_factory=dict)
    accounts: dict[int, Account] = field(default_factory=dict)
    pending: tuple[Batch, ...] = ()
    before: float = 0.0
    finished: str | None = None
    cut_short: bool = False
    stagnation: Stagnation = field(default_factory=Stagnation)
    facts: RunFacts = field(default_factory=RunFacts)
    slow_baselines: SlowBaselines | None = None
    started: float = field(default_factory=time.monotonic)
    action_statistics: ActionStatistics = field(init=False)
    _actions: dict[int, tuple[Action, ...]] = field(default_factory=dict)
    _busy: KeyedLocks = field(default_factory=KeyedLocks)

    def actions(self, node_id: int) -> tuple[Action, ...]:
        """The legal actions of a node: as the store has them, the last used ones from memory."""
        if node_id not in self._actions:
            self.keep_actions(node_id, self.store.legal(node_id)[0])
        return self._actions[node_id]

    def keep_actions(self, node_id: int, actions: tuple[Action, ...]) -> None:
        """Keep the legal actions of a node at hand, and forget the oldest beyond `ACTIONS_KEPT`."""
        self._actions[node_id] = actions
        if len(self._actions) > ACTIONS_KEPT:
            del self._actions[next(iter(self._actions))]

    def tell(self, event: Event) -> None:
        """Tell whoever watches of an event."""
        if self.watch.event is not None:
            self.watch.event(event)

    @property
    def extra_evaluations(self) -> int:
        """Evaluations that a trial may use besides its first one: of repairs, of refinements and of further candidates."""
        agents, coder = self.settings.agents, self.parts.coder
        further = agents.candidates - 1 if coder.gives_candidates else 0
        return self.settings.repairs + (agents.refinements if coder.refines else 0) + further

    @property
    def seconds(self) -> float:
        """Wall time spent on this run so far, summed over resumes."""
        return self.before + time.monotonic() - self.started

    @property
    def spent(self) -> Spent:
        """What the ended batches and the wall clock have spent."""
        best = self.tree.best.outcome
        roofline = None if self.facts.is_behind(best.runtime_ms) else best.metrics.get("roofline")
        return Spent(self.evaluations, self.seconds, roofline, self.models.spent, self.models.needs)

    @property
    def promised(self) -> Spent:
        """What is spent, and the evaluations that trials in flight may still use."""
        allowed = sum(trial_run.row.allowance for trial_run in self.trial_runs.values())
        return replace(self.spent, evaluations=self.evaluations + allowed)

    @property
    def progress(self) -> Progress:
        """Where the run stands."""
        best = self.tree.best
        return Progress(
            evaluations=self.evaluations,
            budget=self.settings.budget.evaluations,
            nodes=len(self.tree),
            speedup=self.tree.speedup(best.id),
            runtime_ms=best.outcome.runtime_ms,
            runtime_kind=best.outcome.runtime_kind,
            seconds=self.seconds,
            finished=self.finished,
        )

    def tell_node(self, node: KernelNode, legal: Legal) -> None:
        """Make a node known to the strategy."""
        self.state = tell_node(self.parts.strategy, self.state, self.tree, node, legal)

    def tell_trial(self, trial_id: int, child_id: int | None) -> None:
        """Make the end of a trial known to the strategy. child_id: the node it led to, None where there is none."""
        self.state = tell_trial(self.parts.strategy, self.state, self.tree, trial_id, child_id)

    def note_failure(self, hash_: str, plan: str | None, outcome: Outcome) -> None:
        """Remember a version that failed for lack of resources, once; any other is left out."""
        diagnosis = outcome.diagnosis
        if diagnosis is not None and diagnosis.kind == RESOURCE_ERROR and hash_ not in self.failed:
            self.failed.add(hash_)
            self.failures.append((plan, outcome))

    @contextmanager
    def alone_with(self, key: str) -> Iterator[None]:
        """One thread at a time for each `key`: two trials of a batch that wrote the same source evaluate it once."""
        with self._busy.alone_with(key):
            yield


def _knowledge(run: Run) -> tuple[Entry, ...]:
    """What the run's questions may tell of other runs: as its record has it, or the record that is replayed."""
    text = run.models.knowledge or run.store.knowledge()
    return from_text(text, "the knowledge of this run") if text else ()


def history(tree: Tree, node_id: int) -> tuple[Step, ...]:
    """The steps from the root to a node, oldest first; empty for the root."""
    return tuple(
        Step(node.action, node.source, node.outcome, tree.speedup(node.id))
        for node in tree.path(node_id)
        if node.action is not None
    )


def rebuild(run: Run) -> None:
    """Bring a run to where its store stands: tree, strategy, counters, failures, stagnation.

    Raises: RunError if the strategy asks for other trials than it did, see `replay`.
    """
    run.tree = run.store.tree()
    run.action_statistics = ActionStatistics(run.tree)
    run.facts = RunFacts(
        run.store.first_baselines(),
        run.models.versions or run.store.settings().get("versions", {}),
        _knowledge(run),
        run.settings.agents.memory_tokens,
    )
    run.before = run.store.seconds()
    run.started = time.monotonic()
    deterministic = run.parts.coder.deterministic
    replayed = replay(run.store, run.parts.strategy, run.tree, run.settings.seed, deterministic)
    run.state, run.next_batch, run.ended = replayed.state, replayed.next_batch, replayed.ended
    run.pending, run.barren = replayed.pending, replayed.barren
    run.in_flight, run.trial_runs, run.accounts = {}, {}, {}
    ends = {row.trial.id: row.end for batch in run.store.batches() for row in batch.trials}
    run.stagnation = stagnation_of([(at, ends[at]) for at in replayed.told], run.store.coder_questions())
    run.evaluations = run.store.evaluations() - sum(run.store.evaluations_of(batch.id) for batch in run.pending)
    places = {trial_id: place for place, trial_id in enumerate(replayed.told)}
    attempts = [each for each in run.store.evaluated_attempts() if each[0] in places]
    for _, source, plan, outcome in sorted(attempts, key=lambda each: places[each[0]]):
        run.note_failure(source_hash(source), plan, outcome)
