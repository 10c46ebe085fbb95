"""side_by_side: an export at other shapes, brought node by node next to the export at the full shapes.

torch leaves out copies that change nothing: `contiguous()` of a transpose is a copy, but not where one of its dimensions
is 1, and `reshape` is a view or a copy and a view. Such exports compute the same, and have the same nodes once copies are
where the full shapes have them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch.fx import Node

_COPIES = ("aten.clone.default", "aten.contiguous.default")
"""Ops whose result has the values of their operand, laid out anew."""
_VIEWS = ("aten.view.default", "aten._unsafe_view.default", "aten.reshape.default")
"""Ops that take a tensor and its new shape, and differ by whether they may copy."""


def beside(full: Sequence[Node], other: Sequence[Node]) -> list[Node] | None:
    """The nodes of another export, one for each of those at the full shapes.

    Its own copies are left out; those of the full shapes get nodes of their own, which are put into its graph.
    Returns: None where the exports differ by more than copies.
    """
    firsts, seconds = [[node for node in nodes if not _copies(node)] for nodes in (full, other)]
    if len(firsts) != len(seconds):
        return None
    partner: dict[Node, Node] = {}
    for node, found in zip(firsts, seconds, strict=True):
        if not _alike(node, found) or [partner[each] for each in _read(node)] != _read(found):
            return None
        partner[node] = found
    for node, found in partner.items():
        if node.target != found.target and node.op == "call_function":
            _view_as(node, found)
    return [partner.get(node) or _copy(node, partner) for node in full]


def _copies(node: Node) -> bool:
    return str(node.target) in _COPIES


def _alike(node: Node, other: Node) -> bool:
    if node.op != "call_function" or other.op != "call_function":
        return node.op == other.op
    return node.target == other.target or {str(node.target), str(other.target)} <= set(_VIEWS)


def _view_as(node: Node, found: Node) -> None:
    """Make a view the same op; one may leave a size to torch (-1) that the other one names."""
    found.target = node.target
    sizes = zip(node.args[1], found.meta["val"].shape, strict=True)  # type: ignore[arg-type]
    found.args = (found.args[0], [-1 if each == -1 else int(size) for each, size in sizes])


def _read(node: Node) -> list[Node]:
    """What a node reads, each once, and for copies what they are made of."""
    return list(dict.fromkeys(map(_made_of, node.all_input_nodes)))


def _made_of(node: Node) -> Node:
    while _copies(node):
        node = node.all_input_nodes[0]
    return node


def _copy(node: Node, partner: dict[Node, Node]) -> Node:
    """The same copy in the other export; `partner` learns of it, since a copy may be copied."""
    source = partner[node.all_input_nodes[0]]
    with source.graph.inserting_after(source):
        made = source.graph.call_function(node.target, (source,), dict(node.kwargs))  # type: ignore[arg-type]
    made.meta["val"] = node.target(source.meta["val"], **node.kwargs)  # type: ignore[operator]
    partner[node] = made
    return made
