"""Whether an interpreted program waits for another one: it comes by one place twice and nothing of it has changed.

A program that spins until another one has raised a flag does the same again and again, and goes on for no other reason than
what others do. One that only dawdles (looks at an address a thousand times, and then reads what it should have waited for)
counts its rounds somewhere: in a variable, in a loop's range, in memory. However long that takes, it comes to its end alone.
So nobody need say how often a place must be looked at before a look is a wait. What a program is about to do follows from
where it stands in its functions, from their variables, and from memory.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from types import FrameType
from typing import Any

import numpy as np

from mtmc.evaluate.interpreter.frames import INTERPRETER, OURS, SKIPPED, name_of
from mtmc.evaluate.interpreter.loops import steps

FIRST = 4
"""Looks at memory after which a state is kept; the next ones are kept after twice as many each."""


class Standstill:
    """Of one program, which looks at memory and changes it. It changes nothing as long as it waits."""

    def __init__(self) -> None:
        self._looks = 0
        self._kept: tuple[Any, Any] | None = None

    def again(self) -> bool:
        """Of the program itself, before each look at memory: whether it has stood here before just like this."""
        self._looks += 1
        frames = list(_frames())
        place = steps(), tuple((frame.f_code, frame.f_lasti) for frame in frames)
        if self._kept is not None and self._kept[0] == place and self._kept[1] == _variables(frames):
            return True
        if self._looks >= FIRST and self._looks & (self._looks - 1) == 0:
            self._kept = place, _variables(frames)
        return False

    def changed(self) -> None:
        """Of the program itself: it has changed something in memory, and may count there."""
        self._looks, self._kept = 0, None

    def woken(self) -> None:
        """Others have changed something: it will soon be known whether that was what it waits for."""
        self._looks = 0


def _frames() -> Iterator[FrameType]:
    """Those of the kernel that runs and of the functions that it is in, the innermost first."""
    frame: FrameType | None = sys._getframe(2)
    inside = False
    while frame is not None:
        name = name_of(frame)
        if inside and name.startswith(OURS) and not name.startswith(INTERPRETER):
            return  # behind it may be another program, which waits for what this one computes
        if not name.startswith(SKIPPED):
            inside = True
            yield frame
        frame = frame.f_back


def _variables(frames: list[FrameType]) -> list[tuple[str, Any]]:
    return [(name, _said(value)) for frame in frames for name, value in frame.f_locals.items()]


def _said(value: Any) -> Any:
    """What a variable holds, as something that can be compared."""
    value = getattr(value, "handle", value)  # of a tensor
    data = value if isinstance(value, np.ndarray) else getattr(value, "data", value)
    if isinstance(data, np.ndarray):
        return data.shape, data.dtype.str, data.tobytes()
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, tuple | list):
        return [_said(each) for each in value]
    return _Itself(value)


@dataclass(frozen=True, eq=False)
class _Itself:
    """An object that is the same as itself alone. It is kept, so that no other one gets its identity."""

    value: Any

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Itself) and self.value is other.value

    __hash__ = None  # type: ignore[assignment]
