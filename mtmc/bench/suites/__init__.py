"""The suites by name."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping

from mtmc.bench.problem import Suite
from mtmc.bench.suites.blocks import Blocks
from mtmc.bench.suites.builtin import Builtin
from mtmc.bench.suites.kernelbench import KernelBench
from mtmc.bench.suites.tritonbench import TritonBench
from mtmc.errors import ConfigError

SUITES: Mapping[str, Callable[[str], Suite]] = {
    "kernelbench": KernelBench,
    "tritonbench": TritonBench,
    "builtin": Builtin,
    "blocks": Blocks,
}
"""Suite by name: what makes it of a path. To add one: a class in a file here, and a line."""


def open_suite(name: str, path: str) -> Suite:
    """A suite. Raises: ConfigError for a name that does not exist, or a path that the suite cannot do without."""
    if name not in SUITES:
        near = difflib.get_close_matches(name, SUITES, n=1)
        fix = f"did you mean {near[0]}?" if near else f"use one of {', '.join(SUITES)}"
        raise ConfigError(f"there is no suite {name!r}: {fix}")
    return SUITES[name](path)
