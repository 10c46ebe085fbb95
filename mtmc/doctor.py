"""Doctor: what this machine can do, and why not.

`examine` looks at the installation, the compiler, the interpreter, the sandbox, the GPUs and the model keys, each a
`Finding`. It tries what can be tried: a small kernel is really compiled for each target and really run under the
interpreter, in the lab's own worker processes, and each protection of the sandbox is really tried from inside. Of a model
key only the name of its variable is looked at, never the value.
"""

from __future__ import annotations

import importlib.util
import os
import platform
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from mtmc.errors import EvaluatorError, MtmcError

if TYPE_CHECKING:
    from mtmc.chat import ModelSettings
    from mtmc.evaluate.pool.worker import Pool

PYTHON_LEAST = (3, 10)

PACKAGES: Mapping[str, tuple[str, bool]] = {
    "torch": ("2.11", True),
    "triton": ("3.6", True),
    "langgraph": ("1.0", True),
    "langgraph-checkpoint-sqlite": ("3.0", True),
    "hydra-core": ("1.3", True),
    "networkx": ("3.4", True),
    "libcst": ("1.1", True),
    "psutil": ("5.9", True),
    "matplotlib": ("3.8", True),
    "rich": ("13", True),
    "litellm": ("1.80", False),
}
"""Package -> least version, and whether the embedded default needs it. The versions are those of pyproject.toml."""

KEYS = (
    "ANTHROPIC_API_KEY",
    "AZURE_API_KEY",
    "DEEPSEEK_API_KEY",
    "GEMINI_API_KEY",
    "GROQ_API_KEY",
    "MISTRAL_API_KEY",
    "OPENAI_API_KEY",
    "OPENROUTER_API_KEY",
    "TOGETHERAI_API_KEY",
    "XAI_API_KEY",
)
"""Variables in which litellm looks for a key. Only whether they are set is asked."""

TOOLS = ("cuobjdump", "nvdisasm")
_JOB_S = 60.0


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at.

    what: its name. ok: whether it is there and works. detail: what was found. fix: how to get it; "" where it is ok.
    needed: whether the embedded default (rewriter and lab, no GPU, no key) cannot run without it.
    """

    what: str
    ok: bool
    detail: str
    fix: str = ""
    needed: bool = False


def examine(asked: ModelSettings | None = None) -> Iterator[Finding]:
    """All findings, each as soon as it is known. Takes a few seconds, most of it to import torch.

    asked: a language model to try, in one short call that costs what it costs; None tries none.
    """
    yield python_version(sys.version_info[:3])
    packages = [package_version(name) for name in PACKAGES]
    yield from packages
    broken = [finding.what for finding in packages if finding.what in ("torch", "triton") and not finding.ok]
    if broken:
        yield Finding("compiler", False, f"not tried without {broken[0]}", f"fix {broken[0]} first", needed=True)
    else:
        yield from tools()
        yield from lab()
    yield from protections()
    yield from gpus()
    yield model_keys(os.environ)
    if asked is not None:
        yield model(asked)


def able(findings: Sequence[Finding]) -> bool:
    """Whether the embedded default can run."""
    return all(finding.ok for finding in findings if finding.needed)


def python_version(version: Sequence[int]) -> Finding:
    """Whether this Python is new enough."""
    least = ".".join(map(str, PYTHON_LEAST))
    ok = tuple(version[:2]) >= PYTHON_LEAST
    text = ".".join(map(str, version))
    return Finding("python", ok, f"{text} on {platform.machine()}", "" if ok else f"use Python {least} or newer", True)


def package_version(name: str) -> Finding:
    """Whether a package is installed and new enough; it is not imported."""
    least, needed = PACKAGES[name]
    try:
        version = metadata.version(name)
    except metadata.PackageNotFoundError:
        return Finding(name, False, "not installed", f"pip install '{name}>={least}'", needed)
    ok = _number(version) >= _number(least)
    return Finding(name, ok, version, "" if ok else f"pip install --upgrade '{name}>={least}'", needed)


def tools() -> Iterator[Finding]:
    """The tools of the triton wheel that read registers, spills and instructions from a compiled kernel."""
    spec = importlib.util.find_spec("triton")
    folders = [Path(folder) for folder in (spec.submodule_search_locations or [])] if spec is not None else []
    for name in TOOLS:
        path = next((p for f in folders if (p := f / "backends/nvidia/bin" / name).is_file()), None)
        works = path is not None and _runs([str(path), "--version"])
        detail = "works" if works else "not in the triton wheel" if path is None else "does not run"
        yield Finding(name, works, detail, "" if works else "install triton from PyPI (3.6 to 3.9)", True)


def lab() -> Iterator[Finding]:
    """A small kernel, really compiled for every target and really run under the interpreter, in worker processes."""
    from mtmc.evaluate.check.check import warm as warm_check
    from mtmc.evaluate.compiling.build import warm as warm_build
    from mtmc.evaluate.compiling.target import TARGETS
    from mtmc.evaluate.pool.settings import PoolSettings
    from mtmc.evaluate.pool.worker import Pool
    from mtmc.hardware import for_target

    default = "sm_90"
    warm = {"target_name": default, "multiprocessors": for_target(default).sms}
    build = Pool(PoolSettings(warm_build, warm, workers=2))
    check = Pool(PoolSettings(warm_check, warm, {"TRITON_INTERPRET": "1"}))
    try:
        check.start()  # both import torch at the same time
        for name in TARGETS:
            arguments = {"target_name": name, "multiprocessors": for_target(name).sms}
            yield _tried(build, compile_for, arguments, f"compile for {name}", needed=name == default)
        yield _tried(check, interpret, {}, "triton interpreter", needed=True)
    finally:
        build.close()
        check.close()


def protections() -> Iterator[Finding]:
    """What keeps a candidate inside, each really tried. Nothing is needed: sandbox=auto uses what there is."""
    from mtmc.evaluate.sandbox.protection import probe

    try:
        for each in probe():
            yield Finding(f"sandbox {each.name}", each.active, each.detail, each.fix)
    except MtmcError as error:
        yield Finding("sandbox", False, _last_line(str(error)), "the detail says what failed")


def compile_for(target_name: str, multiprocessors: int) -> str:
    """In a build worker: compile a small kernel for a target, and say what came out.

    Raises: what the compiler raises.
    """
    import torch
    import triton

    from mtmc.evaluate.compiling import warmup
    from mtmc.evaluate.compiling.target import install_driver, target

    os.environ["TRITON_CACHE_DIR"] = os.getcwd()  # the job's own folder: nothing is found there, all is compiled
    install_driver(target(target_name), multiprocessors)
    # A new JIT function of the same kernel: the old one remembers what it was compiled to for another target.
    kernel = triton.jit(warmup._scaled_product.fn)
    compiled = kernel.warmup(torch.float32, torch.float32, torch.float32, 32, BLOCK=32, grid=(1,))
    kind = next(name for name in ("cubin", "hsaco") if name in compiled.asm)
    return f"a small kernel compiles to a {kind} of {len(compiled.asm[kind]):,} bytes"


def interpret() -> str:
    """In a check worker: run a small kernel under the interpreter and look at what it computes.

    Raises: EvaluatorError for a wrong result, and what the interpreter raises.
    """
    import torch

    from mtmc.evaluate.compiling import warmup

    ones, out = torch.ones(32, 32), torch.empty(32, 32)
    warmup._scaled_product[(1,)](ones, ones, out, 32, BLOCK=32)
    if not torch.allclose(out, torch.exp(ones @ ones - 1.0)):
        raise EvaluatorError("the interpreter computes a wrong result for a small kernel")
    return "a small kernel runs on the CPU and is right"


def gpus() -> Iterator[Finding]:
    """The GPUs that torch sees, or why it sees none. Without one runtimes are estimates."""
    estimates = "nothing, if estimated runtimes will do (evaluator=lab); else a GPU and a torch that is built for it"
    if importlib.util.find_spec("torch") is None:
        yield Finding("gpu", False, "not looked for without torch", estimates)
        return
    import torch

    if not torch.cuda.is_available():
        built = torch.version.cuda or torch.version.hip
        reason = f"torch is built for {built} and sees no device" if built else "torch is built for the CPU only"
        yield Finding("gpu", False, reason, estimates)
        return
    for index in range(torch.cuda.device_count()):
        properties = torch.cuda.get_device_properties(index)
        memory = properties.total_memory / 2**30
        yield Finding(f"gpu {index}", True, f"{properties.name}, {memory:.0f} GiB")
    if torch.version.cuda:
        found = importlib.util.find_spec("cuda") is not None and importlib.util.find_spec("cuda.bindings") is not None
        fix = "" if found else "pip install 'cuda-bindings>=12.9' for evaluator=gpu"
        yield Finding("cuda-bindings", found, "there" if found else "not installed", fix)


def model_keys(environment: Mapping[str, str]) -> Finding:
    """Which model keys are set, by the names of their variables."""
    names = [name for name in KEYS if environment.get(name)]
    if names:
        return Finding("model keys", True, ", ".join(names))
    fix = "nothing, if rules will do (coder=rewriter); for a model, set its key, e.g. OPENAI_API_KEY"
    return Finding("model keys", False, "none set", fix)


def model(settings: ModelSettings) -> Finding:
    """Whether a language model answers, tried end to end. A search that asks it cannot run where it does not."""
    from mtmc.agents.llm import check_model

    what = f"model {settings.name}"
    if importlib.util.find_spec("litellm") is None:
        return Finding(what, False, "not tried without litellm", "pip install litellm", True)
    try:
        return Finding(what, True, check_model(settings), "", True)
    except MtmcError as error:
        return Finding(what, False, str(error), "the detail says what to set", True)


def _tried(
    pool: Pool, function: Callable[..., str], arguments: Mapping[str, object], what: str, needed: bool
) -> Finding:
    fix = "install torch and triton from PyPI again; the detail says what failed"
    try:
        result = pool.run(function, arguments, _JOB_S)
    except MtmcError as error:
        return Finding(what, False, _last_line(str(error)), fix, needed)
    if result.status != "ok":
        return Finding(what, False, f"{result.status}: {_last_line(result.output)}", fix, needed)
    return Finding(what, True, f"{result.value} ({result.seconds:.1f} s)", "", needed)


def _runs(command: Sequence[str]) -> bool:
    try:
        return subprocess.run(command, capture_output=True, timeout=_JOB_S, check=False).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


def _last_line(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[-1].strip() if lines else "no word of why"


def _number(version: str) -> tuple[int, ...]:
    """The leading numbers of a version: "2.13.0+cpu" -> (2, 13, 0)."""
    numbers = []
    for part in version.split("+")[0].split("."):
        if not part.isdigit():
            break
        numbers.append(int(part))
    return tuple(numbers)
