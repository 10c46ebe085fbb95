"""The same mistakes in other forms: deeper in an expression, in a wrapper, several at once."""

from tests.agents.broken import TAKEN, Broken

NUMPY = ("import torch\nimport torch.nn", "import numpy as np\nimport torch\nimport torch.nn")
MATH = ("import torch\nimport torch.nn", "import math\n\nimport torch\nimport torch.nn")
ROWS = (
    Broken("libdevice_rsqrt", "rmsnorm", (("tl.rsqrt(", "tl.libdevice.rsqrt("),)),
    Broken("libdevice_pow", "meansquare", (("x * x", "tl.libdevice.pow(x, 2.0)"),)),
    Broken(
        "libdevice_log_and_exp", "logsum", (("tl.log(total)", "tl.libdevice.log(tl.libdevice.exp(tl.log(total)))"),)
    ),
    Broken("special_function", "silu", (("xf / (1.0 + tl.exp(-xf))", "xf * tl.special.sigmoid(xf)"),)),
    Broken("nn_function", "clamp", (("tl.where(x > 0, x, 0.0)", "tl.nn.relu(x)"),)),
    Broken(
        "cast_of_load",
        "silu",
        (("other=0.0)\n    xf = x.to(tl.float32)", "other=0.0).astype(tl.float32)\n    xf = x"),),
    ),
    Broken("astype_of_torch", "silu", (("x.to(tl.float32)", "x.astype(torch.float32)"),)),
    Broken("astype_of_expression", "silu", (("y.to(tl.float16)", "(y * 1.0).astype(tl.float16)"),)),
    Broken("float_of_sum", "rmsnorm", (("tl.sum(x * x, axis=0) / N", "tl.sum((x * x).float(), axis=0) / N"),)),
    Broken("int_of_program", "rowmax", (("row * n_cols + offs", "int(row) * n_cols + offs"),)),
    Broken("language_int", "rowmax", (("tl.program_id(0)", "tl.program_id(0).to(tl.int)"),)),
    Broken("bare_types_twice", "silu", (("x.to(tl.float32)", "x.to(float32)"), ("y.to(tl.float16)", "y.to(float16)"))),
    Broken("type_of_torch_in_zeros", "matmul", (("dtype=tl.float32)", "dtype=torch.float32)"),)),
    Broken(
        "list_shape_and_float", "meansquare", (("tl.zeros((BLOCK,), dtype=tl.float32)", "tl.zeros([BLOCK], tl.float)"),)
    ),
    Broken(
        "numpy_float_in_zeros",
        "meansquare",
        (NUMPY, ("tl.zeros((BLOCK,), dtype=tl.float32)", "tl.zeros((BLOCK,), dtype=np.float32)")),
    ),
    Broken("numpy_power", "meansquare", (NUMPY, ("x * x", "np.power(x, 2)"))),
    Broken("numpy_log", "logsum", (NUMPY, ("tl.log(total)", "np.log(total)"))),
    Broken("numpy_where", "clamp", (NUMPY, ("tl.where(x > 0, x, 0.0)", "np.where(x > 0, x, 0.0)"))),
    Broken("numpy_sum", "meansquare", (NUMPY, ("tl.sum(acc, axis=0)", "np.sum(acc)"))),
    Broken("numpy_max_with_axis", "rowmax", (NUMPY, ("tl.max(x, axis=0)", "np.max(x, axis=0)"))),
    Broken("math_sqrt_of_python", "layernorm", (MATH, ("tl.sqrt(var + eps)", "math.sqrt(var + eps)"))),
    Broken("math_exp_of_tile", "silu", (MATH, ("tl.exp(-xf)", "math.exp(-xf)"))),
    Broken("math_pow_of_tile", "meansquare", (MATH, ("x * x", "math.pow(x, 2)"))),
    Broken("math_tanh_of_tile", "tanh", (MATH, ("libdevice.tanh(x)", "math.tanh(x)"))),
    Broken("torch_rsqrt", "rmsnorm", (("tl.rsqrt(", "torch.rsqrt("),)),
    Broken("torch_clamp", "clamp", (("tl.minimum(tl.maximum(x, low), high)", "torch.clamp(x, low, high)"),)),
    Broken(
        "torch_clamp_keywords",
        "clamp",
        (("tl.minimum(tl.maximum(x, low), high)", "torch.clamp(x, min=low, max=high)"),),
    ),
    Broken("torch_matmul", "matmul", (("tl.dot(a, b)", "torch.matmul(a, b)"),)),
    Broken("torch_max_values", "softmax", (("tl.max(x, axis=0)", "torch.max(x, dim=0).values"),)),
    Broken("torch_arange", "rowmax", (("tl.arange(0, BLOCK_SIZE)", "torch.arange(0, BLOCK_SIZE)"),)),
    Broken(
        "functional_sigmoid",
        "silu",
        (
            ("import triton\n", "import torch.nn.functional as F\nimport triton\n"),
            ("xf / (1.0 + tl.exp(-xf))", "xf * F.sigmoid(xf)"),
        ),
    ),
    Broken("functional_not_imported", "clamp", (("tl.where(x > 0, x, 0.0)", "F.relu(x)"),)),
    Broken("method_square", "meansquare", (("x * x", "x.square()"),)),
    Broken("method_relu", "clamp", (("tl.where(x > 0, x, 0.0)", "x.relu()"),)),
    Broken("method_mul", "rmsnorm", (("x * scale * w", "x.mul(scale) * w"),)),
    Broken("method_sum_with_dim", "meansquare", (("tl.sum(acc, axis=0)", "acc.sum(dim=0)"),)),
    Broken("transposed_attribute", "transpose", (("tl.trans(x)", "tl.transpose(x, 0, 1)"),)),
    Broken(
        "builtin_sum_of_product",
        "meansquare",
        (("    total = tl.sum(acc, axis=0)\n", ""), ("total / n_cols", "sum(acc) / n_cols")),
    ),
    Broken("builtin_max_axis", "rowmax", (("tl.max(x, axis=0)", "max(x, axis=0)"),)),
    Broken(
        "builtin_min_of_tile", "clamp", (("tl.minimum(tl.maximum(x, low), high)", "min(tl.maximum(x, low), high)"),)
    ),
    Broken("power_of_difference", "layernorm", (("diff * diff", "(x - mean) ** 2"),)),
    Broken("power_half", "layernorm", (("tl.sqrt(var + eps)", "(var + eps) ** 0.5"),)),
    Broken("power_minus_half", "rmsnorm", (("tl.rsqrt(mean_sq + eps)", "(mean_sq + eps) ** -0.5"),)),
    Broken("reciprocal_of_math", "silu", (("xf / (1.0 + tl.exp(-xf))", "xf * tl.math.reciprocal(1.0 + tl.exp(-xf))"),)),
    Broken(
        "max_of_two_by_keyword_axis", "softmax_online", (("tl.max(running, axis=0)", "tl.maximum(running, axis=0)"),)
    ),
    Broken(
        "math_min_of_two",
        "clamp",
        (("tl.minimum(tl.maximum(x, low), high)", "tl.math.min(tl.math.max(x, low), high)"),),
    ),
    Broken("math_max_by_position", "rowmax", (("tl.max(x, axis=0)", "tl.math.max(x, 0)"),)),
    Broken(
        "three_conditions",
        "transpose",
        (
            (
                "mask=(c[:, None] < C) & (r[None, :] < R)",
                "mask=(c[:, None] < C) and (r[None, :] < R) and (c[:, None] >= 0)",
            ),
        ),
    ),
    Broken(
        "and_in_where",
        "layernorm",
        (("tl.where(mask, x - mean, 0.0)", "tl.where(mask and (cols >= 0), x - mean, 0.0)"),),
    ),
    Broken(
        "chained_columns",
        "softmax",
        (("mask = col_offsets < n_cols", "mask = 0 <= col_offsets < n_cols"),),
        taken_from=TAKEN,
    ),
    Broken(
        "no_parentheses_columns",
        "softmax",
        (("mask = col_offsets < n_cols", "mask = col_offsets >= 0 & col_offsets < n_cols"),),
    ),
    Broken("load_with_type", "silu", (("mask=mask, other=0.0)", "mask=mask, other=0.0, dtype=tl.float16)"),)),
    Broken("store_of_three", "tanh", (("tl.store(out_ptr + i, t, mask=ok)", "tl.store(out_ptr, i, t, mask=ok)"),)),
    Broken(
        "blocks_of_other_prefix",
        "matmul",
        (
            ("BLOCK_M=64", "BLOCK_SIZE_M=64"),
            ("BLOCK_N=64", "BLOCK_SIZE_N=64"),
            ("BLOCK_K=32", "BLOCK_SIZE_K=32"),
            ('META["BLOCK_M"]', "64"),
            ('META["BLOCK_N"]', "64"),
        ),
    ),
    Broken(
        "block_renamed_with_grid", "clamp", (('meta["BLOCK_SIZE"]', 'meta["BLOCK"]'), ("BLOCK_SIZE=1024", "BLOCK=1024"))
    ),
    Broken("block_xblock", "tanh", (("n, BLOCK=512", "n, XBLOCK=512"),)),
    Broken(
        "tuned_block_and_fixed_grid",
        "add_tuned",
        (
            (
                '[lambda meta: (triton.cdiv(n, meta["BLOCK_SIZE"]),)](x, y, out, n)',
                "[(triton.cdiv(n, 1024),)](x, y, out, n, BLOCK_SIZE=1024)",
            ),
        ),
    ),
    Broken(
        "tuned_block_of_name",
        "add_tuned",
        (
            ("        n = x.numel()\n", "        n = x.numel()\n        BLOCK_SIZE = 512\n"),
            (
                '[lambda meta: (triton.cdiv(n, meta["BLOCK_SIZE"]),)](x, y, out, n)',
                "[(triton.cdiv(n, BLOCK_SIZE),)](x, y, out, n, BLOCK_SIZE=BLOCK_SIZE)",
            ),
        ),
    ),
    Broken(
        "tuned_named_grid",
        "add_tuned",
        (
            (
                '        add_kernel[lambda meta: (triton.cdiv(n, meta["BLOCK_SIZE"]),)](x, y, out, n)',
                "        size = 512\n        grid = (triton.cdiv(n, size),)\n        add_kernel[grid](x, y, out, n, size)",
            ),
        ),
    ),
    Broken("grid_floored_of_three", "add_wrapped", (("(triton.cdiv(numel, BLOCK),)", "(numel // BLOCK, 1, 1)"),)),
    Broken(
        "grid_floored_at_least_one", "add_wrapped", (("(triton.cdiv(numel, BLOCK),)", "(max(1, numel // BLOCK),)"),)
    ),
    Broken("grid_floored_number", "tanh", (("triton.cdiv(n, 512)", "n // 512"),)),
    Broken("grid_floored_by_math", "tanh", ((MATH), ("triton.cdiv(n, 512)", "math.floor(n / 512)"))),
    Broken("grid_floored_of_zeros", "tanh", (("triton.cdiv(n, 512)", "n // 512"), ("empty_like", "zeros_like"))),
    Broken("output_is_input_of_wrapper", "tanh", (("out = torch.empty_like(x)", "out = x"),)),
    Broken(
        "output_is_input_by_keyword",
        "tanh",
        (("out = torch.empty_like(x)", "out = x"), ("](x, out, n,", "](in_ptr=x, out_ptr=out, n=n,")),
    ),
    Broken(
        "input_twice_in_wrapper",
        "tanh",
        (("    out = torch.empty_like(x)\n", ""), ("](x, out, n", "](x, x, n"), ("return out", "return x")),
    ),
    Broken("output_is_detached_input", "clamp", (("torch.empty_like(x)", "x.detach()"),)),
    Broken("tuple_of_wrapper", "tanh", (("return out", "return (out,)"),)),
    Broken("tuple_of_call", "tanh", (("return tanh_triton(x)", "return (tanh_triton(x),)"),)),
    Broken("tuple_of_name", "rowmax", (("        return out", "        result = (out,)\n        return result"),)),
    Broken("class_new_model", "softmax", (("ModelNew", "NewModel"),)),
    Broken(
        "class_beside_reference",
        "tanh",
        (
            (
                "class ModelNew(nn.Module):",
                "class Model(nn.Module):\n    pass\n\n\nclass TritonModel(nn.Module):",
            ),
        ),
    ),
    Broken(
        "class_of_imported_module",
        "tanh",
        (
            ("from triton.language.extra", "from torch.nn import Module\nfrom triton.language.extra"),
            ("ModelNew(nn.Module)", "Tanh(Module)"),
        ),
    ),
    Broken(
        "class_function_only",
        "tanh",
        (("class ModelNew(nn.Module):\n    def forward(self, x):\n        return tanh_triton(x)\n", ""),),
        "there is no module",
    ),
    Broken("type_in_full", "matmul", (("dtype=a.dtype", "dtype=triton.language.float16"),)),
    Broken(
        "type_of_triton_zeros",
        "meansquare",
        (
            (
                "torch.empty((n_rows,), device=x.device, dtype=torch.float32)",
                "torch.zeros(n_rows, dtype=tl.float32, device=x.device)",
            ),
        ),
    ),
    Broken(
        "type_of_triton_new",
        "rowmax",
        (("torch.empty(n_rows, device=x.device, dtype=x.dtype)", "x.new_empty(n_rows, dtype=tl.float32)"),),
    ),
    Broken(
        "type_of_triton_positional",
        "tanh",
        (("torch.empty_like(x)", "torch.empty(x.shape, dtype=tl.float32, device=x.device)"),),
    ),
    Broken(
        "cuda_tensor_type",
        "meansquare",
        (("torch.empty((n_rows,), device=x.device, dtype=torch.float32)", "torch.cuda.FloatTensor(n_rows)"),),
    ),
    Broken("misspelt_arange", "rowmax", (("tl.arange", "tl.arrange"),)),
    Broken("misspelt_load", "rowmax", (("tl.load", "tl.laod"),)),
    Broken("misspelt_store", "add", (("tl.store", "tl.sotre"),)),
    Broken("misspelt_jit", "add", (("@triton.jit", "@triton.jitt"),)),
    Broken("misspelt_constexpr", "add", (("tl.constexpr", "tl.constexp"),)),
    Broken(
        "misspelt_parameter",
        "layernorm",
        (("x, y, x.stride(0), N, self.eps, BLOCK_SIZE", "x, y, x.stride(0), N, self.eps, BLOCKSIZE"),),
    ),
    Broken("grid_bracket_missing_comma", "layernorm", (("[(rows,)]", "[(rows)]"),)),
    Broken("dot_with_accumulator", "matmul", (("acc += tl.dot(a, b)", "acc = tl.dot(a, b, accumulator=acc)"),)),
    Broken("half_accumulator_half_store", "matmul", (("dtype=tl.float32)", "dtype=tl.half)"),)),
    Broken(
        "print_of_f_string",
        "tanh",
        (("    t = libdevice", '    print(f"{n}")\n    t = libdevice'),),
        "what was to be printed is no work of a kernel",
    ),
    Broken("infinity_of_numpy_not_imported", "softmax", (('-float("inf")', "-np.inf"),)),
    Broken("infinity_of_math_not_imported", "softmax", (('-float("inf")', "-math.inf"),)),
    Broken("infinity_as_text", "softmax", (('-float("inf")', '"-inf"'),)),
    Broken(
        "no_type_of_zeros",
        "transpose",
        (("    y = tl.trans(x) * 2.0", "    z = tl.zeros((BC, BR))\n    y = tl.trans(x) * 2.0 + z"),),
    ),
    Broken(
        "next_power_method",
        "rowmax",
        (("triton.next_power_of_2(n_cols)", "n_cols.bit_length()"),),
        "a block that is too small by its meaning",
    ),
    Broken("comma_after_number", "add_wrapped", (("BLOCK = 512", "BLOCK = 512,"),)),
    Broken("comma_after_count", "tanh", (("n = x.numel()", "n = x.numel(),"),)),
    Broken("parentheses_for_tuple", "meansquare", (("tl.zeros((BLOCK,), ", "tl.zeros((BLOCK), "),)),
    Broken("pi_of_numpy", "clamp", (NUMPY, ("* 1.5", "* (1.5 * np.pi / 3.141592653589793)")), taken_from=TAKEN),
    Broken("pi_of_torch", "clamp", (("* 1.5", "* (1.5 * torch.pi / 3.141592653589793)"),), taken_from=TAKEN),
    Broken("numpy_exp_of_division", "silu", (NUMPY, ("tl.exp(-xf)", "np.exp(-xf)"))),
    Broken("maximum_with_dim", "rowmax", (("tl.max(x, axis=0)", "tl.maximum(x, dim=0)"),)),
    Broken(
        "language_std", "layernorm", (("tl.sqrt(var + eps)", "tl.std(x) + eps * 0.0"),), "Triton has no such function"
    ),
    Broken("gelu_function", "silu", (("xf / (1.0 + tl.exp(-xf))", "tl.silu(xf)"),)),
    Broken("softplus_function", "logsum", (("tl.log(total)", "tl.softplus(total)"),), "Triton has no such function"),
    Broken("numpy_dtype_of_store", "silu", (NUMPY, ("y.to(tl.float16)", "y.to(np.float16)"))),
)
