"""What is read off an exported graph before it is printed: which nodes are needed, and which may be changed later."""

from __future__ import annotations

import operator

import torch

_ROWS = "aten.embedding.default"
_SAME_NUMBERS = (
    *("aten.view.", "aten.reshape.", "aten.flatten.", "aten.unsqueeze.", "aten.squeeze."),
    *("aten.to.", "aten._to_copy.", "aten.clone."),
)
_NO_MEANING = ("_assert", "sym_constrain_range")
_NO_VALUES = (*_NO_MEANING, "sym_size")


def needed_nodes(graph: torch.fx.Graph) -> set[torch.fx.Node]:
    """The nodes that the output needs, with the calls that change a tensor in place; without assertions."""
    live: set[torch.fx.Node] = set()
    for node in reversed(graph.nodes):
        schema = getattr(node.target, "_schema", None)
        changes = (schema is not None and schema.is_mutable) or _changes_inside(node)
        name = str(node.target).removeprefix("aten.")
        if node.op == "output" or changes or (node in live and not name.startswith(_NO_MEANING)):
            live.add(node)
            live.update(node.all_input_nodes)
    return live


def is_looked_up(node: torch.fx.Node) -> bool:
    """Whether integers only say which rows of tables are meant, as tokens do: any others in their range may too."""
    asked = [user for user in node.users if not str(user.target).removeprefix("aten.").startswith(_NO_VALUES)]

    def looks_up(user: torch.fx.Node) -> bool:
        if str(user.target) == _ROWS:
            return user.args[0] is not node
        return str(user.target).startswith(_SAME_NUMBERS) and is_looked_up(user)

    return bool(asked) and all(map(looks_up, asked))


def is_written(node: torch.fx.Node) -> bool:
    """Whether a call may change what this one gives, or a view of it."""
    for user in node.users:
        schema = getattr(user.target, "_schema", None)
        if schema is None:
            # A part of a list is followed; what a part of forward does with it stands elsewhere.
            if user.op != "output" and (user.target is not operator.getitem or is_written(user)):
                return True
            continue
        for at, argument in enumerate(schema.arguments):
            given = user.args[at] if at < len(user.args) else user.kwargs.get(argument.name)
            alias = argument.alias_info if given is node else None
            if alias is not None and (alias.is_write or is_written(user)):
                return True
    return False


def _changes_inside(node: torch.fx.Node) -> bool:
    """Whether a call of a part of forward changes tensors in place there."""
    parts = [graph_module(item) for item in node.all_input_nodes if item.op == "get_attr"]
    nodes = [each for part in parts if part is not None for each in part.graph.nodes]
    return any(bool(getattr(getattr(each.target, "_schema", None), "is_mutable", False)) for each in nodes)


def graph_module(node: torch.fx.Node) -> torch.fx.GraphModule | None:
    """The graph module that a get_attr node stands for, None if it stands for something else."""
    module = getattr(node.graph.owning_module, str(node.target), None)
    return module if isinstance(module, torch.fx.GraphModule) else None
