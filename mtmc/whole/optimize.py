"""optimize(): a live network in, the same network out with faster kernels in it, as far as these make it faster."""

from __future__ import annotations

import json
import logging
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

from mtmc.cache import Asked, WinnerCache
from mtmc.dropin import drop_in
from mtmc.dropin import optimize as optimize_module
from mtmc.dropin.compiled import MODES
from mtmc.dropin.drop_in import refuse_module
from mtmc.errors import RunError, TaskError
from mtmc.files import write_whole
from mtmc.search import Budget, components
from mtmc.task.live_call import positional
from mtmc.task.live_state import unchanged
from mtmc.task.tensors import held
from mtmc.whole.campaign import Campaign
from mtmc.whole.judge import Estimated, Measured, Patch
from mtmc.whole.live import LiveModel
from mtmc.whole.patch import shallow
from mtmc.whole.piece_search import PieceSearch
from mtmc.whole.pieces import Limits
from mtmc.whole.record import Record
from mtmc.whole.settings import WholeSettings, checked, hardware_of
from mtmc.whole.settle import EAGER
from mtmc.whole.site import ROOT, Profile
from mtmc.whole.summary import record_of
from mtmc.whole.timing import compare_on_gpu

_log = logging.getLogger(__name__)

SUMMARY, TABLE, PIECES = "summary.json", "table.md", "pieces"
ATTRIBUTE = "mtmc"
FEW = 64
"""Operations of a module that is refused where it cannot be captured: a larger one is searched in pieces then."""


def optimize(
    module: nn.Module,
    example_inputs: Sequence[Any] | torch.Tensor = (),
    example_kwargs: Mapping[str, Any] | None = None,
    *,
    whole: bool | None = None,
    whole_settings: WholeSettings | None = None,
    cache: bool = True,
    anew: bool | None = None,
    compiled: bool = True,
    **settings: Any,
) -> Any:
    """Search for faster kernels for a module or a whole network, and return it with those that make it faster.

    A module that is small enough for one search is handed to `mtmc.dropin.optimize`. Of a larger one, and of one that
    cannot be captured as one though it has more than `FEW` operations, each submodule that takes a share of the time gets
    a search, equal ones one together. The winners are put into a copy of the model, which is of the same class and shares
    its parameters, and each stays only if the whole gets faster by it. On a GPU the whole is timed against eager and
    torch.compile, and the fastest is returned: that may be the model under torch.compile, or as it was. What came of it is
    in the result's `.mtmc`, as a table in `.mtmc.table`.

    example_inputs: the positional arguments of one call (or the only one, a tensor); example_kwargs: its keyword
    arguments. whole: whether it is treated as a whole network; None: where it is too large for one search.
    cache, anew: as of `mtmc.dropin.optimize`; a piece of a whole network is not searched again in the same network.
    compiled: whether the original under torch.compile is returned where it is faster.
    settings: those of `mtmc.search.search`; `budget` is for all searches together, `out` a folder for all of them.

    Raises: TaskError where the model does not run on the example inputs, or changes a parameter at each call; ConfigError,
        RunError, EvaluatorError as `mtmc.search.search` does.
    """
    args = positional(example_inputs)
    if whole is False:
        return optimize_module(module, args, example_kwargs, cache=cache, anew=anew, compiled=compiled, **settings)
    asked = whole_settings or WholeSettings()
    asked = asked if compiled else replace(asked, modes=())
    module = _without_record(module)
    refuse_module(module)
    live = LiveModel(module, args, dict(example_kwargs or {}))
    live.settle()
    notes: tuple[str, ...] = ()
    limits = asked.limits or Limits.where(live.on_gpu)
    if whole is None and not _is_large(live, limits):
        try:
            return optimize_module(module, args, example_kwargs, cache=cache, anew=anew, compiled=compiled, **settings)
        except TaskError as error:
            if _kernels(live) <= FEW:
                raise
            notes = (f"It is searched in pieces, for it cannot be as one: {' '.join(str(error).split())}",)
            _log.warning("%s: %s", type(module).__name__, notes[0])
    anew = settings.get("out") is not None if anew is None else anew
    return _optimized(live, asked, limits, settings, cache, anew, notes)


def _is_large(live: LiveModel, limits: Limits) -> bool:
    """Whether a model is too large for one search."""
    weights = held([*live.model.parameters(), *live.model.buffers()])
    return weights > limits.most_bytes or _kernels(live) > limits.most_kernels


def _kernels(live: LiveModel) -> int:
    """Operations of one call of a model. Of one that does not even run, none: it is refused as one piece."""
    try:
        return live.estimated("H100").sites[ROOT].kernels  # the same for every GPU
    except Exception as error:
        _log.info("%s is taken for one piece: %s", type(live.model).__name__, error)
        return 0


def _without_record(module: Any) -> Any:
    """A whole model that was optimized before, as a model again, with what is inside of it."""
    if not isinstance(module, nn.Module) or not isinstance(vars(module).get(ATTRIBUTE), Record):
        return module
    made = shallow(module)
    del made.__dict__[ATTRIBUTE]
    made.__dict__.pop("_compiled_call_impl", None)
    return made


def _optimized(
    live: LiveModel,
    asked: WholeSettings,
    limits: Limits,
    settings: Mapping[str, Any],
    cache: bool,
    anew: bool,
    notes: tuple[str, ...] = (),
) -> nn.Module:
    """The model with its winners. settings: those of a search. notes: what its record says besides."""
    budget, out, rest = checked(settings)
    evaluator = components.resolve("evaluator", settings.get("evaluator", "lab"))
    profile = live.profile(hardware_of(evaluator))
    of_cache = _asked(profile, budget, settings) if cache else None
    with _folder(out) as folder, unchanged(live.model):
        pieces = folder / PIECES
        campaign = Campaign(live.model, profile, live.take, evaluator, budget, pieces, rest, limits, of_cache, not anew)
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
        record = replace(record, notes=(*notes, *record.notes))
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
    found.not_right[id(module)] = made.mtmc.reason or "it was not right on the module"
    if found.lookup is not None and found.entry is not None:
        found.lookup.refuse(made.mtmc.reason or "it was not right on the module")
    return module


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


def _device(live: LiveModel, profile: Profile) -> str:
    return torch.cuda.get_device_name() if live.on_gpu else profile.hardware


def _write(folder: Path, campaign: Campaign, record: Record) -> None:
    for each in campaign.searches.values():
        each.finish()
    write_whole(folder / SUMMARY, json.dumps(record.plain(), indent=1) + "\n")
    write_whole(folder / TABLE, record.text + "\n")
