"""Version: a kernel version as the rules see it, and what they need to ask of it."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from mtmc.action import Region
from mtmc.hardware import Hardware
from mtmc.optimizations.resources import shared_bytes
from mtmc.optimizations.rounding import first_precision
from mtmc.optimizations.starts import specialized, started
from mtmc.rewrite.body import Body, NotCovered
from mtmc.rewrite.expansion import build
from mtmc.rewrite.exported import export_graph
from mtmc.rewrite.forward import forward_scope
from mtmc.rewrite.graph import Graph
from mtmc.rewrite.isomorphism import structural_hash
from mtmc.rewrite.operators.table import FREE, table
from mtmc.rewrite.packing import packed_stages
from mtmc.rewrite.plan import Plan, Setting, Stage, graph_of, root_plan
from mtmc.rewrite.printing import print_stage
from mtmc.rewrite.sizes import NoExpression
from mtmc.rewrite.source import print_plan, root_regions
from mtmc.rewrite.templates import template_of
from mtmc.rewrite.templates.conv_rounding import ROUNDED
from mtmc.task import Task

MOST_OPERANDS = 96
"""Values that one kernel may read. What joins the results of hundreds of steps is a copy that torch makes as fast, and each
pair of a step and what joins it would be tried."""


@dataclass(frozen=True)
class CallTimes:
    """What was measured of a version on a GPU, milliseconds: what the device takes for its work, and what a call takes."""

    device_ms: float
    call_ms: float


@dataclass(frozen=True)
class Version:
    """One kernel version with a plan.

    regions: lines of each stage in its source. hardware: the GPU it is for.
    tf32_reference: whether the reference convolves fp32 numbers in TF32 at full shapes, as far as that was seen. A version
    may do the same then, and would not pass where the library is exact.
    times: of the version itself, None where they were not measured.
    """

    task: Task
    graph: Graph
    plan: Plan
    regions: Mapping[Stage, Region]
    hardware: Hardware
    tf32_reference: bool = False
    times: CallTimes | None = None

    @classmethod
    def of(
        cls,
        task: Task,
        plan: Plan,
        hardware: Hardware,
        tf32_reference: bool = False,
        times: CallTimes | None = None,
    ) -> Version:
        """The version of a task that a plan makes. Raises: TaskError, CoderError where it cannot be written."""
        graph = graph_of(export_graph(task), plan)
        at_root = plan == root_plan(graph)
        regions = root_regions(task, graph, plan) if at_root else print_plan(task, graph, plan).regions
        return cls(task, graph, plan, regions, hardware, tf32_reference, times)

    def made(self, plan: Plan) -> Version:
        """What another plan makes of the same task, on the same hardware, with what is known of times. Raises: as `of`."""
        return Version.of(self.task, plan, self.hardware, self.tf32_reference, self.times)

    def fp32_products(self, template: str) -> tuple[str, ...]:
        """Ways to compute a product of fp32 numbers as exactly as the reference does, the fastest first."""
        if not self.hardware.target.startswith("sm_"):
            return ("ieee",)
        own = ("tf32", ROUNDED) if template == "convolution" and self.tf32_reference else ()
        return (*own, "tf32x3", "ieee")

    @property
    def on_gpu(self) -> bool:
        """Whether versions are evaluated on a GPU: calls are timed there and nowhere else."""
        return self.times is not None

    def kernels(self) -> list[Stage]:
        """The stages that are Triton kernels."""
        return [stage for stage in self.plan.stages if not stage.is_torch]

    def working(self) -> list[Stage]:
        """The stages but for those that are views."""
        return [stage for stage in self.plan.stages if not self.is_free(stage)]

    def kept(self) -> frozenset[Stage]:
        """The stages whose results are kept from one call to the next: what these take is nothing."""
        return frozenset(packed_stages(self.graph, self.plan)) if self.plan.packed else frozenset()

    def region(self, *stages: Stage) -> Region:
        """The lines of one or several stages together. One that nothing reads any more has no lines of its own; where none
        has, the region is the file's first line."""
        name = " and ".join(stage.name for stage in stages)
        return Region.spanning(
            name, [self.regions[stage] for stage in stages if stage in self.regions] or [Region(name, 1, 1)]
        )

    def span(self, stages: Sequence[Stage]) -> Region:
        """The lines of several stages, named by the first and the last of them."""
        return replace(self.region(*stages), name=f"{stages[0].name} to {stages[-1].name}")

    def isomorphic(self, stages: Sequence[Stage]) -> list[tuple[Stage, list[Stage]]]:
        """The first stage of each form, with the others of that form (see `rewrite.isomorphism`)."""
        found: dict[Hashable, list[Stage]] = {}
        for stage in stages:
            found.setdefault(structural_hash(self.graph, stage), []).append(stage)
        return [(first, others) for first, *others in found.values()]

    def is_free(self, stage: Stage) -> bool:
        """Whether a stage is a torch call that launches no kernel: a view, or numbers that kernels hold themselves."""
        return stage.is_torch and (self.graph.by_name[stage.ops[0]].target in FREE or stage not in self.regions)

    def body(self, stage: Stage) -> Body | None:
        """What a stage computes as one kernel, or None where no template covers it."""
        try:
            return build(self.graph, stage.ops, table)
        except NotCovered:
            return None

    def template(self, stage: Stage) -> str | None:
        """The template that covers what a stage computes, None where none does."""
        try:
            return template_of(build(self.graph, stage.ops, table)).name
        except NotCovered:
            return None

    def as_kernel(self, ops: tuple[str, ...], settings: Mapping[str, Mapping[str, int | str]]) -> Stage | None:
        """A printable kernel stage over these ops, with the settings given for its template; None if none is."""
        starts = self._starts(ops) if self.reads_few(ops) else None
        if starts is None:
            return None
        first, best, plain = starts
        kept = settings.get(plain.template, {})
        choices = [with_kept(first, kept), first, with_kept(best, kept), best, plain]
        for stage in dict.fromkeys(choices):
            fits = shared_bytes(self.graph, stage) <= self.hardware.shared_per_block or stage == plain
            if fits and self.prints(stage):
                return stage
        return None

    def reads_few(self, ops: Sequence[str]) -> bool:
        """Whether one kernel over these ops would read no more values than a kernel should."""
        made = {value for op in ops for value in self.graph.by_name[op].outputs}
        return len(set[str]().union(*(self.graph.reads[op] for op in ops)) - made) <= MOST_OPERANDS

    def _starts(self, ops: tuple[str, ...]) -> tuple[Stage, Stage, Stage] | None:
        """The settings that a kernel over these ops starts with, from those that suit best to those that all can have."""
        try:
            body = build(self.graph, ops, table)
            template = template_of(body)
            default = template.default(self.graph, body)
        except NotCovered:
            return None
        if default.get("precision") == "ieee":
            ways = self.fp32_products(template.name)
            default = {**default, "precision": first_precision(self.graph, body, Stage(ops, template.name), ways)}
        plain = Stage(ops, template.name, tuple(sorted(default.items())))
        best = started(self.graph, body, plain, self.hardware)
        return (specialized(self.graph, body, best, self.hardware) if self.on_gpu else best), best, plain

    def chosen(self, stage: Stage) -> dict[str, Setting]:
        """The settings of a kernel that it did not start with: an action has chosen them. None of a torch call."""
        if stage.is_torch:
            return {}
        starts = [each for each in self._starts(stage.ops) or () if each.template == stage.template]
        unlike = [dict(set(stage.schedule) - set(start.schedule)) for start in starts]
        return min(unlike, key=len, default=dict(stage.schedule))

    def prints(self, stage: Stage) -> bool:
        """Whether a stage can be written, for any shape."""
        return _prints(self.task, self.graph, stage)


@lru_cache(maxsize=65536)
def _prints(task: Task, graph: Graph, stage: Stage) -> bool:
    """See `Version.prints`; kept, since a child asks it of most stages that its parent has asked it of."""
    try:
        printed = print_stage(graph, stage, stage.title)
        scope = forward_scope(task, graph, printed.tensors)
        for _, number in printed.numbers:
            scope.number(number)
    except (NotCovered, NoExpression):
        return False
    return True


def with_kept(stage: Stage, settings: Mapping[str, int | str]) -> Stage:
    """A stage with those of the settings that it has."""
    own = dict(stage.schedule)
    return stage.scheduled({name: value for name, value in settings.items() if name in own})


def also(others: Sequence[object]) -> str:
    """How a sentence goes on that is about more stages of one form."""
    return f", so in {len(others)} more like it" if others else ""
