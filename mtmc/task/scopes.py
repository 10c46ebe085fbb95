"""scopes: which names of a statement mean the module's own, by Python's rules of scope."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable
from dataclasses import dataclass

Function = ast.FunctionDef | ast.AsyncFunctionDef
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


@dataclass(frozen=True)
class Use:
    """One place where a statement reads or binds a name of its module.

    node: the `ast.Name`, or the definition that binds it; None where the name stands as bare text (`global x`, `except E
    as x`, a pattern), which has no place of its own. attributes: those that are read of it, the innermost first: of
    `x.a.b` those of a and b. binds: whether it is bound here.
    """

    name: str
    node: ast.Name | Function | ast.ClassDef | None
    attributes: tuple[ast.Attribute, ...] = ()
    binds: bool = False


def module_uses(statement: ast.stmt, ignored: Collection[ast.stmt] = ()) -> list[Use]:
    """The uses of module-level names in a statement of a module.

    ignored: import statements anywhere in it that are taken not to bind anything.
    """
    visitor = _Visitor(ignored)
    visitor.visit(statement)
    return visitor.found


@dataclass(frozen=True)
class _Scope:
    names: frozenset[str]
    of_module: frozenset[str] = frozenset()
    """Declared global."""
    is_class: bool = False


class _Visitor(ast.NodeVisitor):
    def __init__(self, ignored: Collection[ast.stmt]) -> None:
        self.found: list[Use] = []
        self._ignored = {id(each) for each in ignored}
        self._scopes: list[_Scope] = []

    def _add(self, name: str, node: ast.Name | Function | ast.ClassDef | None, binds: bool = False) -> None:
        if self._of_module(name):
            self.found.append(Use(name, node, binds=binds))

    def _of_module(self, name: str) -> bool:
        for scope in reversed(self._scopes):
            if name in scope.of_module:
                return True
            if name in scope.names and (not scope.is_class or scope is self._scopes[-1]):
                return False
        return True

    def _inside(self, scope: _Scope, nodes: Iterable[ast.AST]) -> None:
        self._scopes.append(scope)
        for node in nodes:
            self.visit(node)
        self._scopes.pop()

    def visit_Name(self, node: ast.Name) -> None:
        binds = not isinstance(node.ctx, ast.Load)
        if self._scopes and self._scopes[-1].is_class and not binds and node.id in self._scopes[-1].names:
            before = _Visitor([])
            before._scopes, before._ignored = self._scopes[:-1], self._ignored
            if before._of_module(node.id):
                self.found.append(Use(node.id, None))  # `x = x` in a class reads the module's x, or its own
            return
        self._add(node.id, node, binds)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        chain = [node]
        while isinstance(chain[-1].value, ast.Attribute):
            chain.append(chain[-1].value)
        base = chain[-1].value
        if isinstance(base, ast.Name) and self._of_module(base.id):
            self.found.append(Use(base.id, base, tuple(reversed(chain))))
        else:
            self.visit(base)

    def _definition(self, node: Function | ast.ClassDef) -> None:
        self._add(node.name, node, binds=True)
        for each in node.decorator_list:
            self.visit(each)

    def _function(self, node: Function) -> None:
        self._definition(node)
        arguments = node.args
        of_arguments = [each.annotation for each in _arguments(arguments) if each.annotation]
        for each in (*arguments.defaults, *(d for d in arguments.kw_defaults if d), *of_arguments):
            self.visit(each)
        if node.returns:
            self.visit(node.returns)
        self._inside(self._scope(node.body, arguments), node.body)

    visit_FunctionDef = visit_AsyncFunctionDef = _function  # noqa: N815

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self._definition(node)
        for each in (*node.bases, *(keyword.value for keyword in node.keywords)):
            self.visit(each)
        scope = self._scope(node.body, None)
        self._inside(_Scope(scope.names, scope.of_module, is_class=True), node.body)

    def visit_Lambda(self, node: ast.Lambda) -> None:
        for each in (*node.args.defaults, *(d for d in node.args.kw_defaults if d)):
            self.visit(each)
        self._inside(_Scope(frozenset(each.arg for each in _arguments(node.args))), [node.body])

    def _comprehension(self, node: ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp) -> None:
        first, *others = node.generators
        self.visit(first.iter)
        targets = {
            each.id
            for generator in node.generators
            for each in ast.walk(generator.target)
            if isinstance(each, ast.Name)
        }
        parts = [node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]
        inner = [first.target, *first.ifs, *others, *parts]
        self._inside(_Scope(frozenset(targets)), inner)

    visit_ListComp = visit_SetComp = visit_DictComp = visit_GeneratorExp = _comprehension  # noqa: N815

    def visit_Global(self, node: ast.Global) -> None:
        for name in node.names:
            self._add(name, None)

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> None:
        if node.name:
            self._add(node.name, None, binds=True)
        self.generic_visit(node)

    def visit_MatchAs(self, node: ast.MatchAs) -> None:
        if node.name:
            self._add(node.name, None, binds=True)
        self.generic_visit(node)

    def visit_MatchStar(self, node: ast.MatchStar) -> None:
        if node.name:
            self._add(node.name, None, binds=True)

    def visit_MatchMapping(self, node: ast.MatchMapping) -> None:
        if node.rest:
            self._add(node.rest, None, binds=True)
        self.generic_visit(node)

    def _import(self, node: ast.Import | ast.ImportFrom) -> None:
        if id(node) not in self._ignored:
            for alias in node.names:
                self._add(imported_name(alias), None, binds=True)

    visit_Import = visit_ImportFrom = _import  # noqa: N815

    def _scope(self, body: list[ast.stmt], arguments: ast.arguments | None) -> _Scope:
        """The scope of a function's or a class's body."""
        collector = _Bound(self._ignored)
        for statement in body:
            collector.visit(statement)
        own = {each.arg for each in _arguments(arguments)} if arguments else set()
        outer = collector.of_module | collector.of_functions
        return _Scope(frozenset((collector.names | own) - outer), frozenset(collector.of_module))


class _Bound(ast.NodeVisitor):
    """The names that a body binds itself, not in the functions, classes and comprehensions inside of it."""

    def __init__(self, ignored: Collection[int]) -> None:
        self.names: set[str] = set()
        self.of_module: set[str] = set()
        self.of_functions: set[str] = set()
        self._ignored = ignored

    def visit(self, node: ast.AST) -> None:
        if isinstance(node, Function | ast.ClassDef):
            self.names.add(node.name)
            for each in node.decorator_list:
                self.visit(each)
            return
        if isinstance(node, ast.Lambda):
            return
        if isinstance(node, _COMPREHENSIONS):
            walrus = (each.target for each in ast.walk(node) if isinstance(each, ast.NamedExpr))
            self.names |= {each.id for each in walrus if isinstance(each, ast.Name)}
            return
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            self.names.add(node.id)
        elif isinstance(node, ast.Global):
            self.of_module |= set(node.names)
        elif isinstance(node, ast.Nonlocal):
            self.of_functions |= set(node.names)
        elif isinstance(node, ast.Import | ast.ImportFrom) and id(node) not in self._ignored:
            self.names |= {imported_name(alias) for alias in node.names}
        elif isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar) and node.name:
            self.names.add(node.name)
        elif isinstance(node, ast.MatchMapping) and node.rest:
            self.names.add(node.rest)
        self.generic_visit(node)


def imported_name(alias: ast.alias) -> str:
    """The name that an import binds: `a` for `import a.b`."""
    return alias.asname or alias.name.partition(".")[0]


def _arguments(arguments: ast.arguments) -> list[ast.arg]:
    several = [each for each in (arguments.vararg, arguments.kwarg) if each]
    return [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, *several]
