"""The evaluator on a Ray cluster: versions are evaluated on all its machines, each GPU or each share of cores by itself.

The search, its policy and its coder stay in the caller's process. What crosses to the cluster is a task, once, and the
source of each version; what comes back are outcomes. mtmc has to be installed on every machine, in the same version.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, fields
from typing import Any, Literal

from mtmc.errors import ConfigError, EvaluatorError
from mtmc.evaluate.gpu import GpuSettings
from mtmc.evaluate.lab import LabSettings
from mtmc.evaluate.ray_slots import Slots, first_line
from mtmc.evaluate.settings import require_numbers
from mtmc.evaluate.threaded import ThreadedEvaluator
from mtmc.outcome import Outcome
from mtmc.protocols import EvaluationRequest, Evaluator, EvaluatorSettings
from mtmc.task import Task

TASKS_KEPT = 8
"""Tasks that stay in the cluster's memory: with its weights one may be large."""

_INNER: Mapping[str, Any] = {"lab": LabSettings, "gpu": GpuSettings}
_RAYS_OWN = {"lab": "workers", "gpu": "devices"}
"""The setting of each evaluator that says how many it is: here each is one, and Ray says where."""

_connected = threading.Lock()
_users = 0
"""Evaluators of this process that use a connection which one of them has made."""


@dataclass(frozen=True)
class RaySettings(EvaluatorSettings):
    """Settings of the evaluator on a Ray cluster.

    address: of a cluster that ray start has made, "auto" for the one that this machine is part of, or HOST:PORT; empty: Ray
        is started in this process and ended with it.
    of: which evaluator each slot opens: lab, gpu, or auto: gpu where the cluster has GPUs, else lab.
    settings: of that evaluator, {target: sm_80} say.
    slots: how many may be at work at the same time; 0: as many as there is room for now. Those for which there is no room
        wait for machines that join.
    cpus: cores that each slot has for itself; 0: one for the lab, for a GPU its share of its machine's.
    accelerator: the type of GPU in Ray's words (H100), where the cluster has several.
    wait_s: seconds without any slot, because all machines are lost or busy with other things, until the search ends; it can
        be resumed.
    tries: slots that may be lost over one evaluation before it is given up.
    """

    address: str = ""
    of: Literal["auto", "lab", "gpu"] = "auto"
    settings: Mapping[str, Any] = field(default_factory=dict)
    slots: int = 0
    cpus: int = 0
    accelerator: str = ""
    wait_s: float = 300.0
    tries: int = 3

    def open(self) -> RayEvaluator:
        """Connect and start the slots. Raises: ConfigError for a value that cannot be, EvaluatorError where there is no Ray
        or no cluster."""
        return RayEvaluator(self)

    def known_hardware(self) -> str:
        """Name of the GPU to estimate for, where the lab is named. Raises: ConfigError for a value that cannot be."""
        checked = _checked(self)
        return "" if checked is None else checked.known_hardware()


class RayEvaluator(ThreadedEvaluator):
    """Evaluates versions on a cluster; see `mtmc.protocols.Evaluator`. May be used from several threads."""

    def __init__(self, settings: RaySettings, opener: Callable[[], Evaluator] | None = None) -> None:
        """opener: in place of the evaluator that the settings name, a function that can be pickled."""
        require_numbers(settings, ("wait_s", "tries"), ("slots", "cpus"))
        checked = _checked(settings)
        self._ray = imported_ray()
        self._connected = connect(self._ray, settings.address)
        self._closed = False
        try:
            gpus = settings.of == "gpu" or (settings.of == "auto" and opener is None and _has_gpus(self._ray))
            cpus = settings.cpus or (_cpus_of_gpu(self._ray) if gpus else 1)
            resources: dict[str, Any] = {"num_cpus": cpus, "num_gpus": 1 if gpus else 0}
            if settings.accelerator:
                resources["accelerator_type"] = settings.accelerator
            count = settings.slots or room(self._ray.nodes(), gpus, cpus, settings.accelerator)
            made = opener or (checked or inner_settings("gpu" if gpus else "lab", settings.settings, cpus)).open
            self._slots = Slots(self._ray, made, count, resources, settings.wait_s, settings.tries)
        except BaseException:
            self._disconnect()
            raise
        self.hardware, self.verifies, self.profiles = (
            self._slots.hardware,
            self._slots.verifies,
            self._slots.profiles,
        )
        self._threads = ThreadPoolExecutor(count, thread_name_prefix="mtmc-ray")
        self._tasks: dict[Task, Any] = {}
        self._guard = threading.Lock()

    @property
    def slots(self) -> int:
        """How many evaluations may be under way."""
        return len(self._slots)

    def baselines(self, task: Task) -> dict[str, Outcome]:
        """See `protocols.Evaluator.baselines`."""
        found: dict[str, Outcome] = self._slots.ask("baselines", self._sent(task))
        return found

    def slow_baselines(self, task: Task) -> dict[str, Outcome]:
        """See `protocols.Evaluator.slow_baselines`."""
        found: dict[str, Outcome] = self._slots.ask("slow_baselines", self._sent(task))
        return found

    def imports(self, source: str) -> Outcome | None:
        """See `protocols.Evaluator.imports`."""
        found: Outcome | None = self._slots.ask("imports", source)
        return found

    def close(self) -> None:
        """End all slots, and Ray where it was started here. Idempotent."""
        if not self._closed:
            self._closed = True
            self._slots.close()
            self._threads.shutdown(wait=True, cancel_futures=True)
            self._disconnect()

    def _evaluate_one(self, request: EvaluationRequest) -> Outcome:
        asked = [(request.source, request.seed, request.depth)]
        [outcome] = self._slots.ask("evaluate", self._sent(request.task), asked)
        assert isinstance(outcome, Outcome)
        return outcome

    def _sent(self, task: Task) -> Any:
        """Where the cluster has a task: it is sent once, and not with each version."""
        with self._guard:
            if task not in self._tasks:
                self._tasks[task] = self._ray.put(task)
                if len(self._tasks) > TASKS_KEPT:
                    del self._tasks[next(iter(self._tasks))]
            return self._tasks[task]

    def _disconnect(self) -> None:
        if self._connected:
            disconnect(self._ray)


def inner_settings(name: str, given: Mapping[str, Any], cpus: int) -> EvaluatorSettings:
    """Settings of the evaluator of one slot. Raises: ConfigError for a setting that it does not take."""
    known = {each.name for each in fields(_INNER[name])}
    for each in given:
        if each == _RAYS_OWN[name]:
            raise ConfigError(f"evaluator.settings cannot have {each!r}: each slot is one; set evaluator.slots")
        if each not in known:
            raise ConfigError(
                f"evaluator.settings cannot have {each!r}: evaluator={name} takes {', '.join(sorted(known))}"
            )
    own: dict[str, Any] = {"workers": 1} if name == "lab" else {"builders": cpus}
    made: EvaluatorSettings = _INNER[name](**{**own, **given})
    return made


def room(nodes: Sequence[Mapping[str, Any]], gpus: bool, cpus: int, accelerator: str = "") -> int:
    """How many slots the machines of a cluster have room for, at least one: it may come. nodes: as `ray.nodes` has them."""
    count = 0
    for node in nodes:
        has = node["Resources"]
        if node["Alive"] and (not accelerator or f"accelerator_type:{accelerator}" in has):
            of_cpus = int(has.get("CPU", 0)) // cpus
            count += min(of_cpus, int(has.get("GPU", 0))) if gpus else of_cpus
    return max(1, count)


def connect(ray: Any, address: str) -> bool:
    """Connect this process, unless somebody has; whether it is to be ended with `disconnect`.

    Raises: EvaluatorError where there is no such cluster.
    """
    global _users
    with _connected:
        if ray.is_initialized() and _users == 0:
            return False
        if not ray.is_initialized():
            quiet = {"log_to_driver": False, "configure_logging": False}
            try:
                ray.init(address=address, **quiet) if address else ray.init("local", include_dashboard=False, **quiet)
            except Exception as error:
                hint = "start one with ray start --head, or leave evaluator.address empty"
                raise EvaluatorError(f"there is no Ray cluster at {address!r} ({first_line(error)}): {hint}") from error
        _users += 1
        return True


def disconnect(ray: Any) -> None:
    """One evaluator less; the last one ends the connection."""
    global _users
    with _connected:
        _users -= 1
        if _users == 0:
            ray.shutdown()


def _checked(settings: RaySettings) -> EvaluatorSettings | None:
    """The settings of each slot's evaluator where that is named, checked before anything is started."""
    if settings.of not in ("auto", *_INNER):
        raise ConfigError(f"evaluator.of cannot be {settings.of!r}: use auto, {' or '.join(_INNER)}")
    return inner_settings(settings.of, settings.settings, settings.cpus) if settings.of == "lab" else None


def _has_gpus(ray: Any) -> bool:
    return float(ray.cluster_resources().get("GPU", 0)) >= 1


def _cpus_of_gpu(ray: Any) -> int:
    """The least share of cores that a GPU of the cluster has."""
    machines = [node["Resources"] for node in ray.nodes() if node["Alive"] and node["Resources"].get("GPU", 0) >= 1]
    return max(1, min((int(has.get("CPU", 1) // has["GPU"]) for has in machines), default=1))


def imported_ray() -> Any:
    """Ray. Raises: EvaluatorError where it is not installed."""
    try:
        import ray
        import ray.exceptions
    except ImportError as error:
        raise EvaluatorError("evaluator=ray needs Ray, which is not installed: pip install 'mtmc[ray]'") from error
    return ray
