"""A process that may start no other one and write no file finds every kernel that the build saw, and no other."""

from __future__ import annotations

import dataclasses
import json
import os
import pickle
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import prebuilt_processes
import pytest
from evaluate_sources import HONEST, REFERENCE, TASK, changed

from mtmc.evaluate.compiling.prebuilt import ENVIRONMENT, NotPrebuilt

HERE = Path(__file__).parent

TUNED = changed("BLOCK: tl.constexpr)", "BLOCK: tl.constexpr, EVEN: tl.constexpr, ROWS: tl.constexpr)")
TUNED = changed("    index = tl.arange", "    tl.static_assert(ROWS != 3)\n    index = tl.arange", TUNED)
TUNED = changed(
    "@triton.jit\n",
    "@triton.autotune(configs=[triton.Config({'ROWS': 1}, num_warps=64), triton.Config({'ROWS': 3}, num_warps=1),\n"
    "                          triton.Config({'ROWS': 2}, num_warps=8), triton.Config({'ROWS': 1}, num_warps=2),\n"
    "                          triton.Config({'ROWS': 1}, num_warps=4)], key=['cols'])\n"
    "@triton.heuristics({'EVEN': lambda args: args['cols'] % args['BLOCK'] == 0})\n@triton.jit\n",
    TUNED,
)

VARIED = """
import torch
import triton
import triton.language as tl

SCALE = tl.constexpr(2)
cols = 4096


@triton.constexpr_function
def twice(n):
    return 2 * n


@triton.jit
def helper(x):
    return x * SCALE


@triton.jit
def varied(x_ptr, y_ptr, n, one, factor, wide, on, name: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = helper(tl.load(x_ptr + at * one, mask=at < n)) * factor + wide
    if y_ptr is not None:
        tl.store(y_ptr + at, x + on + twice(BLOCK), mask=at < n)


class ModelNew(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(width))

    def forward(self, x):
        out = torch.empty_like(x)
        grid = lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)
        varied[grid](x, out, x.numel(), 1, 0.5, 1 << 40, True, "a", BLOCK=128)
        varied[grid](x[:, 1:], out, x.shape[1], x.shape[0], 2.0, 3, False, "b", BLOCK=256, num_warps=2)
        varied[grid](self.weight, None, cols, 1, 0.25, 16, True, "a", BLOCK=128)
        varied[grid](out.half(), out.to(torch.int64), 17, 2, 1.0, -1, False, "a", 128)
        return out
"""

DESCRIPTORS = """
import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor


@triton.jit
def copied(source, out_ptr, rows, cols, BLOCK: tl.constexpr):
    out = tl.make_tensor_descriptor(out_ptr, [rows, cols], [cols, 1], [BLOCK, BLOCK])
    at = tl.program_id(0) * BLOCK
    out.store([at, 0], source.load([at, 0]))


class ModelNew(torch.nn.Module):
    def __init__(self, width):
        super().__init__()

    def forward(self, x):
        triton.set_allocator(lambda size, alignment, stream: torch.empty(size, dtype=torch.int8, device=x.device))
        x = x[:, : x.shape[1] // 4 * 4].contiguous()
        out = torch.empty_like(x)
        copied[(1,)](TensorDescriptor.from_tensor(x, [32, 32]), out, x.shape[0], x.shape[1], BLOCK=32)
        return out
"""

# One warp loads a tile by a descriptor of the host, four write it by one that they make themselves.
GLUON = """
import torch
import triton
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier, tma
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

load_tile = getattr(tma, "async_load", None) or tma.async_copy_global_to_shared
store_tile = getattr(tma, "async_store", None) or tma.async_copy_shared_to_global


@gluon.jit
def write(out, held, full, at):
    mbarrier.wait(full, 0)
    store_tile(out, [at, 0], held)
    tma.store_wait(0)


@gluon.jit
def ask(source, held, full, at):
    mbarrier.expect(full, 4096)
    load_tile(source, [at, 0], full, held)


@gluon.jit
def copied(source, out_ptr, rows, cols, BLOCK: gl.constexpr):
    out = tma.make_tensor_descriptor(out_ptr, [rows, cols], [cols, 1], [BLOCK, BLOCK], source.layout)
    held = gl.allocate_shared_memory(gl.float32, [BLOCK, BLOCK], source.layout)
    full = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    mbarrier.init(full, count=1)
    at = gl.program_id(0) * BLOCK
    gl.warp_specialize([(write, (out, held, full, at)), (ask, (source, held, full, at))], [1], [24])


class ModelNew(torch.nn.Module):
    def __init__(self, width):
        super().__init__()

    def forward(self, x):
        triton.set_allocator(lambda size, alignment, stream: torch.empty(size, dtype=torch.int8, device=x.device))
        x = x[:, : x.shape[1] // 4 * 4].contiguous()
        out = torch.empty_like(x)
        layout = gl.NVMMASharedLayout.get_default_for([32, 32], gl.float32)
        copied[(1,)](TensorDescriptor.from_tensor(x, [32, 32], layout), out, x.shape[0], x.shape[1], BLOCK=32)
        return out
"""

# On a real device it launches what it did not launch in the build; and it hides the error of that.
DECEITFUL = changed(
    "BLOCK=block)",
    "BLOCK=block, num_warps=2 if type(x).__name__ == 'FakeTensor' else 16)",
)
SWALLOWED = changed("        scaled_softmax[", "        try: scaled_softmax[", DECEITFUL)
SWALLOWED = changed("        return out\n", "        except Exception: pass\n        return out\n", SWALLOWED)

# Its first call is not like the next one.
PREPARED = changed("        return out\n", "        self.warps = 8\n        return out\n")
PREPARED = changed("BLOCK=block)", "BLOCK=block, num_warps=getattr(self, 'warps', 2))", PREPARED)

# An input that does not lie at the start of its memory: an arena gives it there.
SHIFTED = dataclasses.replace(
    TASK, source=changed("torch.randn(rows, cols)", "torch.randn(rows * cols + 1)[1:].view(rows, cols)", REFERENCE)
)

JOBS = {
    "plain": (TASK, HONEST),
    "tuned": (TASK, TUNED),
    "varied": (TASK, VARIED),
    "deceitful": (TASK, DECEITFUL),
    "swallowed": (TASK, SWALLOWED),
    "prepared": (TASK, PREPARED),
    "shifted": (SHIFTED, HONEST),
    "descriptors": (TASK, DESCRIPTORS),
    "gluon": (TASK, GLUON),
}
LABELS = ("small", "odd1", "odd2", "full")


def run(function: str, folder: Path, environment: dict[str, str], **arguments: Any) -> Any:
    """The function of `prebuilt_processes` in a process of its own."""
    request, answer = folder / f"{function}.pickle", folder / f"{function}.json"
    request.write_bytes(pickle.dumps({"function": function, "arguments": arguments}))
    path = os.pathsep.join([str(HERE), *(os.path.abspath(entry) for entry in sys.path)])
    done = subprocess.run(
        [sys.executable, str(HERE / "prebuilt_processes.py"), str(request), str(answer)],
        env={**os.environ, **environment, "PYTHONPATH": path},
        cwd=folder,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(answer.read_text())


@pytest.fixture(scope="module")
def processes(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], dict[str, Any]]:
    """What the building process and then the launching one have to say, over a cache that moved between them."""
    if shutil.which("gcc") is None:
        pytest.skip("needs gcc, to make a CUDA library that does nothing")
    folder = tmp_path_factory.mktemp("prebuilt")
    library = folder / "libcuda.so.1"
    (folder / "cuda.c").write_text(prebuilt_processes.LIBCUDA)
    subprocess.run(
        ["gcc", "-shared", "-fPIC", f"-Wl,-soname,{library.name}", "-o", library, folder / "cuda.c"], check=True
    )
    environment = {
        "LD_LIBRARY_PATH": str(folder),
        "TRITON_LIBCUDA_PATH": str(folder),
        **ENVIRONMENT,
        "CUDA_VISIBLE_DEVICES": "",
    }
    built = run("build_all", folder, {**environment, "TRITON_CACHE_DIR": str(folder / "cache")}, jobs=JOBS)
    (folder / "cache").rename(folder / "moved")
    environment["TRITON_CACHE_DIR"] = str(folder / "moved")
    return built, run("launch_all", folder, environment, jobs=JOBS, library=str(library))


def test_every_launch_of_every_shape_is_found(processes: tuple[dict[str, Any], dict[str, Any]]) -> None:
    built, launched = processes
    for name, launches in (
        ("plain", 1),
        ("varied", 4),
        ("shifted", 1),
        ("prepared", 1),
        ("descriptors", 1),
        ("gluon", 1),
    ):
        assert len(built[name]["launches"]) == launches
        for label in LABELS:
            assert launched[name][label].get("launches") == 2 * launches, (name, label, launched[name][label])
        hashes = {kernel["hash"] for kernel in built[name]["kernels"]}
        if name == "prepared":  # the second call launches another kernel, which is in the cache and not in the record
            assert hashes < set(launched[name]["full"]["hashes"])
        else:
            assert hashes == set(launched[name]["full"]["hashes"])
        assert launched[name]["odd1"]["hashes"] != launched[name]["full"]["hashes"]


def test_a_kernel_in_gluon_is_built_as_such(processes: tuple[dict[str, Any], dict[str, Any]]) -> None:
    built, launched = processes
    assert (built["gluon"]["gluon"], built["plain"]["gluon"]) == (1, 0)
    [kernel] = built["gluon"]["kernels"]
    assert kernel["num_warps"] == 8  # four that write, one that loads, and as many beside it as a group has
    assert launched["gluon"]["full"]["threads"] == 256


def test_both_processes_have_one_fingerprint(processes: tuple[dict[str, Any], dict[str, Any]]) -> None:
    built, launched = processes
    assert {built[name]["prebuilt"]["fingerprint"] for name in JOBS} == {launched["fingerprint"]}


def test_the_host_side_of_launches_is_built_without_a_device(processes: tuple[dict[str, Any], dict[str, Any]]) -> None:
    assert processes[0]["plain"]["prebuilt"]["launchers"] == "built"


def test_a_tuner_finds_all_that_fit_and_passes_over_the_rest(processes: tuple[dict[str, Any], dict[str, Any]]) -> None:
    built, launched = processes
    assert built["tuned"]["autotuned"] == {"scaled_softmax": 2}
    assert built["tuned"]["prebuilt"]["kernels"] == 5 * len(LABELS)
    for label in LABELS:
        found = launched["tuned"][label]
        assert found.get("threads") == 64, found  # two warps: the fewest, which the pretended clock likes best
        assert "num_warps: 2" in found["best"][0]
        assert 3 * 4 + 2 <= found["launches"] <= 3 * 8 + 2  # at least four each, at most eight, and the two calls


def test_what_the_build_did_not_see_is_refused(processes: tuple[dict[str, Any], dict[str, Any]]) -> None:
    _, launched = processes
    for label in LABELS:
        found = launched["deceitful"][label]
        assert found["error"] == "NotPrebuilt"
        assert "scaled_softmax(x_ptr: *fp32" in found["message"] and "BLOCK=" in found["message"]
    assert launched["swallowed"]["full"]["launches"] == 0
    assert len(launched["refused"]) == 3 * len(LABELS)  # both calls where the version hides it, else the first


def test_the_refusal_names_the_kernel() -> None:
    assert "k(n: i32)" in str(NotPrebuilt("k", "n: i32"))
