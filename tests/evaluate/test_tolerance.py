"""A task's own tolerance: how it is declared, what it changes, and what it does not."""

from __future__ import annotations

import array
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from mtmc.cli import main
from mtmc.errors import TaskError
from mtmc.evaluate.counting.compared import wrong
from mtmc.evaluate.interpreter.fp8 import decode, encode
from mtmc.evaluate.reference.admission import admit
from mtmc.evaluate.reference.bounds import calibrated
from mtmc.evaluate.reference.compare import Calibrated, Expected, Precision, check_output
from mtmc.evaluate.reference.distance import within_tolerance
from mtmc.evaluate.reference.distributions import redistributed
from mtmc.export import from_json, to_json
from mtmc.export.record import RunRecord
from mtmc.export.report import run_report
from mtmc.fakes import FakeCoder, FakeEvaluator, FakePolicy
from mtmc.search import load, search
from mtmc.task import Task, Variant, task_from_module
from mtmc.task.quantized import steps_apart
from mtmc.task.tolerance import DEFAULT, KERNELBENCH, Tolerance, declared

FILE = """
import torch
class Model(torch.nn.Module):
    def forward(self, x):
        return BODY
def get_inputs():
    return [INPUT]
def get_init_inputs():
    return []
VARIANTS = {"small": {}}
"""
FP8 = (torch.float8_e4m3fn, torch.float8_e5m2)


def text(declaration: str = "", body: str = "x * 2", drawn: str = "torch.randn(8, 8)") -> str:
    return FILE.replace("BODY", body).replace("INPUT", drawn) + declaration + "\n"


def task(declaration: str = "", body: str = "x * 2", drawn: str = "torch.randn(8, 8)") -> Task:
    return Task("some", text(declaration, body, drawn), Variant("full"), Variant("small"))


def kind_of(got: torch.Tensor, want: torch.Tensor, tolerance: Tolerance = DEFAULT) -> str | None:
    expected = Expected(want, *(2 * [want.double()]), tolerance=tolerance) if want.dtype.is_floating_point else None
    found = check_output("the output", got, expected or Expected(want, want, want, tolerance=tolerance))[1]
    return None if found is None else found.kind


# --- what a file declares ------------------------------------------------------------------------------------------


def test_what_a_file_declares_is_the_tasks() -> None:
    assert task().tolerance == DEFAULT == task('TOLERANCE = "default"').tolerance
    assert task('TOLERANCE: dict = {"atol": 1e-3, "rtol": 0.01}').tolerance == Tolerance(1e-3, 0.01)
    assert task('TOLERANCE = {"steps": 1}').tolerance == Tolerance(steps=1)
    assert task('TOLERANCE = "kernelbench"').tolerance == KERNELBENCH
    for each in (Tolerance(1e-3), Tolerance(None, 0.25, 3), Tolerance(steps=2), KERNELBENCH, DEFAULT):
        assert declared(text(each.line), "some") == each
    assert hash(task("TOLERANCE = {'steps': 1}")) != hash(task())  # the text is what caches and records go by
    inside = "class Other:\n    TOLERANCE = {'steps': 9}\ndef function():\n    TOLERANCE = {'steps': 9}\n"
    assert task(inside).tolerance == DEFAULT


@pytest.mark.parametrize(
    ("declaration", "said"),
    [
        ("TOLERANCE = 1e-3", r"is 0.001: write TOLERANCE = \{"),
        ("TOLERANCE = {}", r"is \{\}: write"),
        ("TOLERANCE = 'loose'", "is 'loose': use 'default' or 'kernelbench'"),
        ("TOLERANCE = {'atoll': 1.0}", "sets 'atoll': use atol, rtol, steps"),
        ("TOLERANCE = {'atol': -1}", "sets atol to -1: use a finite number from 0"),
        ("TOLERANCE = {'rtol': 1.0}", "sets rtol to 1.0, at which zeros pass"),
        ("TOLERANCE = {'atol': 1e999}", "sets atol to inf"),
        ("TOLERANCE = {'atol': True}", "sets atol to True"),
        ("TOLERANCE = {'atol': 0, 'rtol': 0}", r"asks for 0 \+ 0"),
        ("TOLERANCE = {'steps': 0.5}", "sets steps to 0.5: use a whole number"),
        ("TOLERANCE = {'atol': float('nan')}", "must be a literal"),
        ("TOLERANCE = {'steps': 1}\nTOLERANCE = {'steps': 9}", "must be set once"),
        ("TOLERANCE = {'steps': 1}\nTOLERANCE['steps'] = 9", "must be set once"),
        ("if True:\n    TOLERANCE = {'steps': 1}", "at module level"),
    ],
)
def test_what_is_none_is_refused_with_its_value(declaration: str, said: str) -> None:
    with pytest.raises(TaskError, match=f"^task some: line [0-9]+: TOLERANCE .*{said}"):
        assert task(declaration).tolerance


def test_the_command_line_ends_with_2_and_leaves_no_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "loose.py"
    path.write_text(text("TOLERANCE = {'steps': -1}"))
    assert main(["search", f"task={path}", f"out={tmp_path / 'run'}"]) == 2
    assert "sets steps to -1" in capsys.readouterr().err and not (tmp_path / "run").exists()


def test_a_live_module_has_it_in_its_text() -> None:
    found = task_from_module(torch.nn.ReLU(), torch.randn(4, 6), tolerance={"atol": 0.5})
    assert found.tolerance == Tolerance(0.5) and "TOLERANCE = {'atol': 0.5}" in found.source
    with pytest.raises(TaskError, match="tolerance sets rtol to 2"):
        task_from_module(torch.nn.ReLU(), torch.randn(4, 6), tolerance={"rtol": 2})


# --- what it changes -----------------------------------------------------------------------------------------------


def test_floating_outputs_may_be_as_far_as_is_declared() -> None:
    want = torch.linspace(1.0, 2.0, 64)
    off = want * (1 + 5e-3)
    assert kind_of(off, want) == "WrongValues"
    assert kind_of(off, want, Tolerance(rtol=1e-2)) is None  # no LowPrecision: what is near enough is precise enough
    assert kind_of(off, want, Tolerance(steps=100)) == "WrongValues"  # steps are those of integers and fp8
    assert kind_of(want * (1 + 5e-5), want, KERNELBENCH) is None
    assert kind_of(want * (1 + 5e-5), want) == "LowPrecision"
    assert kind_of(want + 2e-6, want, Tolerance(atol=1e-6, rtol=0.0)) == "WrongValues"
    rough = Calibrated(want, Precision(1e-8, 1e-8), Tolerance(rtol=1e-2))
    assert check_output("the output", off, rough)[1] is None
    assert check_output("the output", want * 1.03, rough)[1] is not None
    assert within_tolerance(off, want, Tolerance(rtol=1e-2)) and not within_tolerance(off, want)


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.int32, torch.int64])
def test_integers_may_be_as_many_steps_apart_as_is_declared(dtype: torch.dtype) -> None:
    ends = torch.iinfo(dtype)
    want = torch.tensor([ends.min, 0, 1, ends.max], dtype=dtype)
    near = torch.tensor([ends.min + 1, 1, 2, ends.max - 1], dtype=dtype)
    assert kind_of(want, want) is None and kind_of(near, want) == "WrongValues"
    assert kind_of(near, want, Tolerance(steps=1)) is None
    far = torch.tensor([ends.min, 3, 1, ends.max], dtype=dtype)
    assert kind_of(far, want, Tolerance(steps=2)) == "WrongValues"
    around = torch.tensor([ends.max, 0, 1, ends.min], dtype=dtype)  # one apart where differences wrap around
    assert kind_of(around, want, Tolerance(steps=1)) == "WrongValues"
    assert steps_apart(around, want).amin() == 0 and float(steps_apart(around, want).amax()) >= 255
    assert kind_of(torch.tensor([True]), torch.tensor([False]), Tolerance(steps=1)) == "WrongValues"


@pytest.mark.parametrize("dtype", FP8)
def test_fp8_may_be_a_step_apart_and_must_be_rounded(dtype: torch.dtype) -> None:
    exact = torch.randn(4096, generator=torch.Generator().manual_seed(0))
    want = exact.to(dtype)
    bits = want.view(torch.uint8)
    one, two = ((bits + step).view(dtype) for step in (1, 2))
    few = torch.where(torch.arange(4096) % 50 == 0, one.view(torch.uint8), bits).view(dtype)
    assert kind_of(want, want) is None and kind_of(few, want) is None
    assert kind_of(two, want) == "WrongValues" and kind_of(two, want, Tolerance(steps=2)) is None
    assert kind_of(one, want) == "LowPrecision" and kind_of(one, want, Tolerance(steps=1)) is None
    cut = torch.where(want.float().abs() > exact.abs(), bits - 1, bits).view(dtype)  # towards zero
    assert kind_of(cut, want) == "LowPrecision"
    largest = torch.full((4,), torch.finfo(dtype).max).to(dtype)
    beyond = (largest.view(torch.uint8) + 1).view(dtype)  # NaN, or an infinity
    assert kind_of(beyond, largest, Tolerance(steps=9)) in ("NaN", "Infinity")
    assert not within_tolerance(beyond, largest, Tolerance(steps=9)) and within_tolerance(beyond, beyond)
    zeros = torch.zeros(4)
    assert float(steps_apart(zeros.to(dtype), (-zeros).to(dtype)).sum()) == 0


def test_what_programs_write_at_the_full_shapes_may_be_as_far() -> None:
    expected = [array.array("d", [1.0, -2.0, 3.0, 4.0])]
    written = [(0, place, 1.2 * value) for place, value in enumerate(expected[0])]
    assert wrong(written, expected)
    for wider in (Tolerance(rtol=0.25), Tolerance(atol=1.0), Tolerance(steps=1)):
        assert not wrong(written, expected, wider)
        assert wrong([(0, 0, 9.0)], expected, wider) and wrong([(0, 0, math.nan)], expected, wider)


# --- fp8, from the task to the kernel ------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "dtype"), [("fp8e4nv", FP8[0]), ("fp8e5", FP8[1])])
def test_the_interpreter_casts_to_fp8_as_torch_does(name: str, dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(1)
    values = torch.cat([torch.randn(4096, generator=generator) * scale for scale in (1e-3, 1e-2, 1.0, 100.0)])
    halves = (torch.arange(-32, 32) + 0.5) / 32
    values = torch.cat([values, halves, torch.tensor([0.0, -0.0, torch.finfo(dtype).max])])
    limits = torch.finfo(dtype)
    wanted = values.clamp(limits.min, limits.max).to(dtype).view(torch.uint8).numpy()
    assert np.array_equal(encode(values.numpy(), name), wanted)
    every = torch.arange(256, dtype=torch.uint8)
    assert np.array_equal(decode(every.numpy(), name), every.view(dtype).float().numpy(), equal_nan=True)
    inside = torch.isfinite(every.view(dtype).float()).numpy()
    assert np.array_equal(encode(decode(every.numpy(), name), name)[inside], every.numpy()[inside])
    beyond = encode(np.array([1e9, -np.inf, np.nan], np.float32), name)
    assert beyond[:2].tolist() == [wanted[-1], wanted[-1] | 0x80] and np.isnan(decode(beyond[2:], name)).all()
    assert decode(encode(np.float32([0.99, -0.99]), name, nearest=False), name).tolist() == pytest.approx(
        [0.9375, -0.9375] if dtype == FP8[0] else [0.875, -0.875]
    )


@pytest.mark.parametrize("dtype", [str(dtype) for dtype in FP8])
def test_a_task_of_fp8_is_admitted_and_drawn_in_other_ways(dtype: str, tmp_path: Path) -> None:
    body = f"(x.to(torch.float32) * 0.7).to({dtype})"
    found = admit(task(body=body, drawn=f"torch.randn(8, 8).to({dtype})"), "cpu", tmp_path)
    (precision,) = found.calibration.precisions
    assert precision is not None and precision.own == 0.0 == precision.rounding and not found.warnings
    inputs = [torch.randn(8, 8).to(getattr(torch, dtype.removeprefix("torch.")))]
    for distribution in ("shifted", "spiky", "sparse", "wide", "huge"):
        (other,) = redistributed(inputs, distribution, 3)  # type: ignore[arg-type]
        assert other.dtype == inputs[0].dtype and bool(torch.isfinite(other.float()).all())
        assert not torch.equal(other.view(torch.uint8), inputs[0].view(torch.uint8))


def test_a_result_that_is_one_value_within_the_steps_is_warned_of(tmp_path: Path) -> None:
    source = task('TOLERANCE = {"steps": 1}', body="torch.sign(x).to(torch.int8)")
    (warning,) = [each for each in admit(source, "cpu", tmp_path).warnings if "steps" in each]
    assert "output 0 is one value within the 1 steps that the task allows (-1 to 1)" in warning
    zero = admit(task('TOLERANCE = {"atol": 50.0}'), "cpu", tmp_path).warnings
    assert any("is zero within the task's tolerance" in each for each in zero)


# --- where it stands -----------------------------------------------------------------------------------------------


def test_it_stands_with_its_reason_in_every_report(tmp_path: Path) -> None:
    declaration = 'TOLERANCE = {"rtol": 0.01, "steps": 1}'
    said = "the task's own: KernelBench's + 0.01 |reference|, integers and fp8 1 step apart; else the default"
    run: dict[str, Any] = {"budget": 6, "out": tmp_path / "run"}
    result = search(task(declaration), policy=FakePolicy(), coder=FakeCoder(), evaluator=FakeEvaluator(), **run)
    assert result.tolerance.text == said and load(tmp_path / "run").tolerance == result.tolerance
    assert said in (tmp_path / "run" / "best.py").read_text().splitlines()[0]
    assert "Tolerance of the outputs: the task's own: KernelBench's + 0.01" in run_report(result.record)
    (tmp_path / "tree.json").write_text(to_json(result.record))
    assert from_json(tmp_path / "tree.json").tolerance == result.tolerance
    assert "tolerance" not in json.loads(to_json(RunRecord(result.versions)))["run"]
    widened = DEFAULT.contract({"tolerance_widened": 3e-3, "reference_error": 2e-4})
    assert "widened by 3.0e-03: the reference itself errs by 2.0e-04 of its norm" in widened


def test_what_widens_is_what_the_reference_errs_by() -> None:
    exact = torch.linspace(-1.0, 1.0, 256, dtype=torch.float64)
    value = (exact + 4e-4 * torch.cos(37 * exact)).float()
    assert calibrated(value, exact, exact).slack == pytest.approx(1.6e-3, rel=0.1)
    assert calibrated(value, exact, exact, Tolerance(atol=0.1)).slack == 0.0
