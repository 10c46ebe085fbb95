"""How much of ATen's core op set has a kernel, and whether those kernels give what torch gives.

`python -m tests.rewrite.core_aten --out results/core_aten.md` writes a table of all overloads with torch.Tag.core. Each has
sample calls (`core_samples.py`); one has a kernel where everything that a sample calls can be printed as one kernel.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

from mtmc.hardware import hardware
from mtmc.optimizations import Version
from mtmc.rewrite.algebra import after_rules
from mtmc.rewrite.body import NotCovered
from mtmc.rewrite.expansion import build
from mtmc.rewrite.exported import export_graph
from mtmc.rewrite.graph import FOURIER, Graph, Op, Ref
from mtmc.rewrite.operators.table import table
from mtmc.rewrite.plan import Plan, Stage, merged_ops, root_plan
from mtmc.rewrite.printing import print_stage
from mtmc.rewrite.templates import template_of
from mtmc.task import Task, task_from_source
from tests.interpreter import interpreted
from tests.rewrite.core_samples import APART, COMPLEX, NO_SAMPLE, SAMPLES, TEMPLATE

PROGRAM = Path(__file__).with_name("core_run.py")


def core_overloads() -> list[str]:
    """All core overloads that this torch has, as "abs.default"."""
    import torch

    found = set()
    for schema in torch._C._jit_get_all_schemas():
        if schema.name.startswith("aten::"):
            name = f"{schema.name.removeprefix('aten::')}.{schema.overload_name or 'default'}"
            op = overload(name)
            if op is not None and torch.Tag.core in op.tags:
                found.add(name)
    return sorted(found)


def overload(name: str) -> object | None:
    """torch's op of that name, if it has one."""
    import torch

    packet, _, kind = name.partition(".")
    return getattr(getattr(torch.ops.aten, packet, None), kind, None)


@lru_cache
def task_of(names: tuple[str, ...]) -> Task:
    """A task whose forward returns every sample of some overloads, a tuple each."""
    rows = [f"({', '.join(SAMPLES[name])},)" for name in names]
    return task_from_source(TEMPLATE.format(results=", ".join(rows) + ","), "core_aten")


def groups(names: Sequence[str]) -> list[tuple[str, ...]]:
    """Overloads that are exported together."""
    known = [name for name in names if name in SAMPLES and overload(name) is not None]
    plain = tuple(name for name in known if name not in APART)
    return [group for group in (plain, *((name,) for name in known if name in APART)) if group]


def rules_of(names: tuple[str, ...]) -> tuple[str, ...]:
    """The rules of algebra that come before kernels: those that write complex numbers as pairs, where there are some."""
    return ("transforms",) if names and set(names) <= COMPLEX else ()


def exported(task: Task, names: tuple[str, ...]) -> Graph:
    """The graph of the samples of some overloads."""
    return after_rules(export_graph(task), rules_of(names))


def sliced(graph: Graph, result: object) -> list[Op]:
    """The ops that a part of the result needs, in order."""
    needed, found = set(names_in(result)), []
    for op in reversed(graph.ops):
        if needed & set(op.outputs):
            found.append(op)
            needed |= set(op.refs())
    return found[::-1]


def names_in(result: object) -> list[str]:
    """The values that a part of a result consists of."""
    if isinstance(result, (tuple, list)):
        return [name for part in result for name in names_in(part)]
    return [result.name] if isinstance(result, Ref) else []


def samples(task: Task, names: tuple[str, ...]) -> dict[str, list[tuple[str, ...]]]:
    """Overload -> for each of its samples the ops to be one kernel: the overload itself and what is made of it.

    What makes its operands is left out; where nothing bears the overload's name, it stands for all ops.
    """
    graph, found = exported(task, names), dict[str, list[tuple[str, ...]]]()
    for name, row in zip(names, graph.output, strict=True):
        for part in row:
            ops, made, own = sliced(graph, part), set[str](), list[Op]()
            for op in ops:
                if op.target in (f"aten.{name}", FOURIER) or made & set(op.refs()):
                    own.append(op)
                    made |= set(op.outputs)
            found.setdefault(name, []).append(tuple(op.name for op in own or ops))
    return found


def kernel_of(version: Version, ops: tuple[str, ...]) -> Stage | str | None:
    """The stage that computes some ops as one kernel, or why there is none; None where there is nothing to compute."""
    if not ops:
        return None
    stage = version.as_kernel(ops, {})
    return stage if stage is not None else why_not(version, ops)


def why_not(version: Version, ops: tuple[str, ...]) -> str:
    """Why some ops are no kernel."""
    try:
        body = build(version.graph, ops, table)
        template = template_of(body)
        stage = Stage(ops, template.name, tuple(sorted(template.default(version.graph, body).items())))
        print_stage(version.graph, stage, stage.name)
    except NotCovered as error:
        return str(error)
    return "a number cannot be expressed for other shapes"


def version_of(task: Task, names: tuple[str, ...] = ()) -> Version:
    plan = replace(root_plan(exported(task, names)), algebra=rules_of(names))
    return Version.of(task, plan, hardware("H100"))


def kernels(names: Sequence[str], first: bool = False) -> dict[str, list[Stage | str | None]]:
    """Overload -> for each sample the stage, or why there is none. first: only up to the first that is one."""
    found: dict[str, list[Stage | str | None]] = {}
    for group in groups(names):
        task = task_of(group)
        version = version_of(task, group)
        for name, rows in samples(task, group).items():
            found[name] = []
            for ops in rows:
                found[name].append(kernel_of(version, ops))
                if first and isinstance(found[name][-1], Stage):
                    break
    return found


def part_of(
    graph: Graph, names: tuple[str, ...], stages: Mapping[str, Sequence[Stage | str | None]]
) -> tuple[Graph, Plan]:
    """The graph that gives only the samples of which there are stages, and the plan with these as kernels.

    Where two share an op only the first is a kernel.
    """
    output = tuple(
        tuple(
            part
            for part, stage in zip(row, stages.get(name, [None] * len(row)), strict=True)
            if isinstance(stage, Stage)
        )
        for name, row in zip(names, graph.output, strict=True)
    )
    small = replace(graph, ops=tuple(sliced(graph, output)), output=output, mutations=())
    plan = root_plan(small)
    for stage in (each for row in stages.values() for each in row if isinstance(each, Stage)):
        parts = [part for part in plan.stages if part.is_torch and part.ops[0] in stage.ops]
        if merged_ops(small, parts) == stage.ops:
            plan = plan.with_merged(small, parts, stage)
    return small, plan


def verified(names: Sequence[str]) -> dict[str, str | None]:
    """What the kernels of each overload give in the interpreter that torch does not; None where all is the same."""
    found: dict[str, str | None] = json.loads(interpreted(PROGRAM, given=json.dumps(list(names))))
    return found


def report(names: Sequence[str], wrong: dict[str, str | None], have: dict[str, list[Stage | str | None]]) -> str:
    """The table."""
    lines, count, right = [], 0, 0
    for name in names:
        rows = have.get(name)
        if rows is None:
            lines.append(f"| {name} | cannot | {NO_SAMPLE.get(name, 'no sample')} | |")
            continue
        missing = [row for row in rows if isinstance(row, str)]
        covered = len(missing) < len(rows)
        count += covered
        right += covered and wrong.get(name) is None
        templates = sorted({row.template for row in rows if isinstance(row, Stage)})
        said = "; ".join(dict.fromkeys(missing))
        has = "no" if not covered else "yes" if not missing else "partly"
        checked = "" if not covered else wrong.get(name) or "same as torch"
        lines.append(
            f"| {name} | {has} | {', '.join(templates)}{': ' if said and templates else ''}{said} | {checked} |"
        )
    never = sum(name not in have for name in names)
    head = [
        "# Core ATen",
        "",
        f"{count} of {len(names)} core overloads have a kernel, and {count} of the {len(names) - never} that can have one; "
        f"in Triton's interpreter {right} give what torch gives.",
        f"The other {never} cannot have one: they give no tensor, random numbers, or a size that depends on data, or change "
        "what memory a tensor has.",
        "",
        "| overload | kernel | template, or why not | interpreted |",
        "|---|---|---|---|",
    ]
    return "\n".join([*head, *lines]) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    names = core_overloads()
    have = kernels(names)
    covered = [name for name, rows in have.items() if any(isinstance(row, Stage) for row in rows)]
    arguments.out.write_text(report(names, verified(covered), have), encoding="utf-8")


if __name__ == "__main__":
    main()
