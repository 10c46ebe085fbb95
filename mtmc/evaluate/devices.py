"""The cores of this machine, and its GPUs, asked of the driver's own tool: the caller's process makes no CUDA context."""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass, fields, replace

from mtmc.errors import ConfigError, EvaluatorError
from mtmc.hardware import HARDWARE, Hardware

_QUERY = "index,uuid,name,memory.total,driver_version,compute_cap"


@dataclass(frozen=True)
class Device:
    """One GPU. index: as nvidia-smi counts. uuid: names it to CUDA whatever the order. memory_mib: of the whole card.
    position, present: which of the machine's GPUs it is, of how many."""

    index: str
    uuid: str
    name: str
    memory_mib: int
    driver: str
    hardware: Hardware
    position: int = 0
    present: int = 1

    @classmethod
    def host(cls) -> Device:
        """What stands in for a GPU where the conversation alone is tested."""
        return cls("", "", "host", 0, "", HARDWARE["H100"])


def cores() -> int:
    """CPU cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def visible_devices(asked: str = "") -> list[Device]:
    """The GPUs with those indices ("0,1"), or every one that CUDA_VISIBLE_DEVICES leaves visible (by index or UUID).

    Raises: EvaluatorError where there is none; ConfigError for an index that does not exist or a GPU that is not in the
    hardware table.
    """
    present = _listed()
    if not present:
        raise EvaluatorError(
            "no CUDA device: nvidia-smi finds none on this machine. Use evaluator=lab, which estimates runtimes without one"
        )
    shown = os.environ.get("CUDA_VISIBLE_DEVICES")
    entries = _entries(shown) if shown is not None else [card.index for card in present]
    visible = {card.index: card for card in present if any(card.is_named(entry) for entry in entries)}
    if not visible:
        raise EvaluatorError(
            f"no CUDA device: CUDA_VISIBLE_DEVICES={shown!r} names none of this machine's; unset it, or use evaluator=lab"
        )
    wanted = _entries(asked) or list(visible)
    unknown = [entry for entry in wanted if entry not in visible]
    if unknown:
        raise ConfigError(f"there is no GPU {unknown[0]!r}: evaluator.devices takes of {', '.join(visible)}")
    order = [card.index for card in present]
    return [
        replace(_device(visible[entry]), position=order.index(visible[entry].index), present=len(order))
        for entry in wanted
    ]


def _entries(text: str) -> list[str]:
    return [entry.strip() for entry in text.split(",") if entry.strip()]


@dataclass(frozen=True)
class _Card:
    """A line of the driver's tool."""

    index: str
    uuid: str
    name: str
    memory_mib: str
    driver: str
    capability: str

    def is_named(self, entry: str) -> bool:
        """Whether an entry of CUDA_VISIBLE_DEVICES means this card: by index, or by (the beginning of) its UUID."""
        return entry == self.index or (entry.startswith("GPU-") and self.uuid.startswith(entry))


def _listed() -> list[_Card]:
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return []
    command = [tool, f"--query-gpu={_QUERY}", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    except (OSError, subprocess.SubprocessError):
        return []
    lines = [[cell.strip() for cell in line.split(",")] for line in done.stdout.splitlines()]
    return [_Card(*cells) for cells in lines if len(cells) == len(fields(_Card))]


def _device(card: _Card) -> Device:
    about = card.index, card.uuid, card.name, int(float(card.memory_mib)), card.driver
    compact = card.name.replace(" ", "").lower()
    for known in sorted(HARDWARE.values(), key=lambda each: -len(each.name)):
        if known.name.lower() in compact:
            return Device(*about, known)
    # A card that is not in the table is measured like any other; only its roofline is unknown.
    target = f"sm_{card.capability.replace('.', '')}"
    likeness = next((each for each in HARDWARE.values() if each.target == target), None)
    if likeness is None:
        known_names = ", ".join(HARDWARE)
        raise ConfigError(
            f"GPU {card.index} ({card.name}, {target}) is not in the hardware table ({known_names}): add a record to it"
        )
    return Device(*about, replace(likeness, name=card.name, source="like " + likeness.name))
