"""Stretches of a forward that are done again from what was noted: they launch what their function launches."""

from __future__ import annotations

import ast
import inspect
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
import torch
import triton

from mtmc.bench.suites.blocks import FOLDER
from mtmc.evaluate.audit.audit import audit
from mtmc.hardware import hardware
from mtmc.optimizations import Version, legal_moves
from mtmc.rewrite.direct_launch import HELPER, STRETCHES, is_noted
from mtmc.rewrite.exported import export_graph
from mtmc.rewrite.plan import root_plan
from mtmc.rewrite.source import Printout, print_plan
from mtmc.task import load_task
from tests.breadth import share

BLOCKS = (
    "vision/rope_2d", "decoder/gqa_decode", "decoder/residual_rmsnorm", "decoder/qk_norm_rope",
    "recurrent/ssd_chunk", "loss/label_smoothing", "decoder/rope_qk", "science/row_attention_with_pair_bias",
)  # fmt: skip


WAYS = {
    "recurrent/linear_attention": (
        "rewrite by algebra: einsum is a product of matrices, and 2 more, and fuse",
        "fuse all",
    ),
    "decoder/differential_attention": ("rewrite by algebra: matmul_1 is taken of each softmax by itself, and fuse",),
}
"""With a copy between products, and with one at the end, of what is turned and then flattened."""


def after(name: str, way: tuple[str, ...]) -> Printout:
    """A block after these actions, by their sentences' beginnings, launched directly."""
    task = load_task(FOLDER / f"{name}.py")
    version = Version.of(task, root_plan(export_graph(task)), hardware("H100"))
    for beginning in way:
        move = next(each for each in legal_moves(version) if each.action.sentence.startswith(beginning))
        assert move.child is not None
        version = Version.of(task, move.child, hardware("H100"))
    return print_plan(task, version.graph, replace(version.plan, direct_launch=True))


class Compiled:
    module = object()

    def __init__(self, name: str, seen: list[Any]) -> None:
        self.name, self.seen = name, seen

    def __getitem__(self, grid: tuple[int, ...]) -> Any:
        return lambda *given: self.seen.append((self.name, grid, given))


class Kernel:
    """As Triton's jitted function, with a GPU that does nothing."""

    def __init__(self, function: Any, seen: list[Any]) -> None:
        self.__name__ = function.__name__
        self.arg_names, self.seen = tuple(inspect.signature(function).parameters), seen

    def __getitem__(self, grid: tuple[int, ...]) -> Any:
        def launch(*given: Any, **options: Any) -> Compiled:
            constants = [options[name] for name in self.arg_names[len(given) :]]
            self.seen.append((self.__name__, (*grid, 1, 1)[:3], (*given, *constants)))
            return Compiled(self.__name__, self.seen)

        return launch


@cache
def printout(name: str) -> Printout:
    """A block with as much in kernels as there is in few steps, launched directly."""
    if name in WAYS:
        return after(name, WAYS[name])
    task = load_task(FOLDER / f"{name}.py")
    plan, gpu = root_plan(export_graph(task)), hardware("H100")
    for _ in range(4):
        version = Version.of(task, plan, gpu)
        moves = [
            move for move in legal_moves(version) if move.action.kind in ("lower", "fuse") and move.child is not None
        ]
        if not moves:
            break
        best = max(moves, key=lambda move: sum(len(stage.ops) for stage in move.child.stages if not stage.is_torch))
        assert best.child is not None
        plan = best.child
    return print_plan(task, version.graph, replace(plan, direct_launch=True))


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Runs a text with kernels that note their launches."""
    seen: list[Any] = []
    monkeypatch.setattr(triton, "jit", lambda function: Kernel(function, seen))

    def load(text: str) -> dict[str, Any]:
        names: dict[str, Any] = {"seen": seen}
        exec(compile(text, "version", "exec"), names)
        return names

    return load


def launches(seen: list[Any], known: dict[str, torch.Tensor]) -> list[Any]:
    """What was launched, each pointer by the tensor that it lies in: made memory by the order in which launches take it."""
    taken: dict[str, str] = {}

    def placed(x: Any) -> Any:
        if hasattr(x, "block_shape"):
            return placed(x.base), *x.block_shape
        address = x.data_ptr() if isinstance(x, torch.Tensor) else x
        if isinstance(x, bool | float) or not isinstance(address, int) or address < 1 << 20:
            return x
        for name, tensor in known.items():
            length = 1 + sum((size - 1) * step for size, step in zip(tensor.shape, tensor.stride(), strict=True))
            if tensor.data_ptr() <= address < tensor.data_ptr() + length * tensor.element_size():
                memory = taken.setdefault(name, f"memory {len(taken)}") if name.startswith("made") else name
                return memory, address - tensor.data_ptr()
        return "scratch"

    return [(name, grid, *map(placed, given)) for name, grid, given in seen]


def outcome(names: dict[str, Any], model: Any, inputs: list[Any]) -> tuple[list[Any], list[Any]]:
    """The launches of a call, and what it returned but for the numbers."""
    names["seen"].clear()
    held: list[torch.Tensor] = []  # or one tensor might come to lie where another was
    with pytest.MonkeyPatch.context() as patch:
        for name in ("empty", "empty_like", "empty_strided"):
            patch.setattr(torch, name, _keeping(held, getattr(torch, name)))
        patch.setitem(names, "copied", _keeping(held, names["copied"]))
        found = model(*inputs)
    leaves = list(found) if isinstance(found, tuple | list) else [found]
    known = {f"input {at}": x for at, x in enumerate(inputs) if isinstance(x, torch.Tensor)}
    known |= dict(model.named_parameters()) | dict(model.named_buffers())
    known |= {f"made {at}": x for at, x in enumerate(held)}
    return launches(names["seen"], known), [(x.shape, x.stride(), x.dtype, x.storage_offset()) for x in leaves]


def _keeping(held: list[torch.Tensor], make: Any) -> Any:
    def kept(*given: Any, **named: Any) -> torch.Tensor:
        held.append(make(*given, **named))
        return held[-1]

    return kept


@pytest.mark.parametrize("name", [*share(list(BLOCKS), 4), *WAYS])
def test_what_is_done_again_is_what_was_done(name: str, module: Any) -> None:
    text = printout(name).source
    assert "= Stretch(" in text
    names, task = module(text), load_task(FOLDER / f"{name}.py")
    stretches = [each for each in names.values() if type(each).__name__ == "Stretch"]
    small: dict[str, Any] = {}
    exec(compile(task.source, "task", "exec"), small)
    torch.manual_seed(0)
    model = names["ModelNew"](*small["get_init_inputs"]()).eval()
    with torch.no_grad():
        inputs = small["get_inputs"]()
        first = outcome(names, model, inputs)
        again = outcome(names, model, inputs)
        calls = [len(each.known) for each in stretches]
        other = outcome(names, model, [x.clone() if isinstance(x, torch.Tensor) else x for x in inputs])
    assert first == again == other
    assert sum(calls) >= 1 and calls == [len(each.known) for each in stretches]


TEXT = """
import torch


class Kernel:
    def __init__(self, seen):
        self.seen = seen

    def __getitem__(self, grid):
        return lambda *given: self.seen.append(given)


seen = []
"""


def stretch(function: Any) -> tuple[Any, dict[str, Any]]:
    names: dict[str, Any] = {}
    exec(TEXT + HELPER + STRETCHES, names)
    return names["Stretch"](lambda *given: function(names, *given)), names


def launch(names: dict[str, Any], notes: Any, *given: Any) -> None:
    kernel = names.setdefault("kernel", names["Kernel"](names["seen"]))
    if notes is not None:
        notes.launches.append((kernel, (1, 1, 1), given, []))
    kernel[1, 1, 1](*given)


def made(names: dict[str, Any], x: torch.Tensor, notes: Any) -> torch.Tensor:
    out = names["fresh"](torch.empty_like(x), notes)
    launch(names, notes, x, out, x.shape[0])
    return out


def test_it_is_remembered_by_kinds_and_their_number_is_bounded() -> None:
    again, _ = stretch(made)
    for given in (
        torch.zeros(8),
        torch.ones(8),
        torch.zeros(9),
        torch.zeros(8).half(),
        torch.zeros(9)[1:],
        torch.zeros(16)[::2],
    ):
        assert again(given).shape == given.shape
    assert len(again.known) == 5
    for size in range(300):
        again(torch.zeros(10 + size))
    assert len(again.known) <= again.MOST


def test_what_a_call_gives_is_its_own() -> None:
    again, _ = stretch(made)
    x = torch.zeros(8)
    results = [again(x) for _ in range(3)]
    assert len({each.data_ptr() for each in results}) == 3


def _copied(names: Any, x: torch.Tensor, notes: Any) -> torch.Tensor:
    return made(names, x.contiguous(), notes)


def _computed(names: Any, x: torch.Tensor, notes: Any) -> torch.Tensor:
    return made(names, x + 1, notes)


def _zeros(names: Any, x: torch.Tensor, notes: Any) -> torch.Tensor:
    out = torch.zeros_like(x)
    launch(names, notes, x, out)
    return out


def _described(names: Any, x: torch.Tensor, notes: Any) -> torch.Tensor:
    out = made(names, x, notes)
    launch(names, notes, object(), out)
    return out


def _unloaded(names: Any, x: torch.Tensor, notes: Any) -> torch.Tensor:
    out = made(names, x, notes)
    notes.launches.append(None)
    return out


def _returned_copy(names: Any, x: torch.Tensor, notes: Any) -> torch.Tensor:
    return made(names, x, notes).clone()


def _as_another_type(names: Any, x: torch.Tensor, notes: Any) -> torch.Tensor:
    return made(names, x, notes).view(torch.int32)


@pytest.mark.parametrize(
    "function",
    [_copied, _computed, _zeros, _described, _unloaded, _returned_copy, _as_another_type],
    ids=lambda f: f.__name__,
)
def test_what_cannot_be_done_again_is_done_anew_each_time(function: Any) -> None:
    again, names = stretch(function)
    x = torch.zeros(8, 8).t()[:, :3]
    for _ in range(3):
        again(x)
    assert not again.known and len(names["seen"]) >= 3


def test_what_was_not_known_again_and_again_is_not_noted_any_more() -> None:
    noting: list[bool] = []

    def computed(names: Any, x: torch.Tensor, notes: Any = None) -> torch.Tensor:
        noting.append(notes is not None)
        return made(names, x + 1, notes)

    again, _ = stretch(computed)
    for x in [torch.zeros(8)] * 5 + [torch.zeros(9)]:
        again(x)
    assert noting == [True] * 3 + [False] * 2 + [True]
    for size in range(300):
        again(torch.zeros(10 + size))
    assert len(again.tries) <= again.MOST


COPIES = {
    "of_a_transposed_tensor": lambda x: (x.t().contiguous(), x.t()),
    "of_a_part_behind_others": lambda x: (x[2:, 1::2].contiguous(), x[2:, 1::2]),
    "under_another_shape": lambda x: (x.t().reshape(-1), x.t()),
    "of_what_is_in_order": lambda x: (x.contiguous(), x),
    "of_a_view": lambda x: (x.reshape(-1), x),
    "channels_last": lambda x: (x[None, None].expand(2, 3, 6, 5).contiguous(memory_format=torch.channels_last), x),
}


@pytest.mark.parametrize("name", COPIES)
def test_copies_are_made_again_of_what_is_given_then(name: str) -> None:
    def copying(names: Any, x: torch.Tensor, notes: Any = None) -> torch.Tensor:
        found, of = COPIES[name](x)
        of = x[None, None].expand(2, 3, 6, 5) if name == "channels_last" else of
        y = names["copied"](found, of, notes)
        launch(names, notes, y, y.shape[0])
        return y

    again, names = stretch(copying)
    for seed in range(3):
        torch.manual_seed(seed)
        x = torch.randn(6, 5)
        found, _ = COPIES[name](x)
        y = again(x)
        assert torch.equal(y, found) and (y.shape, y.stride()) == (found.shape, found.stride())
    assert len(again.known) == 1 and not again.tries and len(names["seen"]) == 3


def test_tensors_that_share_memory_are_not_remembered_and_neighbours_in_it_are() -> None:
    def both(names: Any, x: torch.Tensor, y: torch.Tensor, notes: Any) -> torch.Tensor:
        launch(names, notes, x, y)
        return made(names, x, notes)

    again, _ = stretch(both)
    whole = torch.zeros(16)
    again(whole[:8], whole[4:12])
    again(whole, whole)
    assert not again.known
    again(whole[:8], whole[8:])
    again(torch.zeros(8), torch.zeros(8))
    assert len(again.known) == 1, "they are of one kind, and each pointer belongs to one of them"


def test_views_of_what_is_given_and_made_are_handed_back() -> None:
    def views(names: Any, x: torch.Tensor, notes: Any) -> tuple[torch.Tensor, ...]:
        out = made(names, x, notes)
        return x, x[2:], out.t(), out[1:]

    again, _ = stretch(views)
    for base in (torch.zeros(4, 6), torch.zeros(5, 6)[1:]):
        shapes = [(each.shape, each.stride(), each.storage_offset()) for each in again(base)]
        found = again(base)
        assert [(each.shape, each.stride(), each.storage_offset()) for each in found] == shapes
        assert found[0] is base and found[1].data_ptr() == base[2:].data_ptr()
        assert found[2].data_ptr() == found[3].data_ptr() - 6 * 4
    assert len(again.known) == 1 + (torch.zeros(5, 6)[1:].data_ptr() % 16 != 0)


@pytest.mark.parametrize(
    ("body", "noted"),
    [
        ("y = fresh(torch.empty_like(x), notes)", True),
        ("x = x.contiguous()\n    y = x", True),
        ("y = torch.zeros(3)", False),
        ("y = torch.empty_like(x)\n    y.zero_()", False),
        ("y = x\n    y[0] = 1", False),
        ("y = x.to(torch.float16)", False),
        ("for y in x:\n        pass", False),
        ("y = other(x)", False),
    ],
)
def test_launchers_that_do_more_are_not_noted(body: str, noted: bool) -> None:
    assert (
        is_noted(f"def launch_y(x, notes=None):\n    {body}\n    k_directly[(1,), notes](x, y)\n    return y\n")
        is noted
    )


@pytest.mark.parametrize("name", share(list(BLOCKS), 3))
def test_lines_of_views_are_where_they_moved_and_the_text_passes_the_audit(name: str) -> None:
    found, task = printout(name), load_task(FOLDER / f"{name}.py")
    assert audit(found.source, task.source) is None
    lines = found.source.splitlines()
    for stage, region in found.regions.items():
        if stage.is_torch:
            text = "\n".join(lines[region.first_line - 1 : region.last_line])
            assert isinstance(ast.parse(inspect.cleandoc(text)).body[0], ast.Assign | ast.Return), text
