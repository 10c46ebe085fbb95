"""The passes that torch's Fourier transforms make besides: rows made longer, and results scaled."""

from __future__ import annotations

import pytest

from mtmc.rewrite.algebra import apply_rules
from mtmc.rewrite.exported import export_graph
from mtmc.task import task_from_source
from tests.rewrite.interpreting import interpret
from tests.rewrite.references import reference

LONG = "torch.fft.irfft(torch.fft.rfft(x.sin(), n=2 * m) * torch.fft.rfft(self.w, n=2 * m), n=2 * m)[..., :m] * 3 + x"
FILTER = "self.w = nn.Parameter(torch.randn(n, m))"
BOTH = {"a_long_convolution": reference(LONG, init=FILTER)}
SCALED = {
    "odd_lengths": reference("torch.fft.irfft(torch.fft.rfft(x) * y, n=m).cos()", "torch.randn(n, m), torch.rand(1)"),
    "a_length_of_its_own": reference("torch.fft.irfft(torch.fft.rfft(x)) * 2"),
    "two_dimensions": reference("torch.fft.irfft2(torch.fft.rfft2(x), s=(n, m)) * 2"),
    "another_dimension": reference("torch.fft.irfft(torch.fft.rfft(x, dim=0), n=n, dim=0) * 2"),
}
PADDED = {"before_one": reference("torch.fft.rfft(x.exp(), n=m + 5).abs()")}
AS_THEY_ARE = {
    "other_norms": reference('torch.fft.irfft(torch.fft.rfft(x, norm="ortho"), n=m, norm="ortho") * 2'),
    "the_result_itself": reference("torch.fft.irfft(torch.fft.rfft(x), n=m)"),
    "made_shorter": reference("torch.fft.rfft(x.exp(), n=5).abs()"),
    "of_a_weight": reference("torch.fft.rfft(self.w, n=2 * m).abs() + x.sum()", init=FILTER),
    "across_rows": reference("torch.fft.rfft(x.exp(), n=2 * n, dim=0).abs()"),
}


def sentences(source: str) -> tuple[str, ...]:
    return apply_rules(export_graph(task_from_source(source, "transforms")), "passes").sentences


@pytest.mark.parametrize(
    ("name", "source", "ends"),
    [
        *((name, source, ["zeros behind it", "leaves its scale to what reads it"]) for name, source in BOTH.items()),
        *((name, source, ["leaves its scale to what reads it"]) for name, source in SCALED.items()),
        *((name, source, ["zeros behind it"]) for name, source in PADDED.items()),
        *((name, source, []) for name, source in AS_THEY_ARE.items()),
    ],
)
def test_each_pass_becomes_an_op(name: str, source: str, ends: list[str]) -> None:
    found = sentences(source)
    assert len(found) == len(ends) and all(a.endswith(b) for a, b in zip(found, ends, strict=True)), (name, found)


def test_what_is_left_is_right() -> None:
    named = ["rewrite by algebra: fft_rfft", "rewrite by algebra: fft_irfft", "fuse"]
    sources = {**BOTH, **SCALED, **PADDED}
    cases = [{"name": name, "source": text, "ways": [named, [*named, "lower"]]} for name, text in sources.items()]
    assert interpret(cases) == dict.fromkeys(sources)
