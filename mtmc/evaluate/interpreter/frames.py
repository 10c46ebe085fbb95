"""frames: where in a kernel the interpreter is, behind the calls of what interprets, counts and watches."""

from __future__ import annotations

import sys
from types import FrameType

OURS, INTERPRETER = "mtmc.", "mtmc.evaluate.interpreter."
SKIPPED = (OURS, "triton.", "numpy.")
"""How the names of modules begin whose calls are no kernel's."""


def name_of(frame: FrameType) -> str:
    """The name of the module whose code a frame runs."""
    return str(frame.f_globals.get("__name__", ""))


def kernel_frame() -> FrameType:
    """The innermost frame of a kernel, or of a function that it calls; the outermost of all where there is none."""
    frame = sys._getframe(1)
    while frame.f_back is not None and name_of(frame).startswith(SKIPPED):
        frame = frame.f_back
    return frame
