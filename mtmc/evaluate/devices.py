"""The GPUs of this machine, asked of the driver's own tool: the caller's process makes no CUDA context."""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass, replace

from mtmc.errors import ConfigError, EvaluatorError
from mtmc.evaluate.hardware import HARDWARE, Hardware

_QUERY = "index,name,memory.total,driver_version,compute_cap"


@dataclass(frozen=True)
class Device:
    """One GPU. index: as CUDA_VISIBLE_DEVICES counts. memory_mib: of the whole card."""

    index: str
    name: str
    memory_mib: int
    driver: str
    hardware: Hardware

    @classmethod
    def host(cls) -> Device:
        """What stands in for a GPU where the conversation alone is tested."""
        return cls("", "host", 0, "", HARDWARE["H100"])


def visible_devices(asked: str = "") -> list[Device]:
    """The GPUs with those indices ("0,1"), or every one that CUDA_VISIBLE_DEVICES leaves visible.

    Raises: EvaluatorError where there is none; ConfigError for an index that does not exist or a GPU that is not in the
    hardware table.
    """
    present = {device[0]: device for device in _listed()}
    if not present:
        raise EvaluatorError(
            "no CUDA device: nvidia-smi finds none on this machine. Use evaluator=lab, which estimates runtimes without one"
        )
    shown = os.environ.get("CUDA_VISIBLE_DEVICES")
    visible = [entry.strip() for entry in shown.split(",") if entry.strip()] if shown is not None else list(present)
    if not visible:
        raise EvaluatorError("no CUDA device: CUDA_VISIBLE_DEVICES is empty; unset it, or use evaluator=lab")
    wanted = [entry.strip() for entry in asked.split(",") if entry.strip()] or visible
    unknown = [entry for entry in wanted if entry not in present or entry not in visible]
    if unknown:
        raise ConfigError(f"there is no GPU {unknown[0]!r}: evaluator.devices takes of {', '.join(visible)}")
    return [_device(*present[entry]) for entry in wanted]


def _listed() -> list[tuple[str, str, int, str, str]]:
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return []
    command = [tool, f"--query-gpu={_QUERY}", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    except (OSError, subprocess.SubprocessError):
        return []
    rows = [[cell.strip() for cell in line.split(",")] for line in done.stdout.splitlines() if line.count(",") == 4]
    return [(index, name, int(float(memory)), driver, capability) for index, name, memory, driver, capability in rows]


def _device(index: str, name: str, memory_mib: int, driver: str, capability: str) -> Device:
    compact = name.replace(" ", "").lower()
    for known in sorted(HARDWARE.values(), key=lambda each: -len(each.name)):
        if known.name.lower() in compact:
            return Device(index, name, memory_mib, driver, known)
    # A card that is not in the table is measured like any other; only its roofline is unknown.
    target = f"sm_{capability.replace('.', '')}"
    likeness = next((each for each in HARDWARE.values() if each.target == target), None)
    if likeness is None:
        known_names = ", ".join(HARDWARE)
        raise ConfigError(
            f"GPU {index} ({name}, {target}) is not in the hardware table ({known_names}): add a record to it"
        )
    return Device(index, name, memory_mib, driver, replace(likeness, name=name, source="like " + likeness.name))
