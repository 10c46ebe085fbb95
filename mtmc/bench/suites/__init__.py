"""The suites by name."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from pathlib import Path

from mtmc.bench.licence import check_licence
from mtmc.bench.problem import Suite
from mtmc.bench.suites.blocks import Blocks
from mtmc.bench.suites.builtin import Builtin
from mtmc.bench.suites.collection import Collection
from mtmc.bench.suites.competition import Competition
from mtmc.bench.suites.kernelbench import KernelBench
from mtmc.bench.suites.tritonbench import TritonBench
from mtmc.errors import ConfigError

SUITES: Mapping[str, Callable[[str], Suite]] = {
    "kernelbench": KernelBench,
    "tritonbench": TritonBench,
    "builtin": Builtin,
    "blocks": Blocks,
    "files": Collection,
    "gpumode": Competition,
}
"""Suite by name: what makes it of a path. To add one: a class in a file here, and a line."""


OF_OTHERS = ("files", "gpumode")
"""Suites by path whose licence is read before anything else, since any collection may be given."""


def open_suite(name: str, path: str, acknowledged: bool = False) -> Suite:
    """A suite. acknowledged: a person has said that the collection may be used (`licence=ack`).

    Raises: ConfigError for a name that does not exist, a path that the suite cannot do without, or a collection of others
    whose licence does not say that it may be used.
    """
    if name not in SUITES:
        near = difflib.get_close_matches(name, SUITES, n=1)
        fix = f"did you mean {near[0]}?" if near else f"use one of {', '.join(SUITES)}"
        raise ConfigError(f"there is no suite {name!r}: {fix}")
    if name in OF_OTHERS and path:
        check_licence(Path(path).expanduser(), acknowledged)
    return SUITES[name](path)
