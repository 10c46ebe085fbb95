"""Products by programs that make many tiles, share the last ones, or read tiles through descriptors: right and built."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from mtmc.evaluate.compiling.build import Built, build, warm
from mtmc.evaluate.pool.settings import PoolSettings
from mtmc.optimizations import legal_moves
from mtmc.rewrite.exported import export_graph
from mtmc.rewrite.plan import Plan
from mtmc.rewrite.source import print_plan
from mtmc.task import Task, task_from_source
from tests.conftest import WarmPools
from tests.rewrite.interpreting import interpret
from tests.rewrite.stepping import actions_on, version

TEMPLATE = """
import torch
from torch import nn

rows, inner, cols = 2048, 4096, 2304
VARIANTS = {{
    "small": {{"rows": 72, "inner": 64, "cols": 56}},
    "odd1": {{"rows": 33, "inner": 37, "cols": 41}},
}}


class Model(nn.Module):
    def __init__(self, inner, cols):
        super().__init__()
        self.linear = nn.Linear(inner, cols)
        self.weight = nn.Parameter(torch.randn(inner, cols) / 8)
        self.stack = nn.Parameter(torch.randn(3, inner, 48) / 8)
        self.taps = nn.Parameter(torch.randn(cols, 16, 2, 3) / 8)

    def forward(self, x):
        return {work}


def get_inputs():
    return [torch.randn({shape})]


def get_init_inputs():
    return [inner, cols]
"""
LINEAR = TEMPLATE.format(work="torch.relu(self.linear(x))", shape="rows, inner")
TASKS = {
    "linear": LINEAR,
    "matmul": TEMPLATE.format(work="torch.sigmoid(x) @ self.weight", shape="rows, inner"),
    "folded": TEMPLATE.format(work="self.linear(x)", shape="3, rows // 2, inner"),
    "maximum": TEMPLATE.format(work="self.linear(x).amax(1)", shape="rows, inner"),
    "convolved": TEMPLATE.format(work="torch.relu(nn.functional.conv2d(x, self.taps))", shape="2, 16, 4, rows // 4"),
    "square": TEMPLATE.format(work="torch.relu(x @ x)", shape="rows, rows"),
    "square_of_halves": TEMPLATE.format(work="(0.5 * x) @ x + x", shape="rows, rows"),
    "square_across": TEMPLATE.format(work="torch.tanh(nn.functional.linear(x, x))", shape="rows, inner"),
    "batched": TEMPLATE.format(work="torch.bmm(x, x)", shape="3, rows // 2, rows // 2"),
    "two_axes": TEMPLATE.format(work="(x @ x).amax(3)", shape="2, 3, inner, inner"),
    "uneven_batch": TEMPLATE.format(work="torch.bmm(x, x)", shape="3, rows // 2 - 4, rows // 2 - 4"),
    "stack": TEMPLATE.format(work="torch.bmm(x, self.stack)", shape="3, rows // 2, inner"),
    "square_batch": TEMPLATE.format(work="torch.bmm(x, x)", shape="3, inner, inner"),
}
TILE = {"block_m": 16, "block_n": 16, "block_k": 16}
OWN = {"operands": "own_descriptors", "results": "descriptors"}
WAYS: dict[str, tuple[str, dict[str, int | str]]] = {
    "persistent": ("linear", {"persistent": 4}),
    "persistent_batched": ("batched", {"persistent": 5}),
    "persistent_convolution": ("convolved", {"persistent": 7}),
    "few_share": ("linear", {"stream_k": 3}),
    "many_share": ("linear", {"stream_k": 33}),
    "descriptors": ("linear", {"operands": "descriptors"}),
    "descriptors_across": ("matmul", {"operands": "descriptors", "stream_k": 7}),
    "descriptors_folded": ("folded", {"operands": "descriptors", "persistent": 6}),
    "descriptors_of_columns": ("maximum", {"operands": "descriptors"}),
    "stored": ("linear", {"operands": "descriptors", "results": "descriptors", "block_n": 32, "epilogue": 2}),
    "stored_folded": ("folded", {"operands": "descriptors", "results": "descriptors", "persistent": 6}),
    "parts_of_pointers": ("linear", {"block_n": 64, "epilogue": 4, "persistent": 3}),
    "twice": ("square", {"operands": "descriptors"}),
    "twice_stored": ("square_of_halves", {"operands": "descriptors", "results": "descriptors"}),
    "twice_own": ("square_of_halves", {**OWN, "persistent": 3}),
    "twice_across": ("square_across", {"operands": "descriptors"}),
    "batched_read": ("batched", {"operands": "descriptors", "block_n": 32}),
    "batched_copy": ("stack", {"operands": "descriptors", "right": "transposed"}),
    "batched_whole": ("square_batch", {"operands": "descriptors", "block_k": 32}),
    "batched_stored": (
        "square_batch",
        {"operands": "descriptors", "results": "descriptors", "persistent": 5, "epilogue": 1},
    ),
    "batched_own": ("square_batch", {**OWN, "persistent": 3}),
    "batched_columns": ("two_axes", {"operands": "descriptors"}),
    "own": ("matmul", {"operands": "own_descriptors", "results": "descriptors", "maxnreg": 128}),
    "specialized": ("linear", {"operands": "own_descriptors", "specialized": 1, "num_warps": 4}),
    "own_turns": ("folded", {**OWN, "specialized": 1, "num_warps": 4, "persistent": 5}),
}


@cache
def task_of(name: str) -> Task:
    return task_from_source(TASKS[name], name)


def plan_of(name: str, **settings: int | str) -> Plan:
    """All of the task as one kernel, with these settings."""
    task = task_of(name)
    graph = export_graph(task)
    stage = version(task).as_kernel(tuple(op.name for op in graph.ops), {})
    assert stage is not None
    return Plan((stage.scheduled(settings),))


def source_of(name: str, **settings: int | str) -> str:
    return print_plan(task_of(name), export_graph(task_of(name)), plan_of(name, **settings)).source


def test_all_ways_give_the_same_product() -> None:
    cases = [
        {"name": way, "source": TASKS[name], "candidate": source_of(name, **{**TILE, **settings})}
        for way, (name, settings) in WAYS.items()
    ]
    assert interpret(cases) == dict.fromkeys(WAYS)


def test_they_build_for_hopper(warm_pools: WarmPools) -> None:
    """With the tensor memory accelerator where there are descriptors, which are taken at the full shapes."""
    tile = {"block_m": 128, "block_n": 64, "num_stages": 3, "precision": "tf32"}
    source = source_of("linear", **tile, operands="descriptors", stream_k=132)
    arguments = {"target_name": "sm_90", "multiprocessors": 132}
    pool = warm_pools.lend(PoolSettings(warm, arguments, {"TRITON_DEFAULT_FP_FUSION": "1"}, workers=1))
    try:
        request = {"task": task_of("linear"), "source": source, "target_name": "sm_90"}
        built = pool.run(build, request).value
        assert isinstance(built, Built)
        assert [kernel.name for kernel in built.kernels] == ["linear_relu_kernel", "linear_relu_combine_kernel"]
        assert [launch.grid[0] for launch in built.launches] == [132, 16 * 36 % 132]
        ptx = Path(built.kernels[0].files["ptx"]).read_text()
        assert "cp.async.bulk.tensor" in ptx and "wgmma" in ptx
    finally:
        pool.close()


def sentences(name: str, **settings: int | str) -> list[str]:
    now = version(task_of(name), plan_of(name, **settings))
    return [action.sentence for action in actions_on(now) if action.kind in ("persist", "descriptors")]


def test_what_is_offered_by_hand() -> None:
    """2048 x 2304 in tiles of 128 x 256: 144 for 132 programs; of 64 x 64: 1152. 4096 are 128 slices of 32."""
    kernel = "linear_relu"
    large = sentences("linear", block_m=128, block_n=256, block_k=32, num_warps=8, operands="pointers")
    assert [each.partition(",")[0] for each in large] == [
        f"make the {kernel} kernel persistent: 132 programs",
        f"share the {kernel} kernel's last tiles among 132 programs by slices (stream-K)",
        f"share the {kernel} kernel's last tiles among 264 programs by slices (stream-K)",
        f"read the operands of the {kernel} kernel through tensor descriptors",
        f"read the operands of the {kernel} kernel and write its result through tensor descriptors",
        f"store the tiles of the {kernel} kernel in 2 parts one after the other",
        f"store the tiles of the {kernel} kernel in 4 parts one after the other",
    ]
    small = sentences("linear", block_m=64, block_n=64)
    assert sum("persistent" in each for each in small) == 2
    assert any("a program again" in each for each in sentences("linear", stream_k=132))
    assert any("pointers again" in each for each in sentences("linear", operands="descriptors"))
    # 2 x 3 x 510 positions in tiles of 128, 2304 channels in tiles of 64: 24 x 36; of 256 and 128: 12 x 18.
    wide = {"block_m": 128, "block_n": 256, "num_warps": 8}
    assert (len(sentences("convolved")), len(sentences("convolved", **wide))) == (2, 1)
    maximum = sentences("maximum", operands="pointers")
    assert maximum == [each for each in maximum if "descriptors" in each] != []
    assert not any("stream" in each for each in sentences("batched"))
    assert any("write its result" in each for each in sentences("batched"))
    assert not any("write its result" in each for each in sentences("uneven_batch"))  # 1020 rows in tiles of 64
    written = sentences("linear", operands="descriptors", results="descriptors", epilogue=2, block_n=128)
    assert any("result through pointers again" in each for each in written)
    assert [each.partition(",")[0] for each in written if "store the tiles" in each] == [
        f"store the tiles of the {kernel} kernel in one part"
    ]
    shared = sentences("linear", stream_k=132, block_n=256, block_m=128, num_warps=8)
    assert not any("store the tiles" in each for each in shared)


@pytest.mark.parametrize(
    ("rows", "gpu", "expected"),
    [
        (8192, "H100", {"block_m": 128, "block_n": 256, "block_k": 64, "results": "descriptors", "persistent": 132}),
        (2048, "H100", {"block_m": 128, "block_n": 128, "operands": "descriptors"}),
        (16, "H100", {"block_m": 16, "block_n": 16, "block_k": 512, "num_stages": 3}),
        (2048, "A100", {"block_m": 64, "block_n": 64, "block_k": 32}),
    ],
)
def test_where_products_of_halves_start(rows: int, gpu: str, expected: dict[str, int | str]) -> None:
    """To 2304 columns: 16 x 9 tiles of 128 x 256 take two turns of 132 programs, 16 x 18 of half the size three."""
    text = TEMPLATE.format(work="self.linear(x.bfloat16())", shape="rows, inner").replace(
        "rows, inner, cols = 2048", f"rows, inner, cols = {rows}"
    )
    task = task_from_source(text.replace("nn.Linear(inner, cols)", "nn.Linear(inner, cols).bfloat16()"), "start")
    graph = export_graph(task)
    stage = version(task, gpu=gpu).as_kernel(("linear",), {})
    assert stage is not None and expected.items() <= dict(stage.schedule).items(), stage.schedule
    assert graph.values[graph.by_name["linear"].outputs[0]].dtype == "bfloat16"


def test_loads_have_warps_of_their_own_where_the_compiler_can_give_them_some() -> None:
    """bf16 on Hopper; tiles get the 128 rows that two groups of warps multiply. 128 x 256 / 256 threads is 128 elements."""
    text = LINEAR.replace("torch.randn(rows, inner)", "torch.randn(rows, inner).bfloat16()").replace(
        "nn.Linear(inner, cols)", "nn.Linear(inner, cols).bfloat16()"
    )
    task = task_from_source(text, "halves")
    graph = export_graph(task)
    stage = version(task).as_kernel(tuple(op.name for op in graph.ops), {})
    assert stage is not None
    settings: dict[str, int | str] = {"block_m": 64, "block_n": 256, "block_k": 64, "num_warps": 8, "num_stages": 3}
    plain = Plan((stage.scheduled({**settings, "operands": "descriptors"}),))

    def offered(plan: Plan, gpu: str = "H100") -> list[dict[str, object]]:
        return [
            dict(move.action.params)
            for move in legal_moves(version(task, plan, gpu))
            if "warps of their own" in move.action.sentence or "all warps of" in move.action.sentence
        ]

    [choice] = offered(plain)
    assert (choice["block_m"], choice["num_warps"], choice["operands"]) == (128, 4, "own_descriptors")
    [back] = offered(Plan((plain.stages[0].scheduled(choice),)))  # type: ignore[arg-type]
    assert (back["specialized"], back["operands"]) == (0, "descriptors")
    assert offered(plain, "A100") == [] == offered(plain, "B200")
    assert not any("warps of their own" in each for each in sentences("linear"))


@pytest.mark.parametrize("tiles", [1, 5, 12, 13])
@pytest.mark.parametrize("slices", [1, 4, 7])
@pytest.mark.parametrize("programs", [1, 3, 4, 12])
def test_shares_of_the_last_tiles_cover_each_slice_once(tiles: int, slices: int, programs: int) -> None:
    """The arithmetic of the two stream-K kernels, done for every program: who makes what, and who adds up which parts."""
    whole, left = divmod(tiles, programs)
    share = -(-left * slices // programs)
    made: dict[int, list[int]] = {tile: [] for tile in range(tiles)}
    parts: dict[int, tuple[int, int]] = {}  # place -> tile, number of slices
    for program in range(programs):
        begin = min(program * share, left * slices)
        end = min(begin + share, left * slices)
        middle = min((begin // slices + 1) * slices, end)
        for turn in range(whole + 2):
            alone, at = turn < whole, begin if turn == whole else middle
            tile = min(turn, whole) * programs + (program if alone else at // slices)
            first = 0 if alone else at % slices
            count = slices if alone else middle - begin if turn == whole else end - middle
            if count:
                made[tile] += range(first, first + count)
            if 0 < count < slices:
                assert program * 2 + turn - whole not in parts
                parts[program * 2 + turn - whole] = tile, count
    assert all(sorted(found) == list(range(slices)) for found in made.values())
    for last in range(left):
        begin = last * slices
        owners = range(begin // share, (begin + slices - 1) // share + 1)
        if len(owners) > 1:
            found = [parts.pop(owner * 2 + (owner * share < begin)) for owner in owners]
            assert {tile for tile, _ in found} == {whole * programs + last} and sum(n for _, n in found) == slices
    assert not parts


def test_warps_of_their_own_are_for_hopper_and_for_rows_that_have_descriptors() -> None:
    text = source_of("linear", operands="own_descriptors", specialized=1, num_warps=4)
    assert "warp_specialize=SPECIAL" in text and "warp_specialize=True" not in text
    assert "SPECIAL=described and (not x.is_cuda or torch.cuda.get_device_capability(x.device) == (9, 0))" in text


def test_a_share_is_at_most_two_parts_wide() -> None:
    text = source_of("linear", stream_k=132, block_m=128, block_n=256)
    assert "shares = torch.empty((2 * 132, 128, 256)" in text
