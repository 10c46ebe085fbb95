"""What coders find out of a root while it is evaluated."""

from __future__ import annotations

import pytest

from mtmc.agents.coders.auto import AutoCoder
from mtmc.agents.coders.rewriter import Rewriter
from mtmc.errors import TaskError
from mtmc.optimizations import seen
from mtmc.outcome import Outcome
from mtmc.protocols import Coder, Observation
from mtmc.task import load_task, task_from_source

NO_EXPORT = """
import torch
from torch import nn

n = 64


class Model(nn.Module):
    def forward(self, x):
        return x + 1 if x.sum() > 0 else x


def get_inputs():
    return [torch.randn(n)]


def get_init_inputs():
    return []
"""


@pytest.mark.parametrize("coder", [Rewriter(), AutoCoder()])
def test_the_moves_that_were_listed_ahead_are_not_listed_again(coder: Coder) -> None:
    task = load_task("softmax_gelu")
    root = Rewriter().root(task)
    seen._moves.cache_clear()
    coder.ahead(task, root.plan, "H100")
    assert seen._moves.cache_info().misses == 1
    told = Observation(task, root.source, root.plan, Outcome("ok", runtime_ms=1.0), (), "H100")
    assert len(coder.actions(told, ())) > 1
    assert seen._moves.cache_info().misses == 1


def test_a_version_without_a_plan_has_nothing_to_be_listed() -> None:
    seen._moves.cache_clear()
    Rewriter().ahead(load_task("softmax_gelu"), None, "H100")
    assert seen._moves.cache_info().misses == 0


def test_what_does_not_export_fails_ahead_as_it_does_later() -> None:
    task = task_from_source(NO_EXPORT, "branching")
    with pytest.raises(TaskError):
        Rewriter().root(task)
    with pytest.raises(TaskError):
        Rewriter().ahead(task, "[]", "H100")
