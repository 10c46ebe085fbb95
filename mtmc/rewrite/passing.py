"""passing: ops that give what they are given, which are no ops of the graph: dropouts of nothing, casts to the same type,
copies that nobody tells from what they are of.

A copy is one of these only where it is of a new tensor that nothing else reads. An op's schema does not always say whether
it makes one: `einsum` may be a transposition, `type_as` nothing at all. Tensors without data say it, by what they share.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mtmc.task.tensors import storage_key

if TYPE_CHECKING:
    from torch.export import ExportedProgram
    from torch.fx import Node

_CAST = "aten.type_as.default"
_DROPOUTS = ("aten.dropout.default", "aten.feature_dropout.default", "aten.alpha_dropout.default")


def passed_on(node: Node) -> Node | None:
    """What an op gives as it is: a dropout of nothing or outside of training, a cast to the same type, and a copy of what
    nothing else reads and an op has made anew. None for another op."""
    if str(node.target) != "aten.clone.default":
        return _itself(node)
    source = node.args[0]
    return source if not node.kwargs and _is_new(source) else None  # type: ignore[arg-type, return-value]


def without_passing_on(program: ExportedProgram) -> None:
    """Take ops that give their operand itself out of an export that is not functional yet, in place.

    What changes their result changes that; torch takes it for a tensor of its own.
    """
    for node in list(program.graph.nodes):
        source = _itself(node)
        if source is not None:
            node.replace_all_uses_with(source)
            program.graph_signature.replace_all_uses(node.name, source.name)
            program.graph.erase_node(node)


def _itself(node: Node) -> Node | None:
    """The operand that a dropout gives where it drops nothing, and `type_as` where it casts nothing; else None."""
    if str(node.target) == _CAST:
        return node.args[0] if _share(node, node.args[0]) else None  # type: ignore[arg-type, return-value]
    if str(node.target) not in _DROPOUTS:
        return None
    source, share, training = node.args
    return source if not training or share == 0.0 else None  # type: ignore[return-value]


def _is_new(node: Node) -> bool:
    """Whether one op alone reads a node, which is a tensor of its own."""
    if node.op != "call_function" or len(node.users) != 1:
        return False
    source = _itself(node)
    if source is not None:
        return _is_new(source)
    schema = getattr(node.target, "_schema", None)
    made = schema is not None and len(schema.returns) == 1 and schema.returns[0].alias_info is None
    return made and not any(_share(node, each) for each in node.all_input_nodes)


def _share(one: Node, other: Node) -> bool:
    """Whether two nodes' tensors lie in the same memory."""
    import torch
    from torch.utils._pytree import tree_leaves

    tensors = [each.meta.get("val") for each in (one, other)]
    a, b = ([storage_key(part) for part in tree_leaves(each) if isinstance(part, torch.Tensor)] for each in tensors)
    return not set(a).isdisjoint(b)
