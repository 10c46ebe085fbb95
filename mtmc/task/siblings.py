"""siblings: the modules beside a task's file that it imports: where they are, and what their top level is made of.

A name is looked up as Python does that runs the file: a file or a package beside it comes before an installed package, but
not before the standard library, torch, triton and numpy; a mere folder comes after the installed ones.
"""

from __future__ import annotations

import ast
import importlib.util
import sys
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from mtmc.errors import TaskError
from mtmc.syntax import parse
from mtmc.task.scopes import Use, imported_name, module_uses

_NEVER_BESIDE = {*sys.stdlib_module_names, "torch", "triton", "numpy"}
Import = ast.Import | ast.ImportFrom


@dataclass(frozen=True)
class Target:
    """What an import binds a name to: a sibling module, or what the sibling calls `attribute`."""

    module: str
    attribute: str | None = None


@dataclass(frozen=True, eq=False)
class Unit:
    """Some lines of a module's top level: one statement, or several that share a line.

    first, last: its lines, from 1. uses: of the module's names; a sibling's import binds none. modules: the siblings that it
    imports, anywhere in it. inert: it only defines names, so it may be left out where nobody uses them. idle: it does
    nothing for whoever imports the module.
    """

    nodes: tuple[ast.stmt, ...]
    first: int
    last: int
    uses: tuple[Use, ...]
    modules: tuple[str, ...]
    inert: bool
    idle: bool

    @property
    def is_import(self) -> bool:
        """Whether it is one import of what is no sibling."""
        return len(self.nodes) == 1 and isinstance(self.nodes[0], Import) and not self.modules

    @property
    def is_sibling_import(self) -> bool:
        """Whether it is one import of siblings."""
        return len(self.nodes) == 1 and isinstance(self.nodes[0], Import) and bool(self.modules)


@dataclass(eq=False)
class Module:
    """One file. name: as it is imported ("pkg.blocks"), "" for the task's own. label: what messages call it.

    imports: what its imports of siblings bind, wherever in it they stand; stars: those of all names; nodes: the statements.
    """

    name: str
    label: str
    text: str
    is_package: bool = False
    units: list[Unit] = field(default_factory=list)
    imports: dict[str, Target] = field(default_factory=dict)
    stars: list[str] = field(default_factory=list)
    nodes: list[Import] = field(default_factory=list)
    has_future: bool = False

    @cached_property
    def binds(self) -> frozenset[str]:
        """The names that it binds itself at module level."""
        return frozenset(use.name for unit in self.units for use in unit.uses if use.binds)

    @cached_property
    def identifiers(self) -> frozenset[str]:
        """All names that mean something somewhere in it, attributes aside."""
        found = set[str]()
        for node in ast.walk(ast.Module([each for unit in self.units for each in unit.nodes], [])):
            if isinstance(node, ast.Name):
                found.add(node.id)
            elif isinstance(node, ast.arg):
                found.add(node.arg)
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                found.add(node.name)
            elif isinstance(node, ast.alias):
                found.add(imported_name(node))
        return frozenset(found)


class Folder:
    """The folder of a task's file, and the modules in it that are looked at.

    Raises: TaskError where one cannot be read, or is imported in a way that no single text can keep.
    """

    def __init__(self, path: Path, name: str) -> None:
        self.root = path.parent
        self.task = name
        self.modules = dict[str, Module]()
        self._own = path.resolve()

    def read(self, name: str) -> Module:
        """The module of this name, which `find` knows."""
        if name not in self.modules:
            found = self.find(name)
            assert found is not None
            path, is_package = found
            if path is not None and path.resolve() == self._own:
                raise TaskError(f"task {self.task}: it imports its own file: move what both need to a file of its own")
            label = str(path.relative_to(self.root)) if path else name.replace(".", "/")
            self.modules[name] = self.module(name, label, _text(path, self.task) if path else "", is_package)
        return self.modules[name]

    def find(self, name: str) -> tuple[Path | None, bool] | None:
        """The file of a module beside the task's, and whether it is a package's; None where there is none.

        Without a file: a mere folder of modules.
        """
        parts = name.split(".")
        if parts[0] in _NEVER_BESIDE or not all(parts):
            return None
        base = self.root.joinpath(*parts)
        if (base / "__init__.py").is_file():
            return base / "__init__.py", True
        file = base.with_name(f"{base.name}.py")
        if file.is_file():
            return file, False
        compiled = (
            next((each for each in base.parent.glob(f"{base.name}.*.so")), None) if base.parent.is_dir() else None
        )
        if compiled is not None:
            raise TaskError(
                f"task {self.task}: imports {compiled.name}, compiled code, which no text can hold: install it"
            )
        if base.is_dir() and any(base.rglob("*.py")) and (len(parts) > 1 or not _is_installed(name)):
            return None, True
        return None

    def module(self, name: str, label: str, text: str, is_package: bool = False) -> Module:
        """A module read. Raises: TaskError."""
        try:
            tree = parse(text)
        except (SyntaxError, ValueError) as error:
            where = f"{label}: line {error.lineno}: " if isinstance(error, SyntaxError) else f"{label}: "
            raise TaskError(f"task {self.task}: {where}{error}: fix the syntax there") from error
        module = Module(name, label, text if text.endswith("\n") else f"{text}\n", is_package)
        modules = dict[int, list[str]]()
        for node in ast.walk(tree):
            if isinstance(node, Import):
                found = list(self._imported(module, node))
                if found:
                    module.nodes.append(node)
                    modules[id(node)] = found
        for nodes in _sharing_lines(tree.body):
            module.units.append(_unit(nodes, module.nodes, modules))
        for imported in sorted(set(module.imports) & module.binds):
            raise self.refusal(module, None, f"{imported!r} is imported and bound otherwise too: give one another name")
        return module

    def _imported(self, module: Module, node: Import) -> Iterator[str]:
        """The siblings that a statement imports, as far as it imports any; what it binds is noted."""
        if isinstance(node, ast.ImportFrom) and node.module == "__future__":
            module.has_future = True
            return
        if isinstance(node, ast.Import):
            beside = [alias for alias in node.names if self.find(alias.name.partition(".")[0])]
            if beside and len(beside) < len(node.names):
                raise self.refusal(module, node, "import what lies beside the file in a statement of its own")
            for alias in beside:
                self._must_exist(module, node, alias.name)
                root = alias.name.partition(".")[0]
                self._bind(module, node, imported_name(alias), Target(alias.name if alias.asname else root))
                yield alias.name
            return
        base = _absolute(module, node)
        if base is None or (base and not self.find(base.partition(".")[0])):
            return
        if base:
            self._must_exist(module, node, base)
            yield base
        for alias in node.names:
            inner = f"{base}.{alias.name}" if base else alias.name
            if alias.name == "*" and base:
                module.stars.append(base)
            elif base and base != module.name:
                self._bind(module, node, imported_name(alias), Target(base, alias.name))
                if self.find(inner):
                    yield inner
            elif self.find(inner):  # a module beside the task's file, or of the package itself
                self._bind(module, node, imported_name(alias), Target(inner))
                yield inner

    def _must_exist(self, module: Module, node: Import, name: str) -> None:
        if not self.find(name):
            raise self.refusal(module, node, f"imports {name!r}, but there is no {name.replace('.', '/')}.py")

    def _bind(self, module: Module, node: Import, name: str, target: Target) -> None:
        if module.imports.setdefault(name, target) != target:
            raise self.refusal(module, node, f"{name!r} is imported from two places: give one another name (`as`)")

    def refusal(self, module: Module, node: ast.stmt | ast.expr | None, reason: str) -> TaskError:
        """An error that names the task, the file and the line."""
        where = f"{module.label}: line {node.lineno}: " if node is not None else f"{module.label}: "
        return TaskError(f"task {self.task}: {where}{reason}")


def _text(path: Path, task: str) -> str:
    try:
        with tokenize.open(path) as file:
            return file.read()
    except (OSError, SyntaxError, ValueError) as error:
        raise TaskError(f"task {task}: {str(path)!r} cannot be read ({error}): give a Python file") from error


def _is_installed(name: str) -> bool:
    try:
        found = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        return False
    return found is not None and found.origin is not None


def _absolute(module: Module, node: ast.ImportFrom) -> str | None:
    """The module that `from X import` names, "" for the task's folder, None for one above it."""
    if not node.level:
        return node.module
    package = module.name.split(".") if module.name else []
    if not module.is_package:
        package = package[:-1]
    if node.level - 1 > len(package):
        return None
    kept = package[: len(package) - (node.level - 1)]
    return ".".join([*kept, *([node.module] if node.module else [])])


def _sharing_lines(body: list[ast.stmt]) -> Iterator[tuple[ast.stmt, ...]]:
    group: list[ast.stmt] = []
    for node in body:
        if group and node.lineno != group[-1].end_lineno:
            yield tuple(group)
            group = []
        group.append(node)
    if group:
        yield tuple(group)


def _unit(nodes: tuple[ast.stmt, ...], ignored: list[Import], modules: dict[int, list[str]]) -> Unit:
    first = min([nodes[0].lineno, *(each.lineno for each in getattr(nodes[0], "decorator_list", []))])
    uses = [use for node in nodes for use in module_uses(node, ignored)]
    inside = [name for node in nodes for each in ast.walk(node) for name in modules.get(id(each), [])]
    last = nodes[-1].end_lineno or nodes[-1].lineno
    inert, idle = all(map(_is_inert, nodes)), all(map(_is_idle, nodes))
    return Unit(nodes, first, last, tuple(uses), tuple(inside), inert, idle)


def _is_inert(node: ast.stmt) -> bool:
    """Whether a statement only defines names: no decorator, keyword of a class or call that could do anything else."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        return not node.decorator_list
    if isinstance(node, ast.ClassDef):
        return not node.decorator_list and not node.keywords
    if isinstance(node, ast.Assign):
        targets, value = node.targets, node.value
    elif isinstance(node, ast.AnnAssign) and node.value is not None:
        targets, value = [node.target], node.value
    else:
        return isinstance(node, Import)
    names = (ast.Name, ast.Tuple, ast.List, ast.Store)
    plain = all(isinstance(each, names) for target in targets for each in ast.walk(target))
    return plain and not any(isinstance(each, ast.Call | ast.NamedExpr) for each in ast.walk(value))


def _is_idle(node: ast.stmt) -> bool:
    """Whether a statement does nothing in a module that is imported: a text, `if __name__ == ...`, for type checkers."""
    if isinstance(node, ast.Expr):
        return isinstance(node.value, ast.Constant)
    if isinstance(node, ast.ImportFrom) and node.module == "__future__":
        return True
    if not isinstance(node, ast.If) or node.orelse:
        return False
    names = [
        each.id if isinstance(each, ast.Name) else each.attr if isinstance(each, ast.Attribute) else ""
        for each in (node.test, getattr(node.test, "left", None))
    ]
    return names[0] == "TYPE_CHECKING" or names[1] == "__name__"
