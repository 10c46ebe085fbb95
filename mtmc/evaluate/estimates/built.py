"""What a build tells of a version that a GPU times: launches, what its kernels take of a multiprocessor, bytes. Pure.

The names are those of `estimate`, which knows more: there a launch's bytes are counted in sample programs.
"""

from __future__ import annotations

from collections.abc import Sequence

from mtmc.evaluate.compiling.build import Built
from mtmc.evaluate.compiling.compiled_kernel import Kernel
from mtmc.evaluate.compiling.launched import Launch, Layout
from mtmc.evaluate.compiling.torch_calls import tensor_bytes
from mtmc.evaluate.estimates.occupancy import blocks_per_sm
from mtmc.evaluate.estimates.resources import Resources
from mtmc.evaluate.profiling.figures import added
from mtmc.hardware import Hardware

_BITS = {"bool": 8, "int8": 8, "uint8": 8, "int16": 16, "uint16": 16, "float16": 16, "bfloat16": 16, "float64": 64}
_BITS |= {"int64": 64, "uint64": 64, "complex64": 64, "complex128": 128}


def built_metrics(built: Built, resources: Sequence[Resources], gpu: Hardware) -> dict[str, float]:
    """Metrics of a version at the full shapes.

    resources: of each of `built.kernels`. Returns: kernels (launches of one forward, library calls among them as one each),
    bytes_moved (of each launch the tensors that it is given, once), and where there are Triton launches: registers, spills
    (bytes a thread), shared_memory (bytes a program), each the largest, programs (of the launch that has most threads) and
    occupancy (mean over the launches, by their threads).
    """
    metrics = {
        "kernels": float(len(built.launches) + len(built.calls)),
        "bytes_moved": float(sum(map(launch_bytes, built.launches)) + sum(call.bytes_moved for call in built.calls)),
    }
    if not built.launches:
        return metrics
    launched = [(launch, built.kernels[launch.compiled], resources[launch.compiled]) for launch in built.launches]
    used = [each for _, _, each in launched]
    threads = [max(1, programs(launch) * kernel.num_warps * kernel.warp_size) for launch, kernel, _ in launched]
    held = [_occupancy(kernel, each, gpu) for _, kernel, each in launched]
    most = max(range(len(threads)), key=threads.__getitem__)
    metrics |= {
        "registers": float(max(each.registers for each in used)),
        "spills": float(max(each.spill_bytes for each in used)),
        "shared_memory": float(max(each.shared_bytes for each in used)),
        "programs": float(programs(launched[most][0])),
        "occupancy": sum(share * count for share, count in zip(held, threads, strict=True)) / sum(threads),
    }
    return metrics


def built_figures(built: Built, resources: Sequence[Resources], gpu: Hardware) -> dict[str, dict[str, float]]:
    """What a build tells of each Triton kernel, see `mtmc.evaluate.profiling.figures`; nothing of its time."""
    return added(
        (
            launch.kernel,
            {
                "bytes_moved": float(launch_bytes(launch)),
                "registers": float(resources[launch.compiled].registers),
                "spills": float(resources[launch.compiled].spill_bytes),
                "shared_memory": float(resources[launch.compiled].shared_bytes),
                "programs": float(programs(launch)),
                "occupancy": _occupancy(built.kernels[launch.compiled], resources[launch.compiled], gpu),
            },
        )
        for launch in built.launches
    )


def programs(launch: Launch) -> int:
    """Programs of a launch, which CUDA calls blocks."""
    x, y, z = launch.grid
    return x * y * z


def _occupancy(kernel: Kernel, resources: Resources, gpu: Hardware) -> float:
    """Resident threads of a multiprocessor over the most that it can hold."""
    blocks = blocks_per_sm(kernel.num_warps, resources, gpu)
    return blocks * kernel.num_warps * gpu.warp_size / gpu.max_threads_per_sm


def launch_bytes(launch: Launch) -> int:
    """Bytes of the tensors that a launch is given, each once."""
    given = [each for each in launch.arguments.values() if isinstance(each, Layout)]
    return sum(tensor_bytes(each.shape, each.strides, _itemsize(each.dtype)) for each in given)


def _itemsize(dtype: str) -> int:
    return (8 if dtype.startswith("float8") else _BITS.get(dtype, 32)) // 8
