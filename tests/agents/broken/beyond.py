"""What is broken in its meaning: no rule can know what was meant, and none may pretend to."""

from tests.agents.broken import Broken

FORMULA = "the formula is wrong"
ROWS = (
    Broken("formula_of_add", "add", (("x * 2.0 + y", "x + y"),), FORMULA),
    Broken("factor_of_add", "add_wrapped", (("scaled_add(x, y, 2.0)", "scaled_add(x, y, 0.5)"),), FORMULA),
    Broken(
        "variance_not_centred",
        "layernorm",
        (("diff * diff", "x * x"), ("tl.where(mask, x - mean, 0.0)", "x - mean * 1.0")),
        FORMULA,
    ),
    Broken("epsilon_left_out", "rmsnorm", (("tl.rsqrt(mean_sq + eps)", "tl.sqrt(mean_sq + eps)"),), FORMULA),
    Broken("weight_left_out", "rmsnorm", (("x * scale * w", "x * scale"),), FORMULA),
    Broken("minimum_for_maximum", "rowmax", (("tl.max(x", "tl.min(x"),), FORMULA),
    Broken("mean_not_divided", "meansquare", (("total / n_cols", "total"),), FORMULA),
    Broken("silu_without_minus", "silu", (("tl.exp(-xf)", "tl.exp(xf)"),), FORMULA),
    Broken(
        "clamp_reversed",
        "clamp",
        (("tl.minimum(tl.maximum(x, low), high)", "tl.minimum(tl.maximum(x, high), low)"),),
        FORMULA,
    ),
    Broken("stride_of_other_side", "transpose", (("c[:, None] * R", "c[:, None] * C"),), "an address is wrong"),
    Broken(
        "stride_in_product",
        "matmul",
        (("offs_k[None, :] * stride_ak", "offs_k[None, :] * stride_am"),),
        "an address is wrong",
    ),
    Broken(
        "loop_ends_early",
        "meansquare",
        (("range(0, n_cols, BLOCK)", "range(0, n_cols - BLOCK, BLOCK)"),),
        "the loop leaves elements out",
    ),
    Broken("step_not_taken", "matmul", (("        b_ptrs += BLOCK_K * stride_bk\n", ""),), "a pointer is not moved on"),
    Broken("one_program", "add", (('triton.cdiv(n_elements, meta["BLOCK_SIZE"])', "1"),), "the grid's size is a guess"),
    Broken(
        "break_in_loop",
        "meansquare",
        (("        acc += x * x", "        if start > n_cols:\n            break\n        acc += x * x"),),
        "Triton has no break, and what it would do is not told",
    ),
    Broken(
        "list_in_kernel",
        "softmax_online",
        (
            (
                "    total = tl.zeros((BLOCK_N,), dtype=tl.float32)\n",
                "    total = tl.zeros((BLOCK_N,), dtype=tl.float32)\n    seen = [row for row in range(3)]\n",
            ),
        ),
        "Triton has no comprehensions",
    ),
    Broken(
        "try_in_kernel",
        "silu",
        (
            (
                "    y = xf / (1.0 + tl.exp(-xf))\n",
                "    try:\n        y = xf / (1.0 + tl.exp(-xf))\n    except ZeroDivisionError:\n        y = xf\n",
            ),
        ),
        "Triton has no exceptions",
    ),
    Broken("element_of_tile", "softmax", (("x - x_max", "x - x[0]"),), "a tile has no subscripts"),
    Broken(
        "slice_of_tile", "softmax", (("tl.sum(num, axis=0)", "tl.sum(num[:n_cols], axis=0)"),), "a tile has no slices"
    ),
    Broken(
        "value_read_on_host",
        "clamp",
        (("n_elements = x.numel()", "n_elements = int(x.abs().max().item() * 0) + x.numel()"),),
        "a launch that hangs on data",
    ),
    Broken(
        "sync_of_programs",
        "meansquare",
        (("    total = tl.sum(acc, axis=0)\n", "    tl.syncthreads()\n    total = tl.sum(acc, axis=0)\n"),),
        "no function is near to it by name",
    ),
    Broken(
        "shared_memory_by_hand",
        "meansquare",
        (
            (
                "    acc = tl.zeros((BLOCK,), dtype=tl.float32)\n",
                "    acc = tl.zeros((BLOCK,), dtype=tl.float32)\n    tile = tl.shared_memory((BLOCK,), tl.float32)\n",
            ),
        ),
        "Triton has no such function",
    ),
    Broken(
        "two_near_names",
        "layernorm",
        (
            ("    diff = tl.where(mask, x - mean, 0.0)", "    difs = x\n    diff = tl.where(mask, x - mean, 0.0)"),
            ("y = diff * rstd", "y = dif * rstd"),
        ),
        "two names are near",
    ),
    Broken("name_of_nothing", "rmsnorm", (("x * scale * w", "x * scale * gamma"),), "nothing has that name"),
    Broken(
        "parameter_of_nothing",
        "softmax",
        (("n_cols, BLOCK_SIZE: tl.constexpr", "n_cols, n_rows, BLOCK_SIZE: tl.constexpr"),),
        "the launch has no such value, as far as the text says",
    ),
    Broken(
        "sum_before_loop_ends",
        "softmax_online",
        (("    denominator = tl.sum(total, axis=0)", "    denominator = tl.max(total, axis=0)"),),
        FORMULA,
    ),
    Broken(
        "race_on_output",
        "meansquare",
        (("tl.store(out_ptr + row, total / n_cols)", "tl.store(out_ptr, total / n_cols)"),),
        "programs write one element",
    ),
    Broken("half_a_line", "tanh", (("    t = libdevice.tanh(x)\n", "    t = libdevice.tanh(x\n"),), "it is no Python"),
)
