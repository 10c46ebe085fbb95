"""Where in a file a module, a function like `getattr`, or a class that others use too may stand.

A class that is only looked at, called, derived from, or named as a type cannot be patched through another name; one
that is handed on as a value can. Read by `mtmc.evaluate.audit.audit`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from mtmc.evaluate.audit.allowlist import GENERIC, LOOKING
from mtmc.evaluate.audit.denylist import BY_NAME
from mtmc.evaluate.audit.tracking import Tracking

_TYPING = ("typing", "typing_extensions", "collections")


class Places:
    """Places of nodes in one file, by the nodes' identity: they must outlive this object."""

    def __init__(self, nodes: Sequence[ast.AST], names: Tracking) -> None:
        self._names = names
        self._leading: set[int] = set()
        self._seen: set[int] = set()
        self._setters: set[int] = set()
        for node in nodes:
            self._note(node)

    def leads_on(self, node: ast.AST) -> bool:
        """Whether a node is the beginning of a longer path, or getattr or its first argument where it is called."""
        return id(node) in self._leading

    def is_seen(self, node: ast.AST) -> bool:
        """Whether a node stands where a class is not handed on."""
        return id(node) in self._seen

    def sets_own(self, node: ast.AST) -> bool:
        """Whether a node is `object.__setattr__` called on an object of the file's own."""
        return id(node) in self._setters

    def _note(self, node: ast.AST) -> None:
        if isinstance(node, ast.Attribute):
            self._leading.add(id(node.value))
            self._see(node.value)
        elif isinstance(node, ast.Call):
            self._see(node.func)
            self._note_call(node)
        elif isinstance(node, ast.Compare):
            self._see(node.left, *node.comparators)
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
            self._see(node.left, node.right)
        elif isinstance(node, ast.Subscript) and self._is_generic(node.value):
            self._see(*_types(node.slice))
        elif isinstance(node, ast.arg | ast.AnnAssign):
            self._see(*_types(node.annotation))
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            self._see(*_types(node.returns))
        elif isinstance(node, ast.ClassDef):
            self._see(*node.bases)
        elif isinstance(node, ast.ExceptHandler):
            self._see(*_types(node.type))
        elif isinstance(node, ast.FormattedValue):
            self._see(node.value)
        elif isinstance(node, ast.MatchClass):
            self._see(node.cls)

    def _note_call(self, node: ast.Call) -> None:
        called = node.func
        if isinstance(called, ast.Attribute):
            if self._names.path(called) in ("typing.cast", "typing_extensions.cast"):
                self._see(*_types(node.args[0] if node.args else None))
            plain = isinstance(called.value, ast.Name) and called.value.id == "object"
            if plain and called.attr == "__setattr__" and node.args and self._names.is_own(node.args[0]):
                self._setters.add(id(called))
        elif isinstance(called, ast.Name):
            known = self._names.is_builtin(called.id)  # another function of that name may hand on what it is given
            if known and called.id in BY_NAME and len(node.args) >= 2:
                self._leading.add(id(called))
            if known and called.id in (*BY_NAME, "hasattr") and node.args:
                self._leading.add(id(node.args[0]))
            if self._names.path(called) in ("typing.cast", "typing_extensions.cast"):
                self._see(*_types(node.args[0] if node.args else None))
            if called.id in LOOKING and known:
                for argument in node.args:
                    self._see(*_types(argument))

    def _see(self, *nodes: ast.AST) -> None:
        self._seen.update(map(id, nodes))

    def _is_generic(self, node: ast.expr) -> bool:
        """Whether what stands in brackets after it are types: list[...], typing.Optional[...]."""
        builtin = isinstance(node, ast.Name) and node.id in GENERIC and self._names.is_builtin(node.id)
        return builtin or (self._names.path(node) or "").split(".")[0] in _TYPING


def _types(node: ast.AST | None) -> Iterator[ast.AST]:
    """The parts of an expression that names types, so far as it does nothing else."""
    stack = [node]
    while stack:
        part = stack.pop()
        if part is None:
            continue
        yield part
        if isinstance(part, ast.Tuple | ast.List):
            stack += part.elts
        elif isinstance(part, ast.BinOp):
            stack += [part.left, part.right]
        elif isinstance(part, ast.Subscript):
            stack.append(part.slice)
