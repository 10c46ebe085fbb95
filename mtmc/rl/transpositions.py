"""transpositions: actions that were never tried, but lead to a version that is in the tree: transitions for nothing.

A tile set on a kernel gives the same version from any other tile of it. With a deterministic coder the text alone says
so: nothing is evaluated.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from mtmc.action import STOP_KIND, Action
from mtmc.errors import CoderError
from mtmc.protocols import Coder, EditRequest
from mtmc.search.run_state import history
from mtmc.task import Task
from mtmc.tree import Tree

Edge = tuple[int, int]
"""(node id, action index)."""


def transpositions(
    task: Task, tree: Tree, legal: Mapping[int, Sequence[Action]], coder: Coder, hardware: str, known: Collection[Edge]
) -> dict[Edge, int]:
    """Edges that lead to a version of `tree`, by what `coder` writes -> id of that version.

    legal: actions by node id. hardware: name of the GPU that the versions are for. known: edges that were tried, which
    are left out, as is `STOP`. Empty for a coder that is not deterministic.
    """
    found: dict[Edge, int] = {}
    if not coder.deterministic:
        return found
    for node in tree:
        steps = history(tree, node.id)
        for index, action in enumerate(legal.get(node.id, ())):
            if (node.id, index) in known or action.kind == STOP_KIND:
                continue
            request = EditRequest(task, node.source, node.plan, node.outcome, action, hardware, steps)
            try:
                edit = coder.edit(request)
            except CoderError:
                continue
            child = tree.find(edit.source)
            if child is not None:
                found[(node.id, index)] = child.id
    return found
