"""Small references for the rewriter's tests: one for each elementwise op, and forms that are easy to get wrong."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence

TEMPLATE = """
import math
import torch
import torch.nn as nn
import torch.nn.functional as F

{full}
VARIANTS = {{
    "small": {small},
    "odd1": {odd1},
}}


class Model(nn.Module):
    def __init__(self):
        super().__init__()
{init}

    def forward(self, {arguments}):
        return {result}


def get_inputs():
    return [{inputs}]


def get_init_inputs():
    return []
"""


SIZES = {"n": (64, 6, 19), "m": (96, 36, 7), "k": (48, 24, 17)}
"""The numbers of a reference: at the full, the small and the odd shapes."""


def reference(
    result: str,
    inputs: str = "torch.randn(n, m)",
    init: str = "",
    sizes: Mapping[str, tuple[int, int, int]] = SIZES,
    names: Sequence[str] = "xyz",
) -> str:
    """The text of a reference whose forward returns `result` of x, y, z (as many as there are inputs), or of other names."""
    count = len(re.findall(r"torch\.rand", inputs))
    lines = "\n".join(f"        {line}" for line in init.splitlines())
    small, odd1 = (json.dumps({name: each[at] for name, each in sizes.items()}) for at in (1, 2))
    return TEMPLATE.format(
        init=lines,
        arguments=", ".join(names[:count]),
        result=result,
        inputs=inputs,
        full="\n".join(f"{name} = {each[0]}" for name, each in sizes.items()),
        small=small,
        odd1=odd1,
    )


def together(sources: Mapping[str, str], most: int = 8) -> dict[str, str]:
    """References that return the results of up to that many others of the same inputs, without modules of their own.

    A name is those of its parts, with "-" between them. Each result is still compared by itself.
    """
    parts: dict[str, list[tuple[str, str]]] = {}
    for name, source in sources.items():
        result = re.search(r"return (.*)\n\n\ndef get_inputs", source)
        assert result is not None
        parts.setdefault(source.replace(result[0], "return {}\n\n\ndef get_inputs"), []).append((name, result[1]))
    joined = {}
    for text, found in parts.items():
        for first in range(0, len(found), most):
            names, results = zip(*found[first : first + most], strict=True)
            joined["-".join(names)] = text.replace("return {}", f"return {', '.join(results)}")
    return joined


PAIR = "torch.randn(n, m), torch.randn(n, m)"
POSITIVE = "torch.rand(n, m) + 0.5"

ELEMENTWISE = {
    "relu": reference("torch.relu(x)"),
    "relu6": reference("F.relu6(4 * x)"),
    "sigmoid": reference("torch.sigmoid(x)"),
    "tanh": reference("torch.tanh(x)"),
    "silu": reference("F.silu(x)"),
    "softsign": reference("F.softsign(x)"),
    "logsigmoid": reference("F.logsigmoid(3 * x)"),
    "mish": reference("F.mish(x)"),
    "hardswish": reference("F.hardswish(3 * x)"),
    "hardsigmoid": reference("F.hardsigmoid(3 * x)"),
    "hardtanh": reference("F.hardtanh(x, -0.5, 0.7)"),
    "leaky_relu": reference("F.leaky_relu(x, 0.2)"),
    "leaky_relu_default": reference("F.leaky_relu(x)"),
    "elu": reference("F.elu(x, 1.5)"),
    "elu_default": reference("F.elu(x)"),
    "selu": reference("F.selu(x)"),
    "celu": reference("F.celu(x, 1.3)"),
    "softplus": reference("F.softplus(9 * x)"),
    "softplus_beta": reference("F.softplus(x, 2.0, 5.0)"),
    "gelu": reference("F.gelu(x)"),
    "gelu_tanh": reference("F.gelu(x, approximate='tanh')"),
    "abs": reference("torch.abs(x)"),
    "neg": reference("-x"),
    "exp": reference("torch.exp(x)"),
    "log": reference("torch.log(x)", POSITIVE),
    "sqrt": reference("torch.sqrt(x)", POSITIVE),
    "rsqrt": reference("torch.rsqrt(x)", POSITIVE),
    "reciprocal": reference("torch.reciprocal(x)", POSITIVE),
    "square": reference("torch.square(x)"),
    "sin": reference("torch.sin(x)"),
    "cos": reference("torch.cos(x)"),
    "erf": reference("torch.erf(x)"),
    "special": reference("torch.special.expit(x) + torch.special.erf(x) + torch.special.log1p(x * x)"),
    "degrees": reference("torch.rad2deg(x) + torch.deg2rad(x)"),
    "arcs": reference("torch.asin(x), torch.acos(x), torch.atan(9 * x)", "2 * torch.rand(n, m) - 1"),
    "small_arcs": reference("torch.asin(x), torch.atan(x)", "1e-4 * torch.randn(n, m)"),
    "arcs_next_to_one": reference("torch.acos(1 - x), torch.acos(x - 1)", "1e-5 * torch.rand(n, m)"),
    "expm1": reference("torch.expm1(x) + torch.expm1(1e-4 * x)"),
    "small_expm1": reference("torch.expm1(1e-4 * x)"),
    "kinds_of_numbers": reference(
        "torch.where(torch.isnan(torch.log(x)), x, 2 * x), torch.where(torch.isinf(1 / torch.relu(x)), x, x * x), "
        "torch.where(torch.isfinite(1 / torch.relu(x)), x, y), torch.where(torch.signbit(-torch.relu(x)), x, y)",
        PAIR,
    ),
    "floor": reference("torch.floor(3 * x)"),
    "ceil": reference("torch.ceil(3 * x)"),
    "sign": reference("torch.sign(x)"),
    "mul": reference("x * y", PAIR),
    "div": reference("x / y", "torch.randn(n, m), torch.rand(n, m) + 0.5"),
    "add_alpha": reference("torch.add(x, y, alpha=0.5)", PAIR),
    "sub_alpha": reference("torch.sub(x, y, alpha=2)", PAIR),
    "rsub": reference("3.0 - x"),
    "pow2": reference("x ** 2"),
    "pow3": reference("x ** 3"),
    "pow_half": reference("x ** 0.5", POSITIVE),
    "maximum": reference("torch.maximum(x, y)", PAIR),
    "minimum": reference("torch.minimum(x, y)", PAIR),
    "clamp": reference("torch.clamp(x, -0.5, 0.5)"),
    "clamp_low": reference("torch.clamp(x, min=0.1)"),
    "clamp_min": reference("torch.clamp_min(x, 0.1)"),
    "clamp_max": reference("torch.clamp_max(x, 0.1)"),
    "where": reference("torch.where(x > 0.3, x, y)", PAIR),
    "masked_fill": reference("x.masked_fill(x > 0.5, -1.0)"),
    "log1p": reference("torch.log1p(1e-3 * x)", POSITIVE),
    "shrink": reference("F.softshrink(x, 0.3) + F.hardshrink(x) * F.threshold(x, 0.1, 20.0)"),
    "mask_times_numbers": reference("x * y", "torch.randn(n, m), torch.randint(0, 2, (n, m)).bool()"),
    "whole_numbers_added": reference("x + y * 0.5", "torch.randn(n, m), torch.randint(0, 9, (n, m))"),
    "clone": reference("torch.relu(x.clone() + 1) + x"),
    "addcmul": reference("torch.addcmul(x, x, y, value=0.3) + torch.lerp(x, y, 0.2)", PAIR),
    "prelu": reference("self.act(x)", "torch.randn(n, 6, m)", "self.act = nn.PReLU(6)"),
    "compare_tensors": reference("torch.where(x >= y, x * 2, y)", PAIR),
    "masks_together": reference("torch.where((x > 0) & (y > 0) | (x < y) ^ (x > 1), x, y)", PAIR),
    "dropout_of_nothing": reference("F.dropout(x, 0.0) * 2"),
}

ROWS = {
    # Rows so long at the full shapes that they are split from the start, with a result of each row beside the full one.
    "split_with_what_is_of_a_row": reference("(x - x.mean(-1, keepdim=True)) * 2, x.mean(-1, keepdim=True)").replace(
        "m = 96", "m = 100000"
    ),
    "softmax": reference("torch.softmax(x, -1)"),
    # Largest element and sum of exponentials in one loop, in more than one step and with lanes that see only -inf.
    "softmax_over_several_blocks": reference(
        "torch.softmax(torch.where(x > 1.5, x, -torch.inf), -1)", "torch.randn(n, 99 * m)"
    ),
    "softmax_over_rows": reference("torch.softmax(x, 0)"),
    "softmax_in_the_middle": reference("torch.softmax(x, 1)", "torch.randn(n, m, 7)"),
    "log_softmax": reference("torch.log_softmax(x, -1)"),
    "layer_norm": reference("F.layer_norm(x, x.shape[-1:])"),
    # Weight and bias are the same for all columns of a block.
    "group_norm_of_long_channels": reference(
        "self.norm(x)", "torch.randn(3, 4, 1024)", "self.norm = nn.GroupNorm(2, 4); nn.init.uniform_(self.norm.weight)"
    ),
    "group_norm_of_odd_channels": reference(
        "self.norm(x)", "torch.randn(3, 6, 1077)", "self.norm = nn.GroupNorm(2, 6); nn.init.uniform_(self.norm.weight)"
    ),
    "layer_norm_two_dims": reference("F.layer_norm(x, x.shape[-2:])", "torch.randn(n, m, 5)"),
    "layer_norm_module": reference("self.norm(x)", init="self.norm = nn.LayerNorm(m)"),
    "rms_norm": reference("F.rms_norm(x, x.shape[-1:], eps=1e-6)"),
    "rms_norm_module": reference("self.norm(x)", init="self.norm = nn.RMSNorm(m, eps=1e-5)"),
    "group_norm": reference("self.norm(x)", "torch.randn(n, 12, m)", "self.norm = nn.GroupNorm(3, 12)"),
    "batch_norm_eval": reference("self.norm(x)", "torch.randn(n, 12, m)", "self.norm = nn.BatchNorm1d(12).eval()"),
    "batch_norm_2d": reference("F.relu(self.norm(x))", "torch.randn(n, 6, 2, k // 8)", "self.norm = nn.BatchNorm2d(6)"),
    "batch_norm_far_from_zero": reference(
        "self.norm(x + 500.0)", "torch.randn(n, 6, m)", "self.norm = nn.BatchNorm1d(6)"
    ),
    "batch_norm_of_columns": reference("self.norm(x)", init="self.norm = nn.BatchNorm1d(m)"),
    "batch_norm_untracked": reference(
        "self.norm(x)", "torch.randn(n, 6, m)", "self.norm = nn.BatchNorm1d(6, track_running_stats=False)"
    ),
    "instance_norm": reference("self.norm(x)", "torch.randn(n, 6, m)", "self.norm = nn.InstanceNorm1d(6, affine=True)"),
    "sum_around": reference("x.sum((0, 2)) + 1", "torch.randn(n, 6, m)"),
    "sum_last": reference("torch.sum(x, -1)"),
    "sum_first": reference("torch.sum(x, 0)"),
    "sum_keepdim": reference("x.sum(1, keepdim=True)", "torch.randn(n, m, 5)"),
    "sum_two_dims": reference("x.sum((1, 2))", "torch.randn(n, m, 5)"),
    "sum_all": reference("x.sum()"),
    "mean_all": reference("x.mean()"),
    "amax": reference("torch.amax(x, -1)"),
    "amin": reference("torch.amin(x, 0)"),
    "max_all": reference("x.max()"),
    "max_with_index": reference("torch.max(x, 1)"),
    "min_values_only": reference("torch.min(x, 1)[0]"),
    "argmax": reference("torch.argmax(x, 1)"),
    "argmin": reference("torch.argmin(x, 0)"),
    "places_of_equals": reference(
        "*torch.min(torch.floor(2 * x), 1), torch.argmax(torch.where(x > 9, x, -torch.inf), 1)",
        "torch.randn(n, 40 * m)",
    ),
    "place_in_one_long_row": reference("torch.argmax(x)").replace("m = 96", "m = 20000"),
    "var": reference("torch.var(x, 1)"),
    "var_biased": reference("torch.var(x, 1, unbiased=False, keepdim=True)"),
    "std": reference("torch.std(x, -1)"),
    "logsumexp": reference("torch.logsumexp(x, 1)"),
    "logsumexp_keepdim": reference("torch.logsumexp(x, 0, keepdim=True)"),
    "normalized": reference("x / (x * x).sum(-1, keepdim=True).sqrt()"),
    "centered_by_columns": reference("x - x.mean(0, keepdim=True)"),
    "weighted_rows": reference("(torch.softmax(x, -1) * y).sum(-1)", PAIR),
    "row_bias": reference("torch.softmax(x + y, -1)", "torch.randn(n, m), torch.randn(m)"),
    "cross_entropy": reference("F.cross_entropy(x, y)", "torch.randn(n, m), torch.randint(0, m, (n,))"),
    "cross_entropy_sum": reference(
        "F.cross_entropy(x, y, reduction='sum')", "torch.randn(n, m), torch.randint(0, m, (n,))"
    ),
    "cross_entropy_smoothed": reference(
        "F.cross_entropy(x, y, label_smoothing=0.1)", "torch.randn(n, m), torch.randint(0, m, (n,))"
    ),
    "cross_entropy_smoothed_ignored": reference(
        "F.cross_entropy(x, y, ignore_index=1, label_smoothing=0.25, reduction='sum')",
        "torch.randn(n, m), torch.randint(0, 4, (n,))",
    ),
    "cross_entropy_ignored": reference(
        "F.cross_entropy(x, y, ignore_index=2)", "torch.randn(n, m), torch.randint(0, 4, (n,))"
    ),
    "smooth_l1": reference("F.smooth_l1_loss(x, y, beta=0.7)", PAIR),
    "huber": reference("F.huber_loss(x, y, reduction='sum', delta=0.8)", PAIR),
    "kl_div": reference("F.kl_div(x, torch.softmax(y, -1), reduction='batchmean')", PAIR),
    "bce": reference("F.binary_cross_entropy(torch.sigmoid(x), torch.sigmoid(y))", PAIR),
    "bce_with_logits": reference("F.binary_cross_entropy_with_logits(x, torch.sigmoid(y))", PAIR),
    "triplet": reference("F.triplet_margin_loss(x, y, z)", f"{PAIR}, torch.randn(n, m)"),
    "cosine": reference("F.cosine_similarity(x, y, dim=1)", PAIR),
    "nll": reference("F.nll_loss(x, y)", "torch.randn(n, m), torch.randint(0, m, (n,))"),
    "frobenius": reference("x / torch.norm(x)"),
    "l1_norm": reference("x / torch.norm(x, p=1, dim=1, keepdim=True)"),
    "squared_error": reference("((x - y) ** 2).mean()", PAIR),
    "far_from_zero": reference("torch.softmax(x - 200.0, -1)"),
    "columns_of_three": reference("x.transpose(1, 2).softmax(-1)", "torch.randn(n, m, 5)"),
}

BROADCAST = {
    "min_other": reference("torch.min(torch.max(x, y), torch.tensor(0.3))", PAIR),
    "bias": reference("x + y", "torch.randn(n, m), torch.randn(m)"),
    "column": reference("x * y", "torch.randn(n, m), torch.randn(n, 1)"),
    "scalar_tensor": reference("x * y", "torch.randn(n, m), torch.randn(())"),
    "channels": reference("x * y", "torch.randn(n, 6, m), torch.randn(6, 1)"),
    "ends": reference("x + y", "torch.randn(n, k, m), torch.randn(n, 1, m)"),
    "transposed": reference("x.t() * 2 + y", "torch.randn(n, m), torch.randn(m, n)"),
    "sliced": reference("torch.relu(x[:, ::2]) + 1"),
    # Results that are other views of what the kernel goes on with: elementwise, and over rows.
    "view_that_is_returned": reference("(t := (x + 1).reshape(-1)), torch.relu(t) * 2"),
    "view_of_rows_that_is_returned": reference("(t := (x * 2).reshape(1, x.shape[0], -1)), F.softmax(t, -1)"),
    "view_of_long_rows": reference("(t := (x * 2).reshape(1, x.shape[0], -1)), t - t.mean(-1, keepdim=True)").replace(
        "m = 96", "m = 100000"
    ),
    # Numbers that only the symbolic export knows: to a multiple, half of what may be odd, what two sizes leave.
    "padded_to_a_multiple": reference("torch.relu(F.pad(x, (0, -x.shape[1] % 8))) + 1"),
    "cut_in_halves": reference("torch.cat((x[:, x.shape[1] // 2 :], -x[:, : x.shape[1] // 2]), 1) * 2"),
    "cut_by_another": reference("torch.relu(y[x.shape[0] - 3 :]) + 1", "torch.randn(n, m), torch.randn(n + m, k)"),
    "scaled_by_size": reference("x / math.sqrt(x.shape[-1])"),
    "reshaped_between": reference("torch.relu(torch.sigmoid(x).reshape(-1) * 2)"),
    "constant_tensors": reference("torch.minimum(x, torch.tensor(0.3)) + 1"),
    "triangles": reference("torch.tril(x) + torch.triu(y, 2)", PAIR),
    "triangles_of_a_batch": reference("torch.relu(torch.tril(x, -1)) - 1", "torch.randn(3, n, m)"),
    "used_twice": reference("(torch.relu(x) + 1, torch.relu(x) * torch.sigmoid(x))"),
}

PRODUCTS = {
    # One tile with so long an inner dimension at the full shapes that it is split from the start.
    "split_from_the_start": reference("torch.relu(x @ y)", "torch.randn(n, m), torch.randn(m, 5)").replace(
        "m = 96", "m = 600000"
    ),
    # Many rows: the right operand is transposed. A long inner one besides: large tiles, and descriptors where they fit.
    "turned_batches": reference("torch.bmm(x, y)", "torch.randn(2, 9 * m, k), torch.randn(2, k, m)"),
    "turned_in_large_tiles": reference("torch.relu(x @ y)", "torch.randn(9 * m, 8 * k), torch.randn(8 * k, m)"),
    "gated": reference(
        "F.silu(self.f(x)) * self.g(x)",
        "torch.randn(n, k)",
        "self.f = nn.Linear(k, m, bias=False)\nself.g = nn.Linear(k, m)",
    ),
    "three_of_one": reference(
        "(self.f(x), self.g(x), self.h(x) * 2.0)",
        "torch.randn(3, n, k)",
        "self.f = nn.Linear(k, m)\nself.g = nn.Linear(k, m)\nself.h = nn.Linear(k, m)",
    ),
    "two_of_one_batch": reference(
        "torch.bmm(x, y) * torch.sigmoid(torch.bmm(x, z))",
        "torch.randn(3, n, k), torch.randn(3, k, m), torch.randn(3, k, m)",
    ),
    "two_of_one_prologue": reference(
        "torch.relu(x).matmul(y) - torch.relu(x).matmul(z)", "torch.randn(n, k), torch.randn(k, m), torch.randn(k, m)"
    ),
    "linear": reference("self.f(x)", "torch.randn(n, k)", "self.f = nn.Linear(k, m)"),
    "linear_no_bias": reference("self.f(x)", "torch.randn(n, k)", "self.f = nn.Linear(k, m, bias=False)"),
    "linear_3d": reference("F.relu(self.f(x))", "torch.randn(3, n, k)", "self.f = nn.Linear(k, m)"),
    "mm": reference("torch.mm(x, y)", "torch.randn(n, k), torch.randn(k, m)"),
    "transposed_left": reference("x.t() @ y", "torch.randn(k, n), torch.randn(k, m)"),
    "transposed_right": reference("x @ y.t()", "torch.randn(n, k), torch.randn(m, k)"),
    # More of them at the full shapes than a grid's second axis takes.
    "very_many_products": reference("torch.bmm(x, y)", "torch.randn(n, 3, k), torch.randn(n, k, 5)").replace(
        "n = 64", "n = 70000"
    ),
    "very_many_heads": reference(
        "F.scaled_dot_product_attention(x, y, y)", "torch.randn(n, 2, 3, 8), torch.randn(n, 2, 5, 8)"
    ).replace("n = 64", "n = 40000"),
    "bmm": reference("torch.bmm(x, y)", "torch.randn(3, n, k), torch.randn(3, k, m)"),
    "two_batch_dims": reference(
        "torch.matmul(x, y.transpose(-1, -2)) * 0.5", "torch.randn(2, 3, n, k), torch.randn(2, 3, m, k)"
    ),
    "matrices_of_each_head": reference(
        "torch.matmul(x, y.transpose(-1, -2)) * 0.5", "torch.randn(2, 3, n, k), torch.randn(3, m, k)"
    ),
    "strided_batches": reference(
        "x.transpose(1, 2) @ y.transpose(1, 2)", "torch.randn(2, n, 3, k), torch.randn(2, k, 3, m)"
    ),
    "shared_right": reference("torch.matmul(x, y)", "torch.randn(3, n, k), torch.randn(k, m)"),
    "einsum": reference("torch.einsum('bijl,lk->bijk', x, y)", "torch.randn(2, 3, n, k), torch.randn(k, m)"),
    "addmm": reference("torch.addmm(x, y, z)", "torch.randn(m), torch.randn(n, k), torch.randn(k, m)"),
    "residual": reference("x + F.gelu(self.f(y))", "torch.randn(n, m), torch.randn(n, k)", "self.f = nn.Linear(k, m)"),
    "work_before": reference("F.relu(x) @ y", "torch.randn(n, k), torch.randn(k, m)"),
    "work_before_with_bias": reference("(x + z) @ y", "torch.randn(n, k), torch.randn(k, m), torch.randn(k)"),
    # What is broadcast stands first: a norm's weight, one number, one for each row.
    "weight_before": reference("F.linear(y * x, z)", "torch.randn(n, k), torch.randn(k), torch.randn(m, k)"),
    "number_before": reference("F.linear(y * x, z)", "torch.randn(n, k), torch.randn(()), torch.randn(m, k)"),
    "column_before": reference("F.linear(y - x, z)", "torch.randn(n, k), torch.randn(n, 1), torch.randn(m, k)"),
    "upper_triangle": reference("torch.triu(x @ y)", "torch.randn(n, k), torch.randn(k, m)"),
    # Some tiles are cut off as a whole, some by a single element.
    "lower_triangle_of_tiles": reference("torch.tril(x @ y, -1)", "torch.randn(9 * n, k), torch.randn(k, 9 * m)"),
    "upper_triangle_of_tiles": reference("torch.triu(x @ y, 1)", "torch.randn(9 * n, k), torch.randn(k, 9 * m)"),
    "row_maximum": reference("torch.max(self.f(x), 1)[0]", "torch.randn(n, k)", "self.f = nn.Linear(k, m)"),
    "row_sum": reference("F.gelu(self.f(x)).sum(1, keepdim=True)", "torch.randn(n, k)", "self.f = nn.Linear(k, m)"),
    "row_mean_scaled": reference("(x @ y).mean(-1) * 2", "torch.randn(n, k), torch.randn(k, m)"),
    "batched_row_maximum": reference("(x @ y).amax(-1)", "torch.randn(3, n, k), torch.randn(3, k, m)"),
}
