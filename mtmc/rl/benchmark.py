"""benchmark: the canonical forms of a benchmark's problems, so that no training task is one of them."""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence
from pathlib import Path

from mtmc.agents.policies.learned.graphs import graph_facts, graph_key
from mtmc.errors import ConfigError, TaskError
from mtmc.task import Task, Variant

_log = logging.getLogger(__name__)

LEVELS = ("level1", "level2", "level3")
MOST_OPS = 200
"""ATen calls of the longest training task, with a wide margin: a problem with more is none of them."""


def benchmark_keys(checkout: Path, levels: Sequence[str] = LEVELS, every: int = 1) -> dict[str, str]:
    """Canonical form (see `graphs.graph_key`, dtypes do not count) -> "level1/19_ReLU" of a KernelBench checkout.

    checkout: the folder that has level1, level2, ..., or one that has it as KernelBench. every: take one problem of so
    many. Problems of more than `MOST_OPS` calls, and those that do not export, are left out: training tasks are small,
    and they all export.

    Raises: ConfigError where no such folder has problems.
    """
    from mtmc.rewrite.exported import export_graph

    root = checkout / "KernelBench" if (checkout / "KernelBench").is_dir() else checkout
    paths = [path for level in levels for path in sorted((root / level).glob("*.py"))[::every]]
    if not paths:
        raise ConfigError(
            f"there are no problems in {checkout}: give a KernelBench checkout (with level1, level2, ...)"
        )
    keys = {}
    for path in paths:
        name = f"{path.parent.name}/{path.stem}"
        source = path.read_text(encoding="utf-8")
        try:
            if _is_small(source, name):
                task = Task(path.stem, source, Variant("full"), Variant("full"))
                keys[graph_key(graph_facts(export_graph(task)))] = name
        except TaskError as error:
            _log.info("%s cannot be compared with: %s", name, error)
    return keys


def _is_small(source: str, name: str) -> bool:
    """Whether one forward takes at most `MOST_OPS` ATen calls; stops counting there. Nothing is computed.

    Raises: TaskError where the problem does not run on fake tensors.
    """
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode

    from mtmc.task.reference import Limits, Meter, TooLargeError, namespace

    limits = Limits(sys.maxsize, sys.maxsize, MOST_OPS)
    try:
        with FakeTensorMode(), torch.no_grad():
            names = namespace(source, Variant("full"), name)
            model = names["Model"](*names["get_init_inputs"]())
            inputs = names["get_inputs"]()
            with Meter(limits):
                model(*inputs)
    except TooLargeError:
        return False
    except Exception as error:
        raise TaskError(f"{name} does not run on fake tensors: {error}") from error
    return True
