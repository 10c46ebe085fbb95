"""Evaluators: what a kernel version is worth. See `mtmc.protocols.Evaluator` for the boundary.

`EVALUATORS` names them. A settings class is light to import and is opened into an evaluator:

    with LabSettings(target="sm_90", workers=2).open() as evaluator:
        outcomes = evaluator.evaluate([EvaluationRequest(task, source)])
"""

from __future__ import annotations

from mtmc.evaluate.gpu import GpuEvaluator, GpuSettings
from mtmc.evaluate.lab import LabEvaluator, LabSettings
from mtmc.evaluate.replay import ReplayEvaluator, ReplaySettings

EVALUATORS: dict[str, type[LabSettings] | type[GpuSettings] | type[ReplaySettings]] = {
    "lab": LabSettings,
    "gpu": GpuSettings,
    "replay": ReplaySettings,
}
"""Evaluator by name: its settings class."""

__all__ = [
    "EVALUATORS",
    "GpuEvaluator",
    "GpuSettings",
    "LabEvaluator",
    "LabSettings",
    "ReplayEvaluator",
    "ReplaySettings",
]
