"""What the names of one file stand for: modules and their parts by dotted path, the file's own classes, or anything.

`Tracking` is made of a whole syntax tree, without regard to order or branches: a name is the file's own only if every
binding of it is. It is read by `mtmc.evaluate.audit.audit`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from mtmc.evaluate.audit.rules import is_patchable

Scope = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
_Comprehension = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp


class Tracking:
    """Names of a file. Attributes:

    paths: dotted path by the local name that it was imported or assigned under.
    fields: names of attributes that the file's own classes keep data in.
    methods: names of functions in the file's own classes.
    bound: every name that the file itself binds, imports left out.
    aliases: names that stand for one path by assignment.
    """

    def __init__(self, nodes: Sequence[ast.AST], paths: dict[str, str]) -> None:
        self.paths = paths
        self.aliases: set[str] = set()
        self._aliased: set[int] = set()
        self._classes = {node.name for node in nodes if isinstance(node, ast.ClassDef)}
        self._bindings: dict[str, list[ast.AST | None]] = {}  # None: by what is not known
        for node in nodes:
            for name, value in _bindings(node):
                self._bindings.setdefault(name, []).append(value)
        firsts = {id(argument) for node in nodes for argument in _receivers(node)}
        self.bound = frozenset(self._bindings)
        self._alias(nodes)
        self._own = {name for name in self._bindings if self._only(name, firsts)}
        self.methods = {part.name for node in nodes for part in _functions(node)}
        self.fields = {name for node in nodes for name in self._fields(node)}

    def path(self, node: ast.AST | None) -> str | None:
        """Dotted path of an attribute chain that starts at an imported name, e.g. "torch.nn.functional"."""
        parts: list[str] = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        if not isinstance(node, ast.Name) or node.id not in self.paths:
            return None
        return ".".join([self.paths[node.id], *reversed(parts)])

    def is_builtin(self, name: str) -> bool:
        """Whether a name means Python's own everywhere in the file: nothing there binds or imports it."""
        return name not in self.bound and name not in self.paths

    def is_alias(self, node: ast.AST) -> bool:
        """Whether a path does no more than get another name, which `paths` has."""
        return id(node) in self._aliased

    def is_own(self, node: ast.AST) -> bool:
        """Whether an expression is an object of the file's own: a class or function of it, what a method is called
        on, what one of its classes makes, the class of these."""
        while not isinstance(node, ast.Name):
            if isinstance(node, ast.Attribute) and node.attr in (*self._classes, "__class__"):
                node = node.value
            elif isinstance(node, ast.Call) and len(node.args) == 1 and _is_type(node.func) and self.is_builtin("type"):
                node = node.args[0]
            else:
                return False
        return node.id in self._own

    def is_own_object(self, node: ast.AST) -> bool:
        """Whether an expression is an object of the file's own, and no text or number that it keeps under a name."""
        bindings = self._bindings.get(node.id, ()) if isinstance(node, ast.Name) else ()
        return self.is_own(node) and not any(isinstance(value, ast.Constant) for value in bindings)

    def makes_anew(self, reduce: ast.FunctionDef) -> bool:
        """Whether a `__reduce__` says no more than that a copy is a new object of one of the file's classes: with a state
        it would set attributes by names made at run time, of whatever it gives."""
        last = reduce.body[-1]
        found = last.value if len(reduce.body) == 1 and isinstance(last, ast.Return) else None
        if not isinstance(found, ast.Tuple) or len(found.elts) != 2 or not isinstance(found.elts[1], ast.Tuple):
            return False
        kind = found.elts[0]
        return isinstance(kind, ast.Name) and kind.id in self._classes and kind.id in self._own

    def texts(self, node: ast.AST) -> list[str] | None:
        """The texts that an expression may be: one that stands there, or those that its name is bound to. None: others."""
        bindings = self._bindings.get(node.id, []) if isinstance(node, ast.Name) else [node]
        found = [value.value for value in bindings if isinstance(value, ast.Constant) and isinstance(value.value, str)]
        return found if len(found) == len(bindings) and found else None

    def _alias(self, nodes: Sequence[ast.AST]) -> None:
        """Names that are bound to one path only stand for it, but in a class, where they are attributes as well."""
        inside = {id(part) for node in nodes if isinstance(node, ast.ClassDef) for part in _body(node)}
        refused: set[str] = set()
        for node in sorted(nodes, key=lambda node: getattr(node, "lineno", 0)):
            for name, value in _bindings(node):
                path = self.path(value) if isinstance(value, ast.Attribute) else None
                if path is None or self.paths.get(name, path) != path or id(node) in inside or name in refused:
                    refused.add(name)
                else:
                    self.paths[name] = path
                    self.aliases.add(name)
        for name in self.aliases - refused:
            self._aliased.update(map(id, self._bindings[name]))
        # A name with another meaning besides keeps its path, which is then read too strictly.

    def _only(self, name: str, firsts: set[int]) -> bool:
        """Whether each binding of a name is to something of the file's own, or to a constant."""
        return name not in self.paths and all(self._is_ours(value, firsts) for value in self._bindings[name])

    def _is_ours(self, value: ast.AST | None, firsts: set[int]) -> bool:
        if value is None:
            return False
        if isinstance(value, ast.FunctionDef | ast.AsyncFunctionDef):
            return not value.decorator_list  # a kernel is an object of Triton's
        plain = isinstance(value, ast.Lambda | ast.ClassDef | ast.Constant)
        return plain or id(value) in firsts or self._makes(value)

    def _makes(self, value: ast.AST) -> bool:
        """Whether an expression makes an object of one of the file's classes, or of a class that nobody else uses."""
        if not isinstance(value, ast.Call):
            return False
        if isinstance(value.func, ast.Name) and value.func.id in self._classes:
            return True
        path = self.path(value.func)
        return path is not None and path.split(".")[-1][0].isupper() and not is_patchable(path)

    def _fields(self, node: ast.AST) -> Iterator[str]:
        if isinstance(node, ast.ClassDef):
            for part in node.body:
                targets = part.targets if isinstance(part, ast.Assign) else [getattr(part, "target", None)]
                yield from (target.id for target in targets if isinstance(target, ast.Name))
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and self.is_own(node.value):
            yield node.attr


def _body(node: ast.AST) -> Iterator[ast.AST]:
    """What a class executes itself, without its functions."""
    stack = [node]
    while stack:
        parts = [part for part in ast.iter_child_nodes(stack.pop()) if not isinstance(part, Scope)]
        yield from parts
        stack += parts


def _is_type(node: ast.AST) -> bool:
    return isinstance(node, ast.Name) and node.id == "type"


def _functions(node: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """The functions of a class."""
    if isinstance(node, ast.ClassDef):
        yield from (part for part in node.body if isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef))


def _receivers(node: ast.AST) -> Iterator[ast.arg]:
    """The first argument of each function of a class, and of others where it has the name that it has there."""
    for part in _functions(node):
        yield from [*part.args.posonlyargs, *part.args.args][:1]
    if isinstance(node, ast.FunctionDef):
        yield from (argument for argument in node.args.args[:1] if argument.arg in ("self", "ctx"))


def _bindings(node: ast.AST) -> Iterator[tuple[str, ast.AST | None]]:
    """(name, what it is bound to, None where the text does not show it) of one node of the tree."""
    if isinstance(node, ast.Assign | ast.AnnAssign | ast.NamedExpr) and node.value is not None:
        for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
            if isinstance(target, ast.Name):
                yield target.id, node.value
            elif isinstance(target, ast.Tuple | ast.List | ast.Starred):
                yield from _stored(target)
    elif isinstance(node, ast.For | ast.AsyncFor | ast.comprehension | ast.AugAssign):
        yield from _stored(node.target)
    elif isinstance(node, ast.withitem) and node.optional_vars is not None:
        yield from _stored(node.optional_vars)
    elif isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        yield node.name, node
    elif isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar) and node.name:
        yield node.name, None
    elif isinstance(node, ast.MatchMapping) and node.rest:
        yield node.rest, None
    if isinstance(node, Scope):
        yield from ((argument.arg, argument) for argument in arguments(node))


def _stored(target: ast.AST) -> Iterator[tuple[str, None]]:
    """Names that a target binds to what the text does not show."""
    for part in ast.walk(target):
        if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store):
            yield part.id, None


def arguments(function: Scope) -> list[ast.arg]:
    """All arguments of a function."""
    spec = function.args
    return [*spec.posonlyargs, *spec.args, *spec.kwonlyargs, *filter(None, (spec.vararg, spec.kwarg))]


def imports(node: ast.AST) -> Iterator[tuple[str, str]]:
    """(dotted path, local name) of what one statement imports."""
    if isinstance(node, ast.Import):
        for alias in node.names:
            yield alias.name, alias.asname or alias.name.split(".")[0]
    elif isinstance(node, ast.ImportFrom):
        for alias in node.names:
            yield f"{'.' * node.level}{node.module or ''}.{alias.name}", alias.asname or alias.name


def executed(tree: ast.Module) -> Iterator[tuple[ast.AST, frozenset[str]]]:
    """All nodes but docstrings; with each the names that the functions around it bind."""
    stack: list[tuple[ast.AST, frozenset[str]]] = [(tree, frozenset())]
    while stack:
        node, own = stack.pop()
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            continue
        yield node, own
        outside = _outside(node) if isinstance(node, Scope) else ()
        inside = own | _bound(node) if isinstance(node, Scope) else own
        if isinstance(node, Scope | ast.ClassDef):
            inside -= _shared(node)  # these are the module's or Python's own, whatever the functions around bind
        if isinstance(node, ast.ClassDef):
            inside -= _stored_in(node)  # before a class binds such a name, it means the module's or Python's own
        stack += [(child, own if child in outside else inside) for child in _children(node)]


def _children(node: ast.AST) -> Iterator[ast.AST]:
    for child in ast.iter_child_nodes(node):
        yield from ast.iter_child_nodes(child) if isinstance(child, ast.arguments) else (child,)


def _outside(function: Scope) -> Sequence[ast.AST]:
    """What of a function is computed outside of it, as far as that is known: its arguments stand for their annotations."""
    found = [*function.args.defaults, *function.args.kw_defaults, *arguments(function)]
    if not isinstance(function, ast.Lambda):
        found += [*function.decorator_list, function.returns, *getattr(function, "type_params", [])]
    return list(filter(None, found))


def _bound(function: Scope) -> frozenset[str]:
    """Names that a function binds: its arguments, and what it assigns but does not declare global."""
    names = frozenset(argument.arg for argument in arguments(function))
    return (names | _stored_in(function)) - _shared(function)


def _stored_in(block: Scope | ast.ClassDef) -> frozenset[str]:
    """Names that a function or class assigns."""
    stored = (node for node in _block(block) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store))
    return frozenset(node.id for node in stored)


def _shared(block: Scope | ast.ClassDef) -> frozenset[str]:
    """Names that a function or class declares global."""
    return frozenset(name for node in _block(block) if isinstance(node, ast.Global) for name in node.names)


def _block(block: Scope | ast.ClassDef) -> Iterator[ast.AST]:
    """What stands in a function or class, without the functions, classes and comprehensions in it."""
    stack: list[ast.AST] = [] if isinstance(block, ast.Lambda) else [*block.body]
    while stack:
        node = stack.pop()
        yield node
        if not isinstance(node, Scope | ast.ClassDef | _Comprehension):
            stack += ast.iter_child_nodes(node)
