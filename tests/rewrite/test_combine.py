"""The first steps of several kinds at once: what they make is what the steps make one by one, and it is right."""

from __future__ import annotations

import pytest

from mtmc.action import Action
from mtmc.agents.policies import Heuristic
from mtmc.optimizations import KINDS, Version
from mtmc.optimizations.combine import LEAST, MANY, Combine
from mtmc.optimizations.cuda_graph import CudaGraph
from mtmc.outcome import Outcome
from mtmc.protocols import Observation
from mtmc.task import Task, task_from_source
from tests.rewrite.interpreting import interpret_ways
from tests.rewrite.stepping import actions_on, after, child_of, version

DECODER = """import torch
from torch import nn
from torch.nn.functional import scaled_dot_product_attention, silu
tokens, width, heads = 64, 32, 4
VARIANTS = {"small": {"tokens": 8}, "odd1": {"tokens": 5}, "odd2": {"tokens": 11}}
class Layer(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.q, self.k, self.v, self.o = (nn.Linear(width, width, bias=False) for _ in range(4))
        self.gate, self.up, self.down = nn.Linear(width, 64), nn.Linear(width, 64), nn.Linear(64, width)
        self.norm, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
    def forward(self, x):
        n = x.shape[0]
        h = self.norm(x * 1.5 + 0.1)
        q, k, v = (layer(h).view(1, n, self.heads, -1).transpose(1, 2) for layer in (self.q, self.k, self.v))
        mask = (torch.arange(n, device=x.device)[None] <= torch.arange(n, device=x.device)[:, None])[None, None]
        mixed = scaled_dot_product_attention(q, k, v, attn_mask=mask).transpose(1, 2).reshape(n, -1)
        x = x + self.o(mixed)
        h = self.norm2(x)
        return x + self.down(silu(self.gate(h)) * self.up(h))
class Model(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.layers = nn.ModuleList([Layer(width, heads) for _ in range(2)])
    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x
def get_inputs():
    return [torch.randn(tokens, width)]
def get_init_inputs():
    return [width, heads]
"""
CONVOLVED = '''import torch
from torch import nn
side, channels = 16, 64
VARIANTS = {"small": {"side": 4}, "odd1": {"side": 5}, "odd2": {"side": 7}}
class Model(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.first, self.second = nn.Conv2d(channels, channels, 3, padding=1), nn.Conv2d(channels, channels, 3, padding=1)
        self.norm, self.norm2 = nn.GroupNorm(4, channels), nn.GroupNorm(4, channels)
        DTYPE
    def forward(self, x):
        y = self.first(torch.relu(self.norm(x)))
        return x + self.second(torch.relu(self.norm2(y)))
def get_inputs():
    return [torch.randn(2, channels, side, side).to(TYPE)]
def get_init_inputs():
    return [channels]
'''  # fmt: skip


def convolved(dtype: str) -> Task:
    return task_from_source(CONVOLVED.replace("DTYPE", f"self.to({dtype})").replace("TYPE", dtype), "convolved")


@pytest.fixture(scope="module")
def decoder() -> Version:
    return version(task_from_source(DECODER, "decoder"))


def combined(start: Version) -> list[Action]:
    return [action for action in actions_on(start) if action.kind == "combine"]


def test_it_makes_what_the_steps_make_one_by_one(decoder: Version) -> None:
    plain, graphed = combined(decoder)
    assert plain.sentence.startswith("combine algebra of masks, algebra of joined and fuse, lines ")
    assert graphed.sentence.startswith("combine algebra of masks, algebra of joined, fuse and cuda_graph, lines ")
    steps = decoder
    for beginning in ("rewrite by algebra: the mask", "rewrite by algebra: linear", "fuse all neighbours"):
        _, steps = after(steps, beginning)
    assert child_of(decoder, plain) == steps.plan
    saved = len(decoder.working()) - len(steps.working())
    assert dict(plain.params) == {"saved": saved, "steps": 3} and saved > 10
    _, last = after(steps, "capture the forward in a CUDA graph")
    assert child_of(decoder, graphed) == last.plan


def test_what_it_makes_is_right(decoder: Version) -> None:
    found = interpret_ways(
        {"decoder": DECODER}, [["combine algebra of masks, algebra of joined and fuse"], ["combine", "lower"]]
    )
    assert found == {"decoder": None}


def test_only_a_version_that_nothing_was_done_to_has_it(decoder: Version) -> None:
    for beginning in ("rewrite by algebra: the mask", "fuse all neighbours", "lower linear", "combine"):
        assert not combined(after(decoder, beginning)[1]), beginning


@pytest.mark.parametrize("forward", ["torch.relu(x) + 1", "torch.relu(x).softmax(-1) * 2"])
def test_few_steps_are_left_to_themselves(forward: str) -> None:
    source = DECODER[: DECODER.index("class Layer")] + (
        "class Model(nn.Module):\n    def forward(self, x):\n        return " + forward + "\n"
        "def get_inputs():\n    return [torch.randn(tokens, width)]\ndef get_init_inputs():\n    return []\n"
    )
    assert not combined(version(task_from_source(source, "few")))


def stacked(layers: int) -> Task:
    """A network of so many layers in fp32, whose norms alone can be fused with what is around them."""
    return task_from_source(
        DECODER[: DECODER.index("class Layer")] + "class Model(nn.Module):\n    def __init__(self, width, heads):\n"
        "        super().__init__()\n"
        f"        self.layers = nn.ModuleList([nn.Linear(width, width) for _ in range({layers})])\n"
        "        self.norm = nn.LayerNorm(width)\n"
        "    def forward(self, x):\n        for layer in self.layers:\n            x = self.norm(torch.relu(layer(x))) + x\n"
        "        return x\n" + DECODER[DECODER.index("def get_inputs"):],
        "stacked",
    )  # fmt: skip


def test_two_steps_are_done_at_once_where_a_graph_saves_many_launches() -> None:
    deep, shallow = version(stacked(MANY // 2)), version(stacked(MANY // 2 - 1))
    [graphed] = combined(deep)
    assert graphed.sentence.startswith("combine fuse and cuda_graph, line ")
    _, fused = after(deep, "fuse all neighbours")
    assert child_of(deep, graphed) == after(fused, "capture the forward in a CUDA graph")[1].plan
    assert len(fused.working()) == MANY and not combined(shallow)


def test_channels_last_is_among_them_for_16_bits_alone() -> None:
    """The library convolves fp32 numbers in TF32 where they lie so, and otherwise not."""
    halves, floats = (version(convolved(dtype)) for dtype in ("torch.bfloat16", "torch.float32"))
    assert {action.sentence.partition(", lines")[0] for action in combined(halves)} == {
        "combine fuse, layout and pack", "combine fuse, layout, pack and cuda_graph",
    }  # fmt: skip
    assert not any("layout" in action.sentence for action in combined(floats))
    steps = halves
    for beginning in (
        "fuse all neighbours",
        "keep tensors channels last around the library's convolutions, lines",
        "compute",
    ):
        _, steps = after(steps, beginning)
    assert child_of(halves, combined(halves)[0]) == steps.plan


def test_the_heuristic_tries_it_first_and_the_graph_where_calls_wait(decoder: Version) -> None:
    actions = actions_on(decoder)
    for call_ms, wanted in ((5.0, "cuda_graph"), (1.01, "fuse")):
        metrics = {"device_ms": 1.0, "call_ms": call_ms, "host_ms": min(call_ms, 0.2)}
        outcome = Outcome("ok", runtime_ms=call_ms, runtime_low_ms=call_ms, runtime_high_ms=call_ms, trials=3,
                          runtime_kind="measured", metrics=metrics)  # fmt: skip
        seen = Observation(decoder.task, decoder.task.source, None, outcome, (), "H100")
        prior = Heuristic().prior(seen, actions)
        first = actions[max(range(len(actions)), key=prior.__getitem__)]
        assert first.kind == "combine" and wanted in first.sentence.rpartition(" and ")[2], (call_ms, first.sentence)


def test_it_takes_the_leading_moves_of_any_kinds(decoder: Version) -> None:
    """A kind that has leading moves is one more step once it is named."""
    alone = Combine((KINDS["fuse"],), CudaGraph())
    assert LEAST > 2 and not list(alone.legal(decoder))
    more = Combine((KINDS["algebra"], KINDS["fuse"]), CudaGraph())
    assert [dict(move.action.params)["steps"] for move in more.legal(decoder)] == [3, 4]
    assert [kind for kind, each in KINDS.items() if list(each.leading(decoder))] == ["fuse", "algebra"]
