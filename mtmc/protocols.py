"""The four boundaries of mtmc, each a small Protocol, and the data that crosses them.

    Policy.prior(observation, actions)      Macro Thinking: which action next
    Coder.edit(request)                     Micro Coding: parent source + action -> child source
    Evaluator.evaluate(requests)            what a version is worth
    Strategy.ask / Strategy.tell            which (node, action) to try next

An implementation names its protocol as its base class. What is abstract it has to have, and cannot be made without; all
else has a default here: what a part is asked for, and what happens where it has nothing to say, stands in its protocol.
What agents are told of a version (`mtmc.observation`) has its names here as well.

Each has a deterministic fake in `mtmc.fakes`, with which a whole search runs in milliseconds and reproduces a golden
tree byte for byte.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, runtime_checkable

from mtmc.action import Action
from mtmc.errors import CoderError
from mtmc.observation import AgentContext, Gain, Observation, Relatives, RunFacts, Step
from mtmc.outcome import Cost, Diagnosis, Outcome
from mtmc.task import Task

__all__ = [
    "AgentContext",
    "Coder",
    "Depth",
    "Edit",
    "EditRequest",
    "EvaluationRequest",
    "Evaluator",
    "EvaluatorSettings",
    "Gain",
    "NoCandidate",
    "Observation",
    "Policy",
    "Relatives",
    "RunFacts",
    "Step",
    "Strategy",
    "Trial",
]

Depth = Literal["screen", "verify", "profile"]


@dataclass(frozen=True)
class EditRequest:
    """What a coder is asked: apply `action` to `source`.

    plan: the parent's plan, if it has one. outcome: of the parent.
    feedback: on a repair, the diagnosis of the failed attempt, and `failed_source` the text that failed.
    right_source: on a refinement, the fastest right version that this trial has made so far, which is to be made faster, and
        `right_outcome` what was found of it.
    candidates: how many answers a model may be asked for, of which the first that may be right is the edit. passed_over: of
        these, how many have been evaluated and have failed; the next is wanted.
    seed: of this trial and attempt, for coders that draw. context: None where nothing but the request can be used.
    run: what is known of the run. relatives: other versions of it.
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
    context: AgentContext | None = field(default=None, compare=False, repr=False)
    run: RunFacts = field(default_factory=RunFacts, repr=False)
    relatives: Relatives = field(default_factory=Relatives, repr=False)
    right_source: str | None = None
    right_outcome: Outcome | None = None
    candidates: int = 1
    passed_over: int = 0


class NoCandidate(CoderError):
    """There is no further candidate. cost: what it took to find that out."""

    def __init__(self, message: str, cost: Cost) -> None:
        super().__init__(message)
        self.cost = cost


@dataclass(frozen=True)
class Edit:
    """A coder's answer: a whole file, its plan if it has one, and what making it took."""

    source: str
    plan: str | None = None
    cost: Cost = field(default_factory=Cost)


@dataclass(frozen=True)
class EvaluationRequest:
    """One version to evaluate.

    depth: "verify" adds the gate that a run's best must pass. "profile" is no gate: of a version that has passed a screening
    it tells more, kernel by kernel (`outcome.kernel_metrics`), and of the runtime nothing.
    """

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


@runtime_checkable
class Policy(Protocol):
    """Macro Thinking."""

    @property
    def asks_model(self) -> bool:
        """Whether it asks the run's language model: a search that names none is then refused before it starts."""
        return False

    @property
    def reads_text(self) -> bool:
        """Whether it reads the text of a version, and not its plan and outcome alone."""
        return False

    def check(self) -> None:
        """Raises: MtmcError where it cannot be used at all, a missing package say. Called before a search starts."""
        return

    @abstractmethod
    def prior(self, observation: Observation, actions: Sequence[Action]) -> list[float]:
        """Probabilities of `actions`, same order, each above 0, sum 1."""

    def priors(self, asked: Sequence[tuple[Observation, Sequence[Action]]]) -> list[list[float]]:
        """`prior` of several versions, each with its actions; for a model that is quicker with many at once."""
        return [self.prior(observation, actions) for observation, actions in asked]

    def propose(self, observation: Observation, actions: Sequence[Action]) -> list[Action]:
        """Actions of its own besides `actions`, for a coder that takes such, see `Coder.freeform`."""
        return []

    def expected_gains(self, observation: Observation, actions: Sequence[Action]) -> list[float] | None:
        """What each of `actions` is expected to gain, same order: log2 of the speedup over this version. None where the
        policy says nothing of that. A strategy may go by it besides the priors, see `Strategy.add_node`."""
        return None


@runtime_checkable
class Coder(Protocol):
    """Micro Coding. Besides editing it says what may be done to a version, for it must be able to do it.

    A search with `batch` above 1 calls `edit` from that many threads at once, and an asynchronous one calls `actions` and
    `Policy.prior` beside them.
    """

    @property
    @abstractmethod
    def deterministic(self) -> bool:
        """Whether the same request always gives the same edit: then the search expands an edge only once."""

    @property
    def asks_model(self) -> bool:
        """Whether it asks the run's language model: a search that names none is then refused before it starts."""
        return False

    @property
    def freeform(self) -> bool:
        """Whether it carries out an action in free text (`mtmc.freeform`), which a policy may then propose."""
        return False

    @property
    def gives_candidates(self) -> bool:
        """Whether it can be asked for several answers to one edit, see `EditRequest.candidates`."""
        return False

    @property
    def refines(self) -> bool:
        """Whether it can be shown a right version of its own and asked for a faster one, see `EditRequest.right_source`."""
        return False

    def check(self) -> None:
        """Raises: MtmcError where it cannot be used at all, a missing package say. Called before a search starts."""
        return

    @abstractmethod
    def root(self, task: Task) -> Edit:
        """The reference itself as ModelNew. Raises: TaskError where the task cannot be exported."""

    @abstractmethod
    def actions(self, observation: Observation, failures: Sequence[tuple[str | None, Outcome]]) -> list[Action]:
        """Legal actions of a version, best known first, `STOP` last, keys unique.

        failures: (plan, outcome) of this run's versions that failed for lack of resources: what is sure to fail the
        same way is not legal.
        """

    def ahead(self, task: Task, plan: str | None, hardware: str) -> None:
        """Find out beforehand what `actions` of the root, which has this plan, will ask for. Nothing hangs on it.

        Called in a thread while the root is evaluated; `actions` only when it has ended.
        """
        return

    def guards(self, task: Task) -> str | None:
        """What its versions of a task hold for, as `mtmc.rewrite.guards` writes it; None where nothing is known of that.

        Asked for once a run, when a version is handed out that is not the root.
        """
        return None

    @abstractmethod
    def edit(self, request: EditRequest) -> Edit:
        """A whole child source, never half a file. Raises: CoderError with the reason where there is none."""


@runtime_checkable
class Evaluator(Protocol):
    """Evaluation, gate by gate (audit, build, check, time, verify).

    A search with `batch` above 1 calls `evaluate` (and `Coder.edit`) from that many threads at once; an evaluator that
    can do one thing at a time holds its own lock.

    hardware: name in the hardware table of the GPU that runtimes are for.
    verifies: whether depth "verify" adds a gate; without it the search never asks for "verify".
    profiles: whether depth "profile" tells anything; without it the search never asks for it.
    recorded_as: what a run's record says of it, {"name", "settings"}, where it stands for another evaluator (one that
        several runs share); None: what it is itself.
    """

    hardware: str
    verifies: bool = False
    profiles: bool = False
    recorded_as: Mapping[str, Any] | None = None

    @abstractmethod
    def evaluate(self, requests: Sequence[EvaluationRequest]) -> list[Outcome]:
        """One outcome per request, same order; never raises for a bad kernel.

        Raises: EvaluatorError where the evaluator's own means fail.
        """

    def baselines(self, task: Task) -> dict[str, Outcome]:
        """What the root is compared with besides itself, by name, e.g. "torch.compile". One that takes minutes is "not_run"
        here, so that nobody waits for it: see `slow_baselines`."""
        return {}

    def slow_baselines(self, task: Task) -> dict[str, Outcome]:
        """Those that `baselines` gives as "not_run", measured. A search asks for them in a thread beside its evaluations."""
        return {}

    def imports(self, source: str) -> Outcome | None:
        """Import a file that is to be handed out, in a process that has torch and triton and nothing else, and that never
        ran a version. Returns: why it is rejected; None where it can be imported, and from an evaluator that runs nothing.
        """
        return None

    def beside(self, processes: Callable[[], Iterable[int]]) -> None:
        """Say which processes work beside this one, as those of a benchmark's other problems, by their numbers.

        An evaluator that times calls may have them stand still meanwhile, mostly for some tens of milliseconds, since a
        host that has other work takes several times as long for a call. They have to end when this process does, even by a
        signal.
        """
        return None

    @abstractmethod
    def close(self) -> None:
        """End all worker processes. Idempotent."""


@runtime_checkable
class EvaluatorSettings(Protocol):
    """Settings of an evaluator, a frozen data class that is light to import; its fields are what `evaluator.NAME=VALUE`
    takes. Whoever opens them closes what they give."""

    @abstractmethod
    def open(self) -> Evaluator:
        """An evaluator at work. Raises: ConfigError, EvaluatorError or RunError where there can be none."""

    def known_hardware(self) -> str:
        """The evaluator's `hardware` where that is known before it is opened, else "". Raises: as `open`."""
        return ""


@runtime_checkable
class Strategy(Protocol):
    """How the next trials are chosen. Knows node ids, priors and values; neither torch nor kernels.

    A strategy object holds settings only. Its state is made by `start`, and each method returns the state to go on with
    (it may be the same object, changed). The whole state can be rebuilt by the same calls in the same order.
    """

    @property
    def by_expected(self) -> bool:
        """Whether it goes by what actions are expected to lead to (`expected` of `add_node`)."""
        return False

    @abstractmethod
    def start(self, seed: int, deterministic: bool = True) -> Any:
        """The state before the first node is known. deterministic: of the coder, see `Coder.deterministic`."""

    @abstractmethod
    def add_node(
        self,
        state: Any,
        node_id: int,
        parent_id: int,
        priors: Sequence[float],
        value: float,
        stop_index: int | None = None,
        expected: Sequence[float] | None = None,
    ) -> Any:
        """Make a node known, with the prior of each of its legal actions and its value (see `reward.log_speedup`).

        priors: empty where the line ends here: a failed version, or one at the greatest depth.
        stop_index: which of the actions is `STOP`; a strategy never asks for it, it ends the line there.
        expected: of each action the value that the version it leads to is expected to have. Left out where the policy does
            not say, see `Policy.expected_gains`.
        """

    @abstractmethod
    def ask(self, state: Any, n: int) -> tuple[list[Trial], Any]:
        """Up to `n` trials besides those in flight, fewer or none where nothing is left to try before one of them ends.

        Trials end in any order, and an asynchronous search asks for one whenever one has ended.
        """

    @abstractmethod
    def tell(self, state: Any, trial_id: int, child_id: int | None, value: float) -> Any:
        """The end of a trial: the node it led to and its value. Telling twice changes nothing.

        child_id: a new node (`add_node` came before), an older one where the source was already in the tree, or None
            where the coder had no edit.

        Raises: RunError for a trial that was never asked.
        """

    @abstractmethod
    def annotations(self, state: Any) -> Mapping[int, Mapping[str, float]]:
        """Per node the search statistics that a dump shows: visits, value, prior, ..."""
