"""The rules, in the order in which they are tried. To add one: a function in a file here, and a line in `RULES`.

A rule takes a program, the diagnosis of its failure and the name of its hardware. It is pure, reads the diagnosis first,
and gives None unless it is sure of the failure and of the fix.
"""

from __future__ import annotations

from collections.abc import Callable

from mtmc.agents.coders.repair.fixed import Fixed
from mtmc.agents.coders.repair.program import Program
from mtmc.agents.coders.repair.rules import (
    dots,
    functions,
    host,
    loops,
    masked_lanes,
    masks,
    names,
    offsets,
    parameters,
    resources,
)
from mtmc.outcome import Diagnosis

Rule = Callable[[Program, Diagnosis, str], Fixed | None]

RULES: dict[str, Rule] = {
    "class_name": names.class_name,
    "missing_import": names.missing_import,
    "misspelt": names.misspelt,
    "keyword": names.keyword,
    "function": functions.function,
    "import_from": functions.import_from,
    "torch_in_kernel": functions.torch_in_kernel,
    "float_argument": functions.float_argument,
    "constexpr": parameters.constexpr,
    "global_constant": parameters.global_constant,
    "float_offset": offsets.float_offset,
    "loop_type": loops.loop_type,
    "dot_types": dots.dot_types,
    "dot_size": dots.dot_size,
    "arange": masks.arange,
    "shared_memory": resources.shared_memory,
    "tile_limit": resources.tile_limit,
    "warps": resources.warps,
    "registers": resources.registers,
    "grid": host.grid,
    "device": host.device,
    "output_type": host.output_type,
    "mask": masks.mask,
    "precision": dots.precision,
    "contiguous": host.contiguous,
    "masked_lanes": masked_lanes.masked_lanes,
}
