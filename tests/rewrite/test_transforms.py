"""Complex numbers as pairs of real ones, and Fourier transforms as products, beside torch."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from mtmc.hardware import hardware
from mtmc.optimizations import Version
from mtmc.rewrite.algebra import apply_rules
from mtmc.rewrite.exported import export_graph
from mtmc.rewrite.graph import FOURIER
from mtmc.rewrite.operators.fourier import LONGEST
from mtmc.rewrite.plan import root_plan
from mtmc.rewrite.source import print_plan
from mtmc.task import Task, task_from_source
from tests.breadth import share
from tests.rewrite.interpreted import differences
from tests.rewrite.interpreting import interpret
from tests.rewrite.special_references import special
from tests.rewrite.transform_references import TRANSFORMS, X

CALLS = share(list(TRANSFORMS), 2)
KERNELS = share(list(TRANSFORMS), 3)
WAYS = [["algebra", "lower"], ["algebra", "fuse", "lower"]]


def rewritten(name: str, source: str) -> tuple[Task, Version]:
    """The version with the rules for complex numbers, all of torch's calls."""
    task = task_from_source(source, name)
    graph = apply_rules(export_graph(task), "transforms").graph
    plan = replace(root_plan(graph), algebra=("transforms",))
    return task, Version.of(task, plan, hardware("H100"))


@pytest.mark.parametrize("name", CALLS)
def test_calls_on_pairs_give_what_complex_numbers_do(name: str, tmp_path: Path) -> None:
    task, version = rewritten(name, TRANSFORMS[name])
    values = [version.graph.values[output] for op in version.graph.ops for output in op.outputs]
    assert all(value.dtype == "float32" for value in values if value.dtype != "complex64")
    assert "complex64" not in {value.dtype for value in values}
    source = print_plan(task, version.graph, version.plan).source
    assert differences(task, source, (task.small, *task.held_out), tmp_path) is None


@pytest.fixture(scope="module")
def found() -> dict[str, str | None]:
    cases = [{"name": name, "source": TRANSFORMS[name], "ways": WAYS} for name in KERNELS]
    return interpret(cases)


@pytest.mark.parametrize("name", KERNELS)
def test_kernels_give_what_torch_gives(found: dict[str, str | None], name: str) -> None:
    assert found[name] is None


def test_tokens_are_mixed_by_two_products() -> None:
    """FNet's mixing: a transform of real numbers, and the real parts of one along the other dimension."""
    _, version = rewritten("mixed", TRANSFORMS["mixed_tokens"])
    transforms = [op for op in version.graph.ops if op.target == FOURIER]
    assert [(op.args[1], op.args[4], op.args[5]) for op in transforms] == [
        ("fft", "both", True),
        ("fft", "real", False),
    ]
    assert all(version.as_kernel((op.name,), {}) is not None for op in transforms)


@pytest.mark.parametrize("length,has", [(LONGEST, True), (LONGEST + 1, False)])
def test_long_transforms_are_left_to_torch(length: int, has: bool) -> None:
    reference = special(f"torch.view_as_real(torch.fft.rfft(x, n={length}))", f"torch.randn(n, {length})")
    _, version = rewritten("long", reference)
    [transform] = [op for op in version.graph.ops if op.target == FOURIER]
    assert (version.as_kernel((transform.name,), {}) is not None) == has


@pytest.mark.parametrize(
    "result",
    [
        "torch.fft.rfft(x)",
        "torch.fft.rfft(x).abs()",
        "torch.view_as_real(torch.fft.rfft(x.double()))",
        "torch.fft.irfft(torch.fft.rfft(x).exp())",
        "torch.fft.irfft(torch.fft.rfft(x) * 2j)",
        "torch.fft.hfft(torch.fft.rfft(x))",
    ],
)
def test_what_is_not_written_out_stays(result: str) -> None:
    task = task_from_source(special(result, X), "stays")
    assert apply_rules(export_graph(task), "transforms").sentences == ()
