"""A run's tree as text that other tools draw: DOT for Graphviz, Mermaid for Markdown.

The best path is highlighted, edits that gave a version again are dashed, and every speedup says whether it is measured or
estimated. Names and sentences come from generated code, so everything is escaped.
"""

from __future__ import annotations

from mtmc.export.record import RunRecord, best_path, second_parents
from mtmc.export.text import BEST_COLOUR, clean, colour_of, kind_of, one_line, result_of
from mtmc.tree import NO_PARENT, ROOT_ID, KernelNode, Tree

MERMAID_LIMIT = 150
"""Mermaid's own limits are 500 edges and 50,000 characters: it draws nothing at all beyond them."""


def to_dot(record: RunRecord) -> str:
    """The whole tree in Graphviz's language, for `dot -Tsvg tree.dot > tree.svg`."""
    tree = record.tree
    path = set(best_path(tree))
    lines = [
        f"digraph {_dot(tree.task_name)} {{",
        "  rankdir=LR;",
        '  node [shape=box, style="rounded,filled", penwidth=0, fontname="Helvetica", fontsize=11, fontcolor="white"];',
        '  edge [color="#9aa4b2", arrowsize=0.6];',
    ]
    for node in tree:
        label = "\n".join(_label(tree, node))
        tooltip = one_line(node.action.sentence) if node.action else "the reference"
        best = f', color="{BEST_COLOUR}", penwidth=3' if node.id in path else ""
        fill = colour_of(tree, node.id)
        lines.append(f'  {node.id} [label={_dot(label)}, tooltip={_dot(tooltip)}, fillcolor="{fill}"{best}];')
    for node in tree:
        if node.parent_id != NO_PARENT:
            best = f' [color="{BEST_COLOUR}", penwidth=3]' if node.id in path else ""
            lines.append(f"  {node.parent_id} -> {node.id}{best};")
    lines += [f"  {parent} -> {child} [style=dashed, constraint=false];" for parent, child in second_parents(record)]
    return "\n".join([*lines, "}"]) + "\n"


def to_mermaid(record: RunRecord, limit: int = MERMAID_LIMIT) -> str:
    """The tree as a Mermaid flowchart of at most `limit` versions.

    Where there are more, the best path and then the fastest versions are drawn, each with its ancestors, and one node
    says how many were left out.
    """
    tree = record.tree
    path, drawn = set(best_path(tree)), _most_telling(tree, limit)
    lines = ["flowchart LR"]
    edges: list[tuple[int, int]] = []
    for node in tree:
        if node.id not in drawn:
            continue
        lines.append(f'  n{node.id}["{"<br/>".join(_mermaid(part) for part in _label(tree, node))}"]')
        lines.append(f"  style n{node.id} fill:{colour_of(tree, node.id)},color:#fff,{_mermaid_border(node, path)}")
        if node.parent_id != NO_PARENT:
            edges.append((node.parent_id, node.id))
    lines += [f"  n{parent} --> n{child}" for parent, child in edges]
    best = [str(position) for position, (_, child) in enumerate(edges) if child in path]
    if best:
        lines.append(f"  linkStyle {','.join(best)} stroke:{BEST_COLOUR},stroke-width:4px")
    lines += [f"  n{a} -.-> n{b}" for a, b in second_parents(record) if a in drawn and b in drawn]
    if len(drawn) < len(tree):
        lines.append(f'  more["{len(tree) - len(drawn)} more versions are not drawn"]')
    return "\n".join(lines) + "\n"


def _label(tree: Tree, node: KernelNode) -> tuple[str, str]:
    region = f" {one_line(node.action.region.name, 24)}" if node.action else ""
    return f"#{node.id} {kind_of(node)}{region}", result_of(tree, node.id)


def _dot(text: str) -> str:
    escaped = clean(text).replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def _mermaid(text: str) -> str:
    """Everything but letters, digits and a few harmless signs as numeric character codes, which Mermaid shows as the
    characters and never reads as its syntax, as Markdown or as HTML."""
    return "".join(char if char.isalnum() or char in " .,:-_/" else f"#{ord(char)};" for char in text)


def _mermaid_border(node: KernelNode, path: set[int]) -> str:
    return f"stroke:{BEST_COLOUR},stroke-width:4px" if node.id in path else "stroke-width:0px"


def _most_telling(tree: Tree, limit: int) -> set[int]:
    """Ids of at most `limit` versions, closed under "parent of": the best path first, then the fastest."""
    chosen = set(best_path(tree)[: max(1, limit)])
    for node in sorted(tree, key=lambda node: (-(tree.speedup(node.id) or 0.0), node.id)):
        lineage: list[int] = []
        node_id = node.id
        while node_id != NO_PARENT and node_id not in chosen:
            lineage.append(node_id)
            node_id = tree[node_id].parent_id
        if len(chosen) + len(lineage) <= limit:
            chosen.update(lineage)
        if len(chosen) >= limit:
            break
    return chosen | {ROOT_ID}
