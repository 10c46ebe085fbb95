"""The left operand of a product, made in its kernel of elements at other places, of parts, and of less than its elements."""

from __future__ import annotations

import pytest

from mtmc.bench.suites.blocks import FOLDER
from mtmc.errors import CoderError
from mtmc.rewrite.source import print_plan
from mtmc.task import load_task
from tests.rewrite.interpreting import interpret
from tests.rewrite.one_product import Settings, check_refused, interpret_products, printed
from tests.rewrite.stepping import actions_on, after, version

GAPS = "(x[:, :, None] - x[:, None, :])"
LATER = "torch.ones(n, n, dtype=torch.bool, device=x.device).triu(1)"
DECAYED = f"(torch.exp({GAPS}.permute(0, 3, 1, 2).masked_fill({LATER}, float('-inf'))) * y[:, None]){{}} @ z"
TWO_BATCHES = "torch.randn(2, n, 3), torch.randn(2, n, n), torch.randn(2, 3, n, k)"
HALVES = TWO_BATCHES.replace("n, n)", "n, n, dtype=torch.bfloat16)").replace("n, k)", "n, k, dtype=torch.bfloat16)")
LAST = "torch.relu(F.linear(x, y).mT.unflatten(2, (4, m)) + z)"
MAPS = "torch.randn(2, 4 * m, n), torch.randn(k, n), torch.randn(2, k, 4, m).to(memory_format=torch.channels_last)"
PLAIN = "torch.randn(m, n), torch.randn(m, k)"
CASES: dict[str, tuple[str, str, Settings]] = {
    "permuted": ("x.exp().t() @ y", PLAIN, {}),
    "permuted_of_a_batch": ("x.exp().transpose(1, 2) @ y", "torch.randn(3, m, n), torch.randn(3, m, k)", {}),
    "permuted_half": (
        "x.sin().t() @ y", PLAIN.replace("n)", "n, dtype=torch.bfloat16)").replace("k)", "k, dtype=torch.bfloat16)"), {}
    ),
    "permuted_with_work_after": ("torch.relu(x.exp().t() @ y) * 2 + 1", PLAIN, {}),
    "broadcast_alone": ("(x[:, None] - y[None]).exp() @ z", "torch.randn(n), torch.randn(m), torch.randn(m, k)", {}),
    "decayed": (DECAYED.format(""), TWO_BATCHES, {}),
    "decayed_half": (DECAYED.format(".to(z.dtype)"), HALVES, {}),
    "decayed_of_one_batch": (
        f"(torch.exp({GAPS}.masked_fill({LATER}, float('-inf'))) * y) @ z",
        "torch.randn(3, n), torch.randn(3, n, n), torch.randn(3, n, k)",
        {},
    ),
    "shared_by_a_batch": ("(x[:, None] * y[None]).tanh() @ z", "torch.randn(n), torch.randn(m), torch.randn(3, m, k)", {}),
    "slices": ("(x[:, 1:] * x[:, :-1]) @ y", "torch.randn(n, m + 1), torch.randn(m, k)", {}),
    "joined": ("torch.cat([x.exp(), x - 1], 1) @ y", "torch.randn(n, m), torch.randn(2 * m, k)", {}),
    "looked_up": ("x[y].exp() @ z", "torch.randn(7, m), torch.randint(0, 7, (n,)), torch.randn(m, k)", {}),
    "folded": ("x.exp().permute(1, 0, 2).reshape(n, 2 * m) @ y", "torch.randn(2, n, m), torch.randn(2 * m, k)", {}),
    "rows_of_two_dimensions": ("x.exp().transpose(0, 1) @ y", "torch.randn(n, 3, m), torch.randn(m, k)", {}),
    "of_another_type": ("(x * 1.7).to(y.dtype) @ y", "torch.randn(n, m), torch.randn(m, k, dtype=torch.bfloat16)", {}),
    "transposed_weight": ("F.linear(x.exp().t(), y)", "torch.randn(m, n), torch.randn(k, m)", {}),
    "two_products": (
        "torch.relu((w := x.sin().t()) @ y) * (w @ z)",
        "torch.randn(m, n), torch.randn(m, k), torch.randn(m, k)",
        {},
    ),
    "summed": ("(x.exp().t() @ y).sum(1)", PLAIN, {}),
    "split": ("x.exp().t() @ y", PLAIN, {"split_k": 3}),
    "split_of_a_batch": (DECAYED.format(""), TWO_BATCHES, {"split_k": 2}),
    "swapped": ("x.exp().t() @ y", PLAIN, {"swapped": 1}),
    "persistent": (DECAYED.format(""), TWO_BATCHES, {"persistent": 3}),
    "rows_across": ("F.linear(x, y).relu()", "torch.randn(3, m, n).mT, torch.randn(k, m)", {}),
    "rows_across_in_two_batches": (
        "F.linear(x, y, z) * 2", "torch.randn(2, 3, m, n).transpose(1, 3), torch.randn(k, 3), torch.randn(k)", {}
    ),
    "rows_across_split": ("F.linear(x, y).relu()", "torch.randn(3, m, n).mT, torch.randn(k, m)", {"split_k": 2}),
    "channels_last": (LAST, MAPS, {}),
    "channels_last_split": (LAST, MAPS, {"split_k": 2}),
    "channels_last_persistent": (LAST, MAPS, {"persistent": 3}),
    "channels_last_by_slices": (LAST, MAPS, {"stream_k": 3}),
    "channels_last_swapped": (LAST, MAPS, {"swapped": 1}),
    "beside_what_is_enlarged": (
        "F.linear(x, y) + F.interpolate(z, scale_factor=2.0, mode='linear')",
        "torch.randn(2, n, 6), torch.randn(2 * k, 6), torch.randn(2, n, k)",
        {},
    ),
    "slices_shared": ("x.exp().t() @ y", PLAIN, {"stream_k": 3}),
}  # fmt: skip


@pytest.fixture(scope="module")
def results() -> dict[str, str | None]:
    return interpret_products(CASES)


@pytest.mark.parametrize("name", CASES)
def test_kernels_match_torch(results: dict[str, str | None], name: str) -> None:
    assert results[name] is None, results[name]


def test_what_a_chunk_keeps_is_made_before_its_product() -> None:
    """The decays, their mask and the scores of a state-space dual are never written, nor are the inputs that decay."""
    task = load_task(FOLDER / "recurrent/ssd_chunk.py")
    _, start = after(version(task), "fuse all neighbours")
    _, start = after(start, "rewrite by algebra: einsum is a product of matrices, and 1 more, lines")
    sentences = [action.sentence for action in actions_on(start)]
    for pair in ("sub_permute_to and einsum_product", "slice_1_sub_1_mul_1 and einsum_1_product"):
        assert any(sentence.startswith(f"fuse {pair}") for sentence in sentences), pair
    action, child = after(version(task), "rewrite by algebra: einsum is a product of matrices, and 1 more, and fuse")
    assert action.param("saved") == 10
    assert [stage.template for stage in child.working()] == ["torch", "torch", "matmul", "matmul"]
    source = print_plan(task, child.graph, child.plan).source
    assert interpret([{"name": "chunk", "source": task.source, "candidate": source}]) == {"chunk": None}


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"operands": "descriptors"}, "operand that is made in the kernel"),
        ({"operands": "own_descriptors"}, "operand that is made in the kernel"),
        ({"operands": "own_descriptors", "specialized": 1, "num_warps": 4}, "operand that is made in the kernel"),
    ],
)
def test_there_is_nothing_that_a_descriptor_could_read(settings: Settings, why: str) -> None:
    with pytest.raises(CoderError, match=why):
        printed(*CASES["permuted"][:2], settings)


@pytest.mark.parametrize(
    ("result", "inputs", "why"),
    [
        ("(w := x.exp().t()) @ y, w", PLAIN, "left operand is also needed elsewhere"),
        ("((w := x.exp().t()) @ y) + w", "torch.randn(m, n), torch.randn(m, m)".replace("m", "n"), "also needed elsewhere"),
        ("x.exp().t() @ y.exp()", PLAIN, "on both operands"),
        ("x.softmax(0).t() @ y", PLAIN, "before the product is not elementwise"),
        ("(x.cumsum(1) * 2).t() @ y", PLAIN, "before the product is not elementwise"),
        (
            "torch._grouped_mm(x.t().exp().t().t(), y, offs=z)",
            "torch.randn(m, 16, dtype=torch.bfloat16), torch.randn(1, m, 16, dtype=torch.bfloat16), "
            "torch.randint(16, 17, (1,), dtype=torch.int32)",
            "in groups of rows",
        ),
        (
            "(x.to(torch.float32) * 2).t() @ y",
            PLAIN.replace("torch.randn(m, n)", "torch.randn(m, n).to(torch.float8_e4m3fn)"),
            "8-bit numbers",
        ),
        ("((x.to(torch.float8_e4m3fn).to(torch.float32)) * 2).t() @ y", PLAIN, "8-bit numbers"),
    ],
)  # fmt: skip
def test_what_is_another_thing_is_refused(result: str, inputs: str, why: str) -> None:
    check_refused(result, inputs, why)
