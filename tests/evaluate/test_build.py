"""The build compiles what a forward launches, at the full shapes, and blames the right line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import evaluate_jobs
import pytest
import torch
from evaluate_sources import HONEST, TASK, changed, line_of
from torch._subclasses.fake_tensor import FakeTensor

from mtmc.evaluate.audit.diagnosis import Failure
from mtmc.evaluate.compiling import build as compiling
from mtmc.evaluate.compiling.build import Built
from mtmc.evaluate.compiling.launched import Layout
from mtmc.evaluate.estimates.resources import read_resources
from mtmc.evaluate.loading.fake import FakeMode, constructed
from mtmc.evaluate.pool.worker import Pool
from mtmc.outcome import Diagnosis


def build(pool: Pool, source: str, target: str = "sm_90") -> Any:
    """A `Built`, or a `Failure`."""
    result = pool.run(compiling.build, {"task": TASK, "source": source, "target_name": target})
    assert result.status == "ok", result
    return result.value


def build_for_gpu(pool: Pool, source: str) -> Any:
    arguments = {"task": TASK, "source": source, "target_name": "sm_90", "variants": TASK.variants, "for_gpu": True}
    result = pool.run(compiling.build, arguments)
    assert result.status == "ok", result
    return result.value


def failure(pool: Pool, source: str) -> Diagnosis:
    found = build(pool, source)
    assert isinstance(found, Failure) and found.status == "build_error"
    return found.diagnosis


def test_launches_and_kernels_of_an_honest_version(build_pool: Pool) -> None:
    built = build(build_pool, HONEST)
    (launch,), (kernel,) = built.launches, built.kernels
    assert launch.kernel == "scaled_softmax" and launch.grid == (256, 1, 1)
    x = Layout("float32", (256, 4096), (4096, 1), 0)
    assert launch.arguments["x_ptr"] == x and launch.arguments["cols"] == 4096
    assert launch.constexprs == {"BLOCK": 4096}
    assert kernel.line == line_of("def scaled_softmax", HONEST)
    assert kernel.num_warps == 4 and 0 < kernel.shared < 1024
    assert Path(kernel.files["cubin"]).read_bytes()[:4] == b"\x7fELF"


def test_each_specialization_is_compiled_once(build_pool: Pool) -> None:
    twice = changed(
        "        return out\n",
        "        scaled_softmax[(3,)](x, self.weight, out, x.shape[1], BLOCK=block)\n"
        "        scaled_softmax[(3,)](x, self.weight, out, 17, BLOCK=32)\n        return out\n",
    )
    built = build(build_pool, twice)
    assert [launch.compiled for launch in built.launches] == [0, 0, 1]
    assert len(built.kernels) == 2


def test_a_kernel_that_only_moved_in_its_file_is_not_compiled_again(build_pool: Pool) -> None:
    first = build(build_pool, HONEST).kernels[0]
    moved = build(build_pool, "# a remark\n# and another\n" + HONEST).kernels[0]
    assert moved.hash == first.hash and moved.line == first.line + 2


def test_compile_error_has_its_line(build_pool: Pool) -> None:
    source = changed("value = tl.exp(", "value = tl.expo(")
    diagnosis = failure(build_pool, source)
    assert diagnosis.kind == "CompilationError" and "expo" in diagnosis.message
    assert diagnosis.line == line_of("tl.expo", source)
    assert "> " in diagnosis.excerpt and "tl.expo" in diagnosis.excerpt


def test_compile_error_in_a_device_function_has_its_line(build_pool: Pool) -> None:
    helper = "@triton.jit\ndef shifted(value):\n    return value - tl.max(value, axis=7)\n\n\n"
    source = changed("@triton.jit\n", helper + "@triton.jit\n")
    source = changed("value - tl.max(value, axis=0)", "shifted(value)", source)
    diagnosis = failure(build_pool, source)
    assert diagnosis.line == line_of("axis=7", source) and "axis 7" in diagnosis.message


def test_too_much_shared_memory_is_a_lack_of_resources(build_pool: Pool) -> None:
    kernel = (
        "    i, acc = tl.arange(0, 128), tl.zeros((128, 128), tl.float32)\n"
        "    for k in range(0, cols, 64):\n"
        "        a = tl.load(x_ptr + i[:, None] * cols + k + tl.arange(0, 64)[None, :])\n"
        "        b = tl.load(w_ptr + (k + tl.arange(0, 64))[:, None] * cols + i[None, :])\n"
        "        acc = tl.dot(a, b, acc)\n"
        "    tl.store(out_ptr + i[:, None] * cols + i[None, :], acc)\n"
    )
    source = changed("    index = tl.arange(0, BLOCK)\n", kernel + "    index = tl.arange(0, BLOCK)\n")
    source = changed("BLOCK=block)", "BLOCK=block, num_stages=6)", source)
    diagnosis = failure(build_pool, source)
    assert diagnosis.kind == "OutOfResources"
    assert "shared memory" in diagnosis.message and "232448" in diagnosis.message
    assert diagnosis.line == line_of("def scaled_softmax", source)


def test_too_many_threads_are_a_lack_of_resources(build_pool: Pool) -> None:
    diagnosis = failure(build_pool, changed("BLOCK=block)", "BLOCK=block, num_warps=64)"))
    assert diagnosis.kind == "OutOfResources" and "threads" in diagnosis.message


def test_reading_a_value_on_the_host_is_explained(build_pool: Pool) -> None:
    source = changed("        return out\n", "        return out * float(out.sum().item())\n")
    diagnosis = failure(build_pool, source)
    assert diagnosis.kind == "DataDependent" and diagnosis.line == line_of(".item()", source)


@pytest.mark.parametrize(
    ("old", "new", "kind"),
    [
        ("import torch\n", "import torch\nfrom torch import nothing_like_it\n", "ImportError"),
        ("torch.randn(width)", "torch.randn(width, -1)", "RuntimeError"),
        ("torch.empty_like(x)", "torch.empty_like(y)", "NameError"),
        ("x.shape[1], BLOCK=block)", "x.shape[1], x.shape[1], BLOCK=block)", "TypeError"),
        ("BLOCK=block)", "BLOCK=block, BLOCKS=3)", "KeyError"),
        ("[(x.shape[0],)]", "[(1, x.shape[0] * 256)]", "ValueError"),  # more than a GPU takes on that axis
    ],
)
def test_host_errors_are_build_errors_with_their_line(build_pool: Pool, old: str, new: str, kind: str) -> None:
    source = changed(old, new, HONEST) if HONEST.count(old) == 1 else HONEST.replace(old, new, 1)
    diagnosis = failure(build_pool, source)
    assert diagnosis.kind == kind and diagnosis.line is not None
    assert new.strip().splitlines()[-1][:10] in source.splitlines()[diagnosis.line - 1] or kind == "TypeError"


def test_first_configuration_that_fits_is_taken(build_pool: Pool) -> None:
    tuned = (
        "@triton.autotune(configs=[triton.Config({'ROWS': 1}, num_warps=64), triton.Config({'ROWS': 1}, num_warps=8),\n"
        "                          triton.Config({'ROWS': 1}, num_warps=4)], key=['cols'])\n"
        "@triton.heuristics({'EVEN': lambda args: args['cols'] % args['BLOCK'] == 0})\n@triton.jit\n"
    )
    source = changed("@triton.jit\n", tuned)
    source = changed("BLOCK: tl.constexpr)", "BLOCK: tl.constexpr, EVEN: tl.constexpr, ROWS: tl.constexpr)", source)
    built = build(build_pool, source)
    assert built.autotuned == {"scaled_softmax": 1}
    assert built.kernels[0].num_warps == 8
    assert built.launches[0].constexprs == {"BLOCK": 4096, "EVEN": True, "ROWS": 1}


def test_a_gpu_gets_the_kernels_of_all_shapes_and_the_record_of_the_full_ones(build_pool: Pool) -> None:
    built = build_for_gpu(build_pool, HONEST)
    plain = build(build_pool, HONEST)
    assert built.kernels == plain.kernels and built.prebuilt.kernels == len(TASK.variants)
    assert built.launches == plain.launches
    note = built.prebuilt.launchers
    assert note == "built" or "no CUDA driver to link with" in note


def test_a_gpu_gets_all_configurations_that_compile(build_pool: Pool) -> None:
    tuned = (
        "@triton.autotune(configs=[triton.Config({'ROWS': 1}, num_warps=64), triton.Config({'ROWS': 3}, num_warps=8),\n"
        "                          triton.Config({'ROWS': 1}, num_warps=4)], key=['cols'])\n@triton.jit\n"
    )
    source = changed("@triton.jit\n", tuned)
    source = changed("BLOCK: tl.constexpr)", "BLOCK: tl.constexpr, ROWS: tl.constexpr)", source)
    source = changed("    index = tl.arange", "    tl.static_assert(ROWS != 3)\n    index = tl.arange", source)
    built = build_for_gpu(build_pool, source)
    assert built.autotuned == {"scaled_softmax": 2} and len(built.launches) == 1
    assert built.kernels[0].num_warps == 4
    assert built.prebuilt.kernels == 3 * len(TASK.variants)
    none = build_for_gpu(build_pool, changed("num_warps=4", "num_warps=128", source))
    assert none.diagnosis.kind == "OutOfResources"


@pytest.mark.parametrize(
    ("old", "new", "kind", "blamed"),
    [
        ("value = tl.exp(", "value = tl.expo(", "CompilationError", "tl.expo"),
        ("BLOCK=block)", "BLOCK=block, num_warps=64)", "OutOfResources", "def scaled_softmax"),
        ("BLOCK=block)", "BLOCK=block if x.shape[1] > 80 else 77)", "CompilationError", "tl.arange"),
        ("        return out\n", "        assert x.shape[1] != 130\n        return out\n", "AssertionError", "!= 130"),
        ("        return out\n", "        return out * float(out.sum().item())\n", "DataDependent", ".item()"),
    ],
)
def test_what_does_not_build_for_a_gpu_is_blamed_as_in_the_lab(
    build_pool: Pool, old: str, new: str, kind: str, blamed: str
) -> None:
    source = changed(old, new)
    diagnosis = build_for_gpu(build_pool, source).diagnosis
    assert diagnosis.kind == kind and diagnosis.line == line_of(blamed, source)
    odd = {"77": "odd1", "130": "odd2"}
    assert all((f"at the {label} shapes" in diagnosis.message) == (text in new) for text, label in odd.items())


STREAMS = """        s = torch.cuda.Stream()
        s.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(s), torch.cuda.device(0):
            x = x.contiguous()
            x.record_stream(s)
        event = torch.cuda.Event(enable_timing=True)
        event.record(s)
        torch.cuda.current_stream().wait_event(event)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            out = torch.empty_like(x)
            scaled_softmax[(x.shape[0],)](x, self.weight, out, x.shape[1], BLOCK=32)
        graph.replay()
        assert torch.cuda.is_bf16_supported() and torch.cuda.device_count() == 1
"""


def test_streams_events_and_graphs_do_no_harm(build_pool: Pool) -> None:
    source = changed("        out = torch.empty_like(x)\n", STREAMS + "        out = torch.empty_like(x)\n")
    assert [launch.constexprs["BLOCK"] for launch in build_for_gpu(build_pool, source).launches] == [32, 4096]


def test_a_forward_that_times_itself_is_told_so(build_pool: Pool) -> None:
    timing = "        a = torch.cuda.Event(enable_timing=True); a.record(); a.elapsed_time(a)\n"
    source = changed("        out = torch.empty_like(x)\n", timing + "        out = torch.empty_like(x)\n")
    diagnosis = build_for_gpu(build_pool, source).diagnosis
    assert "its own timing" in diagnosis.message and diagnosis.line == line_of("elapsed_time", source)


def test_tensors_are_on_a_gpu_where_torch_can_have_them_there(build_pool: Pool) -> None:
    if torch.version.cuda is None:
        assert build_for_gpu(build_pool, HONEST).prebuilt.device == "cpu"
        return
    lines = (
        "        out = torch.empty(x.shape, device='cuda')\n"
        "        assert x.is_cuda and torch.cuda.is_available() and self.weight.is_cuda\n"
        "        part = x[:, None][1:].to('cpu').cuda().transpose(0, 1).contiguous()\n"
        "        more = torch.nn.Linear(8, 8).to('cuda').half()(torch.zeros(4, 8, device='cuda').half())\n"
        "        last = torch.nn.LSTM(8, 8).cuda()(torch.zeros(4, 2, 8, device='cuda'))[0]\n"
        "        assert all(t.is_cuda for t in (out, part, more, last))\n"
    )
    built = build_for_gpu(build_pool, changed("        out = torch.empty_like(x)\n", lines))
    assert built.prebuilt.device == "cuda:0" and len(built.launches) == 1
    source = changed("x, self.weight, out", "x, self.weight.cpu(), out")
    diagnosis = build_for_gpu(build_pool, source).diagnosis
    assert diagnosis.kind == "ValueError" and "w_ptr" in diagnosis.message


def test_registers_of_a_kernel_are_known_before_its_launch(build_pool: Pool) -> None:
    handle = "k = scaled_softmax.warmup(x, self.weight, out, x.shape[1], BLOCK=block, grid=(1,)); k._init_handles()\n"
    source = changed("        scaled_softmax[(x.shape[0],)]", f"        {handle}        scaled_softmax[(k.n_regs,)]")
    for built in (build(build_pool, source), build_for_gpu(build_pool, source)):
        binary = Path(built.kernels[0].files["cubin"]).read_bytes()
        assert built.launches[0].grid == (read_resources(binary, "sm_90", mix=False).registers, 1, 1)


def test_grid_function_and_misaligned_argument(build_pool: Pool) -> None:
    source = changed(
        "scaled_softmax[(x.shape[0],)](x, self.weight",
        "scaled_softmax[lambda meta: (meta['cols'] // 2, 3)](x[:, 1:], self.weight",
    )
    launch = build(build_pool, source).launches[0]
    assert launch.grid == (2048, 3, 1) and launch.arguments["x_ptr"].offset == 1


def test_device_questions_are_answered_for_the_target(build_pool: Pool) -> None:
    count = "torch.cuda.get_device_properties(x.device).multi_processor_count"
    launch = build(build_pool, changed("scaled_softmax[(x.shape[0],)]", f"scaled_softmax[({count},)]")).launches[0]
    assert launch.grid == (132, 1, 1)


@pytest.mark.parametrize(("target", "extension"), [("sm_80", "cubin"), ("sm_100", "cubin"), ("gfx942", "hsaco")])
def test_other_targets(build_pool: Pool, target: str, extension: str) -> None:
    arguments = {"task": TASK, "source": HONEST, "target_name": target}
    kernel = build_pool.run(evaluate_jobs.build_for, arguments).value.kernels[0]
    assert Path(kernel.files[extension]).stat().st_size > 1000
    assert kernel.warp_size == (64 if target == "gfx942" else 32)


COPYING = """
import copy
import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        layer = nn.Linear(width, 8)
        self.layers = nn.ModuleList(copy.deepcopy(layer) for _ in range(2))
        self.decays = READ
        self.register_buffer("scale", torch.ones(8))
        self.first, self.plain = self.layers[0], self.layers[1].weight * 2

    def forward(self, x):
        return self.layers[1](x) * self.scale + self.first(x) + x @ self.plain.t()
"""


@pytest.mark.parametrize("read", ["1.0", "[x.item() for x in torch.linspace(0, 1, 3)]", "torch.ones(3).nonzero()"])
def test_a_constructor_may_copy_layers_and_read_numbers_out_of_tensors(build_pool: Pool, read: str) -> None:
    source = COPYING.replace("READ", read)
    assert build(build_pool, source) == Built((), (), {})
    assert build_for_gpu(build_pool, source).launches == ()


def test_a_forward_that_reads_numbers_is_refused_however_it_was_constructed(build_pool: Pool) -> None:
    source = COPYING.replace("READ", "float(torch.ones(2).sum())")
    source = source.replace("* self.scale", "* self.scale.sum().item()")
    assert failure(build_pool, source).kind == "DataDependent"


def test_parameters_and_what_is_shared_stay_so_without_their_data() -> None:
    class Tied(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.left, self.right = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4, dtype=torch.bfloat16)
            self.right.weight = self.left.weight
            self.register_buffer("places", torch.arange(6).view(2, 3).t())
            self.register_buffer("nothing", None)
            self.decay = torch.ones(2).sum().item()

    with FakeMode():
        model = constructed(Tied, Tied, "cpu")
    assert model.decay == 2.0 and model.nothing is None
    assert all(isinstance(each, FakeTensor) for each in [*model.parameters(), *model.buffers()])
    assert model.right.weight is model.left.weight and len(list(model.parameters())) == 3
    assert model.right.bias.dtype == torch.bfloat16
    assert (model.places.shape, model.places.stride(), model.places.dtype) == ((3, 2), (1, 3), torch.int64)
