"""Open sizes are followed through forward up to an amount of work that is counted, and then stay as they are."""

from __future__ import annotations

import logging

import pytest
import torch
from torch import nn

from mtmc.task import capture_module, live_following
from mtmc.task.live_following import MOST_WORK, Budget, Following, TooMuchWork


def padded(x: torch.Tensor, to: int) -> torch.Tensor:
    return nn.functional.pad(x, (0, 0, 0, (to - x.shape[1] % to) % to))


class Windows(nn.Module):
    """Windows of several sizes, one after the other, of a length that is padded to each: minutes to follow."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        length = x.shape[1]
        for size in (4, 3, 5):
            x = padded(x, size)
            x = x.view(x.shape[0], x.shape[1] // size, size, x.shape[2]).softmax(2).flatten(1, 2)
            x = padded(x[:, 1:], size + 1)
        return x[:, :length]


class Chunks(nn.Module):
    """A running sum in chunks."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = padded(padded(x, 8)[:, : x.shape[1] - 1], 6)
        y = y.view(x.shape[0], -1, 6, x.shape[2]).cumsum(2)
        return (y + y[:, :, -1:].cumsum(1)).flatten(1, 2)[:, : x.shape[1] - 1]


class Halves(nn.Module):
    """A pyramid and back, of maps that need not be even."""

    def __init__(self) -> None:
        super().__init__()
        self.down = nn.ModuleList(nn.Conv2d(2, 2, 3, 2, 1) for _ in range(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        maps = [x]
        for each in self.down:
            maps.append(each(maps[-1]))
        for each in reversed(maps[:-1]):
            x = nn.functional.interpolate(maps.pop(), size=each.shape[2:]) + each
            maps[-1] = x
        return x


class Catches(nn.Module):
    """Goes on whatever happens."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        try:
            x = Windows()(x)
        except Exception:
            x = x * 2
        return x + 1


MODULES = {
    "windows": (Windows(), torch.randn(4, 22, 6)),
    "chunks": (Chunks(), torch.randn(4, 31, 6)),
    "halves": (Halves(), torch.randn(4, 2, 24, 20)),
    "catches": (Catches(), torch.randn(4, 22, 6)),
}


@pytest.mark.parametrize("kind", MODULES)
def test_sizes_that_take_too_much_work_are_fixed_and_the_others_stay_open(
    kind: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    module, x = MODULES[kind]
    monkeypatch.setattr(live_following, "MOST_WORK", 150)
    with caplog.at_level(logging.WARNING, logger="mtmc"):
        task = capture_module(module.eval(), x).task
    later = ", ".join(map(str, x.shape[1:]))
    costly = ", ".join(map(str, sorted(x.shape[2:] if kind == "halves" else x.shape[1:2])))
    assert f"the sizes {costly} are fixed: too much work" in caplog.text
    open_ = "size0, " + (later if kind == "halves" else f"{x.shape[1]}, size1")
    assert f"randn(({open_}))" in task.source
    assert dict(task.held_out[0].constants)["size0"] != 4


@pytest.mark.parametrize("kind", ["chunks", "halves"])
def test_sizes_that_are_easily_followed_stay_open(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    module, x = MODULES[kind]
    with caplog.at_level(logging.WARNING, logger="mtmc"):
        task = capture_module(module.eval(), x).task
    assert "too much work" not in caplog.text
    assert ("size2 = " if kind == "halves" else "size1 = ") in task.source


def test_what_would_take_minutes_is_given_up_at_the_limit_itself(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, logger="mtmc"):
        task = capture_module(*MODULES["windows"]).task
    assert "the sizes 22 are fixed: too much work" in caplog.text and "randn((size0, 22, size1))" in task.source


def test_without_any_work_all_sizes_are_fixed(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(live_following, "MOST_WORK", 0)
    with caplog.at_level(logging.WARNING, logger="mtmc"):
        task = capture_module(nn.Linear(6, 5), torch.randn(4, 7, 6)).task
    assert "all sizes are fixed: too much work" in caplog.text
    assert "randn((4, 7, 6))" in task.source


def test_the_exports_of_a_module_share_a_budget() -> None:
    budget = Budget(left=5)
    with pytest.raises(TooMuchWork), Following((), (), budget) as following:
        following._left = -1
        following._work["s"] = 1
        torch.ones(2)
    assert budget.left == 5
    assert Following((), (), budget)._left == 5 < MOST_WORK
