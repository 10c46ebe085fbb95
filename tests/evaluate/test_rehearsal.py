"""A process that waits for its turn goes through a candidate's first call with a model of the evaluator's own."""

from __future__ import annotations

import sys
from pathlib import Path

import torch

from mtmc.evaluate.measure.rehearsal import NAME, rehearse


def test_it_leaves_nothing_behind(tmp_path: Path) -> None:
    random, deterministic = torch.get_rng_state(), torch.are_deterministic_algorithms_enabled()
    rehearse("cpu", tmp_path)
    assert list(tmp_path.iterdir()) == []
    assert NAME not in sys.modules
    assert torch.are_deterministic_algorithms_enabled() == deterministic
    torch.set_rng_state(random)
