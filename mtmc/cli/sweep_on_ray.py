"""The runs of a sweep on a Ray cluster, each on one of its machines: what Hydra's launcher `mtmc_ray` does.

A run needs no disk that the machines share: the text of its task goes there, it runs in a folder of its machine, and the
files of that folder come back. So what is lost with a machine is lost whole, and the run is made again on another one.
"""

from __future__ import annotations

import contextlib
import io
import math
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mtmc.errors import ConfigError


@dataclass(frozen=True)
class Sweep:
    """What Hydra hands to a launcher."""

    context: Any
    function: Any
    config: Any


@dataclass(frozen=True)
class Run:
    """One run. overrides: as Hydra's sweeper gives them. task: name and text of a task that is a file, else None."""

    number: int
    overrides: tuple[str, ...]
    task: tuple[str, str] | None


@dataclass(frozen=True)
class Done:
    """What comes back of one. value: its objective. files: content by path within the sweep's folder. said: on stdout and
    stderr. No config is among it: its classes are made at run time, and reading one back would change the one that is here.
    """

    value: Any
    files: Mapping[str, bytes]
    said: tuple[str, str]


def launch(
    sweep: Sweep,
    overrides: Sequence[Sequence[str]],
    first: int,
    address: str,
    cpus: int,
    gpus: float | None,
    tries: int,
) -> list[Any]:
    """Make runs on a cluster; Hydra's `JobReturn` of each, in their order. A run that cannot be made, because its machines
    are lost `tries` times or for lack of memory, has failed, and the others go on.

    overrides: of each run. first: number of the first one. The rest: see the launcher's settings.

    Raises: ConfigError for settings that cannot be, EvaluatorError where there is no Ray or no cluster.
    """
    from hydra.core.singleton import Singleton

    from mtmc.evaluate.on_ray import connect, disconnect, imported_ray

    for name, value in (("cpus", cpus), ("tries", tries)):
        if value < 1:
            raise ConfigError(f"hydra.launcher.{name} cannot be {value}: use 1 or more")
    composed = [_composed(sweep, each, first + at) for at, each in enumerate(overrides)]
    runs = [Run(first + at, tuple(each), _shipped(composed[at].task)) for at, each in enumerate(overrides)]
    ray = imported_ray()
    connected = connect(ray, address)
    try:
        made = ray.remote(_made)
        needs = {"num_cpus": cpus, "max_retries": tries - 1, "retry_exceptions": False}
        state = Singleton.get_state()
        pending = {
            made.options(**needs, num_gpus=_gpus(config, gpus)).remote(sweep, run, state): run
            for config, run in zip(composed, runs, strict=True)
        }
        found: dict[int, Any] = {}
        order = dict(zip((run.number for run in runs), composed, strict=True))
        while pending:
            for reference in ray.wait(list(pending))[0]:
                run = pending.pop(reference)
                found[run.number] = _taken(ray, reference, run, order[run.number])
        return [found[run.number] for run in runs]
    finally:
        if connected:
            disconnect(ray)


def _composed(sweep: Sweep, overrides: Sequence[str], number: int) -> Any:
    """The config of a run."""
    from omegaconf import open_dict

    config = sweep.context.config_loader.load_sweep_config(sweep.config, list(overrides))
    with open_dict(config):
        config.hydra.job.id = config.hydra.job.num = number
    return config


def _gpus(config: Any, gpus: float | None) -> float:
    if gpus is not None:
        return gpus
    return 1.0 if config.evaluator.get("name") == "gpu" else 0.0


def _shipped(task: str) -> tuple[str, str] | None:
    """Name and text of a task that is a file of this machine; None for a built-in one."""
    from mtmc.task import builtin_names, load_task

    if task in builtin_names():
        return None
    loaded = load_task(task)
    return loaded.name, loaded.source


def _made(sweep: Sweep, run: Run, state: Any) -> Done:
    """On a machine of the cluster: one run, in a folder that is gone afterwards."""
    from hydra.core.singleton import Singleton
    from hydra.core.utils import run_job, setup_globals
    from omegaconf import open_dict

    said, complained = io.StringIO(), io.StringIO()
    with (
        tempfile.TemporaryDirectory(prefix="mtmc-sweep-") as place,
        contextlib.redirect_stdout(said),
        contextlib.redirect_stderr(complained),
    ):
        folder = Path(place) / "sweep"
        setup_globals()
        Singleton.set_state(state)
        config = _composed(sweep, run.overrides, run.number)
        meant = str(config.hydra.sweep.dir)
        with open_dict(config):
            config.hydra.sweep.dir = str(folder)
            if run.task is not None:
                name, text = run.task
                path = Path(place) / f"{name}.py"
                path.write_text(text, encoding="utf-8")
                config.task = str(path)
        job = run_job(
            hydra_context=sweep.context,
            task_function=sweep.function,
            config=config,
            job_dir_key="hydra.sweep.dir",
            job_subdir_key="hydra.sweep.subdir",
        )
        files = {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    told, warned = (each.getvalue().replace(str(folder), meant) for each in (said, complained))
    return Done(job.return_value, files, (told, warned))


def _taken(ray: Any, reference: Any, run: Run, config: Any) -> Any:
    """Keep what has come of a run, in the sweep's folder."""
    from mtmc.evaluate.ray_slots import first_line

    try:
        done: Done = ray.get(reference)
    except ray.exceptions.RayError as error:
        return _lost(run, config, f"the cluster could not make this run ({first_line(error)}): see ray status")
    folder = Path(config.hydra.sweep.dir)
    for name, content in done.files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    for text, stream in zip(done.said, (sys.stdout, sys.stderr), strict=True):
        print(text, end="", file=stream, flush=True)
    return _returned(run, config, folder / str(config.hydra.sweep.subdir), done.value)


def _lost(run: Run, config: Any, reason: str) -> Any:
    """The end of a run that could not be made, as if it had failed by itself."""
    from omegaconf import OmegaConf

    from mtmc.cli.sweep import record_failure

    folder = Path(config.hydra.sweep.dir) / str(config.hydra.sweep.subdir)
    (folder / ".hydra").mkdir(parents=True, exist_ok=True)
    OmegaConf.save(OmegaConf.create(list(run.overrides)), folder / ".hydra" / "overrides.yaml")
    record_failure(folder, f"run {run.number} ({', '.join(run.overrides)})", reason, reason)
    return _returned(run, config, folder, math.nan)


def _returned(run: Run, config: Any, folder: Path, value: Any) -> Any:
    """Hydra's `JobReturn` of a run."""
    from hydra.core.utils import JobReturn, JobStatus

    found = JobReturn(
        list(run.overrides), config, config.hydra, str(folder), config.hydra.job.name, JobStatus.COMPLETED
    )
    found.return_value = value
    return found
