"""Chains of ops by chance: what moves elements, reduces and computes, in one kernel or several, gives what torch gives."""

from __future__ import annotations

from tests.breadth import WIDE
from tests.rewrite.chains import WAYS, chain
from tests.rewrite.interpreting import interpret

SEEDS = range(2000, 2040 if WIDE else 2010)


def test_chains_by_chance_give_what_torch_gives() -> None:
    ways = WAYS if WIDE else WAYS[:1]
    cases = [{"name": f"chain{seed}", "source": chain(seed), "ways": ways} for seed in SEEDS]
    found = interpret(cases)
    assert {name: told for name, told in found.items() if told and "was not lowered" not in told} == {}
    assert sum(told is None for told in found.values()) > len(SEEDS) / 2
