"""LiveModel: a model with one example call of it, and what is read off that call."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import nn

from mtmc.errors import MtmcError, TaskError
from mtmc.hardware import hardware
from mtmc.task.live_objects import own_arguments, own_objects
from mtmc.task.live_settled import settle
from mtmc.task.live_state import unchanged
from mtmc.task.tensors import flat_tensors
from mtmc.whole.calls import CallTree
from mtmc.whole.examples import Example, examples
from mtmc.whole.pieces import Piece
from mtmc.whole.site import Profile
from mtmc.whole.timing import measured
from mtmc.whole.trace import Traced, trace

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class LiveModel:
    """A live model with its example call, and the tree of calls that was read off it."""

    model: nn.Module
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    tree: CallTree = field(default_factory=CallTree)
    _traced: list[Traced] = field(default_factory=list, repr=False)
    """At most one: the model is traced once, whatever is asked of it."""

    def call(self, model: nn.Module) -> Any:
        """What a model returns for the tensors of the example inputs themselves, with copies of other objects in them."""
        args, kwargs = own_objects((self.args, dict(self.kwargs)))
        return model(*args, **kwargs)

    def anew(self, model: nn.Module) -> Any:
        """What a model returns for copies of the example inputs; all buffers are then as they were."""
        args, kwargs = own_arguments(self.args, self.kwargs)
        with unchanged(self.model):
            return model(*args, **kwargs)

    def settle(self) -> None:
        """Let the model set up what its first call does, see `mtmc.task.live_settled`; one that does not run stays as it is.

        Raises: TaskError if each call changes a parameter.
        """

        def run() -> None:
            args, kwargs = own_arguments(self.args, self.kwargs)
            self.model(*args, **kwargs)

        devices = [torch.cuda.current_device()] if self.on_gpu else []
        try:
            with torch.no_grad(), torch.random.fork_rng(devices):
                settle(self.model, run, type(self.model).__name__)
        except TaskError:
            raise
        except Exception as error:
            _log.info("%s does not run on its example inputs: %s", type(self.model).__name__, error)

    @property
    def on_gpu(self) -> bool:
        """Whether the example inputs are on a GPU."""
        found = flat_tensors((self.args, dict(self.kwargs)))
        return any(tensor.is_cuda for tensor in found)

    def estimated(self, gpu: str) -> Profile:
        """Where the time of the call goes, estimated. gpu: name in the hardware table.

        Raises: TaskError if the model does not run on its example inputs.
        """
        try:
            if not self._traced:
                self._traced.append(trace(self.model, self.args, self.kwargs, self.tree))
            return self._traced[0].profile(hardware(gpu))
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
