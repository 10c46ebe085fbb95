"""trees: recorded trees in memory, as a live search would show them to a policy.

    trees = load_trees(Path("trees/h100"), split="train")
    trees[0].observation(node_id)        the `protocols.Observation` of a version
    trees[0].nodes[node_id].actions      its legal actions, `STOP` last

What is rebuilt is the same as what was seen live, but for the text of versions, which `text` prints again on demand.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mtmc.action import STOP_KIND, Action, Region, lines_text
from mtmc.agents.policies.learned.edits import Children
from mtmc.agents.policies.learned.graphs import GraphFacts, graph_from_json
from mtmc.errors import RunError
from mtmc.outcome import Diagnosis, Outcome, speedup
from mtmc.protocols import Observation, Step
from mtmc.reward import log_speedup
from mtmc.rewrite.plan import Plan, plan_from_json
from mtmc.rl.dataset import read_tables, version_text
from mtmc.rl.schema import METRICS, Split
from mtmc.task import Task, Variant
from mtmc.task.load import check_source, declared_variants

if TYPE_CHECKING:
    import pyarrow

UNKNOWN = -1
"""In `RecordedNode.children`: nobody knows where this action leads."""


@dataclass(frozen=True, eq=False)
class RecordedNode:
    """One version. children: for each of `actions` the version that it leads to, or `UNKNOWN`. depth, parent_id, action:
    of the way on which it was found."""

    id: int
    parent_id: int | None
    action: Action | None
    depth: int
    version: str
    plan: str | None
    outcome: Outcome
    actions: tuple[Action, ...]
    children: tuple[int, ...]

    @property
    def known(self) -> tuple[int, ...]:
        """Indices of the actions that can be replayed: those with a child, and `STOP`."""
        pairs = enumerate(zip(self.actions, self.children, strict=True))
        return tuple(at for at, (action, child) in pairs if child != UNKNOWN or action.kind == STOP_KIND)


@dataclass(frozen=True, eq=False)
class RecordedTree:
    """One task's tree. key: hash of the task's text. graph: None where the task does not export. open: whether
    actions stand among the legal ones that are not (see `mtmc.rl.train.open_space`)."""

    key: str
    name: str
    split: Split
    text: str
    hardware: str
    graph: GraphFacts | None
    nodes: tuple[RecordedNode, ...]
    open: bool = False
    _observations: dict[int, Observation] = field(default_factory=dict, repr=False)

    @property
    def root(self) -> RecordedNode:
        """The reference itself."""
        return self.nodes[0]

    @cached_property
    def values(self) -> tuple[float, ...]:
        """log2 of each version's speedup over the root, the floor for a failure (`mtmc.reward.log_speedup`)."""
        return tuple(log_speedup(node.outcome, self.root.outcome) for node in self.nodes)

    @property
    def best_value(self) -> float:
        """The greatest of `values`: log2 of the best known speedup."""
        return max(self.values)

    @cached_property
    def task(self) -> Task:
        """The task with its declared shapes; nothing is run for it."""
        return recorded_task(self.name, self.text)

    def observation(self, node_id: int) -> Observation:
        """What a policy sees of a version, but for its text (see `version_text`)."""
        if node_id not in self._observations:
            node = self.nodes[node_id]
            self._observations[node_id] = Observation(
                self.task, "", node.plan, node.outcome, self._history(node_id), self.hardware
            )
        return self._observations[node_id]

    def children_of(self, node_id: int) -> Children:
        """The plans after the actions of a version, where they lead to a known one. In a tree that is open nobody knows what
        an action makes before it is tried, or its plan would tell that it is legal."""
        node = self.nodes[node_id]
        known = {
            action.key: child for action, child in zip(node.actions, node.children, strict=True) if child != UNKNOWN
        }

        def child(action: Action) -> Plan | None:
            at = None if self.open else known.get(action.key)
            plan = None if at is None else self.nodes[at].plan
            return None if plan is None else plan_from_json(plan)

        return child

    def version_text(self, node_id: int) -> str:
        """The text of a version, printed from its plan. Raises: RunError where it has none, CoderError, TaskError."""
        plan = self.nodes[node_id].plan
        if plan is None:
            raise RunError(f"version {node_id} of {self.name} has no plan, so its text was not kept; look into its run")
        return version_text(self.task, plan)

    def _history(self, node_id: int) -> tuple[Step, ...]:
        node = self.nodes[node_id]
        if node.parent_id is None or node.action is None:
            return ()
        step = Step(node.action, "", node.outcome, speedup(node.outcome, self.root.outcome))
        return (*self.observation(node.parent_id).history, step)


def load_trees(folder: Path, split: Split | None = None) -> list[RecordedTree]:
    """The trees of a data set, of one split or of all, by task. Raises: RunError as `dataset.read_tables`."""
    return trees_of(read_tables(folder, split))


def trees_of(tables: Mapping[str, pyarrow.Table]) -> list[RecordedTree]:
    """The trees of tables in memory."""
    nodes = _grouped(tables["nodes"])
    transitions = _grouped(tables["transitions"])
    return [_tree(row, nodes.get(row["task"], []), transitions.get(row["task"], [])) for row in _rows(tables["tasks"])]


def recorded_task(name: str, text: str) -> Task:
    """A task from its text with the shapes that it declares; without any, with its full shapes alone."""
    declared = declared_variants(check_source(text, name), name)
    small = declared.pop("small", Variant("full"))
    held_out = tuple(declared[label] for label in sorted(declared, key=lambda label: int(label.removeprefix("odd"))))
    return Task(name, text, Variant("full"), small, held_out)


def _tree(row: Mapping[str, Any], nodes: list[dict[str, Any]], transitions: list[dict[str, Any]]) -> RecordedTree:
    legal: dict[int, list[dict[str, Any]]] = {}
    for each in transitions:
        legal.setdefault(each["node"], []).append(each)
    actions = {node: tuple(map(_action_of, rows)) for node, rows in legal.items()}
    made = []
    for each in nodes:
        parent = each["parent"]
        rows = legal.get(each["node"], [])
        made.append(
            RecordedNode(
                id=each["node"],
                parent_id=parent,
                action=None if parent is None else actions[parent][each["action"]],
                depth=each["depth"],
                version=each["version"],
                plan=each["plan"],
                outcome=_outcome(each),
                actions=actions.get(each["node"], ()),
                children=tuple(UNKNOWN if line["child"] is None else line["child"] for line in rows),
            )
        )
    graph = None if row["graph"] is None else graph_from_json(row["graph"])
    return RecordedTree(row["task"], row["name"], row["split"], row["text"], row["hardware"], graph, tuple(made))


def _action_of(row: Mapping[str, Any]) -> Action:
    return _action(
        row["kind"],
        row["region"],
        row["params"],
        row["sentence"],
        row["first_line"],
        row["last_line"],
        row["lines_told"],
    )


@lru_cache(maxsize=2**17)
def _action(kind: str, region: str, params: str, sentence: str, first: int, last: int, told: bool) -> Action:
    whole = sentence + lines_text(first, last) if told else sentence
    return Action(kind, Region(region, first, last), tuple(sorted(json.loads(params).items())), whole)


def _outcome(row: Mapping[str, Any]) -> Outcome:
    failed = row["failure_kind"] is not None
    return Outcome(
        row["status"],
        row["runtime_ms"],
        row["runtime_low_ms"],
        row["runtime_high_ms"],
        runtime_kind=row["runtime_kind"],
        metrics={name: row[f"metric_{name}"] for name in METRICS if row.get(f"metric_{name}") is not None},
        diagnosis=Diagnosis(row["failure_stage"], row["failure_kind"], row["failure_message"]) if failed else None,
    )


def _grouped(table: pyarrow.Table) -> dict[str, list[dict[str, Any]]]:
    groups: dict[str, list[dict[str, Any]]] = {}
    for row in _rows(table):
        groups.setdefault(row["task"], []).append(row)
    return groups


def _rows(table: pyarrow.Table) -> Iterator[dict[str, Any]]:
    """Rows in the order of the file: by task, node and action."""
    names = table.column_names
    for values in zip(*(table[name].to_pylist() for name in names), strict=True):
        yield dict(zip(names, values, strict=True))
