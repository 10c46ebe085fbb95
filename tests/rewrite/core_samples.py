"""Sample calls of ATen's core ops: expressions over a few inputs, at least one for each op that gives tensors.

Inputs: f, g floats with zeros of both signs, infinities, NaN and large numbers among them; x, y, z plain floats; p positive,
u in (-1, 1), v a vector, h half precision; i int64 and j int32 with extremes among them; k int64 without zero, s from 0 to
20, w uint8, b, c bool; q a batch of images, w4 and w5 weights of convolutions, r volumes.
"""

# ruff: noqa: E501 (a call a line)

from __future__ import annotations

TEMPLATE = """
import torch
import torch.nn as nn

A = torch.ops.aten
n = 24
m = 40
VARIANTS = {{"small": {{"n": 4, "m": 6}}, "odd1": {{"n": 9, "m": 17}}}}
INF = float("inf")


def nasty():
    found = 3 * torch.randn(n * m)
    special = torch.tensor([0.0, -0.0, INF, -INF, INF - INF, 1e30, -1e30, 1e-30, 1.0, -1.0, 0.5, -0.5, 2.5, 3.5, -2.5])
    found[: len(special)] = special
    return found[torch.randperm(n * m)].reshape(n, m)


def whole(dtype, low, high):
    found = torch.randint(-9, 10, (n * m,), dtype=dtype)
    found[0], found[1], found[2] = low, high, 0
    return found[torch.randperm(n * m)].reshape(n, m)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(6))
        self.register_buffer("var", torch.ones(6))

    def forward(self, f, g, x, y, z, p, u, v, h, i, j, k, s, w, b, c, q, w4, r, w5):
        return ({results})


def get_inputs():
    floats = [nasty(), nasty(), torch.randn(n, m), torch.randn(n, m), torch.randn(n, m)]
    more = [torch.rand(n, m) + 0.1, 2 * torch.rand(n, m) - 1, torch.randn(m), torch.randn(n, m).half()]
    ints = [whole(torch.int64, -(2**63), 2**63 - 1), whole(torch.int32, -(2**31), 2**31 - 1)]
    ints += [torch.randint(1, 9, (n, m)) * (1 - 2 * torch.randint(0, 2, (n, m))), torch.randint(0, 21, (n, m))]
    ints += [torch.randint(0, 256, (n, m), dtype=torch.uint8)]
    masks = [torch.rand(n, m) > 0.5, torch.rand(n, m) > 0.5]
    pixels = [torch.randn(2, 6, n, m), torch.randn(4, 6, 3, 3), torch.randn(1, 2, 5, n, m), torch.randn(3, 2, 3, 3, 3)]
    return [*floats, *more, *ints, *masks, *pixels]


def get_init_inputs():
    return []
"""


def _unary(names: str, *arguments: str) -> dict[str, tuple[str, ...]]:
    return {f"{name}.default": tuple(f"A.{name}.default({each})" for each in arguments) for name in names.split()}


def _pairs(names: str, kind: str, pairs: str) -> dict[str, tuple[str, ...]]:
    """Calls with two arguments: "x,y i,3" are (x, y) and (i, 3)."""
    return {f"{name}.{kind}": tuple(f"A.{name}.{kind}({pair})" for pair in pairs.split()) for name in names.split()}


SAMPLES: dict[str, tuple[str, ...]] = {
    # elementwise, one operand
    **_unary("asinh atan cos cosh erf exp expm1 sigmoid sin sinh tan tanh", "f", "k"),
    **_unary("acos asin atanh", "f", "u", "b"),
    **_unary("acosh log log10 log1p log2 rsqrt sqrt reciprocal", "f", "p", "k"),
    **_unary("ceil floor round trunc", "f", "100000 * x", "j"),
    **_unary("abs neg", "f", "i", "j", "w"),
    **_unary("sign", "f", "i", "w", "b"),
    **_unary("relu", "f", "i"),
    **_unary("isinf isnan", "f", "i"),
    **_unary("elu gelu leaky_relu", "x"),
    **_unary("hardtanh", "f"),
    **_unary("logical_not", "f", "i", "b"),
    **_unary("bitwise_not", "i", "w", "b"),
    # elementwise, two operands
    **_pairs("add", "Tensor", "f,g i,j j,w b,c i,2.5 x,v j,h w,300 i,j,alpha=3 x,j,alpha=2"),
    **_pairs("sub", "Tensor", "f,g i,j w,j i,2.5 j,h w,3 i,j,alpha=3"),
    **_pairs("add sub", "Scalar", "f,2.5 i,3 j,2.5 i,3,2 w,3"),
    **_pairs("mul", "Tensor", "f,g i,j j,w b,c i,2.5 b,3 b,i b,x"),
    **_pairs("mul", "Scalar", "f,2.5 i,3 j,2.5 b,3"),
    **_pairs("div", "Tensor", "f,g i,k i,3 b,k"),
    **_pairs("div", "Scalar", "f,2.5 i,3 w,2.5"),
    "div.Tensor_mode": tuple(
        f'A.div.Tensor_mode({pair}, rounding_mode="{mode}")' for mode in ("floor", "trunc") for pair in
        ("1e-28 * f, g", "x, y", "i, k", "j, k", "x, k", "100 * x, u", "w, s.to(torch.uint8) + 1")
    ),
    "div.Scalar_mode": tuple(
        f'A.div.Scalar_mode({pair}, rounding_mode="{mode}")' for mode in ("floor", "trunc") for pair in
        ("1e-28 * f, 0.3", "i, -3", "j, 2.5", "x, 2")
    ),
    **_pairs("fmod remainder", "Tensor", "1e-28*f,g i,k j,k x,k 100*x,u i,k.int()"),
    **_pairs("fmod remainder", "Scalar", "1e-28*f,0.7 1e-29*f,-3 i,3 i,-3 j,2.5 w,7"),
    **_pairs("maximum minimum", "default", "f,g i,j b,c x,j w,j"),
    **_pairs("eq ge gt le lt ne", "Tensor", "f,g i,j b,c j,x w,j b,k h,x"),
    **_pairs("eq ge gt le lt ne", "Scalar", "f,0.5 i,3 j,2.5 b,True b,2 w,7"),
    **_pairs("logical_and logical_or logical_xor", "default", "b,c f,g i,b w,x"),
    **_pairs("bitwise_and bitwise_or bitwise_xor", "Tensor", "b,c i,j w,s b,i"),
    **_pairs("bitwise_and bitwise_or bitwise_xor", "Scalar", "i,6 j,-3 w,6 b,True b,6"),
    **_pairs("atan2", "default", "f,g x,y i,k"),
    "atan2.out": ("A.atan2.out(f, g, out=torch.empty_like(f))",),
    "pow.Tensor_Scalar": (
        *(f"A.pow.Tensor_Scalar(f, {exponent})" for exponent in (0, 1, 2, 3, 4, -1, -2, 0.5, -0.5, 2.5, -1.7, 7, 0.0)),
        "A.pow.Tensor_Scalar(i, 3)", "A.pow.Tensor_Scalar(j, 5)", "A.pow.Tensor_Scalar(k, 0.5)",
        "A.pow.Tensor_Scalar(p, 3.3)", "A.pow.Tensor_Scalar(w, 2)",
    ),
    **_pairs("pow", "Tensor_Tensor", "p,x f,g x,k i,s j,s p,h"),
    **_pairs("pow", "Scalar", "2,f 2.5,x -2,k 0,f 2,s 3,s"),
    # choices
    "where.self": tuple(
        f"A.where.self({each})" for each in ("b, f, g", "b, i, j", "b, c, b", "b, x, j", "b, x, v", "b, w, j")
    ),
    "clamp.default": tuple(
        f"A.clamp.default({each})" for each in ("f, -0.5, 0.5", "f, None, 1", "i, -2, 3", "j, 0.5, 2", "w, 10, 100")
    ),
    "clamp.Tensor": tuple(
        f"A.clamp.Tensor({each})" for each in ("f, g", "f, None, g", "f, x, y", "i, k, s", "j, None, s", "x, k, v")
    ),
    # copies and other dtypes
    "_to_copy.default": tuple(
        f"A._to_copy.default({x}, dtype=torch.{dtype})"
        for x, dtypes in (("x * 9", "int64 int32 int8 bool float16"), ("p * 20", "uint8"), ("i", "int32 float32 bool"),
                          ("b", "int64 float32 uint8"), ("f", "bool"), ("j", "int64 int8 bfloat16"), ("w", "int8"))
        for dtype in dtypes.split()
    ),
    "clone.default": ("A.clone.default(f)", "A.clone.default(i)", "A.clone.default(b)"),
    "copy.default": ("A.copy.default(x, i)", "A.copy.default(i, b)", "A.copy.default(x, v)"),
    "alias.default": ("A.alias.default(x) + 1",),
    # tensors made of numbers
    "full.default": ("x + A.full.default([x.shape[0], x.shape[1]], 2.5)", "i * A.full.default([x.shape[1]], 3)"),
    "full_like.default": ("A.full_like.default(x, 2.5)", "A.full_like.default(i, 3)", "A.full_like.default(b, True)"),
    "fill.Scalar": ("A.fill.Scalar(x, 2.5)", "A.fill.Scalar(j, 3)"),
    "scalar_tensor.default": ("x * A.scalar_tensor.default(2.5)", "A.where.self(b, x, A.scalar_tensor.default(-INF))"),
    "arange.start_step": (
        "x + A.arange.start_step(0, x.shape[1], 1)", "i + A.arange.start_step(3, 3 + 2 * x.shape[1], 2)",
        "x * A.arange.start_step(0, x.shape[1], 1, dtype=torch.float32)",
    ),
    "empty.memory_format": ("A.where.self(x == x, x, A.empty.memory_format([x.shape[0], x.shape[1]]))",),
    "empty_strided.default": ("A.where.self(x == x, x, A.empty_strided.default([x.shape[0], x.shape[1]], [x.shape[1], 1]))",),
    # reductions
    "sum.dim_IntList": tuple(
        f"A.sum.dim_IntList({each})" for each in (
            "x, [1]", "x, [0], True", "i, [1]", "j, [0]", "b, [1]", "w, [1]", "x, None", "k, [0, 1]", "h, [1]",
            "k, [1], False, dtype=torch.float32", "x, [0], False, dtype=torch.float16", "b, None",
        )
    ),
    "mean.default": ("A.mean.default(x)", "A.mean.default(k, dtype=torch.float32)"),
    "mean.dim": ("A.mean.dim(x, [1])", "A.mean.dim(h, [0], True)", "A.mean.dim(i, [0], dtype=torch.float32)"),
    "prod.default": ("A.prod.default(1 + 0.01 * x)", "A.prod.default(k)", "A.prod.default(b)"),
    "prod.dim_int": (
        "A.prod.dim_int(x, 1)", "A.prod.dim_int(i, 0)", "A.prod.dim_int(j, 1, True)", "A.prod.dim_int(b, 1)",
        "A.prod.dim_int(k, 1, dtype=torch.float32)",
    ),
    "amax.default": ("A.amax.default(x, [1])", "A.amax.default(f, [1])", "A.amax.default(i, [0])", "A.amax.default(b, [1], True)", "A.amax.default(w)"),
    "amin.default": ("A.amin.default(x, [1])", "A.amin.default(f, [0])", "A.amin.default(j, [0])", "A.amin.default(b, [1])", "A.amin.default(i)"),
    "argmax.default": ("A.argmax.default(x, 1)", "A.argmax.default(f, 1)", "A.argmax.default(i, 0)", "A.argmax.default(w, 1, True)", "A.argmax.default(j)"),
    "argmin.default": ("A.argmin.default(x, 1)", "A.argmin.default(f, 0)", "A.argmin.default(i, 1)", "A.argmin.default(k, 0)"),
    "max.dim": ("A.max.dim(x, 1)", "A.max.dim(f, 1)", "A.max.dim(i, 0)", "A.max.dim(w, 1, True)"),
    "min.dim": ("A.min.dim(x, 1)", "A.min.dim(f, 1)", "A.min.dim(j, 1)"),
    "any.default": ("A.any.default(b)", "A.any.default(f)", "A.any.default(i == 77)"),
    "any.dim": ("A.any.dim(b, 1)", "A.any.dim(x > 1.5, 0, True)", "A.any.dim(i, 1)"),
    "any.dims": ("A.any.dims(b, [0, 1])", "A.any.dims(x > 2.5, [1], True)"),
    "var.correction": ("A.var.correction(x, [1], correction=1)", "A.var.correction(x, None, correction=0)"),
    "var.dim": ("A.var.dim(x, [1])", "A.var.dim(x, [0], False, True)"),
    "cumsum.default": ("A.cumsum.default(x, 1)", "A.cumsum.default(k, 0)", "A.cumsum.default(b, 1)",
                       "A.cumsum.default(i, 1, dtype=torch.float32)", "A.cumsum.default(j, 1)"),
    "_softmax.default": ("A._softmax.default(x, 1, False)", "A._softmax.default(x, 0, False)"),
    "_log_softmax.default": ("A._log_softmax.default(x, 1, False)", "A._log_softmax.default(x, 0, False)"),
    # normalization
    "native_layer_norm.default": ("A.native_layer_norm.default(x, [x.shape[1]], v, v, 1e-5)",
                                  "A.native_layer_norm.default(x, [x.shape[1]], None, None, 1e-5)[0]"),
    "native_group_norm.default": (
        "A.native_group_norm.default(q, None, None, 2, 6, x.shape[0] * x.shape[1], 3, 1e-5)",
        "A.native_group_norm.default(q, self.var, self.mean, 2, 6, x.shape[0] * x.shape[1], 2, 1e-5)[0]",
    ),
    "native_layer_norm_backward.default": (
        "A.native_layer_norm_backward.default(y, x, [x.shape[1]], x.mean(1, True), x.mean(1, True), v, v, [True, False, False])[0]",
        "A.native_layer_norm_backward.default(y, x, [x.shape[1]], x.mean(1, True), x.mean(1, True), v, v, [False, True, False])[1]",
    ),
    "native_group_norm_backward.default": (
        "A.native_group_norm_backward.default(q * 2, q, q.reshape(2, 3, -1).mean(2), q.reshape(2, 3, -1).mean(2), "
        "self.var, 2, 6, x.shape[0] * x.shape[1], 3, [True, False, False])[0]",
    ),
    "_native_batch_norm_legit.default": (
        "A._native_batch_norm_legit.default(q, None, None, self.mean.clone(), self.var.clone(), True, 0.1, 1e-5)[0]",
    ),
    "_native_batch_norm_legit.no_stats": ("A._native_batch_norm_legit.no_stats(q, None, None, True, 0.1, 1e-5)[0]",
                                          "A._native_batch_norm_legit.no_stats(q, self.var, self.mean, True, 0.1, 1e-5)"),
    "_native_batch_norm_legit_no_training.default": (
        "A._native_batch_norm_legit_no_training.default(q, self.var, self.mean, self.mean, self.var, 0.1, 1e-5)[0]",
    ),
    "native_dropout.default": ("tuple(each * 2 for each in A.native_dropout.default(x, 0.5, False))",),
    # products
    "addmm.default": ("A.addmm.default(v, x, y.t() @ x)", "A.addmm.default(v, x, w4[0, :1, 0, :1] * x.t() @ y, beta=0.5, alpha=2)"),
    "mm.default": ("A.mm.default(x, y.t())",),
    "bmm.default": ("A.bmm.default(q[0], q[1].transpose(1, 2))",),
    # pooling and convolutions
    "avg_pool1d.default": ("A.avg_pool1d.default(x, [2])",),
    "adaptive_avg_pool1d.default": ("A.adaptive_avg_pool1d.default(x, [3])",),
    "avg_pool2d.default": ("A.avg_pool2d.default(q, [2, 2], [1, 2], [1, 0], True, False)",),
    "avg_pool3d.default": ("A.avg_pool3d.default(r, [2, 2, 2])",),
    "_adaptive_avg_pool2d.default": ("A._adaptive_avg_pool2d.default(q, [2, 3])", "A._adaptive_avg_pool2d.default(q, [1, 1])"),
    "_adaptive_avg_pool3d.default": ("A._adaptive_avg_pool3d.default(r, [2, 2, 3])",),
    "_adaptive_avg_pool2d_backward.default": ("A._adaptive_avg_pool2d_backward.default(q[:, :, :2, :3], q)",),
    "avg_pool2d_backward.default": (
        "A.avg_pool2d_backward.default(A.avg_pool2d.default(q, [2, 2]), q, [2, 2], [2, 2], [0, 0], False, True, None)",
    ),
    "max_pool2d_with_indices.default": ("A.max_pool2d_with_indices.default(q, [2, 2])[0]",
                                        "A.max_pool2d_with_indices.default(q, [3, 2], [2, 1], [1, 1])"),
    "max_pool2d_with_indices_backward.default": (
        "A.max_pool2d_with_indices_backward.default(q[:, :, ::2, ::2], q, [1, 1], [2, 2], [0, 0], [1, 1], True, "
        "A.max_pool2d_with_indices.default(q, [1, 1], [2, 2], [0, 0], [1, 1], True)[1])",
    ),
    "max_pool3d_with_indices.default": ("A.max_pool3d_with_indices.default(r, [2, 2, 2])[0]",),
    "convolution.default": (
        "A.convolution.default(q, w4, None, [1, 1], [1, 1], [1, 1], False, [0, 0], 1)",
        "A.convolution.default(q, w4, w4[:, 0, 0, 0], [2, 1], [0, 1], [1, 1], False, [0, 0], 1)",
        "A.convolution.default(q, w4[:, :3].repeat(1, 2, 1, 1)[:, :4].reshape(4, 4, 3, 3)[:, :2].repeat(3, 1, 1, 1), None, [1, 1], [0, 0], [1, 1], False, [0, 0], 3)",
        "A.convolution.default(q, w4.transpose(0, 1).contiguous(), None, [2, 2], [1, 1], [1, 1], True, [1, 1], 1)",
        "A.convolution.default(r, w5, None, [1, 1, 1], [1, 1, 1], [1, 1, 1], False, [0, 0, 0], 1)",
    ),
    "convolution_backward.default": (
        "A.convolution_backward.default(q[:, :4], q, w4, None, [1, 1], [1, 1], [1, 1], False, [0, 0], 1, [True, False, False])[0]",
    ),
    # distances, transforms
    "_cdist_forward.default": ("A._cdist_forward.default(x, y, 2.0, None)", "A._cdist_forward.default(x, y, 1.0, None)", "A._cdist_forward.default(q, q + 1, 3.0, None)"),
    "_pdist_forward.default": ("A._pdist_forward.default(x, 2.0)",),
    "_fft_r2c.default": (
        "torch.view_as_real(A._fft_r2c.default(x, [1], 0, True))", "torch.view_as_real(A._fft_r2c.default(x, [1], 1, False))",
        "torch.view_as_real(A._fft_r2c.default(y[:, :5] + z[:, :5], [1], 2, True))",
    ),
    "_fft_c2r.default": (
        "A._fft_c2r.default(torch.complex(0.1 * x, 0.1 * y), [1], 0, 2 * x.shape[1] - 2)",
        "A._fft_c2r.default(torch.complex(y, z), [1], 2, 2 * x.shape[1] - 1) * 2",
    ),
    # views and places
    "view.default": ("A.view.default(x, [-1]) + 1",),
    "expand.default": ("A.expand.default(v, [x.shape[0], x.shape[1]]) * 2",),
    "permute.default": ("A.permute.default(x, [1, 0]) * 2",),
    "squeeze.dim": ("A.squeeze.dim(q[:1], 0) * 2",),
    "squeeze.dims": ("A.squeeze.dims(q[:1, :1], [0, 1]) * 2",),
    "unsqueeze.default": ("A.unsqueeze.default(x, 1) * 2",),
    "select.int": ("A.select.int(q, 1, 2) * 2",),
    "slice.Tensor": ("A.slice.Tensor(x, 1, 1, 5, 2) * 2",),
    "split_with_sizes.default": ("A.split_with_sizes.default(q, [2, 4], 1)[1] * 2",),
    "as_strided.default": ("A.as_strided.default(x, [3, 2], [2, 1]) * 2", "A.as_strided.default(x * 2, [3, 2], [2, 1], 1) * 2"),
    "diagonal.default": ("A.diagonal.default(q, 1, 2, 3) * 2",),
    "cat.default": ("A.cat.default([x, y], 1)", "A.cat.default([x * 2, y], 0)"),
    "flip.default": ("A.flip.default(x, [1])",),
    "repeat.default": ("A.repeat.default(x, [2, 3])",),
    "constant_pad_nd.default": ("A.constant_pad_nd.default(x, [1, 2, 0, 1], 0.5)",),
    "reflection_pad1d.default": ("A.reflection_pad1d.default(x, [2, 1])",),
    "reflection_pad2d.default": ("A.reflection_pad2d.default(q, [2, 1, 1, 1])",),
    "reflection_pad3d.default": ("A.reflection_pad3d.default(r, [2, 1, 1, 1, 1, 1])",),
    "replication_pad2d.default": ("A.replication_pad2d.default(q, [2, 1, 1, 1])",),
    "replication_pad3d.default": ("A.replication_pad3d.default(r, [2, 1, 1, 1, 1, 1])",),
    "select_scatter.default": ("A.select_scatter.default(x, v, 0, 1)",),
    "slice_scatter.default": ("A.slice_scatter.default(x, y[:, 1:3], 1, 1, 3)",),
    "embedding.default": ("A.embedding.default(x, s[0] % x.shape[0])",),
    "embedding_dense_backward.default": ("A.embedding_dense_backward.default(x, s[:, 0], 21, -1, False)",),
    "_embedding_bag.default": (
        "A._embedding_bag.default(x, s[0] % x.shape[0], torch.stack((s[0, 0] * 0, s[0, 0] * 0, s[0, 1] % 4, s[0, 1] % 4)))[0]",
        "A._embedding_bag.default(f, s[0] % x.shape[0], torch.stack((s[0, 0] * 0, s[0, 1] % 4, s[0, 1] % 4)), False, 2)[0]",
        "A._embedding_bag.default(x, s[0] % x.shape[0], torch.stack((s[0, 0] * 0, s[0, 1] % 4, s[0, 0] * 0 + x.shape[1])), False, 1, False, None, True, 2)[0]",
        "A._embedding_bag.default(x, s[0] % x.shape[0], torch.stack((s[0, 0] * 0, s[0, 1] % 4, s[0, 1] % 4)), False, 0, False, y[0])[0]",
    ),
    "gather.default": ("A.gather.default(x, 1, s % x.shape[1])",),
    "index.Tensor": ("A.index.Tensor(x, [s[0] % x.shape[0]])",),
    "index_select.default": ("A.index_select.default(x, 0, s[0] % x.shape[0])",),
    "index_put.default": ("A.index_put.default(x, [A.arange.start_step(0, 2, 1)], y[:2])", "A.index_put.default(x, [s[0] % x.shape[0]], y[:1], True)",
                          "A.index_put.default(f, [b], A.scalar_tensor.default(2.5))", "A.index_put.default(i, [None, s[0, :1] % x.shape[1]], k[:, :1])"),
    "masked_scatter.default": ("A.masked_scatter.default(f, b, g)", "A.masked_scatter.default(i, b[:, :1], k)", "A.masked_scatter.default(h, b, h) * 2"),
    "scatter.value": ("A.scatter.value(x, 1, s[:, :1] % x.shape[1], 2.5)", "A.scatter.value(i, 0, s[:1] % x.shape[0], 7)", "A.scatter.value(b, 0, s[:1] % x.shape[0], True)"),
    "scatter.src": ("A.scatter.src(f, 1, s[:, :1] % x.shape[1], g)", "A.scatter.src(w, 0, s[:1] % x.shape[0], w * 2)"),
    "scatter_add.default": ("A.scatter_add.default(x, 1, s % x.shape[1], y)", "A.scatter_add.default(i, 0, s % x.shape[0], k)", "A.scatter_add.default(h, 1, s % x.shape[1], h)"),
    "scatter_reduce.two": ('A.scatter_reduce.two(f, 1, s % x.shape[1], g, "amax") + 0.0', 'A.scatter_reduce.two(i, 0, s % x.shape[0], k, "amin")',
                           'A.scatter_reduce.two(x, 1, s % x.shape[1], y, "sum")'),
    "col2im.default": ("A.col2im.default(q[:, :4].reshape(2, 4, -1)[:, :, :9], [4, 4], [2, 2], [1, 1], [0, 0], [1, 1])",),
    "grid_sampler_2d.default": ("A.grid_sampler_2d.default(q, torch.stack((u, u), -1).expand(2, -1, -1, -1), 0, 0, False)", "A.grid_sampler_2d.default(q, torch.stack((x, y), -1).expand(2, -1, -1, -1), 1, 2, True)",),
    "upsample_bilinear2d.vec": ("A.upsample_bilinear2d.vec(q, None, False, [2.0, 2.0])",),
    "upsample_nearest2d.vec": ("A.upsample_nearest2d.vec(q, None, [2.0, 2.0])",),
    # orders
    "sort.default": ("A.sort.default(x)", "A.sort.default(x, 0, True)", "A.sort.default(f + 0.0)[0] + 0.0", "A.sort.default(i)[0]", "A.sort.default(j, 0)[0]"),
    "topk.default": ("A.topk.default(x, 3)", "A.topk.default(x, 2, 0, False)", "A.topk.default(i, 3)[0]", "A.topk.default(f, 4)[0] + 0.0"),
}  # fmt: skip

NO_SAMPLE = {
    "_local_scalar_dense.default": "gives a number that depends on data, not a tensor",
    "resize_.default": "changes a tensor's memory",
    "sym_is_contiguous.default": "gives a number, not a tensor",
    "sym_numel.default": "gives a number, not a tensor",
    "sym_size.int": "gives a number, not a tensor",
    "sym_storage_offset.default": "gives a number, not a tensor",
    "sym_stride.int": "gives a number, not a tensor",
    "nonzero.default": "the result's size depends on data",
    "rand.default": "random numbers, which no two runs share",
    "randn.default": "random numbers, which no two runs share",
    "randperm.default": "random numbers, which no two runs share",
}
COMPLEX = frozenset({"_fft_r2c.default", "_fft_c2r.default"})
"""Samples with complex numbers, which rules write as pairs before there are kernels."""
APART = COMPLEX | frozenset({"atan2.out", "_native_batch_norm_legit.default", "native_dropout.default"})
"""Samples that are exported by themselves: an export with one that changes tensors is made functional as a whole, and one
that gives its operand takes its place in the others."""
