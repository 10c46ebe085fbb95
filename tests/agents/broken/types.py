"""Types and casts that Triton spells otherwise, and what masks are made of."""

from tests.agents.broken import TAKEN, Broken

ROWS = (
    Broken("language_float", "layernorm", ((".to(tl.float32)", ".to(tl.float)"),)),
    Broken("language_half", "silu", (("y.to(tl.float16)", "y.to(tl.half)"),)),
    Broken("language_fp32", "meansquare", (("dtype=tl.float32", "dtype=tl.fp32"),)),
    Broken("language_f16", "matmul", (("acc.to(tl.float16)", "acc.to(tl.f16)"),)),
    Broken(
        "language_double",
        "logsum",
        (("1.0 + x * x", "1.0 + (x * x).to(tl.double)"), ("tl.log(total)", "tl.log(total).to(tl.float32)")),
    ),
    Broken("language_long", "rowmax", (("row * n_cols", "row.to(tl.long) * n_cols"),)),
    Broken("astype", "silu", (("x.to(tl.float32)", "x.astype(tl.float32)"),)),
    Broken(
        "astype_of_numpy",
        "silu",
        (
            ("import torch\nimport torch.nn", "import numpy as np\nimport torch\nimport torch.nn"),
            ("x.to(tl.float32)", "x.astype(np.float32)"),
        ),
    ),
    Broken("type_method", "silu", (("y.to(tl.float16)", "y.type(tl.float16)"),)),
    Broken("float_method", "silu", (("x.to(tl.float32)", "x.float()"),)),
    Broken("half_method", "silu", (("y.to(tl.float16)", "y.half()"),)),
    Broken("float_function", "silu", (("x.to(tl.float32)", "float(x)"),)),
    Broken("language_to_float", "silu", (("x.to(tl.float32)", "tl.float32(x)"),)),
    Broken("bare_type", "silu", (("x.to(tl.float32)", "x.to(float32)"),)),
    Broken("type_of_torch", "silu", (("x.to(tl.float32)", "x.to(torch.float32)"),)),
    Broken("type_as_text", "silu", (("x.to(tl.float32)", 'x.to("float32")'),)),
    Broken("type_of_pointer", "silu", (("y.to(tl.float16)", "y.to(out_ptr.dtype)"),)),
    Broken("element_type_of_pointer", "silu", (("y.to(tl.float16)", "y.to(out_ptr.element_ty)"),)),
    Broken("cast_keyword", "silu", (("y.to(tl.float16)", "y.to(dtype=torch.float16)"),)),
    Broken(
        "view_instead_of_cast",
        "silu",
        (("y.to(tl.float16)", "y.to(tl.float16, bitcast=True)"),),
        "bits of another width cannot be read as they are; that a cast was meant is a guess",
    ),
    Broken(
        "and_of_masks", "transpose", (("(r[:, None] < R) & (c[None, :] < C)", "(r[:, None] < R) and (c[None, :] < C)"),)
    ),
    Broken(
        "and_of_bare_masks",
        "matmul",
        (
            (
                "c_mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)",
                "c_mask = offs_m[:, None] < M and offs_n[None, :] < N",
            ),
        ),
    ),
    Broken(
        "no_parentheses",
        "matmul",
        (
            (
                "c_mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)",
                "c_mask = offs_m[:, None] < M & offs_n[None, :] < N",
            ),
        ),
    ),
    Broken(
        "chained_comparison",
        "add",
        (("mask = offsets < n_elements", "mask = 0 <= offsets < n_elements"),),
        taken_from=TAKEN,
    ),
    Broken("or_of_masks", "clamp", (("tl.where(x > 0, x, 0.0)", "tl.where(x > 1e9 or x > 0, x, 0.0)"),)),
    Broken("not_of_mask", "clamp", (("tl.where(x > 0, x, 0.0)", "tl.where(not (x > 0), 0.0, x)"),)),
    Broken("conditional_of_tile", "clamp", (("tl.where(x > 0, x, 0.0)", "(x if x > 0 else 0.0)"),)),
    Broken(
        "if_of_tile",
        "clamp",
        (("    x = tl.where(x > 0, x, 0.0) * 1.5", "    if x < 0:\n        x = 0.0\n    x = x * 1.5"),),
        "what a branch does with a whole tile is no expression",
    ),
    Broken(
        "mask_by_position_torch", "rowmax", (('mask=mask, other=-float("inf")', 'mask=mask, default=-float("inf")'),)
    ),
    Broken(
        "load_keyword_masks", "add", (("tl.load(x_ptr + offsets, mask=mask)", "tl.load(x_ptr + offsets, msk=mask)"),)
    ),
    Broken("load_of_two", "tanh", (("tl.load(in_ptr + i, mask=ok)", "tl.load(in_ptr, i, mask=ok)"),)),
    Broken(
        "pointer_subscript",
        "tanh",
        (("tl.load(in_ptr + i, mask=ok)", "in_ptr[i]"),),
        "a tensor has no subscripts that are numbers in a kernel",
    ),
    Broken("float_arange", "rowmax", (("tl.arange(0, BLOCK_SIZE)", "tl.arange(0, BLOCK_SIZE / 1)"),)),
    Broken("offset_halved", "rowmax", (("row * n_cols + offs", "(row * n_cols * 2) / 2 + offs"),)),
    Broken("unsqueeze", "transpose", (("r[:, None] * C", "r.unsqueeze(1) * C"),)),
    Broken("dot_transposed", "matmul", (("tl.dot(a, b)", "tl.dot(a, b, trans_b=False)"),)),
    Broken(
        "accumulator_in_half",
        "matmul",
        (
            (
                "acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)",
                "acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float16)",
            ),
        ),
    ),
    Broken("dot_of_cast", "matmul", (("tl.dot(a, b)", "tl.dot(a.to(tl.float32), b)"),)),
)
