"""Autotuned kernels without a device to time on: the first configuration that fits is taken, and noted.

The build tries a kernel's pruned configurations in order, as a GPU would skip those that do not fit; check and estimate
then use the one that the build settled on. Runs in worker processes only.
"""

from __future__ import annotations

from typing import Any


def pin_autotuners(chosen: dict[str, int], skip: tuple[type[BaseException], ...] = ()) -> None:
    """Make every `triton.autotune` of this process take one configuration instead of timing all.

    chosen: kernel name -> index among its pruned configurations; read, and filled in at a kernel's first launch.
    skip: exceptions at which the next configuration is tried; the last one's exception is raised.
    """
    from triton.runtime.autotuner import Autotuner

    def run(self: Any, *args: Any, **kwargs: Any) -> Any:
        self.nargs = dict(zip(self.arg_names, args, strict=False))
        configs = self.prune_configs(kwargs) if len(self.configs) > 1 else self.configs
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


def _launch(tuner: Any, config: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    arguments = {**tuner.nargs, **kwargs, **config.all_kwargs()}
    tuner.best_config = config
    if len(tuner.configs) > 1:
        tuner.pre_hook(arguments, reset_only=True)
    if config.pre_hook is not None:
        config.pre_hook(arguments)
    return tuner.fn.run(*args, **kwargs, **config.all_kwargs())
