"""What a task printed from a live module gives: its Model with its state, and inputs."""

from __future__ import annotations

import io
from typing import Any

import torch
from torch import nn

from mtmc.task import Task
from mtmc.task.reference import held, instantiate


def printed(task: Task, label: str = "full", seed: int = 0) -> tuple[nn.Module, list[Any]]:
    """The task's Model with its state loaded, and inputs, at one set of shapes."""
    assert task.state is not None
    state = torch.load(io.BytesIO(task.state), weights_only=True)
    variant = next(variant for variant in task.variants if variant.label == label)
    return instantiate(task.source, variant, task.name, held(task.source, variant, task.name, state), seed)
