"""Scores that are scaled and shifted by one instruction: right for scores of any size, as `gluon_scaling` proves."""

from __future__ import annotations

import math

import pytest
import torch

from mtmc.errors import CoderError
from mtmc.optimizations import Version, legal_moves
from mtmc.optimizations.version import CallTimes
from tests.breadth import share
from tests.rewrite.gluon_cases import (
    BIASED,
    CALL,
    CASES,
    CAUSAL,
    FULL,
    GLUON,
    WINDOW,
    inputs_of,
    kernel_of,
    printed,
    task_of,
)
from tests.rewrite.gluon_on_cpu import module_on_cpu
from tests.rewrite.test_gluon import error_of

JOINED: dict[str, int | str] = {**GLUON, "scaling": "joined"}


@pytest.mark.parametrize("name", share(list(CASES), 4))
def test_as_exact_as_torch(name: str) -> None:
    work, sizes, settings = CASES[name]
    task = task_of(work, sizes)
    ours, theirs = error_of(task, printed(task, {**JOINED, **settings}), inputs_of(task))
    assert ours < 1.1 * theirs + 1e-4, (ours, theirs)


def graded(columns: int, rising: bool) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Queries and keys of width 16 whose scores are exact in 32 bits, from 2**-8 to 2**120 in size, of both signs.

    rising: scores go from the negative of a row's size to its size; else they are the size and its neighbours among fp32.
    """
    sizes = torch.tensor([sign * 1.296875 * 2.0**power for power in range(-8, 121) for sign in (1, -1)])
    q = torch.zeros(1, 1, len(sizes), 16)
    q[..., 0], q[..., 1] = sizes, sizes.sign() * sizes.abs().log2().floor().exp2() * 2.0**-23
    k = torch.zeros(1, 1, columns, 16)
    k[..., 0] = torch.linspace(-1, 1, columns).bfloat16().float() if rising else 1.0
    k[..., 1] = 0.0 if rising else torch.arange(columns) % 5 - 2.0
    v = torch.randn(1, 1, columns, 16, generator=torch.Generator().manual_seed(1))
    return tuple(each.bfloat16() for each in (q, k, v))  # type: ignore[return-value]


@pytest.mark.parametrize("scale", [None, 0.01, 0.69, 1.3])
@pytest.mark.parametrize("rising", [True, False])
def test_scores_of_any_size(scale: float | None, rising: bool) -> None:
    """Of each size and sign: neighbours among fp32, and largest scores that pass the limit from block to block."""
    work = FULL if scale is None else CALL.format(f", scale={scale}")
    q, k, v = graded(96, rising)
    task = task_of(work, (1, 1, 1, q.shape[2], 96, 16))
    found = module_on_cpu(printed(task, {**JOINED, "block_n": 32})).ModelNew()(q, k, v, q)
    scores = (q.double() @ k.double().transpose(-2, -1)) * (0.25 if scale is None else scale)
    exact = torch.softmax(scores, -1) @ v.double()
    error = (found.double() - exact).abs().amax(-1)[0, 0]
    assert error.max() < 2.0**-6, (error.argmax(), error.max())  # values of at most 4, in bf16


def test_a_limit_that_is_lost_is_seen() -> None:
    q, k, v = graded(96, True)
    source = printed(task_of(FULL, (1, 1, 1, q.shape[2], 96, 16)), {**JOINED, "block_n": 32})
    assert source.count("< 536870912.0") == 1
    found = module_on_cpu(source.replace("< 536870912.0", '< float("inf")')).ModelNew()(q, k, v, q)
    assert not torch.isfinite(found).all()


def test_what_is_left_of_the_largest_is_no_error() -> None:
    """Of 1.296875 * 2**30 / 4 / log(2), -15.5 is left: without it in the scale, earlier blocks count too little."""
    _, k, v = graded(96, True)
    source = printed(task_of(CAUSAL, (1, 1, 1, 96, 96, 16)), {**JOINED, "block_n": 32})
    broken = source.replace("left = gl.fma(larger, each, -base)", "left = 0 * larger")
    assert broken != source
    q, k = k * 0, k * 0
    q[..., 0], k[..., 0] = 1.296875 * 2.0**30, 1.0
    exact = torch.cumsum(v.double(), 2) / torch.arange(1, 97)[:, None]
    errors = [float((module_on_cpu(each).ModelNew()(q, k, v, q) - exact).abs().max()) for each in (source, broken)]
    assert errors[0] < 2.0**-6 < errors[1]


@pytest.mark.parametrize("least", [torch.finfo(torch.bfloat16).min, -1e30, -math.inf])
def test_rows_of_which_all_is_masked_are_as_before(least: float) -> None:
    task = task_of(BIASED, (1, 1, 1, 64, 96, 16))
    q, k, v, bias = inputs_of(task)
    bias[:, 40:] = least
    bias[10] = least
    bias[11, :-1] = least
    apart, joined = (
        module_on_cpu(printed(task, {**GLUON, "block_n": 32, "scaling": scaling})).ModelNew()(q, k, v, bias).float()
        for scaling in ("apart", "joined")
    )
    assert torch.allclose(apart, joined, rtol=2.0**-7, atol=2.0**-8, equal_nan=True)
    assert torch.equal(joined.isnan(), torch.zeros_like(joined, dtype=torch.bool))


@pytest.mark.parametrize(
    ("work", "dtype", "settings", "words"),
    [
        (FULL, "half", JOINED, "float16, which holds no weights"),
        (CALL.format(", scale=2.0"), "bfloat16", JOINED, "by a factor of 2, which is more than 1.38"),
        (FULL, "bfloat16", {**GLUON, "scaling": "once"}, "it is 'apart' or 'joined'"),
    ],
)
def test_what_it_cannot_do_is_refused(work: str, dtype: str, settings: dict[str, int | str], words: str) -> None:
    with pytest.raises(CoderError, match=words):
        printed(task_of(work, (1, 1, 1, 64, 64, 64), dtype=dtype), settings)


@pytest.mark.parametrize(("dtype", "offered"), [("bfloat16", True), ("half", False)])
def test_it_starts_so_where_that_is_right_and_the_other_is_offered(dtype: str, offered: bool) -> None:
    task, times = task_of(CAUSAL, (4, 16, 16, 1024, 1024, 64), dtype=dtype), CallTimes(1.0, 1.0)
    root, plan, _ = kernel_of(task, {}, times)
    moves = legal_moves(Version.of(task, plan, root.hardware, times=times))
    [stage] = [each for each in plan.stages if not each.is_torch]
    assert stage.setting("scaling") == ("joined" if offered else "apart")
    others = {value for move in moves for name, value in move.action.params if name == "scaling"}
    assert others == ({"apart"} if offered else set())


@pytest.mark.parametrize(
    ("work", "sizes", "overlap"),
    [
        (CAUSAL, (4, 16, 16, 4096, 4096, 128), True),
        (FULL, (4, 16, 16, 1024, 2048, 128), True),
        (CAUSAL, (1, 4, 4, 1024, 1024, 128), False),  # 32 blocks for 132 programs
        (WINDOW, (4, 16, 16, 4096, 4096, 128), False),
        (CAUSAL, (4, 16, 16, 4096, 4096, 64), False),
    ],
)
def test_heads_of_128_start_with_programs_that_overlap(work: str, sizes: tuple[int, ...], overlap: bool) -> None:
    _, plan, _ = kernel_of(task_of(work, sizes), {}, CallTimes(1.0, 1.0))
    [stage] = [each for each in plan.stages if not each.is_torch]
    settings = dict(stage.schedule)
    assert settings["language"] == "gluon"
    assert (settings.get("persistent", 0), settings.get("overlap", 0)) == ((132, 1) if overlap else (0, 0))
