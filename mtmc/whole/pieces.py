"""Which submodules of a model get a search: an antichain of the tree of calls that covers its time. Pure.

From the model downwards a call is taken whole if it is small enough for a search; else those inside of it are looked at.
So what is taken is as large as can be, for what a kernel can fuse lies between operations. Equal calls are one piece with
several places, for a version of one is right for all of them. A submodule that is called in several ways is in several
pieces, and gets the versions of each.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from mtmc.task.base import MOST_STATE
from mtmc.whole.site import ROOT, Profile, Site


@dataclass(frozen=True)
class Limits:
    """most_kernels: operations of one call that a search can still deal with. most_bytes: of weights, likewise.
    least_share: of the model's time, that all places of a piece have together."""

    most_kernels: int = 64
    most_bytes: int = MOST_STATE
    least_share: float = 0.01

    @classmethod
    def where(cls, on_gpu: bool) -> Limits:
        """Those that fit the machine: on a GPU a network of up to 512 operations is one search. Without one its kernels
        would be interpreted for minutes."""
        return cls(most_kernels=512) if on_gpu else cls()


@dataclass(frozen=True)
class Piece:
    """A submodule that gets a search, and where else it stands. sites: equal ones, the first is searched. share: of the
    model's time, 0 to 1."""

    key: str
    sites: tuple[Site, ...]
    share: float

    @property
    def paths(self) -> tuple[str, ...]:
        """The submodules that a winner is put in place of."""
        return tuple(dict.fromkeys(site.path for site in self.sites))

    @property
    def name(self) -> str:
        """For people: "LlamaMLP model.layers.*.mlp"."""
        return f"{self.sites[0].kind} {pattern(self.paths)}".strip()

    @property
    def headroom(self) -> float:
        """See `Site.headroom`."""
        return self.sites[0].headroom


@dataclass(frozen=True)
class PassedOver:
    """Calls that get no search. name: for people. share: of the model's time. places: submodules. reason: why not."""

    name: str
    share: float
    places: int
    reason: str


@dataclass(frozen=True)
class Choice:
    """pieces: by share, the largest first. passed_over: what of the rest is large enough to be told of, likewise."""

    pieces: tuple[Piece, ...]
    passed_over: tuple[PassedOver, ...] = ()


@dataclass
class _Found:
    """What a walk through the calls has found so far: taken ones and refused ones with the reason, each by key."""

    taken: dict[str, list[Site]] = field(default_factory=dict)
    refused: dict[tuple[str, str], list[Site]] = field(default_factory=dict)


def choose(profile: Profile, limits: Limits = Limits(), refused: Mapping[str, str] | None = None) -> Choice:
    """The pieces of a model, which are all inside of it. refused: why not, by the key of calls for which that came out
    later."""
    found = _Found()
    for site in profile.children(profile.sites[ROOT]):
        _walk(profile, site, limits, refused or {}, found)
    pieces, small = list[Piece](), list[Piece]()
    for key, sites in found.taken.items():
        piece = Piece(key, tuple(sites), _share(profile, sites))
        (pieces if piece.share >= limits.least_share else small).append(piece)
    reason = f"less than {limits.least_share:.0%} of the time"
    told = [PassedOver(piece.name, piece.share, len(piece.paths), reason) for piece in small]
    for (key, why), sites in found.refused.items():
        piece = Piece(key, tuple(sites), _share(profile, sites))
        told.append(PassedOver(piece.name, piece.share, len(piece.paths), why))
    told = [each for each in told if each.share >= limits.least_share]
    order = sorted(pieces, key=lambda piece: -piece.share)
    return Choice(tuple(order), tuple(sorted(told, key=lambda each: -each.share)))


def _walk(profile: Profile, site: Site, limits: Limits, refused: Mapping[str, str], found: _Found) -> None:
    if site.kernels == 0:
        return
    reason = site.refusal or refused.get(site.key, "")
    if not reason and site.kernels <= limits.most_kernels:
        found.taken.setdefault(site.key, []).append(site)
        return
    if reason:
        found.refused.setdefault((site.key, reason), []).append(site)
    inside = profile.children(site)
    if not reason and not any(child.kernels for child in inside):
        reason = f"{site.kernels} operations in one module are too many for a search (at most {limits.most_kernels})"
        found.refused.setdefault((site.key, reason), []).append(site)
    for child in inside:
        _walk(profile, child, limits, refused, found)


def _share(profile: Profile, sites: Sequence[Site]) -> float:
    return min(1.0, sum(profile.share(site) for site in sites))


def pattern(paths: Sequence[str]) -> str:
    """Several paths as one, with a star where they differ: "layers.*.mlp"; the first one where they differ in length."""
    steps = [path.split(".") for path in paths]
    if len({len(each) for each in steps}) > 1:
        return f"{paths[0]} and {len(paths) - 1} more"
    return ".".join(column[0] if len(set(column)) == 1 else "*" for column in zip(*steps, strict=True))


def rest_share(choice: Choice) -> float:
    """Of the model's time, what is in no piece."""
    return max(0.0, 1.0 - sum(piece.share for piece in choice.pieces))
