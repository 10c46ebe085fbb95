"""Baselines are kept by what they hold for."""

import dataclasses
import json

import pytest

from mtmc.errors import ConfigError
from mtmc.evaluate.baselines import BaselineFile, Fingerprint
from mtmc.evaluate.devices import Device
from mtmc.evaluate.gpu import GpuEvaluator, GpuSettings
from mtmc.outcome import Outcome
from mtmc.task import load_task, task_from_source
from tests.evaluate.evaluate_sources import PRODUCT


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


WITH_LIBRARY = f"""{PRODUCT}

class Library(Model):
    def forward(self, x):
        return RESULT
"""


def test_a_librarys_kernels_are_timed_where_they_are_right_and_there(tmp_path):
    """On the host, as the conversation goes on a device. What is wrong, or not installed, is an outcome that says so."""
    results = {
        "right": "(self.weight.t() @ x.t()).t().contiguous()",
        "wrong": "x @ self.weight + 1",
        "missing": "__import__('nobody_has_this').product(x, self.weight)",
    }
    tasks = {name: task_from_source(WITH_LIBRARY.replace("RESULT", text), name) for name, text in results.items()}
    kept = tmp_path / "kept.json"
    settings = GpuSettings(builders=1, baselines=("eager", "library"), baselines_file=str(kept))
    with GpuEvaluator(settings, backend="host") as opened:
        found = {name: opened.baselines(task) for name, task in tasks.items()}
        assert list(opened.baselines(task_from_source(tasks["right"].source, "plain"))) == ["eager"]
    assert found["right"]["library"].ok and found["right"]["library"].runtime_ms > 0
    assert found["wrong"]["library"].status == "wrong_result"
    missing = found["missing"]["library"].diagnosis
    assert not found["missing"]["library"].ok and "nobody_has_this" in missing.message
    names = [name for each in json.loads(kept.read_text()).values() for name in each]
    assert sorted(name.split()[0] for name in names) == ["eager", "library"], "three tasks of one reference"
    assert any(name.startswith("library ") for name in names), "another text of the library's is another baseline"


def test_an_unknown_baseline_is_refused_before_anything_starts() -> None:
    with pytest.raises(ConfigError, match=r"evaluator.baselines cannot have 'jit': use some of eager, torch.compile"):
        GpuSettings(baselines=("eager", "jit")).open()


def test_a_folder_that_cannot_be_written_is_named_before_anything_starts(tmp_path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match=r"file/kept.json cannot be written .*: set evaluator.baselines_file"):
        BaselineFile.of(str(tmp_path / "file" / "kept.json")).compiling  # noqa: B018


def test_where_compilers_keep_what_they_find_is_the_same_from_every_folder(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    kept, fingerprint = BaselineFile.of("runs/kept.json"), Fingerprint.of(load_task("softmax"), Device.host())
    begun = kept.begun(fingerprint)
    assert begun.is_absolute() and begun.parent == tmp_path / "runs" / "kept.compiling" and begun.parent.is_dir()
