"""scan_kernel: the kernels of a stage with scans along one dimension.

A program has some rows and loops over their columns, a block at a time; what the blocks before come to is carried along. A
scan between two flips is one that loops from the last column to the first.

Where rows are few, programs share the columns of each. Then a program begins with what the columns of the programs before it
come to, which a kernel before has worked out. A scan of what another scan makes needs that one's beginnings for its own, so
there are as many such kernels as scans hang on each other.

What rows of elements come to, a sum or the largest, is found on the way; what is made of that stands at the end.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from mtmc.rewrite.body import Body, Node, NotCovered, leading_to
from mtmc.rewrite.graph import Graph, Size, is_one, product, same
from mtmc.rewrite.space import Group
from mtmc.rewrite.templates.pointwise import Variables, load_once, write_maps
from mtmc.rewrite.templates.row_passes import Pass, accumulate, finish, start
from mtmc.rewrite.templates.scan_body import (
    directions,
    is_flip,
    levels_of,
    reductions_of,
    row_values,
    scanned,
    scans_of,
)
from mtmc.rewrite.templates.writer import Writer


@dataclass(frozen=True)
class _Step:
    """A scan, a block at a time. neutral: what it starts from and what stands outside the bounds. scanned: what the blocks
    before and each column of this one come to. total: what the blocks before and this one come to. rule: functions for
    these, where Triton has none."""

    neutral: str
    scanned: str
    total: str
    rule: str = ""


_LOG_SUM_EXP = '''\
@triton.jit
def {rule}_pairs(top, total, other, more):
    """The larger of two numbers, and the sum of exponentials of the distances to it."""
    less = tl.where(top == other, 1.0, tl.exp(-tl.abs(top - other)))  # of two that are infinite, too
    return tl.maximum(top, other), tl.where(top >= other, total + more * less, total * less + more)


@triton.jit
def {rule}_scan(carry, x):
    """log(exp(carry) + sum of exp(x) up to each column)."""
    top, total = tl.associative_scan((x, tl.zeros_like(x) + 1.0), 1, {rule}_pairs)
    top, total = {rule}_pairs(carry, 1.0, top, total)
    return top + tl.log(total)


@triton.jit
def {rule}(carry, x):
    """log(exp(carry) + sum of exp(x)) of each row."""
    top = tl.maximum(carry, tl.max(x, axis=1, keep_dims=True))
    shift = tl.where(tl.abs(top) == float("inf"), 0.0, top)
    return shift + tl.log(tl.exp(carry - shift) + tl.sum(tl.exp(x - shift), axis=1, keep_dims=True))'''
_MULTIPLY = '''\
@triton.jit
def {rule}(a, b):
    """a b."""
    return a * b'''
_STEPS = {
    "cumsum": _Step("0.0", "{carry} + tl.cumsum({value}, axis=1)", "{carry} + tl.sum({value}, axis=1, keep_dims=True)"),
    "cumprod": _Step(
        "1.0",
        "{carry} * tl.cumprod({value}, axis=1)",
        "{carry} * tl.reduce({value}, 1, {rule}, keep_dims=True)",
        _MULTIPLY,
    ),
    "logcumsumexp": _Step('float("-inf")', "{rule}_scan({carry}, {value})", "{rule}({carry}, {value})", _LOG_SUM_EXP),
}
"""The log of summed exponentials is scanned as pairs of the largest number and a sum, which takes one exponential a step."""


class Kernel:
    """A kernel in the making. split: programs that share a row's columns. level: of a kernel that works out what programs'
    columns come to, of the scans that hang on so many others; None: of the one that makes the results."""

    def __init__(self, graph: Graph, body: Body, name: str, split: int = 1, level: int | None = None) -> None:
        self.graph, self.body = graph, body
        self.shape, dim = scanned(body)
        self.outer, self.cols, self.inner = product(self.shape[:dim]), self.shape[dim], product(self.shape[dim + 1 :])
        self.scans = scans_of(body)
        self.name, self.split, self.level = name, split, level
        self.reductions, self.of_rows = reductions_of(body), row_values(body, self.shape, dim)
        if self.reductions and split > 1:
            raise NotCovered("programs that share the columns of rows which are reduced as well")
        self.flipped = directions(body)
        levels = levels_of(body)
        last = len(set(levels.values())) if level is None else level
        self.found = [scan for scan in self.scans if levels[scan.name] == level]
        """Scans of which this kernel finds out what programs' columns come to."""
        self.known = [scan for scan in self.scans if levels[scan.name] < last] if split > 1 else []
        """Scans of which that is known already."""
        self.writer = Writer(graph, body, f"{name}_{'' if level is None else f'totals_{level + 1}_'}kernel")

    @property
    def rows(self) -> Size:
        """Number of rows."""
        return product(tuple(size for size in (self.outer, self.inner) if size))

    @property
    def stores(self) -> tuple[str, ...]:
        """The stage's results that it writes."""
        return self.body.stores if self.level is None else ()

    @property
    def totals(self) -> list[str]:
        """The workspaces that it reads or writes."""
        needed = self._needed()
        return [totals_of(scan) for scan in (*self.known, *self.found) if scan in self.found or scan.name in needed]

    def _needed(self) -> set[str]:
        """The names of what this kernel works out."""
        if self.level is None:
            return {node.name for node in self.body.nodes}
        return leading_to(self.body, (read for scan in self.found for read in scan.reads()))

    def write(self) -> None:
        """Write all of it."""
        writer, needed = self.writer, self._needed()
        rows, cols = writer.preset(self.rows, "n_rows"), writer.preset(self.cols, "n_cols")
        inner = writer.preset(self.inner, "n_inner")
        writer.line("rows = (tl.program_id(0) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS))[:, None]")
        writer.widen("rows")
        writer.line(f"row_mask = rows < {rows}")
        if not is_one(self.inner):
            writer.line(f"outer = rows // {inner}")
            writer.line(f"inner = rows % {inner}")
        first, last = "0", cols
        if self.split > 1:
            writer.line(f"share = tl.cdiv(tl.cdiv({cols}, BLOCK_COLS), SPLIT) * BLOCK_COLS  # columns of each program")
            first, last = "tl.program_id(1) * share", f"tl.minimum((tl.program_id(1) + 1) * share, {cols})"
        for scan in self.scans:
            if scan.name in needed or scan in self.found:
                self._start(scan)
        for node in self.reductions:
            start(writer, node)
        writer.line(f"for start in range({first}, {last}, BLOCK_COLS):")
        writer.level += 1
        writer.line("cols = start + tl.arange(0, BLOCK_COLS)[None, :]")
        writer.line(f"mask = row_mask & (cols < {cols})")
        if any(is_flip(node) for node in self.body.nodes):
            writer.line(f"from_end = {cols} - 1 - cols")
        variables: Variables = {}
        writer.streamed = product(self.shape)
        for node in self.body.nodes:
            if node in self.found:
                self._add_up(node, variables)
            elif node.name not in needed:
                continue
            elif node in self.scans:
                self._scan(node, variables)
            elif node in self.reductions:
                accumulate(writer, node, self._read(node, node.reads()[0], variables), Pass(first, last))
            elif same(product(node.shape), product(self.shape)):  # others are worked out where they are needed
                self._map(node, variables)
        for value in (each for each in self.stores if each not in self.of_rows):
            writer.store_at(value, variables[value], self._groups(self.flipped[value]), "mask")
        writer.level = 1
        self._end_rows(variables, Pass(first, last))
        for scan in self.found:
            writer.line(
                f"tl.store({totals_of(scan)} + rows * SPLIT + tl.program_id(1), {self.carry(scan)}, mask=row_mask)"
            )

    def _end_rows(self, variables: Variables, loop: Pass) -> None:
        """What rows come to, and what is made of that."""
        writer, outer = self.writer, Group("rows", self.outer, "row_mask")
        for node in self.reductions:
            finish(writer, node, loop)
            variables[node.name] = node.name
        groups = (
            (outer,) if is_one(self.inner) else (replace(outer, index="outer"), Group("inner", self.inner, "row_mask"))
        )
        write_maps(writer, [name for name in self.of_rows if name not in variables], groups, variables)
        for value in (each for each in self.stores if each in self.of_rows):
            writer.store_at(value, variables[value], (Group("rows", self.rows, "row_mask"),), "row_mask")

    def _start(self, scan: Node) -> None:
        """What the columns before this program's come to."""
        writer, carry, neutral = self.writer, self.carry(scan), self.neutral(scan)
        kind = "tl.int64" if scan.compute == "int" else "tl.float32"
        writer.line(f"{carry} = tl.full([BLOCK_ROWS, 1], {neutral}, {kind})")
        if scan not in self.known:
            return
        if scan == self.known[0]:
            writer.line("shares = tl.arange(0, SPLIT)[None, :]")
        address = f"{totals_of(scan)} + rows * SPLIT + shares"
        mask = "row_mask & (shares < tl.program_id(1))"
        writer.line(f"{scan.name}_before = tl.load({address}, mask={mask}, other={neutral})")
        writer.line(f"{carry} = {self._text(scan, _STEPS[scan.operation].total, f'{scan.name}_before')}")

    def _text(self, scan: Node, form: str, value: str) -> str:
        return form.format(value=value, carry=self.carry(scan), rule=self._rule(scan.operation))

    def carry(self, scan: Node) -> str:
        """The variable with what the blocks before come to."""
        return "carry" if len(self.scans) == 1 else f"{scan.name}_carry"

    def neutral(self, scan: Node) -> str:
        """What a scan starts from."""
        neutral = _STEPS[scan.operation].neutral
        return neutral.removesuffix(".0") if scan.compute == "int" else neutral

    def rules(self) -> list[str]:
        """The functions that put two parts of a scan together."""
        steps = {scan.operation: _STEPS[scan.operation] for scan in self.scans}
        return [
            step.rule.replace("{rule}", self._rule(operation))
            for operation, step in steps.items()
            if step.rule and (self.split > 1 or "{rule}" in step.scanned)
        ]

    def _rule(self, operation: str) -> str:
        return f"{self.name}_{operation}"

    def _each(self, scan: Node, variables: Variables) -> str:
        """The variable with a block of what is scanned."""
        value = self._read(scan, scan.reads()[0], variables)
        self.writer.line(f"{scan.name}_each = tl.where(mask, {value}, {self.neutral(scan)})")
        return f"{scan.name}_each"

    def _add_up(self, scan: Node, variables: Variables) -> None:
        """What a block comes to, and those before it."""
        step, each = _STEPS[scan.operation], self._each(scan, variables)
        self.writer.line(f"{self.carry(scan)} = {self._text(scan, step.total, each)}")

    def _scan(self, scan: Node, variables: Variables) -> None:
        """A block of a scan, and what is carried on."""
        writer, step, each = self.writer, _STEPS[scan.operation], self._each(scan, variables)
        writer.line(f"{scan.name} = {self._text(scan, step.scanned, each)}")
        if not step.rule:
            writer.line(f"{self.carry(scan)} = {self._text(scan, step.total, each)}")
        else:
            zero = "0" if scan.compute == "int" else "0.0"
            last = f"tl.where(tl.arange(0, BLOCK_COLS)[None, :] == BLOCK_COLS - 1, {scan.name}, {zero})"
            writer.line(f"{self.carry(scan)} = tl.sum({last}, axis=1, keep_dims=True)  # the last column's")
        variables[scan.name] = scan.name

    def _groups(self, flipped: bool) -> tuple[Group, ...]:
        """The iteration space, counted from the first column or from the last."""
        columns = Group("from_end" if flipped else "cols", self.cols, "mask")
        if is_one(self.inner):
            return (Group("rows", self.outer, "mask"), columns)
        return (Group("outer", self.outer, "mask"), columns, Group("inner", self.inner, "mask"))

    def _map(self, node: Node, variables: Variables) -> None:
        """Elementwise work; a flip is the same element, which stands at another column."""
        if is_flip(node):
            variables[node.name] = self._read(node, node.reads()[0], variables)
        else:
            write_maps(self.writer, [node.name], self._groups(self.flipped[node.name]), variables)

    def _read(self, node: Node, read: str, variables: Variables) -> str:
        if read in variables:
            return variables[read]
        groups = self._groups(self.flipped[node.name] != is_flip(node))
        return load_once(self.writer, read, self.shape, groups, variables)


def totals_of(scan: Node) -> str:
    """The workspace with what each program's columns come to, [rows, SPLIT]."""
    return f"{scan.name}_totals"
