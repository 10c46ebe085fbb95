"""Site and Profile: where the time of a whole model goes, submodule call by submodule call. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

TimeKind = Literal["measured", "estimated"]

ROOT = 0
"""Index of the site that is the whole model."""


@dataclass(frozen=True)
class Site:
    """One place of the tree of calls: a submodule, called in one way from one other site.

    index: its place in `Profile.sites`. parent: index of the site that calls it, None for the model itself.
    path: dotted path of the submodule in the model, "" for the model. kind: name of its class.
    signature: of the call, see `mtmc.whole.signature`. calls: how often it is called so in one call of the model.
    ms: of all these calls in one call of the model, what they call in turn included. bound_ms: of one call, what the
        hardware's bandwidth and arithmetic leave at least; 0 where that is not known.
    kernels: what one call launches, operation by operation. key: the same for calls that do the same work on other
        tensors. refusal: why no kernels can be searched for it, whatever it does; "" where they can.
    """

    index: int
    parent: int | None
    path: str
    kind: str
    signature: str
    calls: int
    ms: float
    bound_ms: float
    kernels: int
    key: str
    refusal: str = ""

    @property
    def name(self) -> str:
        """For people."""
        return f"{self.path} ({self.kind})" if self.path else self.kind

    @property
    def headroom(self) -> float:
        """How many times faster the hardware allows it to be, at least 1; 1 where that is not known."""
        each = self.ms / self.calls
        return max(1.0, each / self.bound_ms) if self.bound_ms > 0 else 1.0


@dataclass(frozen=True)
class Profile:
    """Where the time of one call of a model goes.

    sites: the model first, each before those it calls. time_kind: "measured" on the GPU, or "estimated" for `hardware`,
    a name in the hardware table.
    """

    sites: tuple[Site, ...]
    time_kind: TimeKind
    hardware: str

    @property
    def total_ms(self) -> float:
        """Of one call of the model."""
        return self.sites[ROOT].ms

    @cached_property
    def _children(self) -> dict[int, list[int]]:
        found: dict[int, list[int]] = {site.index: [] for site in self.sites}
        for site in self.sites:
            if site.parent is not None:
                found[site.parent].append(site.index)
        return found

    def children(self, site: Site) -> list[Site]:
        """The sites that a site calls."""
        return [self.sites[index] for index in self._children[site.index]]

    def above(self, site: Site) -> Iterator[Site]:
        """The sites that a site is called from, the nearest first."""
        while site.parent is not None:
            site = self.sites[site.parent]
            yield site

    def share(self, site: Site) -> float:
        """Of the model's time, 0 to 1."""
        return min(1.0, site.ms / self.total_ms) if self.total_ms > 0 else 0.0
