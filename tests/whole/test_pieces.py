"""Which submodules get a search, how the budget goes to them, and which winners stay: all by numbers worked out by hand."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from mtmc.whole.allocate import Prospect, expected_gain, expected_speedup, next_slice, slice_size
from mtmc.whole.piece_search import PieceSearch
from mtmc.whole.pieces import Limits, choose, pattern, rest_share
from mtmc.whole.settle import EAGER, Keys, best_of, settle
from mtmc.whole.site import Profile, Site


def site(index: int, parent: int | None, path: str, ms: float, kernels: int, key: str = "", refusal: str = "") -> Site:
    return Site(index, parent, path, key.upper() or "Net", "", 1, ms, ms / 2, kernels, key or f"own {index}", refusal)


def decoder(**refusals: str) -> Profile:
    """Two equal layers of attention and mlp, and a head; 100 ms, 5 of them in no module."""
    return Profile(
        (
            site(0, None, "", 100, 100),
            site(1, 0, "layers.0", 40, 30, "layer", refusals.get("layer", "")),
            site(2, 1, "layers.0.attention", 25, 20, "attention"),
            site(3, 1, "layers.0.mlp", 12, 10, "mlp"),
            site(4, 0, "layers.1", 40, 30, "layer", refusals.get("layer", "")),
            site(5, 4, "layers.1.attention", 25, 20, "attention"),
            site(6, 4, "layers.1.mlp", 12, 10, "mlp"),
            site(7, 0, "head", 15, 1, "head"),
        ),
        "estimated",
        "H100",
    )


def names(profile: Profile, **more: object) -> list[tuple[str, float]]:
    return [(piece.name, round(piece.share, 4)) for piece in choose(profile, **more).pieces]  # type: ignore[arg-type]


def test_equal_layers_are_one_piece_and_nothing_inside_of_it_is_another() -> None:
    choice = choose(decoder())
    assert [(piece.name, piece.share, piece.paths) for piece in choice.pieces] == [
        ("LAYER layers.*", 0.8, ("layers.0", "layers.1")),
        ("HEAD head", 0.15, ("head",)),
    ]
    assert not choice.passed_over and rest_share(choice) == pytest.approx(0.05)


def test_what_is_too_large_or_refused_is_split_into_what_it_calls() -> None:
    parts = [("ATTENTION layers.*.attention", 0.5), ("MLP layers.*.mlp", 0.24)]
    assert names(decoder(), limits=Limits(most_kernels=29)) == [parts[0], parts[1], ("HEAD head", 0.15)]
    assert names(decoder(layer="it is given a Cache")) == [parts[0], parts[1], ("HEAD head", 0.15)]
    later = choose(decoder(), refused={"layer": "it cannot be exported"})
    assert [(each.name, each.reason) for each in later.passed_over] == [("LAYER layers.*", "it cannot be exported")]
    assert names(decoder(), limits=Limits(most_kernels=100))[0] == ("LAYER layers.*", 0.8)  # never the model itself


def test_what_can_be_split_no_further_and_what_is_small_is_passed_over_with_the_reason() -> None:
    choice = choose(decoder(), Limits(most_kernels=15, least_share=0.2))
    assert [(piece.name, piece.share) for piece in choice.pieces] == [("MLP layers.*.mlp", 0.24)]
    assert [(each.name, round(each.share, 2)) for each in choice.passed_over] == [("ATTENTION layers.*.attention", 0.5)]
    assert "20 operations in one module are too many" in choice.passed_over[0].reason


def test_a_submodule_called_in_two_ways_is_in_two_pieces() -> None:
    profile = Profile(
        (
            site(0, None, "", 100, 100),
            site(1, 0, "mlp", 30, 5, "wide"),
            site(2, 0, "mlp", 20, 5, "narrow"),
            site(3, 0, "other", 20, 5, "narrow"),
        ),
        "measured",
        "H100",
    )
    pieces = choose(profile).pieces
    assert [(piece.key, piece.paths) for piece in pieces] == [("narrow", ("mlp", "other")), ("wide", ("mlp",))]
    assert [piece.share for piece in pieces] == [0.4, 0.3]


def test_paths_as_one() -> None:
    assert pattern(["a.0.b", "a.1.b"]) == "a.*.b" and pattern(["a.0"]) == "a.0" and pattern([""]) == ""
    assert pattern(["stem", "a.0", "a.1"]) == "stem and 2 more"


def test_what_a_slice_promises() -> None:
    half = Prospect(share=0.5, headroom=4)
    assert expected_speedup(half, 8) == 2 and expected_gain(half, 8) == 0.25  # 8 evaluations close half of log2(4)
    assert expected_speedup(half, 24) == pytest.approx(4**0.75)
    found = half.after(8, 2.0)  # 2 of 4 are found: what is left of its share is 0.25, the room 2
    assert (found.spent, found.barren) == (8, 0)
    assert expected_gain(found, 8) == pytest.approx(0.25 * (1 - 2**-0.5))
    barren = half.after(8, 1.0)  # nothing found: half the faith, 4 ^ (1/2 x 1/2)
    assert barren.barren == 1 and expected_gain(barren, 8) == pytest.approx(0.5 * (1 - 4**-0.25))
    assert expected_gain(Prospect(1.0, 1e9), 8) == 0.75  # no more than MOST_ROOM is believed
    assert expected_gain(Prospect(1.0, 1.0), 8) == 0


def test_slices_go_where_they_promise_most_until_nothing_does() -> None:
    prospects = [Prospect(0.6, 1.2), Prospect(0.3, 4.0), Prospect(0.002, 1.1)]
    spent: list[int | None] = []
    while (index := next_slice(prospects, 8)) is not None:
        spent.append(index)
        each = prospects[index]
        prospects[index] = each.after(each.spent + 8, each.speedup * (1.5 if index == 1 and each.spent < 16 else 1.0))
    # The second promises 0.15 and then 0.0775 of the time, the first one 0.0523, more than the 0.0333 that are left then.
    # The third is never worth a slice, and at the end nothing is.
    assert spent[:4] == [1, 1, 0, 1] and set(spent) == {0, 1} and len(spent) < 40
    assert next_slice([Prospect(0.5, 4, finished=True)], 8) is None
    assert next_slice([Prospect(0.5, 4)], 0) is None
    assert [slice_size(budget, pieces) for budget, pieces in ((8, 3), (64, 4), (1000, 2))] == [4, 8, 16]


def timed(cost: dict[str, float]) -> tuple[list[Keys], object]:
    """A model of 100 ms in which each piece saves so much."""
    asked: list[Keys] = []

    def time(sets: Sequence[Keys]) -> list[float]:
        asked.extend(sets)
        return [100 - sum(cost[key] for key in keys) for keys in sets]

    return asked, time


def test_a_patch_stays_only_where_the_whole_gets_faster() -> None:
    asked, time = timed({"good": 20, "bad": -5, "none": 0, "worse": -10})
    settled = settle(frozenset({"good", "bad", "none", "worse"}), time)  # type: ignore[arg-type]
    assert settled.kept == {"good"} and settled.ms == 80
    assert list(settled.dropped) == ["worse", "bad", "none"] and settled.dropped["worse"] == 95 / 85
    assert asked[0] == {"good", "bad", "none", "worse"}
    assert settle(frozenset(), time).kept == frozenset()  # type: ignore[arg-type]


def test_a_pair_that_only_helps_together_stays() -> None:
    def time(sets: Sequence[Keys]) -> list[float]:
        return [50.0 if keys == {"a", "b"} else 60.0 if keys else 55.0 for keys in sets]

    assert settle(frozenset("ab"), time).kept == {"a", "b"}


def test_the_fastest_is_handed_back_and_a_patched_one_only_if_it_is_surely_faster() -> None:
    times = {EAGER: 10.0, "torch.compile": 6.0, "patched": 7.0, "patched, torch.compile": 5.0}
    assert best_of(times) == "patched, torch.compile"
    assert best_of({**times, "patched, torch.compile": 6.5}) == "torch.compile"
    assert best_of({**times, "patched, torch.compile": 5.98}) == "torch.compile"  # by a third of a percent
    assert best_of({EAGER: 10.0, "patched": 9.0}) == "patched" and best_of({EAGER: 10.0, "patched": 11.0}) == EAGER


@pytest.mark.parametrize(
    ("baselines_ms", "best_ms", "beats"),
    [
        ({}, 1.0, True),  # nothing was measured
        ({"eager": 0.5}, 1.0, True),
        ({"torch.compile": 1.1}, 1.0, True),
        ({"torch.compile": 1.1, "torch.compile max-autotune": 0.9}, 1.0, False),  # the other mode is faster
        ({"torch.compile": 1.1, "torch.compile max-autotune": None}, 1.0, True),
        ({"torch.compile": 0.9}, 1.0, False),
        ({"torch.compile": 0.9}, None, True),
    ],
)
@pytest.mark.parametrize("cached", [True, False])
def test_a_piece_is_held_against_the_better_mode_of_the_compiler(
    baselines_ms: dict[str, float | None], best_ms: float | None, beats: bool, cached: bool
) -> None:
    entry = SimpleNamespace(baselines_ms=baselines_ms, runtime_ms=best_ms)
    outcomes = {name: SimpleNamespace(runtime_ms=ms) for name, ms in baselines_ms.items()}
    result = SimpleNamespace(baselines=outcomes, best=SimpleNamespace(runtime_ms=best_ms))
    known: Any = {"lookup": SimpleNamespace(entry=entry)} if cached else {"result": result}
    nothing: Any = None
    assert PieceSearch(nothing, nothing, Path(), {}, **known).beats_compiler is beats
