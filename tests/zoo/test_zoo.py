"""The zoo's modules that need nothing but torch go through capture and search; the others by `python -m tests.zoo.run`."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from mtmc.evaluate.lab import LabEvaluator, LabSettings
from tests.breadth import share
from tests.zoo.probe import probe
from tests.zoo.registry import LIBRARIES, entries
from tests.zoo.row import Row, append_row, read_rows
from tests.zoo.table import page, reason

TRIED = {
    "CNN": ("fp32", 2),
    "ConvTranspose": ("fp32", 2),
    "LayerNorm": ("bf16", 2),
    "RMSNorm": ("bf16", 2),
    "GatedMLP": ("bf16", 3),
    "NestedMLPs": ("fp32", 2),
    "RotaryAttention": ("fp32", 2),
    "CachedAttention": ("bf16", 2),
    "MovingAverage": ("fp32", 2),
    "GRUCell": ("fp32", 3),
    "DenseExperts": ("fp32", 3),
    "CrossEntropyHead": ("fp32", 3),
}
"""Module -> dtype and evaluations: a dozen, of which one run tries half. Of some the first step is one of algebra."""


@pytest.fixture(scope="module")
def lab() -> Iterator[LabEvaluator]:
    with LabSettings().open() as evaluator:
        yield evaluator


@pytest.mark.parametrize("name", share([*TRIED], 12))
def test_a_module_is_captured_and_gets_a_right_kernel(name: str, lab: LabEvaluator) -> None:
    dtype, evaluations = TRIED[name]
    row = probe(entries("torch")[name], dtype, lab, "lab", evaluations, drop_in=False)
    assert row.captured, row.refused
    assert row.found, reason(row)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_modules_of_torch_are_the_same_at_every_call_and_run(dtype: torch.dtype) -> None:
    for entry in entries("torch").values():
        first, second = entry.example(dtype), entry.example(dtype)
        for one, other in zip(first.module.state_dict().values(), second.module.state_dict().values(), strict=True):
            assert torch.equal(one, other), entry.name
        with torch.no_grad():
            first.module(*first.args, **first.kwargs)


def test_the_zoo_is_large() -> None:
    names = [name for path in LIBRARIES.values() for name in importlib.import_module(path).BUILDERS]
    assert len(names) == len(set(names)) >= 60
    assert len(entries("torch")) >= 12


def test_a_row_is_read_back_and_half_a_line_is_not(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "zoo.jsonl"
    old = Row("a", "torch", "fp32", "lab", failure="not done after 5 s")
    new = Row("a", "torch", "fp32", "lab", captured=True, root="ok", statuses={"ok": 2, "timeout": 1}, right=2)
    append_row(path, old)
    append_row(path, new)
    with path.open("a", encoding="utf-8") as file:
        file.write('{"name": "b", "libr')
    assert read_rows(path) == {new.key: new}


def test_the_page_counts_modules_and_joins_what_was_measured() -> None:
    found = Row("a", "torch", "fp32", "lab", captured=True, root="ok", statuses={"ok": 1}, right=1, speedup=1.5)
    measured = Row("a", "torch", "fp32", "gpu", captured=True, root="ok", statuses={"ok": 1}, right=1, speedup=1.25)
    refused = Row("b", "torch", "fp32", "lab", refused="draws random numbers")
    broken = Row(
        "c", "torch", "fp32", "lab", captured=True, root="ok", statuses={"timeout": 2}, diagnosis="check: slow"
    )
    text = page([found, measured, refused, broken])
    assert "| fp32 | 3 | 2 | 2 | 1 |" in text
    (line,) = [line for line in text.splitlines() if line.startswith("| a |")]
    assert "1 of 1" in line and "1.50x" in line and "1.25x" in line
    assert "draws random numbers" in text and "2 timeout: check: slow" in text
    (alone,) = [line for line in page([measured]).splitlines() if line.startswith("| a |")]
    assert "1.25x" in alone and "1.50x" not in alone
