"""Kernels in CUDA C++ without a GPU: what the audit reads, what NVRTC makes of it, what is refused in the binary,
and what the lab says. The launch itself goes to a driver made of C, which writes down what it is given."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from mtmc.cuda import RawKernel, standalone
from mtmc.evaluate.audit.audit import audit
from mtmc.evaluate.audit.cuda_text import CudaText, texts_of
from mtmc.evaluate.audit.denylist import FORBIDDEN_ATTRIBUTES
from mtmc.evaluate.compiling import cuda_kernels
from mtmc.evaluate.compiling.cubin import read_cubin, refusal
from mtmc.evaluate.compiling.cuda_kernels import CudaBinary, compile_texts, launched
from mtmc.evaluate.compiling.cuobjdump import disassembled
from mtmc.evaluate.compiling.prebuilt import NotPrebuilt
from mtmc.evaluate.compiling.target import target
from mtmc.evaluate.estimates.resources import read_resources
from mtmc.evaluate.lab import LabEvaluator
from mtmc.protocols import EvaluationRequest
from mtmc.task import load_task
from tests.exploits.catalogue import controls

try:
    RawKernel.raw_nvrtc()
    NVRTC = True
except OSError:
    NVRTC = False
needs_nvrtc = pytest.mark.skipif(not NVRTC, reason="needs NVRTC: pip install 'mtmc[cuda]'")

SCALE = 'extern "C" __global__ void scale(const float* x, float* y, float by, int n) { if (n) y[n] = x[n] * by; }'
FILE = '''import torch
from torch import nn

from mtmc.cuda import RawKernel

CODE = r"""
#include <cuda_fp16.h>
extern "C" __global__ void scale(const float* x, float* y, float by, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i] * by;
}
"""
scale = RawKernel(CODE, "scale")


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        scale((x.numel() + 255) // 256, 256, (x, y, 2.0, x.numel()))
        return y
'''
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


@pytest.mark.parametrize(
    ("text", "name", "expected"),
    [
        (SCALE, "scale", [("float", True, "x"), ("float", True, "y"), ("float", False, "by"), ("int", False, "n")]),
        ("__global__ void f() {}", "f", []),
        ("__global__ void f(void) {}", "f", []),
        (
            "template <typename T, int B> __global__ void __launch_bounds__(B) g(T* __restrict__ x, std::size_t n) {}",
            "g<float, 4>",
            [("float", True, "x"), ("size_t", False, "n")],
        ),
        ("__global__ void f(/* a, b */ const float w[4], // c\n  float* const* p) {}", "f",
         [("float", True, "w"), ("float", True, "p")]),
        ("__global__ void other(int n) {} __global__ void f(unsigned long long n) {}", "f",
         [("unsigned long long", False, "n")]),
    ],
)  # fmt: skip
def test_the_parameters_of_a_kernel(text: str, name: str, expected: list[tuple[str, bool, str]]) -> None:
    assert RawKernel.raw_parameters(text, name) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("__device__ void f(int n) {}", "no __global__ function 'f'"),
        ("__global__ void g(int n) {}", "no __global__ function 'f'"),
        ("__global__ void f(float4 x) {}", "'float4 x' is neither a pointer nor a number"),
    ],
)
def test_what_cannot_be_launched_is_said(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        RawKernel.raw_parameters(text, "f")


def test_every_part_of_the_class_is_closed_to_versions() -> None:
    kernel = RawKernel(SCALE, "scale")
    parts = {name for name in (*vars(RawKernel), *vars(kernel)) if not (name.startswith("__") and name.endswith("__"))}
    assert parts
    assert parts <= FORBIDDEN_ATTRIBUTES


def test_an_honest_file_passes_the_audit() -> None:
    assert audit(FILE) is None
    [text] = texts_of(FILE)
    assert (text.name, text.line, text.first) == ("scale", 13, 6)
    assert all(audit(control.source) is None for control in controls() if "mtmc.cuda" in control.source)


CHANGES = {
    "computed code": ("RawKernel(CODE,", "RawKernel(CODE + '',", "must stand in the file"),
    "computed name": ('CODE, "scale")', 'CODE, "sca" "le".strip())', "must stand in the file"),
    "two texts": ("scale = Raw", 'CODE = "other"\nscale = Raw', "must stand in the file"),
    "text of a function": (
        "    def forward(self, x):",
        "    def other(self, CODE): ...\n\n    def forward(self, x):",
        "file",
    ),
    "alias": ("scale = Raw", "K = RawKernel\nscale = Raw", "other than to make a kernel"),
    "subclass": ("class ModelNew", "class K(RawKernel): ...\n\n\nclass ModelNew", "other than to make a kernel"),
    "attribute": ("        return y", "        scale.raw_code\n        return y", "raw_code"),
    "driver": ("        return y", "        scale.raw_driver()\n        return y", "raw_driver"),
    "by name": ("        return y", "        getattr(scale, 'raw_function')\n        return y", "raw_function"),
    "module": (
        "from mtmc.cuda import RawKernel",
        "import mtmc.cuda\nfrom mtmc.cuda import RawKernel",
        "import of mtmc",
    ),
    "another name": ("import RawKernel", "import RawKernel as RawKernel2", "import of mtmc"),
    "another part": ("import RawKernel", "import RawKernel, standalone", "import of mtmc"),
    "rest of mtmc": ("import torch\n", "import torch\nfrom mtmc.files import write_whole\n", "import of mtmc"),
    "option": ('"scale")', '"scale", ("-I/etc",))', "option '-I/etc'"),
    "file": ("<cuda_fp16.h>", '"/etc/passwd"', "#include"),
    "file by a macro": ("#include <cuda_fp16.h>", "#define F </etc/passwd>\n#include F", "#include"),
    "file behind a comment": ("#include <cuda_fp16.h>", "/**/ # /**/ include /**/ </etc/passwd>", "#include"),
    "spliced": ("#include <cuda_fp16.h>", "#inc\\\nlude </etc/passwd>", "#include"),
    "digraph": ("#include <cuda_fp16.h>", "%:include </etc/passwd>", "#include"),
    "question": ("#include <cuda_fp16.h>", '#if __has_include("/etc/passwd")\n#endif', "__has_include"),
    "launch": ("if (i < n) ", "scale<<<1, 1>>>(x, y, by, n); ", "a launch"),
}


@pytest.mark.parametrize("case", CHANGES)
def test_what_no_kernel_needs_is_refused_by_the_text(case: str) -> None:
    before, after, message = CHANGES[case]
    assert before in FILE
    outcome = audit(FILE.replace(before, after, 1))
    assert outcome is not None
    assert outcome.diagnosis is not None
    assert outcome.status == "rejected"
    assert message in outcome.diagnosis.message


HEAD = 'extern "C" __global__ void k(float* y, int n) {'
MACHINE = {
    "clock": (f"{HEAD} y[n] = clock64(); }}", "reads a clock"),
    "clock in assembly": (
        f'{HEAD} long t; asm volatile("mov.u64 %0, %%global" "timer;" : "=l"(t)); y[n] = t; }}', "reads a clock",
    ),
    "static": (f"{HEAD} static int calls; y[n] = calls++; }}", "keeps calls in device memory"),
    "global": (f"__device__ int calls; {HEAD} y[n] = calls++; }}", "keeps calls in device memory"),
    "by another's name": (
        f"__device__ int __cud##art_i2opi_f; {HEAD} y[n] = 1; }}".replace("__cud##art", "__cudart"), "keeps __cudart",
    ),
    "prints": (f'{HEAD} printf("%d", n); }}', "calls vprintf"),
    "allocates": (f"{HEAD} y[0] = *(float*)malloc(n); }}", "calls malloc"),
}  # fmt: skip
HONEST = {
    "sine": f"{HEAD} y[n] = sinf(y[n]); }}",
    "constants": f"__constant__ float c[2] = {{1, 2}}; {HEAD} const float w[3] = {{1, 2, 3}}; y[n] = c[n] * w[n]; }}",
    "shared": f"extern __shared__ float s[]; {HEAD} s[n] = y[n]; __syncthreads(); y[n] = s[n ^ 1]; }}",
    "multiprocessor": f'{HEAD} int t; asm volatile("mov.u32 %0, %%smid;" : "=r"(t)); y[n] = t; }}',
}


def _refusal(code: str, folder: Path) -> str | None:
    binary, _ = RawKernel.raw_compiled(code, "k", (), "sm_90a")
    path = folder / "k.cubin"
    path.write_bytes(binary)
    return refusal(read_cubin(binary), disassembled(path), code)


@needs_nvrtc
@pytest.mark.parametrize("case", MACHINE)
def test_what_no_kernel_needs_is_refused_in_the_machine_code(case: str, tmp_path: Path) -> None:
    code, message = MACHINE[case]
    assert message in (_refusal(code, tmp_path) or "")


@needs_nvrtc
@pytest.mark.parametrize("case", HONEST)
def test_honest_machine_code_is_not(case: str, tmp_path: Path) -> None:
    assert _refusal(HONEST[case], tmp_path) is None


def test_no_elf_is_no_cubin() -> None:
    with pytest.raises(ValueError, match="no cubin"):
        read_cubin(b"//\n// PTX")


@needs_nvrtc
def test_an_error_is_told_at_its_line_of_the_file(tmp_path: Path) -> None:
    source = FILE.replace("x[i] * by;", "x[i] * bye;")
    found = compile_texts(texts_of(source), target("sm_90"), source, tmp_path)
    assert not isinstance(found, dict)
    assert (found.status, found.diagnosis.kind, found.diagnosis.line) == ("build_error", "NvrtcError", 10)
    assert 'line 10: identifier "bye" is undefined' in found.diagnosis.message
    assert "> 10 |" in found.diagnosis.excerpt


@needs_nvrtc
def test_functions_of_one_binary_have_their_own_resources(tmp_path: Path) -> None:
    code = (
        'extern "C" __global__ void a(float* y) { __shared__ float s[512]; s[threadIdx.x] = y[0]; __syncthreads(); '
        'y[threadIdx.x] = s[threadIdx.x ^ 1]; } extern "C" __global__ void b(float* y) { y[threadIdx.x] = 1; }'
    )
    texts = [CudaText(code, name, (), 1) for name in ("a", "b")]
    found = compile_texts(texts, target("sm_90"), "", tmp_path)
    assert isinstance(found, dict)
    assert [found[text].shared for text in texts] == [2048, 0]
    binary = Path(found[texts[0]].path).read_bytes()
    mixes = [read_resources(binary, "sm_90", function=name).instruction_mix for name in ("a", "b")]
    assert "LDS.32" in mixes[0]
    assert "LDS.32" not in mixes[1]
    assert compile_texts(texts, target("sm_90"), "", tmp_path) == found  # from the cache


def test_numbers_of_sixteen_bits_are_passed_as_such() -> None:
    kernel = RawKernel("__global__ void f(__half a, __nv_bfloat16 b, __nv_bfloat16 c) {}", "f")
    expected = [torch.tensor(0.1, dtype=torch.float16), *torch.tensor([0.1, -3e38], dtype=torch.bfloat16)]
    bits = [int(each.view(torch.int16)) & 0xFFFF for each in expected]
    assert kernel.raw_taken((0.1, 0.1, -3e38)) == bits


def test_a_launch_as_plain_data() -> None:
    kernel = RawKernel(SCALE, "scale")
    binary = CudaBinary("scale", "/cache/key.cubin", "scale", 40, 100)
    x, args = torch.ones(6), (torch.ones(6), torch.ones(6), 2, 6)
    launch, compiled = launched(kernel, 3, (32, 2), args, 60, {(SCALE, "scale", ()): binary}, target("sm_90"))
    assert (launch.grid, launch.constexprs["block"]) == ((3, 1, 1), "(32, 2, 1)")
    assert (compiled.metadata.shared, compiled.metadata.num_warps) == (160, 2)
    with pytest.raises(NotPrebuilt):
        launched(kernel, 1, 32, args, 0, {}, target("sm_90"))
    for grid, block, given, error in (
        (1, 2048, args, "threads on axis 0"),
        (1, (1, 1, 128), args, "threads on axis 2"),
        (1, (64, 32), args, "threads, Required: 2048|Required: 2048"),
        (0, 32, args, "above 0"),
        (1, 32, args[:3], "takes 4 arguments"),
        (1, 32, (x.half(), *args[1:]), "points to float"),
        (1, 32, (1, *args[1:]), "is a pointer"),
        (1, 32, (*args[:3], 2.5), "no whole number"),
        (1, 32, (*args[:3], 1 << 31), "does not fit"),
        (1, 32, (*args[:3], x), "is a int, so a number"),
    ):
        with pytest.raises(Exception, match=error):
            launched(kernel, grid, block, given, 0, {(SCALE, "scale", ()): binary}, target("sm_90"))
    hungry = CudaBinary("scale", "/cache/key.cubin", "scale", 255, 0)
    with pytest.raises(Exception, match="registers"):
        launched(kernel, 1, 512, args, 0, {(SCALE, "scale", ()): hungry}, target("sm_90"))


DRIVER = r"""
#include <string.h>
#include <stdint.h>
struct seen { unsigned sizes[7]; void *function, *stream; uint64_t x, y; float by; int n, attribute, value; char image[8]; };
struct seen seen; int refuse;
int cuModuleLoadData(void **module, const char *image) {
    memcpy(seen.image, image, 8); *module = (void *)0x11; return 0; }
int cuModuleGetFunction(void **function, void *module, const char *name) {
    *function = (module == (void *)0x11 && !strcmp(name, "scale")) ? (void *)0x7f0123456789 : 0;
    return *function ? 0 : 500; }
int cuFuncSetAttribute(void *function, int attribute, int value) {
    seen.attribute = attribute; seen.value = value; return 0; }
int cuLaunchKernel(void *function, unsigned a, unsigned b, unsigned c, unsigned d, unsigned e, unsigned f, unsigned shared,
                   void *stream, void **values, void **extra) {
    unsigned sizes[] = {a, b, c, d, e, f, shared};
    memcpy(seen.sizes, sizes, sizeof sizes); seen.function = function; seen.stream = stream;
    seen.x = *(uint64_t *)values[0]; seen.y = *(uint64_t *)values[1];
    seen.by = *(float *)values[2]; seen.n = *(int *)values[3];
    return extra ? 1 : refuse; }
int cuGetErrorString(int error, const char **text) { *text = "refused on purpose"; return 0; }
"""


class Seen(ctypes.Structure):
    _fields_ = (
        ("sizes", ctypes.c_uint * 7), ("function", ctypes.c_uint64), ("stream", ctypes.c_uint64), ("x", ctypes.c_uint64),
        ("y", ctypes.c_uint64), ("by", ctypes.c_float), ("n", ctypes.c_int), ("attribute", ctypes.c_int),
        ("value", ctypes.c_int), ("image", ctypes.c_char * 8),
    )  # fmt: skip


@pytest.fixture
def driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A driver whose functions have the C signatures of cuda.h, on a machine that seems to have one GPU."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("needs a C compiler to make a driver of")
    (tmp_path / "driver.c").write_text(DRIVER)
    library = tmp_path / "libcuda.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, tmp_path / "driver.c"], check=True)
    original, loaded = ctypes.CDLL, ctypes.CDLL(str(library))
    monkeypatch.setattr(ctypes, "CDLL", lambda name, *a: loaded if name == "libcuda.so.1" else original(name, *a))
    monkeypatch.setattr(RawKernel, "raw_driver_library", None)
    monkeypatch.setattr(torch._C, "_cuda_getCurrentRawStream", lambda index: 0x5EED00000000 + index, raising=False)
    monkeypatch.setattr(torch.cuda, "device", lambda index: __import__("contextlib").nullcontext())
    monkeypatch.setattr(torch.Tensor, "get_device", lambda tensor: 0)
    return SimpleNamespace(library=loaded, seen=lambda: Seen.in_dll(loaded, "seen"))


@needs_nvrtc
def test_a_candidate_launches_what_the_builder_left(
    driver: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = texts_of(FILE)
    assert isinstance(compile_texts(texts, target("sm_90"), FILE, tmp_path), dict)
    refused: list[str] = []
    monkeypatch.setattr(RawKernel, "raw_load", RawKernel.raw_load)
    monkeypatch.setattr(RawKernel, "raw_compiled", None)  # a candidate's process compiles nothing
    cuda_kernels.install(tmp_path, target("sm_90"), refused)
    kernel = RawKernel(texts[0].code, "scale")
    x, y = torch.ones(8), torch.ones(8)
    kernel((5, 4), (64, 2), (x, y, 0.5, -3), shared_mem=60000)
    seen = driver.seen()
    assert list(seen.sizes) == [5, 4, 1, 64, 2, 1, 60000]
    assert (seen.function, seen.stream) == (0x7F0123456789, 0x5EED00000000)
    assert (seen.x, seen.y, seen.by, seen.n) == (x.data_ptr(), y.data_ptr(), 0.5, -3)
    assert (seen.attribute, seen.value) == (8, 60000)  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
    assert seen.image.startswith(b"\x7fELF")
    ctypes.c_int.in_dll(driver.library, "refuse").value = 700
    with pytest.raises(RuntimeError, match="CUDA error 700: refused on purpose"):
        kernel(1, 32, (x, y, 0.5, 1))
    with pytest.raises(NotPrebuilt, match="did not see"):
        RawKernel(SCALE, "scale")(1, 32, (x, y, 0.5, 1))
    assert len(refused) == 1


def test_tensors_of_the_host_are_refused() -> None:
    with pytest.raises(ValueError, match=r"one GPU, they are on \[-1, -1\]"):
        RawKernel(SCALE, "scale")(1, 32, (torch.ones(1), torch.ones(1), 1.0, 1))


def test_a_file_that_is_handed_out_needs_no_mtmc(tmp_path: Path) -> None:
    text = standalone(FILE)
    assert "mtmc.cuda import" in FILE
    assert "from mtmc" not in text
    known: dict[str, Any] = {"__name__": "best"}
    exec(compile(text, "best.py", "exec"), known)
    assert known["scale"].raw_declared == RawKernel.raw_parameters(texts_of(FILE)[0].code, "scale")
    assert known["RawKernel"] is not RawKernel
    assert standalone("import torch\n") == "import torch\n"


@needs_nvrtc
def test_the_lab_compiles_and_says_that_nothing_was_run(usual_lab: LabEvaluator, tmp_path: Path) -> None:
    (tmp_path / "double.py").write_text(TASK)
    task = load_task(tmp_path / "double.py")
    wrong = FILE.replace("x[i] * by", "x[i] - by")
    outcomes = usual_lab.evaluate([EvaluationRequest(task, FILE), EvaluationRequest(task, wrong, 0, "verify")])
    for outcome in outcomes:  # right or wrong is not known here
        assert (outcome.status, outcome.ok, outcome.runtime_ms) == ("not_run", False, None)
        assert outcome.diagnosis is not None
        assert outcome.diagnosis.message.startswith("not run: it is compiled for sm_90")
        assert outcome.metrics["kernels"] == 1
        assert outcome.metrics["bytes_moved"] == 8000
        assert outcome.metrics["registers"] > 0
        assert outcome.metrics["static_ms"] > 0
    broken = FILE.replace("256, (x, y", "4096, (x, y")
    body = "        scale((x.numel() + 255) // 256, 256, (x, y, 2.0, x.numel()))"
    inside = f"        try:\n    {body}\n        except Exception:\n            return x * 2.0"
    swallowed = broken.replace(body.replace("256, (x, y", "4096, (x, y"), inside.replace("256, (x, y", "4096, (x, y"))
    assert "except" in swallowed
    state = FILE.replace("    if (i < n)", "    static int calls; y[n - 1] = calls++;\n    if (i < n)")
    found = usual_lab.evaluate([EvaluationRequest(task, each) for each in (broken, swallowed, state)])
    assert [each.status for each in found] == ["build_error", "build_error", "rejected"]
    assert found[0].diagnosis is not None
    assert found[0].diagnosis.kind == "OutOfResources"
