"""NVRTC in a process of its own, which has loaded nothing else.

NVRTC 13 starts the CUDA driver (cuInit), also where it compiles for a named target, and in a builder, which is to see no
device (an empty CUDA_VISIBLE_DEVICES), that crashes with driver 580.159 on an H100. So it is told of no restriction first:
the sandbox has no device's file in it anyway. And a compiler that crashes at a text takes no builder with it.
"""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
from collections.abc import Sequence

from mtmc import cuda
from mtmc.cuda import RawKernel

LIMIT_S = 120.0
_VISIBLE = "CUDA_VISIBLE_DEVICES"
_START = """
import importlib.util, sys, types
sys.path[:] = {path!r}
package = sys.modules["mtmc"] = types.ModuleType("mtmc")
for name, place in {modules!r}:
    spec = importlib.util.spec_from_file_location(name, place)
    sys.modules[name] = importlib.util.module_from_spec(spec)
    setattr(package, name.rpartition(".")[2], sys.modules[name])
    spec.loader.exec_module(sys.modules[name])
sys.modules[name].main()
"""
# Its modules by the places of their files: Landlock lets a builder read this package, but not list the folder it is in.


def compiled(code: str, name: str, options: tuple[str, ...], chip: str) -> tuple[bytes, str]:
    """`RawKernel.raw_compiled`. chip: as NVRTC calls it ("sm_90a").

    Raises: RuntimeError with what NVRTC says, or how its process ended; OSError where there is no NVRTC.
    """
    command = [sys.executable, "-c", program([os.path.abspath(entry) for entry in sys.path])]
    order = json.dumps({"code": code, "name": name, "options": options, "chip": chip})
    unrestricted = {name: value for name, value in os.environ.items() if name != _VISIBLE}
    for environment in (unrestricted, {**unrestricted, _VISIBLE: ""}):
        try:
            ended = subprocess.run(
                command, input=order, capture_output=True, text=True, timeout=LIMIT_S, env=environment
            )
        except subprocess.TimeoutExpired:
            raise RuntimeError(f"NVRTC was stopped after {LIMIT_S:g} s") from None
        if ended.returncode >= 0:
            break  # no signal
    if ended.returncode:
        raise RuntimeError(f"NVRTC's process ended with status {ended.returncode}\n{ended.stderr[-2000:]}")
    answer = json.loads(ended.stdout)
    if "binary" in answer:
        return base64.b64decode(answer["binary"]), answer["lowered"]
    raise (OSError if answer["kind"] == "OSError" else RuntimeError)(answer["error"])


def program(path: Sequence[str]) -> str:
    """What that process runs. path: where it looks for libraries."""
    modules = [(module.__name__, os.path.abspath(module.__file__ or "")) for module in (cuda, sys.modules[__name__])]
    return _START.format(path=list(path), modules=modules)


def main() -> None:
    """In that process: one order from standard input, one answer to standard output."""
    order = json.load(sys.stdin)
    try:
        binary, lowered = RawKernel.raw_compiled(order["code"], order["name"], tuple(order["options"]), order["chip"])
        answer = {"binary": base64.b64encode(binary).decode(), "lowered": lowered}
    except (OSError, RuntimeError) as error:
        answer = {"kind": "OSError" if isinstance(error, OSError) else "RuntimeError", "error": str(error)}
    json.dump(answer, sys.stdout)
