"""The module around the kernel: its name, its outputs, their types and devices, and what torch is asked for."""

from tests.agents.broken import Broken

ROWS = (
    Broken("class_of_reference", "add", (("ModelNew", "Model"),)),
    Broken("class_of_own_name", "add", (("ModelNew", "TritonAdd"),)),
    Broken("class_of_own_name_with_super", "layernorm", (("ModelNew", "LayerNormTriton"),)),
    Broken("class_in_lower_case", "tanh", (("ModelNew", "Modelnew"),)),
    Broken(
        "class_beside_layer",
        "rmsnorm",
        (("class ModelNew(nn.Module):\n", "class Scale(nn.Module):\n    pass\n\n\nclass RMSNorm(nn.Module):\n"),),
        "two modules could be the one",
    ),
    Broken("super_of_reference", "layernorm", (("super(ModelNew, self)", "super(Model, self)"),)),
    Broken("no_super", "rmsnorm", (("        super().__init__()\n", ""),)),
    Broken(
        "constructor_without_arguments",
        "clamp",
        (
            ("def __init__(self, low, high):", "def __init__(self):"),
            ("self.low = low", "self.low = -0.5"),
            ("self.high = high", "self.high = 1.25"),
        ),
        "what the task gives may be something else than the text has",
    ),
    Broken("forward_without_self", "tanh", (("def forward(self, x)", "def forward(x)"),)),
    Broken("tuple_of_one_returned", "add", (("return output", "return (output,)"),)),
    Broken("comma_returned", "add", (("return output", "return output,"),)),
    Broken("list_returned", "rowmax", (("return out", "return [out]"),)),
    Broken("nothing_returned", "rowmax", (("        return out\n", ""),)),
    Broken("output_is_input", "add", (("output = torch.empty_like(x)", "output = x"),)),
    Broken("output_is_input_silu", "silu", (("out = torch.empty_like(x)", "out = x"),)),
    Broken(
        "output_is_view_of_input",
        "clamp",
        (("out = torch.empty_like(x)", "out = x.view(-1)"), ("return out", "return out.view(x.shape)")),
    ),
    Broken(
        "input_passed_as_output",
        "silu",
        (
            ("](x, out, n_elements", "](x, x, n_elements"),
            ("        out = torch.empty_like(x)\n", ""),
            ("return out", "return x"),
        ),
    ),
    Broken("input_is_contiguous_output", "silu", (("out = torch.empty_like(x)", "out = x.contiguous()"),)),
    Broken("type_of_triton_on_host", "rowmax", (("dtype=x.dtype", "dtype=tl.float32"),)),
    Broken("half_of_triton_on_host", "matmul", (("dtype=a.dtype", "dtype=tl.float16"),)),
    Broken("type_of_triton_to", "tanh", (("    n = x.numel()", "    x = x.to(tl.float32)\n    n = x.numel()"),)),
    Broken("type_of_triton_cast", "silu", (("empty_like(x)", "empty_like(x, dtype=tl.float16)"),)),
    Broken(
        "type_of_numpy",
        "rowmax",
        (
            ("import torch\nimport torch.nn", "import numpy as np\nimport torch\nimport torch.nn"),
            ("dtype=x.dtype", "dtype=np.float32"),
        ),
    ),
    Broken("output_in_float32", "matmul", (("dtype=a.dtype", "dtype=torch.float32"), ("acc.to(tl.float16)", "acc"))),
    Broken("output_type_left_out", "matmul", (("device=a.device, dtype=a.dtype", "device=a.device"),)),
    Broken("output_device_left_out", "meansquare", (("device=x.device, ", ""),)),
    Broken("no_import_of_language", "add", (("import triton.language as tl\n", ""),)),
    Broken("no_import_of_nn", "add", (("import torch.nn as nn\n", ""),)),
    Broken("no_import_of_torch", "rowmax", (("import torch\n", ""),)),
    Broken("no_import_of_triton", "rowmax", (("import triton\n", ""),)),
    Broken("language_not_renamed", "tanh", (("import triton.language as tl\n", "import triton.language\n"),)),
    Broken(
        "libdevice_from_math",
        "tanh",
        (
            ("from triton.language.extra import libdevice", "from triton.language.math import tanh"),
            ("libdevice.tanh", "tanh"),
        ),
    ),
    Broken(
        "libdevice_from_language",
        "tanh",
        (("from triton.language.extra import libdevice", "from triton.language import libdevice"),),
    ),
    Broken("misspelt_variable", "layernorm", (("y = diff * rstd", "y = dif * rstd"),)),
    Broken("misspelt_method", "tanh", (("x.numel()", "x.num_el()"),)),
    Broken("size_as_method", "tanh", (("x.numel()", "x.nelement"),)),
    Broken("result_flattened", "tanh", (("empty_like(x)", "empty(x.numel(), device=x.device, dtype=x.dtype)"),)),
    Broken("result_kept_in_column", "rowmax", (("torch.empty(n_rows, device", "torch.empty((n_rows, 1), device"),)),
)
