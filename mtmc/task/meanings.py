"""meanings: which definition a name means, in a task's file or a module beside it, through imports from one to another."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from mtmc.task.scopes import Use, imported_name
from mtmc.task.siblings import Folder, Import, Module, Target


@dataclass(frozen=True)
class Definition:
    """A name that a module binds itself."""

    module: Module
    name: str


@dataclass(frozen=True)
class Meanings:
    """Of the names in the modules of a folder. Raises: TaskError for a use that no single text can keep."""

    folder: Folder

    def of(self, module: Module, use: Use) -> tuple[Definition, ast.expr | None] | None:
        """What a use means, and which expression stands for it; None for a builtin or a name that is bound nowhere."""
        found = self.resolve(module, use.name)
        replaced: ast.expr | None = use.node if isinstance(use.node, ast.Name) else None
        for attribute in use.attributes:
            if not isinstance(found, Module):
                break
            if not isinstance(attribute.ctx, ast.Load):
                raise self.folder.refusal(module, attribute, f"changes {attribute.attr!r} of the module {found.label}")
            found, replaced = self._member(found, attribute.attr, module, attribute), attribute
        if isinstance(found, Module):
            where = use.node
            raise self.folder.refusal(
                module, where, f"uses the module {found.label} itself: import the names that are used from it"
            )
        return None if found is None else (found, replaced)

    def resolve(self, module: Module, name: str, seen: tuple[tuple[str, str], ...] = ()) -> Definition | Module | None:
        """What a module means by a name; None where it binds it nowhere. seen: what is looked for already."""
        if (module.name, name) in seen:
            raise self.folder.refusal(module, None, f"{name!r} is imported in a circle")
        seen = (*seen, (module.name, name))
        if name in module.imports:
            return self._target(module.imports[name], module, seen)
        if name in module.binds:
            return Definition(module, name)
        for star in reversed(module.stars):
            other = self.folder.read(star)
            if name in self._public(other):
                return self.resolve(other, name, seen)
        return None

    def _target(self, target: Target, module: Module, seen: tuple[tuple[str, str], ...]) -> Definition | Module | None:
        other = self.folder.read(target.module)
        if target.attribute is None:
            return other
        node = next((each for each in module.nodes if _imports(each, target)), None)
        return self._member(other, target.attribute, module, node, seen)

    def _member(
        self,
        other: Module,
        name: str,
        module: Module,
        node: ast.stmt | ast.expr | None,
        seen: tuple[tuple[str, str], ...] = (),
    ) -> Definition | Module:
        """What a module calls `name`: its own, what it imports, or a module of the package."""
        found = self.resolve(other, name, seen)
        if found is not None:
            return found
        inner = f"{other.name}.{name}"
        if other.is_package and self.folder.find(inner):
            return self.folder.read(inner)
        raise self.folder.refusal(module, node, f"imports {name!r} from {other.label}, which does not define it")

    def _public(self, module: Module) -> set[str]:
        """The names that `from MODULE import *` gives."""
        for unit in module.units:
            for node in unit.nodes:
                if isinstance(node, ast.Assign) and any(
                    isinstance(t, ast.Name) and t.id == "__all__" for t in node.targets
                ):
                    try:
                        return set(ast.literal_eval(node.value))
                    except ValueError:
                        raise self.folder.refusal(module, node, "__all__ must be a literal list of names") from None
        inner = [self._public(self.folder.read(star)) for star in module.stars]
        return {name for name in (*module.binds, *module.imports, *set().union(*inner)) if not name.startswith("_")}


def _imports(node: Import, target: Target) -> bool:
    return isinstance(node, ast.ImportFrom) and any(alias.name == target.attribute for alias in node.names)


def identity(definition: Definition) -> object:
    """What a definition binds: the same object for two that import the same."""
    units = [unit for unit in definition.module.units if any(u.binds and u.name == definition.name for u in unit.uses)]
    if len(units) != 1 or not units[0].is_import:
        return definition
    [node] = units[0].nodes
    assert isinstance(node, Import)
    alias = next(alias for alias in node.names if imported_name(alias) == definition.name)
    if isinstance(node, ast.ImportFrom):
        return f"{'.' * node.level}{node.module}.{alias.name}"
    return alias.name if alias.asname else definition.name
