"""Decorators, launches, grids, and what is passed in them."""

from tests.agents.broken import Broken

ROWS = (
    Broken("block_under_another_name", "add", (("BLOCK_SIZE=1024", "BLOCK=1024"), ('meta["BLOCK_SIZE"]', "1024"))),
    Broken("block_under_lower_case", "add_wrapped", (("alpha, BLOCK=BLOCK", "alpha, block_size=BLOCK"),)),
    Broken("block_not_passed", "silu", (("n_elements, BLOCK_SIZE=BLOCK_SIZE)", "n_elements)"),)),
    Broken("block_not_passed_of_wrapper", "add_wrapped", (("alpha, BLOCK=BLOCK, num_warps=4", "alpha, num_warps=4"),)),
    Broken(
        "block_of_number_in_grid",
        "add",
        (("n_elements, BLOCK_SIZE=1024", "n_elements"), ('meta["BLOCK_SIZE"]', "1024")),
    ),
    Broken(
        "block_nowhere",
        "rowmax",
        (("n_cols, BLOCK_SIZE=block", "n_cols"), ("        block = triton.next_power_of_2(n_cols)\n", "")),
        "no number in the text is surely the block's",
    ),
    Broken("grid_of_other_key", "add", (('meta["BLOCK_SIZE"]', 'meta["BLOCK"]'),)),
    Broken("grid_by_attribute", "clamp", (('meta["BLOCK_SIZE"]', "meta.BLOCK_SIZE"),)),
    Broken(
        "grid_lambda_without_parameter",
        "add",
        (('lambda meta: (triton.cdiv(n_elements, meta["BLOCK_SIZE"]),)', "lambda: (triton.cdiv(n_elements, 1024),)"),),
    ),
    Broken("tuned_block_passed", "add_tuned", (("(x, y, out, n)", "(x, y, out, n, BLOCK_SIZE=1024)"),)),
    Broken("tuned_block_by_position", "add_tuned", (("(x, y, out, n)", "(x, y, out, n, 1024)"),)),
    Broken("tuned_warps_passed", "add_tuned", (("(x, y, out, n)", "(x, y, out, n, num_warps=4)"),)),
    Broken("tuned_key_misspelt", "add_tuned", (('key=["n"]', 'key=["n_elements"]'),)),
    Broken(
        "tuned_under_jit",
        "add_tuned",
        (("@triton.autotune(\n", "@triton.jit\n@triton.autotune(\n"), (")\n@triton.jit\ndef", ")\ndef")),
    ),
    Broken("tuned_without_configs_key", "add_tuned", (('    key=["n"],\n', ""),)),
    Broken(
        "config_keywords",
        "add_tuned",
        (
            ('triton.Config({"BLOCK_SIZE": 256}', "triton.Config(BLOCK_SIZE=256"),
            ('triton.Config({"BLOCK_SIZE": 1024}', "triton.Config(BLOCK_SIZE=1024"),
        ),
    ),
    Broken("no_decorator", "tanh", (("@triton.jit\n", ""),)),
    Broken("jit_of_language", "tanh", (("@triton.jit", "@tl.jit"),)),
    Broken("bare_jit", "tanh", (("@triton.jit", "@jit"),)),
    Broken("kernel_decorator", "tanh", (("@triton.jit", "@triton.kernel"),)),
    Broken("constexpr_of_triton", "tanh", (("tl.constexpr", "triton.constexpr"),)),
    Broken("bare_constexpr", "tanh", (("tl.constexpr", "constexpr"),)),
    Broken("const_expr", "tanh", (("tl.constexpr", "tl.const_expr"),)),
    Broken("no_constexpr", "rowmax", (("BLOCK_SIZE: tl.constexpr", "BLOCK_SIZE"),)),
    Broken("constexpr_twice", "add_wrapped", (("BLOCK: tl.constexpr", "BLOCK: int"),)),
    Broken(
        "number_before_pointers",
        "rowmax",
        (("(x, out, n_cols, BLOCK_SIZE=block)", "(out, x, n_cols, BLOCK_SIZE=block)"),),
        "which tensor is which the text does not say",
    ),
    Broken(
        "grid_floored", "add", (('triton.cdiv(n_elements, meta["BLOCK_SIZE"])', 'n_elements // meta["BLOCK_SIZE"]'),)
    ),
    Broken(
        "grid_floored_of_name", "silu", (("(n_elements + BLOCK_SIZE - 1) // BLOCK_SIZE", "n_elements // BLOCK_SIZE"),)
    ),
    Broken(
        "grid_floored_of_two",
        "transpose",
        (("(triton.cdiv(R, BLOCK), triton.cdiv(C, BLOCK))", "(R // BLOCK, C // BLOCK)"),),
    ),
    Broken("grid_rounded_int", "add_wrapped", (("triton.cdiv(numel, BLOCK),", "int(numel / BLOCK),"),)),
    Broken("grid_number", "tanh", (("[(triton.cdiv(n, 512),)]", "[triton.cdiv(n, 512)]"),)),
    Broken("grid_in_parentheses", "add_wrapped", (("(triton.cdiv(numel, BLOCK),)", "(triton.cdiv(numel, BLOCK))"),)),
    Broken(
        "grid_of_lambda_number",
        "clamp",
        (('(triton.cdiv(n_elements, meta["BLOCK_SIZE"]),)', 'triton.cdiv(n_elements, meta["BLOCK_SIZE"])'),),
    ),
    Broken("grid_divided", "silu", (("// BLOCK_SIZE", "/ BLOCK_SIZE"),)),
    Broken("grid_of_shape", "rowmax", (("[(n_rows,)]", "[n_rows]"),)),
    Broken("grid_of_four", "rowmax", (("[(n_rows,)]", "[(n_rows, 1, 1, 1)]"),)),
    Broken("cdiv_of_language", "tanh", (("triton.cdiv(n, 512)", "tl.cdiv(n, 512)"),)),
    Broken("ceil_div", "tanh", (("triton.cdiv(n, 512)", "triton.ceil_div(n, 512)"),)),
    Broken("next_power_of_two", "rowmax", (("triton.next_power_of_2(", "triton.next_power_of_two("),)),
    Broken("next_power_of_language", "rowmax", (("triton.next_power_of_2(", "tl.next_power_of_2("),)),
    Broken(
        "not_a_launch",
        "tanh",
        (("tanh_kernel[(triton.cdiv(n, 512),)](x", "tanh_kernel(x"),),
        "no grid stands in the text",
    ),
    Broken(
        "grid_as_keyword",
        "tanh",
        (
            (
                "tanh_kernel[(triton.cdiv(n, 512),)](x, out, n, BLOCK=512)",
                "tanh_kernel(x, out, n, BLOCK=512, grid=(triton.cdiv(n, 512),))",
            ),
        ),
    ),
    Broken("addresses_passed", "tanh", (("](x, out, n", "](x.data_ptr(), out.data_ptr(), n"),)),
    Broken(
        "shape_passed",
        "tanh",
        (("n = x.numel()", "n = x.shape"),),
        "which of its numbers was meant the text does not say",
    ),
    Broken("size_method_passed", "tanh", (("n = x.numel()", "n = x.numel"),)),
    Broken("warps_misspelt", "layernorm", (("num_warps=4", "num_warp=4"),)),
    Broken("warps_odd", "layernorm", (("num_warps=4", "num_warps=6"),)),
    Broken(
        "unknown_option", "layernorm", (("num_warps=4", "num_threads=128"),), "that no option was needed is a guess"
    ),
    Broken(
        "stride_left_out",
        "layernorm",
        (("(x, y, x.stride(0), N,", "(x, y, N,"),),
        "which argument is missing is a guess",
    ),
    Broken("block_given_twice", "rowmax", (("n_cols, BLOCK_SIZE=block", "n_cols, block, BLOCK_SIZE=block"),)),
    Broken("weight_as_module", "rmsnorm", (("self.weight, y", "self, y"),), "a module has many tensors"),
    Broken("block_of_row_length", "rowmax", (("triton.next_power_of_2(n_cols)", "n_cols"),)),
    Broken(
        "module_constant_in_kernel",
        "transpose",
        (("tl.trans(x) * 2.0", "tl.trans(x) * SCALE"), ("BLOCK = 32", "BLOCK = 32\nSCALE = 2.0")),
    ),
)
