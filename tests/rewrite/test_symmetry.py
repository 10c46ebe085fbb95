"""Products whose results are symmetric: which are found, and half of them made, which must be what torch has."""

from __future__ import annotations

from functools import cache

import pytest

from mtmc.evaluate.compiling.build import Built, build, warm
from mtmc.evaluate.pool.settings import PoolSettings
from mtmc.optimizations import KINDS
from mtmc.outcome import Outcome
from mtmc.protocols import Observation
from mtmc.rewrite.exported import export_graph
from mtmc.rewrite.plan import Plan
from mtmc.rewrite.source import print_plan
from mtmc.rewrite.symmetry import symmetric_values
from mtmc.task import Task, task_from_source
from tests.conftest import WarmPools
from tests.rewrite.interpreting import interpret
from tests.rewrite.stepping import after, version

TEMPLATE = """
import torch
from torch import nn

rows, inner, batch = 1024, 4096, 2
VARIANTS = {{
    "small": {{"rows": 72, "inner": 40, "batch": 3}},
    "odd1": {{"rows": 33, "inner": 21, "batch": 2}},
    "odd2": {{"rows": 5, "inner": 67, "batch": 1}},
}}


class Model(nn.Module):
    def forward(self, x, y, s):
        {work}


def get_inputs():
    x, y = torch.randn({shape}).{dtype}(), torch.randn({shape}).{dtype}()
    return [x, y, torch.randn(rows, rows).{dtype}()]


def get_init_inputs():
    return []
"""
MATRIX, BATCH = "rows, inner", "batch, rows, inner"
SYMMETRIC = {
    "gram": "return x @ x.T",
    "gram_of_layer": "return nn.functional.linear(x, x)",
    "gram_scaled": "return 0.3 * (x / 7) @ x.T - 1",
    "gram_copied": "return x @ x.T.contiguous()",
    "columns": "return x.T @ x",
    "epilogue": "return torch.tanh(x @ x.T) * 0.5",
    "squared": "a = x @ x.T; return -4.775 * a + 2.0315 * a @ a / 64",
    "cubed": "a = x @ x.T / 64; return a @ a @ a / 64",
    "of_a_metric": "m = s + s.T; return x.T @ m @ x / 64",
    "symmetrised": "m = s + s.T; return m @ m + m",
    "added": "a = x @ x.T; return a + y @ y.T",
    "cast": "z = x.float(); return (z @ z.T).to(x.dtype)",
}
BATCHED = {
    "batched": "return x @ x.mT",
    "batched_bmm": "return torch.bmm(x, x.transpose(1, 2)) * 0.5",
    "batched_squared": "a = x @ x.transpose(-1, -2) / 64; return a + 0.1 * (a @ a)",
    "batched_scales": "a = x @ x.mT / 64; return a / a.abs().amax((-1, -2), keepdim=True) @ a",
    "batched_mean": "a = (x @ x.mT).mean(0); return a @ a / 64",
}
PLAIN = {
    "two_matrices": "return x @ y.T",
    "not_the_transpose": "return s @ s",
    "one_rounded": "return x.half().float() @ x.float().T",
    "row_scaled": "a = x @ x.T; return (a * s[0]) @ a",
    "shifted": "return x @ (x + 1).T",
    "added_plain": "return x @ x.T + s",
    "triangle": "return torch.tril(x @ x.T)",
    "fixed_columns": "a = x @ x.T; return a.roll(1, 0) @ a",
    "not_a_power": "a, b = x @ x.T, y @ y.T; return a @ b",
    "quotient_of_a_number": "a = x @ x.T; return (1 / a) @ a",
}
OTHERS = {"batched_across": "return x @ x.transpose(0, 1).transpose(0, 1).flip(0).mT"}


def text(name: str, dtype: str = "float") -> str:
    known = [(SYMMETRIC, MATRIX), (BATCHED, BATCH), (PLAIN, MATRIX), (OTHERS, BATCH)]
    [(work, shape)] = [(kinds[name], shape) for kinds, shape in known if name in kinds]
    return TEMPLATE.format(work=work, shape=shape, dtype=dtype)


@cache
def task_of(name: str, dtype: str = "float") -> Task:
    return task_from_source(text(name, dtype), name)


def products_of(name: str) -> list[str]:
    """The results of all products, and what is made of the last one."""
    graph = export_graph(task_of(name))
    return [op.outputs[0] for op in graph.ops if any(word in op.target for word in ("matmul", "linear", "bmm"))]


@pytest.mark.parametrize("name", [*SYMMETRIC, *BATCHED])
def test_symmetric_results_are_found(name: str) -> None:
    graph = export_graph(task_of(name))
    last = graph.ops[-1].outputs[0]
    assert last in symmetric_values(graph)


@pytest.mark.parametrize("name", [*PLAIN, *OTHERS])
def test_other_results_are_not(name: str) -> None:
    graph = export_graph(task_of(name))
    assert graph.ops[-1].outputs[0] not in symmetric_values(graph)
    last = version(task_of(name)).as_kernel((products_of(name)[-1],), {})
    if name not in ("added_plain", "triangle", "not_a_power"):  # whose product is, before what comes behind it
        assert last is None or "symmetric" not in dict(last.schedule)
    assert not any(
        move.action.region.name.startswith(graph.ops[-1].name)
        for move in KINDS["symmetry"].legal(version(task_of(name)))
    )


@pytest.mark.parametrize("name", ["two_matrices", "shifted", "added_plain", "triangle", "not_a_power"])
def test_half_of_another_product_cannot_be_written(name: str) -> None:
    """Whatever a plan says: of a kernel with all that hangs on the product."""
    now = version(task_of(name))
    graph = export_graph(task_of(name))
    last = products_of(name)[-1]
    behind = [op.name for op in graph.ops[graph.op_places[last] :]]
    kernel = now.as_kernel(tuple(behind), {})
    assert kernel is not None and kernel.template == "matmul"
    square = {"block_m": 32, "block_n": 32, "epilogue": 1, "split_k": 1}
    assert now.prints(kernel.scheduled(square))
    assert not now.prints(kernel.scheduled({**square, "symmetric": 1}))


def test_tensors_that_change_in_between_are_other_ones() -> None:
    """A view shows what its tensor holds later; a copy what it held before."""
    task = task_from_source(
        TEMPLATE.format(work="t = x.T.clone(); x.add_(y); return x @ t", shape=MATRIX, dtype="float"), "was"
    )
    graph = export_graph(task)
    assert not symmetric_values(graph) & {op.outputs[0] for op in graph.ops if "matmul" in op.target}
    task = task_from_source(
        TEMPLATE.format(work="t = x.T; x.add_(y); return x @ t", shape=MATRIX, dtype="float"), "now"
    )
    graph = export_graph(task)
    assert symmetric_values(graph) >= {op.outputs[0] for op in graph.ops if "matmul" in op.target}


def halved(name: str, dtype: str = "float", **settings: int | str) -> str:
    """The task with all that it can have in kernels, of which those of symmetric products make half of these."""
    task = task_of(name, dtype)
    graph = export_graph(task)
    now = version(task)
    whole = now.as_kernel(tuple(op.name for op in graph.ops), {})
    if whole is not None and whole.template == "matmul":
        stages = [whole]
    else:
        stages = [now.as_kernel(stage.ops, {}) or stage for stage in now.plan.stages]
    count = sum("symmetric" in dict(stage.schedule) for stage in stages)
    assert count, "no symmetric product"
    tile: dict[str, int | str] = {
        "symmetric": 1,
        "block_m": 16,
        "block_n": 16,
        "block_k": 16,
        "epilogue": 1,
        **settings,
    }
    changed = [stage.scheduled(tile) if "symmetric" in dict(stage.schedule) else stage for stage in stages]
    source = print_plan(task, graph, Plan(tuple(changed))).source
    assert source.count("if block_m != block_n:") >= 1
    return source


WAYS: dict[str, dict[str, int | str]] = {
    "plain": {},
    "across": {"order": "nm", "group_m": 2},
    "shared": {"split_k": 3},
    "shared_wide": {"split_k": 2, "block_m": 64, "block_n": 64},
    "persistent": {"persistent": 3},
    "descriptors": {"operands": "descriptors", "results": "descriptors"},
    "own_descriptors": {"operands": "own_descriptors", "results": "descriptors", "persistent": 4},
}


@pytest.mark.parametrize("dtype", ["float", "half", "bfloat16"])
def test_half_of_a_product_and_its_mirror_image_are_the_whole(dtype: str) -> None:
    names = [*SYMMETRIC, *BATCHED] if dtype == "float" else ["gram", "squared", "epilogue", "batched_squared", "cast"]
    cases = [{"name": name, "source": text(name, dtype), "candidate": halved(name, dtype)} for name in names]
    assert interpret(cases) == dict.fromkeys(names)


def test_all_ways_to_make_half_of_a_product() -> None:
    cases = []
    for way, settings in WAYS.items():
        for name in ("epilogue", "squared", "batched"):
            if name == "batched" and "results" in settings:
                continue  # tiles would reach into the next product's
            cases.append({"name": f"{way}_{name}", "source": text(name), "candidate": halved(name, **settings)})
    assert interpret(cases) == dict.fromkeys(case["name"] for case in cases)


@pytest.mark.parametrize("side", [1, 2, 3, 4, 7, 8])
def test_each_tile_on_and_above_the_diagonal_has_one_program(side: int) -> None:
    """The arithmetic of `fold_lines`, for every program."""
    down, across, even = (side + 1) // 2, side + 1 - side % 2, 1 - side % 2
    made = []
    for row in range(down):
        for column in range(across):
            above = column >= row + even
            made.append((row, column - even) if above else (side - even - row, side - 1 - column))
    assert sorted(made) == [(row, column) for row in range(side) for column in range(row, side)]


def test_squares_are_offered_at_once_and_stay_when_they_are_fused() -> None:
    """1024 rows are 8 tiles of 128: 36 of 64; the inner dimension of 4096 is shared by three programs, 108 on 132 SMs."""
    start = version(task_of("squared", "bfloat16"))
    offered = [move.action.sentence for move in KINDS["symmetry"].legal(start)]
    assert [each.partition(", line")[0] for each in offered if "matmul kernel" in each] == [
        "make half of the symmetric matmul kernel in tiles of 128x128, its inner dimension shared by 3 programs",
        "make half of the symmetric matmul kernel in tiles of 64x64",
    ]
    action, half = after(start, offered[0])
    assert action.param("split_k") == 3
    _, fused = after(half, "fuse matmul and ")
    [kernel] = [stage for stage in fused.kernels() if "matmul" in stage.ops]
    assert len(kernel.ops) > 1 and dict(kernel.schedule)["symmetric"] == 1 and kernel.number("split_k") == 3
    whole = [move.action.sentence for move in KINDS["symmetry"].legal(half) if "all tiles" in move.action.sentence]
    assert len(whole) == 1


def test_the_tile_that_is_thought_best_comes_first_until_half_is_made() -> None:
    start = version(task_of("gram", "bfloat16"))
    kind, actions = KINDS["symmetry"], [move.action for move in KINDS["symmetry"].legal(start)]
    seen = Observation(start.task, "", None, Outcome("ok", 1.0), (), "H100")
    first, *others = (kind.logit(seen, action, actions) for action in actions)
    assert others and all(first > other for other in others)
    _, half = after(start, "make half of the symmetric")
    actions = [move.action for move in kind.legal(half)]
    assert all(kind.logit(seen, action, actions) < 0 for action in actions)


def test_tiles_that_are_not_square_are_not_offered_for_half_of_a_product() -> None:
    _, half = after(version(task_of("gram", "bfloat16")), "make half of the symmetric")
    tiles = [dict(move.action.params) for move in KINDS["tile"].legal(half)]
    assert tiles and all(each["block_m"] == each["block_n"] for each in tiles if "block_m" in each)
    assert not any("stream-K" in move.action.sentence for move in KINDS["persist"].legal(half))


@pytest.mark.parametrize(
    "settings", [{"split_k": 1, "persistent": 32}, {"split_k": 3}, {"split_k": 1, "results": "descriptors"}]
)
def test_half_of_a_product_builds_for_hopper(settings: dict[str, int | str], warm_pools: WarmPools) -> None:
    tile = {"block_m": 128, "block_n": 128, "block_k": 64, "num_warps": 8, "operands": "descriptors", "num_stages": 3}
    source = halved("epilogue", "bfloat16", **{**tile, **settings})
    arguments = {"target_name": "sm_90", "multiprocessors": 132}
    pool = warm_pools.lend(PoolSettings(warm, arguments, {"TRITON_DEFAULT_FP_FUSION": "1"}, workers=1))
    try:
        request = {"task": task_of("epilogue", "bfloat16"), "source": source, "target_name": "sm_90"}
        built = pool.run(build, request).value
        assert isinstance(built, Built), built
        assert built.launches[0].grid[0] == int(settings.get("persistent", 36))
    finally:
        pool.close()
