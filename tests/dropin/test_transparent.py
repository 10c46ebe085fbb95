"""A drop-in is the original in everything but forward."""

from __future__ import annotations

import copy
import inspect
import io
import pickle
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

import mtmc
from mtmc.dropin import drop_in
from mtmc.errors import TaskError
from mtmc.task import Capture, capture_module
from tests.dropin.conftest import made
from tests.dropin.modules import BLOCK, Block

X = torch.linspace(-2, 2, 48).reshape(6, 8)


def by_kernels(optimized: nn.Module, x: torch.Tensor = X) -> torch.Tensor:
    """The result of a call that kernels have made."""
    before = optimized.mtmc.kernel_calls
    with torch.no_grad():
        found = optimized(x)
    assert optimized.mtmc.kernel_calls == before + 1, dict(optimized.mtmc.reasons)
    return found


def plain(module: nn.Module, x: torch.Tensor = X) -> torch.Tensor:
    with torch.no_grad():
        return Block.forward(module, x)


def test_an_object_of_the_original_class_with_its_name_signature_and_text(block: Block) -> None:
    original = block.mtmc.original
    assert isinstance(block, Block) and type(block).__name__ == "Block" and repr(block) == repr(original)
    assert inspect.signature(block.forward) == inspect.signature(original.forward)
    assert torch.allclose(by_kernels(block), plain(original), atol=1e-6)


def test_attributes_state_and_submodules_are_the_originals(block: Block) -> None:
    original = block.mtmc.original
    assert block.config is original.config and block.fc is original.fc
    assert list(block.state_dict()) == list(original.state_dict()) == ["shift", "fc.weight", "fc.bias"]
    assert [name for name, _ in block.named_modules()] == [name for name, _ in original.named_modules()]
    assert [id(p) for p in block.parameters()] == [id(p) for p in original.parameters()]


def test_containers_are_indexed_iterated_and_sliced() -> None:
    sequential = nn.Sequential(nn.Linear(8, 8), nn.SiLU()).eval()
    optimized = drop_in(sequential, capture_module(sequential, X), [])
    assert len(optimized) == 2 and optimized[0] is sequential[0] and list(optimized) == list(sequential)
    assert type(optimized[:1]) is nn.Sequential and torch.equal(optimized[:1](X), sequential[0](X))


def test_hooks_on_the_module_itself_run_around_kernels(block: Block) -> None:
    seen = []
    block.register_forward_pre_hook(lambda module, args: seen.append("before"))
    block.register_forward_hook(lambda module, args, output: output + 1)
    assert torch.allclose(by_kernels(block), plain(block) + 1, atol=1e-6)
    assert seen == ["before"]


@pytest.mark.parametrize("copied", [copy.deepcopy, copy.copy, lambda m: pickle.loads(pickle.dumps(m))])
def test_copies_are_drop_ins_with_kernels(block: Block, copied) -> None:
    by_kernels(block)
    other = copied(block)
    assert isinstance(other, Block) and other is not block
    assert torch.equal(by_kernels(other), by_kernels(block))
    if copied is not copy.copy:
        with torch.no_grad():
            other.fc.weight.zero_()
        assert torch.allclose(by_kernels(other), plain(other), atol=1e-6)
        assert not torch.equal(by_kernels(other), by_kernels(block))


def test_a_parent_with_a_drop_in_inside_that_refers_to_it_is_copied(block: Block) -> None:
    block.act.__dict__["parent"] = block
    other = copy.deepcopy(nn.ModuleList([block, block]))
    assert other[0] is other[1] and isinstance(other[0].act.parent, Block)
    assert other[0].act.parent.fc is other[0].fc


def test_saved_whole_it_is_loaded_by_another_process_with_its_kernels(block: Block, tmp_path: Path) -> None:
    torch.save(block, tmp_path / "block.pt")
    torch.save((X, by_kernels(block)), tmp_path / "call.pt")
    program = (
        "import sys, torch\n"
        "folder = sys.argv[1]\n"
        "block = torch.load(folder + '/block.pt', weights_only=False)\n"
        "x, y = torch.load(folder + '/call.pt')\n"
        "with torch.no_grad():\n"
        "    assert torch.equal(block(x), y)\n"
        "print(type(block).__name__, block.mtmc.kernel_calls, block.mtmc.original_calls)\n"
    )
    root = Path(mtmc.__file__).parents[1]
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)], cwd=root, capture_output=True, text=True, check=False
    )
    assert done.stdout.split() == ["Block", "1", "0"], done.stderr


def test_a_state_dict_goes_into_the_original_and_back(block: Block) -> None:
    other = Block().eval()
    block.load_state_dict(other.state_dict())
    assert torch.allclose(by_kernels(block), plain(other), atol=1e-6)
    buffer = io.BytesIO()
    torch.save(block.state_dict(), buffer)
    buffer.seek(0)
    Block().load_state_dict(torch.load(buffer))


def test_a_forward_that_was_patched_on_the_object_is_the_one_that_is_used(captured: Capture) -> None:
    module = Block().eval()
    module.forward = lambda x: Block.forward(module, x) + 1
    optimized = drop_in(module, captured, [])
    assert torch.equal(optimized(X), Block.forward(module, X) + 1)


class WithSlots(nn.Module):
    __slots__ = ("place",)


class WithMtmc(nn.Module):
    mtmc = 1


@pytest.mark.parametrize(
    ("module", "message"),
    [
        (WithSlots(), "__slots__"),
        (WithMtmc(), "attribute mtmc of its own"),
        (nn.LazyLinear(3), "call it once"),
        (nn.DataParallel(nn.Linear(2, 2)), r"optimize its \.module"),
        (torch.nn.functional.relu, "not of a function"),
    ],
)
def test_what_cannot_be_a_drop_in_is_refused(module: nn.Module, message: str) -> None:
    with pytest.raises(TaskError, match=message):
        mtmc.optimize(module, torch.zeros(2, 2))


def test_a_compiled_module_is_refused() -> None:
    with pytest.raises(TaskError, match=r"optimize its \._orig_mod"):
        mtmc.optimize(torch.compile(nn.Linear(2, 2)), torch.zeros(2, 2))


def test_a_second_version_is_added_to_the_same_object(captured: Capture) -> None:
    block = made(Block().eval(), captured)
    wide = torch.linspace(-1, 1, 80).reshape(2, 5, 8)
    with torch.no_grad():
        assert torch.equal(block(wide), plain(block, wide))
    assert block.mtmc.original_calls == 1
    again = drop_in(block, capture_module(block, wide), [BLOCK])
    assert again is block and len(block.mtmc.versions) == 2
    assert torch.allclose(by_kernels(block, wide), plain(block, wide), atol=1e-6)
    by_kernels(block)
