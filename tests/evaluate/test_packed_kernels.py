"""Weights that kernels make once, at the first call: what they leave is computed where later calls are compared."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from mtmc.evaluate import LabSettings
from mtmc.evaluate.lab import LabEvaluator
from mtmc.hardware import hardware
from mtmc.optimizations import Version, legal_moves
from mtmc.outcome import Outcome
from mtmc.protocols import EvaluationRequest
from mtmc.rewrite.exported import export_graph
from mtmc.rewrite.plan import root_plan
from mtmc.rewrite.source import print_plan
from mtmc.task import Task, task_from_source
from tests.rewrite.references import reference

SIZES = {"n": (512, 6, 19), "m": (1024, 36, 7), "k": (512, 24, 17)}
WEIGHTS = {
    "a kernel and an op": ("self.w.softmax(-1) * 2", ("lower softmax", "pack")),
    "kernels": ("(self.w.softmax(-1) * 2).t().contiguous().t()", ("lower softmax", "lower mul", "pack")),
    "kernels fused, and a product": ("self.w.softmax(-1) * 2", ("fuse", "lower matmul", "pack")),
}


@pytest.fixture(scope="module")
def lab() -> Iterator[LabEvaluator]:
    with LabSettings(target="sm_90", hardware="H100").open() as opened:
        yield opened


def packed(weight: str, way: tuple[str, ...]) -> tuple[Task, str]:
    source = reference(f"x @ ({weight}).t()", "torch.randn(n, m)", "self.w = nn.Parameter(torch.randn(k, m))", SIZES)
    task = task_from_source(source, "packed")
    version = Version.of(task, root_plan(export_graph(task)), hardware("H100"))
    for wanted in way:
        moves = [m for m in legal_moves(version) if m.action.kind == wanted or m.action.sentence.startswith(wanted)]
        assert moves, (wanted, [m.action.sentence for m in legal_moves(version)])
        assert moves[0].child is not None
        version = Version.of(task, moves[0].child, version.hardware)
    text = print_plan(task, version.graph, version.plan).source
    assert "launch_" in text[text.index("def pack(") : text.index("def forward(")]
    return task, text


def judged(lab: LabEvaluator, task: Task, text: str) -> Outcome:
    [outcome] = lab.evaluate([EvaluationRequest(task, text, 0, "verify")])
    return outcome


@pytest.mark.parametrize("name", WEIGHTS)
def test_right_versions_are_taken(name: str, lab: LabEvaluator) -> None:
    outcome = judged(lab, *packed(*WEIGHTS[name]))
    assert outcome.ok, outcome
    assert outcome.metrics["kernels"] == (2.0 if "product" in name else 1.0)  # what is packed is not counted


def test_what_is_packed_wrongly_at_full_shapes_alone_is_seen(lab: LabEvaluator) -> None:
    task, text = packed(*WEIGHTS["a kernel and an op"])
    stored = "tl.store(softmax_ptr + rows * n_cols + cols, softmax, mask=mask)"
    assert stored in text
    wrong = text.replace(stored, stored.replace(", softmax,", ", tl.where(n_rows > 100, softmax * 1.25, softmax),"))
    outcome = judged(lab, task, wrong)
    assert outcome.status == "wrong_result" and outcome.diagnosis is not None
    assert "at the full shapes" in outcome.diagnosis.message
