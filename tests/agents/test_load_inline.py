"""Files in the form of load_inline as files with RawKernel: what the host functions launch, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from mtmc.agents.coders.editing.unusable import Unusable
from mtmc.agents.coders.model import source_of
from mtmc.chat import ChatReply
from mtmc.cuda import RawKernel
from mtmc.evaluate.audit.audit import audit
from mtmc.evaluate.audit.cuda_text import texts_of
from mtmc.source.inline_words import NotPlain
from mtmc.source.load_inline import translated
from tests.agents.versions import edit_request

try:
    RawKernel.raw_nvrtc()
    NVRTC = True
except OSError:
    NVRTC = False

FILE = """import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

source = '''
#include <torch/extension.h>
#include <ATen/cuda/CUDAContext.h>
#include <cuda_runtime.h>
#define TILE 16
#define CHECK_INPUT(x) TORCH_CHECK(x.is_cuda(), #x " must be a CUDA tensor")
constexpr int WARP = 32;

/* a product; of { brackets */
__global__ void matmul_kernel(const float* __restrict__ A, const float* B, float* C, int M, int N, int K) {
    int row = blockIdx.y * TILE + threadIdx.y, col = blockIdx.x * TILE + threadIdx.x;
    if (row >= M || col >= N) return;
    float sum = 0.f;
    for (int k = 0; k < K; ++k) sum += A[row * K + k] * B[k * N + col];
    C[row * N + col] = std::max(sum, -std::numeric_limits<float>::infinity());
}

template <typename scalar_t>
__global__ void __launch_bounds__(256) leaky_kernel(const scalar_t* x, scalar_t* y, int64_t n, scalar_t slope) {
    int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i] > scalar_t(0) ? x[i] : slope * x[i];
}

template <int B>
__global__ void sum_kernel(const float* x, float* y, int cols) {
    extern __shared__ float s[];
    s[threadIdx.x] = cols > B ? x[0] : 1.f;
    y[blockIdx.x] = s[0];
}

torch::Tensor leaky(torch::Tensor in, double slope) {
    auto y = torch::empty_like(in);
    const int64_t n = in.numel();
    const int threads = 256;
    const dim3 blocks((n + threads - 1) / threads);
    AT_DISPATCH_FLOATING_TYPES_AND_HALF(in.scalar_type(), "leaky", ([&] {
        leaky_kernel<scalar_t><<<blocks, threads, 0, at::cuda::getCurrentCUDAStream()>>>(
            in.data_ptr<scalar_t>(), y.data_ptr<scalar_t>(), n, static_cast<scalar_t>(slope));
    }));
    cudaError_t err = cudaGetLastError();
    if (err != cudaSuccess) { printf("CUDA error: %s", cudaGetErrorString(err)); }
    return y;
}

torch::Tensor matmul(torch::Tensor A, torch::Tensor B) {
    CHECK_INPUT(A); CHECK_INPUT(B);
    TORCH_CHECK(A.dim() == 2, "A must be 2D");
    A = A.contiguous();
    int M = A.size(0), K = A.size(1), N;
    N = B.size(1);
    auto C = torch::zeros({M, N}, A.options());
    dim3 block(TILE, TILE);
    dim3 grid((N + block.x - 1) / block.x, (M + TILE - 1) / TILE);
    matmul_kernel<<<grid, block>>>(A.data_ptr<float>(), B.data_ptr<float>(), C.data_ptr<float>(), M, N, K);
    return C;
}

std::vector<torch::Tensor> sums(const torch::Tensor& x) {
    int cols = x.sizes()[1];
    auto y = torch::empty({x.size(0)}, torch::TensorOptions().dtype(torch::kFloat32).device(x.device()));
    if (cols > 64 && cols % 2 == 0) {
        sum_kernel<128><<<x.size(0), 128, 128 * sizeof(float)>>>(x.data_ptr<float>(), y.data_ptr<float>(), cols);
    } else
        sum_kernel<WARP><<<x.size(0), WARP, WARP * sizeof(float)>>>(x.data_ptr<float>(), y.data_ptr<float>(), cols);
    return {y, x};
}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("sums", &sums, "sums"); }
'''


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.ops = load_inline(
            name="ops", cpp_sources=["torch::Tensor matmul(torch::Tensor A, torch::Tensor B);"], cuda_sources=[source],
            functions=["matmul", "leaky", "sums"], extra_cuda_cflags=["-O3", "--use_fast_math"],
        )

    def forward(self, a, b):
        return self.ops.sums(self.ops.leaky(self.ops.matmul(a, b), 0.5))
"""


def test_the_host_functions_launch_what_they_did(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []
    monkeypatch.setattr(RawKernel, "__call__", lambda self, *given, **more: made.append((self, *given, more)))
    text = translated(FILE)
    assert audit(text) is None
    known: dict[str, Any] = {"__name__": "version"}
    exec(compile(text, "version.py", "exec"), known)
    model, a, b = known["ModelNew"](), torch.ones(20, 5), torch.ones(5, 70)
    sums, x = model(a, b)
    assert (tuple(sums.shape), tuple(x.shape)) == ((20,), (20, 70))
    product, leaky, last = made
    assert (product[0].raw_name, product[1], product[2]) == ("matmul_kernel", (5, 2, 1), (16, 16, 1))
    assert product[3][3:] == (20, 70, 5)
    assert (leaky[0].raw_name, leaky[1], leaky[2], leaky[3][2:]) == ("leaky_kernel<float>", (6, 1, 1), 256, (1400, 0.5))
    assert (last[0].raw_name, last[1], last[2], last[3][2]) == ("sum_kernel<128>", 20, 128, 70)
    assert last[4] == {"shared_mem": 512}
    for kernel, _, _, args, _ in made:
        kernel.raw_taken(args)
        assert kernel.raw_options == ("--use_fast_math",)
    known["HostFunctions"].leaky(a.half(), 1.0)
    known["HostFunctions"].sums(torch.ones(3, 65))
    assert [each[0].raw_name for each in made[3:]] == ["leaky_kernel<__half>", "sum_kernel<WARP>"]
    assert made[4][2] == 32


@pytest.mark.skipif(not NVRTC, reason="needs NVRTC: pip install 'mtmc[cuda]'")
def test_what_torch_included_is_included() -> None:
    texts = texts_of(translated(FILE))
    assert len(texts) == 6
    for text in texts:
        RawKernel.raw_compiled(*text.key, "sm_90a")


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ("    A = A.contiguous();", "    for (int i = 0; i < 3; ++i) {}", "a for"),
        ("    A = A.contiguous();", "    A = torch::matmul(A, B);", "torch::matmul"),
        ("    A = A.contiguous();", "    float* p; cudaMalloc(&p, 16);", "more than sizes"),
        ("    A = A.contiguous();", "    int v = A[0].item<int>();", "the value of a tensor"),
        ("    A = A.contiguous();", "    clock_gettime(0, 0);", "clock_gettime is not known"),
        ("    A = A.contiguous();", "    A = A + B;", "arithmetic on tensors"),
        ("cuda_sources=[source]", "cuda_sources=[source.strip()]", "is computed"),
        ("cuda_sources=[source]", "cuda_sources=[]", "without kernels"),
        (
            "torch::Tensor leaky(torch::Tensor in,",
            "torch::Tensor leaky(std::vector<torch::Tensor> in,",
            "the parameter",
        ),
    ],
)
def test_other_host_code_is_refused(before: str, after: str, message: str) -> None:
    assert before in FILE
    with pytest.raises(NotPlain, match=message):
        translated(FILE.replace(before, after))


def test_a_reply_with_load_inline_becomes_a_version_with_raw_kernels() -> None:
    reply = f"```python\n{FILE}```"
    assert source_of(edit_request(), ChatReply(reply)).strip() == translated(FILE).strip()
    broken = reply.replace("    A = A.contiguous();", "    for (;;) {}")
    with pytest.raises(Unusable, match=r"a for, near .*make kernels with RawKernel"):
        source_of(edit_request(), ChatReply(broken))


def test_other_files_stay_as_they_are() -> None:
    for text in (
        "import torch\n",
        "# load_inline is not used\nimport torch\n",
        "x = 'load_inline('\n",
        "load_inline((",
    ):
        assert translated(text) == text
