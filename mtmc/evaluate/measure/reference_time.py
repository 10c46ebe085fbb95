"""The reference's own time, measured between a candidate's timed calls: same moment, same device, cold cache."""

from __future__ import annotations

from typing import Any

import torch

from mtmc.evaluate.gates.reference import Truth
from mtmc.evaluate.measure.fabric import Fabric
from mtmc.evaluate.measure.flags import OWN_GATE, Flags

MOST = 15
"""Reference calls timed for one candidate at most."""


class ReferenceClock:
    """Times a reference a call at a time. Its work is enqueued behind the oracle's own gate, so that its host code does
    not count; a reference that waits for the device, or changes its inputs, has no time here."""

    def __init__(self, fabric: Fabric, flags: Flags, model: Any) -> None:
        self._fabric, self._flags, self._model = fabric, flags, model
        self._possible: bool | None = None
        self.times: list[float] = []

    def tick(self, truth: Truth) -> None:
        """One more call on a truth's inputs, if there are not enough."""
        if self._possible is None:
            self._possible = not truth.changed_inputs and not self._waits(truth)
        if not self._possible or len(self.times) >= MOST:
            return
        words = self._flags.words
        serial = int(words[OWN_GATE]) + 1
        self._fabric.flush()
        if self._fabric.asynchronous:
            self._fabric.wait(OWN_GATE, serial)
        first = self._fabric.mark()
        self._model(*truth.inputs)
        last = self._fabric.mark()
        words[OWN_GATE] = serial
        self._fabric.synchronize()
        self.times.append(self._fabric.elapsed_ms(first, last))

    def _waits(self, truth: Truth) -> bool:
        """Whether the reference's host code waits for the device, and so could never return behind a gate."""
        if not self._fabric.asynchronous:
            return False
        before = torch.cuda.get_sync_debug_mode()
        torch.cuda.set_sync_debug_mode("error")
        try:
            self._model(*truth.inputs)
        except RuntimeError:
            return True
        finally:
            torch.cuda.set_sync_debug_mode(before)
        return False
