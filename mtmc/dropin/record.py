"""Record: what `.mtmc` of a drop-in tells, and the choice between kernels and the original at each call."""

from __future__ import annotations

import logging
import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch

from mtmc.dropin.loaded import launchable
from mtmc.dropin.modes import why_not_now
from mtmc.dropin.module_state import ModuleState
from mtmc.dropin.recipe import Recipe
from mtmc.dropin.traced import traced_call
from mtmc.dropin.verify import in_one_line, why_not_right
from mtmc.dropin.winner import NOT_HERE, Winner

if TYPE_CHECKING:
    from mtmc.dropin.found import Found
    from mtmc.search import SearchResult

_log = logging.getLogger(__name__)

_MOST_WARNINGS = 20
_MOST_REASONS = 500
OTHER_REASONS = "other reasons"
"""Stands for those after the first `_MOST_REASONS`: guards tell sizes, and these may be others at each call."""


class Record:
    """What is known of a drop-in, as its attribute `mtmc`.

    original: the module that was given. result: the search, None where there was none in this process. found: what that
    has found in short, from the cache too; None for a copy. kernel_calls, original_calls: how often each has run. reasons:
    why the original ran, and how often. plain: an object of the original's class, for copies (`mtmc.dropin.optimized`). All
    of it is to be read, not to be set.
    """

    def __init__(
        self,
        original: torch.nn.Module,
        forward: Callable[..., Any],
        result: SearchResult | None = None,
        reason: str | None = None,
    ) -> None:
        """forward: the original's as a function of the drop-in and the call's arguments."""
        self.original = original
        self.result = result
        self.found: Found | None = None
        self.kernel_calls = 0
        self.original_calls = 0
        self.reasons: Counter[str] = Counter()
        self.plain: torch.nn.Module = object.__new__(type(original))
        self._forward = forward
        self._reason = reason
        self._winners: list[Winner] = []
        self._state: ModuleState | None = None

    def __repr__(self) -> str:
        used = f"the original: {self.reason}" if self.reason else f"kernels of {len(self._winners)} versions"
        found = "" if self.found is None else f"{self.found}; "
        return f"<mtmc: {found}{used}; {self.kernel_calls} calls of kernels, {self.original_calls} of the original>"

    @property
    def reason(self) -> str | None:
        """Why the original is used for all calls, None where there are kernels."""
        if any(winner.verified for winner in self._winners):
            return None
        return self._reason if not self._winners else NOT_HERE

    @property
    def versions(self) -> tuple[str, ...]:
        """The sources of the versions that are used, in the order in which they are asked."""
        return tuple(winner.recipe.source for winner in self._winners)

    @property
    def recipes(self) -> tuple[tuple[Recipe, bool], ...]:
        """What makes the versions anew for a copy of the module, each with whether it has been right on this one."""
        return tuple((winner.recipe, winner.verified) for winner in self._winners)

    def add(
        self,
        module: torch.nn.Module,
        recipe: Recipe,
        example: Sequence[torch.Tensor] | None = None,
        verified: bool = False,
    ) -> str | None:
        """Use one more version, if it is right on the module; returns why it is not used, None where it is.

        Where kernels cannot be launched on the module's device, it is tried at the first call on one where they can.
        module: the drop-in. example: the tensors of the example call. verified: that it was right before, on a copy.
        """
        try:
            winner = Winner(recipe, module, self.original.forward)
        except Exception as error:  # a source is a program, and a module may have lost tensors
            return self._refuse(f"a version does not load: {type(error).__name__}: {error}")
        winner.verified = verified
        self._winners.append(winner)
        self._state = ModuleState(module, self._held())
        devices = {x.device for x in (*(example or ()), *winner.tensors())}
        return None if verified or not all(map(launchable, devices)) else self._verify(winner, module, example)

    def _verify(
        self, winner: Winner, module: torch.nn.Module, example: Sequence[torch.Tensor] | None = None
    ) -> str | None:
        """Run a version beside the original, and drop it where it is not right; returns why."""
        assert self._state is not None
        reason = why_not_right(winner, module, self.original_forward(module), example)
        changed = self._state.why_not()
        if reason is None and changed is not None:
            reason = f"forward changes what kernels do not: {changed}"
        winner.verified = reason is None
        if reason is None:
            return None
        self._winners = [each for each in self._winners if each is not winner]
        return self._refuse(reason)

    def _held(self) -> set[tuple[int, Any]]:
        """The plain attributes that versions read."""
        places = [place for winner in self._winners for place in winner.places]
        return {(id(owner), key) for owner, key in places if isinstance(owner, dict)}

    def original_forward(self, module: torch.nn.Module) -> Callable[..., Any]:
        """The original's forward on the drop-in."""
        return lambda *args, **kwargs: self._forward(module, *args, **kwargs)

    def call(self, module: torch.nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """What the module returns for a call: by kernels where they hold for it, else by the original."""
        reason = self._reason or ""
        if self._winners and self._state is not None:
            reason = why_not_now() or self._state.why_not() or ""
            if not reason:
                for winner in self._winners:
                    admitted = winner.admit(args, kwargs)
                    if not isinstance(admitted, str) and not winner.verified:
                        admitted = self._verify(winner, module) or admitted
                    if isinstance(admitted, str):
                        reason = reason or admitted
                        continue
                    launched = admitted.verdict.launched
                    try:
                        result = winner.run(admitted)
                    except Exception as error:
                        if launched and winner.mutated:
                            raise  # its tensors may be half changed, and the original would start from there
                        reason = f"its kernels could not be launched: {in_one_line(error)}"
                        winner.give_up(admitted, reason)
                        continue
                    self.kernel_calls += 1
                    return result
        self._tell(reason)
        return self._forward(module, *args, **kwargs)

    def compiled(self, module: torch.nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """The same as the compiler sees it, which counts no calls."""
        # The flag itself: torch 2.11 takes is_exporting() for true whenever it compiles.
        if not getattr(torch.compiler, "_is_exporting_flag", False):
            for winner in self._winners:
                if winner.traced is not None and winner.verified:
                    held, result = traced_call(winner.traced, module, args, kwargs)
                    if held:
                        return result
        return self._forward(module, *args, **kwargs)

    def _tell(self, reason: str) -> None:
        """Count a call of the original, and warn of a reason that is new."""
        self.original_calls += 1
        if len(self.reasons) >= _MOST_REASONS and reason not in self.reasons:
            reason = OTHER_REASONS
        known = reason in self.reasons
        self.reasons[reason] += 1
        if not known and len(self.reasons) <= _MOST_WARNINGS and self._winners:
            warnings.warn(f"mtmc: the original module is used: {reason}", RuntimeWarning, stacklevel=6)

    def _refuse(self, reason: str) -> str:
        self._reason = reason
        _log.info("a version of %s is not used: %s", type(self.original).__name__, reason)
        return reason
