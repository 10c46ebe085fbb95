"""Tell: a tree and its versions as plain text."""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

from mtmc.errors import RunError
from mtmc.export.prices import by_node
from mtmc.export.record import edge_prior, speedup_kind
from mtmc.export.text import factor, one_line, quantity, result_of, runtime
from mtmc.tree import NO_PARENT, ROOT_ID, KernelNode, Tree

if TYPE_CHECKING:
    from mtmc.export.record import RunRecord

SHOWN = 100
"""A larger tree is shown by the way to its best version, unless all of it is asked for."""


def node_id(tree: Tree, text: str) -> int:
    """The id that a user means: a number, "root" or "best". Raises: RunError if there is no such version."""
    if text in ("root", "best"):
        return ROOT_ID if text == "root" else tree.best.id
    if not text.isdigit() or int(text) >= len(tree):
        raise RunError(f"there is no version {text!r}: use a number from 0 to {len(tree) - 1}, or root, or best")
    return int(text)


def tree_text(tree: Tree, whole: bool = False) -> str:
    """The tree as lines, each version below the one it was made from; the way to the best is marked."""
    best = {node.id for node in tree.path(tree.best.id)}
    lines = ["version  result            action"]
    shown = (
        list(_depth_first(tree)) if whole or len(tree) <= SHOWN else [(i, tree[n]) for i, n in enumerate(sorted(best))]
    )
    for depth, node in shown:
        mark = "*" if node.id == tree.best.id else "." if node.id in best else " "
        sentence = "the reference" if node.action is None else one_line(node.action.sentence)
        lines.append(f"{node.id:>6} {mark} {result_of(tree, node.id):<17} {'  ' * depth}{sentence}")
    lines.append("* the best version, . the way to it")
    if len(shown) < len(tree):
        lines.append(f"{len(tree) - len(shown)} of {len(tree)} versions are not shown: add --all")
    return "\n".join(lines)


def node_text(record: RunRecord, node: KernelNode) -> str:
    """All about one version: where it comes from, what came out, and its difference to its parent (a root's source)."""
    tree = record.tree
    facts = list(_facts(record, node))
    width = max(len(name) for name, _ in facts)
    lines = [f"{name:<{width}}  {text}" for name, text in facts]
    text = node.source if node.parent_id == NO_PARENT else diff_text(tree, node)
    return "\n".join([*lines, "", text.rstrip("\n")])


def diff_text(tree: Tree, node: KernelNode) -> str:
    """Unified difference of a version to its parent; the root's is to an empty file."""
    parent = "" if node.parent_id == NO_PARENT else tree[node.parent_id].source
    before, after = (text.splitlines(keepends=True) for text in (parent, node.source))
    name = "/dev/null" if node.parent_id == NO_PARENT else f"nodes/{node.parent_id}.py"
    lines = list(difflib.unified_diff(before, after, name, f"nodes/{node.id}.py"))
    return "".join(line if line.endswith("\n") else line + "\n" for line in lines)


def _facts(record: RunRecord, node: KernelNode) -> Iterator[tuple[str, str]]:
    tree, outcome, action = record.tree, node.outcome, node.action
    children = ", ".join(str(child.id) for child in tree.children(node.id)) or "none"
    parent = "" if node.parent_id == NO_PARENT else f", made from {node.parent_id}"
    yield "version", f"{node.id} of {tree.task_name}{parent}, {tree.depth(node.id)} steps from the root"
    yield "children", children
    if action is not None:
        yield "action", action.sentence
        yield "kind", f"{action.kind} of {action.region}"
    prior = edge_prior(record, node)
    if prior is not None:
        yield "prior", f"{prior:.3f}"
    for name, value in record.annotations.get(node.id, {}).items():
        if name != "prior":
            yield name, f"{value:.4g}"
    if node.repairs:
        yield "repairs", str(node.repairs)
    paid = by_node(tree, record.calls).get(node.id)
    if paid is not None:
        tokens = f"{paid.tokens_in:,} tokens in, {paid.tokens_out:,} out"
        yield "models", f"{paid.calls} calls, {tokens}, {paid.money}"
    yield "outcome", outcome.status.replace("_", " ")
    if outcome.runtime_ms is not None:
        gain = tree.speedup(node.id)
        times = "" if gain is None else f", {factor(gain)} the root's speed ({speedup_kind(tree, node.id)})"
        yield "runtime", f"{runtime(outcome.runtime_ms)} {outcome.runtime_kind}{times}"
    for name in sorted(outcome.metrics):
        value = outcome.metrics[name]
        yield name, quantity(name, value) if math.isfinite(value) else str(value)
    if outcome.diagnosis is not None:
        found = outcome.diagnosis
        where = "" if found.line is None else f", line {found.line}"
        yield "failed in", f"{found.stage}{where}: {found.kind}: {one_line(found.message, 300)}"
        for line in found.excerpt.splitlines():
            yield "", line
    yield "tolerance", record.contract
    yield "actions", f"{len(record.legal.get(node.id, ()))} legal"


def _depth_first(tree: Tree) -> Iterator[tuple[int, KernelNode]]:
    """(depth, node), parents first, children in the order in which they were made."""
    waiting = [(0, tree.root)]
    while waiting:
        depth, node = waiting.pop()
        yield depth, node
        waiting += [(depth + 1, child) for child in reversed(tree.children(node.id))]
