"""Window-order convolution against cuDNN and against im2col with a matrix product, layer by layer, with its memory.

    PYTHONPATH=. python benchmarks/im2win.py --out results/im2win

The kernel of `examples/im2win/` on twelve layers of well-known networks (AlexNet, OverFeat, ResNet, VGG and the like), batch
128, fp32 as eager mode has it (TF32 products; where cuDNN is exact all the same, ours makes three of them), no padding. Ours
and eager (cuDNN) are timed in turn by the evaluator, which checks every output; im2col (`torch.nn.functional.unfold`, then
one product) by `triton.testing.do_bench`. Memory is what either layout takes: columns of im2col, windows of ours.
"""

from __future__ import annotations

import dataclasses
import math
import sys
from dataclasses import dataclass
from pathlib import Path

from benchmarks.common import Report, failure, parser, settings_of
from benchmarks.figures import geometric_mean, header, row
from mtmc.outcome import Outcome
from mtmc.protocols import EvaluationRequest, Evaluator
from mtmc.task import Task, load_task

FOLDER = Path(__file__).parents[1] / "examples" / "im2win"
BATCH = 128


@dataclass(frozen=True)
class Layer:
    """One convolution of square images by square kernels."""

    name: str
    channels: int
    size: int
    filters: int
    kernel: int
    stride: int

    @property
    def out(self) -> int:
        """Rows (and columns) of the output."""
        return (self.size - self.kernel) // self.stride + 1

    @property
    def column_numbers(self) -> int:
        """Numbers that im2col lays out for one image: every window of every output, whole."""
        return self.channels * self.kernel**2 * self.out**2

    @property
    def window_numbers(self) -> int:
        """Numbers that the window order lays out for one image: whole rows of the input, one for each row of a window."""
        return self.channels * self.kernel * self.out * self.size


LAYERS = (
    Layer("conv1", 3, 227, 96, 11, 4),
    Layer("conv2", 3, 231, 96, 11, 4),
    Layer("conv3", 3, 227, 64, 7, 2),
    Layer("conv4", 64, 224, 64, 7, 2),
    Layer("conv5", 96, 24, 256, 5, 1),
    Layer("conv6", 256, 12, 512, 3, 1),
    Layer("conv7", 3, 224, 64, 3, 1),
    Layer("conv8", 64, 112, 128, 3, 1),
    Layer("conv9", 64, 56, 64, 3, 1),
    Layer("conv10", 128, 28, 128, 3, 1),
    Layer("conv11", 256, 14, 256, 3, 1),
    Layer("conv12", 512, 7, 512, 3, 1),
)


def task_of(layer: Layer) -> Task:
    """The showcase's task at a layer's sizes."""
    task = load_task(str(FOLDER / "task.py"))
    sizes = (
        ("batch", BATCH),
        ("channels", layer.channels),
        ("height", layer.size),
        ("across", layer.size),
        ("filters", layer.filters),
        ("kernel", layer.kernel),
        ("stride", layer.stride),
    )
    return dataclasses.replace(task, name=layer.name, full=dataclasses.replace(task.full, constants=sizes))


def im2col_ms(layer: Layer) -> float:
    """Milliseconds of im2col and its product, TF32 as the others; nan where the columns do not fit the device."""
    import torch
    from triton.testing import do_bench

    torch.backends.cuda.matmul.allow_tf32 = True
    x = torch.randn(BATCH, layer.channels, layer.size, layer.size, device="cuda")
    weight = torch.randn(layer.filters, layer.channels * layer.kernel**2, device="cuda")

    def forward() -> torch.Tensor:
        columns = torch.nn.functional.unfold(x, layer.kernel, stride=layer.stride)
        return (weight @ columns).view(BATCH, layer.filters, layer.out, layer.out)

    try:
        return float(do_bench(forward, return_mode="median"))
    except torch.OutOfMemoryError:
        return math.nan
    finally:
        torch.cuda.empty_cache()


def judged(evaluator: Evaluator, task: Task, source: str) -> Outcome:
    """Screened, and verified if that went well."""
    [found] = evaluator.evaluate([EvaluationRequest(task, source)])
    if found.ok:
        [found] = evaluator.evaluate([EvaluationRequest(task, source, depth="verify")])
    return found


def measure(evaluator: Evaluator, layer: Layer, source: str, report: Report) -> bool:
    """One row; whether the kernel was right."""
    task = task_of(layer)
    for way in ("tf32", "tf32x3"):
        found = judged(evaluator, task, source.replace('TF32 = "tf32"', f'TF32 = "{way}"'))
        if found.ok:
            break
    if not found.ok or found.runtime_ms is None:
        report.say(f"\n**{layer.name}: {failure(found)}**")
        return False
    library, columns = found.metrics["eager_ms"], im2col_ms(layer)
    less = 1 - layer.window_numbers / layer.column_numbers
    mib = [4 * BATCH * numbers / 2**20 for numbers in (layer.column_numbers, layer.window_numbers)]
    report.data.setdefault("rows", []).append(
        {
            **dataclasses.asdict(layer),
            "cudnn_ms": library,
            "im2col_ms": columns,
            "ours_ms": found.runtime_ms,
            "less": less,
            "precision": way,
        }
    )
    times = [f"{library:.3f}", f"{columns:.3f}", f"{found.runtime_ms:.3f}"]
    ratios = [f"{library / found.runtime_ms:.2f}x", f"{columns / found.runtime_ms:.2f}x"]
    shape = f"{layer.channels} x {layer.size}^2, {layer.filters} of {layer.kernel}^2 / {layer.stride}"
    report.say(row(layer.name, shape, way, *times, *ratios, *(f"{each:.0f}" for each in mib), f"{less:.0%}"))
    return True


def main() -> int:
    options = parser(__doc__)
    options.add_argument("--layers", nargs="*", default=[layer.name for layer in LAYERS])
    arguments = options.parse_args()
    source = (FOLDER / "kernel.py").read_text(encoding="utf-8")
    with Report("Window-order convolution", arguments.out) as report:
        names = ("layer", "shape", "product", "cuDNN ms", "im2col ms", "ours ms", "over cuDNN", "over im2col")
        report.say(header(*names, "im2col MiB", "ours MiB", "less"))
        with settings_of(arguments).open() as evaluator:
            chosen = [layer for layer in LAYERS if layer.name in arguments.layers]
            good = [measure(evaluator, layer, source, report) for layer in chosen]
        rows = report.data.get("rows", [])
        for name, key in (("cuDNN", "cudnn_ms"), ("im2col", "im2col_ms")):
            ratios = [each[key] / each["ours_ms"] for each in rows if not math.isnan(each[key])]
            if ratios:
                report.say(f"\nOver {name}: geometric mean {geometric_mean(ratios):.2f}x of {len(ratios)} layers.")
        if less := [each["less"] for each in rows]:
            report.say(f"\nThe windows take {min(less):.0%} to {max(less):.0%} less.")
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
