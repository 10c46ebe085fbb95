"""Notebook: a result and its tree as the HTML that a notebook shows. All text of a version is escaped."""

from __future__ import annotations

import html

from mtmc.export.record import speedup_kind
from mtmc.export.text import BEST_COLOUR, colour_of, factor, kind_of, one_line, result_of, runtime
from mtmc.tree import ROOT_ID, KernelNode, Tree

SHOWN = 200
"""Versions of a tree that are shown; of a larger one the first, and how many there are."""


def result_html(tree: Tree, evaluations: int, finished: str | None) -> str:
    """What a search has found: the best version, its runtime (ms), and the steps to it, above the tree."""
    best = tree.best
    gain = tree.speedup(best.id)
    rows = [("task", tree.task_name), ("best", f"version {best.id}")]
    if best.outcome.runtime_ms is not None:
        rows.append(("runtime", f"{runtime(best.outcome.runtime_ms)} {best.outcome.runtime_kind}"))
    if gain is not None:
        rows.append(("speedup", f"{factor(gain)} ({speedup_kind(tree, best.id)})"))
    rows += [("versions", f"{len(tree)}, {evaluations} evaluations"), ("ended", finished or "not yet")]
    cells = "".join(
        f"<tr><th style='text-align:left'>{name}</th><td>{html.escape(text)}</td></tr>" for name, text in rows
    )
    steps = [html.escape(one_line(node.action.sentence)) for node in tree.path(best.id) if node.action is not None]
    listed = f"<ol>{''.join(f'<li>{step}</li>' for step in steps)}</ol>" if steps else ""
    return f"<div><table>{cells}</table>{listed}<details><summary>tree</summary>{tree_html(tree)}</details></div>"


def tree_html(tree: Tree) -> str:
    """The tree as an indented list, each version below the one that it was made from; the way to the best is marked."""
    path = {node.id for node in tree.path(tree.best.id)}
    lines: list[str] = []
    waiting = [(0, tree.root)]
    while waiting and len(lines) < SHOWN:
        depth, node = waiting.pop()
        lines.append(_line(tree, node, depth, node.id in path))
        waiting += [(depth + 1, child) for child in reversed(tree.children(node.id))]
    more = f"<div>{len(tree) - len(lines)} more versions are not shown</div>" if len(lines) < len(tree) else ""
    return f"<div style='font-family:monospace'>{''.join(lines)}{more}</div>"


def _line(tree: Tree, node: KernelNode, depth: int, on_path: bool) -> str:
    border = f"border-left:4px solid {BEST_COLOUR if on_path else 'transparent'}"
    sentence = "the reference" if node.id == ROOT_ID or node.action is None else one_line(node.action.sentence)
    told = html.escape(f"#{node.id} {kind_of(node)}: {result_of(tree, node.id)}")
    badge = f"<span style='background:{colour_of(tree, node.id)};color:#fff;padding:0 4px'>{told}</span>"
    return f"<div style='margin-left:{depth * 16}px;padding-left:4px;{border}'>{badge} {html.escape(sentence)}</div>"
