"""Products of one row or column of each matrix: as sums they join what makes the matrix and what else reads it."""

from __future__ import annotations

import pytest

from mtmc.hardware import hardware
from mtmc.optimizations import Version, legal_moves
from mtmc.rewrite.exported import export_graph
from mtmc.rewrite.plan import root_plan
from mtmc.task import load_task
from tests.rewrite.interpreting import interpret
from tests.rewrite.printing import text_after
from tests.rewrite.references import reference

SIZES = {"b": (64, 2, 3), "h": (16, 4, 5), "k": (64, 16, 9), "v": (96, 12, 7)}
SQUARE = {**SIZES, "v": (64, 16, 9)}
STATE, KEYS, VALUES = "torch.randn(b, h, k, v)", "torch.randn(b, h, k)", "torch.randn(b, h, v)"
STEP = "(lambda s: ((y[:, :, None] @ s).squeeze(2), s))(x * torch.sigmoid(y)[..., None] + y[..., None] * z[:, :, None])"

CASES = {
    # name: result, inputs, sizes
    "a_step_and_its_reading": (STEP, f"{STATE}, {KEYS}, {VALUES}", SIZES),
    "a_step_of_a_square_state": (STEP, f"{STATE}, {KEYS}, {VALUES}", SQUARE),
    "a_reading_by_a_column": ("(x.tanh() @ y[..., None]) * 2", f"{STATE}, {VALUES}", SIZES),
    "a_reading_of_a_transpose": ("(y[:, :, None] @ (x * 2).mT).softmax(-1)", f"{STATE}, {VALUES}", SIZES),
    "a_row_of_whole_products": ("torch.bmm(y[:, None], x[:, 0] + 1)", f"{STATE}, torch.randn(b, k)", SIZES),
}
WAYS = [["rewrite by algebra: matmul, of one", "fuse all", "fuse", "lower"]]
WAYS += [[*WAYS[0], "loop over"]]


def source_of(name: str) -> str:
    result, inputs, sizes = CASES[name]
    return reference(result, inputs, sizes=sizes)


def ways_of(name: str) -> list[list[str]]:
    called = "bmm" if "bmm" in CASES[name][0] else "matmul"
    return [[step.replace("matmul", called) for step in way] for way in WAYS]


@pytest.fixture(scope="module")
def problems() -> dict[str, str | None]:
    return interpret([{"name": name, "source": source_of(name), "ways": ways_of(name)} for name in CASES])


@pytest.mark.parametrize("name", CASES)
def test_products_as_sums_are_right(problems: dict[str, str | None], name: str) -> None:
    assert problems[name] is None


@pytest.mark.parametrize("name", [name for name in CASES if "transpose" not in name])
def test_they_are_one_kernel_with_what_stands_around(name: str) -> None:
    text = text_after(source_of(name), ways_of(name)[0])
    assert text.count("@triton.jit") == 1 and "tl.dot" not in text, text


def test_one_action_makes_sums_and_fuses_them() -> None:
    task = load_task(source_of("a_step_and_its_reading"))
    moves = legal_moves(Version.of(task, root_plan(export_graph(task)), hardware("H100")))
    [found] = [move for move in moves if "of one row, is a sum, and fuse" in move.action.sentence]
    assert found.child is not None
    assert [stage.template for stage in found.child.stages if not stage.is_torch] == ["rowwise"]
