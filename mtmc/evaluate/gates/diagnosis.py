"""From an exception to a `Diagnosis`: which line of the candidate is to blame, and what stands there."""

from __future__ import annotations

import re
import traceback
from collections.abc import Iterator
from pathlib import Path

from mtmc.outcome import Diagnosis

MESSAGE_LIMIT = 1200
EXCERPT_AROUND = 3
OUTPUT_LINES = 12
FRAMES = 6


def excerpt(source: str, line: int | None, around: int = EXCERPT_AROUND) -> str:
    """Numbered lines of `source` around `line` (1-based), that one marked; empty where there is no such line."""
    lines = source.splitlines()
    if line is None or not 1 <= line <= len(lines):
        return ""
    first, last = max(1, line - around), min(len(lines), line + around)
    width = len(str(last))
    return "\n".join(
        f"{'>' if number == line else ' '} {number:>{width}} | {lines[number - 1]}" for number in range(first, last + 1)
    )


def diagnose(stage: str, kind: str, message: str, source: str, line: int | None = None) -> Diagnosis:
    """A diagnosis with its excerpt cut from `source`; the message is shortened to a paragraph."""
    text = message.strip() or kind
    if len(text) > MESSAGE_LIMIT:
        text = text[:MESSAGE_LIMIT].rstrip() + " ..."
    return Diagnosis(stage, kind, text, line, excerpt(source, line))


def diagnose_exception(stage: str, error: BaseException, path: str, source: str) -> Diagnosis:
    """Diagnosis of an exception that the candidate in the file `path` raised, with the deepest of its own lines."""
    root = _root_cause(error)
    message = f"{root}{_origin(root, path)}{_hint(str(root))}"
    return diagnose(stage, type(root).__name__, message, source, line_in(error, path))


def line_in(error: BaseException, path: str) -> int | None:
    """The deepest line of the file `path` in the traceback of an exception or of its causes, innermost cause first."""
    for link in reversed(list(_chain(error))):
        lines = [frame.lineno for frame in traceback.extract_tb(link.__traceback__) if frame.filename == path]
        if lines:
            return lines[-1]
    return None


def _origin(error: BaseException, path: str) -> str:
    """Where an error of the system, or one without text, came from, if not from the candidate's own lines."""
    frames = traceback.extract_tb(error.__traceback__)
    if not frames or frames[-1].filename == path or (str(error) and not isinstance(error, OSError)):
        return ""
    calls = [f"{Path(frame.filename).name}:{frame.lineno} {frame.name}" for frame in frames[-FRAMES:]]
    return f" (raised in {' < '.join(reversed(calls))})"


def tail(output: str, lines: int = OUTPUT_LINES) -> str:
    """The last lines of a process's output, for a failure that has no line of its own."""
    return "\n".join(output.strip().splitlines()[-lines:])[-MESSAGE_LIMIT:]


def _chain(error: BaseException) -> Iterator[BaseException]:
    seen: set[int] = set()
    link: BaseException | None = error
    while link is not None and id(link) not in seen:
        seen.add(id(link))
        yield link
        link = link.__cause__ or (None if link.__suppress_context__ else link.__context__)


def _root_cause(error: BaseException) -> BaseException:
    """The exception to name: Triton's interpreter wraps the true one, which it keeps as the cause."""
    while type(error).__name__ == "InterpreterError" and error.__cause__ is not None:
        error = error.__cause__
    return error


def _hint(message: str) -> str:
    if re.search(r"not compiled with CUDA|CUDA.*(unavailable|not available)|is_cuda|No CUDA GPUs", message):
        return " (the lab runs candidates on CPU tensors: take the device from an input, as in device=x.device)"
    return ""
