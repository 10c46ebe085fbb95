"""optimize(): a live network in, the same network out with faster kernels in it, as far as these make it faster."""

from __future__ import annotations

import inspect
import json
import logging
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

from mtmc.cache import Asked, WinnerCache
from mtmc.dropin import drop_in
from mtmc.dropin import optimize as optimize_module
from mtmc.dropin.drop_in import refuse_module
from mtmc.errors import ConfigError, MtmcError, RunError, TaskError
from mtmc.files import write_whole
from mtmc.hardware import hardware
from mtmc.protocols import Evaluator
from mtmc.search import Budget, components, search
from mtmc.task.live_call import positional
from mtmc.whole.calls import CallTree, unchanged
from mtmc.whole.campaign import Campaign
from mtmc.whole.examples import Example, examples
from mtmc.whole.judge import MODES, Estimated, Judge, Measured, Patch
from mtmc.whole.patch import shallow
from mtmc.whole.piece_search import PieceSearch, check_budget
from mtmc.whole.pieces import Limits, Piece
from mtmc.whole.record import Record
from mtmc.whole.settle import EAGER
from mtmc.whole.signature import leaves, map_tensors
from mtmc.whole.site import ROOT, Profile
from mtmc.whole.summary import record_of
from mtmc.whole.timing import compare_on_gpu, measured
from mtmc.whole.trace import trace

_log = logging.getLogger(__name__)

DEFAULT_BUDGET = 64
"""Evaluations, of all pieces together."""
SUMMARY, TABLE, PIECES = "summary.json", "table.md", "pieces"
ATTRIBUTE = "mtmc"


@dataclass(frozen=True)
class WholeSettings:
    """What a whole model takes besides what a search takes.

    limits: of a piece. modes: of torch.compile that the whole is compared with, see `judge.MODES`. compare_seconds: wall
    time of one comparison of whole models on a GPU. judge: instead of the one that fits the machine.
    """

    limits: Limits = field(default_factory=Limits)
    modes: tuple[str, ...] = tuple(MODES)
    compare_seconds: float = 20.0
    judge: Judge | None = None

    def __post_init__(self) -> None:
        """Raises: ConfigError for a mode that does not exist."""
        for mode in self.modes:
            if mode not in MODES:
                raise ConfigError(f"there is no {mode!r} to compare a whole model with: use {', '.join(MODES)}")


@dataclass(frozen=True)
class _Model:
    """A live model with its example call, and the tree of calls that was read off it."""

    model: nn.Module
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    tree: CallTree = field(default_factory=CallTree)

    def call(self, model: nn.Module) -> Any:
        """What a model returns for the example inputs themselves."""
        return model(*self.args, **self.kwargs)

    def anew(self, model: nn.Module) -> Any:
        """What a model returns for copies of the example inputs; all buffers are then as they were."""
        args, kwargs = map_tensors((self.args, dict(self.kwargs)), torch.clone)
        with unchanged(self.model):
            return model(*args, **kwargs)

    @property
    def on_gpu(self) -> bool:
        """Whether the example inputs are on a GPU."""
        found = [leaf for leaf in leaves((*self.args, *self.kwargs.values())) if isinstance(leaf, torch.Tensor)]
        return any(tensor.is_cuda for tensor in found)

    def estimated(self, gpu: str) -> Profile:
        """Where the time of the call goes, estimated. gpu: name in the hardware table.

        Raises: TaskError if the model does not run on its example inputs.
        """
        try:
            return trace(self.model, self.args, self.kwargs, self.tree, hardware(gpu))
        except MtmcError:
            raise
        except Exception as error:
            name = type(self.model).__name__
            raise TaskError(f"{name} does not run on its example inputs: {type(error).__name__}: {error}") from error

    def profile(self, gpu: str) -> Profile:
        """The same, measured where the model is on a GPU. Raises: TaskError likewise."""
        profile = self.estimated(gpu)
        return measured(profile, self.tree, self.model, partial(self.call, self.model)) if self.on_gpu else profile

    def take(self, piece: Piece) -> Example:
        """See `campaign.Take`."""
        index = piece.sites[0].index
        found = examples(self.tree, self.model, partial(self.anew, self.model), [index])
        if index not in found:
            raise TaskError(f"{piece.sites[0].path} is not called in the same way when the model runs with its data")
        return found[index]


def optimize(
    module: nn.Module,
    example_inputs: Sequence[Any] | torch.Tensor = (),
    example_kwargs: Mapping[str, Any] | None = None,
    *,
    whole: bool | None = None,
    whole_settings: WholeSettings | None = None,
    cache: bool = True,
    **settings: Any,
) -> Any:
    """Search for faster kernels for a module or a whole network, and return it with those that make it faster.

    A module that is small enough for one search is handed to `mtmc.dropin.optimize`. Of a larger one each submodule that
    takes a share of the time gets a search, equal ones one together. The winners are put into a copy of the model, which is
    of the same class and shares its parameters, and each stays only if the whole gets faster by it. On a GPU the whole is
    timed against eager and torch.compile, and the fastest is returned: that may be the model under torch.compile, or as it
    was. What came of it is in the result's `.mtmc`, as a table in `.mtmc.table`.

    example_inputs: the positional arguments of one call (or the only one, a tensor); example_kwargs: its keyword
    arguments. whole: whether it is treated as a whole network; None: where it is too large for one search.
    cache: as of `mtmc.dropin.optimize`; a piece of a whole network is not searched again in the same network.
    settings: those of `mtmc.search.search`; `budget` is for all searches together, `out` a folder for all of them.

    Raises: TaskError where the model does not run on the example inputs; ConfigError, RunError, EvaluatorError as
        `mtmc.search.search` does.
    """
    args = positional(example_inputs)
    if whole is False:
        return optimize_module(module, args, example_kwargs, cache=cache, **settings)
    asked = whole_settings or WholeSettings()
    module = _without_record(module)
    refuse_module(module)
    live = _Model(module, args, dict(example_kwargs or {}))
    if whole is None and not _is_large(live, asked.limits):
        return optimize_module(module, args, example_kwargs, cache=cache, **settings)
    given = components.resolve("evaluator", settings.get("evaluator", "lab"))
    evaluator = components.opened(given)
    try:
        return _optimized(live, live.profile(evaluator.hardware), asked, settings, evaluator, cache)
    finally:
        if evaluator is not given:
            evaluator.close()


def _is_large(live: _Model, limits: Limits) -> bool:
    """Whether a model is too large for one search. One that does not even run is not: it is refused there."""
    try:
        size = live.estimated("H100").sites[ROOT].kernels  # the same for every GPU
    except Exception as error:
        _log.info("%s is taken for one piece: %s", type(live.model).__name__, error)
        return False
    finally:
        live.tree.forget()
    return size > limits.most_kernels


def _without_record(module: Any) -> Any:
    """A whole model that was optimized before, as a model again, with what is inside of it."""
    if not isinstance(module, nn.Module) or not isinstance(vars(module).get(ATTRIBUTE), Record):
        return module
    made = shallow(module)
    del made.__dict__[ATTRIBUTE]
    made.__dict__.pop("_compiled_call_impl", None)
    return made


def _optimized(
    live: _Model, profile: Profile, asked: WholeSettings, settings: Mapping[str, Any], evaluator: Evaluator, cache: bool
) -> nn.Module:
    """The model with its winners. settings: those of a search."""
    budget, out, rest = _checked(settings)
    of_cache = _asked(profile, budget, settings) if cache else None
    with _folder(out) as folder, unchanged(live.model):
        pieces = folder / PIECES
        campaign = Campaign(
            live.model, profile, live.take, evaluator, budget, pieces, rest, asked.limits, of_cache, out is None
        )
        campaign.run()
        for each in campaign.searches.values() if of_cache is not None else ():
            each.keep()
        modes = {name: MODES[name] for name in asked.modes}
        judge = asked.judge or (
            Measured(live.call, live.anew, partial(compare_on_gpu, seconds=asked.compare_seconds), modes)
            if live.on_gpu
            else Estimated(profile.total_ms)
        )
        judged = judge.judge(live.model, _patches(campaign))
        record = record_of(campaign, judged, _device(live, profile), None if out is None else str(folder))
        if out is not None:
            _write(folder, campaign, record)
        made = judged.models[record.chosen]
    made = shallow(made) if record.chosen == EAGER else made
    made.__dict__[ATTRIBUTE] = record
    return made


def _asked(profile: Profile, budget: Budget, settings: Mapping[str, Any]) -> Asked | None:
    """What the cache is asked for each piece, None where nothing can be kept of such searches.

    Raises: RunError if others may write to the cache's folder.
    """
    found = Asked.of({**settings, "budget": budget})
    if isinstance(found, str):
        _log.info("the cache is not used: %s", found)
        return None
    WinnerCache().check()
    return found.inside_of(profile.sites[ROOT].key)


def _patches(campaign: Campaign) -> dict[str, Patch]:
    """A patch for each piece of which a faster version was found."""
    found = {}
    for piece in campaign.choice.pieces:
        search_of = campaign.searches.get(piece.key)
        if search_of is None or search_of.source is None:
            continue
        saved = sum(site.ms for site in piece.sites) * (1 - 1 / search_of.speedup)
        found[piece.key] = Patch(piece.paths, partial(_replaced, search_of), saved, search_of.beats_compiler)
    return found


def _replaced(found: PieceSearch, module: nn.Module) -> nn.Module:
    """A drop-in of a submodule; the submodule itself where the winner is not right on it."""
    assert found.source is not None
    made: Any = drop_in(module, found.capture, [found.source])
    if made.mtmc.versions:
        return made
    if found.lookup is not None and found.entry is not None:
        found.lookup.refuse(made.mtmc.reason or "it was not right on the module")
    return module


def _checked(settings: Mapping[str, Any]) -> tuple[Budget, Path | None, dict[str, Any]]:
    """The whole budget, the folder, and what each search is given. Raises: ConfigError for a setting there is not."""
    known = [*(name for name in inspect.signature(search).parameters if name != "task"), "cache"]
    for name in settings:
        if name not in known:
            raise ConfigError(f"there is no setting {name!r} of a search: use {', '.join(known)}")
    budget = settings.get("budget", DEFAULT_BUDGET)
    budget = budget if isinstance(budget, Budget) else Budget(evaluations=budget)
    check_budget(budget)
    out = settings.get("out")
    rest = {name: value for name, value in settings.items() if name not in ("budget", "out", "evaluator", "cache")}
    return budget, None if out is None else Path(out), rest


@contextmanager
def _folder(out: Path | None) -> Iterator[Path]:
    """The folder for all runs. Raises: RunError if it holds something already."""
    if out is None:
        with tempfile.TemporaryDirectory(prefix="mtmc-") as name:
            yield Path(name)
        return
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise RunError(f"{out} is not an empty folder: choose another one with out=FOLDER")
    yield out


def _device(live: _Model, profile: Profile) -> str:
    return torch.cuda.get_device_name() if live.on_gpu else profile.hardware


def _write(folder: Path, campaign: Campaign, record: Record) -> None:
    for each in campaign.searches.values():
        each.finish()
    write_whole(folder / SUMMARY, json.dumps(record.plain(), indent=1) + "\n")
    write_whole(folder / TABLE, record.text + "\n")
