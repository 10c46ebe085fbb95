from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mtmc.rewrite.exported import export_graph
from mtmc.rewrite.graph import Graph, Tensor
from mtmc.rewrite.open_sizes import is_open
from mtmc.rewrite.source import print_plan
from mtmc.rewrite.templates.divisors import divisors_of
from mtmc.task import task_from_source
from tests.rewrite.interpreted import apply, load
from tests.rewrite.length_references import ROPE

FLAT = ["offs = block * BLOCK + tl.arange(0, BLOCK)", "place = offs // size_1 % size_2", "other = place // (n_a * n_b)"]
ROWS = ["rows = (tl.program_id(0) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS))[:, None]", "at = rows % size_1"]


def test_sizes_that_are_a_modules_own() -> None:
    """A weight [24, 64] and 3 heads at the full shapes: 8 a head, 4 in half of one, 72 in three of 24, 3 times 24 and 64."""
    weight = Tensor(((24, 10), (64, 32)), "float32", True)
    module = Graph((), {}, {"w": "w"}, (), {"w": weight}, (), {"heads": (3, 5)}, ("full", "odd"))
    for size in ((24, 10), (8, 2), (4, 1), (72, 30), (24 * 64, 320), (7, 7), (88 * 3, 42 * 5), ()):
        assert not is_open(module, size), size
    for size in ((100, 33), (25, 11), (100 * 24, 330)):
        assert is_open(module, size), size


def test_each_element_divides_by_what_is_open() -> None:
    """What is not open is a constant; what is, and stands below elements, is known at the full shapes."""
    found = divisors_of(FLAT, {"size_1": 640, "n_b": 7, "unused": 5}, {"size_1": 640, "n_b": 7, "unused": 5})
    assert found.constants == {"size_2", "n_a"}
    assert found.full == {"size_1": 640, "n_b": 7}
    assert found.lines() == ["if FULL:  # the compiler knows these", "    size_1, n_b = 640, 7"]
    texts = {"size_1": "x.numel()", "n_b": "x.shape[1]", "unused": "x.shape[0]"}
    assert found.condition(texts) == "(x.numel(), x.shape[1]) == (640, 7)"
    assert divisors_of(FLAT[:2], {"size_1": 640}, {"size_1": 640}).condition(texts) == "x.numel() == 640"


def test_rows_divide_at_run_time_unless_they_are_neighbours_in_memory() -> None:
    found = divisors_of(ROWS, {"size_1": 640}, {"size_1": 640})
    assert (found.constants, dict(found.full), found.lines()) == (set(), {}, [])
    inner = [*ROWS[:1], "outer = rows // n_inner", "inner = rows % n_inner"]
    assert divisors_of(inner, {"n_inner": 9}, {"n_inner": 9}).full == {"n_inner": 9}


def test_only_what_stands_before_the_division_is_divided() -> None:
    line = "x = tl.load(x_ptr + (rows // size_1) * x_stride_0 + cols % size_2)"
    cols = "cols = tl.arange(0, BLOCK_COLS)[None, :]"
    assert divisors_of([*ROWS[:1], cols, line], {"size_1": 3, "size_2": 5}, {"size_1": 3, "size_2": 5}).full == {
        "size_2": 5
    }
    both = "x = tl.load(x_ptr + ((rows * n_cols + cols) // size_1) * x_stride_0)"
    assert divisors_of([*ROWS[:1], cols, both], {"size_1": 3}, {"size_1": 3}).full == {"size_1": 3}


def test_the_end_of_a_loop_over_single_elements_had_better_be_known() -> None:
    assert divisors_of(["for tap_h in range(taps_h):"], {"taps_h": 4}, {"taps_h": 4}).full == {"taps_h": 4}
    assert not divisors_of(["for start in range(0, n_cols, BLOCK_COLS):"], {"n_cols": 4}, {"n_cols": 4}).full


def test_at_the_full_shapes_no_division_is_left(tmp_path: Path) -> None:
    """Queries rotated by one kernel, compiled for sm_90: elsewhere it divides by two lengths."""
    task = task_from_source(ROPE, "rope")
    plan = apply(task, ["lower", "fuse"])
    kernel = next(
        each
        for name, each in vars(load(print_plan(task, export_graph(task), plan).source, tmp_path)).items()
        if name.endswith("_kernel")
    )
    left = {full: divisions(kernel, {"FULL": full, "WIDE": False, "BLOCK": 1024}) for full in (True, False)}
    assert left[True] == 0 < left[False]


def divisions(kernel: Any, constants: dict[str, Any]) -> int:
    """How many divisions and remainders of whole numbers are in the PTX of a kernel of fp32 tensors."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    names = kernel.arg_names
    known = {**constants, **{each.name: 16 for each in kernel.params if each.is_constexpr and each.name.islower()}}
    signature = {name: "*fp32" if name.endswith("_ptr") else "i32" for name in names}
    signature |= dict.fromkeys(known, "constexpr")
    values = {(at,): known[name] for at, name in enumerate(names) if name in known}
    compiled = triton.compile(ASTSource(kernel, signature, values), target=GPUTarget("cuda", 90, 32))
    return len(re.findall(r"\b(?:div|rem)\.[su]\d", compiled.asm["ptx"]))


def test_even_ends_are_known_and_multiples_of_16_are_not_told_twice() -> None:
    lines = ["    offs = block * BLOCK + tl.arange(0, BLOCK)", "    mask = offs < n_elements"]
    assert divisors_of(lines, {"n_elements": 1000}, {"n_elements": 1000}).full == {"n_elements": 1000}
    assert divisors_of(lines, {"n_elements": 1000}, {}).constants == {"n_elements"}  # a module's own
    for number in (1024, 1001):  # nothing is won for these
        assert not divisors_of(lines, {"n_elements": number}, {"n_elements": number}).full
        assert not divisors_of(lines, {"n_elements": number}, {}).constants
