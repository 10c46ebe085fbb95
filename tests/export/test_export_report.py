"""report.md, the sweep's report, and write_dumps."""

from __future__ import annotations

import csv
import io
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from mtmc.errors import RunError
from mtmc.export import (
    RunRecord,
    from_json,
    run_report,
    sweep_csv,
    sweep_markdown,
    sweep_report,
    sweep_rows,
    to_json,
    write_dumps,
)
from mtmc.export.report import cell, runtime_text
from mtmc.export.sweep import varying_settings
from mtmc.export.text import clean, factor, number, quantity, runtime
from mtmc.outcome import Cost, Outcome
from mtmc.tree import KernelNode, Tree

Chain = Callable[..., RunRecord]


def rows_of(text: str) -> list[list[str]]:
    return [
        [part.strip() for part in line.strip("|").split(" | ")] for line in text.splitlines() if line.startswith("|")
    ]


def test_the_report_states_result_path_and_traffic(record: RunRecord) -> None:
    text = run_report(record)
    rows = rows_of(text)
    assert "**3.20x** as fast as the root (estimated). Estimated runtimes come from a model" in text
    assert ["root (the reference)", "#0", "1.92 ms (estimated)", "1.00x estimated"] in rows
    assert ["best", "#7", "0.600 ms (estimated)", "3.20x estimated"] in rows
    path = [row for row in rows if len(row) == 6 and row[0] in "0123"]
    assert [(row[1], row[2], row[5]) for row in path] == [
        ("#0", "", "1.00x estimated"),
        ("#1", "lower", "1.04x estimated"),
        ("#4", "fuse", "2.11x estimated"),
        ("#7", "vectorize", "3.20x estimated"),
    ]
    assert ["kernels", "3", "2", "0.667"] in rows and ["bytes moved", "384 MiB", "192 MiB", "0.500"] in rows


def test_the_report_states_times_a_call() -> None:
    tree = Tree("toy")
    times = {"device_ms": 0.118, "host_ms": 0.21, "call_ms": 0.21}
    tree.add(
        KernelNode(0, -1, None, "a", None, Outcome("ok", 0.126, metrics={"call_ms": 0.126}, runtime_kind="measured"))
    )
    tree.add(KernelNode(1, 0, None, "b", None, Outcome("ok", 0.11, metrics=times, runtime_kind="measured")))
    rows = rows_of(run_report(RunRecord(tree)))
    assert ["call", "0.126 ms", "0.210 ms", "1.67"] in rows and ["device", "", "0.118 ms", ""] in rows


def test_the_report_says_where_the_time_of_evaluations_went(record: RunRecord) -> None:
    tree = Tree("toy")
    seconds = [
        {"build_s": 2.0, "check_s": 1.0, "reference_s": 0.25},
        {"build_s": 4.0},
        {"build_s": 9.0, "check_s": 3.0},
    ]
    for at, each in enumerate(seconds):
        tree.add(
            KernelNode(at, at - 1, None, "abc"[at], None, Outcome("ok", 0.1, metrics=each, runtime_kind="measured"))
        )
    rows = rows_of(run_report(RunRecord(tree)))
    assert ["build", "3", "4.00", "15.0"] in rows and ["check", "2", "2.00", "4.0"] in rows
    assert ["of these the reference", "1", "0.25", "0.2"] in rows
    assert not any(row[0] == "calls in a row" for row in rows), "of which nothing tells"
    assert "Seconds of evaluations" not in run_report(record), "an estimate takes no device"


def test_the_report_counts_outcomes_failures_and_costs(record: RunRecord) -> None:
    text = run_report(replace(record, spent=Cost(seconds=12.5, usd=0.25, tokens_in=9000, tokens_out=500, calls=4)))
    rows = rows_of(text)
    for row in (["ok", "7"], ["build error", "2"], ["wrong result", "1"], ["timeout", "1"]):
        assert row in rows
    assert ["build error", "build", "OutOfResources", "1"] in rows and ["timeout", "check", "Timeout", "1"] in rows
    assert ["evaluations", "10 of 16"] in rows and ["rounds of repair", "1"] in rows
    assert ["US dollars", "0.2500"] in rows and ["tokens in / out", "9,000 / 500"] in rows
    assert ["strategy.name", "mcts"] in rows and "```mermaid\nflowchart LR" in text
    # Without the run's own count, the nodes' costs are summed: 0.001 * (0 + 1 + ... + 10).
    assert ["US dollars", "0.0550"] in rows_of(run_report(record))


def test_a_run_that_found_nothing_says_so() -> None:
    tree = Tree("toy")
    tree.add(KernelNode(0, -1, None, "a", None, Outcome("ok", 2.0, 1.9, 2.1, 30, "measured")))
    text = run_report(RunRecord(tree))
    assert "No version was faster than the root." in text and "From root to best" not in text
    assert "2 ms (measured, 1.90 ms to 2.10 ms)" in text and "estimated" not in text.lower()


def test_cells_cannot_break_their_table(hostile: RunRecord) -> None:
    assert cell("a|b\n<i>*x*</i> [l](u) `c` my_name _y_") == (
        "a\\|b &lt;i>\\*x\\*&lt;/i> \\[l\\](u) \\`c\\` my_name \\_y\\_"
    )
    before_drawing = run_report(hostile).split("```mermaid")[0]
    assert "<" not in before_drawing.replace("&lt;", "")
    widths = [line.replace("\\|", "").count("|") for line in before_drawing.splitlines() if line.startswith("|")]
    assert set(widths) <= {3, 4, 5, 6, 7} and all(
        line.endswith("|") for line in before_drawing.splitlines() if line[:1] == "|"
    )


def test_numbers_for_people() -> None:
    assert [number(value) for value in (0, 0.00123, 0.5, 12.34, 999.9, 1234.5, 3.0, float("inf"))] == [
        "0", "0.00123", "0.500", "12.3", "1000", "1,234", "3", "inf",
    ]  # fmt: skip
    assert [runtime(0.0123), runtime(0.1), runtime(12.5)] == ["12.3 \u00b5s", "0.100 ms", "12.5 ms"]
    assert [factor(3.2), factor(0.0012), factor(1234.0)] == ["3.20x", "0.00120x", "1,234x"]
    assert quantity("bytes_moved", 3 * 2**30) == "3 GiB" and quantity("flops", 8.6e9) == "8.60 GFLOP"
    assert quantity("occupancy", 0.5) == "50%" and quantity("error", 0.00012345) == "1.23e-04"
    assert runtime_text(Outcome("out_of_memory")) == "out of memory"
    assert clean("a\r\nb\x1b\ud800\tc") == "a\nb\ufffd\ufffd\tc"


def sweep(chain: Chain) -> list[RunRecord]:
    """Two strategies with two seeds each: best 2 and 4 (mean 3) against 1 and 1.5 (mean 1.25)."""

    def run(strategy: str, seed: int, gains: list[float | None]) -> RunRecord:
        return chain(
            gains,
            {"strategy": strategy, "seed": seed, "folder": f"runs/{strategy}{seed}", "budget": {"evaluations": 4}},
        )

    return [
        run("mcts", 0, [1.5, None, 2.0, 1.0]),
        run("mcts", 1, [4.0, 0.5]),
        run("greedy", 0, [0.5, 0.5, None, None]),
        run("greedy", 1, [1.5, 1.25, 1.0, 0.75]),
    ]


def test_a_sweep_finds_what_varies_and_aggregates_seeds(chain: Chain) -> None:
    runs = sweep(chain)
    assert varying_settings(runs) == ["strategy"]
    first, second = sweep_rows(runs)
    assert (first.name, first.runs, first.seeds) == ("toy, strategy=mcts", 2, (0, 1))
    assert first.speedups == pytest.approx((2.0, 4.0)) and first.evaluations == (4, 2)
    assert [list(curve) for curve in first.curves] == [pytest.approx([1, 1.5, 1.5, 2, 2]), pytest.approx([1, 4, 4])]
    assert second.name == "toy, strategy=greedy" and second.speedups == pytest.approx((1.0, 1.5))
    assert second.runtime_kind == "estimated"


def test_the_sweeps_table_and_csv(chain: Chain) -> None:
    rows = sweep_rows(sweep(chain))
    assert rows_of(sweep_markdown(rows)) == [
        ["task", "strategy", "runs", "evaluations", "mean", "min", "max", "runtimes"],
        ["---|---|---:|---:|---:|---:|---:|---"],
        ["toy", "mcts", "2", "3", "3.00x", "2.00x", "4.00x", "estimated"],
        ["toy", "greedy", "2", "4", "1.25x", "1.00x", "1.50x", "estimated"],
    ]
    lines = list(csv.DictReader(io.StringIO(sweep_csv(rows))))
    assert [line["strategy"] for line in lines] == ["mcts", "greedy"] and lines[0]["seeds"] == "0 1"
    assert float(lines[0]["best_speedup_mean"]) == pytest.approx(3.0) and float(lines[1]["best_speedup_min"]) == 1.0
    assert lines[0]["evaluations_mean"] == "3.0" and lines[0]["runtime_kind"] == "estimated"


def test_a_sweep_over_tasks_and_settings_that_some_runs_lack(chain: Chain) -> None:
    runs = [
        chain([2.0], {"seed": 0, "batch": 1}, task="softmax"),
        chain([3.0], {"seed": 0}, task="softmax"),
        chain([5.0], {"seed": 0, "batch": 1}, task="gelu"),
    ]
    assert [row.name for row in sweep_rows(runs)] == ["softmax, batch=1", "softmax", "gelu, batch=1"]
    assert rows_of(sweep_markdown(sweep_rows(runs)))[3][:2] == ["softmax", ""]
    only_seeds = [chain([2.0], {"seed": seed, "out": str(seed)}) for seed in range(3)]
    assert [(row.name, row.runs) for row in sweep_rows(only_seeds)] == [("toy", 3)]


def test_a_run_without_runtimes_counts_but_has_no_speedup() -> None:
    tree = Tree("toy")
    tree.add(KernelNode(0, -1, None, "a", None, Outcome("crash")))
    rows = sweep_rows([RunRecord(tree, settings={"seed": 0})])
    assert rows[0].speedups == () and rows[0].runtime_kind is None
    assert sweep_csv(rows).splitlines()[1] == "toy,1,0,,,,0.0,"


def test_the_sweeps_files(chain: Chain, tmp_path: Path) -> None:
    paths = sweep_report(iter(sweep(chain)), tmp_path / "report")
    assert [path.name for path in paths] == ["sweep.md", "sweep.csv", "sweep.png"]
    assert paths[2].read_bytes().startswith(b"\x89PNG")
    with pytest.raises(RunError, match="at least one run"):
        sweep_report([], tmp_path)


def test_write_dumps_writes_all_and_twice_the_same(record: RunRecord, tmp_path: Path) -> None:
    paths = write_dumps(record, tmp_path / "run")
    names = ["progress.png", "report.md", "tree.dot", "tree.graphml", "tree.html", "tree.json", "tree.mmd", "tree.png"]
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == names == sorted(path.name for path in paths)
    first = {path.name: path.read_bytes() for path in paths}
    assert all(first.values())
    write_dumps(record, tmp_path / "run")
    assert {path.name: path.read_bytes() for path in paths} == first
    write_dumps(from_json(tmp_path / "run" / "tree.json"), tmp_path / "again")
    again = {path.name: path.read_bytes() for path in (tmp_path / "again").iterdir()}
    assert {name for name in names if again[name] != first[name]} == {"report.md"}  # it alone tells seconds


def test_hostile_runs_are_dumped(hostile: RunRecord, tmp_path: Path) -> None:
    assert all(path.stat().st_size > 0 for path in write_dumps(hostile, tmp_path))


def test_the_import_is_light() -> None:
    heavy = ["torch", "triton", "langgraph", "litellm", "matplotlib", "jinja2", "networkx"]
    code = f"import sys, mtmc.export; print([name for name in {heavy!r} if name in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_baselines_stand_between_root_and_best(record: RunRecord, tmp_path: Path) -> None:
    root = record.tree.root.outcome
    assert root.runtime_ms is not None
    baselines = {"torch.compile": replace(root, runtime_ms=root.runtime_ms / 2)}
    record = replace(record, baselines=baselines)
    rows = rows_of(run_report(record))
    names = [row[0] for row in rows]
    assert names.index("root (the reference)") < names.index("torch.compile") < names.index("best")
    assert "2.00x" in rows[names.index("torch.compile")]
    path = tmp_path / "tree.json"
    path.write_text(to_json(record), encoding="utf-8")
    assert from_json(path).baselines == baselines
