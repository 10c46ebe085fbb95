"""Which of many small outputs are right, told together: the rules are those of `mtmc.evaluate.reference.compare`.

Only what passes is told. Of what does not, or cannot be told from norms, `compare.check_output` says what is wrong.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import torch

from mtmc.evaluate.reference.compare import (
    USUAL_MOVES,
    Calibrated,
    Expected,
    error_of_distance,
    error_of_norms,
    sum_dtype,
)
from mtmc.evaluate.reference.distance import Limits, read, vector_norm
from mtmc.evaluate.reference.side_by_side import side_by_side
from mtmc.evaluate.reference.tf32 import ALLOWED
from mtmc.task.quantized import is_fp8

Pair: TypeAlias = "tuple[torch.Tensor, Expected | Calibrated]"


def right_ones(pairs: Sequence[Pair]) -> dict[int, float]:
    """Norm-wise errors (0 for integers) of small outputs that are right, by their positions among outputs and what they are
    measured by."""
    alike = [at for at, (got, want) in enumerate(pairs) if _is_alike(got, want.value)]
    found = dict[int, float]()
    for kind in (_equal, _beside_oracles, _near):
        found |= kind(pairs, alike)
    return found


def _is_alike(got: torch.Tensor, value: torch.Tensor) -> bool:
    """Whether it is compared by numbers at all, on one device."""
    return got.shape == value.shape and got.dtype == value.dtype and got.device == value.device


def _equal(pairs: Sequence[Pair], alike: list[int]) -> dict[int, float]:
    """Of integers those of which every one is the reference's."""
    chosen = [at for at in alike if not (pairs[at][0].is_floating_point() or pairs[at][0].is_complex())]
    tables = [
        ([chosen[at] for at in positions], (got == value).all(1, keepdim=True).double())
        for positions, (got, value) in side_by_side([(pairs[at][0], pairs[at][1].value) for at in chosen])
    ]
    return {at: 0.0 for places, rows in read(tables) for at, [same] in zip(places, rows, strict=True) if same}


def _floating(pairs: Sequence[Pair], alike: list[int], kind: type) -> list[int]:
    """Positions of outputs that are measured so."""
    asked = [at for at in alike if isinstance(pairs[at][1], kind) and pairs[at][0].is_floating_point()]
    return [at for at in asked if not is_fp8(pairs[at][0].dtype)]


def _beside_oracles(pairs: Sequence[Pair], alike: list[int]) -> dict[int, float]:
    """Those with a float64 oracle."""
    tables, items, wants = [], [], dict[int, Expected]()
    chosen = _floating(pairs, alike, Expected)
    for at in chosen:
        got, want = pairs[at]
        assert isinstance(want, Expected)
        wants[at] = want
        items.append([got, want.value, want.oracle, want.rounded, *([] if want.moved is None else [want.moved])])
    for positions, rows in side_by_side(items, [wants[at].tolerance for at in chosen]):
        places = [chosen[at] for at in positions]
        relative = Limits.of(rows[0].dtype, wants[places[0]].tolerance).relative
        tables.append((places, _norms(rows, relative)))
    found = dict[int, float]()
    for places, lines in read(tables):
        for at, (*norms, worst) in zip(places, lines, strict=True):
            if (error := error_of_norms(wants[at], norms, worst)) is not None:
                found[at] = error
    return found


def _norms(rows: Sequence[torch.Tensor], relative: float) -> torch.Tensor:
    """What `compare.error_of_norms` asks for, of each row of c, r, o, p and, where the library may convolve in TF32, of what
    that moves."""
    c, r, o, p, *moves = (each.double() for each in rows)
    excess = (c - r).abs_().sub_(r.abs(), alpha=relative)
    moved = moves[0] if moves else torch.zeros_like(o)
    if moves:
        usual = USUAL_MOVES * torch.where(torch.isfinite(moved), moved, 0.0).square().mean(1, keepdim=True).sqrt()
        excess.sub_(torch.maximum(moved, usual), alpha=ALLOWED)
    norms = [vector_norm(each, 1) for each in (c - o, r - o, p - o, moved, o)]
    return torch.stack([*norms, excess.amax(1)], 1)


def _near(pairs: Sequence[Pair], alike: list[int]) -> dict[int, float]:
    """Those of which the precision alone is known."""
    chosen = _floating(pairs, alike, Calibrated)
    tables = []
    for positions, (got, value) in side_by_side([(pairs[at][0], pairs[at][1].value) for at in chosen]):
        wide = sum_dtype(got)
        off, y = got.to(wide) - value.to(wide), value.to(wide)
        table = torch.stack([vector_norm(off, 1), vector_norm(y, 1), off.abs().amax(1)], 1)
        tables.append(([chosen[at] for at in positions], table.double()))
    found = dict[int, float]()
    for places, lines in read(tables):
        for at, known in zip(places, lines, strict=True):
            got, want = pairs[at]
            assert isinstance(want, Calibrated)
            if (error := error_of_distance(got, want, *known)) is not None:
                found[at] = error
    return found
