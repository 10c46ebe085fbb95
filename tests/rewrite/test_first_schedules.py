"""What kernels start with: enough programs, rows that fit, and who takes what only moves elements."""

from __future__ import annotations

import pytest

from mtmc.hardware import hardware
from mtmc.optimizations import Version
from mtmc.optimizations.resources import element_bytes, shared_bytes
from mtmc.optimizations.starts import TRITON_ATTENTION
from mtmc.rewrite.exported import export_graph
from mtmc.rewrite.graph import IN_ORDER
from mtmc.rewrite.operators.products import PRODUCTS
from mtmc.rewrite.plan import Stage, root_plan
from mtmc.task import load_task, task_from_source
from tests.rewrite.interpreting import interpret
from tests.rewrite.references import reference
from tests.rewrite.stepping import after, version

SMALL = {"a": (2, 3), "b": (6, 5), "c": (5, 7), "d": (4, 3)}


def text(result: str, sizes: str, inputs: str = "torch.randn(a, b, c, d)") -> str:
    """A reference of these full sizes, "a, b, c, d"."""
    full = map(int, sizes.split(", "))
    return reference(result, inputs, sizes={name: (size, *SMALL[name]) for name, size in zip(SMALL, full, strict=True)})


def fused(source: str, beginning: str) -> Version:
    """The version after the first action of a root that begins so."""
    task = load_task(source)
    return after(version(task, root_plan(export_graph(task))), beginning)[1]


def kernel(source: str) -> Stage:
    """The only kernel of a version in which the last working call is one."""
    task = load_task(source)
    start = Version.of(task, root_plan(export_graph(task)), hardware("H200"))
    *_, last = start.working()
    found = start.as_kernel(last.ops, {})
    assert found is not None
    return found


ACROSS = "torch.randn(a, b, d, c).transpose(2, 3)"
TWO_ACROSS = "torch.randn(a, c, d, b).permute(0, 3, 1, 2)"
FAR = "torch.randn(b, c, d, a).permute(3, 0, 1, 2)"
ROWS = {
    # 32 rows side by side: more than 256 programs would read what all of them found.
    "at_most_256_share_tiles": (
        "torch.softmax(x, 1)",
        "1, 4194304, 1, 32",
        {"passes": "loop", "block_rows": 32, "split": 256},
    ),
    "shared_columns": ("x.sum(1)", "4, 8192, 8, 64", {"passes": "loop", "block_rows": 32, "split": 4}),
    "programs_enough": ("x.sum(1)", "64, 8192, 8, 64", {"passes": "loop", "split": 1}),
    # Three numbers side by side.
    "three_beside_each_other": ("x.softmax(1)", "4096, 192, 1, 3", {"passes": "registers", "block_rows": 8}),
    "many_beside_each_other": ("x.softmax(1)", "4096, 192, 1, 64", {"passes": "registers", "block_rows": 32}),
    # The same of a view, which lies the other way; none of one whose neighbours are not the next rows, or are few.
    "rows_of_a_view": ("F.layer_norm(x, (d,))", "4, 64, 64, 128", {"passes": "registers", "block_rows": 32}, ACROSS),
    "sums_of_a_view": ("x.sum((2, 3))", "4, 64, 8, 16", {"passes": "registers", "block_rows": 32}, TWO_ACROSS),
    "long_rows_of_a_view": ("x.softmax(3)", "4, 2, 64, 4096", {"passes": "registers", "block_rows": 1}, ACROSS),
    "rows_elsewhere": ("x.softmax(3)", "64, 64, 4, 128", {"passes": "registers", "block_rows": 8}, FAR),
    "few_of_a_view": ("x.softmax(3)", "64, 64, 4, 128", {"passes": "registers", "block_rows": 8}, ACROSS),
    # 512 rows of 1024: 16 programs of 32 rows, in 64 the rows fit.
    "few_programs": ("x.softmax(1)", "16, 1024, 1, 32", {"passes": "registers", "block_rows": 8}),
    "too_long_for_registers": ("x.softmax(1)", "16, 4096, 1, 32", {"passes": "loop"}),
    # Rows that are reduced alone, many and few, and one whose elements are results.
    "many_sums": ("x.sum(3)", "64, 64, 16, 2880", {"passes": "registers", "block_rows": 4, "num_warps": 8}),
    "many_short_sums": ("x.sum(3)", "64, 64, 160, 128", {"passes": "registers", "block_rows": 32, "num_warps": 8}),
    "some_short_sums": ("x.sum(3)", "32, 32, 40, 128", {"passes": "registers", "block_rows": 8, "num_warps": 4}),
    "few_sums": ("x.sum(3)", "64, 4, 16, 2880", {"passes": "registers", "block_rows": 1}),
    "many_softmaxes": ("x.softmax(3)", "64, 64, 16, 2880", {"passes": "registers", "block_rows": 1}),
}


@pytest.mark.parametrize("name", ROWS)
def test_rows_start_with_programs_enough_and_as_many_rows_as_pay(name: str) -> None:
    result, sizes, expected, *inputs = ROWS[name]
    found = dict(kernel(text(result, sizes, *inputs)).schedule)
    assert {key: found[key] for key in expected} == expected


@pytest.mark.parametrize(("sizes", "split"), [("4, 8, 64, 8192", 8), ("4, 8, 64, 1024", 1), ("64, 8, 64, 8192", 1)])
def test_small_products_of_a_batch_share_a_long_inner_dimension(sizes: str, split: int) -> None:
    """Tiles of 64 x 64, one a product: 32 products of 8192 make 256 programs of 1024 each."""
    source = text("x @ x.mT", sizes, "torch.randn(a, b, c, d, dtype=torch.bfloat16)")
    assert kernel(source).number("split_k") == split


@pytest.mark.parametrize(("rows", "tile"), [(27, (32, 128, 32)), (200, (64, 64, 32)), (9, (16, 128, 32))])
def test_narrow_matrices_of_a_batch_get_long_tiles(rows: int, tile: tuple[int, ...]) -> None:
    inputs = "torch.randn(a, b, c, d), torch.randn(a, b, d, 4 * d)"
    found = kernel(text("x @ y", f"64, 4, {rows}, 100", inputs))
    assert tuple(found.number(name) for name in ("block_m", "block_n", "block_k")) == tile


@pytest.mark.parametrize(("columns", "across"), [(32, 32), (20, 32), (8, 16), (64, 64)])
def test_a_tile_is_no_wider_than_the_matrix(columns: int, across: int) -> None:
    inputs = f"torch.randn(a, b, c, d), torch.randn(d, {columns})"
    assert kernel(text("x.flatten(0, 2) @ y", "64, 32, 32, 512", inputs)).number("block_n") == across


@pytest.mark.parametrize(
    ("sizes", "tile"),
    [("512, 4, 27, 128", (32, 32, 64)), ("512, 4, 27, 40", (32, 32, 64)), ("512, 4, 33, 128", (64, 64, 32)),
     ("512, 4, 27, 16", (32, 32, 16)), ("512, 4, 64, 16", (64, 64, 16)), ("512, 4, 9, 8", (16, 16, 16))],
)  # fmt: skip
def test_small_matrices_of_a_batch_start_with_tiles_of_their_size(sizes: str, tile: tuple[int, ...]) -> None:
    found = kernel(text("x @ x.mT", sizes, "torch.randn(a, b, c, d, dtype=torch.float16)"))
    assert tuple(found.number(name) for name in ("block_m", "block_n", "block_k")) == tile


@pytest.mark.parametrize(
    ("channels", "groups", "rows", "columns"),
    [(64, 8, 8, 256), (64, 4, 4, 512), (128, 2, 1, 2048), (256, 32, 8, 256)],
)
def test_groups_of_channels_that_lie_side_by_side_are_taken_together(
    channels: int, groups: int, rows: int, columns: int
) -> None:
    """Up to eight groups, of 256 bytes together."""
    image = f"torch.randn(16, {channels}, 32 * a, 64 * b)"
    layers = f"self.first, self.norm = nn.Conv2d({channels}, {channels}, 1), nn.GroupNorm({groups}, {channels})"
    task = load_task(
        reference("self.norm(self.first(x).tanh())", image, layers, sizes={"a": (8, 1, 2), "b": (4, 1, 3)})
    )
    _, last = after(version(task, root_plan(export_graph(task))), "keep tensors channels last")
    [norm] = after(last, "fuse tanh and")[1].kernels()
    assert (norm.number("block_rows"), norm.number("block_cols")) == (rows, columns)
    assert norm.setting("layout") == "channels_last" and norm.number("split") > 1


def test_what_only_moves_elements_joins_what_reads_them() -> None:
    """Two lookups by the same places: the second one is read behind a softmax, and would be written beside the first."""
    source = text(
        "((x[z] * 2).sum(-1).softmax(-1)[..., None] * y[z]).sum(1)",
        "64, 128, 32, 64",
        "torch.randn(a, b, d), torch.randn(a, b, d), torch.randint(0, a, (c,))",
    )
    done = fused(source, "fuse all neighbours")
    graph = done.graph
    for stage in done.kernels():
        for value in graph.leaving(stage.ops):
            assert graph.by_name[graph.producer[value]].target != "aten.index.Tensor", "a copy was written"
    lookups = [stage for stage in done.kernels() for op in stage.ops if graph.by_name[op].target == "aten.index.Tensor"]
    assert len(lookups) == 2 and lookups[0] != lookups[1]


SUMS = {
    "of_pairs": text("torch.einsum('ikc,jkc->ijc', x * 2 + 1, x.exp() - 1)", "32, 1, 16, 24", "torch.randn(a, c, d)"),
    "times_a_third": text(
        "torch.einsum('nlhd,nhmd,nlh->nlhm', x, y, x[..., 0])", "4, 32, 8, 16",
        "torch.randn(a, b, c, d), torch.randn(a, c, d, d)",
    ),
    "times_a_third_otherwise": text(
        "torch.einsum('nlhd,nhmd,nh->nhml', x, y, y[..., 0, 0])", "4, 32, 8, 16",
        "torch.randn(a, b, c, d), torch.randn(a, c, d, d)",
    ),
}  # fmt: skip


def test_products_of_pairs_get_matrices_in_order_from_what_makes_them() -> None:
    task = load_task(SUMS["of_pairs"])
    start = version(task, root_plan(export_graph(task)))
    action, done = after(start, "rewrite by algebra: einsum is a product of matrices, line ")
    graph = done.graph
    copies = [op for op in graph.ops if op.target == IN_ORDER]
    assert len(copies) == 2 and "of matrices" in action.sentence
    _, fused = after(start, "rewrite by algebra: einsum is a product of matrices, and fuse all neighbours")
    for copy in copies:
        assert len(fused.plan.stage_of(copy.name).ops) > 1, "what makes the numbers writes them in that order"


def test_a_third_factor_is_multiplied_in_the_order_of_the_product() -> None:
    done = fused(SUMS["times_a_third"], "rewrite by algebra: einsum is a sum of two, times the third")
    [product] = [op for op in done.graph.ops if op.target == "aten.matmul.default"]
    [factor] = [op for op in done.graph.ops if op.target == "aten.mul.Tensor"]
    assert factor.args[0].name == product.outputs[0], "with no permutation between them"


def test_they_are_right() -> None:
    ways = [["rewrite by algebra", "fuse all", "fuse", "lower"], ["rewrite by algebra", "lower"]]
    cases = [{"name": name, "source": source, "ways": ways} for name, source in SUMS.items()]
    assert interpret(cases) == dict.fromkeys(SUMS)


WRITTEN_OUT = reference(
    "torch.softmax((x @ y.mT).float(), -1).to(z.dtype) @ z",
    "torch.randn(2, k, n, m, dtype=torch.bfloat16), torch.randn(2, k, n, m, dtype=torch.bfloat16), "
    "torch.randn(2, k, n, 2 * m, dtype=torch.bfloat16)",
    sizes={"n": (512, 24, 19), "m": (128, 16, 16), "k": (4, 2, 3)},
)


def test_a_softmax_in_fp32_between_halves_takes_no_room_of_their_tiles() -> None:
    """64 queries of 128, and 64 keys and values in three stages: 2 x 64 (128 + 3 (128 + 256)) bytes."""
    start = fused(WRITTEN_OUT, "fuse matmul and matmul_1 with")
    [stage] = [stage for stage in start.plan.stages if stage.template == "attention"]
    assert {name: stage.number(name) for name in TRITON_ATTENTION} == TRITON_ATTENTION
    assert shared_bytes(start.graph, stage) == 2 * 64 * (128 + 3 * (128 + 256))


@pytest.mark.parametrize(
    ("result", "bytes_each"),
    [
        ("torch.addmm(z.float(), x, y.t()).relu()", 4),
        ("(x.bfloat16() @ y.bfloat16().t()).float() + z", 2),
        ("torch.addmm(z.bfloat16(), x.bfloat16(), y.t().bfloat16()).float().exp()", 2),
        ("torch.einsum('ab,cb->ac', x, y).relu()", 4),
    ],
)
def test_tiles_hold_what_is_multiplied(result: str, bytes_each: int) -> None:
    """A bias, and what is done to the sums in fp32, are no operands."""
    text = reference(result, "torch.randn(n, m), torch.randn(k, m), torch.randn(n, k)")
    task = task_from_source(text, "tiles")
    graph = export_graph(task)
    names = [op.name for op in graph.ops if op.target in PRODUCTS]
    assert element_bytes(graph, Stage(tuple(names), "matmul")) == bytes_each


def test_a_number_beside_long_rows_is_no_row() -> None:
    """A scale of no dimensions was asked for its first one."""
    text = reference(
        "torch.softmax(x * self.s, 1) + x.var(1, keepdim=True)",
        "torch.randn(n, m)",
        "self.s = nn.Parameter(torch.tensor(0.5))",
        sizes={"n": (64, 4, 3), "m": (65536, 40, 37)},
    )
    start = fused(text, "fuse the")
    [stage] = [stage for stage in start.plan.stages if not stage.is_torch]
    assert stage.setting("passes") == "loop" and stage.number("block_cols") * 4 >= 1024
