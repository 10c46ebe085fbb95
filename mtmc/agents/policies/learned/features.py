"""features: a version, and each action on it, as vectors of fixed length for a small network.

    OBSERVATION_NAMES, ACTION_NAMES                 what each number is
    observation_features(observation, graph)        float32 [len(OBSERVATION_NAMES)]
    action_features(observation, actions, graph)    float32 [len(actions), len(ACTION_NAMES)]

Both are pure functions of what a policy sees in a live search (`protocols.Observation`); recorded trees give the very same
numbers (`mtmc.rl.trees`), because they keep all of it that is read here. Sizes and times stand as logarithms to base 2,
most numbers between -4 and 4; what is not known is 0, with a flag beside it where that matters. Of a version without a
plan only its outcome, history and actions' kinds are told.

`FEATURES_VERSION` changes whenever a number here does: a trained network belongs to one version. The last action feature
is the heuristic policy's opinion (`mtmc.agents.policies.heuristic`), so that a network starts from it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from mtmc.action import Action
from mtmc.agents.policies.heuristic import Heuristic
from mtmc.agents.policies.learned.fit import FIT_NAMES, SETTING_NAMES, fit, settings_values
from mtmc.agents.policies.learned.graphs import GraphFacts, graph_facts
from mtmc.agents.policies.learned.stages import OP_CLASSES, StageFacts, stage_facts
from mtmc.agents.policies.learned.targets import Stages, Target
from mtmc.hardware import Hardware, hardware
from mtmc.protocols import Observation
from mtmc.rewrite.plan import Plan, Stage, plan_from_json

if TYPE_CHECKING:
    from mtmc.rewrite.graph import Graph

FEATURES_VERSION = 3

KINDS = (
    *("simplify", "fuse", "lower", "precision", "tile", "pipeline", "reorder", "vectorize", "split", "persist"),
    *("descriptors", "layout", "capture", "stop"),
)
"""Kinds with a number of their own; any other is `other`."""
FAMILIES = ("pointwise", "rowwise", "matmul", "convolution", "attention", "windows", "scan")

Vector = NDArray[np.float32]
_NO_FACTS = StageFacts(0, 0, 0.0, (0,) * len(OP_CLASSES))
_NO_GRAPH = GraphFacts((), (), ())
_NO_PLAN = Plan(())

_HARDWARE = ("sms", "dram_gbs", "l2_mib", "fp32_tflops", "tf32_tflops", "fp16_tflops", "shared_kib")
_GRAPH = (
    *(f"graph_{name}s" for name in OP_CLASSES),
    *("graph_bytes_read", "graph_bytes_written", "graph_flops", "graph_intensity", "graph_m", "graph_n", "graph_k"),
    *("graph_elements", "graph_cols", "graph_half", "graph_us"),
)
_PLAN = (
    *("plan_known", "plan_stages", "plan_torch", *(f"plan_{name}" for name in FAMILIES), "plan_other"),
    *("plan_largest", "plan_traffic", "plan_us", "plan_heaviest", "plan_launches", "plan_forms", "plan_alike"),
    *("plan_captured", "plan_simplified"),
)
_OUTCOME = (
    *(
        "measured",
        "runtime",
        "speedup",
        "last_gain",
        "roofline",
        "kernels",
        "occupancy",
        "registers",
        "spills",
        "shared",
    ),
    *("programs", "traffic", "bandwidth", "arithmetic", "resources_known", "us_share"),
)
_HISTORY = ("depth", *(f"done_{kind}" for kind in (*KINDS, "other")), "best_speedup", "since_best")

OBSERVATION_NAMES: tuple[str, ...] = (*_HARDWARE, *_GRAPH, *_PLAN, *_OUTCOME, *_HISTORY)

_SIDE = ("torch", *FAMILIES, "ops", *(f"ops_{name}" for name in OP_CLASSES))
_TARGET = (
    *(f"first_{name}" for name in _SIDE),
    *(f"second_{name}" for name in _SIDE),
    *("bytes_read", "bytes_written", "flops", "intensity", "m", "n", "k", "elements", "cols", "half"),
    *("us", "us_share", "all_us_share", "saved", "saved_share", "kernels", "kernels_share", "parts", "times"),
    *("launches", "launches_share"),
)
_REPEATS = ("repeats", "kind_done", "region_done", "kind_was_last")

ACTION_NAMES: tuple[str, ...] = (
    *(f"kind_{kind}" for kind in (*KINDS, "other")),
    *_TARGET,
    *SETTING_NAMES,
    *FIT_NAMES,
    *_REPEATS,
    "heuristic",
)


def observation_features(observation: Observation, graph: GraphFacts | None = None) -> Vector:
    """A version as [len(OBSERVATION_NAMES)].

    graph: facts of the task's graph where they are at hand; by default of the captured one (kept, so cheap but once a
    task). Raises: ConfigError for hardware that is not in the table, TaskError where the task does not export.
    """
    seen = _Seen(observation, graph)
    values = [*seen.hardware_values(), *seen.graph_values(), *seen.plan_values()]
    values += [*seen.outcome_values(), *seen.history_values()]
    return np.asarray(values, np.float32)


def action_features(
    observation: Observation,
    actions: Sequence[Action],
    graph: GraphFacts | None = None,
    only: Sequence[int] | None = None,
) -> Vector:
    """Actions on a version as [len(actions), len(ACTION_NAMES)]. graph, Raises: as `observation_features`.

    actions: all legal ones, for the heuristic's opinion of each is told. only: indices of those that a row is wanted of;
    by default all.
    """
    wanted = range(len(actions)) if only is None else only
    if not wanted:
        return np.zeros((0, len(ACTION_NAMES)), np.float32)
    seen = _Seen(observation, graph)
    opinions = Heuristic(experience=0.0).prior(observation, actions)
    rows = [[*seen.action_values(actions[at]), math.log(opinions[at] * len(actions))] for at in wanted]
    return np.asarray(rows, np.float32)


class _Seen:
    """An observation with its plan read and the facts of its stages found."""

    def __init__(self, observation: Observation, graph: GraphFacts | None) -> None:
        self.observation = observation
        self.gpu: Hardware = hardware(observation.hardware)
        self.plan = _plan(observation.plan) if observation.plan is not None else _NO_PLAN
        self.graph: GraphFacts | None = None
        if observation.plan is not None:
            self.graph = _captured(observation, self.plan) if graph is None else graph.simplified(self.plan.simplified)
        self.stages: tuple[Stage, ...] = self.plan.stages
        self.facts = [_NO_FACTS if self.graph is None else stage_facts(self.graph, stage.ops) for stage in self.stages]
        self.among = Stages(self.graph or _NO_GRAPH, self.stages, self.facts)
        self.times = [_us(stage, facts, self.gpu) for stage, facts in zip(self.stages, self.facts, strict=True)]
        self.us = sum(self.times)
        self.whole = (
            _NO_FACTS if self.graph is None else stage_facts(self.graph, tuple(op.name for op in self.graph.ops))
        )
        self.targets: dict[Target, tuple[StageFacts, list[float]]] = {}
        self.done = [(_kind(step.action), step.action) for step in observation.history]

    def hardware_values(self) -> list[float]:
        gpu = self.gpu
        rates = (gpu.fp32_tflops / 64, gpu.tf32_tflops / 512, gpu.fp16_tflops / 1024)
        sizes = (gpu.sms / 128, gpu.dram_gbs / 2048, gpu.l2_bytes / 2**25)
        return [*map(_log, sizes), *map(_log, rates), _log(gpu.shared_per_block / 2**17)]

    def graph_values(self) -> list[float]:
        whole = self.whole
        sizes = (whole.m, whole.n, whole.k, whole.elements, whole.cols)
        return [
            *(_log1(count) for count in whole.classes),
            _mebi(whole.bytes_read),
            _mebi(whole.bytes_written),
            _giga(whole.flops),
            _intensity(whole),
            *(_log1(size) / 4 for size in sizes),
            float(whole.width == 2),
            _log1(whole.us(self.gpu)) / 4 if self.graph is not None else 0.0,
        ]

    def plan_values(self) -> list[float]:
        families = [stage.family for stage in self.stages if not stage.is_torch]
        working = [each for each in self.facts if each.bytes]
        traffic = sum(each.bytes for each in working)
        return [
            float(bool(self.stages)),
            _log1(len(self.stages)),
            _log1(sum(stage.is_torch for stage in self.stages)),
            *(_log1(families.count(name)) for name in FAMILIES),
            _log1(sum(name not in FAMILIES for name in families)),
            _log1(max((len(stage.ops) for stage in self.stages), default=0)),
            _ratio(traffic, self.whole.bytes),
            _log1(self.us) / 4,
            max(self.times, default=0.0) / self.us if self.us else 0.0,
            _log1(sum(not self.among.is_free(at) for at in range(len(self.stages)))),
            _log1(len(self.among.forms)),
            _log1(max(self.among.forms.values(), default=0)),
            float(self.plan.captured),
            float(len(self.plan.simplified)),
        ]

    def outcome_values(self) -> list[float]:
        outcome, metrics, gpu = self.observation.outcome, self.observation.outcome.metrics, self.gpu
        speedups = [0.0, *(_log(step.speedup or 1.0) for step in self.observation.history)]
        ms = outcome.runtime_ms
        return [
            float(outcome.runtime_kind == "measured"),
            0.0 if ms is None else _log(ms * 10) / 4,
            speedups[-1],
            speedups[-1] - speedups[-2] if len(speedups) > 1 else 0.0,
            metrics.get("roofline", 0.0),
            _log1(metrics.get("kernels", 0.0)),
            metrics.get("occupancy", 0.0),
            metrics.get("registers", 0.0) / 128,
            _log1(metrics.get("spills", 0.0)) / 4,
            _log1(metrics.get("shared_memory", 0.0) / 1024) / 4,
            _ratio(metrics.get("programs", 0.0), gpu.sms) / 4,
            _ratio(metrics.get("bytes_moved", 0.0), metrics.get("bytes_min", 0.0)),
            metrics.get("achieved_gbs", 0.0) / gpu.dram_gbs,
            metrics.get("achieved_tflops", 0.0) / (gpu.fp16_tflops if self.whole.width == 2 else gpu.tf32_tflops),
            float("registers" in metrics),
            _ratio(self.us, 0.0 if ms is None else ms * 1e3),
        ]

    def history_values(self) -> list[float]:
        history = self.observation.history
        speedups = [0.0, *(_log(step.speedup or 1.0) for step in history)]
        best = max(speedups)
        kinds = [kind for kind, _ in self.done]
        counts = [kinds.count(kind) / 2 for kind in (*KINDS, "other")]
        return [len(history) / 4, *counts, best, (len(speedups) - 1 - speedups.index(best)) / 4]

    def action_values(self, action: Action) -> list[float]:
        target = self.among.target(action)
        changed = self._changed(action, target.places)
        kind = _kind(action)
        if target not in self.targets:  # many actions are about the same stage
            facts = self._facts_together(target.places)
            self.targets[target] = facts, self._target_values(target, facts)
        facts, values = self.targets[target]
        old = self.stages[target.places[0]] if target.places else None
        return [
            *(float(kind == each) for each in (*KINDS, "other")),
            *values,
            *self._launches(action),
            *settings_values(old, changed),
            *fit(changed, facts, self.gpu),
            *self._repeats(action, kind),
        ]

    def _changed(self, action: Action, places: Sequence[int]) -> Stage | None:
        """The kernel with the settings that the action gives it; None where it is about no single kernel."""
        if len(places) != 1 or self.stages[places[0]].is_torch:
            return None
        return self.stages[places[0]].scheduled({n: v for n, v in action.params if isinstance(v, int | str)})

    def _facts_together(self, places: Sequence[int]) -> StageFacts:
        if not places or self.graph is None:
            return _NO_FACTS
        return stage_facts(self.graph, tuple(op for place in places for op in self.stages[place].ops))

    def _side_values(self, places: Sequence[int]) -> list[float]:
        if not places:
            return [0.0] * len(_SIDE)
        stage, facts = self.stages[places[0]], self.facts[places[0]]
        return [
            float(stage.is_torch),
            *(float(stage.family == name) for name in FAMILIES),
            _log1(len(stage.ops)),
            *(_log1(count) for count in facts.classes),
        ]

    def _target_values(self, target: Target, facts: StageFacts) -> list[float]:
        places = target.places
        us = sum(self.times[place] for place in places)
        saved_us = 2 * target.bytes * target.times / self.gpu.dram_gbs / 1e3
        kernels_us = target.kernels * self.gpu.launch_us
        sizes = (facts.m, facts.n, facts.k, facts.elements, facts.cols)
        return [
            *self._side_values(places[:1]),
            *self._side_values(places[1:][-1:]),
            _mebi(facts.bytes_read),
            _mebi(facts.bytes_written),
            _giga(facts.flops),
            _intensity(facts),
            *(_log1(size) / 4 for size in sizes),
            float(facts.width == 2 and bool(places)),
            _log1(us) / 4,
            self._share(us),
            self._share(us * target.times),
            _log1(saved_us) / 4,
            self._share(saved_us),
            _log1(target.kernels) / 2,
            self._share(kernels_us),
            _log1(len(places)) / 2,
            _log(target.times) / 2,
        ]

    def _share(self, us: float) -> float:
        """Of the time that the version takes at least; 1 at most."""
        return min(1.0, us / self.us) if self.us else 0.0

    def _launches(self, action: Action) -> list[float]:
        """What a CUDA graph replays, and its launches as a share of the version's runtime."""
        count = dict(action.params).get("launches", 0)
        number, ms = float(count) if isinstance(count, int) else 0.0, self.observation.outcome.runtime_ms
        return [_log1(number) / 2, min(2.0, number * self.gpu.launch_us / ms / 1e3) if ms else 0.0]

    def _repeats(self, action: Action, kind: str) -> list[float]:
        same = [past for past_kind, past in self.done if past_kind == kind]
        return [
            float(any(past.key == action.key for past in same)),
            len(same) / 2,
            float(any(past.region.name == action.region.name for past in same)),
            float(bool(self.done) and self.done[-1][0] == kind),
        ]


def _captured(observation: Observation, plan: Plan) -> GraphFacts:
    from mtmc.rewrite.capture import capture
    from mtmc.rewrite.plan import graph_of

    return _facts_of(graph_of(capture(observation.task), plan))


@lru_cache(maxsize=64)
def _facts_of(graph: Graph) -> GraphFacts:
    return graph_facts(graph)


@lru_cache(maxsize=4096)
def _plan(text: str) -> Plan:
    return plan_from_json(text)


def _us(stage: Stage, facts: StageFacts, gpu: Hardware) -> float:
    """Microseconds that a stage takes at least; a view takes none."""
    free = stage.is_torch and facts.count("view") == len(stage.ops)
    return 0.0 if free or not facts.bytes else facts.us(gpu)


def _kind(action: Action) -> str:
    return action.kind if action.kind in KINDS else "other"


def _log(value: float) -> float:
    return math.log2(value) if value > 0 else 0.0


def _log1(value: float) -> float:
    return math.log2(1.0 + max(0.0, value))


def _ratio(above: float, below: float) -> float:
    """log2 of a ratio, 0 where either is not known."""
    return math.log2(above / below) if above > 0 and below > 0 else 0.0


def _mebi(size: float) -> float:
    return _log1(size / 2**20) / 4


def _giga(flops: float) -> float:
    return _log1(flops / 1e9) / 4


def _intensity(facts: StageFacts) -> float:
    return _ratio(facts.flops, facts.bytes) / 4
