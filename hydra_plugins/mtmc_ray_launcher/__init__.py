"""Hydra's launcher `mtmc_ray`: the runs of a sweep on a Ray cluster. Hydra finds plug-ins in this package, and loads each of
them for every program, so there is nothing here but its settings and its name; `mtmc.cli.sweep_on_ray` does the work.

Hydra executes this file before it is a module of its own, so annotations are no text here (`from __future__`)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Optional

from hydra.core.config_store import ConfigStore
from hydra.plugins.launcher import Launcher


@dataclass
class RayLauncherConf:
    """address: of the cluster, as `evaluator.address`; empty: Ray is started in this process. cpus: cores of each run. gpus:
    of each run; null: one with evaluator=gpu, else none. tries: machines that may be lost over one run."""

    _target_: str = "hydra_plugins.mtmc_ray_launcher.RayLauncher"
    address: str = ""
    cpus: int = 1
    gpus: Optional[float] = None  # noqa: UP045 - OmegaConf reads it
    tries: int = 3


ConfigStore.instance().store(group="hydra/launcher", name="mtmc_ray", node=RayLauncherConf, provider="mtmc")


class RayLauncher(Launcher):
    """See `mtmc.cli.sweep_on_ray`."""

    def __init__(self, address: str, cpus: int, gpus: float | None, tries: int) -> None:
        self.address, self.cpus, self.gpus, self.tries = address, cpus, gpus, tries

    def setup(self, *, hydra_context: Any, task_function: Any, config: Any) -> None:
        """See `Launcher.setup`."""
        self.hydra_context, self.task_function, self.config = hydra_context, task_function, config

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> Sequence[Any]:
        """See `Launcher.launch`."""
        from mtmc.cli.sweep_on_ray import Sweep, launch

        sweep = Sweep(self.hydra_context, self.task_function, self.config)
        return launch(sweep, job_overrides, initial_job_idx, self.address, self.cpus, self.gpus, self.tries)
