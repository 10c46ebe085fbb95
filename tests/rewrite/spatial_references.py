"""Small references of pooling, convolution and scans, for the rewriter's tests."""

from __future__ import annotations

from tests.rewrite.references import reference

LINE = "torch.randn(2, 3, n + m)"
IMAGE = "torch.randn(2, 4, n % 7 + 4, k % 9 + 4)"
CHANNELS = "torch.randn(4, 1, 1)"
VOLUME = "torch.randn(1, 4, n % 4 + 3, 6, k % 5 + 3)"

WINDOWS = {
    "max_pool1d": reference("F.max_pool1d(x, 3, 2, 1, 2)", LINE),
    "max_pool2d": reference("F.max_pool2d(x, (3, 2), (2, 1), (1, 0))", IMAGE),
    "max_pool2d_ceil": reference("F.max_pool2d(x, 3, 2, 1, ceil_mode=True)", IMAGE),
    "max_pool3d": reference("F.max_pool3d(x, 2)", VOLUME),
    "max_pool_unrolled_no_more": reference("F.max_pool1d(x, 40, 1, 20)", LINE),
    "avg_pool1d": reference("F.avg_pool1d(x, 4, 1, 2)", LINE),
    "avg_pool2d": reference("F.avg_pool2d(x, 3, 2, 1)", IMAGE),
    "avg_pool2d_of_elements": reference("F.avg_pool2d(x, 3, 2, 1, count_include_pad=False)", IMAGE),
    "avg_pool2d_ceil": reference("F.avg_pool2d(x, 3, 2, 1, ceil_mode=True)", IMAGE),
    "avg_pool2d_divisor": reference("F.avg_pool2d(x, 2, divisor_override=3)", IMAGE),
    "avg_pool3d": reference("F.avg_pool3d(x, 3, 2, 1)", VOLUME),
    "adaptive_avg_pool1d": reference("F.adaptive_avg_pool1d(x, 5)", LINE),
    "adaptive_avg_pool2d": reference("F.adaptive_avg_pool2d(x, (3, 2))", IMAGE),
    "adaptive_max_pool2d": reference("F.adaptive_max_pool2d(x, 2)", IMAGE),
    "global_avg_pool2d": reference("F.adaptive_avg_pool2d(torch.relu(x), 1) * 2", IMAGE),
    "pool_between": reference("torch.tanh(F.max_pool2d(F.gelu(x) - 1, 2, 1, 1)) * 2", IMAGE),
    "pool_of_a_transpose": reference("F.avg_pool2d(x.transpose(2, 3), 2)", IMAGE),
    "pool_with_bias": reference(
        "F.max_pool2d(x + self.b, 2) + y", f"{IMAGE}, {CHANNELS}", f"self.b = nn.Parameter({CHANNELS})"
    ),
    "depthwise": reference("self.c(x)", IMAGE, "self.c = nn.Conv2d(4, 4, (3, 5), 2, (1, 2), groups=4)"),
    "depthwise_multiplied": reference("F.relu(self.c(x))", IMAGE, "self.c = nn.Conv2d(4, 8, 3, dilation=2, groups=4)"),
    # Large enough at the full shapes for programs that stay in one plane.
    "depthwise_by_planes": reference(
        "F.relu(self.c(x)) * y",
        "torch.randn(2, 4, n + 8, k), torch.randn(8, 1, 1)",
        "self.c = nn.Conv2d(4, 8, 3, padding=1, groups=4)",
    ),
    # What is before the windows has numbers of a channel: those of a program are single ones.
    "depthwise_by_planes_of_a_norm": reference(
        "self.c(F.relu6(self.b(x)))",
        "torch.randn(2, 4, n + 8, k)",
        "self.b = nn.BatchNorm2d(4).eval()\nself.c = nn.Conv2d(4, 4, 3, padding=1, groups=4)",
    ),
    "depthwise_by_planes_of_a_gate": reference(
        "self.c(x * torch.sigmoid(y))",
        "torch.randn(2, 4, n + 8, k), torch.randn(2, 4, 1, 1)",
        "self.c = nn.Conv2d(4, 4, 3, padding=1, groups=4)",
    ),
    "depthwise_1d": reference("self.c(x)", LINE, "self.c = nn.Conv1d(3, 3, 4, padding='same', groups=3, bias=False)"),
}

CONVOLUTIONS = {
    "conv1d": reference("self.c(x)", LINE, "self.c = nn.Conv1d(3, 5, 3, stride=2, dilation=3)"),
    "conv2d": reference("self.c(x)", IMAGE, "self.c = nn.Conv2d(4, k, 3, bias=False)"),
    "conv2d_many_channels": reference("self.c(x)", "torch.randn(2, k, 6, 5)", "self.c = nn.Conv2d(k, m, 3, padding=1)"),
    "conv2d_square_by_chance": reference("self.c(x)", "torch.randn(2, n, n, n)", "self.c = nn.Conv2d(n, 4, 2, 2)"),
    "conv2d_uneven": reference("self.c(x)", IMAGE, "self.c = nn.Conv2d(4, 5, (2, 3), (1, 2), (1, 2), (2, 1))"),
    "conv2d_pointwise": reference("F.relu(self.c(x)) + 1", IMAGE, "self.c = nn.Conv2d(4, 20, 1)"),
    "conv2d_grouped": reference("self.c(x)", "torch.randn(2, 24, 6, 5)", "self.c = nn.Conv2d(24, 6, 3, groups=2)"),
    "conv2d_same": reference("self.c(x)", IMAGE, "self.c = nn.Conv2d(4, 4, 4, padding='same')"),
    "conv3d": reference("self.c(x)", VOLUME, "self.c = nn.Conv3d(4, 5, 3, stride=(1, 2, 1), padding=1)"),
    "conv2d_between": reference(
        "F.gelu(self.c(x * 0.5 + 1)) * y", f"{IMAGE}, torch.randn(5, 1, 1)", "self.c = nn.Conv2d(4, 5, 3, 2, 1)"
    ),
    "conv2d_batch_norm_eval": reference(
        "F.relu(self.b(self.c(x)))", IMAGE, "self.c = nn.Conv2d(4, 5, 3)\nself.b = nn.BatchNorm2d(5).eval()"
    ),
    "conv2d_residual": reference("self.c(x) + y", f"{IMAGE}, {IMAGE}", "self.c = nn.Conv2d(4, 4, 3, padding=1)"),
    "conv2d_of_a_transpose": reference("self.c(x.transpose(2, 3))", IMAGE, "self.c = nn.Conv2d(4, 5, 3)"),
    "transposed_1d": reference("self.c(x)", LINE, "self.c = nn.ConvTranspose1d(3, 5, 3, stride=2, padding=1)"),
    "transposed_2d": reference("self.c(x)", IMAGE, "self.c = nn.ConvTranspose2d(4, 5, 3)"),
    "transposed_2d_strided": reference(
        "self.c(x) * 2", IMAGE, "self.c = nn.ConvTranspose2d(4, 5, (3, 2), (2, 3), (1, 0), (1, 2))"
    ),
    "transposed_2d_one_way": reference("self.c(x)", IMAGE, "self.c = nn.ConvTranspose2d(4, 5, (4, 1), (1, 2))"),
    "transposed_2d_dilated": reference(
        "self.c(x)", IMAGE, "self.c = nn.ConvTranspose2d(4, 4, 3, (2, 1), (1, 2), groups=2, dilation=(2, 1))"
    ),
    "transposed_1d_twice_apart": reference("self.c(x)", LINE, "self.c = nn.ConvTranspose1d(3, 5, 3, 2, 1, dilation=2)"),
    "transposed_1d_thrice_apart": reference(
        "self.c(x) + 1", LINE, "self.c = nn.ConvTranspose1d(3, 5, 5, 2, 2, 1, dilation=3)"
    ),
    "transposed_2d_in_no_phase": reference(
        "self.c(x)", IMAGE, "self.c = nn.ConvTranspose2d(4, 6, (2, 4), (4, 6), (1, 2), dilation=(6, 4), groups=2)"
    ),
    "transposed_2d_far_apart": reference(
        "torch.relu(self.c(x))", IMAGE, "self.c = nn.ConvTranspose2d(4, 5, 3, (5, 3), 1, dilation=(2, 5))"
    ),
    "transposed_3d_apart": reference(
        "self.c(x)", "torch.randn(1, 4, 2, 3, n % 3 + 2)", "self.c = nn.ConvTranspose3d(4, 2, 3, 2, 1, dilation=2)"
    ),
    "transposed_3d": reference(
        "torch.relu(self.c(x))",
        "torch.randn(1, 4, 2, 2, n % 3 + 2)",
        "self.c = nn.ConvTranspose3d(4, 2, 3, 2, 1, 1, groups=2)",
    ),
}

SCANS = {
    "cumsum": reference("torch.cumsum(x, 1)"),
    "cumsum_of_columns": reference("torch.cumsum(x, 0) + 1"),
    "cumsum_in_the_middle": reference("torch.cumsum(x, 1)", "torch.randn(n, m, 5)"),
    "cumprod": reference("torch.cumprod(x, -1)", "torch.rand(n, m) * 0.2 + 0.9"),
    "masked": reference("torch.cumsum(x * y, 1)", "torch.randn(n, m), torch.randint(0, 2, (n, m)).bool()"),
    "reverse": reference("torch.cumsum(x.flip(1), dim=1).flip(1)"),
    "reverse_between": reference(
        "torch.relu(torch.cumsum((x * y).flip(0), dim=0).flip(0) - y)", "torch.randn(n, m), torch.randn(m)"
    ),
    "over_several_blocks": reference("torch.cumsum(x.exp(), 1)", "torch.randn(2, 99 * n)"),
    "of_the_reverse": reference("torch.cumsum(x.flip(1), dim=1)"),
    "reverse_of_the_sum": reference("torch.relu(torch.cumsum(x, dim=0)).flip(0) + 1"),
    "exclusive": reference("torch.cumsum(x[:, :-1], dim=1)"),
}

HALF_IMAGE = f"{IMAGE}.half()"

HALF = {
    "conv2d": reference("F.relu(self.c(x))", HALF_IMAGE, "self.c = nn.Conv2d(4, 5, 3, padding=1).half()"),
    "conv2d_between": reference(
        "self.c(x * 0.5).tanh()", f"{IMAGE}.bfloat16()", "self.c = nn.Conv2d(4, 20, 3).bfloat16()"
    ),
    "transposed": reference("self.c(x)", HALF_IMAGE, "self.c = nn.ConvTranspose2d(4, 5, 3, 2, 1).half()"),
    "depthwise": reference("self.c(x)", HALF_IMAGE, "self.c = nn.Conv2d(4, 4, 3, groups=4).half()"),
    "pool": reference("F.avg_pool2d(torch.relu(x), 3, 2, 1)", f"{IMAGE}.bfloat16()"),
    "batch_norm": reference("self.b(x)", HALF_IMAGE, "self.b = nn.BatchNorm2d(4).half()"),
    "cumsum": reference("torch.cumsum(x * 0.1, 1)", "torch.randn(n, m).half()"),
    "smooth_l1": reference("F.smooth_l1_loss(x, y)", "torch.randn(n, m).bfloat16(), torch.randn(n, m).bfloat16()"),
}
"""In 16 bits: computed in fp32, stored in their own dtype."""
