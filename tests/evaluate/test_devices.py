"""Which GPUs are taken, from what the driver's own tool says."""

from __future__ import annotations

from pathlib import Path

import pytest

from mtmc.errors import ConfigError, EvaluatorError
from mtmc.evaluate.devices import visible_devices

TWO = "0, GPU-2bc2, NVIDIA H100 80GB HBM3, 81559, 580.1, 9.0\n1, GPU-ca49, NVIDIA H200, 143771, 580.1, 9.0\n"


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def made(listing: str, visible: str | None = None) -> None:
        tool = tmp_path / "nvidia-smi"
        tool.write_text(f"#!/bin/sh\ncat <<'END'\n{listing}END\n")
        tool.chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        if visible is not None:
            monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)

    return made


def test_every_visible_gpu_with_its_record(machine):
    machine(TWO)
    assert [(d.index, d.hardware.name, d.memory_mib) for d in visible_devices()] == [
        ("0", "H100", 81559),
        ("1", "H200", 143771),
    ]
    machine(TWO, visible="1")
    assert [device.index for device in visible_devices()] == ["1"]
    machine(TWO)
    assert [(device.index, device.uuid) for device in visible_devices("1")] == [("1", "GPU-ca49")]
    machine(TWO, visible="GPU-ca")
    assert [device.index for device in visible_devices()] == ["1"]


def test_a_card_that_is_not_in_the_table_is_like_one_of_its_target(machine):
    machine("0, GPU-1, NVIDIA GH200 480GB, 97871, 580.1, 9.0\n")
    [device] = visible_devices()
    assert device.hardware.target == "sm_90"
    machine("0, GPU-1, Tesla V100, 16384, 580.1, 7.0\n")
    with pytest.raises(ConfigError, match=r"Tesla V100.*not in the hardware table"):
        visible_devices()


@pytest.mark.parametrize(
    ("listing", "visible", "asked", "message"),
    [
        ("", None, "", "no CUDA device"),
        (TWO, "", "", "CUDA_VISIBLE_DEVICES='' names none"),
        (TWO, None, "7", "no GPU '7'"),
        (TWO, "0", "1", "no GPU '1'"),
    ],
)
def test_missing_means_get_one_message(machine, listing: str, visible: str | None, asked: str, message: str):
    machine(listing, visible)
    with pytest.raises((EvaluatorError, ConfigError), match=message):
        visible_devices(asked)
