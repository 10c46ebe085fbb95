"""Rows whose shares are made and used in one launch, by programs that follow each other."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from mtmc.evaluate.lab import LabSettings
from mtmc.protocols import EvaluationRequest
from mtmc.rewrite.exported import export_graph
from mtmc.rewrite.plan import root_plan
from mtmc.rewrite.source import print_plan
from mtmc.rewrite.templates.row_following import BEHIND, splits_of
from mtmc.rewrite.templates.rows import Layout
from mtmc.task import Task, task_from_source
from tests.rewrite.interpreting import interpret
from tests.rewrite.references import reference
from tests.rewrite.stepping import actions_on, after, version
from tests.rewrite.test_row_shared import OnGpu, source

OFFER = "reduce and use"
SIZES = {"n": (4000, 3, 2), "c": (6, 4, 3), "m": (9000, 700, 4001)}
"""The full ones are more than the cache holds."""
KEPT = ("softmax", "log_softmax", "layer_norm", "rms_norm", "two_sums", "rows_too", "group_norm")
OTHERS = {
    "places": reference("x - x.argmax(-1, keepdim=True)", "torch.randn(n, m)", sizes=SIZES),
    "batch_norm": reference("F.relu(self.norm(x))", "torch.randn(n, 5, m)", "self.norm = nn.BatchNorm1d(5)", SIZES),
    "columns": reference("torch.softmax(x, 1)", "torch.randn(n, m, c)", sizes=SIZES),
    "many_columns": reference("x - x.mean(1, keepdim=True)", "torch.randn(n, m, 8 * c)", sizes=SIZES),
    "half": reference("torch.softmax(x, -1)", "torch.randn(n, m).to(torch.bfloat16)", sizes=SIZES),
}


def source_of(name: str) -> str:
    return OTHERS.get(name) or large(name)


def large(name: str) -> str:
    """A reference of rows that are held by programs that wait, with more of them than the cache holds."""
    return source(name).replace("rows, columns = 6, 20000", "rows, columns = 6000, 20000")


@pytest.mark.parametrize("waits", [True, False])
@pytest.mark.parametrize("name", [*KEPT, *OTHERS])
def test_they_are_right_at_all_shapes(name: str, waits: bool) -> None:
    """Side by side in an order that nobody knows, and one after another: then each finds what it waits for."""
    ways = [["lower", "fuse", OFFER], ["lower", "fuse", OFFER, "retile"]]
    case = {"name": name, "source": source_of(name), "ways": ways, "waits": waits}
    assert interpret([case]) == {name: None}


def followed(task: Task, *ways: str) -> str:
    """The text after some actions."""
    at = version(task, root_plan(export_graph(task)))
    for sentence in ways:
        at = after(at, sentence)[1]
    return print_plan(task, at.graph, at.plan).source


@pytest.mark.parametrize("name", ["layer_norm", "two_sums", "batch_norm"])
def test_the_lab_counts_what_all_of_them_do(name: str) -> None:
    """Not what the first of them do, who have nothing to use yet, nor the last, who have no share to make."""
    text = source_of(name)
    larger = {
        "rows, columns = 6000, 20000": "rows, columns = 64, 262144",
        "n = 4000\n": "n = 4\n",
        "m = 9000": "m = 2**20",
    }
    for before, now in larger.items():
        text = text.replace(before, now)
    task = task_from_source(text, name)
    with LabSettings(workers=1, hardware="H200").open() as lab:
        [outcome] = lab.evaluate([EvaluationRequest(task, followed(task, "lower", "fuse", OFFER), 0, "screen")])
    assert outcome.status == "ok", outcome.diagnosis
    elements = 3 * 64 * 262144 if name != "batch_norm" else 2 * 20 * 2**20
    assert outcome.metrics["bytes_min"] == pytest.approx(4 * elements, rel=0.01)
    if name != "batch_norm":  # its rows are longer: a share is used when the cache has forgotten it
        again = 4 * 2 * 64 * 262144
        assert outcome.metrics["bytes_dram"] < 4 * elements + again * 0.95


@pytest.mark.parametrize("on_gpu", [True, False])
def test_a_share_is_used_by_who_has_seen_all_of_its_row_begin(on_gpu: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Or a program could wait for one that cannot begin, and a GPU where many do would stand still."""
    text = followed(task_from_source(large("softmax"), "order"), "lower", "lower", "fuse", OFFER)
    module, launched = dict[str, Any](), list[tuple[Any, ...]]()
    exec(text[text.index("import torch") : text.index("class Model")].replace("@triton.jit", ""), module)
    [launch] = [value for name, value in module.items() if name.startswith("launch_")]
    [kernel] = [name for name in module if name.endswith("_kernel")]

    class Kernel:
        def __getitem__(self, grid: tuple[int, ...]) -> Any:
            return lambda *arguments, **constants: launched.append((grid, arguments, constants))

    module[kernel] = Kernel()
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: SimpleNamespace(multi_processor_count=132))
    x = torch.zeros(2, 40000)
    launch(*[x.as_subclass(OnGpu) if on_gpu else x] * 2)
    [(grid, arguments, constants)] = launched
    shares, behind = (each for each in arguments if isinstance(each, int) and each not in (2, 40000))
    assert shares == 2 * constants["SPLIT"]
    assert behind == constants["SPLIT"] + (BEHIND * 132 if on_gpu else 0)
    assert grid == (shares + behind,)


def test_what_is_loaded_of_others_shares_is_not_what_a_multiprocessor_remembers() -> None:
    text = followed(task_from_source(large("layer_norm"), "fresh"), "lower", "lower", "fuse", OFFER)
    loads = [piece.partition(")")[0] for piece in text.split("tl.load(")[1:]]
    loads = [each for each in loads if "_parts" in each or "_centres" in each]
    assert loads and all('cache_modifier=".cg"' in each for each in loads), text


def test_shares_have_some_thousand_columns() -> None:
    def splits(columns: int) -> list[int]:
        return splits_of(Layout((), (1,), (columns,), (1,), {}, {}))

    assert splits(2048) == []
    assert splits(4096) == [2]
    assert splits(393216) == [64, 128]
    assert splits(2**23) == [1024]


@pytest.mark.parametrize("result", ["x.sum(-1)", "(x - x.mean(-1, keepdim=True)).pow(2).sum(-1, keepdim=True) * x"])
def test_what_has_nothing_to_use_or_reduces_twice_is_not_offered(result: str) -> None:
    task = task_from_source(reference(result, "torch.randn(n, m)", sizes=SIZES), "other")
    at = version(task, root_plan(export_graph(task)))
    for kind in ("lower", "fuse"):
        while found := [action for action in actions_on(at) if action.kind == kind]:
            at = after(at, found[0].sentence)[1]
    assert any(stage.template == "rowwise" for stage in at.plan.stages)
    assert not [action for action in actions_on(at) if action.sentence.startswith(OFFER)]


@pytest.mark.parametrize(("rows", "offered"), [(300, False), (3000, True)])
def test_rows_that_the_cache_holds_are_left_to_two_kernels(rows: int, offered: bool) -> None:
    """Two of 20000 fp32 numbers each; the cache of an H100 holds 52 MB."""
    task = task_from_source(source("rms_norm").replace("rows, columns = 6,", f"rows, columns = {rows},"), "cached")
    at = version(task, root_plan(export_graph(task)))
    for kind in ("lower", "fuse"):
        while found := [action for action in actions_on(at) if action.kind == kind]:
            at = after(at, found[0].sentence)[1]
    assert bool([action for action in actions_on(at) if action.sentence.startswith(OFFER)]) is offered
