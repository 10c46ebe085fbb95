"""What triton's `cuobjdump` tells of a cubin. Needs no GPU, no CUDA toolkit and no import of triton."""

from __future__ import annotations

import importlib.util
import re
import subprocess
from pathlib import Path

from mtmc.errors import EvaluatorError

_TIMEOUT_S = 60.0
_USAGE = re.compile(r"Function (\S+):\s+REG:(\d+) STACK:(\d+) SHARED:(\d+)")
_SYSTEM_SHARED = 1024  # bytes of each block that the driver keeps, from compute capability 8.0 on


def usage_of(path: Path, function: str = "") -> tuple[int, int, int]:
    """Registers, bytes of local memory and of static shared memory of a function in a cubin; "": its only one.

    Raises: EvaluatorError where it has none, or for a missing or failing cuobjdump."""
    found = {name: tuple(map(int, numbers)) for name, *numbers in _USAGE.findall(_cuobjdump(path, "-res-usage"))}
    usage = found.get(function) if function else next(iter(found.values()), None)
    if usage is None:
        raise EvaluatorError(f"cuobjdump found no kernel {function} in {path.stat().st_size} bytes; a cubin is needed")
    registers, stack, static = usage
    return registers, stack, max(0, static - _SYSTEM_SHARED)


def disassembled(path: Path, function: str = "") -> str:
    """Machine code of a cubin as text, of one function or of all. Raises: EvaluatorError."""
    return _cuobjdump(path, "-sass", *(("-fun", function) if function else ()))


def _cuobjdump(path: Path, *options: str) -> str:
    spec = importlib.util.find_spec("triton")
    folders = list(spec.submodule_search_locations or []) if spec is not None else []
    tool = next((t for f in folders if (t := Path(f) / "backends/nvidia/bin/cuobjdump").is_file()), None)
    if tool is None:
        raise EvaluatorError("this triton carries no cuobjdump; install triton from PyPI (3.6 to 3.9)")
    # nvdisasm, which cuobjdump -sass calls, lies beside it.
    environment = {"PATH": str(tool.parent), "TMPDIR": str(path.parent)}  # a worker may not write to /tmp
    try:
        done = subprocess.run(
            [str(tool), *options, str(path)], capture_output=True, text=True, timeout=_TIMEOUT_S, env=environment
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise EvaluatorError(f"cuobjdump {options[0]} did not run: {error}") from error
    if done.returncode != 0:
        raise EvaluatorError(f"cuobjdump {options[0]} failed: {(done.stderr or done.stdout).strip()[:300]}")
    return done.stdout
