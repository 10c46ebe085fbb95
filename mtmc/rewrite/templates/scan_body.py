"""scan_body: what a body with scans along one dimension may have in it, and what of it hangs on what.

Beside scans it may have elementwise work, flips that make scans go from the last column to the first, and reductions of the
same rows.
"""

from __future__ import annotations

from mtmc.rewrite.body import Body, Node, NotCovered, leading_to
from mtmc.rewrite.graph import Shape, product, same

_REDUCED = ("sum", "max", "amax", "amin")
"""What a row of elements beside a scan may be reduced to in the same kernel."""


def scanned(body: Body) -> tuple[Shape, int]:
    """Shape and dimension of the scans. Raises: NotCovered."""
    scans = scans_of(body)
    if any(node.dims != scans[0].dims or len(node.dims) != 1 for node in scans):
        raise NotCovered("scans along more than one dimension")
    if any(node.kind not in ("scan", "map", "view", "index", "reduce") for node in body.nodes):
        raise NotCovered("a scan with more than elementwise work and reductions around it")
    dim, shape = scans[0].dims[0], scans[0].shape
    if any(scan.shape != shape for scan in scans):
        raise NotCovered("scans of several shapes")
    of_rows = row_values(body, shape, dim)
    if any(
        (node := body.node(value)) is None or (value not in of_rows and not same(product(node.shape), product(shape)))
        for value in body.stores
    ):
        raise NotCovered("results of another shape than that of a scan")
    if any(map(is_flip, body.nodes)) and (of_rows or any(not _fits_a_flip(node, shape, dim) for node in body.nodes)):
        raise NotCovered("work of another shape around a scan from the end, or a flip of another dimension")
    return shape, dim


def scans_of(body: Body) -> list[Node]:
    """Its scans."""
    return [node for node in body.nodes if node.kind == "scan"]


def reductions_of(body: Body) -> list[Node]:
    """Its reductions."""
    return [node for node in body.nodes if node.kind == "reduce"]


def row_values(body: Body, shape: Shape, dim: int) -> list[str]:
    """The names of the reductions of a scan's rows, and of what is made of them, in order. Raises: NotCovered where one is
    of anything else, or where anything but a number a row waits for one."""
    rows, found = product((*shape[:dim], *shape[dim + 1 :])), list[str]()
    for node in reductions_of(body):
        operand = body.node(node.reads()[0])
        if operand is None or operand.shape != shape or node.dims != (dim,) or node.operation not in _REDUCED:
            raise NotCovered("a reduction beside a scan of anything but its rows, or to a place")
    for node in body.nodes:
        if node.kind == "reduce":
            found.append(node.name)
        elif set(found) & set(node.reads()):
            if node.kind != "map" or not same(product(node.shape), rows):
                raise NotCovered("a scan beside work on its elements that waits for a whole row")
            found.append(node.name)
    return found


def _fits_a_flip(node: Node, shape: Shape, dim: int) -> bool:
    return node.shape == shape and (node.kind in ("scan", "map") or (is_flip(node) and node.dims == (dim,)))


def is_flip(node: Node) -> bool:
    """Whether a node is the elements of another in reverse order."""
    return node.kind == "index" and node.operation == "flip"


def directions(body: Body) -> dict[str, bool]:
    """Which nodes and loads count their columns from the end, so that scans themselves go from first to last.

    Raises: NotCovered where work is on columns in both directions.
    """
    scans = scans_of(body)
    if not any(map(is_flip, body.nodes)):
        return dict.fromkeys((node.name for node in body.nodes), False)
    flipped = dict.fromkeys((name for scan in scans for name in (scan.name, *scan.reads())), False)
    leading = leading_to(body, (read for scan in scans for read in scan.reads()))
    before = [node for node in body.nodes if node.name in leading]
    for node in reversed(before):
        for read in node.reads():
            _flip(body, flipped, read, flipped[node.name] != is_flip(node))
    for node in body.nodes:
        if node in before or node in scans:
            continue
        ways = {flipped[read] for read in node.reads() if read in flipped and body.node(read) is not None}
        if len(ways) > 1:
            raise NotCovered("work on columns in both directions")
        flipped[node.name] = (ways.pop() if ways else False) != is_flip(node)
    return flipped


def _flip(body: Body, flipped: dict[str, bool], read: str, way: bool) -> None:
    if body.node(read) is not None and flipped.setdefault(read, way) != way:
        raise NotCovered("work on columns in both directions")


def levels_of(body: Body) -> dict[str, int]:
    """How many scans each scan hangs on, one after another."""
    levels = dict[str, int]()
    for scan in scans_of(body):
        before = leading_to(body, scan.reads())
        levels[scan.name] = max((level + 1 for name, level in levels.items() if name in before), default=0)
    return levels
