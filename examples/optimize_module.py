"""A live module in, a drop-in module out: `mtmc.optimize`.

What comes back is an nn.Sequential like the one that was given. Without a GPU kernels cannot be launched, so it says so
once and uses the original's forward.

    python examples/optimize_module.py
"""

from __future__ import annotations

import torch
from torch import nn

import mtmc


def main() -> None:
    model = nn.Sequential(nn.LayerNorm(256), nn.Linear(256, 512), nn.GELU()).eval()
    x = torch.randn(64, 256)
    faster = mtmc.optimize(model, x, budget=6)
    with torch.no_grad():
        assert torch.allclose(faster(x), model(x), atol=1e-4)
    found = faster.mtmc.found
    print(f"{found.speedup:.2f}x ({found.runtime_kind}); the result is the same as the original's")


if __name__ == "__main__":
    main()
