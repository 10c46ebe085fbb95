"""The hardware table: what is in it, how it is asked, and that its figures agree with each other."""

from __future__ import annotations

import dataclasses
import subprocess
import sys

import pytest

from mtmc.errors import ConfigError
from mtmc.hardware import HARDWARE, for_target, hardware

NAMES = ["A100", "H100", "H200", "B200", "MI300X", "L4", "RTX4090"]


def test_table_has_every_gpu_under_its_own_name() -> None:
    assert sorted(HARDWARE) == sorted(NAMES)
    assert all(gpu.name == name for name, gpu in HARDWARE.items())


@pytest.mark.parametrize("name", NAMES)
def test_fp32_rate_follows_from_sms_lanes_and_clock(name: str) -> None:
    """SMs x lanes x 2 x clock; the MI300X's datasheet counts packed instructions, two to a lane."""
    gpu = HARDWARE[name]
    packed = 2 if name == "MI300X" else 1
    assert gpu.fp32_tflops == pytest.approx(gpu.sms * gpu.fp32_lanes * 2 * gpu.clock_ghz / 1e3 * packed, rel=0.02)


@pytest.mark.parametrize("name", NAMES)
def test_figures_are_ordered_as_hardware_is(name: str) -> None:
    gpu = HARDWARE[name]
    assert gpu.fp32_tflops <= gpu.tf32_tflops <= gpu.fp16_tflops
    assert gpu.dram_gbs < gpu.l2_gbs
    assert gpu.shared_per_block <= gpu.shared_per_sm
    assert gpu.max_threads_per_sm % gpu.warp_size == 0
    assert len(gpu.source) > 40


def test_datasheet_figures() -> None:
    assert (HARDWARE["H100"].sms, HARDWARE["H100"].dram_gbs, HARDWARE["H100"].fp16_tflops) == (132, 3350.0, 989.4)
    assert (HARDWARE["A100"].l2_bytes, HARDWARE["A100"].tf32_tflops) == (40 * 1024 * 1024, 156.0)
    assert HARDWARE["MI300X"].warp_size == 64
    assert HARDWARE["L4"].shared_per_block == 101_376  # 99 KiB, compute capability 8.9


def test_hardware_by_name_ignores_case() -> None:
    assert hardware("h100") is HARDWARE["H100"]
    assert hardware("RTX4090").target == "sm_89"


def test_unknown_name_is_named_with_the_nearest_ones() -> None:
    with pytest.raises(ConfigError, match=r"unknown GPU 'H10'.*did you mean H100") as caught:
        hardware("H10")
    assert "MI300X" in str(caught.value)
    with pytest.raises(ConfigError, match=r"unknown GPU 'zzz': the table has A100"):
        hardware("zzz")


@pytest.mark.parametrize(
    ("target", "name"),
    [("sm_80", "A100"), ("sm_89", "L4"), ("sm_90", "H100"), ("sm_100", "B200"), ("gfx942", "MI300X")],
)
def test_default_gpu_of_a_target(target: str, name: str) -> None:
    assert for_target(target).name == name
    assert for_target(target).target == target


def test_unknown_target() -> None:
    with pytest.raises(ConfigError, match=r"unknown target 'sm_70'.*sm_"):
        for_target("sm_70")


def test_entries_cannot_be_changed() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        HARDWARE["H100"].sms = 1  # type: ignore[misc]


def test_import_is_light() -> None:
    code = "import sys, mtmc.hardware, mtmc.evaluate.estimates.estimate as _; "
    code += "print({'torch', 'triton', 'numpy'} & {*sys.modules})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=True)
    assert done.stdout.strip() == "set()"
