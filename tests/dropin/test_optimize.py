"""optimize(), from a module to a drop-in whose kernels a search has found in the lab."""

from __future__ import annotations

import sys
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import mtmc
from mtmc.search import SearchResult, search
from tests.whole.toy import KernelCounter

X = torch.linspace(-2, 2, 5 * 3 * 8).reshape(5, 3, 8)


class Scaled(nn.Module):
    """Elementwise work over several dimensions, with a second input of fewer; of ops that Triton itself has."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(8))

    def forward(self, x: torch.Tensor, shift: torch.Tensor, scale: float = 0.5) -> tuple[torch.Tensor, None]:
        return torch.exp(x * self.weight * scale) + shift * 2, None


@pytest.fixture(scope="module")
def optimized() -> Iterator[nn.Module]:
    before = set(Path(tempfile.gettempdir()).glob("mtmc-best-*"))
    with pytest.MonkeyPatch.context() as patch:

        def found(*args: Any, **settings: Any) -> SearchResult:
            """As without a GPU; what follows is as with one, which Triton's interpreter plays."""
            result = search(*args, **settings)
            patch.setenv("TRITON_INTERPRET", "1")
            return result

        patch.setattr(sys.modules["mtmc.dropin.optimize"], "search", found)
        yield mtmc.optimize(Scaled().eval(), (X, X[0]), {"scale": 0.5}, budget=2, seed=0, cache=False)
    assert set(Path(tempfile.gettempdir()).glob("mtmc-best-*")) == before, "nothing is left in the temporary directory"


def test_the_kernels_that_were_found_run_and_say_what_they_hold_for(optimized: nn.Module) -> None:
    assert optimized.mtmc.reason is None
    assert optimized.mtmc.result.best.speedup > 1 and "Holds for the following alone" in optimized.mtmc.versions[0]
    with torch.no_grad():
        found, nothing = optimized(X, X[0])
        assert nothing is None and torch.allclose(found, Scaled.forward(optimized, X, X[0])[0], atol=1e-6)
    assert (optimized.mtmc.kernel_calls, optimized.mtmc.original_calls) == (1, 0), dict(optimized.mtmc.reasons)
    assert optimized.mtmc.reason is None


@pytest.mark.parametrize(
    ("x", "shift", "scale"),
    [
        (X, X[0], 0.25),
        (X, X, 0.5),
        (X, X[0, :1], 0.5),
        (X, X[0, 0], 0.5),
        (X[:, :1], X[0], 0.5),
        (X[0], X[0], 0.5),
        (X.transpose(0, 1).contiguous().transpose(0, 1), X[0], 0.5),
        (X, X[0].t().contiguous().t(), 0.5),
        (X.double(), X[0], 0.5),
        (X.half(), X[0].half(), 0.5),
    ],
)
def test_what_they_do_not_hold_for_is_the_originals(
    optimized: nn.Module, x: torch.Tensor, shift: torch.Tensor, scale: float
) -> None:
    before = optimized.mtmc.kernel_calls
    with torch.no_grad():
        found = optimized(x, shift, scale)[0]
    wanted = Scaled.forward(optimized, x, shift, scale)[0]
    assert torch.equal(found, wanted) and found.dtype == wanted.dtype
    assert optimized.mtmc.kernel_calls == before


def test_compiled_with_the_guards_of_the_search(optimized: nn.Module) -> None:
    with torch.no_grad():
        optimized(X, X[0])
        compiled = torch.compile(optimized, backend="eager", fullgraph=True)
        for x, shift in ((X, X[0]), (X[:2], X[0]), (X, X)):
            assert torch.allclose(compiled(x, shift)[0], optimized(x, shift)[0], atol=1e-6)
        before = optimized.mtmc.kernel_calls
        optimized(X, X[0])
        assert optimized.mtmc.kernel_calls == before + 1, "what torch.compile notes on the module changes nothing"


@pytest.mark.parametrize("captured_at", [8, 1])
def test_a_batch_of_one_where_the_example_had_more_and_the_other_way_round(
    monkeypatch: pytest.MonkeyPatch, captured_at: int
) -> None:
    """Kernels where they hold, the original with the reason where they do not, both with both examples; never an error."""
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    module = Scaled().eval()

    def example(batch: int) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.linspace(-1, 1, batch * 8).reshape(batch, 8), torch.ones(batch, 8)

    def called(made: nn.Module, batch: int) -> bool:
        """Whether kernels have run; the result is right whoever has computed it."""
        before, given = made.mtmc.kernel_calls, example(batch)
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found, wanted = made(*given)[0], module(*given)[0]
        assert found.shape == wanted.shape and torch.allclose(found, wanted, atol=1e-5)
        return bool(made.mtmc.kernel_calls > before)

    parts: dict[str, Any] = {"budget": 2, "cache": False, "dumps": False, "evaluator": KernelCounter()}
    made = mtmc.optimize(module, example(captured_at), **parts)
    assert [called(made, batch) for batch in (1, 2, 5, 8)] == [captured_at == 1, *[captured_at == 8] * 3]
    others = [1] if captured_at == 8 else [2, 5, 8]
    must = "2 or more" if captured_at == 8 else "1"
    assert set(made.mtmc.reasons) == {f"x.shape[0] is {batch}, it must be {must}" for batch in others}
    made = mtmc.optimize(made, example(9 - captured_at), **parts)
    assert len(made.mtmc.versions) == 2 and all(called(made, batch) for batch in (1, 2, 5, 8))
