"""Real failures of Triton kernels, each compiled or run through the lab: what is said of them, and what rules fix.

A file of `failures/` is a version that fails. Its header says of which task, with what status and kind of diagnosis, what
the message must contain, and which rules fix it, one after the other ("none": a model must). A comment marks the line
to blame; without one the diagnosis must name none. Files of `failures/` that are no Python end in ".txt".
"""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import libcst as cst
import pytest

from mtmc.agents.coders.repair import Fixed, fix
from mtmc.agents.coders.repair.lanes import tiles
from mtmc.agents.coders.repair.program import Program
from mtmc.agents.coders.repair.rules import RULES
from mtmc.evaluate.lab import LabSettings
from mtmc.outcome import Diagnosis, Outcome
from mtmc.protocols import EvaluationRequest
from mtmc.task import Task, load_task
from tests.breadth import share

FOLDER = Path(__file__).parent / "failures"
MARK = "# <- here"
HARDWARE = "H100"
ROUNDS = 3
OTHER_DIAGNOSES = 19
"""A source is tried with each 19th of all diagnoses."""


@dataclass(frozen=True)
class Failure:
    """One file of the corpus; the fields are its header's. line: 1-based, None where no line is marked."""

    source: str
    task: str
    status: str
    kind: str
    says: str
    rules: tuple[str, ...]
    line: int | None


def read(path: Path) -> Failure:
    source = path.read_text(encoding="utf-8")
    header = dict(re.findall(r"^(\w+): (.+)$", source.split('"""')[1], re.MULTILINE))
    marked = [number for number, line in enumerate(source.splitlines(), 1) if MARK in line]
    assert len(marked) <= 1, path
    rules = () if header["rules"] == "none" else tuple(header["rules"].split(", "))
    line = marked[0] if marked else None
    return Failure(source, header["task"], header["status"], header["kind"], header["says"], rules, line)


ALL = {path.stem: read(path) for path in sorted(FOLDER.iterdir()) if path.suffix in (".py", ".txt")}
FAILURES = dict(share(list(ALL.items()), 4))
"""What goes through the lab here."""
MECHANICAL = [name for name, failure in FAILURES.items() if failure.rules]
OTHERS = [name for name, failure in FAILURES.items() if not failure.rules]


@cache
def task(name: str) -> Task:
    return load_task(str(FOLDER / "tasks" / f"{name}.py"))


def fitting(source: str, diagnosis: Diagnosis) -> list[str]:
    """The rules that would change a source."""
    program = Program.parse(source)
    return [] if program is None else [name for name, rule in RULES.items() if rule(program, diagnosis, HARDWARE)]


@pytest.fixture(scope="module")
def histories() -> dict[str, list[Outcome]]:
    """The outcomes of each failure, and of what `fix` made of it, until it is right or no rule fits."""
    sources = {name: failure.source for name, failure in FAILURES.items()}
    found: dict[str, list[Outcome]] = {name: [] for name in FAILURES}
    with LabSettings(workers=2, check_variants=1).open() as evaluator:
        for _ in range(1 + ROUNDS):
            requests = [EvaluationRequest(task(FAILURES[name].task), source) for name, source in sources.items()]
            outcomes = dict(zip(sources, evaluator.evaluate(requests), strict=True))
            fixed = {}
            for name, outcome in outcomes.items():
                found[name].append(outcome)
                if outcome.diagnosis is not None:
                    fixed[name] = fix(sources[name], outcome.diagnosis, HARDWARE)
            sources = {name: new.source for name, new in fixed.items() if new is not None}
    return found


def test_there_are_enough() -> None:
    mechanical = [name for name, failure in ALL.items() if failure.rules]
    assert len(mechanical) >= 12 and len(ALL) - len(mechanical) >= 8 and len(ALL) >= 20
    assert {rule for failure in ALL.values() for rule in failure.rules} <= set(RULES)


@pytest.mark.parametrize("name", FAILURES)
def test_the_diagnosis_is_right(name: str, histories: dict[str, list[Outcome]]) -> None:
    failure, outcome = FAILURES[name], histories[name][0]
    assert outcome.diagnosis is not None, outcome
    found = outcome.diagnosis
    assert (outcome.status, found.kind, found.line) == (failure.status, failure.kind, failure.line), found
    assert failure.says in found.message, found
    if failure.line is not None:
        assert MARK in next(line for line in found.excerpt.splitlines() if line.startswith(">"))


@pytest.mark.parametrize("name", FAILURES)
def test_the_message_is_the_same_in_every_run(name: str, histories: dict[str, list[Outcome]]) -> None:
    diagnosis = histories[name][0].diagnosis
    assert diagnosis is not None
    assert not re.search(r"0x[0-9a-f]{6}|/tmp|/home|/site-packages|mtmc-\w{8}", diagnosis.message), diagnosis


@pytest.mark.parametrize("name", MECHANICAL)
def test_rules_fix_what_is_mechanical(name: str, histories: dict[str, list[Outcome]]) -> None:
    source, used = FAILURES[name].source, []
    for outcome in histories[name][:-1]:
        assert outcome.diagnosis is not None
        used.append(fitting(source, outcome.diagnosis))
        fixed = fix(source, outcome.diagnosis, HARDWARE)  # once more: what was evaluated came of the same call
        assert fixed is not None and fixed.what and len(changed_lines(source, fixed.source)) <= 4
        source = fixed.source
    assert histories[name][-1].ok, histories[name][-1]
    assert used == [[rule] for rule in FAILURES[name].rules], "exactly one rule fits each diagnosis"


@pytest.mark.parametrize("name", OTHERS)
def test_rules_leave_the_rest_alone(name: str, histories: dict[str, list[Outcome]]) -> None:
    (outcome,) = histories[name]
    assert outcome.diagnosis is not None and fitting(FAILURES[name].source, outcome.diagnosis) == []


def test_rules_take_any_source_with_any_diagnosis(histories: dict[str, list[Outcome]]) -> None:
    diagnoses = [outcomes[0].diagnosis for outcomes in histories.values() if outcomes[0].diagnosis is not None]
    for at, (name, failure) in enumerate(FAILURES.items()):
        program = Program.parse(failure.source)
        for diagnosis in [] if program is None else diagnoses[at % OTHER_DIAGNOSES :: OTHER_DIAGNOSES]:
            for rule in RULES.values():
                fixed = rule(program, diagnosis, HARDWARE)
                assert fixed is None or Program.parse(fixed.source) is not None, (name, diagnosis)


def changed_lines(before: str, after: str) -> list[str]:
    return [line for line in after.splitlines() if line not in before.splitlines()]


def diagnosed(kind: str, message: str, line: int | None = None, stage: str = "build") -> Diagnosis:
    return Diagnosis(stage, kind, message, line)


def source_of(name: str) -> str:
    return ALL[name].source


def test_nothing_heavy_is_imported_before_a_rule_is_asked() -> None:
    code = "import sys, mtmc.agents.coders.repair; assert not {'libcst', 'torch', 'triton'} & set(sys.modules), 'heavy'"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_text_that_is_no_python_is_left_alone() -> None:
    assert fix("def f(:", diagnosed("SyntaxError", "invalid syntax", 1, "audit"), HARDWARE) is None
    assert fix("", diagnosed("NameError", "name 'math' is not defined", 1), HARDWARE) is None


def test_amd_has_no_split_products() -> None:
    fixed = fix(source_of("dot_in_tf32"), diagnosed("LowPrecision", "fp32: float32", stage="check"), "MI300X")
    assert fixed is not None and 'input_precision="ieee"' in fixed.source


def test_an_output_on_the_wrong_device_gets_the_inputs() -> None:
    source = source_of("device_left_out")
    line = 1 + source.splitlines().index(next(x for x in source.splitlines() if "power_kernel[" in x))
    message = "argument out_ptr of power_kernel is a tensor on the cpu, not on a GPU"
    fixed = fix(source, diagnosed("ValueError", message, line), HARDWARE)
    assert fixed is not None and "torch.empty(rows, dtype=x.dtype, device=x.device)" in fixed.source
    assert fix(fixed.source, diagnosed("ValueError", message, line), HARDWARE) is None


def test_a_tile_size_that_the_grid_does_not_follow_is_left_alone() -> None:
    source = source_of("shared_memory_tiles").replace("range(0, k, BK)", "range(0, k, 1024)")
    source = source.replace("triton.cdiv(m, block_m), triton.cdiv(n, block_n)", "4, 4")
    message = (
        "kernel matmul_kernel: out of resource: shared memory, Required: 524288, Hardware limit: 232448. Reducing ..."
    )
    assert fix(source, diagnosed("OutOfResources", message, 18), HARDWARE) is None


def test_a_mask_that_nothing_tells_is_not_guessed() -> None:
    source = source_of("no_mask_at_all").replace("n = x.numel()", "n = 7 * 11")
    found = diagnosed("OutOfBoundsError", "a load of 1024 elements", ALL["no_mask_at_all"].line, "check")
    assert fix(source, found, HARDWARE) is None
    assert fix(source_of("no_mask_at_all"), found, HARDWARE) is not None


def test_a_name_that_could_be_two_is_not_guessed() -> None:
    source = source_of("misspelt_name").replace("    mask = offsets", "    offse = 0\n    mask = offsets")
    found = diagnosed("CompilationError", "NameError('offset is not defined')", ALL["misspelt_name"].line + 1)
    assert fix(source, found, HARDWARE) is None


def test_a_right_reduction_is_left_alone() -> None:
    wrong = diagnosed("WrongValues", "the output: 3 of 4 elements are off by more than 1", None, "check")
    right = [
        "tl.sum(x * x, axis=0)",
        "tl.max(tl.abs(x), axis=0)",
        "tl.sum(tl.where(index < cols, tl.exp(x), 0.0), axis=0)",
    ]
    source = source_of("float_offsets").replace("* 2 / 2", "")
    for reduction in right:
        assert fix(source.replace("tl.sum(x * x, axis=0)", reduction), wrong, HARDWARE) is None, reduction
    bad = fix(source.replace("tl.sum(x * x, axis=0)", "tl.sum(tl.exp(x), axis=0)"), wrong, HARDWARE)
    assert isinstance(bad, Fixed) and "tl.where(index < cols, tl.exp(x), 0.0)" in bad.source


def test_an_argument_is_added_to_a_call_of_several_lines() -> None:
    source = source_of("no_mask_on_store").replace(
        "tl.store(out_ptr + offsets, 2.0 * x + y)", "tl.store(\n        out_ptr + offsets,\n        2.0 * x + y,\n    )"
    )
    found = diagnosed("OutOfBoundsError", "a store", ALL["no_mask_on_store"].line, "check")
    fixed = fix(source, found, HARDWARE)
    assert fixed is not None and "        2.0 * x + y,\n        mask=mask,\n    )" in fixed.source


def test_a_grid_whose_name_has_other_uses_is_wrapped_where_it_is_used() -> None:
    source = source_of("grid_lambda_no_tuple").replace(
        '        grid = lambda meta: triton.cdiv(n, meta["BLOCK"])\n', ""
    )
    source = source.replace("add_kernel[grid]", "add_kernel[n]")
    found = diagnosed("TypeError", "'int' object is not iterable", ALL["grid_lambda_no_tuple"].line - 1)
    fixed = fix(source, found, HARDWARE)
    assert fixed is not None and "n = x.numel()\n" in fixed.source and "add_kernel[(n,)](x, y, out, n," in fixed.source


def test_a_comparison_of_lanes_is_no_bound() -> None:
    source = source_of("no_mask_on_store").replace(
        "    y = tl.load", "    later = mask & (offsets < offsets + 1)\n    y = tl.load"
    )
    found = diagnosed("OutOfBoundsError", "a store", ALL["no_mask_on_store"].line + 1, "check")
    fixed = fix(source, found, HARDWARE)
    assert fixed is not None and "2.0 * x + y, mask=mask)" in fixed.source


def test_a_tile_is_found_through_names_that_many_paths_lead_to() -> None:
    """There are three to the twentieth of them, so none of these is looked at twice."""
    chain = "".join(f"    a{at + 1} = a{at} * a{at} + a{at}\n" for at in range(19))
    for start, found in (("tl.arange(0, 8)", True), ("tl.program_id(0)", False), ("tl.load(x_ptr)", False)):
        program = Program.parse(f"import triton.language as tl\n\ndef kernel(x_ptr):\n    a0 = {start}\n{chain}")
        assert program is not None
        [kernel] = program.functions
        assert tiles(program, kernel, cst.Name("a19")) == found
    assert not tiles(program, kernel, cst.Name("x_ptr"))
