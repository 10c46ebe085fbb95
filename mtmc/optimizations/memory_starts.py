"""memory_starts: the schedule that a kernel which waits for memory starts with on a GPU."""

from __future__ import annotations

from mtmc.hardware import Hardware
from mtmc.rewrite.body import Body
from mtmc.rewrite.graph import Graph, product
from mtmc.rewrite.plan import Stage
from mtmc.rewrite.templates.eviction import KEPT, POLICY
from mtmc.rewrite.templates.pointwise import ELSEWHERE, tile_of
from mtmc.rewrite.templates.row_shared import SHARED, pieces_of
from mtmc.rewrite.templates.rows import rows_of
from mtmc.rewrite.templates.rowwise import looping, sharing

TIMED = "sm_90"
"""The target on which the following was timed."""
CACHES = 2
"""Of how many L2 caches' bytes a kernel is that reads and writes far more than one holds. Where another one reads what it
writes, that alone has to be as much: of less, the other would find some in the cache."""


def of_rows(graph: Graph, body: Body, stage: Stage, hardware: Hardware) -> Stage:
    """Rows that programs hold together are shared by no more of them than the GPU has multiprocessors: others loop."""
    if stage.setting("passes") == SHARED:
        layout = rows_of(graph, body, stage)
        pieces = pieces_of(layout, hardware.sms)
        if stage.number("block_cols") in pieces:
            return stage
        return stage.scheduled(sharing(pieces[0]) if pieces else looping(graph, body, layout))
    in_passes = stage.setting("passes") == "loop" and stage.number("split") == 1
    return stage if in_passes else kept(graph, body, stage, hardware)


def kept(graph: Graph, body: Body, stage: Stage, hardware: Hardware) -> Stage:
    """What a kernel reads once is the last that leaves the cache, where as many elements are written: what was written
    leaves before, piece after piece. H200: rows held in registers 3% to 7% faster, elementwise work 1% to 2%, running sums
    5%, batch norm 2%. Not where several programs hold a row, 8% slower to 1% faster, nor where rows are reduced alone, 8%
    slower to 6% faster, nor where elements are asked for elsewhere, 9% slower to 2% faster (results/eviction_h200.md)."""
    if hardware.target != TIMED or tile_of(stage) or any(node.kind in ELSEWHERE for node in body.nodes):
        return stage
    counts = {value: product(graph.values[value].shape) for value in (*body.loads, *body.stores)}
    sizes = {value: count[0] if count else 1 for value, count in counts.items()}
    most = max(sizes[value] for value in body.loads) if body.loads else 0
    if not any(sizes[value] >= most > 1 for value in body.stores):
        return stage
    read_on = any(op not in stage.ops for value in body.stores for op in graph.readers(value))
    counted = body.stores if read_on else (*body.loads, *body.stores)
    moved = sum(sizes[value] * graph.values[value].element_bytes for value in counted)
    return stage.scheduled({POLICY: KEPT}) if moved >= CACHES * hardware.l2_bytes else stage
