"""Forward arguments that are called as a kernel calls something of its own."""

from __future__ import annotations

import ast
from dataclasses import replace
from textwrap import dedent

import pytest

from mtmc.rewrite.exported import export_graph
from mtmc.rewrite.plan import graph_of
from mtmc.rewrite.source import print_plan
from mtmc.task import task_from_source
from tests.breadth import WIDE
from tests.rewrite.interpreted import apply
from tests.rewrite.interpreting import interpret
from tests.rewrite.printing import forward_of
from tests.rewrite.references import reference

HEADS = "torch.randn(2, 3, n, m), torch.randn(2, 3, n, m), torch.randn(2, 3, n, m)"
FORMS = {
    "attention": ("torch.softmax({0} @ {1}.transpose(-1, -2) * 0.2 + {3}, -1) @ {2}", f"{HEADS}, torch.randn(n, n)"),
    "scaled": ("F.scaled_dot_product_attention({0} + {3}, {1}, {2}) * {3}", f"{HEADS}, torch.randn(n, m)"),
    "rows": (
        "torch.softmax({0} * {1}, -1) * {2} + {3}",
        "torch.randn(n, 999 * m), torch.randn(n, 999 * m), torch.randn(n, 999 * m), torch.randn(999 * m)",
    ),
    "product": (
        "({0} @ {1}) * {2} + {3}",
        "torch.randn(16 * n, 8 * m), torch.randn(8 * m, 8 * m), torch.randn(8 * m), torch.randn(8 * m)",
    ),
}
SIZES = {"n": (64, 40, 19), "m": (32, 16, 8)}
FEWER = SIZES | {"n": (6, 3, 2)}
"""Sizes of the rows, of which there are few."""
WORDS = {
    "attention": ("columns", "keys", "scale", "chunk", "x1_ptr"),
    "scaled": ("out_mask", "q", "values", "place", "query_tiles"),
    "product": ("transposed", "described", "tile", "down", "x0_tiles", "x0_ptr"),
    "rows": ("turn", "turns", "row", "share", "split", "shares", "block_cols", "x2_ptr"),
}
INPUTS = "torch.randn(n, m), torch.randn(n, m)"
RESULT = "(torch.relu({0} + {1}).sum(-1), ({0} * {1}).amax(0))"
WAYS = {"rows": ["lower", "fuse", "share each row"]}


def case(form: str, word: str, place: int) -> dict[str, object]:
    """The form with one of its four arguments called so."""
    result, inputs = FORMS[form]
    names = [word if at == place else f"x{at}" for at in range(4)]
    text = reference(result.format(*names), inputs, sizes=FEWER if form == "rows" else SIZES, names=names)
    ways = [WAYS.get(form, ["lower", "fuse"])]
    return {"name": f"{word}_{place}", "source": text, "ways": ways, "waits": form in WAYS}


@pytest.mark.parametrize("form", FORMS)
def test_no_name_of_a_forward_argument_is_in_a_kernels_way(form: str) -> None:
    """Each word at each place; in a quick run each at one of them."""
    places, words = (0, 3) if form == "rows" else range(4), WORDS[form]
    turns = range(len(places) if WIDE else 1)
    cases = [case(form, word, places[(at + by) % len(places)]) for by in turns for at, word in enumerate(words)]
    assert interpret(cases) == {str(each["name"]): None for each in cases}


def called(text: str) -> set[str]:
    """What the file has made that its forward calls by name."""
    tree = ast.parse(text)
    made = {each.name for each in tree.body if isinstance(each, ast.FunctionDef)}
    made |= {
        each.id
        for node in tree.body
        if isinstance(node, ast.Assign)
        for each in node.targets
        if isinstance(each, ast.Name)
    }
    calls = (each for each in ast.walk(ast.parse(dedent(forward_of(text)))) if isinstance(each, ast.Call))
    return {each.func.id for each in calls if isinstance(each.func, ast.Name)} & made


@pytest.mark.parametrize("direct", [False, True])
def test_no_argument_stands_before_what_forward_calls(direct: bool) -> None:
    """Two kernels; each of the functions that forward calls for them is the name of an argument in its turn, then of two."""

    def printed(*names: str) -> str:
        text = reference(RESULT.format(*names), INPUTS, names=names)
        task = task_from_source(text, "reference")
        plan = apply(task, ["fuse"])
        return print_plan(task, graph_of(export_graph(task), plan), replace(plan, direct_launch=direct)).source

    usual = called(printed("x", "y"))
    assert usual and all(each.startswith("run_" if direct else "launch_") for each in usual)
    for word in usual:
        for names in ((word, "y"), ("x", word), (word, f"{word}_")):
            now = called(printed(*names))
            assert len(now) == len(usual) and not now & {*names}, (names, now)


def test_a_kernel_whose_launcher_is_called_as_an_argument_is_right() -> None:
    cases = [
        {"name": word, "source": reference(RESULT.format(*names), INPUTS, names=names), "ways": [["fuse"]]}
        for names in (("launch_add_relu_sum_1", "y"), ("x", "launch_mul_amax"), ("launch_mul_amax", "launch_mul_amax_"))
        for word in ["-".join(names)]
    ]
    assert interpret(cases) == {str(each["name"]): None for each in cases}
