"""The four boundaries of mtmc, each a small Protocol, and the data that crosses them.

    Policy.prior(observation, actions)      Macro Thinking: which action next
    Coder.edit(request)                     Micro Coding: parent source + action -> child source
    Evaluator.evaluate(requests)            what a version is worth
    Strategy.ask / Strategy.tell            which (node, action) to try next

Each has a deterministic fake in `mtmc.fakes`, with which a whole search runs in milliseconds and reproduces a golden
tree byte for byte.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from mtmc.action import Action
from mtmc.chat import ChatReply, ChatRequest
from mtmc.outcome import Cost, Diagnosis, Outcome
from mtmc.task import Task

Depth = Literal["screen", "verify"]


@dataclass(frozen=True)
class Step:
    """One past step on the way to the present version: what was done, and the speedup over the root it gave."""

    action: Action
    source: str
    outcome: Outcome
    speedup: float | None


class Workbench(Protocol):
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


@dataclass(frozen=True)
class Gain:
    """What an action gained where it was tried: mean of log2 of the speedups over the parents, of so many tries."""

    tries: int
    mean: float


@dataclass(frozen=True)
class Observation:
    """What a policy sees of a node.

    history: the steps from the root to this node, oldest first.
    hardware: name in the hardware table (`mtmc.hardware`) of the GPU that runtimes are for.
    bench: None where nothing but the observation can be used.
    elsewhere: what actions have gained on other versions of this run so far, by their keys.
    """

    task: Task
    source: str
    plan: str | None
    outcome: Outcome
    history: tuple[Step, ...]
    hardware: str
    bench: Workbench | None = field(default=None, compare=False, repr=False)
    elsewhere: Mapping[str, Gain] = field(default_factory=dict, repr=False)


@dataclass(frozen=True)
class EditRequest:
    """What a coder is asked: apply `action` to `source`.

    plan: the parent's plan, if it has one. outcome: of the parent.
    feedback: on a repair, the diagnosis of the failed attempt, and `failed_source` the text that failed.
    seed: of this trial and attempt, for coders that draw. bench: None where nothing but the request can be used.
    """

    task: Task
    source: str
    plan: str | None
    outcome: Outcome
    action: Action
    hardware: str
    history: tuple[Step, ...] = ()
    feedback: Diagnosis | None = None
    failed_source: str | None = None
    seed: int = 0
    bench: Workbench | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True)
class Edit:
    """A coder's answer: a whole file, its plan if it has one, and what making it took."""

    source: str
    plan: str | None = None
    cost: Cost = field(default_factory=Cost)


@dataclass(frozen=True)
class EvaluationRequest:
    """One version to evaluate. depth "verify" adds the gate that a run's best must pass."""

    task: Task
    source: str
    seed: int = 0
    depth: Depth = "screen"


@dataclass(frozen=True)
class Trial:
    """One selected (node, action) on its way. id: in order of asking, from 0. action_index: into the node's legal list."""

    id: int
    node_id: int
    action_index: int


class Policy(Protocol):
    """Macro Thinking."""

    def prior(self, observation: Observation, actions: Sequence[Action]) -> list[float]:
        """Probabilities of `actions`, same order, each above 0, sum 1."""
        ...


class Coder(Protocol):
    """Micro Coding. Besides editing it says what may be done to a version, for it must be able to do it."""

    @property
    def deterministic(self) -> bool:
        """Whether the same request always gives the same edit: then the search expands an edge only once."""
        ...

    def root(self, task: Task) -> Edit:
        """The reference itself as ModelNew. Raises: TaskError where the task cannot be captured."""
        ...

    def actions(self, observation: Observation, failures: Sequence[tuple[str | None, Outcome]]) -> list[Action]:
        """Legal actions of a version, best known first, `STOP` last, keys unique.

        failures: (plan, outcome) of this run's versions that failed for lack of resources: what is sure to fail the
        same way is not legal.
        """
        ...

    def edit(self, request: EditRequest) -> Edit:
        """A whole child source, never half a file. Raises: CoderError with the reason where there is none."""
        ...


class Evaluator(Protocol):
    """Evaluation, gate by gate (audit, build, check, time, verify).

    A search with `batch` above 1 calls `evaluate` (and `Coder.edit`) from that many threads at once; an evaluator that
    can do one thing at a time holds its own lock. Optional attributes, looked up by the search:
        verifies: bool            True where depth "verify" adds a gate; without it the search never asks for "verify".
        baselines(task) -> dict[str, Outcome]   what the root is compared with besides itself, e.g. "torch.compile".
    """

    @property
    def hardware(self) -> str:
        """Name in the hardware table of the GPU that runtimes are for."""
        ...

    def evaluate(self, requests: Sequence[EvaluationRequest]) -> list[Outcome]:
        """One outcome per request, same order; never raises for a bad kernel.

        Raises: EvaluatorError where the evaluator's own means fail.
        """
        ...

    def close(self) -> None:
        """End all worker processes. Idempotent."""
        ...


class Strategy(Protocol):
    """How the next trials are chosen. Knows node ids, priors and values; neither torch nor kernels.

    A strategy object holds settings only. Its state is made by `start`, and each method returns the state to go on with
    (it may be the same object, changed). The whole state can be rebuilt by the same calls in the same order.
    """

    def start(self, seed: int, deterministic: bool = True) -> Any:
        """The state before the first node is known. deterministic: of the coder, see `Coder.deterministic`."""
        ...

    def add_node(
        self,
        state: Any,
        node_id: int,
        parent_id: int,
        priors: Sequence[float],
        value: float,
        stop_index: int | None = None,
    ) -> Any:
        """Make a node known, with the prior of each of its legal actions and its value (see `reward.log_speedup`).

        priors: empty where the line ends here: a failed version, or one at the greatest depth.
        stop_index: which of the actions is `STOP`; a strategy never asks for it, it ends the line there.
        """
        ...

    def ask(self, state: Any, n: int) -> tuple[list[Trial], Any]:
        """Up to `n` trials, fewer or none where nothing is left to try."""
        ...

    def tell(self, state: Any, trial_id: int, child_id: int | None, value: float) -> Any:
        """The end of a trial: the node it led to and its value. Telling twice changes nothing.

        child_id: a new node (`add_node` came before), an older one where the source was already in the tree, or None
            where the coder had no edit.

        Raises: RunError for a trial that was never asked.
        """
        ...

    def annotations(self, state: Any) -> Mapping[int, Mapping[str, float]]:
        """Per node what a dump shows of the strategy's opinion: visits, value, prior, ..."""
        ...
