"""References with complex numbers between real ones: transforms, products of spectra, rotations."""

from __future__ import annotations

from tests.rewrite.special_references import special

X, PAIRS = "torch.randn(2, n, m)", "torch.randn(2, n, m, 2)"
BACK = "torch.fft.irfft(torch.fft.rfft(x{}, dim={d}{norm}) * {by}, n=x.shape[{d}], dim={d}{norm})"

TRANSFORMS = {
    "real_to_pairs": special("torch.view_as_real(torch.fft.rfft(x))", X),
    "real_to_pairs_ortho": special('torch.view_as_real(torch.fft.rfft(x, norm="ortho"))', X),
    "real_to_pairs_forward": special('torch.view_as_real(torch.fft.rfft(x, norm="forward"))', X),
    "of_columns": special("torch.view_as_real(torch.fft.rfft(x, dim=1))", X),
    "longer": special("torch.view_as_real(torch.fft.rfft(x, n=2 * x.shape[2]))", X),
    "shorter": special("torch.view_as_real(torch.fft.rfft(x, n=5))", X),
    "a_row": special("torch.view_as_real(torch.fft.rfft(x))", "torch.randn(m)"),
    "whole_spectrum": special("torch.view_as_real(torch.fft.fft(x))", X),
    "of_pairs": special("torch.view_as_real(torch.fft.fft(torch.view_as_complex(x)))", PAIRS),
    "back_of_pairs": special("torch.view_as_real(torch.fft.ifft(torch.view_as_complex(x), dim=1))", PAIRS),
    "back_to_real": special("torch.fft.irfft(torch.view_as_complex(x))", PAIRS),
    "back_to_odd": special("torch.fft.irfft(torch.view_as_complex(x), n=2 * x.shape[2] - 1)", PAIRS),
    "back_to_fewer": special("torch.fft.irfft(torch.view_as_complex(x), n=4)", PAIRS),
    "mixed_tokens": special("torch.fft.fft(torch.fft.fft(x, dim=-1), dim=-2).real + x", X),
    "mixed_in_two": special("torch.fft.fft2(x).real", X),
    "imaginary": special("torch.fft.fft(x).imag * 2", X),
    "both_parts": special("(lambda z: (z.real + z.imag, z.real * z.imag))(torch.fft.rfft(x))", X),
    "filtered": special(
        "torch.fft.irfft(torch.fft.rfft(x) * torch.view_as_complex(y), n=x.shape[2])", X, "torch.randn(m // 2 + 1, 2)"
    ),
    "filtered_in_two": special(
        'torch.fft.irfft2(torch.fft.rfft2(x, norm="ortho") * torch.view_as_complex(y), s=x.shape[1:], norm="ortho")',
        X, "torch.randn(n, m // 2 + 1, 2)",
    ),
    "convolved": special(
        "torch.fft.irfft(torch.fft.rfft(x, n=2 * x.shape[2]) * torch.fft.rfft(y, n=2 * x.shape[2]), n=2 * x.shape[2])"
        "[..., :x.shape[2]] + x", X, "torch.randn(n, m)",
    ),
    "correlated": special(
        "torch.fft.irfft(torch.fft.rfft(x).conj() * torch.fft.rfft(y), n=x.shape[2])", X, X,
    ),
    "scaled": special("torch.fft.irfft(torch.fft.rfft(x) * y / 3, n=x.shape[2])", X, "torch.randn(n, m // 2 + 1)"),
    "summed": special("torch.fft.irfft(torch.fft.rfft(x) + torch.fft.rfft(y) - torch.fft.rfft(x * y), n=x.shape[2])", X, X),
    "rotated": special(
        "torch.view_as_real(torch.view_as_complex(x.unflatten(-1, (-1, 2))) * torch.view_as_complex(y)).flatten(-2)",
        "torch.randn(3, n, 16)", "torch.randn(n, 8, 2)",
    ),
    "plain_r2c": special("torch.view_as_real(torch.ops.aten._fft_r2c(x, [1, 2], 1, True))", X),
    "plain_c2r": special("torch.ops.aten._fft_c2r(torch.complex(x, y), [2], 2, 2 * x.shape[2] - 2)", X, X),
    "plain_c2c": special("torch.view_as_real(torch.ops.aten._fft_c2c(torch.complex(x, y), [1], 0, False))", X, X),
}  # fmt: skip
