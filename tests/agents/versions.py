"""Versions of one small module, and a scripted model, for the tests of the coders that ask one."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from mtmc.action import Action, Region
from mtmc.chat import ChatReply, ChatRequest
from mtmc.outcome import Outcome
from mtmc.protocols import EditRequest
from mtmc.task import Task, task_from_source

REFERENCE = """\
import torch

rows = 64
cols = 48
VARIANTS = {"small": {"rows": 4, "cols": 8}, "odd1": {"rows": 3, "cols": 5}}


class Model(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x) * 2.0


def get_inputs():
    return [torch.randn(rows, cols)]


def get_init_inputs():
    return []
"""

PARENT = '''\
"""Relu, doubled."""

import torch


class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = torch.relu(x)
        return y * 2.0
'''

CHILD = '''\
"""Relu, doubled, as one kernel."""

import torch
import triton
import triton.language as tl


@triton.jit
def double_relu_kernel(x_ptr, out_ptr, size, BLOCK: tl.constexpr):
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + index, mask=index < size)
    tl.store(out_ptr + index, tl.maximum(x, 0.0) * 2.0, mask=index < size)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        x = x.contiguous()
        out = torch.empty_like(x)
        double_relu_kernel[(triton.cdiv(x.numel(), 1024),)](x, out, x.numel(), BLOCK=1024)
        return out
'''

BLOCKS = '''\
<<<<<<< SEARCH
"""Relu, doubled."""

import torch
=======
"""Relu, doubled, as one kernel."""

import torch
import triton
import triton.language as tl


@triton.jit
def double_relu_kernel(x_ptr, out_ptr, size, BLOCK: tl.constexpr):
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + index, mask=index < size)
    tl.store(out_ptr + index, tl.maximum(x, 0.0) * 2.0, mask=index < size)
>>>>>>> REPLACE
<<<<<<< SEARCH
        y = torch.relu(x)
        return y * 2.0
=======
        x = x.contiguous()
        out = torch.empty_like(x)
        double_relu_kernel[(triton.cdiv(x.numel(), 1024),)](x, out, x.numel(), BLOCK=1024)
        return out
>>>>>>> REPLACE
'''
"""What makes CHILD of PARENT."""

FENCED = f"```python\n{CHILD}```\n"

FUSE = Action("fuse", Region("relu and mul", 8, 9), (), "fuse relu and mul, lines 8-9")


def small_task() -> Task:
    return task_from_source(REFERENCE, "relu_twice")


def edit_request(context: FakeContext | None = None, **changes: object) -> EditRequest:
    """A request to fuse on PARENT, which has no plan."""
    outcome = Outcome("ok", 0.5, runtime_kind="measured", metrics={"roofline": 0.25, "bytes_moved": 1e6})
    request = EditRequest(small_task(), PARENT, None, outcome, FUSE, "H100", seed=7, context=context)
    return replace(request, **changes)  # type: ignore[arg-type]


@dataclass
class FakeContext:
    """A scripted model: its replies one after the other, or errors to raise. Keeps what was asked and judged."""

    script: list[str | ChatReply | Exception]
    asked: list[ChatRequest] = field(default_factory=list)
    verdicts: list[tuple[int, str]] = field(default_factory=list)

    def complete(self, request: ChatRequest) -> ChatReply:
        said = self.script[len(self.asked)]
        self.asked.append(request)
        if isinstance(said, Exception):
            raise said
        reply = ChatReply(said, tokens_in=100, tokens_out=10, usd=0.5, seconds=2.0) if isinstance(said, str) else said
        return replace(reply, id=len(self.asked) - 1)

    def judge(self, reply: ChatReply, verdict: str) -> None:
        self.verdicts.append((reply.id, verdict))

    def evaluate(self, source: str) -> Outcome | None:
        raise AssertionError("these coders evaluate nothing")
