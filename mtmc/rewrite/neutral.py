"""neutral: kernels' texts without the names of their graph, by which those that do the same are printed once."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache

from mtmc.rewrite.graph import Graph
from mtmc.rewrite.plan import Stage
from mtmc.rewrite.templates.launcher import Printed

_PROSE = re.compile(r'^    """.*?"""\n|^ *#[^\n]*\n|  #[^\n]*', re.MULTILINE | re.DOTALL)
_ENSURED = re.compile(r"^    (@\d+) = \1\.contiguous\(\)\n", re.MULTILINE)


def printed_once(graph: Graph, printed: Mapping[Stage, Printed]) -> dict[Stage, Stage]:
    """For each stage the first one whose text serves it too.

    A text that makes sure of the order of a tensor in memory serves a stage whose tensor is known to have it.
    """
    first: dict[tuple[str, frozenset[str]], Stage] = {}
    found: dict[Stage, Stage] = {}
    for stage, kernel in printed.items():
        text, ensured = neutral_text(graph, stage, kernel)
        wider = (known for (other, more), known in first.items() if other == text and ensured <= more)
        found[stage] = next(wider, stage)
        first.setdefault((text, ensured), found[stage])
    return found


@lru_cache(maxsize=4096)
def neutral_text(graph: Graph, stage: Stage, printed: Printed) -> tuple[str, frozenset[str]]:
    """A stage's text with its ops and values named by their place in it, and the values whose order it makes sure of.

    Two stages with the same text are the same function of their tensors and numbers, taken and returned in the same order.
    """
    ops = [graph.by_name[name] for name in stage.ops]
    names = [stage.title, *(op.name for op in ops), *(out for op in ops for out in op.outputs)]
    names += [*printed.tensors, *printed.results, *(ref for op in ops for ref in op.refs())]
    # What stands behind a dot is no name of the graph, though an op may be called so: tl.sin.
    places = {name: f"@{place}" for place, name in enumerate(dict.fromkeys(names))}
    longest = sorted(places, key=len, reverse=True)
    found = re.compile(r"(?<![\w.])(launch_)?(" + "|".join(map(re.escape, longest)) + r")(?![A-Za-z0-9])")
    text = found.sub(lambda match: (match[1] or "") + places[match[2]], _PROSE.sub("", printed.text))
    return _ENSURED.sub("", text), frozenset(match[1] for match in _ENSURED.finditer(text))
