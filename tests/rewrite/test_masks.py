"""Masks that positions make: what is known of them holds for every index, and attention under them stays what it was."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch

from mtmc.rewrite.algebra import apply_rules
from mtmc.rewrite.algebra.of_positions import known_of
from mtmc.rewrite.algebra.ramps import Ramp, Region
from mtmc.rewrite.exported import export_graph
from mtmc.rewrite.graph import Graph
from mtmc.rewrite.operators.steps import argument
from mtmc.rewrite.plan import Plan, graph_of, root_plan
from mtmc.rewrite.source import print_plan
from mtmc.task import Task, task_from_source
from tests.breadth import WIDE
from tests.rewrite.interpreting import interpret_ways
from tests.rewrite.stepping import after, version

POSITIONS = """
        n, m = x.shape
        row, col = torch.arange(n, device=x.device)[:, None], torch.arange(m, device=x.device)[None]
        line = torch.arange(2, 40, device=x.device)
        document = (torch.diff(col, prepend=col[:, :1] - 1, dim=-1) != 1).cumsum(-1)
        steps = torch.arange(0, 90, 3, device=x.device)
"""
NUMBERS = (
    "row", "col", "line[col]", "line[row]", "document", "document[row * 0, col]", "steps[row]", "col * 2",
    "-row", "3 - col", "(col + 5)[:, 0:]", "row.expand(n, m)", "torch.full((n, m), 4, device=x.device)",
    "col.new_ones((1, 1))", "row.t()[:, :1]", "torch.diff(col * 3, dim=-1, prepend=col[:, :1] - 3)",
    "(col.to(torch.int32) + 1)", "line[2:][row]", "torch.ones_like(col)",
    "torch.diff(row * 2, dim=0, prepend=row[:1] - 1)", "steps[::2][row // 7]", "col[None].squeeze(0)",
    "row.transpose(0, 1)", "(row >= 0).long()", "(row > 3).long()", "torch.cumsum(torch.ones_like(col), -1)",
)  # fmt: skip
COMPARED = ("<=", "<", ">=", ">", "==", "!=")
JOINED = ("{} & {}", "{} | {}", "torch.logical_and({}, {})", "~{} & {}", "{} * {}", "{} | ~{}")


def truths(count: int) -> list[str]:
    """Expressions of truths over positions, drawn at random, and what models write."""
    rng, found = random.Random(7), list[str]()
    for _ in range(count):
        sides = [rng.choice(NUMBERS) if rng.random() < 0.8 else str(rng.randint(-4, 6)) for _ in range(4)]
        sides[0], sides[2] = rng.choice(NUMBERS), rng.choice(NUMBERS)
        first, second = (f"({a} {rng.choice(COMPARED)} {b})" for a, b in (sides[:2], sides[2:]))
        found.append(rng.choice((*JOINED, "{}", "{}")).format(first, second))
    return found


def exported(lines: list[str]) -> tuple[Graph, list[list[torch.Tensor]]]:
    """The graph of a forward that returns all of these truths, and what they are at each of its shapes."""
    returned = ", ".join(f"({line}).expand(n, m)" for line in lines)
    source = f"""import torch
from torch import nn
rows, cols = 24, 24
VARIANTS = {{"small": {{"rows": 8, "cols": 11}}, "odd1": {{"rows": 7, "cols": 5}}}}
class Model(nn.Module):
    def forward(self, x):{POSITIONS}
        return [{returned}]
def get_inputs():
    return [torch.randn(rows, cols)]
def get_init_inputs():
    return []
"""
    names: dict[str, Any] = {}
    exec(source, names)
    shapes = ((24, 24), (8, 11), (7, 5))
    return export_graph(task_from_source(source, "truths")), [names["Model"]()(torch.zeros(s)) for s in shapes]


def drawn(known: Region, shape: tuple[int, int]) -> torch.Tensor:
    """Where a region is."""
    found = torch.ones(shape, dtype=torch.bool)
    for bound in known.bounds:
        rows, cols = (torch.arange(size) * step for size, step in zip(shape, bound.steps, strict=True))
        found &= rows[:, None] + cols + bound.start <= 0
    return found


def test_what_is_known_of_positions_holds_for_every_index() -> None:
    lines, known = [], 0
    count = 240 if WIDE else 80
    for line in truths(count):
        try:
            exec(
                "import torch\ndef f(x):" + POSITIONS + f"        return ({line}).expand(n, m)\n"
                "f(torch.zeros(24, 24)), f(torch.zeros(8, 11)), f(torch.zeros(7, 5))",
                {},
            )
        except (RuntimeError, IndexError):
            continue
        lines.append(line)
    assert len(lines) > 0.6 * count
    graph, wanted = exported(lines)
    for line, item, *each in zip(lines, graph.output, *wanted, strict=True):
        found = known_of(graph, item)
        if found is None:
            continue
        assert isinstance(found, Region) and found.rank == 2, line
        known += 1
        for truth in each:
            assert torch.equal(drawn(found, tuple(truth.shape)), truth), (line, found)  # type: ignore[arg-type]
    assert known > len(lines) / 3, (known, len(lines))


@pytest.mark.parametrize(
    ("line", "bounds"),
    [
        ("line[col] <= line[row]", {Ramp((-1, 1), 0)}),
        ("document == document[:, :1]", set()),
        ("(row >= col) & (row - col < 4) & (document[row * 0, col] == 0)", {Ramp((-1, 1), 0), Ramp((1, -1), -3)}),
        ("col - row > 0", {Ramp((1, -1), 1)}),
        ("x > 0", None),
        ("line[-1 - row] > col", None),
        ("(col <= row) | (col < 2)", None),
        ("col % 3 == 0", None),
    ],
)
def test_what_models_write(line: str, bounds: set[Ramp] | None) -> None:
    graph, _ = exported([line])
    found = known_of(graph, graph.output[0])
    assert found is None if bounds is None else found == Region(2, frozenset(bounds))


SEEN = "position[at, col] <= position[at, row]"
DOCUMENTS = "(document[at, row] == document[at, col])"
SPREAD = "{0} = {0}[:, :, None].expand(q.shape[0], 2, 2, n, 16).reshape(q.shape[0], 4, n, 16)"


def decoder(mask: str, keys: str = "", dtype: str = "float32", batch: int = 1) -> str:
    """Attention as models of the transformers library write it. mask: over positions; keys: what becomes of k and v."""
    heads = 2 if keys else 4
    return f"""import torch
from torch import nn
from torch.nn.functional import scaled_dot_product_attention
S = 48
VARIANTS = {{"small": {{"S": 16}}, "odd1": {{"S": 13}}}}
class Model(nn.Module):
    def forward(self, q, k, v, keep):
        n = q.shape[2]
        position = torch.arange(n, device=q.device)[None] + 0
        document = (torch.diff(position, prepend=position[:, :1] - 1, dim=-1) != 1).cumsum(-1)
        at = torch.arange(1, device=q.device)[:, None, None, None]
        row = (torch.arange(n, device=q.device) + 0)[None, None, :, None]
        col = (torch.arange(n, device=q.device) + 0)[None, None, None, :]
        mask = (row.new_ones((), dtype=torch.bool) & ({mask})).expand({batch}, -1, n, n)
        {keys or "pass"}
        return scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=0.2) + 0
def get_inputs():
    q, k, v = (torch.randn({batch}, heads, S, 16).to(torch.{dtype}) for heads in (4, {heads}, {heads}))
    return [q, k, v, torch.rand(S) > 0.5]
def get_init_inputs():
    return []
"""


def rewritten(source: str) -> tuple[Task, Graph, Plan, tuple[str, ...]]:
    """The version after the rules on masks."""
    task = task_from_source(source, "decoder")
    graph = export_graph(task)
    start = root_plan(graph)
    found = apply_rules(graph, "masks")
    after = root_plan(found.graph)
    plan = Plan(**{**vars(start), "stages": after.stages, "algebra": ("masks",)})
    return task, graph_of(graph, plan), plan, found.sentences


BOTH = "; ".join(SPREAD.format(name) for name in "kv")


@pytest.mark.parametrize(
    ("source", "said", "causal", "grouped"),
    [
        (decoder(f"({SEEN}) & {DOCUMENTS}"), "is_causal says so", True, False),
        (decoder(DOCUMENTS), "leaves all positions", False, False),
        (decoder(f"({SEEN}) & (position[at, row] < position[at, col] + 8) & {DOCUMENTS}"), "rows and columns", False, False),
        (decoder(SEEN, BOTH, "bfloat16"), "for several heads", True, True),
        (decoder(SEEN, "k, v = (x.repeat_interleave(2, dim=1) for x in (k, v))", "float16", 2), "several heads", True, True),
        (decoder(SEEN, BOTH), "is_causal says so", True, False),
        (decoder("(position[at, col] < position[at, row] + 1)", batch=3), "is_causal says so", True, False),
    ],
)  # fmt: skip
def test_attention_stays_what_it_was(source: str, said: str, causal: bool, grouped: bool) -> None:
    task, graph, plan, sentences = rewritten(source)
    assert said in " ".join(sentences)
    attention = next(op for op in graph.ops if "attention" in op.target)
    assert (argument(attention, 5, "is_causal", False), argument(attention, 7, "enable_gqa", False)) == (
        causal,
        grouped,
    )
    text = print_plan(task, graph, plan).source
    assert "cumsum" not in text and "diff" not in text
    names: dict[str, Any] = {}
    exec(source, names)
    version: dict[str, Any] = {}
    exec(text, version)
    for size in (48, 13, 1, 30):
        names["S"] = size
        given = names["get_inputs"]()
        wanted, found = names["Model"]()(*given), version["ModelNew"]()(*given)
        assert found.shape == wanted.shape and found.dtype == wanted.dtype
        torch.testing.assert_close(found, wanted)


def test_a_mask_that_is_added_is_made_of_rows_and_columns() -> None:
    source = decoder(f"({SEEN}) & {DOCUMENTS}").replace(
        "return scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=0.2) + 0",
        "left = torch.where(mask, 0.0, -1e9); return torch.softmax(q @ k.mT * 0.2 + left, -1) @ v",
    )
    _, graph, _, sentences = rewritten(source)
    assert len(sentences) == 1 and "made of rows and columns alone" in sentences[0]
    assert not {"cumsum", "diff", "index"} & {op.target.split(".")[1] for op in graph.ops}
    assert interpret_ways({"added": source}, [[ALGEBRA, "lower"], [ALGEBRA, "fuse"]]) == {"added": None}


@pytest.mark.parametrize(
    "source",
    [
        decoder(f"({SEEN}) & keep"),  # what comes in
        decoder("(position[at, col] <= position[at, row] + 1)").replace("[at, ", "[at * 0, "),  # one further, looked up
        decoder(SEEN, SPREAD.format("k") + "; v = v.repeat(1, 2, 1, 1)", "bfloat16"),  # in another order
        decoder("(col <= row + 3)"),  # a kernel of attention reads that as it is
    ],
)
def test_what_is_another_mask_or_another_order_is_none_of_these(source: str) -> None:
    _, graph, _, sentences = rewritten(source)
    attention = next(op for op in graph.ops if "attention" in op.target)
    assert not any("several heads" in sentence for sentence in sentences)
    assert argument(attention, 5, "is_causal", False) is ("repeat(1, 2" in source)


TURNED = "q = (q * torch.cos(position.to(torch.float32) * 0.1)[:, None, :, None]).tanh() + document[:, None, :, None]"
FUSED, ALGEBRA = "fuse all neighbours", "rewrite by algebra: the mask"


def test_what_is_left_of_kernels_that_made_the_mask_among_other_things() -> None:
    """Positions that turn queries too are in one kernel with the mask, which then loses its part."""
    window = f"({SEEN}) & (position[at, row] < position[at, col] + 8) & {DOCUMENTS}"
    cases = {
        "causal": decoder(f"({SEEN}) & {DOCUMENTS}", TURNED + "; q, k, v = q, q[:, :, :n], q * 2"),
        "window": decoder(window, TURNED + "; k, v = q.sin(), q * 2"),
    }
    ways = [[FUSED, ALGEBRA], [FUSED, ALGEBRA, "lower"], [ALGEBRA, "lower scaled", "fuse"]]
    assert interpret_ways(cases, ways) == dict.fromkeys(cases)


def test_the_rule_comes_after_fusion_and_says_what_it_saves() -> None:
    task = task_from_source(decoder(f"({SEEN}) & {DOCUMENTS}", TURNED + "; k, v = q.sin(), q * 2"), "decoder")
    _, fused = after(version(task), FUSED)
    action, made = after(fused, ALGEBRA)
    saved = int(dict(action.params)["saved"])
    assert saved == len(fused.working()) - len(made.working()) > 2
    assert {"diff", "cumsum"} & {op.name for op in made.graph.ops} == {
        "diff",
        "cumsum",
    }  # queries are moved by documents
    assert all(set(stage.ops) <= set(made.graph.by_name) for stage in made.plan.stages)
