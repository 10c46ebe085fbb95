"""Baselines are kept by what they hold for."""

import dataclasses

import pytest

from mtmc.errors import ConfigError
from mtmc.evaluate.baselines import BaselineFile, Fingerprint
from mtmc.evaluate.devices import Device
from mtmc.evaluate.gpu import GpuSettings
from mtmc.outcome import Outcome
from mtmc.task import load_task


def test_a_baseline_is_found_again_only_where_it_holds(tmp_path):
    task, device = load_task("softmax"), Device.host()
    fingerprint = Fingerprint.of(task, device)
    kept = BaselineFile.of(str(tmp_path / "sub" / "kept.json"))
    assert kept.find(fingerprint) == {}
    outcome = Outcome("ok", runtime_ms=0.25, runtime_kind="measured", trials=20)
    kept.add(fingerprint, "eager", outcome)
    kept.add(fingerprint, "torch.compile", Outcome("timeout"))
    assert kept.find(fingerprint) == {"eager": outcome, "torch.compile": Outcome("timeout")}
    for changed in (
        {"gpu": "H200"},
        {"driver": "1"},
        {"torch": "0"},
        {"triton": "0"},
        {"task": "x"},
        {"runtime": "device_ms"},
    ):
        assert kept.find(dataclasses.replace(fingerprint, **changed)) == {}
    assert Fingerprint.of(load_task("layernorm"), device) != fingerprint


def test_a_file_of_something_else_is_named(tmp_path):
    path = tmp_path / "kept.json"
    path.write_text("[1]")
    with pytest.raises(ConfigError, match=r"kept\.json"):
        BaselineFile.of(str(path)).find(Fingerprint.of(load_task("softmax"), Device.host()))


def test_an_unknown_baseline_is_refused_before_anything_starts() -> None:
    with pytest.raises(ConfigError, match=r"evaluator.baselines cannot have 'jit': use some of eager, torch.compile"):
        GpuSettings(baselines=("eager", "jit")).open()
