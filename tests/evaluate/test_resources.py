"""Registers, spills, shared memory and instructions of kernels that are really compiled (in a process of their own)."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from mtmc.errors import EvaluatorError
from mtmc.evaluate.estimates.resources import count_gcn, count_sass, read_resources

COMPILE = """
import base64, json, sys
import torch, triton
import triton.language as tl
from mtmc.evaluate.compiling.target import install_driver, target

@triton.jit
def copy(x, y, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    values = tl.load(x + offsets, mask=offsets < n)
    tl.store(y + offsets, values * tl.sum(values, 0), mask=offsets < n)

@triton.jit
def product(x, y, z, BLOCK: tl.constexpr):
    row = tl.arange(0, BLOCK)[:, None] * BLOCK + tl.arange(0, BLOCK)[None, :]
    tl.store(z + row, tl.dot(tl.load(x + row), tl.load(y + row)))

@triton.jit
def looped(x, y, z, n, BLOCK: tl.constexpr):
    rows = tl.arange(0, BLOCK)[:, None]
    total = tl.zeros([BLOCK, BLOCK], tl.float32)
    for start in range(0, n, 32):
        ks = start + tl.arange(0, 32)
        left = tl.load(x + rows * n + ks[None, :])
        total = tl.dot(left, tl.load(y + ks[:, None] * BLOCK + tl.arange(0, BLOCK)[None, :]), total)
    tl.store(z + rows * BLOCK + tl.arange(0, BLOCK)[None, :], total)

out = {}
def build(name, kernel, extension, arguments, **options):
    compiled = kernel.warmup(*arguments, grid=(1,), **options)
    binary = compiled.asm[extension]
    binary = binary if isinstance(binary, bytes) else binary.encode()
    out[name] = [base64.b64encode(binary).decode(), compiled.metadata.shared]

install_driver(target("sm_90"), 132)
build("copy", copy, "cubin", (torch.float32, torch.float32, 4096), BLOCK=1024, num_warps=4)
build("spilling", copy, "cubin", (torch.float32, torch.float32, 16384), BLOCK=16384, num_warps=1)
build("product", product, "cubin", (torch.float16, torch.float16, torch.float32), BLOCK=64, num_warps=4)
build("looped", looped, "cubin", (torch.float16, torch.float16, torch.float32, 4096), BLOCK=64, num_warps=4)
install_driver(target("gfx942"), 304)
copy = triton.jit(copy.fn)  # a jitted function keeps to its first target
build("amd text", copy, "amdgcn", (torch.float32, torch.float32, 4096), BLOCK=1024, num_warps=4)
build("amd object", copy, "hsaco", (torch.float32, torch.float32, 4096), BLOCK=1024, num_warps=4)
print(json.dumps(out))
"""


@pytest.fixture(scope="module")
def binaries(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[bytes, int]]:
    """Compiled kernels by name, each with the shared memory that Triton states."""
    script = tmp_path_factory.mktemp("kernels") / "compile.py"
    script.write_text(COMPILE)
    root = str(Path(__file__).parents[2])
    done = subprocess.run(
        [sys.executable, str(script)],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "PYTHONPATH": root, "TRITON_CACHE_DIR": str(script.parent), "TRITON_INTERPRET": "0"},
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return {name: (base64.b64decode(data), shared) for name, (data, shared) in json.loads(done.stdout).items()}


def take(binaries: dict[str, tuple[bytes, int]], name: str) -> tuple[bytes, str, int]:
    binary, shared = binaries[name]
    return binary, "sm_90", shared


def test_cubin_of_an_elementwise_kernel(binaries: dict[str, tuple[bytes, int]]) -> None:
    binary, shared = binaries["copy"]
    found = read_resources(binary, "sm_90", shared)
    assert 8 <= found.registers <= 64
    assert found.spill_bytes == 0
    assert found.shared_bytes == shared == 16  # one float a warp, to sum over the 4 warps
    # 1024 elements by 128 threads: 8 a thread, 4 of them in each 16-byte load and store.
    assert (found.instruction_mix["LDG.128"], found.instruction_mix["STG.128"]) == (2, 2)
    assert found.instruction_mix["EXIT"] >= 1
    assert "NOP" not in found.instruction_mix


def test_cubin_that_spills(binaries: dict[str, tuple[bytes, int]]) -> None:
    """512 values a thread do not fit 255 registers."""
    found = read_resources(binaries["spilling"][0], "sm_90")
    assert found.spill_bytes >= 4 * (512 - 255)
    assert found.instruction_mix["LDL.32"] + found.instruction_mix.get("LDL.64", 0) > 0


def test_cubin_of_a_product_uses_the_tensor_cores(binaries: dict[str, tuple[bytes, int]]) -> None:
    binary, shared = binaries["product"]
    found = read_resources(binary, "sm_90", shared)
    assert found.instruction_mix.get("HGMMA", 0) + found.instruction_mix.get("HMMA", 0) > 0
    assert found.shared_bytes == shared >= 64 * 64 * 2


def test_loop_of_products(binaries: dict[str, tuple[bytes, int]]) -> None:
    """4 warps multiply 64 x 64 x 32 in a turn, and share its flops."""
    loop = read_resources(*take(binaries, "looped")).loop
    assert loop is not None
    assert loop.tensor_flops == 2 * 64 * 64 * 32 / 4
    assert 10 < loop.issued < 400
    assert loop.shared_clocks > 0
    assert read_resources(*take(binaries, "copy")).loop is None


def test_spilled_words_are_read_without_the_mix_too(binaries: dict[str, tuple[bytes, int]]) -> None:
    """Each of the words that do not fit is stored and loaded."""
    found = read_resources(binaries["spilling"][0], "sm_90", mix=False)
    assert found.local is not None
    assert found.local.outside >= 2 * found.spill_bytes / 4
    assert found.local.inside == 0
    assert read_resources(binaries["copy"][0], "sm_90").local is None


def test_mix_can_be_left_out(binaries: dict[str, tuple[bytes, int]]) -> None:
    found = read_resources(binaries["copy"][0], "sm_90", mix=False)
    assert found.instruction_mix == {}
    assert found.registers == read_resources(binaries["copy"][0], "sm_90").registers
    assert found.shared_bytes == 0  # dynamic shared memory is not in the cubin


def test_amd_text_and_object_agree(binaries: dict[str, tuple[bytes, int]]) -> None:
    text, shared = binaries["amd text"]
    by_text = read_resources(text, "gfx942", shared)
    by_object = read_resources(binaries["amd object"][0], "gfx942", shared)
    assert 4 <= by_text.registers == by_object.registers <= 128
    assert by_text.spill_bytes == by_object.spill_bytes == 0
    assert by_text.shared_bytes == shared
    assert by_text.instruction_mix["s_endpgm"] == 1
    assert by_object.instruction_mix == {}


def test_sass_is_counted_by_opcode_and_width() -> None:
    code = """
        /*0000*/                   LDC R1, c[0x0][0x28] ;                    /* 0x00000a00ff017b82 */
                                                                             /* 0x000e300000000800 */
        /*0010*/              @!P0 LDG.E.128 R4, desc[UR4][R2.64] ;          /* 0x0000000402048981 */
        /*0020*/               @P1 LDG.E R4, desc[UR4][R2.64] ;              /* 0x0000000402048981 */
        /*0030*/                   LDG.E.U16 R4, desc[UR4][R2.64] ;          /* 0x0000000402048981 */
        /*0040*/                   HGMMA.64x64x8.F32.TF32 R24, R24, gdesc ;  /* 0x0000000402048981 */
        /*0050*/              @UP0 LDGSTS.E.BYPASS.128 [R1], desc ;          /* 0x0000000402048981 */
        /*0060*/                   NOP ;                                     /* 0x0000000402048981 */
        /*1070*/                   FFMA.FTZ R1, R2, R3, R4 ;                 /* 0x0000000402048981 */
"""
    expected = {"FFMA": 1, "HGMMA": 1, "LDC": 1, "LDG.128": 1, "LDG.16": 1, "LDG.32": 1, "LDGSTS.128": 1}
    assert count_sass(code) == expected


def test_gcn_is_counted_by_mnemonic() -> None:
    code = "kernel:\n\tv_add_f32_e32 v1, v2, v3\n\tv_add_f32_e32 v1, v2, v3\n\ts_endpgm\n\t.end_amdhsa_kernel\n"
    assert count_gcn(code) == {"s_endpgm": 1, "v_add_f32_e32": 2}


def test_amd_metadata_in_text() -> None:
    text = "\n    .group_segment_fixed_size: 512\n    .private_segment_fixed_size: 64\n    .vgpr_count:     31\n"
    found = read_resources(text.encode(), "gfx942")
    assert (found.registers, found.spill_bytes, found.shared_bytes) == (31, 64, 512)


@pytest.mark.parametrize(("binary", "target"), [(b"not a cubin", "sm_90"), (b"not a kernel", "gfx942")])
def test_what_is_no_kernel_is_refused(binary: bytes, target: str) -> None:
    with pytest.raises(EvaluatorError, match=r"cuobjdump|amdgcn"):
        read_resources(binary, target)


def test_unknown_target_is_refused() -> None:
    with pytest.raises(EvaluatorError, match="metal3"):
        read_resources(b"", "metal3")
