"""features: a version, and each action on it, as named numbers for a small network.

    observation_features(observation, graph)                    {name: number}
    action_features(observation, actions, graph, children)      one {name: number} an action

Both are pure functions of what a policy sees in a live search (`protocols.Observation`) and of the plans before and after
each action; recorded trees give the very same numbers (`mtmc.rl.trees`), because they keep all of it that is read here.
Sizes and times stand as logarithms to base 2, most numbers between -4 and 4. A name that is not there counts as 0: so a
number that is not known has a flag beside it where that matters.

Nobody lists the names: those with a colon in them come with kinds, templates and settings, whatever there are. A trained
network keeps the names that it learned from and takes its numbers by name (`vectors`), so a kind that is new needs no
training. The feature `heuristic` is the heuristic policy's opinion, so that a network starts from it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

from mtmc.action import Action
from mtmc.agents.policies.heuristic import Heuristic
from mtmc.agents.policies.learned.costs import PlanCosts, savings
from mtmc.agents.policies.learned.edits import Children, Place, children_of, places
from mtmc.agents.policies.learned.graphs import GraphFacts, graph_facts
from mtmc.agents.policies.learned.scales import giga, log, log1, mebi, ratio, signed
from mtmc.agents.policies.learned.schedules import Features, fit_features, settings_features
from mtmc.agents.policies.learned.stages import OP_CLASSES, StageFacts, stage_facts
from mtmc.hardware import Hardware, hardware
from mtmc.protocols import Observation
from mtmc.rewrite.plan import Plan, Stage, plan_from_json

if TYPE_CHECKING:
    from mtmc.rewrite.graph import Graph

HEURISTIC = "heuristic"
"""Name of the action feature that is the heuristic's opinion: the logarithm of its prior, 0 for an average action."""

Graphs = Callable[[tuple[str, ...]], GraphFacts]
"""The facts of a task's graph after kinds of algebra."""

_NO_GRAPH = GraphFacts((), (), ())
_NO_PLAN = Plan(())


def observation_features(observation: Observation, graph: GraphFacts | None = None) -> Features:
    """A version as named numbers.

    graph: facts of the task's graph where they are at hand; by default of the exported one (kept, so cheap but once a
    task). Raises: ConfigError for hardware that is not in the table, TaskError where the task does not export.
    """
    seen = _Seen(observation, graph)
    return {
        **_hardware_features(seen.gpu),
        **seen.graph_features(),
        **seen.plan_features(),
        **seen.outcome_features(),
        **seen.history_features(),
    }


def action_features(
    observation: Observation,
    actions: Sequence[Action],
    graph: GraphFacts | None = None,
    children: Children | None = None,
    only: Sequence[int] | None = None,
) -> list[Features]:
    """Actions on a version as named numbers. graph, Raises: as `observation_features`.

    actions: all legal ones, for the heuristic's opinion of each is told. children: the plans after them; by default those of
    the rewriter's moves. only: indices of those that are wanted; by default all.
    """
    wanted = range(len(actions)) if only is None else only
    if not wanted:
        return []
    seen = _Seen(observation, graph)
    children = children or children_of(observation)
    opinions = Heuristic(action_statistics=0.0).prior(observation, actions)
    return [
        {**seen.action_features(actions[at], children(actions[at])), HEURISTIC: math.log(opinions[at] * len(actions))}
        for at in wanted
    ]


class _Seen:
    """An observation with its plan read and the facts of its stages found."""

    def __init__(self, observation: Observation, graph: GraphFacts | None) -> None:
        self.observation = observation
        self.gpu: Hardware = hardware(observation.hardware)
        self.plan = plan_from_json(observation.plan) if observation.plan is not None else _NO_PLAN
        self.graphs = graphs_of(observation, graph)
        self.graph = self.graphs(self.plan.algebra)
        self.stages = PlanCosts(self.plan, self.graph, self.gpu)
        self.whole = stage_facts(self.graph, tuple(op.name for op in self.graph.ops))
        self.edits: dict[tuple[Place, int], Features] = {}

    def graph_features(self) -> Features:
        whole = self.whole
        found = {f"graph_{name}s": log1(count) for name, count in zip(OP_CLASSES, whole.classes, strict=True)}
        found |= {f"graph_{name}": value for name, value in _work_features(whole).items()}
        return {**found, "graph_us": log1(whole.us(self.gpu)) / 4 if self.graph.ops else 0.0}

    def plan_features(self) -> Features:
        stages, known = self.stages, self.plan.stages
        templates = Counter(stage.template for stage in known)
        largest = max(stages.times.values(), default=0.0)
        return {
            "plan_known": float(bool(known)),
            "plan_stages": log1(len(known)),
            **{f"plan:{name}": log1(count) for name, count in templates.items()},
            "plan_largest": log1(max((len(stage.ops) for stage in known), default=0)),
            "plan_traffic": ratio(sum(stages.facts(stage).bytes for stage in known), self.whole.bytes),
            "plan_us": log1(stages.total_us) / 4,
            "plan_heaviest": largest / stages.total_us if stages.total_us else 0.0,
            "plan_launches": log1(len(stages.working)),
            "plan_cuda_graph": float(self.plan.cuda_graph),
            "plan_algebra": float(len(self.plan.algebra)),
        }

    def outcome_features(self) -> Features:
        outcome, metrics, gpu = self.observation.outcome, self.observation.outcome.metrics, self.gpu
        speedups, ms = _speedups(self.observation), outcome.runtime_ms
        return {
            "measured": float(outcome.runtime_kind == "measured"),
            "runtime": 0.0 if ms is None else log(ms * 10) / 4,
            "speedup": speedups[-1],
            "last_gain": speedups[-1] - speedups[-2] if len(speedups) > 1 else 0.0,
            "roofline": metrics.get("roofline", 0.0),
            "kernels": log1(metrics.get("kernels", 0.0)),
            "occupancy": metrics.get("occupancy", 0.0),
            "registers": metrics.get("registers", 0.0) / 128,
            "spills": log1(metrics.get("spills", 0.0)) / 4,
            "shared": log1(metrics.get("shared_memory", 0.0) / 1024) / 4,
            "programs": ratio(metrics.get("programs", 0.0), gpu.sms) / 4,
            "traffic": ratio(metrics.get("bytes_moved", 0.0), metrics.get("bytes_min", 0.0)),
            "bandwidth": metrics.get("achieved_gbs", 0.0) / gpu.dram_gbs,
            "arithmetic": metrics.get("achieved_tflops", 0.0)
            / (gpu.fp16_tflops if self.whole.width == 2 else gpu.tf32_tflops),
            "resources_known": float("registers" in metrics),
            "us_share": ratio(self.stages.total_us, 0.0 if ms is None else ms * 1e3),
        }

    def history_features(self) -> Features:
        speedups, history = _speedups(self.observation), self.observation.history
        best = max(speedups)
        kinds = Counter(step.action.kind for step in history)
        return {
            "depth": len(history) / 4,
            **{f"done:{kind}": count / 2 for kind, count in kinds.items()},
            "best_speedup": best,
            "since_best": (len(speedups) - 1 - speedups.index(best)) / 4,
        }

    def action_features(self, action: Action, child: Plan | None) -> Features:
        """kind:KIND; what the edit changes, where the plan after it is known; how often the like was done before."""
        found = {f"kind:{action.kind}": 1.0, **self._repeats(action)}
        if child is None:
            return found
        changed = places(self.plan, child)
        found |= {"edit_known": 1.0, **self._edit_features(changed, child)}
        if changed:
            subject = self._subject(changed)
            if (subject, len(changed)) not in self.edits:  # many actions are about the same stage
                self.edits[subject, len(changed)] = self._before_features(subject, changed)
            found |= self.edits[subject, len(changed)]
            found |= self._after_features(subject, child)
        return found

    def _subject(self, changed: Sequence[Place]) -> Place:
        """What an edit is about: its first place where they are all alike, or else all of them together."""
        forms = {tuple((old.template, self.stages.facts(old).classes) for old in place.before) for place in changed}
        if len(forms) == 1:
            return changed[0]
        before = (stage for place in changed for stage in place.before)
        return Place(tuple(before), tuple(stage for place in changed for stage in place.after))

    def _edit_features(self, changed: Sequence[Place], child: Plan) -> Features:
        """What the edit saves in all: launches, bytes, arithmetic; and the launches that a CUDA graph takes over."""
        gpu, ms = self.gpu, self.observation.outcome.runtime_ms
        saved = savings(changed, self.graph, self.graphs(child.algebra))
        saved_us, kernels_us = saved.bytes / gpu.dram_gbs / 1e3, saved.kernels * gpu.launch_us
        launches = len(self.stages.working) if child.cuda_graph and not self.plan.cuda_graph else 0
        return {
            "saved": signed(log1, saved_us) / 4,
            "saved_share": self._share(saved_us),
            "saved_flops": signed(giga, saved.flops),
            "saved_flops_share": min(1.0, max(-1.0, saved.flops / self.whole.flops)) if self.whole.flops else 0.0,
            "kernels_saved": signed(log1, saved.kernels) / 2,
            "kernels_share": self._share(kernels_us),
            "times": log(max(1, len(changed))) / 2,
            "launches": log1(launches) / 2,
            "launches_share": min(2.0, launches * gpu.launch_us / ms / 1e3) if ms else 0.0,
        }

    def _before_features(self, subject: Place, changed: Sequence[Place]) -> Features:
        """The stages that the edit is about: their times, what the first and the last of them are."""
        stages = self.stages
        working = [stage for stage in subject.before if stage in stages.times]
        us = sum(stages.times[stage] for stage in working)
        all_us = sum(stages.times.get(stage, 0.0) for place in changed for stage in place.before)
        found = {
            "us": log1(us) / 4,
            "us_share": self._share(us),
            "all_us_share": self._share(all_us),
            "parts": log1(len(working)) / 2,
        }
        for side, part in (("first", working[:1]), ("second", working[1:][-1:])):
            for stage in part:
                found |= self._side_features(side, stage)
        return found

    def _side_features(self, side: str, stage: Stage) -> Features:
        classes = zip(OP_CLASSES, self.stages.facts(stage).classes, strict=True)
        return {
            f"{side}:{stage.template}": 1.0,
            f"{side}_ops": log1(len(stage.ops)),
            **{f"{side}_ops_{name}": log1(count) for name, count in classes if count},
        }

    def _after_features(self, subject: Place, child: Plan) -> Features:
        """The stages that come: what they compute together, what a single kernel is; and of one whose schedule alone is
        changed its settings and how they fit. (Those of a kernel that is new are its template's; told as well, they made
        the trained policy worse: 0.952 instead of 0.956 on the validation trees.)"""
        facts = stage_facts(self.graphs(child.algebra), tuple(op for stage in subject.after for op in stage.ops))
        found = _work_features(facts)
        if len(subject.after) == 1 and not subject.after[0].is_torch:
            (kernel,) = subject.after
            found[f"to:{kernel.template}"] = 1.0
            for old in subject.before:
                if (old.ops, old.template) == (kernel.ops, kernel.template):
                    found |= settings_features(old, kernel)
                    found |= fit_features(kernel, facts, self.gpu)
        return found

    def _share(self, us: float) -> float:
        """Of the time that the version takes at least; between -1 and 1."""
        return max(-1.0, min(1.0, us / self.stages.total_us)) if self.stages.total_us else 0.0

    def _repeats(self, action: Action) -> Features:
        done = [step.action for step in self.observation.history]
        same = [past for past in done if past.kind == action.kind]
        return {
            "repeats": float(any(past.key == action.key for past in same)),
            "kind_done": len(same) / 2,
            "region_done": float(any(past.region.name == action.region.name for past in same)),
            "kind_was_last": float(bool(done) and done[-1].kind == action.kind),
        }


def _hardware_features(gpu: Hardware) -> Features:
    return {
        "sms": log(gpu.sms / 128),
        "dram_gbs": log(gpu.dram_gbs / 2048),
        "l2_mib": log(gpu.l2_bytes / 2**25),
        "fp32_tflops": log(gpu.fp32_tflops / 64),
        "tf32_tflops": log(gpu.tf32_tflops / 512),
        "fp16_tflops": log(gpu.fp16_tflops / 1024),
        "shared_kib": log(gpu.shared_per_block / 2**17),
    }


def _work_features(facts: StageFacts) -> Features:
    """What some ops compute together: bytes, flops, sizes."""
    sizes = {"m": facts.m, "n": facts.n, "k": facts.k, "elements": facts.elements, "cols": facts.cols}
    return {
        "bytes_read": mebi(facts.bytes_read),
        "bytes_written": mebi(facts.bytes_written),
        "flops": giga(facts.flops),
        "intensity": ratio(facts.flops, facts.bytes) / 4,
        **{name: log1(size) / 4 for name, size in sizes.items()},
        "half": float(facts.width == 2),
    }


def _speedups(observation: Observation) -> list[float]:
    """log2 of the speedups over the root on the way to a version, the root's 0 first."""
    return [0.0, *(log(step.speedup or 1.0) for step in observation.history)]


def graphs_of(observation: Observation, recorded: GraphFacts | None) -> Graphs:
    """The facts of a task's graph after kinds of algebra: the recorded ones, or those of the exported graph."""
    if recorded is not None:
        return recorded.after_rules
    if observation.plan is None:
        return lambda kinds: _NO_GRAPH
    from mtmc.rewrite.exported import export_graph

    exported = export_graph(observation.task)
    return lambda kinds: _facts_of(exported, kinds)


@lru_cache(maxsize=64)
def _facts_of(exported: Graph, kinds: tuple[str, ...]) -> GraphFacts:
    from mtmc.rewrite.algebra import after_rules

    return graph_facts(after_rules(exported, kinds))
