"""References of ops that only move elements: alone, behind work that is done again at another place, and before it."""

from __future__ import annotations

from tests.rewrite.references import PAIR, reference

CUBE = "torch.randn(n, k, m)"
ROTATED = "torch.randn(n, 3, 2 * m), torch.randn(3, 2 * m), torch.randn(3, 2 * m)"
HALVES = "torch.cat((-{0}[..., {0}.shape[-1] // 2 :], {0}[..., : {0}.shape[-1] // 2]), -1)"
ROWS = "self.w = nn.Parameter(torch.randn(4, 8))"

INDEXING = {
    "permute": reference("torch.relu(x).permute(2, 0, 1) + 1.0", CUBE),
    "permuted_then_selected": reference("torch.sin(torch.relu(x.permute(2, 0, 1)).select(2, -1).select(1, -1))", CUBE),
    "transpose": reference("torch.relu(x).transpose(0, 1) * y", "torch.randn(n, m), torch.randn(m, n)"),
    "movedim": reference("torch.movedim(torch.relu(x), 0, 2) + 1.0", CUBE),
    "slice": reference("torch.relu(x)[:, 1:-1] * 2.0"),
    "step": reference("torch.relu(x)[:, ::2] * 2.0"),
    "select": reference("torch.relu(x)[:, 3] + y", "torch.randn(n, k, m), torch.randn(n, m)"),
    "expand": reference("(torch.relu(x).expand(-1, 3, -1) * 2.0).sum(2)", "torch.randn(n, 1, m)"),
    "matrix_transpose": reference("torch.relu(x).mT + 1.0", CUBE),
    "unfold": reference("torch.relu(x).unfold(1, 3, 2) * 2.0", CUBE),
    "glu": reference("F.glu(torch.tanh(x), 1)", "torch.randn(n, 2 * k, m)"),
    "nearest": reference("F.interpolate(torch.relu(x), scale_factor=2.0) * 2.0", "torch.randn(2, 3, n, k)"),
    "pixel_unshuffle": reference("F.pixel_unshuffle(torch.relu(x), 2) * 2.0", "torch.randn(2, 3, 2 * n, 2 * k)"),
    "channel_shuffle": reference("F.channel_shuffle(torch.relu(x), 3) * 2.0", "torch.randn(2, 6, n, k)"),
    "one_hot": reference("F.one_hot(torch.arange(n) % 5, 7) * x", "torch.randn(n, 7)"),
    "chunk": reference("(lambda a, b: F.silu(a) * b)(*torch.chunk(torch.tanh(x), 2, -1))", "torch.randn(n, 2 * m)"),
    "unbind": reference("(lambda a, b, c: a * b + c)(*torch.unbind(torch.tanh(x), 1))", "torch.randn(n, 3, m)"),
    "cat": reference("torch.cat((torch.relu(x), 2.0 * y), 1)", PAIR),
    "cat_of_three": reference("torch.cat((x, y.abs(), x.neg(), y), 0) * 2.0", PAIR),
    "stack": reference("torch.stack((torch.relu(x), 2.0 * y), 1)", PAIR),
    "interleaved": reference("torch.stack((-x, y), -1).flatten(1) * 2.0", PAIR),
    "pad": reference("F.pad(torch.relu(x), (1, 2, 3, 0), value=0.5)"),
    "crop": reference("F.pad(torch.relu(x), (-1, 2)) + 1.0"),
    "reflect": reference("F.pad(torch.relu(x), (2, 1), mode='reflect')", CUBE),
    "replicate": reference("F.pad(torch.relu(x), (2, 1), mode='replicate')", CUBE),
    "circular": reference("F.pad(torch.relu(x), (2, 1), mode='circular')", CUBE),
    "roll": reference("torch.roll(torch.relu(x), (1, -2), (0, 1))"),
    "flip": reference("torch.flip(torch.relu(x), (1,)) + 1.0"),
    "repeat": reference("torch.relu(x).repeat(2, 3) + 1.0"),
    "repeat_in_front": reference("torch.relu(x).repeat(3, 1, 2) + 1.0"),
    "repeat_interleave": reference("torch.relu(x).repeat_interleave(3, 1) + 1.0"),
    "diagonal": reference("torch.diagonal(torch.relu(x), 1, 0, 2) * 2.0", CUBE),
    "slice_scatter": reference(
        "torch.slice_scatter(torch.relu(x), torch.tanh(y), 1, 2, 5) + 1.0", "torch.randn(n, m), torch.randn(n, 3)"
    ),
    "select_scatter": reference(
        "torch.select_scatter(torch.relu(x), torch.tanh(y), 1, -2) + 1.0", "torch.randn(n, m), torch.randn(n)"
    ),
    "embedding": reference("F.embedding(torch.arange(n) % 4, self.w) * x", "torch.randn(n, 8)", ROWS),
    "index": reference("torch.relu(x)[torch.arange(n) % 5 - 3] * 2.0"),
    "two_indices": reference("torch.relu(x)[:, torch.arange(m) % 4, torch.arange(m) % 3 - 1] * 2.0", CUBE),
    "indices_apart": reference("torch.relu(x)[torch.arange(m) % 4, :, torch.arange(m) % 3 - 1] * 2.0", CUBE),
    "index_select": reference("torch.relu(x).index_select(1, torch.arange(n) % 4) * 2.0"),
    "gather": reference("torch.log_softmax(x, -1).gather(1, torch.arange(n).view(n, 1) % 5) * 2.0"),
    "pixel_shuffle": reference(
        "torch.relu(x).view(n, 2, 3, k).permute(0, 2, 1, 3).reshape(n, 6, k) * 2.0", "torch.randn(n, 6, k)"
    ),
    "windows": reference(
        "torch.roll(torch.relu(x), (-2, -2), (1, 2)).view(2, 3, 2, 4, 2, k).permute(0, 1, 3, 2, 4, 5)"
        ".reshape(24, 4, k) + 1.0",
        "torch.randn(2, 6, 8, k)",
    ),
    "rotary": reference(f"x * y + {HALVES.format('x')} * z", ROTATED),
    "norm_then_rotary": reference(
        f"(lambda h: h * y + {HALVES.format('h')} * z)(F.rms_norm(x, (x.shape[-1],)))", ROTATED
    ),
    "softmax_of_joined": reference(
        "torch.softmax(torch.cat((torch.relu(x), y), -1), -1)", "torch.randn(n, m), torch.randn(n, k)"
    ),
    "norm_of_transposed": reference("F.layer_norm(torch.relu(x).transpose(1, 2), (k,))", CUBE),
    "norm_then_permuted": reference("F.layer_norm(x, (m,)).permute(0, 2, 1) * 2.0", CUBE),
    "sum_of_padded": reference("F.pad(torch.relu(x), (1, 2)).sum(-1)"),
    "norm_of_embedded": reference(
        "F.layer_norm(F.embedding(torch.arange(n) % 4, self.w) + x, (8,))", "torch.randn(n, 8)", ROWS
    ),
    "einsum_permuted": reference("torch.einsum('nkm->mnk', torch.relu(x)) * 2.0", CUBE),
    "einsum_of_rows": reference(
        "torch.einsum('nkm,nm->nk', x, torch.tanh(y))", "torch.randn(n, k, m), torch.randn(n, m)"
    ),
    "einsum_of_columns": reference(
        "torch.einsum('nkm,nk->nm', x, torch.tanh(y))", "torch.randn(n, k, m), torch.randn(n, k)"
    ),
    "einsum_outer": reference("torch.einsum('nk,nm->nkm', torch.tanh(x), y)", "torch.randn(n, k), torch.randn(n, m)"),
    "einsum_of_three": reference(
        "torch.einsum('nkm,km,n->mn', x, y, z)", "torch.randn(n, k, m), torch.randn(k, m), torch.randn(n)"
    ),
    "small_values_spread": reference("torch.sigmoid(y) * torch.tanh(x)", "torch.randn(n, m), torch.randn(n, 1)"),
    "token_shift": reference("x - torch.roll(x, 1, 1) + F.pad(x, (1, 0))[:, :-1]"),
}
"""Forms by name. A row's values are shaped [n, m], with both sizes odd in one set of shapes."""
