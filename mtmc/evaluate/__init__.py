"""Evaluators: what a kernel version is worth. See `mtmc.protocols.Evaluator` for the boundary.

`EVALUATORS` names them. A settings class is light to import and is opened into an evaluator:

    with LabSettings(target="sm_90", workers=2).open() as evaluator:
        outcomes = evaluator.evaluate([EvaluationRequest(task, source)])
"""

from __future__ import annotations

from collections.abc import Callable

from mtmc.evaluate.gpu import GpuEvaluator, GpuSettings
from mtmc.evaluate.lab import LabEvaluator, LabSettings
from mtmc.evaluate.on_ray import RayEvaluator, RaySettings
from mtmc.evaluate.replay import ReplayEvaluator, ReplaySettings
from mtmc.protocols import Evaluator, EvaluatorSettings

EVALUATORS: dict[str, Callable[..., EvaluatorSettings | Evaluator]] = {
    "lab": LabSettings,
    "gpu": GpuSettings,
    "replay": ReplaySettings,
    "ray": RaySettings,
}
"""Evaluators by name. To add one: a settings class with `open`, or a class of evaluators, and a line here."""

__all__ = [
    "EVALUATORS",
    "GpuEvaluator",
    "GpuSettings",
    "LabEvaluator",
    "LabSettings",
    "RayEvaluator",
    "RaySettings",
    "ReplayEvaluator",
    "ReplaySettings",
]
