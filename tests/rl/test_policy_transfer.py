"""Runs of a benchmark side by side: the figures by hand."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest

from benchmarks import policy_transfer
from benchmarks.policy_transfer import quotient, read
from mtmc.bench.row import Row, row_to_json
from mtmc.errors import ConfigError


def bench(folder: Path, best_ms: dict[str, float | None]) -> Path:
    """What a benchmark leaves of problems that take 8 ms in eager mode."""
    rows = [
        Row("level1", at, name, "", correct=ms is not None, best_ms=ms, baselines_ms={"eager": 8.0}, hardware="H100")
        for at, (name, ms) in enumerate(best_ms.items())
    ]
    folder.mkdir(parents=True)
    settings = {
        **{kind: {"name": f"any {kind}"} for kind in ("strategy", "policy", "coder")},
        **{"hardware": "H100", "budget": {"evaluations": 16}, "batch": 4, "dtype": "fp32", "seed": 0},
        **{"versions": {"torch": "2.11.0"}, "date": "2026-11-22"},
    }
    (folder / "bench.json").write_text(json.dumps({"settings": settings, "rows": [row_to_json(row) for row in rows]}))
    return folder


def test_two_runs_by_hand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = bench(tmp_path / "h", {"a": 8.0, "b": 4.0, "c": 2.0})
    one, other = bench(tmp_path / "c1", {"a": 2.0, "b": 4.0}), bench(tmp_path / "c2", {"c": None})
    out = tmp_path / "transfer"
    words = ["x", f"heuristic={first}", f"compact={one},{other}", "--out", str(out)]
    monkeypatch.setattr(sys, "argv", words)
    policy_transfer.main()
    runs = json.loads(out.with_suffix(".json").read_text())["runs"]
    assert runs["heuristic"]["over_eager"] == pytest.approx(2**0.5)  # 1 and 2; "c" is not in both
    assert runs["compact"]["over_eager"] == pytest.approx(8**0.5)
    assert runs["compact"]["over_first"][0] == pytest.approx(2.0)
    assert (runs["compact"]["better"], runs["compact"]["worse"]) == (1, 0)
    text = out.with_suffix(".md").read_text()
    assert "2 problems;" in text and "heuristic 1, compact 1" in text and "| level1/a | 1.000x | 4.000x |" in text
    made = "H100, any strategy, any policy, any coder, at most 16 evaluations, 4 at once, fp32, seed 0"
    assert f"- compact: {made}, torch 2.11.0, 2026-11-22\n" in text  # once, of two folders


def test_what_is_wrong_is_said(tmp_path: Path) -> None:
    assert quotient(np.array([4.0, 4.0]), np.array([2.0, 2.0]), np.random.default_rng(0)) == pytest.approx((2.0,) * 3)
    with pytest.raises(ConfigError, match="write LABEL=FOLDER"):
        read("folder")
    with pytest.raises(ConfigError, match=r"there is no .*bench.json"):
        read(f"x={tmp_path}")
