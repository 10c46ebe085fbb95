"""The text of versions that are made of a reference without a search, and parts of such a text."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from mtmc.optimizations import Version
from mtmc.rewrite.exported import export_graph
from mtmc.rewrite.plan import graph_of
from mtmc.rewrite.source import print_plan
from mtmc.task import Task, task_from_source
from tests.rewrite.interpreted import apply
from tests.rewrite.stepping import version


def text_of(made: Version) -> str:
    """A version's text."""
    return print_plan(made.task, made.graph, made.plan).source


def text_after(source: str | Task, way: Sequence[str]) -> str:
    """The text of a version after a way's actions, see `interpreted.py`. source: a reference or its task."""
    task = task_from_source(source, "reference") if isinstance(source, str) else source
    plan = apply(task, list(way))
    return print_plan(task, graph_of(export_graph(task), plan), plan).source


def attention_text(task: Task, ops: Sequence[str], settings: Mapping[str, int | str]) -> str:
    """The text of a version in which some ops are one kernel of attention with some settings."""
    root = version(task)
    kernel = root.as_kernel(tuple(ops), {})
    assert kernel is not None and kernel.template == "attention"
    parts = [stage for stage in root.plan.stages if stage.ops[0] in kernel.ops]
    return text_of(version(task, root.plan.with_merged(root.graph, parts, kernel.scheduled(settings))))


def kernel_of(text: str, name: str) -> str:
    """One kernel of a text."""
    found = re.search(rf"@triton.jit\ndef {name}_kernel\(.*?\n(?=\n\n@|\n\ndef)", text, re.DOTALL)
    assert found is not None
    return found[0]


def forward_of(text: str) -> str:
    """ModelNew's forward, the last thing of a text."""
    return text[text.rindex("def forward(") :]
