"""profiled: an estimate kernel by kernel, with what each kernel's machine code consists of. Pure.

What a profiler measures on a GPU, the lab estimates: the names are those of `mtmc.evaluate.profiling.figures`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mtmc.evaluate.estimates.estimate import Estimate
from mtmc.evaluate.estimates.resources import Resources
from mtmc.evaluate.estimates.roofline import KernelEstimate, Record
from mtmc.evaluate.profiling.figures import added, longest

_TENSOR = ("HMMA", "HGMMA", "IMMA", "IGMMA", "QMMA", "QGMMA", "DMMA", "UTCHMMA", "UTCQMMA")
_GLOBAL = ("LDG", "STG", "LD", "ST", "LDL", "STL", "ATOM", "ATOMG", "RED", "REDG")
_SHARED = ("LDS", "STS", "LDSM", "STSM")
_COPIES = ("LDGSTS", "UTMALDG", "UTMASTG", "UBLKCP")
_MATH = ("FFMA", "FADD", "FMUL", "MUFU", "FSEL", "FSETP", "FMNMX", "HFMA2", "HADD2", "HMUL2", "DFMA", "DADD", "DMUL")
_INTEGER = ("IMAD", "IADD3", "LEA", "LOP3", "SHF", "ISETP", "IABS", "PRMT", "SEL", "IMNMX", "VIADD")
_KINDS: Mapping[str, Sequence[str]] = {
    "mix_tensor": _TENSOR,
    "mix_global": _GLOBAL,
    "mix_shared": _SHARED,
    "mix_copies": _COPIES,
    "mix_math": _MATH,
    "mix_integer": _INTEGER,
}


def profiled(found: Estimate, records: Sequence[Record], resources: Sequence[Resources]) -> dict[str, dict[str, float]]:
    """The figures of each kernel of a forward, the longest kernels.

    records: that were estimated, in launch order. resources: one a Triton launch, in that order.
    """
    used = iter(resources)
    launches = [
        (kernel.name, _of_op(kernel, record) if "op" in record else _of_launch(kernel, record, next(used)))
        for kernel, record in zip(found.kernels, records, strict=True)
    ]
    return longest(added(launches))


def instruction_mix(mix: Mapping[str, int]) -> dict[str, float]:
    """Shares of a kernel's instructions by what they do, as they stand in its code and not as often as they run; empty where
    the code was not read. mix: see `Resources.instruction_mix`."""
    total = sum(mix.values())
    if not total:
        return {}
    counts = dict.fromkeys(_KINDS, 0)
    for opcode, count in mix.items():
        kind = next((kind for kind, names in _KINDS.items() if opcode.partition(".")[0] in names), None)
        if kind is not None:
            counts[kind] += count
    return {kind: count / total for kind, count in counts.items()}


def _of_op(kernel: KernelEstimate, record: Record) -> dict[str, float]:
    return {
        "ms": kernel.ms,
        "launches": float(record.get("kernels", 1)),
        "bytes_dram": kernel.dram_bytes,
        "bytes_moved": float(record["bytes_read"] + record["bytes_written"]),
        "flops": float(record["flops"]),
        "dot_flops": float(record["dot_flops"]),
    }


def _of_launch(kernel: KernelEstimate, record: Record, taken: Resources) -> dict[str, float]:
    return {
        "ms": kernel.ms,
        "bytes_dram": kernel.dram_bytes,
        "bytes_moved": float(record["unique_read"] + record["unique_written"]),
        "bytes_read": float(record["bytes_read"]),
        "unique_read": float(record["unique_read"]),
        "bytes_written": float(record["bytes_written"]),
        "flops": float(record["flops"]),
        "dot_flops": float(record["dot_flops"]),
        "registers": float(taken.registers),
        "spills": float(taken.spill_bytes),
        "shared_memory": float(taken.shared_bytes),
        "programs": float(record["programs"]),
        **({} if kernel.occupancy is None else {"occupancy": kernel.occupancy}),
        **instruction_mix(taken.instruction_mix),
    }
