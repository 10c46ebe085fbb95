"""Profiles: ncu's tables and Proton's files read, what follows from them, and which profiler is asked when."""

from __future__ import annotations

import json
import os
import stat
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from mtmc.evaluate.estimates.profiled import instruction_mix
from mtmc.evaluate.profiling import ncu, proton
from mtmc.evaluate.profiling.figures import OTHERS, added, joined, longest, short
from mtmc.evaluate.profiling.profiler import Profile, Ran, _read, profile, tried
from mtmc.evaluate.profiling.target import How
from mtmc.evaluate.sandbox import bubblewrap
from mtmc.outcome import kernel_figures, kernel_metrics, of_kernels
from mtmc.task import load_task

COUNTERS = (
    ("dram__bytes_read.sum", "byte", "268,444,160"),
    ("dram__bytes_write.sum", "byte", "268,000,000"),
    ("dram__throughput.avg.pct_of_peak_sustained_elapsed", "%", "87.51"),
    ("gpu__time_duration.sum", "nsecond", "182,304"),
    ("l1tex__t_sector_hit_rate.pct", "%", "0"),
    ("launch__grid_size", "", "16,384"),
    ("launch__registers_per_thread", "register/thread", "32"),
    ("launch__shared_mem_per_block_dynamic", "byte/block", "128"),
    ("launch__shared_mem_per_block_static", "byte/block", "0"),
    ("sm__warps_active.avg.pct_of_peak_sustained_active", "%", "71.25"),
    ("sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active", "%", "n/a"),
    ("smsp__sass_thread_inst_executed_op_fadd_pred_on.sum", "inst", "1,000"),
    ("smsp__sass_thread_inst_executed_op_ffma_pred_on.sum", "inst", "3,000"),
    ("smsp__sass_thread_inst_executed_op_fmul_pred_on.sum", "inst", "500"),
)
FACTS = ("ID", "Process ID", "Process Name", "Host Name", "Kernel Name", "Context", "Stream", "Block Size", "Grid Size")
KERNEL_ROWS = ("softmax_kernel", "void at::native::elementwise_kernel<128, 4>(int, T1)")


def csv_row(cells: Sequence[str]) -> str:
    return ",".join(f'"{cell}"' for cell in cells)


def table(counters: Sequence[tuple[str, str, str]] = COUNTERS, kernels: Sequence[str] = KERNEL_ROWS) -> str:
    """What `ncu --csv --page raw` prints, as its documentation has it."""
    lines = [
        "==PROF== Connected to process 4711 (/usr/bin/python3.12)",
        '==PROF== Profiling "softmax_kernel" - 0: 0%....100% - 8 passes',
    ]
    lines += ["mtmc: profiled", "==PROF== Disconnected from process 4711"]
    lines.append(csv_row([*FACTS, *(name for name, _, _ in counters)]))
    lines.append(csv_row([*("" for _ in FACTS), *(unit for _, unit, _ in counters)]))
    for at, kernel in enumerate(kernels):
        about = [str(at), "4711", "python3.12", "127.0.0.1", kernel, "1", "7", "(128, 1, 1)", "(16384, 1, 1)"]
        lines.append(csv_row([*about, *(value for _, _, value in counters)]))
    return "\n".join([*lines, ""])


REFUSED = (
    "==PROF== Connected to process 4711 (/usr/bin/python3.12)\n"
    "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA GPU Performance Counters on the target "
    "device 0. For instructions on enabling permissions and to get more information see "
    "https://developer.nvidia.com/ERR_NVGPUCTRPERM\n"
)


def test_ncus_table_is_read_in_base_units() -> None:
    first, second = ncu.parse(table())
    assert first.name == "softmax_kernel" and second.name == KERNEL_ROWS[1]
    figures = ncu.figures(first)
    assert figures == pytest.approx(
        {
            "ms": 0.182304, "bytes_dram": 536_444_160, "alu_flops": 1000 + 500 + 2 * 3000, "registers": 32,
            "programs": 16384, "shared_memory": 128, "dram_share": 0.8751, "occupancy": 0.7125, "l1_hit": 0.0,
        }
    )  # fmt: skip
    assert "tensor_share" not in figures, "n/a is no zero"


def test_units_of_other_versions_are_scaled() -> None:
    counters = [("dram__bytes_read.sum", "Mbyte", "268.4"), ("gpu__time_duration.sum", "us", "182.3")]
    counters += [("dram__bytes_write.sum", "Kbyte", "1.5"), ("launch__grid_size", "furlong", "3")]
    [found] = ncu.parse(table(counters, ["k"]))
    figures = ncu.figures(found)
    assert figures["bytes_dram"] == pytest.approx(268.4e6 + 1500) and figures["ms"] == pytest.approx(0.1823)
    assert "programs" not in figures, "a unit that nobody knows is no base unit"


@pytest.mark.parametrize(
    "text",
    [
        "",
        REFUSED,
        '"ID","Process ID"\n',
        '"ID","Kernel Name","gpu__time_duration.sum"\n',
        '"ID","Something","gpu__time_duration.sum"\n"","","ns"\n"0","k","1"\n',
        table()[:700],
        "\x00" * 4096,
        '"ID","Kernel Name","gpu__time_duration.sum"\n"","","ns"\n"0","k"\n"a ""quote",\n',
    ],
)
def test_what_is_no_table_has_no_kernels(text: str) -> None:
    assert ncu.parse(text) == []


def test_a_refusal_is_told() -> None:
    assert ncu.refusal(table()) is None
    refused = ncu.refusal(REFUSED)
    assert refused is not None and refused.startswith("ERR_NVGPUCTRPERM")
    assert ncu.refusal("==ERROR== Failed to find metric x\n") == "Failed to find metric x"


def test_the_command_leaves_the_clocks_alone() -> None:
    words = ncu.command("/opt/ncu", ncu.FULL)
    assert words[0] == "/opt/ncu" and words[words.index("--clock-control") + 1] == "none"
    assert words[words.index("--metrics") + 1].split(",") == list(ncu.FULL) and len(set(ncu.FULL)) == len(ncu.FULL)
    assert set(ncu.BASIC) < set(ncu.FULL)


HATCHET = json.dumps(
    [
        {
            "frame": {"name": "ROOT", "type": "function"},
            "metrics": {"count": 0, "time (ns)": 0},
            "children": [
                {
                    "frame": {"name": "softmax_kernel", "type": "function"},
                    "metrics": {"count": 10, "device_id": "0", "device_type": "CUDA", "time (ns)": 1_823_040},
                    "children": [],
                },
                {"frame": {"name": "no time"}, "metrics": {}, "children": []},
            ],
        },
        {"CUDA": {"0": {"arch": "90", "num_sms": 132}}},
    ]
)


def test_protons_file_has_times() -> None:
    assert proton.parse(HATCHET, 10) == [("softmax_kernel", {"ms": pytest.approx(0.182304), "launches": 1.0})]
    older = HATCHET.replace("time (ns)", "Time (ns)").replace('"count"', '"Count"')
    assert proton.parse(older, 10) == proton.parse(HATCHET, 10)


@pytest.mark.parametrize("text", ["", "{", "3", "[[]]", '{"frame": 1, "metrics": {"time (ns)": 2}}', "[" * 100_000])
def test_what_is_no_profile_of_proton_has_no_kernels(text: str) -> None:
    assert proton.parse(text, 10) == []


# Launches are added up.


def test_totals_are_summed_and_shares_are_means_by_time() -> None:
    found = added(
        [
            ("k", {"ms": 3.0, "bytes_dram": 10.0, "registers": 32, "occupancy": 0.5}),
            ("k", {"ms": 1.0, "bytes_dram": 5.0, "registers": 64, "occupancy": 0.9}),
        ]
    )
    assert found == {"k": pytest.approx({"launches": 2, "ms": 4, "bytes_dram": 15, "registers": 64, "occupancy": 0.6})}


def test_the_longest_kernels_are_kept_and_the_others_told_together() -> None:
    figures = {f"k{at}": {"ms": float(at), "launches": 2.0, "registers": 8.0} for at in range(6)}
    kept = longest(figures, 3)
    assert list(kept) == ["k5", "k4", "k3", OTHERS] and kept[OTHERS] == {"ms": 3.0, "launches": 6.0}


def test_what_was_measured_goes_before_what_is_known() -> None:
    assert joined(
        {"k": {"ms": 1.0, "registers": 40}}, {"k": {"registers": 32, "spills": 4}, "gone": {"spills": 1}}
    ) == {"k": {"ms": 1.0, "registers": 40, "spills": 4}}


def test_names_of_kernels_are_short_and_hold_no_slash() -> None:
    assert (
        short("void at::native::k<4>(int)") == "at::native::k<4>" and short("a/b") == "a|b" and short("") == "unnamed"
    )
    for space in ("at::native::(anonymous namespace)", "<unnamed>", "unnamed>"):
        assert short(f"void {space}::softmax<float>(int)") == "softmax<float>"
    assert len(short("x" * 500)) == 60


def test_metrics_of_kernels_come_back() -> None:
    figures = {"a": {"ms": 1.0, "spills": 0.0}, "b<2>": {"ms": 2.0}}
    assert kernel_metrics({"registers": 3.0, **of_kernels(figures)}) == figures


def test_products_that_no_counter_has_are_shared_out_by_the_time_of_the_tensor_cores() -> None:
    figures = {
        "a": {"ms": 2.0, "tensor_share": 0.5, "alu_flops": 7.0},
        "b": {"ms": 1.0, "tensor_share": 0.0, "alu_flops": 5.0},
    }
    found = kernel_figures({"dot_flops": 100.0, **of_kernels(figures)})
    assert found["a"]["dot_flops"] == 100.0 and found["a"]["flops"] == 107.0 and found["b"]["flops"] == 5.0
    counted = kernel_figures({"dot_flops": 100.0, "kernel/a/dot_flops": 3.0, "kernel/a/ms": 1.0})
    assert counted["a"]["dot_flops"] == 3.0, "what was counted stands"


def test_the_mix_of_instructions_is_in_shares() -> None:
    mix = instruction_mix({"HGMMA": 1, "LDG.128": 2, "FFMA": 3, "IMAD": 3, "BRA": 1})
    assert mix == pytest.approx(
        {"mix_tensor": 0.1, "mix_global": 0.2, "mix_shared": 0, "mix_copies": 0, "mix_math": 0.3, "mix_integer": 0.3}
    )
    assert instruction_mix({}) == {}


# Which profiler.


class Runs:
    """Stands for processes: what each way gives, in the order in which it is asked."""

    def __init__(self, **ways: list[Ran]) -> None:
        self.ways, self.asked = ways, list[tuple[How, int]]()

    def __call__(self, how: How, before: Sequence[str], seconds: float) -> Ran:
        assert seconds > 0 and (before == ()) == (how == "proton")
        self.asked.append((how, len(before)))
        return self.ways[how].pop(0)


TIMES = Ran("mtmc: profiled\n", HATCHET, False)


def test_counters_are_asked_for_first() -> None:
    runs = Runs(ncu=[Ran(table(), "", False)])
    found = tried(runs, 60.0, "/opt/ncu")
    assert found.by == "ncu" and found.metrics == {"profiled_by_ncu": 1.0} and len(runs.asked) == 1
    assert set(found.kernels) == {"softmax_kernel", "at::native::elementwise_kernel<128, 4>"}


def test_refused_counters_are_told_and_times_taken_instead() -> None:
    runs = Runs(ncu=[Ran(REFUSED, "", False)], proton=[TIMES])
    found = tried(runs, 60.0, "/opt/ncu")
    assert found.by == "proton" and found.metrics == {"profiled_by_proton": 1.0, "counters_refused": 1.0}
    assert [how for how, _ in runs.asked] == ["ncu", "proton"], "other counters would be refused as well"


def test_a_counter_that_a_gpu_lacks_is_left_out() -> None:
    missing = Ran("==ERROR== Failed to find metric sm__pipe_tensor_cycles_active\n", "", False)
    found = tried(Runs(ncu=[missing, Ran(table(COUNTERS[:4]), "", False)]), 60.0, "/opt/ncu")
    assert found.by == "ncu" and found.kernels["softmax_kernel"]["ms"] > 0


def test_where_nothing_tells_anything_the_reasons_stand() -> None:
    broken = Ran("Traceback ...\nRuntimeError: no kernel image\n", "", False)
    found = tried(Runs(ncu=[broken, broken], proton=[broken]), 60.0, "/opt/ncu")
    assert found == Profile("", {}, {name: found.notes[name] for name in ("ncu", "proton")}) and found.metrics == {}
    assert "no kernel image" in found.notes["proton"]
    late = tried(Runs(ncu=[Ran("", "", True)], proton=[Ran("", "", True)]), 60.0, "/opt/ncu")
    assert late.notes == {"ncu": "it took too long", "proton": "it took too long"}


def test_a_machine_without_ncu_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    found = tried(Runs(proton=[TIMES]), 60.0)
    assert found.by == "proton" and found.notes["ncu"] == "there is no ncu on the path"


FAKE_NCU = """#!/bin/sh
while [ "$1" != "{python}" ]; do shift; done
touch "{escaped}"
cat "{table}"
"""


@pytest.mark.skipif(bubblewrap.problem(gpu=True) is not None, reason="no name spaces here")
def test_the_profiler_runs_inside_the_sandbox(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A program in the place of ncu, whose table comes through; what it writes where it may not is not there."""
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "table.csv").write_text(table())
    tool = folder / "ncu"
    tool.write_text(FAKE_NCU.format(python=sys.executable, table=folder / "table.csv", escaped=tmp_path / "escaped"))
    tool.chmod(tool.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    found = profile(load_task("softmax"), "x = 1\n", "", "auto", 20.0)
    assert found.by == "ncu" and "softmax_kernel" in found.kernels and not (tmp_path / "escaped").exists()


def test_what_a_version_leaves_in_the_place_of_a_file_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("key")
    (tmp_path / "link").symlink_to(tmp_path / "secret")
    os.mkfifo(tmp_path / "pipe")
    assert [_read(tmp_path / name) for name in ("link", "pipe", "missing", "secret")] == ["", "", "", "key"]
