"""What agents are told of a version: how it came about, what is known of its run, and what they may use besides."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from mtmc.action import Action
from mtmc.chat import ChatReply, ChatRequest
from mtmc.knowledge import Entry
from mtmc.outcome import Outcome
from mtmc.task import Task


@dataclass(frozen=True)
class Step:
    """One past step on the way to the present version: what was done, and the speedup over the root it gave."""

    action: Action
    source: str
    outcome: Outcome
    speedup: float | None


class AgentContext(Protocol):
    """What a policy or a coder may use besides what it is told, on account of one trial. From any thread."""

    def complete(self, request: ChatRequest) -> ChatReply:
        """Ask the run's language model, or take the reply that is recorded for the same question.

        Raises: BudgetSpent where the run may spend no more, CoderError where no reply came, ModelError where no model
        can be used at all (which ends the search).
        """
        ...

    def judge(self, reply: ChatReply, verdict: str) -> None:
        """Record what became of a reply: "usable", "repaired" or "unusable: why"."""
        ...

    def evaluate(self, source: str) -> Outcome | None:
        """What the run's evaluator finds of a draft (screening). Costs one of the trial's evaluations, unless the source
        is known; None where none is left."""
        ...

    def profile(self, source: str, outcome: Outcome) -> Outcome | None:
        """The outcome of a draft that was found right, with what a profile tells of its kernels. Costs no evaluation; None
        where the evaluator profiles nothing, or no more versions may be profiled."""
        ...


@dataclass(frozen=True)
class Gain:
    """What an action gained where it was tried: mean of log2 of the speedups over the parents, of so many tries."""

    tries: int
    mean: float


@dataclass(frozen=True)
class RunFacts:
    """What is known of a run besides its versions.

    baselines: what the root is compared with besides itself, by name. versions: of the packages that kernels are compiled
    and run with, by name, as they were when the run began. knowledge: what helped in other runs. memory_tokens: what agents
    are told of relatives and of knowledge, in tokens at most; 0: nothing.
    """

    baselines: Mapping[str, Outcome] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    knowledge: tuple[Entry, ...] = ()
    memory_tokens: int = 0

    def is_behind(self, runtime_ms: float | None) -> bool:
        """Whether a baseline is faster than a version that takes so many milliseconds; None: it has no runtime."""
        known = [each.runtime_ms for each in self.baselines.values() if each.ok and each.runtime_ms is not None]
        return runtime_ms is None or min(known, default=runtime_ms) < runtime_ms


@dataclass(frozen=True)
class Relatives:
    """What a tree holds of a version besides its ancestors.

    siblings: what was made of the same version before, oldest first. failures: elsewhere in the tree, the most telling last.
    best: the steps to the best version so far; empty where that is the version itself or one that it comes from.
    """

    siblings: tuple[Step, ...] = ()
    failures: tuple[Step, ...] = ()
    best: tuple[Step, ...] = ()


@dataclass(frozen=True)
class Observation:
    """What a policy sees of a node.

    history: the steps from the root to this node, oldest first.
    hardware: name in the hardware table (`mtmc.hardware`) of the GPU that runtimes are for.
    context: None where nothing but the observation can be used.
    action_statistics: what actions have gained on other versions of this run so far, by their keys.
    run: what is known of the run. relatives: other versions of it.
    """

    task: Task
    source: str
    plan: str | None
    outcome: Outcome
    history: tuple[Step, ...]
    hardware: str
    context: AgentContext | None = field(default=None, compare=False, repr=False)
    action_statistics: Mapping[str, Gain] = field(default_factory=dict, repr=False)
    run: RunFacts = field(default_factory=RunFacts, repr=False)
    relatives: Relatives = field(default_factory=Relatives, repr=False)
