"""An estimate from what a build alone tells of a version that was not run: a bound from below, and labelled so. Pure.

    runtime = sum over launches of (launch + max(bytes / DRAM, instructions x threads / issue rate))
            + sum over torch ops of (launch + bytes / DRAM)

bytes: of the tensors that a launch is given, each once. instructions: those that stand in the machine code, each once, so
that a loop counts as one turn of it. DRAM and issue rate are the sustained ones of `roofline`.
"""

from __future__ import annotations

from collections.abc import Sequence

from mtmc.evaluate.compiling.build import Built
from mtmc.evaluate.estimates.built import built_metrics, launch_bytes, programs
from mtmc.evaluate.estimates.resources import Resources
from mtmc.evaluate.estimates.roofline import DRAM_EFFICIENCY, issue_rate, to_ms
from mtmc.hardware import Hardware
from mtmc.outcome import Diagnosis, Outcome


def static_ms(built: Built, resources: Sequence[Resources], gpu: Hardware) -> float:
    """The estimate in milliseconds. resources: of each of `built.kernels`, with their instructions."""
    rate = gpu.dram_gbs * DRAM_EFFICIENCY
    total = 0.0
    for launch in built.launches:
        kernel, used = built.kernels[launch.compiled], resources[launch.compiled]
        slots = sum(used.instruction_mix.values()) * programs(launch) * kernel.num_warps * kernel.warp_size
        total += gpu.launch_us / 1e3 + to_ms(max(launch_bytes(launch) / rate, slots / issue_rate(gpu)))
    for call in built.calls:
        total += gpu.launch_us / 1e3 + to_ms(call.bytes_moved / rate)
    return total


def not_run(built: Built, resources: Sequence[Resources], gpu: Hardware) -> Outcome:
    """The outcome of a version in CUDA C++ or Gluon where there is no GPU: compiled, and neither right nor wrong."""
    estimate = static_ms(built, resources, gpu)
    written = [f"{count} in {name}" for name, count in (("CUDA C++", built.cuda), ("Gluon", built.gluon)) if count]
    message = (
        f"not run: it is compiled for {gpu.target} (kernels: {', '.join(written)}; {len(built.launches)} launches), and "
        f"there is no GPU here to run it on; from static counts it would take {estimate:.3g} ms or more on an {gpu.name}"
    )
    metrics = {**built_metrics(built, resources, gpu), "static_ms": estimate}
    return Outcome("not_run", metrics=metrics, diagnosis=Diagnosis("estimate", "NotRun", message))
