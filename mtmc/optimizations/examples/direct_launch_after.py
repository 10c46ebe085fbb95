# ruff: noqa: N803
"""What was compiled for arguments of a kind is remembered, and launched as it is."""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def rms_kernel(x_ptr, out_ptr, width, BLOCK: tl.constexpr):
    row, cols = tl.program_id(0), tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * width + cols, mask=cols < width, other=0.0)
    tl.store(out_ptr + row, tl.sqrt(tl.sum(x * x) / width))


class DirectLaunches:
    """Of one kernel. Types, addresses in multiples of 16 or not, numbers and options are what a kernel is compiled for."""

    def __init__(self, launched, constants):
        self.launched, self.constants, self.known = launched, constants, {}

    def __getitem__(self, grid):
        def launch(*given, **options):
            kinds = [(x.dtype, x.data_ptr() % 16) if isinstance(x, torch.Tensor) else x for x in given]
            key = (given[0].get_device(), *kinds, *options.values())
            if key in self.known:
                compiled, constants = self.known[key]
                return compiled[(*grid, 1, 1)[:3]](*given, *constants)
            compiled = self.launched(grid, *given, **options)
            if getattr(compiled, "module", None) is not None:  # it is loaded: there is a GPU
                self.known[key] = compiled, [options[name] for name in self.constants]
            return compiled

        return launch


rms_directly = DirectLaunches(lambda grid, *given, **options: rms_kernel[grid](*given, **options), ("BLOCK",))


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty(x.shape[0], device=x.device, dtype=x.dtype)
        rms_directly[(x.shape[0],)](x, out, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]), num_warps=4)
        return out
