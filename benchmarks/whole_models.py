"""Whole models on a GPU: kernels for the submodules that take the time, the whole beside eager and torch.compile.

    PYTHONPATH=. python benchmarks/whole_models.py --seconds 500 --out results/whole_models

Three models with random weights in bfloat16: a Hugging Face decoder (transformers), a vision transformer (timm; without it
one of torch alone), a residual and attention block of a UNet (diffusers; without it one of torch alone). For each, what
`mtmc.optimize` says of it; of one that is searched in pieces (`--pieces`, or too large for one search) that is a table: per
piece its share of the time, speedup and places. Then the whole in a plain loop, each in turn: eager, under torch.compile in
both modes (`--loops` names others), and as it was handed back. The time is divided among the models, or with `--together`
each is searched by a process of its own at the same time, and the loops come afterwards. What is not installed is named in
the report.
"""

from __future__ import annotations

import sys
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from importlib import metadata
from typing import Any

import torch
from torch import nn

from benchmarks.common import Report, parser, settings_of
from benchmarks.turns import Turns, together
from mtmc.dropin.compiled import MODES
from mtmc.errors import MtmcError
from mtmc.search import Budget
from mtmc.whole import Record, WholeSettings, optimize
from mtmc.whole.timing import compare_on_gpu

DTYPE = torch.bfloat16
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
COMPARE_S = 8.0
"""Of one comparison of whole models."""
RESERVE = 0.35
"""Of a model's time, what is left for comparing the whole, compilers included."""


@dataclass(frozen=True)
class Model:
    """make: the model and the positional and keyword arguments of one call, on the CPU. note: what stands in for what."""

    name: str
    make: Callable[[], tuple[nn.Module, tuple[Any, ...], dict[str, Any]]]
    note: str = ""


def llama(layers: int) -> Model:
    """A decoder of Llama's kind, 16 heads of 128, 1024 tokens."""

    def make() -> tuple[nn.Module, tuple[Any, ...], dict[str, Any]]:
        from transformers import LlamaConfig, LlamaForCausalLM

        config = LlamaConfig(
            hidden_size=2048, intermediate_size=5632, num_hidden_layers=layers, num_attention_heads=16,
            num_key_value_heads=8, vocab_size=32000, max_position_embeddings=2048,
        )  # fmt: skip
        return LlamaForCausalLM(config), (), {"input_ids": torch.randint(0, 32000, (1, 1024)), "use_cache": False}

    return Model(f"Llama, {layers} layers", make)


class Block(nn.Module):
    """A layer of a vision transformer, as timm writes it."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width, eps=1e-6), nn.LayerNorm(width, eps=1e-6)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.fc1, self.fc2 = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        qkv = self.qkv(self.norm1(x)).reshape(batch, length, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        mixed = nn.functional.scaled_dot_product_attention(qkv[0], qkv[1], qkv[2])
        x = x + self.proj(mixed.transpose(1, 2).reshape(batch, length, width))
        return x + self.fc2(nn.functional.gelu(self.fc1(self.norm2(x))))


class VisionTransformer(nn.Module):
    """ViT-S/16 of torch alone."""

    def __init__(self, width: int = 384, layers: int = 12, heads: int = 6) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, 16, 16)
        self.position = nn.Parameter(torch.randn(1, 196, width) * 0.02)
        self.blocks = nn.ModuleList([Block(width, heads) for _ in range(layers)])
        self.norm, self.head = nn.LayerNorm(width, eps=1e-6), nn.Linear(width, 1000)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.patches(x).flatten(2).transpose(1, 2) + self.position
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x).mean(1))


def vision() -> Model:
    """timm's ViT-S/16 at 224, 32 images; else that of transformers, else one of torch alone."""
    images = torch.randn(32, 3, 224, 224)

    def of_timm() -> tuple[nn.Module, tuple[Any, ...], dict[str, Any]]:
        import timm

        return timm.create_model("vit_small_patch16_224", pretrained=False), (images,), {}

    def of_transformers() -> tuple[nn.Module, tuple[Any, ...], dict[str, Any]]:
        from transformers import ViTConfig, ViTForImageClassification

        config = ViTConfig(hidden_size=384, num_hidden_layers=12, num_attention_heads=6, intermediate_size=1536)
        return ViTForImageClassification(config), (), {"pixel_values": images}

    if installed("timm"):
        return Model("timm ViT-S/16", of_timm)
    if installed("transformers"):
        return Model("transformers ViT-S/16", of_transformers, "timm cannot be imported: the one of transformers")
    return Model(
        "ViT-S/16", lambda: (VisionTransformer(), (images,), {}), "timm cannot be imported: one of torch alone"
    )


class Residual(nn.Module):
    """A residual block of a UNet."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.GroupNorm(32, channels), nn.GroupNorm(32, channels)
        self.conv1 = nn.Conv2d(channels, channels, 3, padding=1)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1)
        self.time = nn.Linear(1280, channels)

    def forward(self, x: torch.Tensor, time: torch.Tensor) -> torch.Tensor:
        y = self.conv1(nn.functional.silu(self.norm1(x)))
        y = y + self.time(nn.functional.silu(time))[:, :, None, None]
        return x + self.conv2(nn.functional.silu(self.norm2(y)))


class UNetBlock(nn.Module):
    """Residual and attention blocks in turn, as in the downward path of a UNet."""

    def __init__(self, channels: int = 640, depth: int = 3) -> None:
        super().__init__()
        self.residuals = nn.ModuleList([Residual(channels) for _ in range(depth)])
        self.attentions = nn.ModuleList([Block(channels, 10) for _ in range(depth)])

    def forward(self, x: torch.Tensor, time: torch.Tensor) -> torch.Tensor:
        for residual, attention in zip(self.residuals, self.attentions, strict=True):
            x = residual(x, time)
            rows = x.flatten(2).transpose(1, 2)
            x = attention(rows).transpose(1, 2).reshape(x.shape)
        return x


def unet() -> Model:
    """A downward block with cross attention of Stable Diffusion's UNet, 640 channels at 32 x 32."""
    if not installed("diffusers"):
        inputs = (torch.randn(2, 640, 32, 32), torch.randn(2, 1280))
        return Model(
            "UNet block", lambda: (UNetBlock(), inputs, {}), "diffusers cannot be imported: one of torch alone"
        )

    def make() -> tuple[nn.Module, tuple[Any, ...], dict[str, Any]]:
        from diffusers.models.unets.unet_2d_blocks import CrossAttnDownBlock2D

        block = CrossAttnDownBlock2D(
            in_channels=320, out_channels=640, temb_channels=1280, num_layers=2, num_attention_heads=10,
            cross_attention_dim=768, resnet_groups=32, use_linear_projection=True,
        )  # fmt: skip
        inputs = {"hidden_states": torch.randn(2, 320, 64, 64), "temb": torch.randn(2, 1280)}
        return block, (), {**inputs, "encoder_hidden_states": torch.randn(2, 77, 768)}

    return Model("diffusers CrossAttnDownBlock2D", make)


def installed(package: str) -> bool:
    """Whether a package can be imported; one whose own packages are missing cannot."""
    try:
        __import__(package)
    except Exception as error:
        print(f"{package}: {type(error).__name__}: {error}", flush=True)
        return False
    return True


def placed(value: Any) -> Any:
    """Tensors on the GPU, floating ones in the benchmark's dtype."""
    if isinstance(value, torch.Tensor):
        return value.to(DEVICE, DTYPE) if value.is_floating_point() else value.to(DEVICE)
    return value


def run(model: Model, seconds: float, arguments: Any, report: Report, turns: Turns | None = None) -> None:
    """Optimize one model, and tell of it. seconds: for all of it. turns: with those that are searched at the same time."""
    started = time.monotonic()
    report.say(f"\n## {model.name}\n")
    if model.note:
        report.say(f"{model.note}.\n")
    torch.manual_seed(0)
    module, args, kwargs = model.make()
    module = module.eval().to(DEVICE).to(DTYPE).requires_grad_(False)
    given = tuple(map(placed, args)), {name: placed(value) for name, value in kwargs.items()}
    evaluator = settings_of(arguments, baselines=("eager", *arguments.modes), reuse=arguments.reuse)
    found = optimize(
        module,
        *given,
        whole=True if arguments.pieces else None,
        whole_settings=WholeSettings(modes=tuple(arguments.modes), compare_seconds=COMPARE_S),
        evaluator=evaluator,
        budget=Budget(arguments.evaluations, wall_seconds=(1 - RESERVE) * seconds),
        batch=arguments.batch,
        out=None if arguments.runs is None else f"{arguments.runs}/{model.name.replace(' ', '_').replace('/', '_')}",
        dumps=False,
    )
    report.say(found.mtmc.text if isinstance(found.mtmc, Record) else f"{found.mtmc!r}.\n")
    report.say(f"Searched in {time.monotonic() - started:.0f} s.")
    if turns is not None:
        turns.wait(arguments.models[0])
    with torch.no_grad(), nullcontext() if turns is None else turns.mine():
        compare(found(*given[0], **given[1]), module(*given[0], **given[1]), report)
        times = loops(module, found, given, arguments.loops) if DEVICE == "cuda" else {}
    report.say("\n| in a plain loop | ms a call | over eager |\n|---|---:|---:|")
    for name, ms in times.items():
        report.say(f"| {name} | {ms:.4g} | {times['eager'] / ms:.2f}x |")
    report.say(f"\n{time.monotonic() - started:.0f} s.")
    known = found.mtmc.plain() if isinstance(found.mtmc, Record) else {"said": repr(found.mtmc)}
    report.data.setdefault("models", {})[model.name] = {**known, "loops_ms": times}


def loops(
    module: nn.Module, found: Any, given: tuple[tuple[Any, ...], dict[str, Any]], modes: Sequence[str]
) -> dict[str, float]:
    """Milliseconds of a call in a plain loop, by name, in turn. modes: of torch.compile."""
    args, kwargs = given
    ways: dict[str, Any] = {"eager": module}
    for name in modes:
        ways[name] = torch.compile(module, mode=MODES[name])
    ways["handed back"] = found
    calls = [lambda way=way: way(*args, **kwargs) for way in ways.values()]
    return dict(zip(ways, compare_on_gpu(calls, COMPARE_S), strict=True))


def compare(found: Any, expected: Any, report: Report) -> None:
    """Say how far the result is from the original's."""
    from mtmc.task.tensors import flat_tensors

    pairs = zip(flat_tensors(found), flat_tensors(expected), strict=True)
    errors = [
        ((a.double() - b.double()).norm() / b.double().norm().clamp_min(1e-30)).item()
        for a, b in pairs
        if b.is_floating_point()
    ]
    report.say(f"\nNorm of the difference from eager over the norm: {max(errors):.2g}.")


def main() -> int:
    options = parser(__doc__)
    options.add_argument("--seconds", type=float, default=500.0, help="wall seconds for all models together")
    options.add_argument(
        "--models", nargs="*", default=["llama", "vision", "unet"], choices=["llama", "vision", "unet"]
    )
    options.add_argument("--layers", type=int, default=4, help="of the decoder")
    options.add_argument("--evaluations", type=int, default=96, help="of each model")
    options.add_argument("--batch", type=int, default=8, help="trials at once")
    options.add_argument("--reuse", type=int, default=4, help="versions that a process may screen, see GpuSettings")
    options.add_argument(
        "--modes", nargs="*", default=["torch.compile"], help="of torch.compile that a search is given"
    )
    options.add_argument("--loops", nargs="*", default=[*MODES], choices=[*MODES], help="modes in the plain loops")
    options.add_argument("--pieces", action="store_true", help="search in pieces what could be one search")
    options.add_argument("--runs", help="a folder for the runs")
    options.add_argument("--together", action="store_true", help="search all models at the same time")
    options.add_argument("--turns", help="how a process of --together finds the others")
    arguments = options.parse_args()
    turns = Turns.read(arguments.turns) if arguments.turns else None
    if arguments.together and turns is None:
        with Report("Whole models", arguments.out) as report:
            return int(not together(__file__, arguments.models, sys.argv[1:], arguments.seconds, report))
    end = time.monotonic() + arguments.seconds
    made = {"llama": lambda: llama(arguments.layers), "vision": vision, "unet": unet}
    failed = False
    with Report("Whole models", arguments.out) as report:
        packages = {name: version(name) for name in ("torch", "triton", "transformers", "timm", "diffusers")}
        report.say(", ".join(f"{name} {found or 'absent'}" for name, found in packages.items()) + f"; {DTYPE}.")
        for index, name in enumerate(arguments.models):
            left = end - time.monotonic()
            if left < 30:
                report.say(f"\n{name}: no time left.")
                continue
            try:
                run(made[name](), left / (len(arguments.models) - index), arguments, report, turns)
            except Exception as error:
                failed = True
                report.say(f"\n**{name}: {type(error).__name__}: {error}**")
                if not isinstance(error, MtmcError):
                    traceback.print_exc()
            torch._dynamo.reset()
            torch.cuda.empty_cache()
    return int(failed)


def version(package: str) -> str:
    """Of an installed package, "" where it is not there."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""


if __name__ == "__main__":
    sys.exit(main())
