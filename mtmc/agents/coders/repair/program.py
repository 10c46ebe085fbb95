"""Program: one source as a concrete syntax tree, and the questions that rules ask of it."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar, cast

import libcst as cst
from libcst.metadata import MetadataWrapper, PositionProvider

Node = TypeVar("Node", bound=cst.CSTNode)
New = cst.CSTNode | cst.FlattenSentinel[Any] | Callable[[Any], cst.CSTNode]
"""What a node becomes; a function is given the node with the changes inside it made."""

_SHORT = {"triton": "triton", "triton.language": "tl", "torch": "torch"}


class Program:
    """A source that parses. Immutable; nodes are compared by identity.

    source: the text. module: its tree. functions: all `def`s, in the order of the text.
    """

    def __init__(self, source: str, module: cst.Module) -> None:
        self.source, self.module = source, module
        self._wrapper = MetadataWrapper(module, unsafe_skip_copy=True)
        self._parents: dict[cst.CSTNode, cst.CSTNode] = {}
        self._all: list[cst.CSTNode] = []  # in the order of the text, each before its parts
        self._ends: dict[cst.CSTNode, tuple[int, int]] = {}  # of a node: where it and its parts lie in `_all`
        self._enlist(module)
        self._bound: dict[cst.CSTNode, dict[str, list[cst.BaseExpression | None]]] = {}  # by the node within which
        self.functions = [node for node in self._all if isinstance(node, cst.FunctionDef)]
        self._imports = dict(self._imported())

    @classmethod
    def parse(cls, source: str) -> Program | None:
        """The program of a text; None where it is no Python."""
        try:
            return cls(source, cst.parse_module(source))
        except (cst.ParserSyntaxError, cst.CSTValidationError, RecursionError):
            return None

    # --- nodes -------------------------------------------------------------------------------------------------------

    def find(self, kind: type[Node], within: cst.CSTNode | None = None) -> list[Node]:
        """All nodes of one kind, in the order of the text."""
        return [node for node in self._below(within) if isinstance(node, kind)]

    def _below(self, node: cst.CSTNode | None) -> list[cst.CSTNode]:
        start, end = (0, None) if node is None else self._ends[node]
        return self._all[start:end]

    def _enlist(self, node: cst.CSTNode) -> None:
        start = len(self._all)
        self._all.append(node)
        for part in node.children:
            self._parents[part] = node
            self._enlist(part)
        self._ends[node] = (start, len(self._all))

    def code(self, node: cst.CSTNode) -> str:
        """The node's text."""
        return self.module.code_for_node(node)

    def lines(self, node: cst.CSTNode) -> tuple[int, int]:
        """First and last line, 1-based."""
        place = cast(Any, self._wrapper.resolve(PositionProvider)[node])
        return place.start.line, place.end.line

    def at(self, kind: type[Node], line: int | None) -> list[Node]:
        """Nodes of one kind that `line` is part of, the shortest first."""
        if line is None:
            return []
        found = [node for node in self.find(kind) if self.lines(node)[0] <= line <= self.lines(node)[1]]
        return sorted(found, key=lambda node: len(self.code(node)))

    def parent(self, node: cst.CSTNode) -> cst.CSTNode | None:
        """The node that this one is a direct part of."""
        return self._parents.get(node)

    def around(self, node: cst.CSTNode, kind: type[Node]) -> Node | None:
        """The innermost node of one kind that this one is a part of."""
        above = self.parent(node)
        while above is not None and not isinstance(above, kind):
            above = self.parent(above)
        return above

    def function_at(self, line: int | None) -> cst.FunctionDef | None:
        """The innermost `def` that `line` is part of."""
        return next(iter(self.at(cst.FunctionDef, line)), None)

    # --- names -------------------------------------------------------------------------------------------------------

    def path(self, node: cst.CSTNode) -> str | None:
        """Dotted path of an expression that starts at an imported name: "triton.language.load" for `tl.load`."""
        rest: list[str] = []
        while isinstance(node, cst.Attribute):
            rest.append(node.attr.value)
            node = node.value
        if not isinstance(node, cst.Name) or node.value not in self._imports:
            return None
        return ".".join([self._imports[node.value], *reversed(rest)])

    def module_name(self, path: str) -> str | None:
        """What an imported module is called here: "tl" for "triton.language"; None where it is not imported."""
        names = [name for name, imported in self._imports.items() if imported == path]
        preferred = _SHORT.get(path)
        return preferred if preferred in names else next(iter(names), None)

    def calls(self, path: str, within: cst.CSTNode | None = None) -> list[cst.Call]:
        """The calls of an imported function."""
        return [call for call in self.find(cst.Call, within) if self.path(call.func) == path]

    def bound_in_module(self) -> set[str]:
        """Names that the module's top level binds."""
        names = set(self._imports)
        for statement in self.module.body:
            if isinstance(statement, cst.FunctionDef | cst.ClassDef):
                names.add(statement.name.value)
            else:
                names.update(name for name, _ in self.bindings(statement))
        return names

    def bindings(self, within: cst.CSTNode) -> Iterator[tuple[str, cst.BaseExpression | None]]:
        """(name, value) of all that the statements of a node bind, without parameters; None: the text does not show it."""
        for node in self._below(within):
            if isinstance(node, cst.Assign):
                for target in node.targets:
                    yield from _pairs(target.target, node.value)
            elif isinstance(node, cst.AnnAssign | cst.NamedExpr):
                yield from _pairs(node.target, node.value)
            elif isinstance(node, cst.AugAssign | cst.For | cst.CompFor):
                yield from _pairs(node.target, None)
            elif isinstance(node, cst.AsName):
                yield from _pairs(node.name, None)

    def values(self, name: str, within: cst.CSTNode) -> list[cst.BaseExpression | None]:
        """What a name is bound to in a function or in the module's own statements; None for what the text does not show.

        A parameter counts as None.
        """
        if within not in self._bound:
            parts: list[cst.CSTNode] = [within]
            if isinstance(within, cst.Module):
                parts = [part for part in within.body if not isinstance(part, cst.FunctionDef | cst.ClassDef)]
            found = self._bound.setdefault(within, {})
            for parameter in parameters(within):
                found.setdefault(parameter.name.value, []).append(None)
            for bound, value in (pair for part in parts for pair in self.bindings(part)):
                found.setdefault(bound, []).append(value)
        return self._bound[within].get(name, [])

    def value(self, name: str, within: cst.CSTNode) -> cst.BaseExpression | None:
        """What a name is bound to where it is bound only once, in a function or else in the module."""
        values = self.values(name, within)
        if not values and not isinstance(within, cst.Module):
            values = self.values(name, self.module)
        return values[0] if len(values) == 1 else None

    def _imported(self) -> Iterator[tuple[str, str]]:
        """(local name, path) of all imports, wherever they stand."""
        for node in self._all:
            if isinstance(node, cst.Import):
                for alias in node.names:
                    path = dotted(alias.name)
                    yield (local, path) if (local := _local(alias)) else (path.split(".")[0], path.split(".")[0])
            elif isinstance(node, cst.ImportFrom) and node.module and not isinstance(node.names, cst.ImportStar):
                for alias in node.names:
                    name = dotted(alias.name)
                    yield _local(alias) or name, f"{dotted(node.module)}.{name}"

    # --- changes -----------------------------------------------------------------------------------------------------

    def changed(self, changes: Mapping[cst.CSTNode, New]) -> str:
        """The text with some nodes exchanged, all the rest as it is. Of changes inside another only a function hears."""
        return self.module.visit(_Exchange(changes)).code


class _Exchange(cst.CSTTransformer):
    def __init__(self, changes: Mapping[cst.CSTNode, New]) -> None:
        super().__init__()
        self._changes = changes

    def on_leave(self, original_node: Any, updated_node: Any) -> Any:
        new = self._changes.get(original_node, updated_node)
        return new(updated_node) if callable(new) else new


def _local(alias: cst.ImportAlias) -> str | None:
    return alias.asname.name.value if alias.asname and isinstance(alias.asname.name, cst.Name) else None


def dotted(node: cst.CSTNode) -> str:
    """ "a.b.c" of a name or of attributes of one."""
    return f"{dotted(node.value)}.{node.attr.value}" if isinstance(node, cst.Attribute) else cast(cst.Name, node).value


def parameters(function: cst.CSTNode) -> list[cst.Param]:
    """All parameters of a `def`, without * and **."""
    if not isinstance(function, cst.FunctionDef):
        return []
    given = function.params
    return [*given.posonly_params, *given.params, *given.kwonly_params]


def _pairs(target: cst.CSTNode, value: cst.BaseExpression | None) -> Iterator[tuple[str, cst.BaseExpression | None]]:
    if isinstance(target, cst.Name):
        yield target.value, value
    elif isinstance(target, cst.Tuple | cst.List):
        parts = value.elements if isinstance(value, cst.Tuple | cst.List) else ()
        known = len(parts) == len(target.elements) and not any(isinstance(p, cst.StarredElement) for p in parts)
        for at, element in enumerate(target.elements):
            yield from _pairs(element.value, parts[at].value if known else None)


def number(node: cst.CSTNode | None) -> float | None:
    """The number that an expression is in the text: `1e-5`, `-1`, `float("-inf")`; None where it is no such."""
    if isinstance(node, cst.Integer | cst.Float):
        return float(node.evaluated_value)
    if isinstance(node, cst.UnaryOperation) and isinstance(node.operator, cst.Minus):
        inner = number(node.expression)
        return None if inner is None else -inner
    if isinstance(node, cst.Call) and isinstance(node.func, cst.Name) and node.func.value == "float" and node.args:
        text = node.args[0].value
        if isinstance(text, cst.SimpleString):
            try:
                return float(ast.literal_eval(text.value))
            except ValueError:
                return None
    return None


def each(nodes: list[Node], change: Callable[[Node], New | None]) -> dict[cst.CSTNode, New]:
    """The changes of those nodes that there is one for."""
    found = {node: change(node) for node in nodes}
    return {node: new for node, new in found.items() if new is not None}
