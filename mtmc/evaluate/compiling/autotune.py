"""Autotuned kernels: without a device to time on, ahead of a device, and quickly on one.

Without a device (`pin_autotuners`) the build tries a kernel's pruned configurations in order, as a GPU would skip those
that do not fit; check and estimate then use the one that the build settled on. Prefetcher of a device (`try_all`) the build
compiles all of them, because there the candidate's own tuner times them, in a few repetitions each (`quick_autotune`).
Runs in worker processes only.
"""

from __future__ import annotations

import functools
import statistics
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from mtmc.evaluate.compiling.cold_cache import ColdCache


def pin_autotuners(chosen: dict[str, int], skip: tuple[type[BaseException], ...] = ()) -> None:
    """Make every `triton.autotune` of this process take one configuration instead of timing all.

    chosen: kernel name -> index among its pruned configurations; read, and filled in at a kernel's first launch.
    skip: exceptions at which the next configuration is tried; the last one's exception is raised.
    """
    from triton.runtime.autotuner import Autotuner

    def run(self: Any, *args: Any, **kwargs: Any) -> Any:
        configs = _configurations(self, args, kwargs)
        name = self.base_fn.__name__
        index = min(chosen.get(name, 0), len(configs) - 1)
        while True:
            try:
                result = _launch(self, configs[index], args, kwargs)
            except skip:
                if index + 1 == len(configs):
                    raise
                index += 1
                continue
            if len(configs) > 1:
                chosen[name] = index
            return result

    Autotuner.run = run


def try_all(one_of: Callable[[str], AbstractContextManager[None]]) -> None:
    """Make every `triton.autotune` of this process launch with each of its pruned configurations.

    one_of: opened around the launches of one call, with the kernel's name, or "" where there is only one configuration.
    """
    from triton.runtime.autotuner import Autotuner

    def run(self: Any, *args: Any, **kwargs: Any) -> Any:
        configs = _configurations(self, args, kwargs)
        with one_of(self.base_fn.__name__ if len(configs) > 1 else ""):
            results = [_launch(self, config, args, kwargs) for config in configs]
        self.best_config = configs[0]
        return results[0]

    Autotuner.run = run


def quick_autotune(warm: int = 3, timed: int = 5, budget_ms: float = 4.0) -> None:
    """Make every `triton.autotune` of this process time a configuration in a few launches, each with a cold L2 cache.

    warm, timed: launches of each kind for a configuration. budget_ms: device time that both may take together; a
    configuration that is slower has fewer, at least one of each. Ten configurations of a short kernel take some 20 ms.
    """
    from triton.runtime.autotuner import Autotuner

    def bench(call: Callable[[], Any], quantiles: Any = None, **_: Any) -> list[float]:
        """Milliseconds: the median, the smallest and the largest. Raises: what the launch raises."""
        call()  # loads the binary: what does not fit the device is refused here
        (once,) = _time(call, 1)
        repeats = max(1, int(budget_ms / once)) if once > 0 else timed
        for _again in range(min(warm - 2, repeats)):
            call()
        times = _time(call, min(timed, repeats))
        return [statistics.median(times), min(times), max(times)]

    # The tuners that a decorator told how to time are no exception.
    Autotuner.do_bench = property(lambda self: bench, lambda self, value: None)


def _time(call: Callable[[], Any], repeats: int) -> list[float]:
    """Milliseconds of each of some launches, with a cold L2 cache."""
    import torch

    pairs = []
    for _ in range(repeats):
        _cold().empty()
        pair = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        pair[0].record()
        call()
        pair[1].record()
        pairs.append(pair)
    torch.cuda.synchronize()
    return [start.elapsed_time(end) for start, end in pairs]


@functools.cache
def _cold() -> ColdCache:
    return ColdCache()


def _configurations(tuner: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
    """What the tuner would try for a call."""
    tuner.nargs = dict(zip(tuner.arg_names, args, strict=False))
    return list(tuner.prune_configs(kwargs) if len(tuner.configs) > 1 else tuner.configs)


def _launch(tuner: Any, config: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    arguments = {**tuner.nargs, **kwargs, **config.all_kwargs()}
    tuner.best_config = config
    if len(tuner.configs) > 1:
        tuner.pre_hook(arguments, reset_only=True)
    if config.pre_hook is not None:
        config.pre_hook(arguments)
    return tuner.fn.run(*args, **kwargs, **config.all_kwargs())
