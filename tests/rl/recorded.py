"""What the tests of recorded trees share: an evaluator that makes outcomes up, a run with it, a tree by hand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from mtmc.action import STOP, Action, Region
from mtmc.agents.policies.heuristic import Heuristic
from mtmc.fakes import draw
from mtmc.outcome import RESOURCE_ERROR, Diagnosis, Outcome
from mtmc.protocols import EvaluationRequest, Evaluator, Observation, Policy
from mtmc.rl.expand import Expand
from mtmc.rl.trees import UNKNOWN, RecordedNode, RecordedTree
from mtmc.search import Budget, SearchResult, search
from mtmc.task import Task
from mtmc.tree import source_hash

TASK_TEXT = '''"""Two steps over rows."""

import torch
from torch import nn

rows = 4096
cols = 1024

VARIANTS = {"small": {"rows": 24, "cols": 96}, "odd1": {"rows": 7, "cols": 33}, "odd2": {"rows": 13, "cols": 65}}


class Model(nn.Module):
    def forward(self, x, y):
        a = torch.relu(x) + y
        return a.sum(dim=-1)


def get_inputs():
    return [torch.randn(rows, cols), torch.randn(rows, cols)]


def get_init_inputs():
    return []
'''


@dataclass
class Drawn(Evaluator):
    """An evaluator whose outcomes follow from the text's hash: one in five fails, the others take 1 to 4 ms (the root 4)."""

    hardware: str = "H100"
    count: int = 0

    def evaluate(self, requests: Sequence[EvaluationRequest]) -> list[Outcome]:
        """See `mtmc.protocols.Evaluator`."""
        return [self._one(request.source) for request in requests]

    def _one(self, source: str) -> Outcome:
        self.count += 1
        digest = source_hash(source)
        if "triton" not in source:
            return Outcome("ok", 4.0, runtime_kind="estimated", metrics={"roofline": 0.2, "kernels": 3.0})
        if draw("fails", digest) < 0.2:
            kind = RESOURCE_ERROR if draw("why", digest) < 0.3 else "CompilationError"
            return Outcome("build_error", diagnosis=Diagnosis("build", kind, "made up"))
        metrics = {"roofline": draw("roofline", digest), "registers": 40.0, "programs": 1000 * draw("programs", digest)}
        return Outcome("ok", 4.0 - 3.0 * draw("time", digest), runtime_kind="estimated", metrics=metrics)

    def close(self) -> None:
        """Nothing to end."""


@dataclass
class Spy(Policy):
    """The heuristic policy, which keeps all that it was shown."""

    seen: list[tuple[Observation, tuple[Action, ...]]] = field(default_factory=list)

    def prior(self, observation: Observation, actions: Sequence[Action]) -> list[float]:
        """See `mtmc.protocols.Policy`."""
        self.seen.append((observation, tuple(actions)))
        return Heuristic().prior(observation, actions)


def run_of(task: Task, folder: Path, policy: Spy, evaluations: int = 20) -> SearchResult:
    """A run of the rewriter with made-up outcomes."""
    return search(
        task,
        strategy=Expand(),
        policy=policy,
        coder="rewriter",
        evaluator=Drawn(),
        budget=Budget(evaluations=evaluations, depth=4),
        repairs=0,
        out=folder,
        dumps=False,
    )


def action(name: str) -> Action:
    """An action that differs from others by its name."""
    return Action("vectorize", Region(name, 3, 5), (("block", 64),), f"vectorize {name}, lines 3-5")


def node(
    number: int, parent: int | None, ms: float | None, children: Sequence[int | None], depth: int = 1
) -> RecordedNode:
    """A version that takes `ms` (None: it fails), with actions to `children` (None: unknown) and `STOP`."""
    outcome = Outcome("build_error", diagnosis=Diagnosis("build", "CompilationError", "no"))
    if ms is not None:
        outcome = Outcome("ok", ms, runtime_kind="estimated")
    actions = (*(action(f"n{number}to{at}") for at in range(len(children))), STOP) if ms is not None else ()
    known = (*(UNKNOWN if child is None else child for child in children), UNKNOWN) if ms is not None else ()
    made = None if parent is None else action(f"n{parent}")
    return RecordedNode(
        number, parent, made, depth if parent is not None else 0, f"{number:016x}", None, outcome, actions, known
    )


def hand_tree() -> RecordedTree:
    """Six versions:

    0 (8 ms) -> 1 (4 ms), 2 (fails), unknown, 3 (8 ms)
    1 -> 4 (2 ms), 3        3 -> 1, 5 (16 ms)        4, 5: nothing but STOP
    """
    nodes = (
        node(0, None, 8.0, [1, 2, None, 3]),
        node(1, 0, 4.0, [4, 3]),
        node(2, 0, None, []),
        node(3, 0, 8.0, [1, 5]),
        node(4, 1, 2.0, [], depth=2),
        node(5, 3, 16.0, [], depth=2),
    )
    return RecordedTree("0" * 16, "by-hand", "train", TASK_TEXT, "H100", None, nodes)
