"""Rows that some programs hold, each a piece, and wait for each other."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from mtmc.rewrite.exported import export_graph
from mtmc.rewrite.plan import root_plan
from mtmc.rewrite.source import print_plan
from mtmc.rewrite.templates.row_shared import pieces_of, why_not_shared
from mtmc.rewrite.templates.rows import Layout, rows_of
from mtmc.task import task_from_source
from tests.rewrite.interpreting import interpret
from tests.rewrite.stepping import actions_on, after, version

REFERENCE = """
import torch
from torch import nn
import torch.nn.functional as F

rows, columns = 6, 20000
VARIANTS = {{
    "small": {{"rows": 3, "columns": 640}},
    "odd1": {{"rows": 2, "columns": 20001}},
    "odd2": {{"rows": 1, "columns": 270000}},
    "odd3": {{"rows": 2, "columns": 16384}},
}}


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.GroupNorm(2, 4)

    def forward(self, x, y):
        {body}


def get_inputs():
    return [torch.randn({shape}), torch.randn({shape})]


def get_init_inputs():
    return []
"""
BODIES = {
    "softmax": "return torch.softmax(x * y, -1)",
    "log_softmax": "return torch.log_softmax(x, -1) + y",
    "layer_norm": "return F.layer_norm(x + y, (columns,))",
    "rms_norm": "return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6) * y",
    "two_sums": "return x / x.abs().sum(-1, keepdim=True) + y / y.abs().amax(-1, keepdim=True)",
    "rows_too": "s = (x * y).sum(-1, keepdim=True); return x - s, s.squeeze(-1)",
    "sums_alone": "return (x - x.mean(-1, keepdim=True)).pow(2).sum(-1), y.amax(-1)",
    "masked": "return torch.softmax(x + torch.log((y > 0.5).float()), -1), torch.logsumexp(x, -1)",
    "rows_masked": "return torch.softmax(x + torch.log((y[:, :1] > 0).float()), -1)",  # NaN in all of them
    "pieces_masked": "return torch.log_softmax(x + torch.log((torch.arange(columns) > 9000).float()), -1)",
    "not_numbers": "return torch.softmax(torch.sqrt(x + 3.5), -1), F.layer_norm(torch.sqrt(y + 3.5), (columns,))",
    "far_from_zero": "return F.layer_norm(x * y + 300.0, (columns,))",
    "entropy": "return F.cross_entropy(x, (y[:, 0].abs() * 100).long().clamp(0, 99), reduction='none')",
}
NOT_FINITE = ("masked", "rows_masked", "pieces_masked", "not_numbers")
GROUPS = "return F.silu(self.norm(x)) + y"


def source(name: str) -> str:
    if name == "group_norm":
        return REFERENCE.format(body=GROUPS, shape="rows, 4, columns")
    return REFERENCE.format(body=BODIES[name], shape="rows, columns")


@pytest.mark.parametrize("name", [*BODIES, "group_norm"])
def test_they_are_right_at_all_shapes(name: str) -> None:
    """Of one, three and, in larger pieces, seventeen programs a row; groups of channels have twice as many columns, and the
    border between two channels lies in a piece, or between two, or pieces hold more than one."""
    case = {"name": name, "source": source(name), "ways": [["lower", "fuse", "share each row"]], "waits": True}
    case["same"] = name in NOT_FINITE  # element by element
    assert interpret([case]) == {name: None}


def test_what_belongs_to_a_channel_is_loaded_once_for_a_piece() -> None:
    """One element each of a thousand threads would be held beside the row, which leaves no register for it."""
    task = task_from_source(source("group_norm"), "groups")
    at = version(task, root_plan(export_graph(task)))
    for sentence in ("lower", "share each row"):
        at = after(at, sentence)[1]
    text = print_plan(task, at.graph, at.plan).source
    assert text.count("if ALIGNED:") == text.count("elif LONG:") == 2
    assert "ALIGNED=" in text and ">= block_cols" in text


@pytest.mark.parametrize(
    ("rows", "columns", "dtype", "passes"),
    [
        (4096, 393216, "float32", "shared"),
        (4096, 65536, "float32", "shared"),
        (512, 393216, "float32", "loop"),  # the cache holds a good part of them
        (8192, 32768, "float32", "loop"),
        (4096, 393216, "bfloat16", "loop"),
        (64, 2**22, "float32", "loop"),  # more than 32 programs hold
    ],
)
def test_long_rows_of_more_than_the_cache_holds_start_so(rows: int, columns: int, dtype: str, passes: str) -> None:
    text = source("softmax").replace("rows, columns = 6, 20000", f"rows, columns = {rows}, {columns}")
    text = text.replace("torch.randn(rows, columns)", f"torch.randn(rows, columns, dtype=torch.{dtype})")
    task = task_from_source(text, "long")
    start = version(task, root_plan(export_graph(task)))
    [_, softmax] = after(after(start, "lower")[1], "lower")[1].plan.stages
    assert softmax.setting("passes") == passes


@pytest.mark.parametrize(
    ("name", "waits"), [("softmax", 1), ("layer_norm", 1), ("group_norm", 1), ("two_sums", 1), ("sums_alone", 2)]
)
def test_programs_wait_for_each_other_once_for_all_that_they_find_in_one_walk(name: str, waits: int) -> None:
    """A maximum with the sum of exponentials below it, a mean with the distances to it; but what reads a result of the whole
    row waits for that."""
    task = task_from_source(source(name), "waiting")
    at = version(task, root_plan(export_graph(task)))
    while found := [action for action in actions_on(at) if action.kind in ("lower", "fuse")]:
        at = after(at, found[0].sentence)[1]
    at = after(at, "share each row")[1]
    assert print_plan(task, at.graph, at.plan).source.count("while tl.atomic_add") == waits


def test_a_row_is_two_to_sixty_four_pieces() -> None:
    def pieces(columns: int) -> list[int]:
        return pieces_of(Layout((), (1,), (columns,), (1,), {}, {}))

    assert pieces(8192) == []
    assert pieces(8193) == [8192]
    assert pieces(32 * 8192) == [8192, 16384, 32768]
    assert pieces(64 * 8192 + 1) == [16384, 32768]
    assert pieces(64 * 16384 + 1) == [32768]
    assert pieces(64 * 32768 + 1) == []


@pytest.mark.parametrize(
    ("gpu", "columns", "passes", "piece"),
    [
        ("H100", 64 * 8192, "shared", 8192),
        ("L4", 64 * 8192, "shared", 16384),  # 58 multiprocessors
        ("L4", 64 * 32768, "loop", 1024),
    ],
)
def test_no_more_share_a_row_than_a_gpu_has_multiprocessors(gpu: str, columns: int, passes: str, piece: int) -> None:
    text = source("layer_norm").replace("rows, columns = 6, 20000", f"rows, columns = 2048, {columns}")
    task = task_from_source(text, "long")
    start = version(task, root_plan(export_graph(task)), gpu)
    at = start.made(after(start, "fuse")[1].plan)
    [stage] = at.kernels()
    assert (stage.setting("passes"), stage.number("block_cols")) == (passes, piece)
    offered = [action.sentence for action in actions_on(at) if action.sentence.startswith("share each row")]
    assert all("8192" not in sentence for sentence in offered)
    assert bool(offered) == (gpu == "H100" or columns == 64 * 8192)


class OnGpu(torch.Tensor):
    """A tensor that says that it is on a GPU."""

    is_cuda = property(lambda self: True)  # type: ignore[assignment]


@pytest.mark.parametrize(("has", "refused"), [(4, True), (5, False)])
def test_a_gpu_without_room_for_the_programs_of_a_row_is_refused(
    has: int, refused: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = task_from_source(source("softmax"), "refused")
    start = version(task, root_plan(export_graph(task)))
    way = after(after(start, "lower")[1], "fuse")[1]
    text = print_plan(task, way.graph, after(way, "share each row")[1].plan).source
    module = dict[str, Any]()
    exec(text[text.index("import torch") : text.index("class Model")].replace("@triton.jit", ""), module)
    [launch] = [value for name, value in module.items() if name.startswith("launch_")]
    gpu = SimpleNamespace(multi_processor_count=has)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: gpu)
    x = torch.zeros(2, 5 * 8192).as_subclass(OnGpu)
    with pytest.raises(RuntimeError if refused else TypeError, match="wait for each other" if refused else "subscript"):
        launch(x, x)


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("return x - x.argmax(-1, keepdim=True)", "places"),
        ("return x / x.prod(-1, keepdim=True)", "places"),
        ("return x / x.sum(0)", "one behind the other"),
        ("return F.kl_div(x.log_softmax(-1), y.softmax(-1), reduction='sum')", "one behind the other"),
    ],
)
def test_what_is_not_put_together_from_pieces_is_not_offered(body: str, why: str) -> None:
    task = task_from_source(REFERENCE.format(body=body, shape="rows, columns"), "other")
    at = version(task, root_plan(export_graph(task)))
    for kind in ("lower", "fuse"):
        while found := [action for action in actions_on(at) if action.kind == kind]:
            at = after(at, found[0].sentence)[1]
    assert not [action for action in actions_on(at) if action.sentence.startswith("share each row")]
    for stage in at.plan.stages:
        if stage.template == "rowwise":
            built = at.body(stage)
            assert built is not None
            assert why in str(why_not_shared(built, rows_of(at.graph, built, stage)))


@pytest.mark.parametrize(
    ("chosen", "columns"),
    [([], 8192), (["share each row of the linalg_vector_norm kernel among programs that hold 16384"], 16384)],
)
def test_a_larger_kernel_starts_as_suits_it_but_for_what_was_chosen(chosen: list[str], columns: int) -> None:
    """The norm alone reads its rows once, whichever way: it is with its division that they are worth holding."""
    text = REFERENCE.format(body="return x / torch.linalg.vector_norm(x, dim=1, keepdim=True)", shape="rows, columns")
    task = task_from_source(text.replace("rows, columns = 6, 20000", "rows, columns = 32768, 65535"), "norm")
    at = after(version(task, root_plan(export_graph(task))), "lower linalg_vector_norm")[1]
    assert at.kernels()[0].setting("passes") == "loop"
    for sentence in (*chosen, "lower", "fuse"):
        at = after(at, sentence)[1]
    [stage] = at.kernels()
    assert (stage.setting("passes"), stage.setting("block_cols")) == ("shared", columns)
