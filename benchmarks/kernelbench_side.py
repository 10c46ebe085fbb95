"""KernelBench's own evaluation in a process of its own, from a checkout that is not installed.

The process imports KernelBench once, warms the GPU up and then evaluates one pair after another, so that what is counted
is `eval_kernel_against_ref` alone. Packages that KernelBench imports for other purposes than evaluation (its clients of
language models) are replaced by empty ones; of those that it uses in passing, the ones that are absent are.
"""

from __future__ import annotations

import contextlib
import copy
import gc
import importlib.util
import json
import os
import select
import subprocess
import sys
import tempfile
import time
import types
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

UNUSED = {"dotenv": ("load_dotenv",), "openai": ("OpenAI",), "litellm": ("completion",)}
"""Imported by KernelBench, never used by its evaluation: replaced, whether there or not."""
IN_PASSING = {"tqdm": ("tqdm",), "requests": (), "pydantic": ("BaseModel",)}
"""Replaced where absent."""
START_S = 180.0


@dataclass(frozen=True)
class Verdict:
    """What KernelBench found of a pair. seconds: of wall time. runtime_ms: its mean. note: what went wrong, or ""."""

    seconds: float
    compiled: bool = False
    correct: bool = False
    runtime_ms: float | None = None
    note: str = ""


class KernelBench:
    """The process, as seen from outside. checkout: folder that holds src/kernelbench. gpu: that it sees alone, "" for the
    first one. cores: that it may use, none for all."""

    def __init__(
        self, checkout: Path, command: list[str] | None = None, gpu: str = "", cores: Sequence[int] = ()
    ) -> None:
        self._gpu, self._cores = gpu, cores
        self._command = command or [sys.executable, str(Path(__file__).resolve()), str(checkout.resolve())]
        self._cache = tempfile.TemporaryDirectory(prefix="mtmc-kernelbench-")
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> KernelBench:
        return self

    def __exit__(self, *_: object) -> None:
        self._end()
        self._cache.cleanup()

    def evaluate(self, reference: str, candidate: str, limit_s: float) -> Verdict:
        """What `eval_kernel_against_ref` finds; a verdict with a note where it takes longer than `limit_s` or dies."""
        if self._process is None:
            self._start()
        started = time.monotonic()
        assert self._process is not None and self._process.stdin is not None
        message = json.dumps({"reference": reference, "candidate": candidate})
        self._process.stdin.write(message.encode() + b"\n")
        self._process.stdin.flush()
        line = self._line(limit_s)
        if line:
            return Verdict(**json.loads(line))
        note = "stopped at the time limit" if line is None else f"its process ended with status {self._process.wait()}"
        self._end()
        return Verdict(time.monotonic() - started, note=note)

    def _start(self) -> None:
        environment = {**os.environ, "TRITON_CACHE_DIR": self._cache.name}
        if self._gpu:
            environment["CUDA_VISIBLE_DEVICES"] = self._gpu
        self._process = subprocess.Popen(
            self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0, env=environment
        )
        if self._cores:
            os.sched_setaffinity(self._process.pid, self._cores)  # before it has started any thread
        ready = self._line(START_S)
        if not ready:
            self._end()
            raise RuntimeError("KernelBench did not start: its own message is above")
        self.replaced: list[str] = json.loads(ready)["replaced"]

    def _line(self, limit_s: float) -> bytes | None:
        """The next line of its answer; b"" where it ends, None where it says nothing in time."""
        assert self._process is not None and self._process.stdout is not None
        end, line = time.monotonic() + limit_s, b""
        while not line.endswith(b"\n"):
            ready, _, _ = select.select([self._process.stdout], [], [], max(0.0, end - time.monotonic()))
            if not ready:
                return None
            piece = os.read(self._process.stdout.fileno(), 1 << 16)
            if not piece:
                return b""
            line += piece
        return line

    def _end(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None


def replace_packages() -> list[str]:
    """Put empty packages where `UNUSED` and `IN_PASSING` say so; their names."""
    absent = {name: parts for name, parts in IN_PASSING.items() if importlib.util.find_spec(name) is None}
    for name, parts in {**UNUSED, **absent}.items():
        module = types.ModuleType(name)
        for part in parts:
            setattr(module, part, _Record if part == "BaseModel" else _nothing)
        sys.modules[name] = module
    return sorted({**UNUSED, **absent})


def _nothing(*_: object, **__: object) -> None:
    """Stands in for a function that an evaluation never needs the result of."""


class _Record:
    """Stands in for pydantic's BaseModel: attributes from keywords, else from the class."""

    def __init__(self, **values: object) -> None:
        for name in type(self).__annotations__:
            setattr(self, name, values[name] if name in values else copy.copy(getattr(type(self), name)))


def verdict_of(result: Any, seconds: float) -> Verdict:
    """From KernelBench's result, None where it gave up. Its `runtime` is in ms, and -1 where it has none."""
    if result is None:
        return Verdict(seconds, note="no result")
    runtime = float(result.runtime) if result.runtime > 0 else None
    noted = ("compilation_error", "runtime_error", "correctness_issue", "error_during_performance", "excessive_speedup")
    note = "; ".join(f"{name}: {result.metadata[name]}"[:200] for name in noted if name in result.metadata)
    return Verdict(seconds, bool(result.compiled), bool(result.correctness), runtime, note)


def evaluate_pair(evaluation: Any, pair: Mapping[str, str]) -> Verdict:
    """One call of `eval_kernel_against_ref`, timed. evaluation: its module."""
    import torch

    torch.cuda.synchronize()
    started = time.perf_counter()
    try:
        result = evaluation.eval_kernel_against_ref(
            pair["reference"],
            pair["candidate"],
            num_correct_trials=5,
            num_perf_trials=100,
            measure_performance=True,
            backend="triton",
            device=torch.device("cuda:0"),
        )
    except Exception as error:
        return Verdict(time.perf_counter() - started, note=f"{type(error).__name__}: {error}"[:300])
    return verdict_of(result, time.perf_counter() - started)


def warm_up(folder: Path) -> None:
    """Context, cuBLAS, a random generator, and one small Triton kernel, so that no pair pays for them."""
    import torch

    path = folder / "warm_kernel.py"
    path.write_text(_WARM, encoding="utf-8")
    spec = importlib.util.spec_from_file_location("warm_kernel", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    x = torch.rand(64, 64, device="cuda")
    torch.matmul(x, x)
    module.run(x)
    torch.cuda.synchronize()


_WARM = """\
import torch
import triton
import triton.language as tl


@triton.jit
def copy(x, out, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at))


def run(x):
    copy[(1,)](x, torch.empty_like(x), BLOCK=64)
"""


def main() -> None:
    """Serve pairs: one JSON line each in on standard input, one verdict out. All that is printed goes to stderr."""
    answers = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)
    replaced = replace_packages()
    sys.path.insert(0, str(Path(sys.argv[1]) / "src"))
    import torch
    from kernelbench import eval as evaluation

    with tempfile.TemporaryDirectory() as folder:
        warm_up(Path(folder))
        answers.write(json.dumps({"replaced": replaced}).encode() + b"\n")
        for line in sys.stdin.buffer:
            with open(os.devnull, "w") as quiet, contextlib.redirect_stdout(quiet):
                verdict = evaluate_pair(evaluation, json.loads(line))
            gc.collect()
            torch.cuda.empty_cache()
            answers.write(json.dumps(asdict(verdict)).encode() + b"\n")


if __name__ == "__main__":
    main()
