"""benchmarks/schedules.py without a GPU: what it combines, prints and tabulates, and its record."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from benchmarks import schedules
from benchmarks.schedule_record import EAGER, Measured, Row, Run, from_text, page, table, to_text
from mtmc.errors import ConfigError, EvaluatorError
from mtmc.hardware import hardware
from mtmc.optimizations import Version
from mtmc.rewrite.exported import export_graph
from mtmc.rewrite.plan import root_plan
from mtmc.task import load_task

RECORD = Path(__file__).parents[1] / "results" / "schedules_h200.json"
ROWS = (
    Row(EAGER, 4.0, 0.0),
    Row("rows=1", 3.0, 1e-7),
    Row("rows=2", 1.5, 2e-7),
    Row("rows=4", 1.0, 0.5),  # the fastest one is wrong
    Row("rows=8", failure="OutOfResources: shared memory"),
)
MEASURED = Measured("pool", "loop=flat rows=1", "rows=1", ROWS, {"prints what another prints": 2})
RUN = Run({"gpu": "NVIDIA H200", "date": "2026-11-30"}, (MEASURED,))


def test_settings_are_combined_in_their_order() -> None:
    found = schedules.combined(["rows=1,2", "loop=flat", "num_warps=4,8"])
    assert [schedules.words(each) for each in found] == [
        "rows=1 loop=flat num_warps=4", "rows=1 loop=flat num_warps=8",
        "rows=2 loop=flat num_warps=4", "rows=2 loop=flat num_warps=8",
    ]  # fmt: skip
    assert found[0]["rows"] == 1 and found[0]["loop"] == "flat"


@pytest.mark.parametrize("wrong", ["rows", "rows=", "rows=1,,2", "=1"])
def test_a_setting_without_a_value_is_named(wrong: str) -> None:
    with pytest.raises(ConfigError, match=f"'{wrong}' has no value"):
        schedules.combined(["loop=flat", wrong])


def test_the_table_by_hand() -> None:
    """The start takes 3 ms: 1.5 ms are 2.00x of it and 2.67x of eager's 4. What is wrong or failed is not ranked."""
    lines = table(MEASURED, best=3).splitlines()
    assert lines[2].endswith("Eager 4.000 ms; 2 schedules timed, 2 failed or wrong, 2 not printed.")
    assert lines[-3:] == [
        "| start | rows=1 | 3.000 | 1.00x | 1.33x | 1.0e-07 |",
        "| 1 | rows=2 | 1.500 | 2.00x | 2.67x | 2.0e-07 |",
        "| 2 | rows=1 | 3.000 | 1.00x | 1.33x | 1.0e-07 |",
    ]
    assert "| 2 |" not in table(MEASURED, best=1)
    without = table(Measured("pool", "rows=1", "", ROWS)).splitlines()
    assert without[-3:-1] == ["| start | not among them |  |  |  |  |", "| 1 | rows=2 | 1.500 |  | 2.67x | 2.0e-07 |"]


def test_a_record_is_read_as_it_was_written() -> None:
    text = to_text([RUN, RUN])
    assert from_text(text) == [RUN, RUN]
    assert sum(line.startswith('{"schedule": ') for line in text.splitlines()) == 2 * len(ROWS), "a line for each"


def softmax() -> Version:
    task = load_task("softmax")
    return Version.of(task, root_plan(export_graph(task)), hardware("H200"))


def test_what_cannot_be_printed_is_counted_and_the_start_is_known() -> None:
    root = softmax()
    with pytest.raises(ConfigError, match="softmax has 0 kernels"):
        schedules.kernel_of(root)
    with pytest.raises(ConfigError, match="'lowr': softmax has no legal action"):
        schedules.after(root, ["lowr"])
    version = schedules.after(root, ["lower"])
    start = dict(schedules.kernel_of(version).schedule)
    warps = [start["num_warps"], 2 * int(start["num_warps"])]
    choices = [*({"num_warps": each} for each in warps), {"unheard_of": 1}, {"block_rows": "many"}]
    sources, begins, refused = schedules.printed(version, choices)
    assert list(sources) == [f"num_warps={warps[0]}", f"num_warps={warps[1]}"] and begins == f"num_warps={warps[0]}"
    assert f"num_warps={warps[1]}" in sources[f"num_warps={warps[1]}"]
    assert refused.pop(schedules.SAME) == 1
    [(reason, count)] = refused.items()
    assert reason.startswith("ValueError: ") and "many" in reason and count == 1
    _, begins, refused = schedules.printed(version, [{"num_warps": warps[1]}])
    assert begins == schedules.START and refused == Counter()


def test_without_a_gpu_it_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("mtmc.evaluate.devices.shutil.which", lambda _: None)
    words = ["--tasks", "softmax", "--settings", "num_warps=4", "--out", str(tmp_path / "out")]
    monkeypatch.setattr("sys.argv", ["schedules.py", *words])
    with pytest.raises(EvaluatorError, match="no CUDA device"):
        schedules.main()
    assert not list(tmp_path.iterdir())


def test_the_record_holds_what_its_page_shows() -> None:
    text = RECORD.read_text(encoding="utf-8")
    runs = from_text(text)
    assert len(text) < 400_000 and to_text(runs) == text
    assert RECORD.with_suffix(".md").read_text(encoding="utf-8") == page(runs, best=3)
    for each in (task for run in runs for task in run.tasks):
        names = [row.schedule for row in each.rows if row.schedule != EAGER]
        assert len(set(names)) == len(names) > 5 and (each.start in names or not each.start)
        assert EAGER in {row.schedule for row in each.rows}
