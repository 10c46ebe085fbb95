"""Rules for kernels in CUDA C++: each failure as NVRTC and the build tell it, mended until the text compiles."""

from __future__ import annotations

from pathlib import Path

import pytest

from mtmc.agents.coders.repair import fix
from mtmc.cuda import RawKernel
from mtmc.evaluate.audit.cuda_text import texts_of
from mtmc.evaluate.audit.diagnosis import Failure
from mtmc.evaluate.compiling.cuda_kernels import compile_texts
from mtmc.evaluate.compiling.target import target
from mtmc.outcome import Diagnosis
from tests.breadth import share

try:
    RawKernel.raw_nvrtc()
    NVRTC = True
except OSError:
    NVRTC = False
needs_nvrtc = pytest.mark.skipif(not NVRTC, reason="needs NVRTC: pip install 'mtmc[cuda]'")

FILE = '''import torch
from torch import nn

from mtmc.cuda import RawKernel

CODE = r"""
{head}extern "C" __global__ void work(const float* x, float* y, int n) {{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    {line}
    if (i < n) y[i] = x[i];
}}
"""
work = RawKernel(CODE, "work")


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        work(1, 32, (x, y, 5))
        return y
'''
BROKEN = {
    "cuda_header": (
        "__half h = __float2half(x[i]); y[i] = __half2float(h);",
        "y[i] = -INFINITY;",
        "float least = -FLT_MAX; y[i] = least;",
        "uint32_t bits = 3; y[i] = bits;",
        "__nv_bfloat16 b = __float2bfloat16(x[i]); y[i] = __bfloat162float(b);",
        "y[i] = CUDART_INF_F;",
        "nvcuda::wmma::fragment<nvcuda::wmma::accumulator, 16, 16, 16, float> f; nvcuda::wmma::fill_fragment(f, 0.f);",
    ),
    "cuda_name": (
        "float v = x[i]; v += __shfl_down(v, 16); y[i] = v;",
        "syncthreads();",
        "y[i] = std::max(x[i], 0.f);",
    ),
    "cuda_index": ("int j = blockIdx * blockDim + threadIdx; y[j] = 0;",),
    "cuda_constant": ("float* row = x + i; y[i] = row[0];",),
}


def _diagnosis(source: str, folder: Path) -> Diagnosis | None:
    found = compile_texts(texts_of(source), target("sm_90"), source, folder)
    return found.diagnosis if isinstance(found, Failure) else None


@needs_nvrtc
@pytest.mark.parametrize(("rule", "line"), [(rule, line) for rule, lines in BROKEN.items() for line in share(lines, 4)])
def test_a_mechanical_failure_is_mended(rule: str, line: str, tmp_path: Path) -> None:
    source = FILE.format(head="", line=line)
    diagnosis = _diagnosis(source, tmp_path)
    assert diagnosis is not None
    fixed = fix(source, diagnosis, "H100")
    assert fixed is not None
    assert fixed.rule == rule
    again = _diagnosis(fixed.source, tmp_path)
    assert again is None, again


@needs_nvrtc
@pytest.mark.parametrize(
    "line", ["int j = unheard_of(i);", "y[i] = x[i]", "float* row = x; row[0] = 1;".replace("float", "double")]
)
def test_what_is_not_mechanical_is_left_alone(line: str, tmp_path: Path) -> None:
    source = FILE.format(head="", line=line)
    diagnosis = _diagnosis(source, tmp_path)
    assert diagnosis is not None
    assert fix(source, diagnosis, "H100") is None


@needs_nvrtc
@pytest.mark.parametrize(
    "change", [('RawKernel(CODE, "work")', 'RawKernel(CODE, "work_kernel")'), ("__global__ void work", "void work")]
)
def test_a_kernel_is_found(change: tuple[str, str], tmp_path: Path) -> None:
    source = FILE.format(head="", line="").replace(*change)
    diagnosis = _diagnosis(source, tmp_path)
    assert diagnosis is not None
    fixed = fix(source, diagnosis, "H100")
    assert fixed is not None
    assert fixed.rule == "cuda_entry"
    assert _diagnosis(fixed.source, tmp_path) is None


def test_arguments_that_are_no_tuple() -> None:
    source = FILE.format(head="", line="").replace("(x, y, 5)", "x, y, 5")
    said = "call() takes from 4 to 5 positional arguments but 6 were given"
    line = source.split("\n").index("        work(1, 32, x, y, 5)") + 1
    fixed = fix(source, Diagnosis("build", "TypeError", said, line), "H100")
    assert fixed is not None
    assert fixed.source == FILE.format(head="", line="")
