"""Kernels in CUDA C++: compiled by NVRTC in the trusted builder, kept in the cache folder, found there by who launches them.

The builder compiles what stands in a version's text before any of the version runs. A candidate's process has no compiler:
`install` lets its `RawKernel` load what the builder left, by the same class and launcher that a file that is handed out has.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from mtmc.cuda import RawKernel
from mtmc.errors import EvaluatorError
from mtmc.evaluate.audit.cuda_text import CudaText
from mtmc.evaluate.audit.diagnosis import Failure, diagnose
from mtmc.evaluate.compiling import nvrtc
from mtmc.evaluate.compiling.cubin import read_cubin, refusal
from mtmc.evaluate.compiling.cuobjdump import disassembled, usage_of
from mtmc.evaluate.compiling.launched import Launch, described
from mtmc.evaluate.compiling.prebuilt import NotPrebuilt
from mtmc.evaluate.compiling.target import Target

FOLDER = "mtmc-cuda"
"""Of the cache."""
REGISTERS, WARP = 65_536, 32
MOST_THREADS = (1024, 1024, 64)
"""Of each axis of a block (CUDA C++ programming guide, technical specifications per compute capability)."""
_ERROR = re.compile(r"^kernel\.cu\((\d+)\): (?:catastrophic )?error: (.*)$", re.MULTILINE)


@dataclass(frozen=True)
class CudaBinary:
    """One compiled kernel. path: of its cubin. lowered: its name there. registers: a thread's. shared: static bytes."""

    name: str
    path: str
    lowered: str
    registers: int
    shared: int


def architecture(target: Target) -> str:
    """What NVRTC compiles for: from sm_90 on with the instructions that are this chip's own. Raises: EvaluatorError."""
    if target.backend != "cuda":
        raise EvaluatorError(f"CUDA C++ does not compile for {target.name}; targets are sm_*")
    return target.name + "a" * (int(target.arch) >= 90)


def compile_texts(
    texts: Sequence[CudaText], target: Target, source: str, cache: Path
) -> dict[CudaText, CudaBinary] | Failure:
    """Compile the kernels of a version, in the trusted builder.

    Returns: the binary of each, or a failure: "build_error" where NVRTC refuses a text, "rejected" for machine code
    that does what no kernel needs.
    Raises: EvaluatorError where there is no NVRTC, or the target is no GPU of NVIDIA.
    """
    found: dict[CudaText, CudaBinary] = {}
    for text in texts:
        made = _compiled(text, target, source, cache)
        if isinstance(made, Failure):
            return made
        found[text] = made
    return found


def _compiled(text: CudaText, target: Target, source: str, cache: Path) -> CudaBinary | Failure:
    chip = architecture(target)
    place = _place(cache, text.key, chip)
    if place.with_suffix(".json").exists():
        return CudaBinary(**json.loads(place.with_suffix(".json").read_text()))
    try:
        RawKernel.raw_parameters(text.code, text.name)
        binary, lowered = nvrtc.compiled(*text.key, chip)
    except ValueError as error:
        return Failure("build_error", diagnose("build", "ValueError", str(error), source, text.line))
    except OSError as error:
        raise EvaluatorError(f"{error}, or pip install 'mtmc[cuda]'") from error
    except RuntimeError as error:
        return Failure("build_error", _said(str(error), text, source))
    place.parent.mkdir(parents=True, exist_ok=True)
    path = place.with_suffix(".cubin")
    _write(path, binary)
    why = refusal(read_cubin(binary), disassembled(path), text.code)
    if why is not None:
        message = f"{why}: no kernel needs it, so the version is refused without being run"
        return Failure("rejected", diagnose("build", "Forbidden", message, source, text.line))
    registers, _, shared = usage_of(path, lowered)
    made = CudaBinary(text.name, str(path), lowered, registers, shared)
    _write(place.with_suffix(".json"), json.dumps(asdict(made)).encode())
    return made


def _place(cache: Path, key: tuple[str, str, tuple[str, ...]], chip: str) -> Path:
    digest = hashlib.sha256(json.dumps([*key, chip]).encode()).hexdigest()
    return cache / FOLDER / digest


def _write(path: Path, content: bytes) -> None:
    """Whole or not at all: several builders may compile the same."""
    beside = path.with_suffix(f".{os.getpid()}")
    beside.write_bytes(content)
    beside.replace(path)


def _said(log: str, text: CudaText, source: str) -> Any:
    """A diagnosis of what NVRTC says, at its first error."""
    errors = _ERROR.findall(log)
    if not errors:
        return diagnose("build", "NvrtcError", log, source, text.line)
    lines = [int(line) for line, _ in errors]
    words = "; ".join(f"line {text.line_of(line)}: {what}" for line, (_, what) in zip(lines[:4], errors, strict=False))
    return diagnose("build", "NvrtcError", f"kernel {text.name}: {words}", source, text.line_of(lines[0]))


def launched(
    kernel: RawKernel, grid: Any, block: Any, args: Any, shared: int, binaries: Mapping[Any, CudaBinary], target: Target
) -> tuple[Launch, Any]:
    """One launch as plain data, and its kernel as `Trace` takes those of Triton.

    Raises: what the launch itself would raise; OutOfResources for a block that does not fit a multiprocessor.
    """
    from triton.runtime.errors import OutOfResources

    binary = binaries.get((kernel.raw_code, kernel.raw_name, kernel.raw_options))
    if binary is None:
        raise NotPrebuilt(kernel.raw_name, "a text that does not stand in the file")
    kernel.raw_taken(args)
    sizes, threads = RawKernel.raw_sizes(grid, "grid"), RawKernel.raw_sizes(block, "block")
    for axis, (count, most) in enumerate(zip(threads, MOST_THREADS, strict=True)):
        if count > most:
            raise OutOfResources(count, most, f"threads on axis {axis} of a block")
    count = threads[0] * threads[1] * threads[2]
    warps = -(-count // WARP)
    if count > target.max_threads:
        raise OutOfResources(count, target.max_threads, "threads")
    needed = -(-max(1, binary.registers) // 8) * 8 * warps * WARP
    if needed > REGISTERS:
        raise OutOfResources(needed, REGISTERS, f"registers ({binary.registers} for each of {count} threads)")
    names = [f"{name}_{at}" for at, (_, _, name) in enumerate(kernel.raw_declared)]
    arguments = {name: described(arg) for name, arg in zip(names, args, strict=True)}
    launch = Launch(kernel.raw_name, 0, sizes, arguments, {"block": str(threads), "shared_mem": int(shared)})
    metadata = SimpleNamespace(
        name=kernel.raw_name, shared=binary.shared + int(shared), num_warps=warps, num_stages=1, num_ctas=1,
        function=binary.lowered,
    )  # fmt: skip
    digest = f"{Path(binary.path).stem}-{warps}-{shared}"
    return launch, SimpleNamespace(hash=digest, metadata=metadata, metadata_group={"kernel.cubin": binary.path})


def install(cache: Path, target: Target, refused: list[str]) -> None:
    """Let `RawKernel` in this process load what the builder left, and compile nothing. There is a CUDA context already.

    refused: gets the message of every kernel that is not there, also of those that a candidate swallows.
    """
    chip = architecture(target)
    original = RawKernel.raw_function  # bound before any candidate runs
    RawKernel.raw_driver()

    def load(self: RawKernel, index: int) -> Any:
        place = _place(cache, (self.raw_code, self.raw_name, self.raw_options), chip)
        try:
            facts = json.loads(place.with_suffix(".json").read_text())
            binary = place.with_suffix(".cubin").read_bytes()
        except OSError:
            error = NotPrebuilt(self.raw_name, "a text that the build did not see")
            refused.append(str(error))
            raise error from None
        return original(binary, facts["lowered"])

    RawKernel.raw_load = load  # type: ignore[method-assign]
