"""Attention and products in Gluon on a Hopper GPU, against float64 and beside torch's own in 16 bits."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import ModuleType

import pytest
import torch

from mtmc.evaluate.loading.modules import load_module
from mtmc.task import Task
from tests.rewrite.gluon_cases import (
    BACKWARD,
    CAPPED,
    CASES,
    CAUSAL,
    FULL,
    GLUON,
    GROUPED,
    GROUPED_CAUSAL,
    OVERLAPPED,
    WINDOW,
    inputs_of,
    printed,
    task_of,
)  # fmt: skip
from tests.rewrite.test_gluon_product import CASES as PRODUCTS
from tests.rewrite.test_gluon_product import GATED, PLAIN, WITH_BIAS
from tests.rewrite.test_gluon_product import GLUON as PRODUCT
from tests.rewrite.test_gluon_product import task_of as product_of

HOPPER = torch.cuda.is_available() and torch.cuda.get_device_capability() == (9, 0)
pytestmark = pytest.mark.skipif(not HOPPER, reason="needs a Hopper GPU (compute capability 9.0)")
LARGE = {
    "d64": (FULL, (2, 4, 4, 1024, 1024, 64), {}),
    "d64, causal": (CAUSAL, (2, 4, 4, 1000, 1000, 64), {"block_n": 128, "num_stages": 3}),
    "d64, three groups": (CAUSAL, (2, 4, 4, 1000, 1000, 64), {"block_m": 192, "block_n": 128}),
    "d64, three groups in turns": (FULL, (2, 4, 4, 1000, 777, 64), {"block_m": 192, "block_n": 128, "turns": 1}),
    "d64, four groups": (CAUSAL, (2, 4, 4, 1000, 777, 64), {"block_m": 256}),
    "d64, wide blocks": (FULL, (2, 4, 4, 1024, 1000, 64), {"block_n": 256}),
    "d128": (CAUSAL, (2, 4, 4, 1024, 1024, 128), {"block_n": 128}),
    "d128, odd": (CAUSAL, (2, 4, 4, 1001, 1003, 128), {"block_n": 128, "turns": 1}),
    "d128, an odd number of blocks": (CAUSAL, (3, 5, 5, 1100, 1100, 128), {"block_n": 128}),
    "d128, late": (CAUSAL, (2, 4, 4, 1001, 1003, 128), {"block_n": 128, "rescale": "late"}),
    "d128, grouped": (GROUPED, (2, 8, 2, 1024, 1024, 128), {"block_n": 128}),
    "d128, window": (WINDOW, (1, 4, 4, 1024, 1024, 128), {"block_n": 128}),
    "d128, three groups": (FULL, (1, 4, 4, 1024, 1024, 128), {"block_m": 192}),
    "d256": (CAUSAL, (1, 4, 4, 500, 500, 256), {}),
}
LARGE_PRODUCTS: dict[str, tuple[str, str, tuple[int, int, int], dict[str, int | str]]] = {
    "large": (PLAIN, "x, weight", (4096, 2048, 4096), {"persistent": 132, "num_stages": 4, "epilogue": 2}),
    "large, ragged": (f"torch.relu({WITH_BIAS})", "x, weight, bias", (1234, 1000, 2056), {"persistent": 132}),
    "more programs than tiles": (PLAIN, "x, weight", (300, 4096, 520), {"persistent": 132}),
    "gated, large": (
        GATED,
        "x, weight, other",
        (4096, 2048, 2048),
        {"block_n": 128, "num_stages": 4, "persistent": 132},
    ),
    "gated, ragged": (
        GATED,
        "x, weight, other",
        (1001, 1096, 2504),
        {"block_n": 128, "num_stages": 4, "persistent": 132},
    ),
}


def errors(task: Task, settings: Mapping[str, int | str], path: Path) -> tuple[float, float]:
    """Norm-wise error of a version and of torch's own against float64."""
    reference = ModuleType("reference")
    exec(task.source, vars(reference))
    version = load_module(printed(task, settings), path)
    inputs = [each.cuda() for each in inputs_of(task)]
    exact = reference.Model()(*(each.double() for each in inputs))
    ours, theirs = (model(*inputs).double() for model in (version.ModelNew(), reference.Model()))
    return float((ours - exact).norm() / exact.norm()), float((theirs - exact).norm() / exact.norm())


@pytest.mark.parametrize("dtype", ["bfloat16", "half"])
@pytest.mark.parametrize("name", [*CASES, *LARGE])
def test_as_exact_as_torch_in_16_bits(name: str, dtype: str, tmp_path: Path) -> None:
    work, sizes, settings = {**CASES, **LARGE}[name]
    ours, theirs = errors(task_of(work, sizes, dtype=dtype), {**GLUON, **settings}, tmp_path / "version.py")
    assert ours < 1.1 * theirs + 1e-4, (ours, theirs)


def test_work_on_scores_and_results(tmp_path: Path) -> None:
    task = task_of(CAPPED, (2, 2, 2, 300, 200, 64), bias="batch, heads, 1, width")
    ours, theirs = errors(task, GLUON, tmp_path / "version.py")
    assert ours < 1.1 * theirs + 1e-4, (ours, theirs)


@pytest.mark.parametrize("name", ["causal", "window", "bias", *LARGE])
def test_scores_scaled_and_shifted_at_once(name: str, tmp_path: Path) -> None:
    work, sizes, settings = {**CASES, **LARGE}[name]
    joined = {**GLUON, "scaling": "joined", **settings}
    ours, theirs = errors(task_of(work, sizes), joined, tmp_path / "version.py")
    assert ours < 1.1 * theirs + 1e-4, (ours, theirs)


@pytest.mark.parametrize("programs", [1, 7, 132])
@pytest.mark.parametrize("name", ["three groups in turns", "window", *LARGE])
def test_programs_that_make_several_blocks(name: str, programs: int, tmp_path: Path) -> None:
    work, sizes, settings = {**CASES, **LARGE}[name]
    if sizes[-1] > 128:  # no room for the results
        return
    several = {**GLUON, **settings, "persistent": programs, "order": "heavy"}
    ours, theirs = errors(task_of(work, sizes), several, tmp_path / "version.py")
    assert ours < 1.1 * theirs + 1e-4, (ours, theirs)


LARGE_BACKWARD = {
    "d64": (CAUSAL, (2, 4, 4, 1000, 1000, 64), {"block_n": 128, "num_stages": 3}),
    "d64, wide blocks": (CAUSAL, (2, 4, 4, 1000, 1200, 64), {"block_n": 256}),
    "d64, three groups": (CAUSAL, (2, 4, 4, 1000, 1000, 64), {"block_m": 192, "block_n": 128, "num_stages": 3}),
    "d64, three groups, narrow blocks": (CAUSAL, (2, 4, 4, 1000, 700, 64), {"block_m": 192, "num_stages": 3}),
    "d64, four groups": (CAUSAL, (2, 4, 4, 1000, 1000, 64), {"block_m": 256}),
    "d128": (CAUSAL, (2, 4, 4, 1024, 1024, 128), {"block_n": 128}),
    "d128, an odd number of blocks": (CAUSAL, (3, 5, 5, 1100, 1100, 128), {"block_n": 128}),
    "d128, fewer columns": (CAUSAL, (2, 4, 4, 1001, 501, 128), {"block_n": 128}),
    "d128, more columns": (CAUSAL, (2, 4, 4, 501, 1001, 128), {"block_n": 128}),
    "d128, grouped": (GROUPED_CAUSAL, (2, 8, 2, 1100, 1100, 128), {"block_n": 128}),
    "d128, narrow blocks": (CAUSAL, (2, 4, 4, 1001, 1001, 128), {"num_stages": 3}),
    "d128, full": (FULL, (2, 4, 4, 1001, 1003, 128), {"block_n": 128}),
}


@pytest.mark.parametrize("programs", [0, 7, 132])
@pytest.mark.parametrize("way", ["early", "late", "turns"])
@pytest.mark.parametrize("name", list(LARGE_BACKWARD))
def test_keys_from_the_last_to_the_first(name: str, way: str, programs: int, tmp_path: Path) -> None:
    work, sizes, settings = LARGE_BACKWARD[name]
    ways = {"rescale": "late" if way == "late" else "early", "turns": int(way == "turns"), "scaling": "joined"}
    backward = {**GLUON, **ways, **settings, "keys": "backward", "persistent": programs}
    ours, theirs = errors(task_of(work, sizes), backward, tmp_path / "version.py")
    assert ours < 1.1 * theirs + 1e-4, (ours, theirs)


@pytest.mark.parametrize("name", list(BACKWARD))
def test_keys_from_the_last_to_the_first_at_edges(name: str, tmp_path: Path) -> None:
    work, sizes, settings = BACKWARD[name]
    ours, theirs = errors(task_of(work, sizes), {**GLUON, **settings}, tmp_path / "version.py")
    assert ours < 1.1 * theirs + 1e-4, (ours, theirs)


@pytest.mark.parametrize("programs", [7, 132])
@pytest.mark.parametrize("way", ["early", "late", "turns"])
@pytest.mark.parametrize("keys", ["forward", "backward"])
@pytest.mark.parametrize("name", list(LARGE_BACKWARD))
def test_blocks_that_overlap(name: str, keys: str, way: str, programs: int, tmp_path: Path) -> None:
    work, sizes, settings = LARGE_BACKWARD[name]
    ways = {"rescale": "late" if way == "late" else "early", "turns": int(way == "turns"), "scaling": "joined"}
    more = {"keys": keys, "persistent": programs, "overlap": 1, "order": "forward" if work == FULL else "heavy"}
    if settings.get("block_m") == 256 and keys == "backward":  # three blocks of keys are skipped
        settings = {**settings, "num_stages": 4}
    ours, theirs = errors(task_of(work, sizes), {**GLUON, **ways, **settings, **more}, tmp_path / "version.py")
    assert ours < 1.1 * theirs + 1e-4, (ours, theirs)


@pytest.mark.parametrize("name", list(OVERLAPPED))
def test_blocks_that_overlap_at_edges(name: str, tmp_path: Path) -> None:
    work, sizes, settings = OVERLAPPED[name]
    ours, theirs = errors(task_of(work, sizes), {**GLUON, **settings}, tmp_path / "version.py")
    assert ours < 1.1 * theirs + 1e-4, (ours, theirs)


@pytest.mark.parametrize(
    "settings",
    [GLUON, {**GLUON, "scaling": "joined"}, {"split_keys": 4}, {}],
    ids=["gluon", "joined", "split", "triton"],
)
def test_scores_of_a_billion_leave_the_largest_nothing(settings: Mapping[str, int | str], tmp_path: Path) -> None:
    """Product and subtraction in one step would leave hundreds, and their powers of two are infinite."""
    task = task_of(FULL, (1, 2, 2, 256, 1024, 128))
    version = load_module(printed(task, settings), tmp_path / "version.py")
    inputs = [each.cuda() for each in inputs_of(task)]
    for power in (8, 12, 14, 15, 18, 40, 60):  # scores up to 2**123
        found = version.ModelNew()(inputs[0] * 2.0**power, inputs[1] * 2.0**power, *inputs[2:])
        assert torch.isfinite(found).all(), power


def test_a_hundred_calls_give_one_result(tmp_path: Path) -> None:
    """Races show as results that differ now and then."""
    task = task_of(CAUSAL, (2, 8, 8, 1000, 1000, 64))
    several = {"persistent": 13, "order": "heavy", "num_stages": 3}
    back = {"keys": "backward", "block_m": 192}
    ways = ({"block_m": 192, "turns": 1}, {"num_stages": 3}, several, {**several, "turns": 1},
            {**back, "turns": 1}, {**back, **several}, {**back, **several, "turns": 1},
            {**several, "overlap": 1}, {**back, **several, "overlap": 1, "turns": 1})  # fmt: skip
    for at, settings in enumerate(ways):
        model = load_module(printed(task, {**GLUON, **settings}), tmp_path / f"{at}.py").ModelNew()
        inputs = [each.cuda() for each in inputs_of(task)]
        first = model(*inputs)
        assert all(torch.equal(model(*inputs), first) for _ in range(100))


@pytest.mark.parametrize("dtype", ["bfloat16", "half"])
@pytest.mark.parametrize("name", [*PRODUCTS, *LARGE_PRODUCTS])
def test_products_as_exact_as_torch_in_16_bits(name: str, dtype: str, tmp_path: Path) -> None:
    work, names, sizes, settings = {**PRODUCTS, **LARGE_PRODUCTS}[name]
    ours, theirs = errors(product_of(work, names, sizes, dtype), {**PRODUCT, **settings}, tmp_path / "version.py")
    assert ours < 1.1 * theirs + 1e-4, (ours, theirs)


def test_a_product_in_gluon_says_the_same_each_time(tmp_path: Path) -> None:
    """What comes too late or is overwritten too early differs from call to call: 200 calls of tiles that end unevenly."""
    task = product_of(*LARGE_PRODUCTS["gated, ragged"][:3])
    version = load_module(printed(task, {**PRODUCT, "block_n": 128}), tmp_path / "version.py").ModelNew()
    inputs = [each.cuda() for each in inputs_of(task)]
    first = version(*inputs)
    assert all(torch.equal(version(*inputs), first) for _ in range(200))
