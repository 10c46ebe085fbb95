"""What is read off one call of a live model without a GPU: its calls, their times, and which of them are equal."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.multiprocessing.reductions import StorageWeakRef

from mtmc.hardware import hardware
from mtmc.whole.calls import CallTree
from mtmc.whole.patch import compiled, patched
from mtmc.whole.pieces import Limits, choose
from mtmc.whole.site import Profile
from mtmc.whole.trace import trace


class Block(nn.Module):
    def __init__(self, index: int, eps: float = 1e-5, scale: float = 1.0) -> None:
        super().__init__()
        self.index = index  # as layers have one, which is read by no operation
        self.norm = nn.LayerNorm(16, eps=eps)
        self.up, self.down = nn.Linear(16, 32), nn.Linear(32, 16)
        self.scale = scale

    def forward(self, x: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        y = self.down(nn.functional.gelu(self.up(self.norm(x)))) * torch.tensor([self.scale] * 16)
        return x + (y if mask is None else y * mask)


class Net(nn.Module):
    """Blocks; calls each in turn."""

    def __init__(self, *blocks: nn.Module) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(blocks)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = block(x)
        return x


def profiled(model: nn.Module, *args: Any, **kwargs: Any) -> Profile:
    return trace(model.eval(), args, kwargs, CallTree()).profile(hardware("H100"))


def keys(model: nn.Module, *args: Any) -> list[str]:
    """Of the model's own children, by the letter: equal ones have the same."""
    profile = profiled(model, *args)
    found = [site.key for site in profile.sites if site.path.count(".") == 1]
    return ["abcdefgh"[list(dict.fromkeys(found)).index(key)] for key in found]


X = torch.randn(4, 16)


def test_equal_calls_are_those_that_do_the_same_on_other_weights() -> None:
    assert keys(Net(Block(0), Block(1), Block(2)), X) == ["a", "a", "a"]
    assert keys(Net(Block(0), Block(1, eps=1e-6), Block(2)), X) == ["a", "b", "a"]
    assert keys(Net(Block(0), Block(1, scale=2.0), Block(2)), X) == ["a", "b", "a"]


class TwoOf(nn.Module):
    """Uses its own weight, the one it is given, or both of its own in the other order."""

    def __init__(self, what: str, other: nn.Linear) -> None:
        super().__init__()
        self.a, self.b, self.what, self.other = nn.Linear(16, 16), nn.Linear(16, 16), what, (other,)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        first, second = {"ab": (self.a, self.b), "ba": (self.b, self.a), "aa": (self.a, self.a)}.get(
            self.what, (self.a, self.other[0])
        )
        return nn.functional.linear(nn.functional.linear(x, first.weight), second.weight)


def test_equal_operations_on_weights_in_other_roles_are_not_equal_calls() -> None:
    other = nn.Linear(16, 16)
    model = Net(*(TwoOf(what, other) for what in ("ab", "ba", "aa", "ab", "outside")))
    model.register_module("elsewhere", other)
    assert keys(model, X) == ["a", "b", "c", "a", "d"]


def test_the_tree_of_calls_with_times_that_add_up() -> None:
    profile = profiled(Net(Block(0), Block(1)), X)
    assert [(site.path, site.parent) for site in profile.sites[:4]] == [
        ("", None), ("blocks.0", 0), ("blocks.0.norm", 1), ("blocks.0.up", 1),
    ]  # fmt: skip
    root, block = profile.sites[:2]
    inside = sum(child.ms for child in profile.children(block))
    assert (
        profile.time_kind == "estimated" and 0 < inside < block.ms and root.ms == pytest.approx(2 * block.ms, rel=0.1)
    )
    assert profile.share(block) == pytest.approx(0.5, rel=0.1) and block.headroom > 2
    assert block.kernels == 6 and profile.sites[3].kernels == 1  # norm, up, gelu, down, times, plus
    assert block.signature == "float32[4, 16] cpu"


class Cache:
    pass


class Opaque(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = Block(0)
        self.register_buffer("calls", torch.zeros(()))
        self.last: Any = None

    def forward(self, x: torch.Tensor, cache: Cache) -> torch.Tensor:
        self.calls.add_(1)
        self.last = x
        if x.sum() > 1e9:  # reads a value: cannot be run without the data
            x = x * 2
        return self.inner(x, mask=torch.ones(16))


class Caller(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.part = Opaque()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.part(x, Cache()) + self.part(x[:2], Cache()).sum()


def test_a_model_is_left_as_it_was_and_what_cannot_be_searched_says_why() -> None:
    model = Caller().eval()
    attributes = dict(vars(model.part))
    profile = profiled(model, X)
    assert model.part.calls == 0 and model.part.last is None and vars(model.part) == attributes
    assert not model._forward_hooks and not model.part.inner._forward_pre_hooks
    part = profile.sites[1]
    assert part.refusal == "it is given a Cache, which is neither a tensor nor plain data"
    inner = [site for site in profile.sites if site.path == "part.inner"]
    assert [site.signature for site in inner] == [
        "float32[4, 16] cpu, mask=float32[16] cpu", "float32[2, 16] cpu, mask=float32[16] cpu",
    ]  # fmt: skip
    choice = choose(profile, Limits(most_kernels=10))
    assert [piece.paths for piece in choice.pieces] == [("part.inner",), ("part.inner",)]  # for either shape
    assert all("neither a tensor nor plain data" in each.reason for each in choice.passed_over)


class Twice(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.tie = Block(0)
        self.blocks = nn.Sequential(self.tie, Block(1), self.tie)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.blocks(x)


def test_a_patched_copy_shares_all_but_the_places() -> None:
    model = Twice().eval()
    seen: list[nn.Module] = []

    def double(module: nn.Module) -> nn.Module:
        seen.append(module)
        return nn.Sequential(module, nn.Identity())

    new = patched(model, {"tie": double})
    assert seen == [model.tie] and isinstance(new, Twice)  # once, though it stands in three places
    assert new.tie is new.blocks[0] is new.blocks[2] is not model.tie and new.blocks[1] is model.blocks[1]
    assert model.blocks[0] is model.tie and isinstance(model.tie, Block)
    assert all(a is b for a, b in zip(new.parameters(), model.parameters(), strict=True))
    assert torch.equal(new(X), model(X))
    deeper = patched(model, {"blocks.1.up": lambda module: nn.Identity(), "blocks.1": lambda module: module})
    assert isinstance(deeper.blocks[1].up, nn.Identity) and isinstance(model.blocks[1].up, nn.Linear)
    with pytest.raises(Exception, match=r"no submodule 'blocks\.7'"):
        patched(model, {"blocks.7": double})


def test_a_compiled_copy_keeps_class_and_keys() -> None:
    model = Net(Block(0)).eval()
    new = compiled(model, backend="eager")
    assert type(new) is Net and list(new.state_dict()) == list(model.state_dict())
    assert torch.allclose(new(X), model(X)) and model._compiled_call_impl is None


class Traced(nn.Module):
    """Takes another way where it is given tensors without data, as models do that ask whether they are traced."""

    def __init__(self, runs: list[tuple[bool, int]] | None = None) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([Block(index) for index in range(5)])
        self.note = (lambda *run: None) if runs is None else lambda *run: runs.append(run)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        fake, made = isinstance(x, FakeTensor), list[StorageWeakRef]()
        mask = torch.ones(16) if fake else None
        for block in self.blocks:
            self.note(fake, sum(not each.expired() for each in made))
            x = block(x, mask=mask)
            made.append(StorageWeakRef(x.untyped_storage()))
        return x


def test_the_calls_are_those_with_data() -> None:
    """Without data a model is run up to the first other call, and with them no more is in memory than in any run of it."""
    runs: list[tuple[bool, int]] = []
    profile = profiled(Traced(runs), X)
    assert profile.sites[1].signature == "float32[4, 16] cpu, mask=None" and profile.sites[1].kernels == 6
    once = [(False, 0), *[(False, 1)] * 4]
    assert runs == [*once, (True, 0), *once]
    assert [site.key for site in profile.sites[1:] if site.kind == "Block"] == [profile.sites[1].key] * 5
