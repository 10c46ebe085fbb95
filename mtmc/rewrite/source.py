"""source: Plan -> the text of a kernel version, and which lines each stage stands on.

The file keeps everything of the reference but its forward and its input functions: the same `__init__` under the name
ModelNew, so that a seeded construction gives the same weights. The forward is printed from the plan.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from mtmc.action import Region
from mtmc.errors import CoderError
from mtmc.rewrite.body import NotCovered
from mtmc.rewrite.direct_launch import CLASS as DIRECT
from mtmc.rewrite.direct_launch import HELPER, STRETCHES, is_noted, launched_directly
from mtmc.rewrite.folding import LONGEST, folded
from mtmc.rewrite.forward import ForwardPrinter
from mtmc.rewrite.graph import Graph
from mtmc.rewrite.joins import Join, joins_of, parts_of
from mtmc.rewrite.lying import turned_once
from mtmc.rewrite.made_rounded import made_rounded, picked_rounded, seen_last
from mtmc.rewrite.neutral import printed_once
from mtmc.rewrite.operators.table import FREE
from mtmc.rewrite.packing import kept_filters, packed_stages
from mtmc.rewrite.plan import Plan, Stage
from mtmc.rewrite.printing import print_stage
from mtmc.rewrite.read_lying import read_as_they_lie
from mtmc.rewrite.reference_text import dropped_lines, forward_signature, imports, kept_lines, model_head, renamed
from mtmc.rewrite.stretches import Lines, in_stretches
from mtmc.rewrite.templates.channels_last import is_channels_last
from mtmc.rewrite.templates.launcher import Printed
from mtmc.rewrite.write_back import WriteBack, write_back
from mtmc.task import Task


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


@lru_cache(maxsize=256)
def _placing(graph: Graph, placed: tuple[tuple[str, str], ...]) -> Graph:
    """The graph for a stage that writes some values where tensors lie; one for each, since graphs are what they are."""
    return replace(graph, placed=placed) if placed else graph


@lru_cache(maxsize=256)
def print_plan(task: Task, graph: Graph, plan: Plan) -> Printout:
    """The text of a kernel version; kept, since a child is printed and later asked for its regions.

    Raises: CoderError naming the stage that cannot be written.
    """
    first = packed_stages(graph, plan) if plan.packed else []
    left, joins = write_back(graph, plan), joins_of(graph, plan)
    kernels = [stage for stage in plan.stages if not stage.is_torch]
    printed = {stage: _printed(graph, stage, left, joins) for stage in kernels}
    picked = picked_rounded(graph, plan, printed)
    printed |= {stage: replace(printed[stage], rounded=values) for stage, values in picked.items()}
    rounding = {stage: values for stage, values in made_rounded(graph, plan, printed).items() if stage not in picked}
    printed |= {stage: _printed(graph, stage, left, joins, values) for stage, values in rounding.items()}
    rounded = {
        each for values in rounding.values() for value in values for each in (value, *seen_last(graph, plan, value))
    }
    rounded |= {value for stage in picked for value in printed[stage].results}
    apart = {stage for stage in printed if left.placed.get(stage) or parts_of(graph, joins, stage)}
    lying = read_as_they_lie(graph, plan, printed)
    printed |= {stage: made for stage, made in lying.items() if stage not in {*apart, *rounding, *picked}}
    names = frozenset(forward_signature(task.source)[1])
    printed = {stage: _unshadowed(each, names) for stage, each in printed.items()}
    filters = kept_filters(graph, plan, first) if plan.packed else {}
    packing = bool(first or filters)
    turned = turned_once(graph, plan, printed)
    printer = ForwardPrinter(task, graph, plan.cuda_graph, left, packing, turned, joins, rounded)
    needed = _needed(graph, plan, printed, joins)
    like = printed_once(graph, printed)
    for stage in [*first, *(stage for stage in plan.stages if stage not in first)]:
        if stage not in first:
            printer.end_packing(first, filters)
        if stage in printed:
            printer.launch(stage, replace(printed[stage], launcher=printed[like[stage]].launcher))
        elif stage.ops[0] in needed:
            printer.torch_call(stage)
    printer.finish()
    texts = [(stage, printed[stage].text) for stage in dict.fromkeys(like.values())]
    stretches: Lines = []
    if plan.direct_launch:
        texts = [(stage, launched_directly(text)) for stage, text in texts]
        stretches = _in_stretches(graph, plan, printer, {stage: like[stage] for stage in printed}, dict(texts))
    helpers = "\n\n\n".join([HELPER, STRETCHES] if stretches else [HELPER]) if plan.direct_launch and texts else ""
    printout = _assemble(task, texts, printer, helpers, stretches)
    regions = {stage: replace(printout.regions[first], name=stage.name) for stage, first in like.items()}
    return replace(printout, regions={**printout.regions, **regions})


def _printed(
    graph: Graph, stage: Stage, left: WriteBack, joins: Mapping[str, Join], rounded: tuple[str, ...] = ()
) -> Printed:
    """A kernel's stage as text. rounded: see `made_rounded`. Raises: CoderError."""
    placing = _placing(graph, left.placed.get(stage, ()))
    try:
        return print_stage(placing, stage, stage.title, parts_of(graph, joins, stage), rounded)
    except NotCovered as error:
        raise CoderError(f"stage {stage.title} cannot be written as a {stage.template} kernel: {error}") from error


def _unshadowed(printed: Printed, names: Collection[str]) -> Printed:
    """A kernel whose launcher has no name of forward's arguments: forward would call the argument. names: of these."""
    launcher = printed.launcher
    while launcher in names:
        launcher += "_"
    if launcher == printed.launcher:
        return printed
    return replace(printed, launcher=launcher, text=re.sub(rf"\b{printed.launcher}\b", launcher, printed.text))


def _in_stretches(
    graph: Graph, plan: Plan, printer: ForwardPrinter, like: Mapping[Stage, Stage], texts: Mapping[Stage, str]
) -> Lines:
    """Have forward call stretches, see `stretches`, where it is a method of its own. like, texts: of the kernels' stages,
    the one that each is printed as, and its text. Returns: the functions."""
    if printer.cuda_graph is not None or printer.packs is not None:
        return []

    def noted(stage: Stage) -> bool:
        if stage.is_torch:
            return graph.by_name[stage.ops[0]].target in FREE and not is_channels_last(stage)
        given = bool(parts_of(graph, printer.joins, stage))  # parts of one tensor lie between each other
        return not given and f"= {DIRECT}(" in texts[like[stage]] and is_noted(texts[like[stage]])

    printer.lines, stretches = in_stretches(printer.lines, noted)
    return stretches


def _needed(graph: Graph, plan: Plan, printed: Mapping[Stage, Printed], joins: Mapping[str, Join]) -> set[str]:
    """The ops whose results are read. Kernels make constants, and what else is made of numbers, themselves, and read a
    matrix in place of its transpose, so nothing may be left to read the tensor."""
    read, needed = {*graph.results(), *(each.value for each in graph.mutations)}, set[str]()
    filled = {graph.producer[value] for join in joins.values() for value in join.filled(graph)}
    for stage in reversed(plan.stages):
        op = graph.by_name[stage.ops[0]]
        if stage in printed:
            read |= set(printed[stage].tensors)
        elif read & set(op.outputs) or not (op.name in graph.of_numbers or op.target in FREE or op.name in filled):
            needed.add(op.name)
            read |= set(op.refs() if op.name not in joins else joins[op.name].copied(graph))
    return needed


def _about(task: Task, graph: Graph) -> list[str]:
    """What the file says of itself, and an empty line."""
    title, promise = f'"""{task.name}: a kernel version made by mtmc.', "Needs only torch and triton."
    lines = [f"{title} {promise}"] if len(title) + len(promise) < LONGEST - len('"""') else [title, "", promise]
    if not graph.found:
        return [*lines[:-1], f'{lines[-1]}"""', ""]
    rules = [f"- {sentence}" for sentence in graph.found]
    return [*lines, "", "Rewritten, exact up to rounding:", *rules, '"""', ""]


def _assemble(
    task: Task,
    kernels: list[tuple[Stage, str]],
    printer: ForwardPrinter,
    first: str = "",
    stretches: Sequence[Any] = (),
) -> Printout:
    """The file. first: what stands before the kernels. stretches: lines of functions that stand behind them."""
    lines = _about(task, printer.graph)
    copies = printer.copies.helpers(printer.cuda_graph is not None and printer.cuda_graph.turns)
    lines += imports(task.source, [text for _, text in kernels] + copies)
    kept = kept_lines(task.source, drop_model=True)
    lines += ["", *kept] if kept else []
    regions: dict[Stage, Region] = {}
    lines += ["", "", *first.splitlines()] if first else []
    for stage, text in kernels:
        lines += ["", ""]
        start = len(lines) + 1
        lines += [part for line in text.splitlines() for part in folded(line)]
        regions[stage] = Region(stage.name, start, len(lines))
    for text in copies:
        lines += ["", "", *text.splitlines()]
    if printer.cuda_graph is not None:
        lines += ["", "", *printer.cuda_graph.helper()]
    if printer.packs is not None:
        lines += ["", "", *printer.packs.helper()]
    head = renamed("\n".join(model_head(task.source))).splitlines()
    model: Lines = [(None, line) for line in (["", "", *head, ""] if len(head) > 1 else ["", "", *head])]
    for origin, line in (*stretches, *model, *printer.lines):
        lines.append(line)
        if origin is not None and origin.is_torch:
            start = regions[origin].first_line if origin in regions else len(lines)
            regions[origin] = Region(origin.name, start, len(lines))
    return Printout("\n".join(lines) + "\n", regions)
