"""bundling: a task's file and the modules beside it that it imports, as one text.

A task is one text: it is kept in the run, goes to processes that see no folder of the user's, and ends in best.py. So what a
file imports from beside it (`from helpers import Block`, `import helpers`, `from pkg.blocks import Block`, also in those
files) is put where it is first imported: the definitions that are used, and every statement that does more than define
names. What is meant stays what it is: a name that would mean two things in one text gets another one there
(`helpers_Block`). Comments say which file and line the text below them comes from, and messages name those (`place`).

Refused, with the line: imports in a circle, a module that is used for anything but its attributes, names that are bound both
by an import and otherwise, compiled modules. Python's own rule holds for which file a name is (`mtmc.task.siblings`).
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from mtmc.syntax import parse
from mtmc.task.meanings import Definition, Meanings, identity
from mtmc.task.scopes import Use, imported_name
from mtmc.task.siblings import Folder, Import, Module, Unit

_ORIGIN = re.compile(r"# From (\S.*), line (\d+):")
_DEFINING = re.compile(rb"(?:async\s+)?(?:def|class)\s+")


def place(source: str, line: int) -> str:
    """Where a line of a task's text comes from: "line 7", or in a bundled text "helpers.py, line 7"."""
    lines = source.splitlines()
    for index in range(min(line, len(lines)) - 1, -1, -1):
        found = _ORIGIN.fullmatch(lines[index])
        if found:
            return f"{found[1]}, line {int(found[2]) + line - index - 2}"
    return f"line {line}"


def bundle(text: str, path: Path, task: str) -> str:
    """The text with the modules beside `path` that it imports; the text itself where it imports none.

    task: its name, for messages. Raises: TaskError for what cannot be one text.
    """
    try:
        parse(text)
    except (SyntaxError, ValueError):
        return text  # which is said where a task's text is checked
    folder = Folder(path, task)
    own = folder.module("", path.name, text)
    return _Bundle(folder, own, Meanings(folder)).text() if own.nodes else text


@dataclass(frozen=True)
class _Reference:
    """A use of a definition. replaced: the name, or the attribute of a module, that stands for it."""

    module: Module
    use: Use
    replaced: ast.expr | None

    @property
    def spelled(self) -> str | None:
        """The name that stands for the definition, None for an attribute of a module."""
        return None if isinstance(self.replaced, ast.Attribute) else self.use.name


@dataclass
class _Bundle:
    """order: the siblings, each after those that it imports, by the unit of the task's file that imports them first."""

    folder: Folder
    own: Module
    meanings: Meanings
    order: dict[int, list[Module]] = field(default_factory=dict)
    kept: dict[str, list[Unit]] = field(default_factory=dict)
    references: dict[Definition, list[_Reference]] = field(default_factory=dict)
    unbound: set[str] = field(default_factory=set)
    names: dict[Definition, str] = field(default_factory=dict)

    def text(self) -> str:
        """The one text."""
        visited = dict[str, bool]()
        for index, unit in enumerate(self.own.units):
            self.order[index] = [module for name in unit.modules for module in self._visit(name, visited)]
        for module in (self.own, *self._siblings):
            for name in module.imports:
                self.meanings.resolve(module, name)
        self._keep()
        self._choose_names()
        return "\n".join(self._lines()) + "\n"

    def _visit(self, name: str, done: dict[str, bool], implied: bool = False) -> Iterator[Module]:
        """A module after all that it imports, where it was not visited before. done: by name, whether it is done.

        implied: as the package of another module, which may import that one itself.
        """
        if name in done:
            if not done[name] and not implied:
                module = self.folder.read(name)
                raise self.folder.refusal(
                    module, None, "is imported in a circle: move what both need to a file of its own"
                )
            return
        if "." in name:
            yield from self._visit(name.rpartition(".")[0], done, implied=True)
            if name in done:
                return
        done[name] = False
        module = self.folder.read(name)
        for unit in module.units:
            if not unit.idle:
                for inner in unit.modules:
                    package = module.name == inner or module.name.startswith(f"{inner}.")
                    yield from self._visit(inner, done, implied=package)
        done[name] = True
        yield module

    @property
    def _siblings(self) -> list[Module]:
        return [module for modules in self.order.values() for module in modules]

    # --- what is kept ------------------------------------------------------------------------------------------------

    def _keep(self) -> None:
        """The units that do something, and those that define what kept ones use."""
        waiting = [
            (module, unit) for module in self._siblings for unit in module.units if not (unit.inert or unit.idle)
        ]
        waiting += [(self.own, unit) for unit in self.own.units]
        kept = {id(unit) for _, unit in waiting}
        while waiting:
            module, unit = waiting.pop(0)
            for use in unit.uses:
                found = self.meanings.of(module, use)
                if found is None:
                    self.unbound.add(use.name)
                    continue
                definition, replaced = found
                if use.binds and unit.is_import and module is not self.own:
                    continue  # of an import those names are kept that are used
                self.references.setdefault(definition, []).append(_Reference(module, use, replaced))
                for each in definition.module.units:
                    if id(each) not in kept and any(u.binds and u.name == definition.name for u in each.uses):
                        kept.add(id(each))
                        waiting.append((definition.module, each))
        for module in self._siblings:
            self.kept[module.name] = [unit for unit in module.units if id(unit) in kept and not unit.is_sibling_import]

    # --- names -------------------------------------------------------------------------------------------------------

    def _choose_names(self) -> None:
        """A name for each definition of a sibling that means nothing else in the one text; the task's own keep theirs."""
        taken: dict[str, object] = dict.fromkeys(self.unbound, "unbound")
        taken |= {name: identity(Definition(self.own, name)) for name in self.own.binds}
        self.names = {definition: definition.name for definition in self.references if definition.module is self.own}
        for definition, references in self.references.items():
            if definition.module is self.own:
                continue
            bound = identity(definition)
            spelled = {(definition.module.name, definition.name): definition.module}
            spelled |= {(each.module.name, each.spelled or ""): each.module for each in references}
            for name in _candidates(definition, references, self.own):
                elsewhere = [module for (_, other), module in spelled.items() if other != name]
                if taken.get(name, bound) == bound and not any(name in each.identifiers for each in elsewhere):
                    break
            taken[name] = bound
            self.names[definition] = name

    # --- the text ----------------------------------------------------------------------------------------------------

    def _lines(self) -> Iterator[str]:
        texts = {module.name: self._edited(module) for module in (self.own, *self._siblings)}
        lines = texts[""]
        done, needs_note = 0, False  # lines of the own file; whether its next line is to say where it comes from
        written = set(lines)
        future = (
            any(module.has_future and self.kept[module.name] for module in self._siblings) and not self.own.has_future
        )
        for index, unit in enumerate(self.own.units):
            if future and not (index == 0 and unit.idle):
                yield from lines[done : unit.first - 1]
                yield "from __future__ import annotations"
                done, future, needs_note = unit.first - 1, False, True
            modules = [module for module in self.order[index] if self.kept[module.name]]
            if modules or unit.is_sibling_import:
                yield from self._noted(self.own, done, lines[done : unit.first - 1], needs_note)
                for module in modules:
                    yield from self._runs(module, texts[module.name], written)
                done, needs_note = unit.first - 1, True
                if unit.is_sibling_import:
                    done = unit.last
        yield from self._noted(self.own, done, lines[done:], needs_note)

    def _noted(self, module: Module, done: int, lines: list[str], needed: bool) -> Iterator[str]:
        """Lines of a file after `done` others, with a note of where they come from if there is anything in them."""
        blank = next((index for index, line in enumerate(lines) if line.strip()), len(lines))
        if needed and blank < len(lines):
            yield f"# From {module.label}, line {done + blank + 1}:"
        yield from lines[blank if needed else 0 :]

    def _runs(self, module: Module, lines: list[str], written: set[str]) -> Iterator[str]:
        """The kept units of a module; those that follow one another with what is between them."""
        position = {id(unit): index for index, unit in enumerate(module.units)}
        runs = list[list[Unit]]()
        for unit in self.kept[module.name]:
            text = lines[unit.first - 1 : unit.last]
            if unit.is_import and len(text) == 1:
                if text[0] in written:
                    continue
                written.add(text[0])
            if runs and position[id(unit)] == position[id(runs[-1][-1])] + 1:
                runs[-1].append(unit)
            else:
                runs.append([unit])
        for run in runs:
            yield from self._noted(module, run[0].first - 1, lines[run[0].first - 1 : run[-1].last], True)
            yield from ([""] if all(unit.is_import for unit in run) else ["", ""])

    def _edited(self, module: Module) -> list[str]:
        """The lines of a module with the names of the one text; as many as there were."""
        data = module.text.encode()
        starts = [0]
        for line in data.split(b"\n"):
            starts.append(starts[-1] + len(line) + 1)
        edits = dict[tuple[int, int], str]()
        whole = {id(unit.nodes[0]) for unit in module.units if unit.is_sibling_import}
        for node in module.nodes:
            if id(node) not in whole:
                edits[_span(node, starts)] = "pass" + _breaks(node)
        for definition, references in self.references.items():
            for each in references:
                if each.module is module:
                    edits |= self._renaming(each, definition, data, starts)
        for unit in self.kept.get(module.name, []):
            if unit.is_import:
                edits |= self._import(module, unit, starts)
        for first, last in sorted(edits, reverse=True):
            data = data[:first] + edits[first, last].encode() + data[last:]
        return data.decode().split("\n") if not data.endswith(b"\n") else data.decode().split("\n")[:-1]

    def _renaming(
        self, each: _Reference, definition: Definition, data: bytes, starts: list[int]
    ) -> dict[tuple[int, int], str]:
        name = self.names[definition]
        if each.spelled == name:
            return {}
        node = each.use.node
        if node is None:
            reason = f"{each.use.name!r} means something else in {self.own.label}: give it another name"
            raise self.folder.refusal(each.module, None, reason)
        if each.replaced is None:
            assert not isinstance(node, ast.Name)
            first = starts[node.lineno - 1] + node.col_offset
            found = _DEFINING.match(data, first)
            assert found is not None
            return {(found.end(), found.end() + len(each.use.name.encode())): name}
        if sys.version_info < (3, 12) and _in_f_string(each.module, each.replaced):
            reason = f"{each.use.name!r} gets another name here, so it cannot stand in an f-string: take it out"
            raise self.folder.refusal(each.module, each.replaced, reason)
        breaks = (each.replaced.end_lineno or each.replaced.lineno) - each.replaced.lineno
        return {_span(each.replaced, starts): f"({name}{chr(10) * breaks})" if breaks else name}

    def _import(self, module: Module, unit: Unit, starts: list[int]) -> dict[tuple[int, int], str]:
        """An import of a sibling with the names that are used, as the one text calls them."""
        [node] = unit.nodes
        assert isinstance(node, Import)
        aliases = []
        for alias in node.names:
            definition = Definition(module, imported_name(alias))
            if definition in self.names:
                name = self.names[definition]
                if name != definition.name and alias.asname is None and "." in alias.name:
                    raise self.folder.refusal(
                        module, node, f"{definition.name!r} means something else in the task's file"
                    )
                aliases.append(alias if name == definition.name else ast.alias(alias.name, name))
        if aliases == node.names:
            return {}
        made = ast.Import(aliases) if isinstance(node, ast.Import) else ast.ImportFrom(node.module, aliases, node.level)
        return {_span(node, starts): ast.unparse(made) + _breaks(node)}


def _candidates(definition: Definition, references: list[_Reference], own: Module) -> Iterator[str]:
    """Names for a definition: as the task's file calls it, as it is called where it stands, then longer ones."""
    yield from (each.spelled for each in references if each.module is own and each.spelled)
    yield definition.name
    stem = re.sub(r"\W", "_", definition.module.name)
    yield f"{stem}_{definition.name}"
    number = 2
    while True:
        yield f"{stem}_{definition.name}_{number}"
        number += 1


def _span(node: ast.stmt | ast.expr, starts: list[int]) -> tuple[int, int]:
    """The bytes of a node."""
    assert node.end_lineno is not None and node.end_col_offset is not None
    return starts[node.lineno - 1] + node.col_offset, starts[node.end_lineno - 1] + node.end_col_offset


def _breaks(node: ast.stmt) -> str:
    """As many breaks as a statement has, so that the lines below keep their numbers."""
    return " \\\n" * ((node.end_lineno or node.lineno) - node.lineno)


def _in_f_string(module: Module, node: ast.expr) -> bool:
    every = ast.walk(ast.Module([each for unit in module.units for each in unit.nodes], []))
    strings = [each for each in every if isinstance(each, ast.JoinedStr)]
    return any(inner is node for each in strings for inner in ast.walk(each))
