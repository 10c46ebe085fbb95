"""The benchmark of priors: its figures by hand, and the whole of it on two small trees."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks import policy_priors
from benchmarks.policy_priors import Measured, fewer, interval, made
from mtmc.agents.policies.heuristic import Uniform
from mtmc.errors import ConfigError
from mtmc.rl.replays import Curve
from mtmc.rl.trees import RecordedTree
from tests.rl.recorded import hand_tree
from tests.rl.toys import detour_tree


def test_figures_by_hand() -> None:
    reached, never = Curve((0.0, 0.5, 2.0), best=2.0), Curve((0.0, 1.0), best=2.0)
    found = Measured("x", curves=[[reached, never], [reached, reached]])
    assert found.evaluations([7, 9]).tolist() == [5.0, 3.0]
    assert found.reached() == 0.75
    assert found.shares(3)[0].tolist() == [0.0, 0.375, 0.75]
    rng = np.random.default_rng(0)
    assert fewer(np.array([6.0, 6.0]), np.array([3.0, 3.0]), rng) == (2.0, 2.0, 2.0)
    low, high = interval(np.array([1.0, 3.0] * 50), rng)
    assert 1.5 < low < 2.0 < high < 2.5


def test_policies_as_they_are_written() -> None:
    assert made("uniform") == ("uniform", Uniform())
    label, policy = made("sure, and flat=heuristic,temperature=2")
    assert (label, policy.temperature) == ("sure, and flat", 2.0)
    assert made("heuristic,temperature=3")[0] == "heuristic,temperature=3"
    with pytest.raises(ConfigError, match="'temperature' is no setting"):
        made("heuristic,temperature")


@pytest.fixture
def measure(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """The benchmark on two small trees, with the words of its command line."""

    def trees(folder: Path, split: str | None) -> list[RecordedTree]:
        return [replace(tree, split=split, _observations={}) for tree in (hand_tree(), detour_tree())]

    def run(*words: object, data: str = "0" * 16) -> None:
        monkeypatch.setattr(policy_priors, "load_trees", trees)
        monkeypatch.setattr(policy_priors, "data_hash", lambda folders: data)
        monkeypatch.setattr(sys, "argv", ["policy_priors.py", "x", "--seeds", "2", *map(str, words)])
        policy_priors.main()

    return run


def test_the_benchmark_from_end_to_end(measure: Callable[..., None], tmp_path: Path) -> None:
    out = tmp_path / "priors"
    measure("--policy", "sure=heuristic,temperature=0.5", "--out", out, "--decoys")
    data: dict[str, Any] = json.loads(out.with_suffix(".json").read_text())
    assert [row["label"] for row in data["policies"]] == ["uniform", "heuristic", "sure", "hindsight oracle"]
    assert all(row["reached"] == 1.0 for row in data["policies"])
    assert data["policies"][-1]["mean"] == min(row["mean"] for row in data["policies"])
    assert data["trees"] == ["by-hand", "detour"]
    assert out.with_suffix(".png").stat().st_size > 10_000
    assert "no action space" in out.with_suffix(".md").read_text()


def test_priors_are_kept_and_read_again(
    measure: Callable[..., None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["--policy", "flat/one=heuristic,temperature=9", "--keep", tmp_path / "kept"]
    measure(*words, "--only-ask", "--out", tmp_path / "none")
    assert not (tmp_path / "none.json").exists()
    assert [path.name for path in (tmp_path / "kept").iterdir()] == ["flat_one.json"]
    measure(*words, "--out", tmp_path / "first_out")
    with monkeypatch.context() as without:
        without.setattr(policy_priors, "ask", lambda *_: pytest.fail("a policy was asked again"))
        measure(*words, "--out", tmp_path / "kept_out")
        with pytest.raises(ConfigError, match="of other trees"):
            measure(*words, data="1" * 16)
    measure(*words[:2], "--out", tmp_path / "fresh_out")
    kept, fresh = (json.loads((tmp_path / f"{name}_out.json").read_text())["policies"] for name in ("kept", "fresh"))
    assert kept == fresh
