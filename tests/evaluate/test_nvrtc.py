"""NVRTC in a process of its own: a compiler that crashes or hangs is an error of the text, not the end of a builder."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from mtmc.evaluate.compiling import nvrtc


def compiled() -> None:
    nvrtc.compiled("", "k", (), "sm_90a")


def test_a_crash_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvrtc, "_START", "import os; assert {path!r}; os.kill(os.getpid(), 11)")
    with pytest.raises(RuntimeError, match="ended with status -11"):
        compiled()


def test_a_hang_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvrtc, "_START", "import time; assert {path!r}; time.sleep(60)")
    monkeypatch.setattr(nvrtc, "LIMIT_S", 0.5)
    with pytest.raises(RuntimeError, match=r"stopped after 0\.5 s"):
        compiled()


def test_that_there_is_none_is_told_from_a_text_that_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    for kind in (OSError, RuntimeError):
        answer = {"kind": kind.__name__, "error": "x"}
        monkeypatch.setattr(
            nvrtc,
            "_START",
            f"import json; assert {{path!r}}; print(json.dumps({answer!r}))".replace("{'", "{{'").replace("'}", "'}}"),
        )
        with pytest.raises(kind, match="x"):
            compiled()


def test_a_driver_that_crashes_in_one_environment_is_tried_in_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    crash = "import os, sys, json; assert {path!r}; seen = os.environ.get('CUDA_VISIBLE_DEVICES'); "
    crash += "seen is None and os.kill(os.getpid(), 11); print(json.dumps(dict(kind='RuntimeError', error=repr(seen))))"
    monkeypatch.setattr(nvrtc, "_START", crash)
    with pytest.raises(RuntimeError, match=r"^''$"):
        compiled()


def test_it_needs_no_folder_that_a_builder_cannot_list() -> None:
    """Of the folder that the package is in, Landlock shows a builder no names, so that no import finds it there."""
    library = [entry for entry in sys.path if entry.endswith((".zip", "lib-dynload")) or entry == json.__path__[0][:-5]]
    order = json.dumps({"code": "", "name": "k", "options": [], "chip": "sm_90a"})
    command = [sys.executable, "-ISc", nvrtc.program(library)]
    ended = subprocess.run(command, input=order, capture_output=True, text=True, check=False)
    assert json.loads(ended.stdout)["kind"] == "OSError", ended.stderr  # there is no NVRTC on that path
