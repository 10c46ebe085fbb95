"""titles: what a kernel is called by what it does: rmsnorm, swiglu, rope. Pure, by the names of its ops."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

_NUMBER = re.compile(r"(?:_\d*)+$")
_PLAIN_WORDS = (
    "add sub mul div neg pow square mean sum rsqrt sqrt reciprocal amax exp abs max min eq ne lt gt le ge where to clone "
    "copy contiguous view reshape expand unsqueeze squeeze permute transpose slice select flatten unflatten chunk split "
    "cat arange full zeros ones round clamp cos sin gather nll_loss scalar_tensor detach t type_as float half bfloat16"
)
_PLAIN = frozenset(_PLAIN_WORDS.split())
"""Names of ops that say nothing beside one that was recognized."""
MOST = 3
"""Words of a title."""


@dataclass(frozen=True)
class Known:
    """Something that is recognized. word: its name. mark: name of the op that it is known by, of which each has a number of
    its own, so that no two kernels of a graph are called the same. belongs: whether ops, in order and without their numbers,
    are such a thing, by the place of the mark."""

    word: str
    mark: str
    belongs: Callable[[Sequence[str], int], bool]


def _has(ops: Sequence[str], *names: str) -> bool:
    return set(names) <= set(ops)


def _norm(ops: Sequence[str], at: int) -> bool:
    return _has(ops[:at], "mean") and "mul" in ops[at:]


def _gated(ops: Sequence[str], at: int) -> bool:
    return "mul" in ops[at:]


KNOWN = (
    Known("layernorm", "rsqrt", lambda ops, at: _norm(ops, at) and "sub" in ops[:at]),
    Known("rmsnorm", "rsqrt", lambda ops, at: _norm(ops, at) and bool({"pow", "square", "mul"} & {*ops[:at]})),
    Known("swiglu", "silu", _gated),
    Known("geglu", "gelu", _gated),
    Known(
        "rope", "cat", lambda ops, at: ops.count("mul") > 1 and _has(ops, "add") and bool({"neg", "sub"} & {*ops[:at]})
    ),
    Known("rope_angles", "cos", lambda ops, at: _has(ops, "sin", "mul") and not _has(ops, "add")),
    Known("row_softmax", "exp", lambda ops, at: _has(ops[at:], "sum", "div") and bool({"amax", "max"} & {*ops[:at]})),
    Known("cross_entropy", "log_softmax", lambda ops, at: bool({"gather", "nll_loss"} & {*ops[at:]})),
    Known("quantize", "round", lambda ops, at: _has(ops[at:], "clamp") and _has(ops[:at], "div")),
)
"""The first that belongs counts, for each mark."""


@lru_cache(maxsize=65536)
def title(ops: tuple[str, ...]) -> str | None:
    """What ops together are called, "add_rmsnorm_2"; None where nothing is recognized.

    ops: names in a graph, in its order."""
    bare = [_NUMBER.sub("", op) for op in ops]
    found: dict[int, str] = {}
    for at, name in enumerate(bare):
        known = next((each for each in KNOWN if each.mark == name and each.belongs(bare, at)), None)
        if known is not None and known.word not in found.values():
            found[at] = known.word
    if not found:
        return None
    first = min(found)
    words = [found.get(at, "" if name in _PLAIN else name) for at, name in enumerate(bare)]
    if found[first].endswith("norm") and "add" in bare[: bare.index("mean")]:
        words.insert(0, "add")
    words = [*dict.fromkeys(word for word in words if word)]
    if len(words) > MOST:
        words = list(found.values())[:MOST]
    return "_".join(words) + ops[first][len(bare[first]) :]
