"""source: Plan -> the text of a kernel version, and which lines each stage stands on.

The file keeps everything of the reference but its forward and its input functions: the same `__init__` under the name
ModelNew, so that a seeded construction gives the same weights. The forward is printed from the plan.
"""

from __future__ import annotations

import keyword
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from mtmc.action import Region
from mtmc.errors import CoderError
from mtmc.rewrite.body import NotCovered, build
from mtmc.rewrite.families import FAMILIES
from mtmc.rewrite.families.writer import Printed
from mtmc.rewrite.graph import CONSTANT, Graph, Ref
from mtmc.rewrite.ops import table
from mtmc.rewrite.plan import Plan, Stage
from mtmc.rewrite.reference_text import dropped_lines, forward_signature, imports, kept_lines, model_head, renamed
from mtmc.rewrite.sizes import NoExpression, Scope
from mtmc.rewrite.torch_call import call_text, gives_one
from mtmc.task import Task

INDENT = "    "


@dataclass(frozen=True)
class Printout:
    """A kernel version's text and the lines of each stage (a kernel's function, or a torch call's line in forward)."""

    source: str
    regions: Mapping[Stage, Region]


def root_source(task: Task) -> str:
    """The reference itself under the name ModelNew, without its input functions.

    Raises: CoderError where the text cannot be read.
    """
    kept = kept_lines(task.source, drop_model=False)
    return renamed("\n".join(kept).rstrip() + "\n")


def root_regions(task: Task, graph: Graph, plan: Plan) -> dict[Stage, Region]:
    """Where in `root_source` each torch call stands."""
    gone = dropped_lines(task.source)
    regions = {}
    for stage in plan.stages:
        line = graph.by_name[stage.ops[0]].line or 1
        shifted = line - sum(1 for number in gone if number < line)
        regions[stage] = Region(stage.name, shifted, shifted)
    return regions


@lru_cache(maxsize=512)
def print_stage(graph: Graph, stage: Stage, name: str) -> Printed:
    """A kernel stage as text; kept, since neighbouring versions share most of their stages. Raises: NotCovered."""
    return FAMILIES[stage.family].print(graph, build(graph, stage.ops, table), stage, name)


def print_plan(task: Task, graph: Graph, plan: Plan) -> Printout:
    """The text of a kernel version.

    Raises: CoderError naming the stage that cannot be written.
    """
    printer = _ForwardPrinter(task, graph)
    printed: dict[Stage, Printed] = {}
    for stage in plan.stages:
        if not stage.is_torch:
            try:
                printed[stage] = print_stage(graph, stage, stage.name)
            except NotCovered as error:
                raise CoderError(f"stage {stage.name} cannot be written as a {stage.family} kernel: {error}") from error
    needed = _needed(graph, plan, printed)
    for stage in plan.stages:
        if stage in printed:
            printer.launch(stage, printed[stage])
        elif stage.ops[0] in needed:
            printer.torch_call(stage)
    printer.finish()
    return _assemble(task, [(stage, kernel.text) for stage, kernel in printed.items()], printer)


def _needed(graph: Graph, plan: Plan, printed: Mapping[Stage, Printed]) -> set[str]:
    """The ops whose results are read: kernels hold the numbers of a constant themselves, so nothing may be left to read
    the tensor."""
    read = graph.results()
    for stage in plan.stages:
        if stage in printed:
            read |= set(printed[stage].tensors)
        elif graph.by_name[stage.ops[0]].target != CONSTANT:
            read |= set(graph.by_name[stage.ops[0]].refs())
    return {op.name for op in graph.ops if op.target != CONSTANT or read & set(op.outputs)}


def _assemble(task: Task, kernels: list[tuple[Stage, str]], printer: _ForwardPrinter) -> Printout:
    lines = [f'"""{task.name}: a kernel version made by mtmc. Needs only torch and triton; right for any shape."""', ""]
    lines += imports(task.source, with_triton=bool(kernels))
    kept = kept_lines(task.source, drop_model=True)
    lines += ["", *kept] if kept else []
    regions: dict[Stage, Region] = {}
    for stage, text in kernels:
        lines += ["", ""]
        first = len(lines) + 1
        lines += text.splitlines()
        regions[stage] = Region(stage.name, first, len(lines))
    head = renamed("\n".join(model_head(task.source))).splitlines()
    lines += ["", "", *head, ""] if len(head) > 1 else ["", "", *head]
    for origin, line in printer.lines:
        lines.append(line)
        if origin is not None and origin.is_torch:
            regions[origin] = Region(origin.name, len(lines), len(lines))
    return Printout("\n".join(lines) + "\n", regions)


class _ForwardPrinter:
    """Writes forward's body stage by stage."""

    def __init__(self, task: Task, graph: Graph) -> None:
        self.graph = graph
        signature, names = forward_signature(task.source)
        self.lines: list[tuple[Stage | None, str]] = [(None, f"{INDENT}def forward({signature}):")]
        self.expressions = _input_expressions(graph, names)
        for value, path in graph.parameters.items():
            self.expressions[value] = attribute_text(path)
        self.attributes = {attribute_text(path): values for path, values in graph.attributes.items()}
        self.taken = set(names) | {"self"}

    def scope(self, likely: tuple[str, ...] = ()) -> Scope:
        """Everything in reach: the likely values first, then inputs, parameters, then numbers on the module."""
        names = dict.fromkeys((*likely, *self.graph.inputs, *self.expressions))
        tensors = [
            (self.expressions[name], self.graph.values[name])
            for name in names
            if name in self.expressions and name in self.graph.values
        ]
        return Scope(tuple(tensors), self.attributes)

    def name(self, value: str) -> str:
        """A variable for a value."""
        name = value
        while name in self.taken or keyword.iskeyword(name):
            name += "_"
        self.taken.add(name)
        self.expressions[value] = name
        return name

    def torch_call(self, stage: Stage) -> None:
        op = self.graph.by_name[stage.ops[0]]
        try:
            text = call_text(op, self.expressions, self.scope(tuple(op.refs())), self.graph)
        except NoExpression as error:
            raise CoderError(
                f"op {op.target} (line {op.line} of the reference) takes a number that the rewriter cannot express for "
                f"other shapes: {error}"
            ) from error
        used = {ref for other in self.graph.ops for ref in other.refs()} | self.graph.results()
        if gives_one(op, used):
            target = self.name(op.outputs[0])
        else:
            target = ", ".join(self.name(value) if value in used else "_" for value in op.outputs)
        self._add(stage, f"{target} = {text}")

    def launch(self, stage: Stage, printed: Printed) -> None:
        scope = self.scope(printed.tensors)
        arguments = [self.expressions[value] for value in printed.tensors]
        try:
            arguments += [scope.number(number) for _, number in printed.numbers]
        except NoExpression as error:
            raise CoderError(f"stage {stage.name} needs a number that cannot be expressed: {error}") from error
        target = ", ".join(self.name(value) for value in printed.results)
        self._add(stage, f"{target} = {printed.launcher}({', '.join(arguments)})")

    def _add(self, stage: Stage, text: str) -> None:
        self.lines.append((stage, INDENT * 2 + text))

    def finish(self) -> None:
        self.lines.append((None, f"{INDENT * 2}return {self._result(self.graph.output)}"))

    def _result(self, item: Any) -> str:
        if isinstance(item, Ref):
            return self.expressions[item.name]
        if isinstance(item, tuple):
            return f"({', '.join(self._result(part) for part in item)}{',' if len(item) == 1 else ''})"
        if isinstance(item, list):
            return f"[{', '.join(self._result(part) for part in item)}]"
        if isinstance(item, dict):
            return "{" + ", ".join(f"{key!r}: {self._result(part)}" for key, part in item.items()) + "}"
        return repr(item)


@lru_cache(maxsize=512)
def forward_scope(task: Task, graph: Graph, tensors: tuple[str, ...] = ()) -> Scope:
    """What numbers may be expressed by where a kernel is launched.

    tensors: values that the kernel takes, which are at hand there. Besides them there are forward's arguments, parameters,
    and numbers on the module. Raises: CoderError where forward takes a structure that cannot be written.
    """
    printer = _ForwardPrinter(task, graph)
    printer.expressions |= {value: value for value in tensors if value not in printer.expressions}
    return printer.scope(tensors)


def attribute_text(path: str) -> str:
    """`self.layers[0].weight` for the path "layers.0.weight"."""
    text = "self"
    for part in path.split("."):
        if part.isdigit():
            text += f"[{part}]"
        elif part.isidentifier() and not keyword.iskeyword(part):
            text += f".{part}"
        else:
            text = f"getattr({text}, {part!r})"
    return text


def _input_expressions(graph: Graph, names: list[str]) -> dict[str, str]:
    """forward's arguments by value. Raises: CoderError where an argument is a structure that is not a flat list."""
    if len(names) >= len(graph.inputs) and all(graph.argument_of[value] in names for value in graph.inputs):
        return {value: graph.argument_of[value] for value in graph.inputs}
    found = {}
    for value in graph.inputs:
        argument = graph.argument_of[value]
        base, _, index = argument.rpartition("_")
        if argument in names:
            found[value] = argument
        elif base in names and index.isdigit():
            found[value] = f"{base}[{index}]"
        else:
            raise CoderError(f"forward's argument {argument!r} is a structure; pass tensors or flat lists of tensors")
    return found
