"""Simplifications: what each rule finds, that it is the same in float64, and where it must not be applied."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest
import torch

from mtmc.agents.coders.rewriter import Rewriter
from mtmc.errors import CoderError
from mtmc.evaluate import LabSettings
from mtmc.evaluate.loading.modules import load_module
from mtmc.hardware import hardware
from mtmc.optimizations import KINDS, legal_moves
from mtmc.optimizations.version import Version
from mtmc.outcome import Outcome
from mtmc.protocols import EditRequest, EvaluationRequest, Observation
from mtmc.rewrite.algebra import apply_rules
from mtmc.rewrite.exported import export_graph
from mtmc.rewrite.plan import graph_of, plan_from_json, root_plan
from mtmc.rewrite.source import print_plan
from mtmc.task import Task, task_from_source
from mtmc.task.constants import apply_constants

BLOCKS = Path(__file__).parents[2] / "mtmc/bench/blocks"
EXACT = 1e-12
"""Norm-wise, float64 against float64."""


def reference(forward: str, inputs: str = "torch.randn(rows, cols)", layers: str = "pass") -> str:
    return f"""import torch
from torch import nn
from torch.nn import functional as F
rows, cols, outs, size = 12, 20, 24, 26
VARIANTS = {{
    "small": {{"rows": 4, "cols": 6, "outs": 8, "size": 13}},
    "odd1": {{"rows": 5, "cols": 7, "outs": 17, "size": 25}},
}}
class Model(nn.Module):
    def __init__(self, cols, outs):
        super().__init__()
        {layers}
    def forward(self, x):
        {forward}
def get_inputs():
    return [{inputs}]
def get_init_inputs():
    return [cols, outs]
"""


IMAGES = "torch.randn(rows, cols, size, size + 3)"
LINEAR = "self.linear = nn.Linear(cols, outs)"
ROWS = "self.w = nn.Parameter(torch.randn(9, outs))"
TURNED = "self.conv = nn.ConvTranspose2d(cols, outs, 3, stride=2"
MIXING = "self.conv = nn.Conv2d(cols, outs, 1"
NORMED = "; self.norm = nn.BatchNorm2d(outs).eval(); nn.init.normal_(self.norm.running_mean)"
TWO = "self.f, self.g = nn.Linear(cols, outs), nn.Linear(cols, outs)"
CHANGED = "self.register_buffer('w', torch.randn(cols, outs)); self.register_buffer('v', torch.randn(cols, outs))"
BEFORE_EACH = "torch.cat((torch.ones_like(s[:, :1]), s[:, :-1]), 1)"
CACHE = "torch.randn(rows, cols, 3, size)"
WEIGHTED = "(s.softmax(1)[..., None] * (x + 1)).sum(1)"
FITS = {
    "a query over keys": (
        "one_row",
        reference("return (x[:, :, :1] @ x.transpose(2, 3)).softmax(-1)", "torch.randn(rows, 3, cols, size)"),
    ),
    "a read of a state": (
        "one_row",
        reference("return (x[..., 0].unsqueeze(2) @ (x * 2)).squeeze(2)", "torch.randn(rows, 3, size, size)"),
    ),
    "a state times a column": (
        "one_row",
        reference("return (x.tanh() @ x[:, :1].mT).squeeze(-1) + x[:, 0, :1]", "torch.randn(rows, cols, size)"),
    ),
    "a row of a product in batches": (
        "one_row",
        reference("return torch.bmm(x[:, :1].exp(), x.mT)", "torch.randn(rows, cols, size)"),
    ),
    "a token's attention": (
        "one_token",
        reference(f"s = (x[:, 0][:, None] * x).sum(-1); return {WEIGHTED}", CACHE),
    ),
    "a token's attention with a scale": (
        "one_token",
        reference(f"s = (x * x[:, 1].tanh().unsqueeze(1)).sum(-1) * 0.3; return {WEIGHTED}.relu()", CACHE),
    ),
    "a token's attention, heads first": (
        "one_token",
        reference(
            "s = (x[:, :, 0][:, :, None] * x).sum(3) / size**0.5; return (s.softmax(-1).unsqueeze(-1) * x).sum(2)",
            "torch.randn(rows, 3, cols, size)",
        ),
    ),
    "a token's attention as Einstein sums": (
        "one_token",
        reference(
            "s = torch.einsum('bhd,bthd->bth', x[:, 0], x) * 0.25; s = s.softmax(1); "
            "return torch.einsum('bthe,bth->bhe', x[..., 1:], s)",
            CACHE,
        ),
    ),
    "a token's attention, one sum of each kind": (
        "one_token",
        reference(
            "s = torch.einsum('bhtd,bhd->bht', x, x[:, :, 0]); return (s.softmax(2)[..., None] * x.exp()).sum(-2)",
            "torch.randn(rows, 3, cols, size)",
        ),
    ),
    "colours of shuffled pixels": (
        "pixels",
        reference(
            "return self.last(F.pixel_shuffle(self.first(x), 2)).tanh()",
            IMAGES,
            "self.first, self.last = nn.Conv2d(cols, 4 * outs, 3), nn.Conv2d(outs, 3, 3, padding=1)",
        ),
    ),
    "far taps of pixels shuffled by three, without a bias": (
        "pixels",
        reference(
            "return self.last(F.pixel_shuffle(self.first(x), 3))",
            IMAGES,
            "self.first, self.last = nn.Conv2d(cols, 18, 1), nn.Conv2d(2, 3, 9, padding=4, bias=False)",
        ),
    ),
    "an enlarged map": (
        "enlarged",
        reference(
            "return self.f(F.interpolate(x, scale_factor=2.0)).relu()",
            IMAGES,
            "self.f = nn.Conv2d(cols, outs, 3, padding=1)",
        ),
    ),
    "a map repeated three times and twice": (
        "enlarged",
        reference(
            "return self.f(x.repeat_interleave(3, 2).repeat_interleave(2, -1)) + 1",
            IMAGES,
            "self.f = nn.Conv2d(cols, 5, (5, 2), padding=(1, 0), bias=False)",
        ),
    ),
    "one tap of shuffled pixels": (
        "pixels",
        reference(
            "return self.last(F.pixel_shuffle(self.first(x), 2)) + 1",
            IMAGES,
            "self.first, self.last = nn.Conv2d(cols, 8, 1), nn.Conv2d(2, 5, 1)",
        ),
    ),
    "products before each": ("scans", reference(f"s = torch.cumprod(x * 2, 1); return {BEFORE_EACH} * x")),
    "sums before each, of zeros alone": (
        "scans",
        reference("return torch.cat((x.new_zeros(x.shape[0], 1), torch.cumsum(x, -1)[:, :-1]), -1)"),
    ),
    "products before each, of a filled column": (
        "scans",
        reference("return torch.cat((x.new_full((x.shape[0], 1), 1.0), torch.cumprod(x, 1)[:, :-1]), 1)"),
    ),
    "sums before each row": (
        "scans",
        reference("return torch.cat((torch.zeros_like(x[:1]), torch.cumsum(x, 0)[:-1])).exp()"),
    ),
    "sums before each, padded": ("scans", reference("return F.pad(torch.cumsum(x, 1)[:, :-1], (1, 0)) - x")),
    "products before each, moved by padding": (
        "scans",
        reference("return F.pad(torch.cumprod(x.mT, -1), (1, -1), value=1.0) - x.mT"),
    ),
    "sum over features": ("sums", reference("return self.linear(x).sum(1, keepdim=True)", layers=LINEAR)),
    "mean over features, with steps": (
        "sums",
        reference(
            "return ((self.linear(x) - self.shift) / 3 + 2).mean(1)",
            layers=LINEAR + "; self.shift = nn.Parameter(torch.randn(outs))",
        ),
    ),
    "sum of a product with a transposed weight": (
        "sums",
        reference("return (x @ self.w.T * 0.5).sum(-1)", layers="self.w = nn.Parameter(torch.randn(outs, cols))"),
    ),
    "mean over places": ("sums", reference("return self.conv(x).mean((2, 3), keepdim=True)", IMAGES, TURNED + ")")),
    "sum over places": ("sums", reference("return self.conv(x).sum((2, 3))", IMAGES, TURNED + ")")),
    "mean of neighbours": (
        "pools",
        reference("return F.avg_pool1d(self.linear(x).unsqueeze(1), 3).squeeze(1)", layers=LINEAR),
    ),
    "largest of the largest": ("pools", reference("return F.max_pool2d(F.max_pool2d(x, 2), 3)", IMAGES)),
    "mean of means": ("pools", reference("return F.avg_pool2d(F.avg_pool2d(x, 2), (1, 3))", IMAGES)),
    "means of mixed channels": ("pools", reference("return F.avg_pool2d(self.conv(x), 2)", IMAGES, MIXING + ")")),
    "norm into a convolution": (
        "norms",
        reference("return self.norm(self.conv(x))", IMAGES, "self.conv = nn.Conv2d(cols, outs, 3)" + NORMED),
    ),
    "norm into a transposed convolution": (
        "norms",
        reference("return self.norm(self.conv(x))", IMAGES, TURNED + ", padding=1, bias=False)" + NORMED),
    ),
    "one element": (
        "identities",
        reference("y = x.sum(1, keepdim=True); return y.max(1, keepdim=True)[0].logsumexp(1).mean() * y"),
    ),
    "nothing changes": ("identities", reference("return -(-F.dropout((x * 1 + 0).exp(), 0.5, False)).T.T")),
    "the same again": ("identities", reference("return torch.sin(x) * torch.sin(x)")),
    "an element less its mean": (
        "constants",
        reference("y = x.amax(1, keepdim=True); return F.gelu(y - y.mean(1, keepdim=True))"),
    ),
    "a step of a GRU": (
        "cells",
        reference("return self.cell(x, self.linear(x))", layers=f"{LINEAR}; self.cell = nn.GRUCell(cols, outs)"),
    ),
    "a step of an LSTM": (
        "cells",
        reference(
            "h = self.linear(x); y, c = self.cell(x, (h, h - 1)); return y * 2 + c",
            layers=f"{LINEAR}; self.cell = nn.LSTMCell(cols, outs, bias=False)",
        ),
    ),
    "softmax of one": ("constants", reference("return x.amax(1, keepdim=True).softmax(1) + 1")),
    "attention with wide heads": (
        "attention",
        reference("return F.scaled_dot_product_attention(x, x + 1, x.sin())", "torch.randn(rows, 2, cols, 11 * outs)"),
    ),
    "a bias behind a convolution": (
        "biases",
        reference("y = self.conv(x); return y.tanh() + y.sum(1, keepdim=True)", IMAGES, TURNED + ")"),
    ),
    "between bounds": (
        "constants",
        reference("return torch.clamp(torch.minimum(x.exp(), x.new_tensor(0.0)), 0, 1) + 1"),
    ),
    "heads that stand last": (
        "einsums",
        reference(
            "return torch.einsum('bkhd,bqkh->bqhd', x, x.sin().transpose(2, 3))", "torch.randn(rows, cols, 5, cols)"
        ),
    ),
    "sums of embeddings": (
        "bags",
        reference("return F.embedding_bag(x.long().abs(), self.w, mode='sum') * 2", layers=ROWS),
    ),
    "means and maxima of embeddings": (
        "bags",
        reference(
            "i = x.long().abs(); return F.embedding_bag(i, self.w, padding_idx=None) + F.embedding_bag(i[1:], self.w, "
            "mode='max').sum(0)",
            layers=ROWS,
        ),
    ),
    "two labels of the right operand": (
        "einsums",
        reference("return torch.einsum('nks,nkhd->nhds', x[:, :, 0], x.sin())", "torch.randn(rows, cols, 5, outs)"),
    ),
    "two labels of the left operand, in another order": (
        "einsums",
        reference(
            "return torch.einsum('hkab,hkc->hbca', x, x[:, :, 1].cos()).contiguous()",
            "torch.randn(rows, cols, 5, outs)",
        ),
    ),
    "labels that are one index of a part": (
        "einsums",
        reference("return torch.einsum('hkab,hkc->habc', x[:, 1:], x[:, 1:, 1])", "torch.randn(rows, cols, 5, outs)"),
    ),
    "channels that stand last": (
        "einsums",
        reference("return torch.einsum('ikc,jkc->ijc', x, x[1:].cos())", "torch.randn(rows, cols, 3)"),
    ),
    "channels that stand last, of columns first": (
        "einsums",
        reference("return torch.einsum('kic,kjc->ijc', x, x[:, 1:].cos())", "torch.randn(rows, cols, 3)"),
    ),
    "channels that stand last, the other way round": (
        "einsums",
        reference("return torch.einsum('ikc,kjc->jic', x, x.exp().mT.contiguous().mT)", "torch.randn(rows, rows, 3)"),
    ),
    "channels that stand last in a batch": (
        "einsums",
        reference("return torch.einsum('bikc,bjkc->bijc', x, x.cos())", "torch.randn(2, rows, cols, 3)"),
    ),
    "heads that share keys": (
        "joined",
        reference(
            "q, k, v = self.q(x), self.k(x), self.v(x)[:, :8]; return F.softmax(q.view(-1, 3, 8) @ "
            "k.view(-1, 8, 1), 1).squeeze(2).repeat(1, 2)[:, :4] * v[:, :4] + x.sum(1, keepdim=True)",
            layers="self.q, self.k, self.v = nn.Linear(cols, 24), nn.Linear(cols, 8, bias=False), nn.Linear(cols, 12)",
        ),
    ),
    "smoothed labels": (
        "logs",
        reference(
            "y = F.log_softmax(x, -1); return y.mean(-1) - y.gather(-1, torch.arange(len(x))[:, None] % x.shape[1])[:, 0]"
        ),
    ),
    "two sums of logs": (
        "logs",
        reference("y = F.log_softmax(x, 1); return y.sum(1, keepdim=True).sin() + y.mean(1, keepdim=True) + y.exp()"),
    ),
    "logs of wider numbers along the first": (
        "logs",
        reference("return F.log_softmax(x, 0, dtype=torch.float64).sum(0)"),
    ),
    "a gate with activations": (
        "joined",
        reference(
            "return F.gelu(x @ self.gate) * (x @ self.up) + 1",
            layers="self.gate, self.up = (nn.Parameter(torch.randn(cols, outs)) for _ in range(2))",
        ),
    ),
    "layers of images whose features are cut": (
        "joined",
        reference(
            "return self.f(x).transpose(1, 2).chunk(2, -1)[1].contiguous().flatten(1) - self.g(x).mean()",
            "torch.randn(rows, 5, 3, cols)",
            "self.f, self.g = nn.Linear(cols, outs), nn.Linear(cols, 2 * outs)",
        ),
    ),
}
KEPT = {
    "a row of one product": ("one_row", reference("return x[:1] @ x.mT")),
    "a row for all products": ("one_row", reference("return x[0, :1] @ x.mT", "torch.randn(rows, cols, size)")),
    "two rows of products": ("one_row", reference("return x[:, :2] @ x.mT", "torch.randn(rows, cols, size)")),
    "numbers of vectors": (
        "one_row",
        reference("return x[:, :1] @ x[:, :1].mT", "torch.randn(rows, cols, size)"),
    ),
    "a token's attention with a mask": (
        "one_token",
        reference(f"s = (x[:, 0][:, None] * x).sum(-1); s = s.where(s > 0, -9.0); return {WEIGHTED}", CACHE),
    ),
    "scores that are read twice": (
        "one_token",
        reference(f"s = (x[:, 0][:, None] * x).sum(-1); return {WEIGHTED} + s.sum(1)[..., None]", CACHE),
    ),
    "a softmax over heads": (
        "one_token",
        reference(f"s = (x[:, 0][:, None] * x).sum(-1); return {WEIGHTED.replace('softmax(1)', 'softmax(2)')}", CACHE),
    ),
    "weights of the width": (
        "one_token",
        reference("s = (x[:, 0][:, None] * x).sum(1); return (s.softmax(-1)[:, None] * x).sum(-1)", CACHE),
    ),
    "keys and values of other batches": (
        "one_token",
        reference("s = (x[:, 0][:, None] * x).sum(-1); return (s.softmax(1)[..., None] * x[:1]).sum(1)", CACHE),
    ),
    "shuffled pixels that are read twice": (
        "pixels",
        reference(
            "y = F.pixel_shuffle(x, 2); return self.last(y) + y",
            "torch.randn(rows, 8, size, size)",
            "self.last = nn.Conv2d(2, 2, 3, padding=1)",
        ),
    ),
    "many channels of shuffled pixels": (
        "pixels",
        reference(
            "return self.last(F.pixel_shuffle(x, 2))",
            "torch.randn(rows, 8, size, size)",
            "self.last = nn.Conv2d(2, 17, 1)",
        ),
    ),
    "steps over shuffled pixels": (
        "pixels",
        reference(
            "return self.last(F.pixel_shuffle(x, 2))",
            "torch.randn(rows, 8, size, size)",
            "self.last = nn.Conv2d(2, 3, 3, 2, 1)",
        ),
    ),
    "shuffled pixels whose edges are cut": (
        "pixels",
        reference(
            "return self.last(F.pixel_shuffle(x, 2))",
            "torch.randn(rows, 8, size, size)",
            "self.last = nn.Conv2d(2, 3, 3)",
        ),
    ),
    "sums before each, with ones": (
        "scans",
        reference(f"s = torch.cumsum(x, 1); return {BEFORE_EACH} * x"),
    ),
    "products that are read themselves": ("scans", reference(f"s = torch.cumprod(x, 1); return {BEFORE_EACH} + s")),
    "products before all but the first": (
        "scans",
        reference("s = torch.cumprod(x, 1); return torch.cat((torch.ones_like(s[:, :1]), s[:, 1:]), 1)"),
    ),
    "products along another": (
        "scans",
        reference(f"s = torch.cumprod(x, 0); return {BEFORE_EACH}"),
    ),
    "two numbers before each": ("scans", reference("return F.pad(torch.cumsum(x, 1)[:, :-1], (2, 0))")),
    "one before and one behind": ("scans", reference("return F.pad(torch.cumsum(x, 1)[:, :-1], (1, 1))")),
    "sums of whole numbers": ("scans", reference("return F.pad(torch.cumsum(x > 0, 1)[:, :-1], (1, 0)) + x")),
    "sums of few bits": (
        "scans",
        reference("return F.pad(torch.cumsum(x.bfloat16(), 1, dtype=torch.float32)[:, :-1], (1, 0))"),
    ),
    "sums that turn round": ("scans", reference("return torch.cumsum(x, 1).roll(1, 1)")),
    "logs over all": ("logs", reference("return F.log_softmax(x, 1).mean()")),
    "logs along another": ("logs", reference("return F.log_softmax(x, 1).sum(0)")),
    "logs of few bits": ("logs", reference("return F.log_softmax(x.bfloat16(), 1).mean(1)")),
    "logs that are not summed": ("logs", reference("return F.log_softmax(x, 1).amax(1)")),
    "read twice": ("sums", reference("y = self.linear(x); return y.sum(1) + y[:, 0]", layers=LINEAR)),
    "over rows": ("sums", reference("return self.linear(x).sum(0)", layers=LINEAR)),
    "a number on each term": ("sums", reference("return (self.linear(x) + 2).sum(1)", layers=LINEAR)),
    "something else between": ("sums", reference("return self.linear(x).exp().sum(1)", layers=LINEAR)),
    "cut edges": ("sums", reference("return self.conv(x).mean((2, 3))", IMAGES, TURNED + ", padding=1)")),
    "largest of mixed channels": ("pools", reference("return F.max_pool2d(self.conv(x), 2)", IMAGES, MIXING + ")")),
    "means of strided ones": (
        "pools",
        reference("return F.avg_pool2d(self.conv(x), 2)", IMAGES, MIXING + ", stride=2)"),
    ),
    "means of padded ones": (
        "pools",
        reference("return F.avg_pool2d(self.conv(x), 2)", IMAGES, MIXING + ", padding=1)"),
    ),
    "means of several taps": (
        "pools",
        reference("return F.avg_pool2d(self.conv(x), 2)", IMAGES, "self.conv = nn.Conv2d(cols, outs, 2)"),
    ),
    "windows that overlap": ("pools", reference("return F.max_pool2d(F.max_pool2d(x, 3, 2), 2)", IMAGES)),
    "windows over the end": ("pools", reference("return F.max_pool2d(F.max_pool2d(x, 2, ceil_mode=True), 2)", IMAGES)),
    "statistics of the batch": (
        "norms",
        reference("return F.batch_norm(self.conv(x), None, None, training=True)", IMAGES, TURNED + ")"),
    ),
    "random numbers": ("identities", reference("return F.dropout(x, 0.5, True) + F.dropout(x, 0.5, True)")),
    "narrow heads": (
        "attention",
        reference("return F.scaled_dot_product_attention(x, x, x)", "torch.randn(rows, 2, cols, outs)"),
    ),
    "scores that are masked": (
        "attention",
        reference(
            "return F.scaled_dot_product_attention(x, x, x, is_causal=True)", "torch.randn(rows, cols, 11 * outs)"
        ),
    ),
    "a bias that no kernel takes up": ("biases", reference("return self.conv(x)[:, 1:].tanh()", IMAGES, TURNED + ")")),
    "a bias of the result": ("biases", reference("return self.conv(x)", IMAGES, TURNED + ")")),
    "matrices as they lie": ("einsums", reference("return torch.einsum('ik,jk->ij', x, x + 1)")),
    "a sum of two dimensions": (
        "einsums",
        reference("return torch.einsum('ikl,jkl->ji', x, x + 1)", "torch.randn(rows, cols, 3)"),
    ),
    "labels with gaps between them": (
        "einsums",
        reference("return torch.einsum('hkab,hkc->habc', x[..., 1:], x[:, :, 1])", "torch.randn(rows, cols, 5, outs)"),
    ),
    "labels that lie in another order": (
        "einsums",
        reference(
            "return torch.einsum('hkab,hkc->habc', x.transpose(2, 3), x[:, :, 1])", "torch.randn(rows, cols, 5, outs)"
        ),
    ),
    "labels that are no neighbours": (
        "einsums",
        reference("return torch.einsum('hakb,hkc->habc', x, x[:, 1])", "torch.randn(rows, cols, 5, outs)"),
    ),
    "sizes that broadcast": (
        "einsums",
        reference("return torch.einsum('hkab,hkc->habc', x, x[:1, :, 1])", "torch.randn(rows, cols, 5, outs)"),
    ),
    "elements by elements": ("einsums", reference("return torch.einsum('ik,ik->ki', x, x + 1)")),
    "bags of several lengths": (
        "bags",
        reference(
            "return F.embedding_bag(x.long().abs().flatten(), self.w, torch.arange(0, x.numel(), x.shape[1] - 1))",
            layers=ROWS,
        ),
    ),
    "embeddings with a scale": (
        "bags",
        reference(
            "return F.embedding_bag(x.long().abs(), self.w, per_sample_weights=x, mode='sum')",
            layers=ROWS,
        ),
    ),
    "embeddings of which one counts for nothing": (
        "bags",
        reference(
            "return F.embedding_bag(x.long().abs(), self.w, padding_idx=0)",
            layers=ROWS,
        ),
    ),
    "layers of which one is the result": (
        "joined",
        reference("return self.f(x), self.g(x).exp()", layers=TWO),
    ),
    "layers of two operands": ("joined", reference("return self.f(x).exp() + self.g(x + 1).exp()", layers=TWO)),
    "weights that are no layer's": (
        "joined",
        reference("return F.linear(x, self.f.weight * 2).exp() + self.g(x).exp()", layers=TWO),
    ),
    "weights that forward changes": (
        "joined",
        reference("self.w.mul_(2); return (x @ self.w).exp() + (x @ self.v).exp()", layers=CHANGED),
    ),
    "features that end between": (
        "joined",
        reference("return self.f(x).exp().sum(1) + self.g(x).exp().sum(1)", layers=TWO.replace("outs)", "outs + 1)")),
    ),
    "features of all rows in a row": (
        "joined",
        reference("return self.f(x).view(-1).exp() + self.g(x).view(-1)", layers=TWO),
    ),
    "bounds apart": ("constants", reference("return torch.clamp(torch.minimum(x, x.new_tensor(0.5)), 0, 1)")),
}


def load(text: str, folder: Path) -> ModuleType:
    return load_module(text, folder / f"module_{len(list(folder.iterdir()))}.py")


def edited(task: Task, wanted: str) -> list[tuple[str, str]]:
    """The sentences and plans of a task's `algebra` actions that apply one kind of rule, and do nothing else."""
    coder, edit = Rewriter(), Rewriter().root(task)
    seen = Observation(task, edit.source, edit.plan, Outcome("ok"), (), "H100")
    found = []
    for action in coder.actions(seen, []):
        params = dict(action.params)
        if action.kind == "algebra" and params["rules"] == wanted and "joined" not in params:
            child = coder.edit(EditRequest(task, edit.source, edit.plan, Outcome("ok"), action, "H100"))
            found.append((action.sentence, child.source))
    return found


@pytest.mark.parametrize("name", FITS)
def test_a_simplified_version_is_the_same_in_float64(name: str, tmp_path: Path) -> None:
    rules, source = FITS[name]
    task = task_from_source(source, "reference")
    ((sentence, text),) = edited(task, rules)
    assert sentence.startswith("rewrite by algebra: ") and "Rewritten, exact up to rounding:\n- " in text
    for variant in (task.full, task.small, *task.held_out):
        module = load(apply_constants(source, variant.constants), tmp_path)
        version = load(text, tmp_path)
        torch.manual_seed(0)
        model = module.Model(*module.get_init_inputs()).double()
        torch.manual_seed(0)
        other = version.ModelNew(*module.get_init_inputs()).double()
        (x,) = (item.double() for item in module.get_inputs())
        with torch.no_grad():
            wanted, got = model(x), other(x)
        assert got.shape == wanted.shape and got.dtype == wanted.dtype
        assert float((got - wanted).norm()) <= EXACT * float(wanted.norm()), variant.label


@pytest.mark.parametrize("name", KEPT)
def test_what_would_not_be_equal_is_left_as_it_is(name: str) -> None:
    rules, source = KEPT[name]
    assert edited(task_from_source(source, "reference"), rules) == []


def test_a_constant_result_is_told() -> None:
    ((sentence, text),) = edited(task_from_source(FITS["softmax of one"][1], "reference"), "constants")
    assert "it is 1.0 whatever the inputs are" in sentence and "it is 1.0 whatever the inputs are" in text


def test_plans_over_simplified_graphs_are_kept_as_json_and_printed_again() -> None:
    task = task_from_source(FITS["one element"][1], "reference")
    graph = export_graph(task)
    start = root_plan(graph)
    (move,) = KINDS["algebra"].legal(Version.of(task, start, hardware("H100")))
    plan = move.child
    assert plan is not None and plan.algebra == ("identities",) and plan_from_json(plan.to_json()) == plan
    changed = graph_of(graph, plan)
    assert changed is graph_of(graph, plan) is apply_rules(graph, "identities").graph and len(changed.ops) < len(
        graph.ops
    )
    assert print_plan(task, changed, plan).source == print_plan(task, graph_of(graph, plan), plan).source
    with pytest.raises(CoderError, match="no rules 'magic'"):
        apply_rules(graph, "magic")


@pytest.mark.parametrize(
    "kernels",
    [
        [("to_2", "sub")],
        [("to_2", "mul_1", "sub")],
        [("to_2", "sub", "to_6")],
        [("sign", "add"), ("to_2", "sub")],
        [("mul", "add"), ("to_2", "sub")],
    ],
    ids=lambda kernels: "; ".join(map(" and ".join, kernels)),
)
def test_calls_that_become_one_leave_alone_a_kernel_on_both_sides_of_them(kernels: list[tuple[str, ...]]) -> None:
    """A step of Lion casts its weights twice: with one cast, a kernel of it and of the difference would wait for itself."""
    (source,) = (path.read_text() for path in BLOCKS.glob("*/lion.py"))
    task = task_from_source(source, "lion")
    graph = export_graph(task)
    begun = Version.of(task, root_plan(graph), hardware("H100"))
    again = "rewrite by algebra: to_3 is to_2 again"
    assert any(move.action.sentence.startswith(again) for move in legal_moves(begun))
    plan = begun.plan
    for ops in kernels:
        kernel = begun.as_kernel(ops, {})
        assert kernel is not None
        plan = plan.with_merged(graph, [plan.stage_of(name) for name in ops], kernel)
    moves = legal_moves(begun.made(plan))
    assert moves and not any(again in move.action.sentence for move in moves)


def test_a_simplified_version_is_fused_and_passes_the_lab() -> None:
    """The sum over 512 features: one kernel over the rows after the weights are summed; a tenth of the time."""
    source = reference("return F.gelu(self.linear(x).sum(1, keepdim=True))", layers=LINEAR)
    task = task_from_source(source.replace("12, 20, 24, 26", "2048, 4096, 4096, 26"), "summed")
    coder = Rewriter()
    root = edit = coder.root(task)
    for kind in ("algebra", "fuse", "fuse", "fuse", "fuse"):
        seen = Observation(task, edit.source, edit.plan, Outcome("ok"), (), "H100")
        action = next((action for action in coder.actions(seen, []) if action.kind == kind), None)
        if action is not None:
            edit = coder.edit(EditRequest(task, edit.source, edit.plan, Outcome("ok"), action, "H100"))
    assert edit.source.count("@triton.jit") <= 2
    with LabSettings(workers=1, check_variants=1).open() as lab:
        before, after = lab.evaluate([EvaluationRequest(task, text) for text in (root.source, edit.source)])
    assert before.ok and after.ok, (before, after)
    assert before.runtime_ms is not None and after.runtime_ms is not None
    assert after.runtime_ms < before.runtime_ms / 5
