"""The whole model in several shapes: eager, compiled, with patches: how long each takes, and whether it is still right."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import nn

from mtmc.dropin.compiled import MODES
from mtmc.task.tensors import leaves
from mtmc.whole.patch import Replace, compiled, patched
from mtmc.whole.settle import EAGER, PATCHED, Keys, Settled, settle
from mtmc.whole.site import TimeKind
from mtmc.whole.timing import Compare

_log = logging.getLogger(__name__)

_TOLERANCES = {torch.float64: 1e-4, torch.float32: 2e-3, torch.bfloat16: 6e-2, torch.float16: 2e-2}
"""Norm of the difference over the norm of the result: a deep network makes rounding of its layers larger."""


@dataclass(frozen=True)
class Patch:
    """What stands in for a piece. paths: where. replace: makes the drop-in of what stands there. saved_ms: estimated, of
    one call of the whole. beats_compiler: see `PieceSearch.beats_compiler`."""

    paths: tuple[str, ...]
    replace: Replace
    saved_ms: float
    beats_compiler: bool = True


@dataclass(frozen=True)
class Judged:
    """times_ms: by name of the model. models: the same, each as it can be called. settled: which patches stay in eager
    mode; compiled_kept: and under torch.compile. notes: what could not be timed and why, which patches were wrong."""

    times_ms: Mapping[str, float]
    models: Mapping[str, nn.Module]
    settled: Settled
    compiled_kept: Keys
    kind: TimeKind
    notes: tuple[str, ...] = ()


class Judge(Protocol):
    """How a whole is judged: on a GPU, or by estimates."""

    def judge(self, model: nn.Module, patches: Mapping[str, Patch]) -> Judged:
        """The times of the model, with and without patches."""
        ...


class Patcher:
    """The model with any of its patches. A drop-in is made once, and stands in all the copies of the model."""

    def __init__(self, model: nn.Module, patches: Mapping[str, Patch]) -> None:
        self.model, self.patches = model, patches
        self._made: dict[tuple[int, tuple[str, ...]], tuple[nn.Module, nn.Module]] = {}

    def model_with(self, keys: Keys) -> nn.Module:
        """The model with these patches. A submodule that several are for gets them all."""
        places: dict[str, list[str]] = {}
        for key in sorted(keys):
            for path in self.patches[key].paths:
                places.setdefault(path, []).append(key)
        return patched(self.model, {path: self._replace(tuple(found)) for path, found in places.items()})

    def _replace(self, keys: tuple[str, ...]) -> Replace:
        def replace(module: nn.Module) -> nn.Module:
            if (id(module), keys) not in self._made:
                made = module
                for key in keys:
                    made = self.patches[key].replace(made)
                self._made[id(module), keys] = (module, made)  # holds the module, so that no other has its id
            return self._made[id(module), keys][1]

        return replace


@dataclass(frozen=True)
class Estimated(Judge):
    """Without a GPU: a patch saves what its piece is estimated to save. total_ms: of one call in eager mode."""

    total_ms: float

    def judge(self, model: nn.Module, patches: Mapping[str, Patch]) -> Judged:
        """See `Judge.judge`. torch.compile is not estimated."""

        def time(sets: Sequence[Keys]) -> list[float]:
            return [self.total_ms - sum(patches[key].saved_ms for key in keys) for keys in sets]

        settled = settle(frozenset(patches), time)
        times, models = {EAGER: self.total_ms}, {EAGER: model}
        if settled.kept:
            times[PATCHED], models[PATCHED] = settled.ms, Patcher(model, patches).model_with(settled.kept)
        note = "The times of the whole are sums of estimates, without torch.compile: with inputs on a GPU they are measured."
        return Judged(times, models, settled, frozenset(), "estimated", (note,))


@dataclass
class Measured(Judge):
    """On the GPU that the model is on.

    call: calls a model with the example inputs. anew: likewise, with copies of them and the model's buffers as they were.
    compare: see `timing.Compare`. modes: of torch.compile, by name.
    """

    call: Callable[[nn.Module], Any]
    anew: Callable[[nn.Module], Any]
    compare: Compare
    modes: Mapping[str, str | None] = field(default_factory=lambda: dict(MODES))

    def judge(self, model: nn.Module, patches: Mapping[str, Patch]) -> Judged:
        """See `Judge.judge`."""
        notes: list[str] = []
        patcher = Patcher(model, patches)
        right = self._right(patcher, notes)

        def time(sets: Sequence[Keys]) -> list[float]:
            return self.compare([self._caller(patcher.model_with(keys)) for keys in sets])

        settled = settle(right, time)
        models: dict[str, nn.Module] = {EAGER: model}
        if settled.kept:
            models[PATCHED] = patcher.model_with(settled.kept)
        kept = frozenset(key for key in right if patches[key].beats_compiler)
        for name, mode in self.modes.items():
            settings = {} if mode is None else {"mode": mode}
            models[name] = compiled(model, **settings)
            if kept:
                models[f"{PATCHED}, {name}"] = compiled(patcher.model_with(kept), **settings)
        models = self._running(models, notes)
        times = self.compare([self._caller(each) for each in models.values()])
        return Judged(dict(zip(models, times, strict=True)), models, settled, kept, "measured", tuple(notes))

    def _caller(self, model: nn.Module) -> Callable[[], Any]:
        return lambda: self.call(model)

    def _right(self, patcher: Patcher, notes: list[str]) -> Keys:
        """The patches with which, one by one and all together, the model's result is what it was."""
        with torch.no_grad():
            expected = _copied(self.anew(patcher.model))
            right = set()
            for key, patch in sorted(patcher.patches.items()):
                told = self._difference(patcher, frozenset({key}), expected)
                if told is None:
                    right.add(key)
                else:
                    notes.append(f"The patch of {patch.paths[0]} is not used: {told}.")
            together = self._difference(patcher, frozenset(right), expected) if len(right) > 1 else None
        if together is None:
            return frozenset(right)
        notes.append(f"No patch is used, for with all of them together {together}.")
        return frozenset()

    def _difference(self, patcher: Patcher, keys: Keys, expected: Sequence[Any]) -> str | None:
        try:
            found = self.anew(patcher.model_with(keys))
        except Exception as error:
            return f"the model fails ({type(error).__name__}: {' '.join(str(error).split())[:200]})"
        return difference([leaf for _, leaf in leaves(found)], expected)

    def _running(self, models: Mapping[str, nn.Module], notes: list[str]) -> dict[str, nn.Module]:
        """Those that run: a compiler that is missing or fails is told of, and does without."""
        running = {}
        for name, model in models.items():
            try:
                with torch.no_grad():
                    self.call(model)
                running[name] = model
            except Exception as error:
                if name == EAGER:
                    raise
                notes.append(f"{name} is not among the times: {type(error).__name__}: {_line(error)}")
                _log.warning("%s fails", name, exc_info=True)
        return running


def difference(found: Sequence[Any], expected: Sequence[Any]) -> str | None:
    """How a result differs from the one that was expected, None where it does not. Both as flat lists of leaves."""
    if len(found) != len(expected):
        return f"it returns {len(found)} things instead of {len(expected)}"
    for index, (got, want) in enumerate(zip(found, expected, strict=True)):
        if not isinstance(want, torch.Tensor):
            continue
        if not isinstance(got, torch.Tensor) or got.shape != want.shape or got.dtype != want.dtype:
            return f"result {index} is another thing"
        if not want.is_floating_point():
            if not torch.equal(got, want):
                return f"result {index} has other values"
            continue
        norm = want.double().nan_to_num(0, 0, 0).norm().item()
        error = (got.double() - want.double()).nan_to_num(0, 0, 0).norm().item()
        other = torch.isfinite(got) != torch.isfinite(want)
        if bool(other.any()) or error > _TOLERANCES.get(want.dtype, 6e-2) * norm:
            return f"result {index} differs by {error / max(norm, 1e-30):.2g} of its norm"
    return None


def _copied(result: Any) -> list[Any]:
    return [leaf.clone() if isinstance(leaf, torch.Tensor) else leaf for _, leaf in leaves(result)]


def _line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [""])[0][:200]
