"""What attention in Gluon is tried with, on a CPU (test_gluon.py) and on a GPU (tests/evaluate/test_gluon_on_gpu.py)."""

from __future__ import annotations

from collections.abc import Mapping
from types import ModuleType

import torch

from mtmc.hardware import hardware
from mtmc.optimizations import Version
from mtmc.optimizations.version import CallTimes
from mtmc.rewrite.exported import export_graph
from mtmc.rewrite.plan import Plan, Stage, merged_ops, root_plan
from mtmc.rewrite.source import print_plan
from mtmc.task import Task, task_from_source

REFERENCE = """
import torch
from torch import nn
from torch.nn.functional import scaled_dot_product_attention

batch, heads, groups, rows, cols, width = {sizes}
VARIANTS = {{
    "small": {{"batch": 1, "rows": 48, "cols": 64}},
    "odd1": {{"batch": 3, "rows": 33, "cols": 49}},
}}


class Model(nn.Module):
    def forward(self, q, k, v, bias):
        {work}


def get_inputs():
    return [
        torch.randn(batch, heads, rows, width).{dtype}(),
        torch.randn(batch, groups, cols, width).{dtype}(),
        torch.randn(batch, groups, cols, width).{dtype}(),
        torch.randn({bias}).{dtype}(),
    ]


def get_init_inputs():
    return []
"""
CALL = "return scaled_dot_product_attention(q, k, v{})"
FULL, CAUSAL, GROUPED = CALL.format(""), CALL.format(", is_causal=True"), CALL.format(", enable_gqa=True")
WINDOW = (
    "at = torch.arange(q.shape[2], device=q.device)[:, None] - torch.arange(k.shape[2], device=q.device)[None, :]\n"
    "        return scaled_dot_product_attention(q, k, v, attn_mask=(at >= -20) & (at < 100))"
)
BIASED = CALL.format(", attn_mask=bias, scale=0.2")
WRITTEN = "return torch.softmax((q @ k.transpose(-2, -1)) * 0.3, dim=-1) @ v"
CAPPED = "return torch.softmax(20 * torch.sin((q @ k.transpose(-2, -1)) / 20), dim=-1) @ v * bias + 1"
GLUON: dict[str, int | str] = {
    "language": "gluon", "block_m": 128, "block_n": 64, "num_warps": 4, "num_stages": 2, "turns": 0,
}  # fmt: skip


def task_of(work: str, sizes: tuple[int, ...], bias: str = "rows, cols", dtype: str = "bfloat16") -> Task:
    return task_from_source(REFERENCE.format(work=work, sizes=sizes, bias=bias, dtype=dtype), "attention_in_gluon")


def kernel_of(
    task: Task, settings: Mapping[str, int | str], times: CallTimes | None = None
) -> tuple[Version, Plan, Stage]:
    """The root, a plan of the one kernel that covers a task with some settings changed, and its stage."""
    graph = export_graph(task)
    root = Version.of(task, root_plan(graph), hardware("H100"), times=times)
    parts = [stage for stage in root.plan.stages if not root.is_free(stage)]
    stage = root.as_kernel(merged_ops(graph, parts), {})
    if stage is None:  # views stand between the others
        parts = list(root.plan.stages)
        stage = root.as_kernel(merged_ops(graph, parts), {})
    assert stage is not None
    stage = stage.scheduled(settings)
    return root, root.plan.with_merged(graph, parts, stage), stage


def printed(task: Task, settings: Mapping[str, int | str]) -> str:
    root, plan, _ = kernel_of(task, settings)
    return print_plan(task, root.graph, plan).source


def inputs_of(task: Task) -> list[torch.Tensor]:
    torch.manual_seed(0)
    module = ModuleType("reference")
    exec(task.source, vars(module))
    return list(module.get_inputs())


CASES = {
    "full": (FULL, (1, 2, 2, 256, 256, 64), {}),
    "more columns than blocks": (FULL, (2, 1, 1, 200, 137, 64), {"block_n": 32, "num_stages": 3, "rescale": "late"}),
    "four groups in turns": (FULL, (1, 1, 1, 300, 137, 64), {"block_m": 256, "turns": 1, "rescale": "late"}),
    "causal": (CAUSAL, (1, 2, 2, 256, 256, 32), {"block_n": 128}),
    "causal, fewer columns": (CAUSAL, (1, 2, 2, 300, 130, 32), {}),
    "causal, more columns": (CAUSAL, (1, 1, 1, 140, 300, 16), {"block_n": 32}),
    "three groups in turns": (GROUPED, (2, 4, 2, 200, 150, 32), {"block_m": 192, "turns": 1}),
    "window": (WINDOW, (1, 2, 2, 400, 400, 32), {"num_stages": 3}),
    "window, fewer columns": (WINDOW, (1, 1, 1, 220, 130, 32), {"block_n": 128}),
    "bias": (BIASED, (2, 2, 2, 100, 200, 64), {}),
    "written out": (WRITTEN, (1, 2, 2, 70, 90, 64), {}),
    "a width between": (CAUSAL, (1, 2, 2, 130, 130, 40), {}),
}

GROUPED_CAUSAL = CALL.format(", is_causal=True, enable_gqa=True")
BACKWARD = {
    "one step with masks": (CAUSAL, (1, 2, 2, 300, 300, 64), {"block_n": 128}),
    "fewer columns": (CAUSAL, (1, 2, 2, 400, 130, 32), {"block_n": 128, "rescale": "late"}),
    "more columns": (CAUSAL, (1, 1, 1, 140, 333, 16), {"block_n": 128, "turns": 1, "scaling": "joined"}),
    "one column": (CAUSAL, (1, 1, 1, 140, 1, 16), {"block_n": 128}),
    "one column more than a block": (CAUSAL, (1, 1, 1, 270, 129, 16), {"block_n": 128, "scaling": "joined"}),
    "grouped heads": (GROUPED_CAUSAL, (2, 4, 2, 260, 260, 32), {"block_n": 256}),
    "a width of 128": (CAUSAL, (1, 1, 1, 300, 300, 128), {"block_n": 128, "scaling": "joined", "rescale": "late"}),
    "narrow blocks": (CAUSAL, (1, 2, 2, 300, 300, 32), {"num_stages": 3, "scaling": "joined", "turns": 1}),
    "half as wide": (CAUSAL, (1, 2, 2, 300, 222, 32), {"block_n": 64, "rescale": "late"}),
    "three groups": (CAUSAL, (1, 2, 2, 410, 410, 32), {"block_m": 192, "block_n": 128, "scaling": "joined"}),
    "three groups in turns": (CAUSAL, (1, 1, 1, 400, 300, 16), {"block_m": 192, "block_n": 64, "turns": 1}),
    "four groups": (CAUSAL, (1, 1, 1, 600, 555, 16), {"block_m": 256, "block_n": 64, "rescale": "late"}),
    "an odd number of blocks": (CAUSAL, (3, 1, 1, 600, 600, 16), {"block_n": 128, "persistent": 4, "order": "heavy"}),
    "several blocks, three groups": (
        GROUPED_CAUSAL, (1, 4, 2, 500, 400, 16),
        {"block_m": 192, "block_n": 128, "persistent": 3, "turns": 1, "rescale": "late", "scaling": "joined"},
    ),
    "several blocks, fewer columns": (CAUSAL, (1, 3, 3, 333, 90, 16), {"block_n": 128, "persistent": 2}),
    "full": (FULL, (1, 2, 2, 256, 300, 32), {"scaling": "joined"}),
    "full, written out": (WRITTEN, (1, 2, 2, 70, 90, 64), {"persistent": 2, "turns": 1}),
}  # fmt: skip
"""Keys from the last to the first: work, sizes, settings."""
BACKWARD = {name: (work, sizes, {"keys": "backward", **more}) for name, (work, sizes, more) in BACKWARD.items()}

OVERLAPPED = {
    "causal": (CAUSAL, (1, 3, 3, 500, 500, 32), {"persistent": 2, "order": "heavy"}),
    "full": (FULL, (2, 3, 3, 300, 137, 32), {"persistent": 5, "num_stages": 3, "rescale": "late"}),
    "window": (WINDOW, (1, 2, 2, 400, 400, 32), {"persistent": 3, "scaling": "joined"}),
    "bias": (BIASED, (2, 2, 2, 300, 200, 64), {"persistent": 3}),
    "in turns": (GROUPED, (2, 4, 2, 200, 150, 32), {"persistent": 3, "block_m": 192, "turns": 1, "rescale": "late"}),
    "one block of keys": (CAUSAL, (2, 2, 2, 140, 20, 16), {"persistent": 2}),
    "one program": (CAUSAL, (1, 3, 3, 333, 90, 16), {"persistent": 1, "block_n": 128}),
    "backward": (CAUSAL, (3, 1, 1, 600, 600, 16), {"persistent": 4, "block_n": 128, "order": "heavy", "keys": "backward"}),
    "backward, three groups": (
        GROUPED_CAUSAL, (1, 4, 2, 500, 400, 16),
        {"persistent": 3, "keys": "backward", "block_m": 192, "block_n": 128, "turns": 1, "rescale": "late",
         "scaling": "joined"},
    ),
    "backward, three groups that skip": (
        CAUSAL, (1, 2, 2, 500, 600, 16),
        {"persistent": 2, "keys": "backward", "block_m": 192, "num_stages": 3, "turns": 1, "order": "heavy"},
    ),
    "backward, four groups": (
        CAUSAL, (1, 2, 2, 600, 555, 16),
        {"persistent": 2, "keys": "backward", "block_m": 256, "num_stages": 4, "rescale": "late"},
    ),
}  # fmt: skip
"""Blocks of queries as one pipeline: work, sizes, settings."""
OVERLAPPED = {name: (work, sizes, {"overlap": 1, **more}) for name, (work, sizes, more) in OVERLAPPED.items()}
