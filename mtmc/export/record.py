"""RunRecord: what a dump is made of, and the plain facts that every dump derives from it.

A record is data only: it knows neither the run's store nor the search, so that a run in memory, a run on disk and a
tree that was read back from JSON are all dumped by the same code.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from mtmc.action import Action, Scalar
from mtmc.booking import Booking
from mtmc.chat import ModelCall
from mtmc.errors import RunError
from mtmc.outcome import Cost, Outcome
from mtmc.task.tolerance import DEFAULT, Tolerance
from mtmc.tree import NO_PARENT, KernelNode, Tree


@dataclass(frozen=True)
class RunRecord:
    """One run, ready to be dumped.

    tree: all kernel versions.
    annotations: per node id what the strategy thinks of it: "visits" (a count), "value", "prior", and others by name.
    legal: per node id its legal actions with their prior probabilities, in the coder's order.
    settings: the resolved settings of the run, plain data (mappings, sequences, scalars, None).
    evaluations: node ids in the order in which they were evaluated.
    spent: cost of the whole run where the run kept count of it, trials that made no node included. None: the sum over
        the nodes is all that is known.
    baselines: what the root was compared with besides itself, by name ("torch.compile").
    calls: questions to language models, without their texts. bookings: what each request of theirs took.
    transcripts: per node id what was said between its coder and a model: turns with the texts "role" ("brief", "agent",
        "tool"), "tool", "arguments", "text" and "verdict".
    duplicates: (id of the version that it started from, id of the version it led to, action) of each trial whose edit gave a
        version that was in the tree already, in the trials' order.
    tolerance: what the versions' outputs were compared by. finished: why the search has ended, "" where that is not known.

    Raises: RunError if annotations, legal, evaluations or duplicates name a node that the tree does not have.
    """

    tree: Tree
    annotations: Mapping[int, Mapping[str, float]] = field(default_factory=dict)
    legal: Mapping[int, Sequence[tuple[Action, float]]] = field(default_factory=dict)
    settings: Mapping[str, object] = field(default_factory=dict)
    evaluations: Sequence[int] = ()
    spent: Cost | None = None
    baselines: Mapping[str, Outcome] = field(default_factory=dict)
    calls: Sequence[ModelCall] = ()
    bookings: Sequence[Booking] = ()
    transcripts: Mapping[int, Sequence[Mapping[str, str]]] = field(default_factory=dict)
    duplicates: Sequence[tuple[int, int, Action]] = ()
    tolerance: Tolerance = DEFAULT
    finished: str = ""

    def __post_init__(self) -> None:
        if len(self.tree) == 0:
            raise RunError("a run without a single node cannot be dumped: evaluate the root first")
        led = [node_id for parent, child, _ in self.duplicates for node_id in (parent, child)]
        lists = (("legal", self.legal), ("evaluations", self.evaluations), ("duplicates", led))
        named: tuple[tuple[str, Iterable[int]], ...] = (("annotations", self.annotations), *lists)
        for name, ids in named:
            unknown = [node_id for node_id in ids if not 0 <= node_id < len(self.tree)]
            if unknown:
                raise RunError(f"{name} names node {unknown[0]}, but the tree has nodes 0 to {len(self.tree) - 1}")

    @property
    def contract(self) -> str:
        """What the versions' outputs were compared by, in words, and by how much and why it was widened."""
        return self.tolerance.contract({**self.tree.root.outcome.metrics, **self.tree.best.outcome.metrics})

    @property
    def cost(self) -> Cost:
        """Cost of the whole run: `spent` where known, else the sum over the nodes."""
        if self.spent is not None:
            return self.spent
        return sum((node.cost for node in self.tree), Cost())


def depths(tree: Tree) -> list[int]:
    """Depth of every node by id. `Tree.depth` walks to the root each time; this takes one pass."""
    result: list[int] = []
    for node in tree:
        result.append(0 if node.parent_id == NO_PARENT else result[node.parent_id] + 1)
    return result


def best_path(tree: Tree) -> tuple[int, ...]:
    """Node ids from the root to the best version, both included."""
    return tuple(node.id for node in tree.path(tree.best.id))


def best_so_far(record: RunRecord) -> list[float | None]:
    """Best speedup over the root after each evaluation, one entry per entry of `record.evaluations`.

    It starts from 1.0, for the root itself can always be handed back. None where the root has no runtime, because then
    no speedup is known.
    """
    root = record.tree.root.outcome
    best = 1.0 if root.ok and root.runtime_ms is not None else None
    curve: list[float | None] = []
    for node_id in record.evaluations:
        gain = record.tree.speedup(node_id)
        if best is not None and gain is not None and record.tree[node_id].outcome.ok:
            best = max(best, gain)
        curve.append(best)
    return curve


def edge_prior(record: RunRecord, node: KernelNode) -> float | None:
    """Prior probability that the policy gave to the action that made this node; None where it is not known."""
    if node.action is None:
        return None
    prior = action_prior(record, node.parent_id, node.action)
    return record.annotations.get(node.id, {}).get("prior") if prior is None else prior


def action_prior(record: RunRecord, node_id: int, action: Action) -> float | None:
    """Prior probability that the policy gave to an action of a version; None where it is not known."""
    return next((prior for each, prior in record.legal.get(node_id, ()) if each.key == action.key), None)


def second_parents(record: RunRecord) -> dict[tuple[int, int], Action]:
    """(version, the version that was there already) -> the first action that led from one to the other; without what is an
    edge of the tree itself, and without edits that changed nothing."""
    found: dict[tuple[int, int], Action] = {}
    for parent, child, action in record.duplicates:
        if parent != child and record.tree[child].parent_id != parent:
            found.setdefault((parent, child), action)
    return found


def speedup_kind(tree: Tree, node_id: int) -> str | None:
    """What a node's speedup over the root stands on: "measured", "estimated", or "mixed" where one of the two
    runtimes is measured and the other estimated; None where there is no speedup."""
    if tree.speedup(node_id) is None:
        return None
    kinds = {tree[node_id].outcome.runtime_kind, tree.root.outcome.runtime_kind}
    if len(kinds) == 1:
        return kinds.pop()
    return "mixed"


def plain(value: object) -> object:
    """Settings as JSON can hold them: tuples become lists, paths text, keys text, and numbers that JSON does not know
    (infinity, not a number) their name as text. Raises: RunError for a value of any other type."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if value is None or isinstance(value, (str, bool, int, float)):
        return value
    if isinstance(value, Mapping):
        return {str(name): plain(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    raise RunError(f"setting {value!r} of type {type(value).__name__} cannot be dumped: pass plain data")


def flat_settings(settings: Mapping[str, object]) -> dict[str, Scalar]:
    """Settings as scalars by dotted name ("budget.evaluations"), sorted by name; lists as JSON text, None left out.

    Raises: RunError for a value that is not plain data.
    """
    result: dict[str, Scalar] = {}

    def visit(prefix: str, value: object) -> None:
        if isinstance(value, Mapping):
            for name, item in value.items():
                visit(f"{prefix}.{name}" if prefix else str(name), item)
            return
        item = plain(value)
        if isinstance(item, (str, bool, int, float)):
            result[prefix] = item
        elif item is not None:
            result[prefix] = json.dumps(item, sort_keys=True)

    visit("", settings)
    return dict(sorted(result.items()))
