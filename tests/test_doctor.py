"""The doctor: every finding is really looked at, says how to fix it, and never shows a key."""

from __future__ import annotations

import importlib.util
import re
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from mtmc import doctor
from mtmc.cli import main
from mtmc.doctor import Finding
from mtmc.errors import EvaluatorError
from mtmc.evaluate.compiling.target import TARGETS
from mtmc.evaluate.pool.worker import JobResult
from mtmc.evaluate.sandbox import protection

PYPROJECT = Path(__file__).parents[1] / "pyproject.toml"


class StubPool:
    """A pool whose jobs end as they are told to."""

    def __init__(self, end: JobResult | Exception) -> None:
        self.end = end

    def run(self, function: str, arguments: Any, timeout_s: float) -> JobResult:
        if isinstance(self.end, Exception):
            raise self.end
        return self.end


def tried(end: JobResult | Exception) -> Finding:
    return doctor._tried(StubPool(end), "compile_for", {}, "compile for sm_90", needed=True)  # type: ignore[arg-type]


def test_a_kernel_is_really_compiled_for_every_target_and_really_run() -> None:
    findings = {finding.what: finding for finding in doctor.lab()}
    assert set(findings) == {f"compile for {name}" for name in TARGETS} | {"triton interpreter"}
    assert all(finding.ok for finding in findings.values()), findings
    for name, target in TARGETS.items():
        kind = "cubin" if target.backend == "cuda" else "hsaco"
        assert re.search(rf"a {kind} of \d[\d,]{{3,}} bytes", findings[f"compile for {name}"].detail)
    assert [finding.what for finding in findings.values() if finding.needed] == [
        "compile for sm_90",
        "triton interpreter",
    ]


def test_a_compiler_that_fails_is_a_finding() -> None:
    for end, detail in (
        (EvaluatorError("a step failed:\nTraceback ...\nRuntimeError: no ptxas"), "RuntimeError: no ptxas"),
        (JobResult("crash", signal="SIGSEGV", output="one\nptxas died\n"), "crash: ptxas died"),
        (JobResult("timeout"), "timeout: no word of why"),
    ):
        finding = tried(end)
        assert (finding.ok, finding.detail, finding.needed) == (False, detail, True)
        assert finding.fix
    assert tried(JobResult("ok", "compiles", seconds=1.25)).detail == "compiles (1.2 s)"


def test_versions_are_those_of_the_project_file() -> None:
    declared = dict(re.findall(r'"([a-z-]+)>=([\d.]+)[;"]', PYPROJECT.read_text()))
    for name, (least, _) in doctor.PACKAGES.items():
        assert declared.get(name) == least, name
    least = re.search(r'requires-python = ">=(\d+)\.(\d+)"', PYPROJECT.read_text())
    assert least is not None and tuple(map(int, least.groups())) == doctor.PYTHON_LEAST


@pytest.mark.parametrize(
    ("version", "ok"),
    [("2.11.0", True), ("2.13.0+cpu", True), ("3.0", True), ("2.11.0a1", True), ("2.9.1", False), ("1.13", False)],
)
def test_a_package_must_be_new_enough(version: str, ok: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata, "version", lambda name: version)
    finding = doctor.package_version("torch")
    assert (finding.ok, finding.detail, finding.needed) == (ok, version, True)
    assert finding.fix == ("" if ok else "pip install --upgrade 'torch>=2.11'")


def test_a_package_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", missing)
    finding = doctor.package_version("litellm")
    assert (finding.ok, finding.detail, finding.needed) == (False, "not installed", False)
    assert finding.fix == "pip install 'litellm>=1.80'"


def test_python_must_be_new_enough() -> None:
    assert doctor.python_version((3, 10, 0)).ok
    old = doctor.python_version((3, 9, 18))
    assert not old.ok and old.needed and "3.10" in old.fix


def test_tools_are_looked_for_and_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert [(finding.what, finding.ok) for finding in doctor.tools()] == [("cuobjdump", True), ("nvdisasm", True)]
    folder = tmp_path / "backends/nvidia/bin"
    folder.mkdir(parents=True)
    (folder / "cuobjdump").write_text("#!/bin/sh\nexit 1\n")
    (folder / "cuobjdump").chmod(0o755)

    class Spec:
        submodule_search_locations = (str(tmp_path),)

    monkeypatch.setattr(importlib.util, "find_spec", lambda name: Spec)
    found = [(finding.ok, finding.detail, bool(finding.fix)) for finding in doctor.tools()]
    assert found == [(False, "does not run", True), (False, "not in the triton wheel", True)]


def test_keys_are_told_by_name_only() -> None:
    finding = doctor.model_keys({"OPENAI_API_KEY": "very-secret", "GEMINI_API_KEY": "", "HOME": "/home"})
    assert finding == Finding("model keys", True, "OPENAI_API_KEY")
    none = doctor.model_keys({"GEMINI_API_KEY": ""})
    assert (none.ok, none.detail, none.needed) == (False, "none set", False)


def test_every_protection_is_listed_and_none_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    findings = {finding.what: finding for finding in doctor.protections()}
    names = ("network", "processes", "files", "no privileges", "seccomp", "landlock", "memory limit", "process limit")
    assert set(findings) == {f"sandbox {name}" for name in (*names, "environment")}
    assert not any(finding.needed for finding in findings.values())
    assert all(finding.detail and bool(finding.fix) != finding.ok for finding in findings.values())

    def broken() -> None:
        raise EvaluatorError("a process in the sandbox does not start\nno python")

    monkeypatch.setattr(protection, "probe", broken)
    [finding] = doctor.protections()
    assert (finding.what, finding.ok, finding.detail) == ("sandbox", False, "no python")


def test_gpus_are_listed_or_it_is_said_why_not(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    class Properties:
        name = "H100"
        total_memory = 80 * 2**30

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: Properties)
    assert [(each.what, each.detail) for each in doctor.gpus()] == [
        ("gpu 0", "H100, 80 GiB"),
        ("gpu 1", "H100, 80 GiB"),
    ]
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    for cuda, reason in ((None, "built for the CPU only"), ("12.8", "built for 12.8 and sees no device")):
        monkeypatch.setattr(torch.version, "cuda", cuda)
        monkeypatch.setattr(torch.version, "hip", None)
        [finding] = doctor.gpus()
        assert not finding.ok and not finding.needed and reason in finding.detail and finding.fix


def test_without_torch_the_compiler_is_not_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    def version(name: str) -> Finding:
        return Finding(name, name != "torch", "", "pip install torch", needed=True)

    def no_lab() -> Iterator[Finding]:
        raise AssertionError("tried")

    monkeypatch.setattr(doctor, "package_version", version)
    monkeypatch.setattr(doctor, "lab", no_lab)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    findings = {finding.what: finding for finding in doctor.examine()}
    assert findings["compiler"].fix == "fix torch first"
    assert not doctor.able(list(findings.values()))


@pytest.mark.parametrize(("needed", "status"), [(False, 0), (True, 1)])
def test_the_command_says_what_to_fix(
    needed: bool, status: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    findings = [Finding("python", True, "3.11", needed=True), Finding("triton", False, "gone", "install it", needed)]
    monkeypatch.setattr(doctor, "examine", lambda asked: iter(findings))
    assert main(["doctor"]) == status
    out = capsys.readouterr().out
    assert re.search(r"^python +yes  3\.11$", out, re.MULTILINE)
    assert re.search(rf"^triton +{'NO ' if needed else 'no '}  gone\n +to fix: install it$", out, re.MULTILINE)
    assert ("mtmc search" in out) == (status == 0)


def test_the_doctor_does_not_load_torch_to_be_imported() -> None:
    import subprocess

    code = "import sys, mtmc.doctor; sys.exit(any(name in sys.modules for name in ('torch', 'triton')))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
