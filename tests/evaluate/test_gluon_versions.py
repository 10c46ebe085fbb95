"""Kernels in Gluon without a GPU: what the audit reads, what is compiled for which chip, what the lab says."""

from __future__ import annotations

import contextlib
import functools
import importlib
import types

import pytest

from mtmc.evaluate.audit.audit import audit
from mtmc.evaluate.audit.gluon_names import LANGUAGE, NAMES
from mtmc.evaluate.audit.gluon_text import paths_of
from mtmc.evaluate.audit.rules import is_module, refused_path
from mtmc.evaluate.compiling.build import build, warm, wrong_target
from mtmc.evaluate.compiling.cubin import clock_in
from mtmc.evaluate.compiling.prebuilt import ENVIRONMENT
from mtmc.evaluate.compiling.target import target
from mtmc.evaluate.failures import taken, without_place
from mtmc.evaluate.lab import LabEvaluator
from mtmc.evaluate.pool.settings import PoolSettings
from mtmc.evaluate.pool.worker import Pool
from mtmc.protocols import EvaluationRequest
from mtmc.task import Task, load_task
from tests.acceptance.documents import snippets
from tests.exploits.catalogue import controls, exploits, task

FILE = """import torch
import triton
import triton.language as tl
from torch import nn
from triton.experimental import gluon
from triton.experimental.gluon import language as gl


@triton.jit
def half_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + at, tl.load(x_ptr + at, mask=at < n) * 0.5, mask=at < n)


@gluon.jit
def times(x, by):
    return x * by


@gluon.jit
def scale_kernel(x_ptr, y_ptr, n, BLOCK: gl.constexpr, LAYOUT: gl.constexpr):
    at = gl.program_id(0) * BLOCK + gl.arange(0, BLOCK, LAYOUT)
    x = gl.load(x_ptr + at, mask=at < n)
    gl.store(y_ptr + at, times(x, 4.0), mask=at < n)


class ModelNew(nn.Module):
    def forward(self, x):
        y, z = torch.empty_like(x), torch.empty_like(x)
        grid = (triton.cdiv(x.numel(), 1024),)
        scale_kernel[grid](x, y, x.numel(), 1024, gl.BlockedLayout([4], [32], [4], [0]), num_warps=4)
        half_kernel[grid](y, z, x.numel(), 1024)
        return z
"""
TASK = """import torch
from torch import nn

n = 1000


class Model(nn.Module):
    def forward(self, x):
        return x * 2.0


def get_inputs():
    return [torch.randn(n)]


def get_init_inputs():
    return []
"""
RICH = """import torch
import triton
from torch import nn
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.extra import libdevice
import triton.experimental.gluon.language.nvidia.hopper as hop


@gluon.constexpr_function
def layout_of(warps):
    return gl.BlockedLayout([4], [32], [warps], [0])


@gluon.aggregate
class Span:
    at: gl.tensor
    n: gl.tensor

    @gluon.constexpr_function
    def __init__(self, at, n):
        self.at = at
        self.n = n

    @gluon.jit
    def mask(self):
        return self.at < self.n


@triton.autotune([triton.Config({"BLOCK": 512}, num_warps=4), triton.Config({"BLOCK": 1024}, num_warps=8)], key=["n"])
@gluon.jit(do_not_specialize=["n"])
def scale_kernel(x_ptr, y_ptr, n, BLOCK: gl.constexpr):
    L: gl.constexpr = layout_of(gl.num_warps())
    bits: gl.constexpr = gl.float32.primitive_bitwidth
    gl.static_assert(bits == 32)
    at = gl.program_id(0) * BLOCK + gl.arange(0, BLOCK, L)
    span = Span(at, n)
    x = gl.load(x_ptr + at, mask=span.mask())
    y = libdevice.exp2(libdevice.log2(gl.abs(x) + 1.0)) - 1.0
    gl.store(y_ptr + at, gl.where(x < 0, -2.0 * y, 2.0 * y), mask=span.mask())


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        scale_kernel[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, y, x.numel())
        return y
"""
"""A class of compile-time structure, functions of constants, libdevice, and a tuner."""
HOPPER = "from triton.experimental.gluon.language.nvidia.hopper import fence_async_shared, warpgroup_mma\n"


@pytest.fixture(scope="module")
def double(tmp_path_factory: pytest.TempPathFactory) -> Task:
    path = tmp_path_factory.mktemp("task") / "double.py"
    path.write_text(TASK)
    return load_task(path)


def test_honest_files_pass_the_audit() -> None:
    assert audit(FILE) is None
    honest = [control for control in controls() if "gluon" in control.source]
    assert honest
    for control in honest:
        assert audit(control.source) is None, control.file


def test_what_a_file_uses_of_gluon_is_found_by_any_name() -> None:
    text = "import triton.experimental.gluon as g\nlanguage = g.language\n\n\n@g.jit\ndef f(x):\n    language.load(x)\n"
    assert {f"{LANGUAGE}.load", "triton.experimental.gluon.jit"} <= paths_of(text)
    assert paths_of("# gluon\nimport triton\n") == frozenset()


def test_each_release_has_some_of_the_names_and_what_is_left_out_is_refused() -> None:
    gluon = importlib.import_module("triton.experimental.gluon")
    for module, names in NAMES.items():
        try:
            found = functools.reduce(getattr, module.removeprefix("triton.experimental.gluon").split(".")[1:], gluon)
        except AttributeError:
            assert module.endswith("hopper.cluster")  # of later releases
            continue
        here = {name for name in vars(found) if name in names}
        assert here, module
        assert not any(isinstance(getattr(found, name), types.ModuleType) for name in here)
        assert is_module(module)
        assert all(refused_path(f"{module}.{name}") is None for name in here)
        for name in {*vars(found)} - names:
            assert refused_path(f"{module}.{name}") is not None or is_module(f"{module}.{name}"), (module, name)


CHANGES = {
    "assembly": ("times(x, 4.0)", "gl.inline_asm_elementwise('mov.u32 $0, 1;', '=r', [], gl.int32, True, 1)", "inline_asm"),
    "assembly by Triton": ("times(x, 4.0)", "tl.inline_asm_elementwise('', '=r', [x], tl.int32, True, 1)", "triton.jit"),
    "printing": ("    return x * by", "    gl.device_print('x', x)\n    return x", "device_print"),
    "integers as pointers": ("x_ptr + at", "n.to(gl.pointer_type(gl.float32)) + at", "pointer_type"),
    "a clock": ("times(x, 4.0)", "tl.extra.cuda.globaltimer()", "triton.language.extra"),
    "inside": ("times(x, 4.0)", "gl._core.tensor(x)", "gluon.language._core"),
    "inside by a module": ("times(x, 4.0)", "gl.nvidia.hopper.tma.ttgl.load(x)", "tma.ttgl"),
    "the runtime": ("@triton.jit", "gluon._runtime.jit\n\n\n@triton.jit", "gluon._runtime"),
    "the source's class": ("@triton.jit", "gluon.GluonASTSource\n\n\n@triton.jit", "GluonASTSource"),
    "another package": ("import triton\n", "import triton\nfrom triton.experimental import gsan\n", "experimental.gsan"),
    "another chip's part": (
        "import triton\n",
        "import triton\nfrom triton.experimental.gluon.language.nvidia import blackwell\n",
        "nvidia.blackwell",
    ),
    "all names": ("import language as gl", "import language as gl\nfrom triton.experimental.gluon import *", "import of"),
    "the module as a value": ("times(x, 4.0)", "times(x, 4.0, gl)", "as a value"),
    "asking": ("    return x * by", "    if isinstance(x, int):\n        return x\n    return x * by", "use of isinstance"),
    "a handle": ("    return x * by", "    x.handle\n    return x * by", "use of .handle"),
    "a callback": ("@gluon.jit\ndef scale", "@gluon.jit(launch_metadata=print)\ndef scale", "launch_metadata"),
    "another name of a kernel": ("@gluon.jit\ndef scale", "@gluon.jit(repr=lambda _: 'x')\ndef scale", "repr"),
    "no decorator": ("class ModelNew", "other = gluon.jit(times.fn)\n\n\nclass ModelNew", "innermost decorator"),
    "a maker as a value": ("class ModelNew", "made = list(map(gluon.jit, []))\n\n\nclass ModelNew", "innermost decorator"),
    "Triton's maker": ("class ModelNew", "made = triton.JITFunction(times.fn)\n\n\nclass ModelNew", "innermost decorator"),
    "another function under the decorator": (
        "@gluon.jit\ndef times",
        "def swap(f):\n    return half_kernel.fn\n\n\n@gluon.jit\n@swap\ndef times",
        "innermost decorator",
    ),
    "a function of Triton under the decorator": ("@gluon.jit\ndef times", "@gluon.jit\n@triton.jit\ndef times", "innermost"),
    "a name that is made": ("class ModelNew", "f = getattr(gl, 'load' + 's')\n\n\nclass ModelNew", "by a computed name"),
    "tl by a name": ("class ModelNew", "f = getattr(tl, 'device_print')\n\n\nclass ModelNew", "outside of a function"),
    "a Triton method": (
        "class ModelNew",
        "class K:\n    @triton.jit\n    def f(x):\n        return tl.abs(x)\n\n\nf = K.f\n\n\nclass ModelNew",
        "the Triton function f",
    ),
    "a Triton function in a kernel": ("times(x, 4.0)", "half_kernel(x, x, 1, 1)", "the Triton function half_kernel"),
    "a Triton function as a partition": (
        "    x = gl.load",
        "    gl.warp_specialize([(times, (at, at)), (half_kernel, (at, at, n))], [1], [24])\n    x = gl.load",
        "the Triton function half_kernel",
    ),
    "a Triton function as an argument": ("x.numel(), 1024, gl.", "half_kernel, 1024, gl.", "the Triton function"),
    "a function of tl as an argument": ("x.numel(), 1024, gl.", "tl.device_print, 1024, gl.", "use of triton.language"),
    "a subclass": ("class ModelNew", "class L(gl.BlockedLayout): ...\n\n\nclass ModelNew", "a subclass of"),
    "a patch": ("class ModelNew", "gl.load = times\n\n\nclass ModelNew", "assignment to an attribute of"),
}  # fmt: skip


@pytest.mark.parametrize("case", CHANGES)
def test_what_no_kernel_needs_is_refused_by_the_text(case: str) -> None:
    before, after, message = CHANGES[case]
    assert before in FILE
    outcome = audit(FILE.replace(before, after, 1))
    assert outcome is not None
    assert outcome.diagnosis is not None
    assert outcome.status == "rejected", outcome
    assert message in outcome.diagnosis.message


@pytest.mark.parametrize(
    "path",
    [
        "triton.experimental.gsan",
        "triton.experimental.gluon.language.load.__wrapped__",
        "triton.experimental.gluon.language.NVMMASharedLayout.__init__",
        "triton.experimental.gluon.language.nvidia.hopper.tma.builtin",
        "triton.experimental.gluon.language.extra.libdevice.core",
        "triton.experimental.gluon.language.core",
        "triton.experimental.gluon.language.static_print",
        "torch.nn.triton.experimental.gsan",
    ],
)
def test_paths_that_are_in_no_list_are_refused(path: str) -> None:
    assert refused_path(path) is not None or is_module(path)


def test_a_clock_is_found_in_ptx() -> None:
    assert clock_in("mov.u64 %rd2, %globaltimer;") == "%globaltimer"
    assert clock_in("\tmov.u32 %r1, %clock_hi;") == "%clock_hi"
    assert clock_in("mov.u32 %r1, %smid; // the clock") is None


def test_the_lab_compiles_and_says_that_nothing_was_run(usual_lab: LabEvaluator, double: Task) -> None:
    wrong = FILE.replace("4.0", "5.0")
    unused = FILE.replace("        scale_kernel[grid]", "        0 and scale_kernel[grid]").replace("(y, z", "(x, z")
    requests = [EvaluationRequest(double, each) for each in (FILE, wrong, unused)]
    outcomes = usual_lab.evaluate([*requests, EvaluationRequest(double, FILE, 0, "verify")])
    for outcome in outcomes:  # right or wrong is not known here
        assert (outcome.status, outcome.ok, outcome.runtime_ms) == ("not_run", False, None)
        assert outcome.diagnosis is not None
        assert "1 in Gluon" in outcome.diagnosis.message
        assert outcome.metrics["registers"] > 0
    assert [outcome.metrics["kernels"] for outcome in outcomes] == [2, 2, 1, 2]
    assert outcomes[0].metrics["bytes_moved"] == 4 * 4000
    assert outcomes[0].metrics["static_ms"] > outcomes[2].metrics["static_ms"] > 0


ERRORS = {
    "audit": ("times(x, 4.0)", "times(x, bye)", 24, "NameError", "'bye' is not defined"),
    "in a helper": ("return x * by", "return x.turned(by)", 17, "CompilationError", "no attribute 'turned'"),
    "no power of two": ("BLOCK, LAYOUT)", "BLOCK + 1, LAYOUT)", 22, "CompilationError", "power of 2"),
    "warps": ("num_warps=4", "num_warps=8", 22, "RuntimeError", "invalid layout"),
    "two layouts": (
        "BLOCK, LAYOUT)", "BLOCK, LAYOUT) + gl.arange(0, BLOCK, gl.BlockedLayout([1], [32], [4], [0]))",
        22, "CompilationError", "Layout mismatch",
    ),
    "shared memory": (
        "    at = gl.program_id",
        "    held = gl.allocate_shared_memory(gl.float32, [65536], gl.SwizzledSharedLayout(1, 1, 1, [0]))\n"
        "    held.store(gl.full([65536], 0.0, gl.float32, LAYOUT))\n    at = gl.program_id",
        21, "OutOfResources", "shared memory",
    ),
    "host": ("num_warps=4", "num_warps=4, stages=2", 31, "KeyError", "stages"),
}  # fmt: skip


@pytest.mark.parametrize("case", ERRORS)
def test_an_error_is_told_at_its_line(case: str, usual_lab: LabEvaluator, double: Task) -> None:
    before, after, line, kind, words = ERRORS[case]
    assert before in FILE
    [outcome] = usual_lab.evaluate([EvaluationRequest(double, FILE.replace(before, after, 1))])
    assert outcome.status == "build_error", outcome
    assert outcome.diagnosis is not None
    assert (outcome.diagnosis.line, outcome.diagnosis.kind) == (line, kind), outcome
    assert words in outcome.diagnosis.message


def test_a_line_is_told_where_llvm_ends_the_process(usual_lab: LabEvaluator) -> None:
    [control] = [each for each in controls() if each.file == "gluon_attention"]
    converted = "p = gl.convert_layout(weights.to(gl.bfloat16), weights_layout)\n    for"
    broken = control.source.replace(converted, "p = weights.to(gl.bfloat16)\n    for")
    assert broken != control.source
    elsewhere = control.source.replace("out = torch.empty_like(q)", 'out = torch.empty_like(q, device="cpu")')
    requests = [EvaluationRequest(task(control.task), each) for each in (broken, elsewhere)]
    outcome, on_host = usual_lab.evaluate(requests)
    assert on_host.diagnosis is not None
    assert "out_tiles of attention_kernel is a tensor on the cpu, not on a GPU" in on_host.diagnosis.message
    assert outcome.status == "build_error", outcome
    assert outcome.diagnosis is not None
    assert outcome.diagnosis.kind == "CompilerAbort"
    assert outcome.diagnosis.line is not None
    assert "summed = warpgroup_mma(p," in broken.splitlines()[outcome.diagnosis.line - 1]
    assert usual_lab.imports(control.source) is None  # the next job has a new process, and the file stands by itself


def test_aggregates_tuners_and_functions_of_constants_are_compiled(usual_lab: LabEvaluator, double: Task) -> None:
    if not hasattr(importlib.import_module("triton.experimental.gluon"), "aggregate"):
        pytest.skip("this release of Triton has no aggregates")
    wrong = RICH.replace("self.at < self.n", "self.at < self.m")
    right, broken = usual_lab.evaluate([EvaluationRequest(double, each) for each in (RICH, wrong)])
    assert right.status == "not_run", right
    assert right.metrics["programs"] == 2  # of the tuner's first configuration
    assert broken.diagnosis is not None
    assert "return self.at < self.m" in wrong.splitlines()[(broken.diagnosis.line or 0) - 1]


def test_a_build_for_a_gpu_says_where_when_it_is_asked_again(double: Task) -> None:
    """Its kernels have no line numbers, so the compiler cannot say it at first."""
    broken = FILE.replace("num_warps=4", "num_warps=8")
    warmth = {"target_name": "sm_90", "multiprocessors": 132, "for_gpu": True}
    arguments = {"task": double, "source": broken, "target_name": "sm_90", "for_gpu": True}
    with contextlib.closing(Pool(PoolSettings(warm, warmth, {**ENVIRONMENT}, 1, 60.0, 4096))) as pool:
        first, again = (
            taken("build", pool.run(build, {**arguments, "lines": lines}), broken, 60.0, 4096)
            for lines in (False, True)
        )
    for outcome in (first, again):
        assert without_place(outcome), outcome
        assert "invalid layout" in outcome.diagnosis.message
    assert first.diagnosis.line == 21  # of the kernel
    assert again.diagnosis.line == 22


STATUSES = {"e150": "rejected", "e151": "not_run", "e152": "not_run"}
"""Of attacks in the lab: what only a run can tell is not told there."""


def test_attacks_and_honest_candidates_are_compiled_as_they_are(usual_lab: LabEvaluator) -> None:
    ours = [each for each in (*exploits(), *controls()) if "triton.experimental" in each.source]
    outcomes = usual_lab.evaluate([EvaluationRequest(task(each.task), each.source) for each in ours])
    found = {each.file: outcome for each, outcome in zip(ours, outcomes, strict=True)}
    for file, outcome in found.items():
        assert outcome.status == STATUSES.get(file.partition("_")[0], "not_run"), outcome
    attention = found["gluon_attention"].metrics
    assert attention["shared_memory"] == 164_112
    assert attention["bytes_moved"] == 4 * 2 * (2 * 16 * 2048 * 128)
    assert attention["spills"] == 0
    assert attention["occupancy"] == 12 * 32 / 2048  # groups of four, of which two compute and one loads


def test_a_clock_is_refused_in_triton_too(usual_lab: LabEvaluator, double: Task) -> None:
    asm = "tl.inline_asm_elementwise('mov.u64 $0, %globaltimer;', '=l', [], tl.int64, False, 1)"
    source = FILE[: FILE.index("@gluon.jit\ndef times")].replace(
        "x_ptr + at, mask=at < n) * 0.5", f"x_ptr + at) * {asm}"
    )
    source = "\n".join(line for line in source.split("\n") if "gluon" not in line)
    launch = "half_kernel[(1,)](x, y, x.numel(), 1024)"
    swallowed = (
        f"        try:\n            {launch}\n        except Exception:\n            pass\n        return x * 2.0\n"
    )
    source += f"class ModelNew(nn.Module):\n    def forward(self, x):\n        y = torch.empty_like(x)\n{swallowed}"
    [outcome] = usual_lab.evaluate([EvaluationRequest(double, source)])
    assert outcome.diagnosis is not None
    assert (outcome.status, outcome.diagnosis.kind) == ("rejected", "Forbidden"), outcome
    assert "half_kernel reads a clock (%globaltimer)" in outcome.diagnosis.message


def test_the_kernel_of_the_page_compiles(usual_lab: LabEvaluator, double: Task) -> None:
    [kernel] = snippets("docs/evaluator.md", "py")
    call = "scale[(1,)](x, y, 2.0, x.numel(), 1024, gl.BlockedLayout([4], [32], [4], [0]))"
    forward = f"    def forward(self, x):\n        y = torch.empty_like(x)\n        {call}\n        return y\n"
    source = f"import torch\n{kernel}\n\nclass ModelNew(torch.nn.Module):\n{forward}"
    [outcome] = usual_lab.evaluate([EvaluationRequest(double, source)])
    assert outcome.status == "not_run", outcome


@pytest.mark.parametrize(
    ("chip", "text", "found"),
    [
        ("sm_80", FILE, None),
        ("gfx942", FILE, None),
        (
            "sm_80",
            HOPPER + FILE,
            "fence_async_shared is of NVIDIA's Hopper and later (sm_90), and this is built for sm_80",
        ),
        ("sm_90", HOPPER + FILE, None),
        ("sm_100", HOPPER + FILE, "warpgroup_mma is of NVIDIA's Hopper (sm_90), and this is built for sm_100"),
        (
            "sm_89",
            FILE.replace("times(x, 4.0)", "gl.warp_specialize([], [], [])"),
            "warp_specialize is of NVIDIA's Hopper",
        ),
        ("sm_80", FILE.replace("times(x, 4.0)", "gl.nvidia.ampere.async_copy.wait_group(0)"), None),
        (
            "gfx942",
            FILE.replace("times(x, 4.0)", "gl.nvidia.ampere.async_copy.wait_group(0)"),
            "Ampere and later (sm_80)",
        ),
    ],
)
def test_another_chip_is_told(chip: str, text: str, found: str | None) -> None:
    diagnosis = wrong_target(paths_of(text), target(chip), text)
    assert (diagnosis is None) == (found is None)
    if diagnosis is not None:
        assert diagnosis.kind == "WrongTarget"
        assert str(found) in diagnosis.message
        assert diagnosis.line == (1 if text.startswith(HOPPER) else 24)
