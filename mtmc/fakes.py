"""Deterministic fakes of the four boundaries: a whole search in milliseconds, without torch, the same on any machine.

A fake version is a real Python file: one line per edit, and a class. Everything about it (whether it builds, how fast
it is) follows from a hash of its text, so that a tree of any size has failures, repairs and duplicates in it.
"""

from __future__ import annotations

import hashlib
import os
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import cycle
from pathlib import Path

from mtmc.action import STOP, Action, Region
from mtmc.errors import CoderError
from mtmc.outcome import RESOURCE_ERROR, Cost, Diagnosis, Outcome, Status
from mtmc.protocols import (
    Coder,
    Edit,
    EditRequest,
    EvaluationRequest,
    Evaluator,
    Observation,
    Policy,
)
from mtmc.search.strategies.base import Edge, PlainState, StrategyNode, TreeStrategy
from mtmc.task import Task, Variant
from mtmc.tree import source_hash

FAKE_TASK = Task("fake", "class Model: ...\n", Variant("full"), Variant("small"))
KINDS = ("fuse", "tile", "reorder", "pipeline", "precision", "layout", "split", "vectorize")

_REPAIRED = "# repaired"
_FAILURES: tuple[tuple[Status, str, str], ...] = (
    ("build_error", "build", "CompilationError"),
    ("build_error", "build", RESOURCE_ERROR),
    ("wrong_result", "check", "Mismatch"),
    ("crash", "check", "IllegalAccess"),
    ("timeout", "check", "Timeout"),
)


def draw(*parts: object) -> float:
    """A number in 0 to 1 that follows from `parts`: the same on every machine, unlike `hash`."""
    text = "\0".join(str(part) for part in parts)
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:6], "big") / 2**48


@dataclass(frozen=True)
class FakePolicy(Policy):
    """Priors that follow from the version's text; `STOP` gets the weight `stop`. expects: whether it also says what the
    actions gain, -0.5 to 0.5, and `STOP` nothing."""

    stop: float = 0.05
    expects: bool = False

    def expected_gains(self, observation: Observation, actions: Sequence[Action]) -> list[float] | None:
        """See `protocols.Policy.expected_gains`."""
        if not self.expects:
            return None
        return [0.0 if action is STOP else draw(observation.source, action.key) - 0.5 for action in actions]

    def prior(self, observation: Observation, actions: Sequence[Action]) -> list[float]:
        """See `protocols.Policy.prior`."""
        chance = random.Random(source_hash(observation.source))
        weights = [0.1 + chance.random() for _ in actions]
        weights = [self.stop if action is STOP else each for action, each in zip(actions, weights, strict=True)]
        total = sum(weights)
        return [weight / total for weight in weights]


@dataclass(frozen=True)
class FakeCoder(Coder):
    """A coder whose edits add a line to a file.

    width: actions of each version besides `STOP`. commuting: the lines are kept sorted, so that two orders of the same
    edits give the same source, which makes duplicates. refuses: share of edits that end in a CoderError.
    repairs: whether it repairs a failed version; without it, it gives the failed edit again. seconds: what an edit takes.
    deterministic: see `protocols.Coder`; else an edit also depends on the request's seed. usd: what an edit costs.
    """

    width: int = 6
    commuting: bool = True
    refuses: float = 0.05
    repairs: bool = True
    seconds: float = 0.0
    deterministic: bool = True
    usd: float = 0.25

    def root(self, task: Task) -> Edit:
        """See `protocols.Coder.root`."""
        return Edit(_print(task.name, []), plan="")

    def actions(self, observation: Observation, failures: Sequence[tuple[str | None, Outcome]]) -> list[Action]:
        """`width` actions and `STOP`. An action that a resource failure of this run ended in is not legal again."""
        failed = {plan for plan, _ in failures}
        lines = _lines(observation.source)
        actions = _actions(self.width)
        return [*(each for each in actions if _plan(self._edited(lines, each)) not in failed), STOP]

    def edit(self, request: EditRequest) -> Edit:
        """See `protocols.Coder.edit`."""
        if self.seconds:
            time.sleep(self.seconds)
        lines = self._edited(_lines(request.source), request.action)
        if not self.deterministic:
            lines.append(f"# variant {request.seed % 4}")
        if draw("refuse", *lines) < self.refuses:
            raise CoderError(f"the fake coder has no edit for {request.action.key}: try another action")
        if request.feedback is not None and request.failed_source is not None and self.repairs:
            lines = [*_lines(request.failed_source), _REPAIRED]
        cost = Cost(usd=self.usd, tokens_in=10, tokens_out=5, calls=1) if self.usd else Cost()
        return Edit(_print(request.task.name, lines), _plan(lines), cost)

    def _edited(self, lines: Sequence[str], action: Action) -> list[str]:
        edited = [*lines, f"# {action.key}"]
        return sorted(edited) if self.commuting else edited


@dataclass
class FakeEvaluator(Evaluator):
    """An evaluator whose outcome follows from the source's text.

    failing: share of versions that fail, a repaired one at half that rate. gain: the greatest log2 speedup of one edit
    (the least is minus half of it). rejecting: share of right versions that depth "verify" rejects; 0 means that this
    evaluator has no such gate. log: a file that gets "depth hash" as one line before each evaluation. seconds: what an
    evaluation takes.
    """

    failing: float = 0.2
    gain: float = 0.5
    rejecting: float = 0.0
    log: Path | None = None
    seconds: float = 0.0
    hardware: str = "H100"
    root_ms: float = 8.0

    def __post_init__(self) -> None:
        self.verifies = self.rejecting > 0

    def baselines(self, task: Task) -> dict[str, Outcome]:
        """A fake compiler, twice as fast as the root."""
        return {"fake compiler": Outcome("ok", self.root_ms / 2, runtime_kind="estimated")}

    def evaluate(self, requests: Sequence[EvaluationRequest]) -> list[Outcome]:
        """See `protocols.Evaluator.evaluate`."""
        return [self._evaluate(request) for request in requests]

    def _evaluate(self, request: EvaluationRequest) -> Outcome:
        digest = source_hash(request.source)
        if self.log is not None:
            _append(self.log, f"{request.depth} {digest}\n")
        if self.seconds:
            time.sleep(self.seconds)
        if request.depth == "verify" and draw("verify", digest) < self.rejecting:
            return Outcome("rejected", diagnosis=Diagnosis("verify", "CachedOutput", "its output was not computed"))
        lines = _lines(request.source)
        rate = self.failing / 2 if _REPAIRED in lines else self.failing
        if lines and draw("fail", digest) < rate:
            return _failure(digest)
        log_speedup = sum((1.5 * draw("gain", line) - 0.5) * self.gain for line in lines if line != _REPAIRED)
        log_speedup += 0.1 * (draw("jitter", digest) - 0.5) if lines else 0.0
        roofline = min(1.0, 0.1 * 2**log_speedup)
        runtime = self.root_ms / 2**log_speedup
        return Outcome("ok", runtime, runtime_kind="estimated", metrics={"roofline": roofline, "kernels": 1.0})

    def close(self) -> None:
        """Nothing to end."""


@dataclass(frozen=True)
class FakeStrategy(TreeStrategy[PlainState]):
    """Every edge once, in the order in which the nodes came."""

    def next_edge(self, state: PlainState) -> Edge | None:
        """See `TreeStrategy.next_edge`."""
        return next(((node.id, min(node.untried)) for node in state.nodes.values() if node.untried), None)

    def note(self, state: PlainState, node: StrategyNode) -> dict[str, float]:
        """Its value, and 1 visit."""
        return {"visits": 1.0, "value": node.value}


@lru_cache(maxsize=8)
def _actions(width: int) -> tuple[Action, ...]:
    return tuple(
        Action(kind, Region(f"op{number}", 3, 3), (("size", 16 << number % 4),), f"{kind} op{number}")
        for number, kind in zip(range(width), cycle(KINDS), strict=False)
    )


def _failure(digest: str) -> Outcome:
    status, stage, kind = _FAILURES[int(draw("status", digest) * len(_FAILURES))]
    return Outcome(status, diagnosis=Diagnosis(stage, kind, f"a fake {kind}", line=3, excerpt="3 | class ModelNew:"))


def _print(name: str, lines: Sequence[str]) -> str:
    head = f'"""A fake version of {name}."""\n'
    return head + "".join(f"{line}\n" for line in lines) + "class ModelNew:\n    pass\n"


def _lines(source: str) -> list[str]:
    return [line for line in source.splitlines() if line.startswith("# ")]


def _plan(lines: Sequence[str]) -> str:
    return "\n".join(lines)


def _append(path: Path, text: str) -> None:
    """Append in one system call, so that a killed process leaves whole lines."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        os.write(descriptor, text.encode())
    finally:
        os.close(descriptor)
