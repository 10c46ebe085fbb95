"""References for the tests of guards: files, and calls of what is handed out for them, with what each has to give.

A call is (statements on the module `m`, the arguments, a pattern of what becomes of it), and what it runs under.
"""

from __future__ import annotations

from typing import Any

FILE = """
import torch
import torch.nn as nn
import torch.nn.functional as F

n = 12
m = 20
HEADS = 4
VARIANTS = {variants}


class Model(nn.Module):
    def __init__(self{arguments}):
        super().__init__()
{init}

    def forward(self, {inputs}):
{forward}


def get_inputs():
    return [{given}]


def get_init_inputs():
    return [{made}]
"""
FREE = '{"small": {"n": 6, "m": 10}, "odd1": {"n": 5, "m": 33}, "odd2": {"n": 17, "m": 7}}'
LONG = '{"small": {"n": 6, "m": 40}, "odd1": {"n": 5, "m": 33}, "odd2": {"n": 17, "m": 19}}'
EVEN = '{"small": {"n": 6, "m": 10}, "odd1": {"n": 8, "m": 33}, "odd2": {"n": 18, "m": 7}}'
HALVES = '{"small": {"n": 6, "m": 10}, "odd1": {"n": 5, "m": 32}, "odd2": {"n": 17, "m": 8}}'
HEADS = '{"small": {"HEADS": 2, "m": 10}, "odd1": {"HEADS": 3, "m": 33}, "odd2": {"HEADS": 5, "m": 15}}'


def file(forward: str, given: str = "torch.randn(n, m)", init: str = "pass", made: str = "", **changes: str) -> str:
    """The text of a reference. forward, init: bodies. given: its inputs, made: the arguments of its __init__."""
    count = given.count("torch.r")
    return FILE.format(
        forward="\n".join(" " * 8 + line for line in forward.splitlines()),
        init="\n".join(" " * 8 + line for line in init.splitlines()),
        given=given,
        made=made,
        inputs=changes.get("inputs", ", ".join("xyz"[:count])),
        arguments=changes.get("arguments", ""),
        variants=changes.get("variants", FREE),
    )


LINEAR = file("return torch.relu(self.fc(x)) * 2", init="self.fc = nn.Linear(m, 24)\nself.fc.requires_grad_(False)")


SELF = file("return torch.relu(s.fc(x)) + 1", init="self.fc = nn.Linear(m, 24)").replace("forward(self", "forward(s")
NORM = "self.norm = nn.BatchNorm1d(m).eval()\nself.requires_grad_(False)"

CASES: dict[str, dict[str, Any]] = {
    "linear": {
        "source": LINEAR,
        "calls": {
            "another batch": ("", "[torch.randn(37, 20)]", "right"),
            "a batch of none": ("", "[torch.randn(0, 20)]", "refused"),
            "one dimension more": ("", "[torch.randn(3, 12, 20)]", "refused: .* x has 3 dimensions"),
            "one dimension less": ("", "[torch.randn(20)]", "refused: .* x has 1 dimensions"),
            "wrong features": ("", "[torch.randn(12, 21)]", "refused: .* x.shape.1. is 21, it must be"),
            "float64": ("m.double()", "[x.double()]", "refused: .* x is torch.float64"),
            "mixed dtypes": ("m.half()", "[x]", "refused: .* fc.weight is torch.float16"),
            "double afterwards": ("m.double()", "[x]", "refused: .* fc.weight is torch.float64"),
            "transposed": ("", "[torch.randn(20, 12).t()]", "refused: .* strides"),
            "every second row": ("", "[torch.randn(24, 20)[::2]]", "refused: .* strides"),
            "a column as a view": ("", "[torch.randn(12, 40)[:, :20]]", "refused: .* strides"),
            "a row as a view": ("", "[torch.randn(40, 20)[3:9]]", "right"),
            "a parameter by columns": (
                "m.fc.weight = torch.nn.Parameter(torch.randn(20, 24).t(), False)",
                "[x]",
                "refused: .* fc.weight .* strides",
            ),
            "data by columns": (
                "m.fc.weight.data = m.fc.weight.data.t().contiguous().t()",
                "[x]",
                "refused: .* strides",
            ),
            "another parameter": ("m.fc.weight = torch.nn.Parameter(torch.randn(24, 20), False)", "[x]", "right"),
            "pruned": ("m.fc.weight.data = m.fc.weight.data[:16]", "[x]", "refused"),
            "pruned with its bias": (
                "m.fc.weight.data = m.fc.weight.data[:16]; m.fc.bias.data = m.fc.bias.data[:16]",
                "[x]",
                "right|refused",
            ),
            "assigned": (
                "m.load_state_dict({'fc.weight': torch.randn(20, 24).t(), 'fc.bias': torch.randn(24)}, assign=True)",
                "[x]",
                "refused: .* gradients|refused: .* strides",
            ),
            "another layer": ("m.fc = torch.nn.Sequential(m.fc, torch.nn.ReLU())", "[x]", "refused: .*does not keep"),
            "no bias": ("m.fc.bias = None", "[x]", "refused: .* fc.bias is a NoneType"),
            "wants its own gradient": (
                "m.fc.weight.requires_grad_(True)",
                "[x]",
                "refused: .* gradients",
                "torch.enable_grad()",
            ),
            "wants a gradient": ("", "[x.requires_grad_()]", "refused: .* gradients", "torch.enable_grad()"),
            "wants none": ("", "[x]", "right", "torch.enable_grad()"),
            "autocast": ("", "[x]", "refused: .*autocast", "torch.autocast('cpu', torch.bfloat16)"),
            "no tensor": ("", "[None]", "refused: .* x is a NoneType"),
            "on meta": ("", "[x.to('meta')]", "refused: .* is on"),
            "evaluation mode": ("m.eval()", "[x]", "right"),
        },
    },
    "broadcast": {
        "source": file("return x * y + 1", "torch.randn(n, m), torch.randn(1, m)"),
        "calls": {
            "as it was": ("", "[torch.randn(3, 8), torch.randn(1, 8)]", "right"),
            "no broadcast": ("", "[torch.randn(3, 8), torch.randn(3, 8)]", "refused: .* y.shape.0. is 3, it must be 1"),
            "the other way": ("", "[torch.randn(1, 8), torch.randn(3, 8)]", "refused"),
            "one less": ("", "[torch.randn(3, 8), torch.randn(8)]", "refused: .* y has 1"),
            "another dimension": ("", "[torch.randn(3, 8), torch.randn(3, 1)]", "refused"),
        },
    },
    "no_broadcast": {
        "source": file("return x * y + 1", "torch.randn(n, m), torch.randn(n, m)"),
        "calls": {
            "as it was": ("", "[torch.randn(3, 8), torch.randn(3, 8)]", "right"),
            "broadcast": (
                "",
                "[torch.randn(3, 8), torch.randn(1, 8)]",
                "refused: .* y.shape.0. is 1, it must be x.shape.0. = 3",
            ),
            "other broadcast": ("", "[torch.randn(3, 8), torch.randn(3, 1)]", "refused"),
            "mixed dtypes": ("", "[torch.randn(3, 8), torch.randn(3, 8).double()]", "refused: .* y is torch.float64"),
            "strided": ("", "[torch.randn(8, 3).t(), torch.randn(3, 8)]", "refused"),
        },
    },
    "changed": {
        "source": file("x.mul_(2)\nreturn torch.relu(x) + y", "torch.randn(n, m), torch.randn(n, m)"),
        "calls": {
            "as it was": ("", "[torch.randn(3, 8), torch.randn(3, 8)]", "right"),
            "one tensor twice": ("", "[x[:3], x[:3]]", "refused: .* x is changed and shares memory with y"),
            "parts of one": ("", "[x[:3], x[1:4]]", "refused: .* shares memory"),
        },
    },
    "branch": {
        "source": file("if x.shape[1] > 15:\n    x = x * 2\nreturn torch.relu(x) + 1", variants=LONG),
        "calls": {
            "this branch": ("", "[torch.randn(3, 16)]", "right"),
            "the other": ("", "[torch.randn(3, 15)]", "refused"),
        },
    },
    "assertion": {
        "source": file("assert x.shape[0] % 2 == 0\nreturn torch.relu(x) + 1", variants=EVEN),
        "calls": {
            "even": ("", "[torch.randn(20, 3)]", "right"),
            "odd": ("", "[torch.randn(21, 3)]", "refused: .*x.shape.0. % 2"),
        },
    },
    "heads": {
        "source": file(
            "h = x.reshape(x.shape[0], HEADS, -1)\nreturn (torch.softmax(h, -1) * 2).reshape(x.shape[0], -1)",
            "torch.randn(HEADS, m)",
            variants=HEADS,
        ),
        "calls": {
            "as many": ("", "[torch.randn(4, 28)]", "right"),
            "fewer": ("", "[torch.randn(2, 28)]", "refused: .* x.shape.0"),
            "more": ("", "[torch.randn(7, 28)]", "refused: .* x.shape.0"),
        },
    },
    "heads_of_the_module": {
        "source": file(
            "h = x.reshape(x.shape[0], self.heads, -1)\nreturn (torch.softmax(h, -1) * 2).reshape(x.shape[0], -1)",
            "torch.randn(HEADS, m)",
            init="self.heads = heads",
            arguments=", heads",
            made="HEADS",
            variants=HEADS,
        ),
        "calls": {
            "as many": ("", "[torch.randn(4, 28)]", "right"),
            "fewer": ("", "[torch.randn(2, 28)]", "refused: .* x.shape.0. is 2, it must be heads = 4"),
            "both": ("m.heads = 7", "[torch.randn(7, 28)]", "right|refused"),
        },
    },
    "shift_in_a_tuple_of_the_module": {
        "source": file(
            "return torch.roll(torch.relu(x), (-self.shifts[0], self.shifts[1]), (0, 1)) + 1",
            init="self.shifts = (3 * heads + 1, 2)",
            arguments=", heads",
            made="HEADS",
            variants=HEADS.replace("{", '{"n": 7, ').replace('{"n": 7, "small"', '{"small"'),
        ),
        "calls": {
            "as it was": ("", "[torch.randn(12, 20)]", "right"),
            "the other batch": ("", "[torch.randn(7, 20)]", "right|refused: .*one of"),
            "shifted further": ("m.shifts = (5, 2)", "[torch.randn(12, 20)]", "right|refused"),
        },
    },
    "two_sizes": {
        "source": file("return torch.relu(x) + 1", variants=FREE.replace('"n": 5', '"n": 6').replace("17", "12")),
        "calls": {
            "as it was": ("", "[torch.randn(12, 20)]", "right"),
            "the other": ("", "[torch.randn(6, 10)]", "right"),
            "a third": ("", "[torch.randn(7, 10)]", r"refused: .*x.shape.0.. is .7,., it must be one of ..12,., .6,.."),
        },
    },
    "two_sizes_of_a_number": {
        "source": file(
            "return torch.relu(x) + HEADS",
            "torch.randn(HEADS, m)",
            variants=HEADS.replace('"HEADS": 3', '"HEADS": 2').replace('"HEADS": 5', '"HEADS": 4'),
        ),
        "calls": {
            "as it was": ("", "[torch.randn(4, 20)]", "right"),
            "the other": ("", "[torch.randn(2, 10)]", "refused: .*x.shape.0. is 2|refused: .*one of ..4,"),
        },
    },
    "number_of_the_file": {
        "source": file(
            "return torch.relu(x @ self.w) * HEADS",
            init="self.w = nn.Parameter(torch.randn(m, HEADS), False)",
            variants=HEADS.replace("{", '{"n": 7, ').replace('{"n": 7, "small"', '{"small"'),
        ),
        "calls": {
            "as it was": ("", "[torch.randn(12, 20)]", "right"),
            "another width": (
                "m.w.data = torch.randn(20, 5)",
                "[torch.randn(12, 20)]",
                "refused: .* w.shape.1. is 5, it must be 4",
            ),
        },
    },
    "scalar": {
        "source": file("return torch.relu(x * k) + 1", "torch.randn(n, m), 3", inputs="x, k, mask=None"),
        "calls": {
            "the same": ("", "[torch.randn(3, 8), 3]", "right"),
            "another": ("", "[torch.randn(3, 8), 4]", "refused: .* k is 4, this version holds for 3"),
            "of another type": ("", "[torch.randn(3, 8), 3.0]", "refused"),
            "a tensor": ("", "[torch.randn(3, 8), torch.tensor(3)]", "refused"),
            "a mask": ("", "[torch.randn(3, 8), 3, torch.ones(1)]", "refused: .* mask is"),
        },
    },
    "by_columns": {
        "source": file(
            "return torch.relu(x @ self.w) + 1", init="self.w = nn.Parameter(torch.randn(24, m).t(), False)"
        ),
        "calls": {
            "as it was": ("", "[torch.randn(3, 20)]", "right"),
            "by rows": ("m.w.data = m.w.data.contiguous()", "[torch.randn(3, 20)]", "right|refused"),
        },
    },
    "self_is_s": {
        "source": SELF,
        "calls": {"as it was": ("", "[torch.randn(3, 20)]", "right")},
    },
    "training": {
        "source": file("return torch.relu(self.norm(x)) + 1", init=NORM),
        "calls": {
            "as it was": ("", "[torch.randn(3, 20)]", "right"),
            "training": ("m.train()", "[torch.randn(3, 20)]", "refused: .* norm is in training mode"),
            "all in evaluation": ("m.eval()", "[torch.randn(3, 20)]", "right|refused"),
        },
    },
}
THIRDS = '{"small": {"n": 16, "m": 12}, "odd1": {"n": 8, "m": 6}, "odd2": {"n": 4, "m": 18}}'
EQUAL_WHERE_CAPTURED = {
    "chunks": ("a, b, c = x.chunk(3, 1)", "torch.softmax(a, -1), b * 2, torch.relu(c)"),
    "quarters": ("a, b = x[: (len(x) + 3) // 4], x[: len(x) // 4]", "torch.softmax(a, -1), torch.relu(b)"),
    "small": ("p = F.pad(x, (0, torch.sym_max(4 - x.shape[1], 0)))", "torch.softmax(p, -1), torch.relu(x)"),
    "products": ("a, b = x[: len(x) // 2].flatten(), x[:, : x.shape[1] // 2].flatten()", "a.relu() + 1, b.exp() * 2"),
    "rounded": ("a = F.interpolate(x[None, None], scale_factor=0.5)", "torch.relu(a) * 2"),
}
"""Sizes that follow from the inputs' in two ways, and are equal where m is a multiple of six and n one of four."""
RANDOM = {
    **{
        name: file(f"{first}\nreturn {rest}", variants=THIRDS).replace("m = 20", "m = 24")
        for name, (first, rest) in EQUAL_WHERE_CAPTURED.items()
    },
    "linear": LINEAR,
    "broadcast": CASES["broadcast"]["source"],
    "no_broadcast": CASES["no_broadcast"]["source"],
    "softmax": file("return torch.softmax(x, -1) + y.unsqueeze(1)", "torch.randn(n, m), torch.randn(n)"),
    "turned": file(
        "return x.transpose(0, 1).reshape(-1, 2) * 2 + y", "torch.randn(n, m), torch.randn(1)", variants=HALVES
    ),
    "halves": file("a, b = x.chunk(2, -1)\nreturn a * torch.sigmoid(b)", variants=HALVES),
    "square": file("return x @ y + x.shape[0]", "torch.randn(n, m), torch.randn(m, n)"),
}
