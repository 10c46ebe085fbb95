"""From an exception to a `Diagnosis`: which line of the candidate is to blame, and what stands there."""

from __future__ import annotations

import ast
import re
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from mtmc.outcome import Diagnosis, Status

MESSAGE_LIMIT = 1200
EXCERPT_AROUND = 3
OUTPUT_LINES = 12
FRAMES = 6
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]{6,}")
_PATH = re.compile(r"(?<![\w./:-])/(?:[\w.+-]+/)+([\w.+-]+)")
_REPRO = re.compile(r"\n+Repro command:.*\Z", re.DOTALL)
_MLIR = re.compile(
    r"^(?P<place>(?:loc\(.*\)|<unknown>:0|[^\s\":()]+:\d+:\d+(?: to \S+)?): |)error: (?P<text>.+)$", re.MULTILINE
)
"""An error as MLIR prints it, with the place that the operation comes from; none where kernels are built without lines."""
_PLACE = re.compile(r"(?P<file>[^\s\":()]+)\"?:(?P<line>\d+):\d+")
"""A line of a file in such a place, which may have a name and be called from others: `loc("x"("file":1:2))`."""
_RANDOM = re.compile(r"\btmp\w{8}\b")


@dataclass(frozen=True)
class Failure:
    """Why a version does not pass a gate."""

    status: Status
    diagnosis: Diagnosis


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
    """A diagnosis with its excerpt cut from `source`; the message is shortened to a paragraph, the same in every run."""
    text = _settled(message).strip() or kind
    if len(text) > MESSAGE_LIMIT:
        text = text[:MESSAGE_LIMIT].rstrip() + " ..."
    return Diagnosis(stage, kind, text, line, excerpt(source, line))


def diagnose_exception(stage: str, error: BaseException, path: str, source: str) -> Diagnosis:
    """Diagnosis of an exception that the candidate in the file `path` raised, with the deepest of its own lines."""
    root = _root_cause(error)
    message = f"{root}{_origin(root, path)}{_hint(str(root))}"
    line = _line_in_kernel(error, path, source) if path else None
    return diagnose(stage, type(root).__name__, message, source, line or line_in(error, path))


def line_in(error: BaseException, path: str) -> int | None:
    """The deepest line of the file `path` in the traceback of an exception or of its causes, innermost cause first."""
    for link in reversed(list(_chain(error))):
        lines = [frame.lineno for frame in traceback.extract_tb(link.__traceback__) if frame.filename == path]
        if lines:
            return lines[-1]
    return None


def _line_in_kernel(error: BaseException, path: str, source: str) -> int | None:
    """The kernel's line where Triton gave up while it read or assembled a kernel: its traceback has only the launch.

    Triton reads a kernel's text by a visitor, whose frames hold the node, with lines that count from the kernel's `def`.
    """
    kernel, within, assembly = "", None, ""
    for frame, _ in traceback.walk_tb(error.__traceback__):
        module, names = str(frame.f_globals.get("__name__")), frame.f_locals
        if module == "triton.runtime.jit":
            text, node = getattr(names.get("self"), "src", None), names.get("node")
            kernel = text if isinstance(text, str) else kernel
            within = getattr(node, "lineno", within) if isinstance(node, ast.AST) else within
        elif module.startswith("triton.backends.") and isinstance(names.get("src"), str):
            assembly = names["src"]
    if assembly:
        return _line_assembled(str(error), assembly, path)
    start = source.find(kernel) if kernel else -1
    return source.count("\n", 0, start) + within if start >= 0 and within is not None else None


def _line_assembled(message: str, assembly: str, path: str) -> int | None:
    """The line of the file `path` that the first line of PTX comes from of which an assembler's message speaks."""
    found = re.search(r"\.ptx, line (\d+)", message)
    files = [n for n, name in re.findall(r'\.file\s+(\d+)\s+"([^"]+)"', assembly) if Path(name).name == Path(path).name]
    before = "\n".join(assembly.splitlines()[: int(found[1])]) if found else ""
    lines = [line for file, line in re.findall(r"^\s*\.loc\s+(\d+)\s+(\d+)", before, re.MULTILINE) if file in files]
    return int(lines[-1]) if lines else None


def _settled(message: str) -> str:
    """A message without what differs from run to run and machine to machine: addresses, folders, made-up names."""
    text = _REPRO.sub("", _ADDRESS.sub("", message))
    return _RANDOM.sub("kernel", _PATH.sub(r"\1", text))


def _origin(error: BaseException, path: str) -> str:
    """Where an error of the system, or one without text, came from, if not from the candidate's own lines."""
    frames = traceback.extract_tb(error.__traceback__)
    if not frames or frames[-1].filename == path or (str(error) and not isinstance(error, OSError)):
        return ""
    calls = [f"{Path(frame.filename).name}:{frame.lineno} {frame.name}" for frame in frames[-FRAMES:]]
    return f" (raised in {' < '.join(reversed(calls))})"


def with_compiler_text(diagnosis: Diagnosis, output: str, source: str) -> Diagnosis:
    """A failed build with what MLIR has printed of it: Triton's exception says no more than that a pass has failed.

    output: the end of what the process has written. The first error in the candidate's own file gives the line: that of the
    exception is where the kernel is launched.
    """
    found = list(_MLIR.finditer(output))
    places = [place for each in found for place in _PLACE.finditer(each["place"])]
    own = [int(place["line"]) for place in places if Path(place["file"]).name.startswith("mtmc_candidate")]
    new = [text for text in dict.fromkeys(each["text"].strip() for each in found) if text not in diagnosis.message]
    if diagnosis.stage != "build" or not new:
        return diagnosis
    message = "; ".join([diagnosis.message, *new])
    return diagnose("build", diagnosis.kind, message, source, next(iter(own), diagnosis.line))


def tail(output: str, lines: int = OUTPUT_LINES) -> str:
    """The last lines of a process's output, for a failure that has no line of its own."""
    return "\n".join(output.strip().splitlines()[-lines:])[-MESSAGE_LIMIT:]


def last_words(output: str) -> str:
    """What a process that crashed wrote at last: where Python was, by its innermost calls, as faulthandler tells it; the end
    of its output where that tells nothing."""
    _, fatal, stack = output.rpartition("Fatal Python error: ")
    told = stack.partition("\nExtension modules:")[0].strip().splitlines()
    return "\n".join([fatal + told[0], *told[1:OUTPUT_LINES]])[:MESSAGE_LIMIT] if fatal and told else tail(output)


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
