"""groups: one step of a program, drawn from a group of the table's rows. Each does nothing where no row fits."""

from __future__ import annotations

from collections.abc import Sequence

from mtmc.rl.generator import table
from mtmc.rl.generator.draft import MOST_INPUTS, Draft
from mtmc.rl.generator.program import Value
from mtmc.rl.generator.table import KEEPS, LARGE, Row


def fitting(draft: Draft, rows: Sequence[Row]) -> Row | None:
    """A row that may be applied to the current value; none that was applied just before."""
    known = draft.current.traits
    before = draft.steps[-1].op if draft.steps else ""
    fits = [row for row in rows if row.needs <= known and not row.refuses & known and row.name != before]
    return draft.rng.choice(fits) if fits else None


def traits(row: Row, *operands: Value) -> frozenset[str]:
    """What is known of a result. Large numbers stay so, unless the op bounds them."""
    known = operands[0].traits if KEEPS in row.gives else frozenset[str]()
    large = any(LARGE in each.traits for each in operands) and table.BOUNDED not in row.gives
    made = known | (row.gives - {KEEPS})
    if LARGE in made and all(table.BOUNDED in each.traits for each in operands):
        made -= {LARGE}
    return made | ({LARGE} if large else frozenset())


def pointwise(draft: Draft) -> None:
    """Of each number by itself."""
    x = draft.current
    shares = table.SHARED in x.traits  # tiny numbers: most functions are flat there
    row = fitting(draft, [each for each in table.POINTWISE if not shares or table.KEEPS in each.gives])
    if row is not None:
        draft.add_step(row, row.text.format(x=x.name, c=draft.number(row)), [x.name], x.dims, traits(row, x))


def tame(draft: Draft) -> None:
    """As `pointwise`, and bounded again where its numbers have become large: what follows needs that."""
    pointwise(draft)
    if LARGE in draft.current.traits:
        draft.apply("tanh", "torch.tanh({x})", gives="bounded", flops=6)


def binary(draft: Draft) -> None:
    """Of the current value and another of its shape."""
    row = fitting(draft, table.BINARY)
    if row is None:
        return
    x = draft.current
    earlier = [each for each in (*draft.inputs, *(step.result for step in draft.steps)) if each.dims == x.dims]
    earlier = [each for each in earlier if each.name != x.name and not row.refuses & each.traits]
    if earlier and (draft.rng.random() < 0.6 or len(draft.inputs) >= MOST_INPUTS):
        y = draft.rng.choice(earlier)
    elif len(draft.inputs) < MOST_INPUTS:
        y = draft.add_input(x.dims)
    else:
        return
    text = row.text.format(x=x.name, y=y.name, c=draft.number(row))
    draft.add_step(row, text, [x.name, y.name], x.dims, traits(row, x, y))


def vector(draft: Draft) -> None:
    """With a parameter along the last dimension."""
    row = fitting(draft, table.VECTOR)
    x = draft.current
    if row is None or len(x.dims) not in (2, 3):
        return
    size = x.dims[-1]
    constructor = f"nn.Parameter(({row.module.format(d=size)}){draft.cast})"
    name = draft.add_module(row.name, constructor, [size])
    draft.weights.append((size,))
    text = row.text.format(x=x.name, m=f"self.{name}")
    draft.add_step(row, text, [x.name], x.dims, traits(row, x))


def norm(draft: Draft) -> None:
    """Of rows, which stay rows."""
    row = fitting(draft, table.NORMS)
    if row is None:
        return
    x = draft.current
    module = ""
    if row.module:
        module = draft.add_module(row.name, f"{row.module.format(d=x.dims[-1])[:-1]}{draft.float_dtype})", [x.dims[-1]])
        draft.weights.append((x.dims[-1],))
    draft.add_step(row, row.text.format(x=x.name, m=module), [x.name], x.dims, traits(row, x))


def reduction(draft: Draft) -> None:
    """Over the last dimension."""
    row = fitting(draft, table.REDUCTIONS)
    if row is not None:
        x = draft.current
        draft.add_step(row, row.text.format(x=x.name), [x.name], x.dims[:-1], traits(row, x))


def pixels(draft: Draft) -> None:
    """The mean over height and width."""
    x = draft.current
    if table.CENTRED not in x.traits:
        row = Row("pixel_mean", "")
        draft.add_step(row, f"{x.name}.mean(dim=(2, 3))", [x.name], x.dims[:2], traits(row, x))


def window(draft: Draft) -> None:
    """A pool that halves height and width."""
    row = fitting(draft, table.WINDOWS)
    x = draft.current
    if row is not None and not any("//" in dim for dim in x.dims):
        dims = (*x.dims[:2], *(f"{dim} // 2" for dim in x.dims[2:]))
        draft.add_step(row, row.text.format(x=x.name), [x.name], dims, traits(row, x))


def convolution(draft: Draft) -> None:
    """A convolution that keeps height and width."""
    x, rng = draft.current, draft.rng
    if LARGE in x.traits:
        return
    taps = rng.choice((1, 3))
    filters = x.dims[1] if rng.random() < 0.4 else f"filters{draft.products + 1}"
    bias = rng.choice(("", ", bias=False"))
    constructor = f"nn.Conv2d({x.dims[1]}, {filters}, {taps}, padding={taps // 2}{bias}{draft.float_dtype})"
    name = draft.add_module("conv", constructor, [x.dims[1], filters])
    draft.weights.append((filters, x.dims[1]))
    draft.products += 1
    dims = (x.dims[0], filters, *x.dims[2:])
    row = Row(f"conv{taps}x{taps}", "")
    draft.add_step(row, f"self.{name}({x.name})", [x.name], dims, frozenset(), x.dims[1], taps * taps, filters)


def product(draft: Draft) -> None:
    """A linear layer, a product with another input, or (in batches) with another input turned round."""
    x, rng = draft.current, draft.rng
    if LARGE in x.traits:
        return
    inner = x.dims[-1]
    outer = inner if rng.random() < 0.25 else f"features{draft.products + 1}"
    way = rng.choices(("linear", "matmul", "turned"), (3.0, 1.0, 1.0))[0]
    row = Row(way, "")
    if way == "linear" or len(draft.inputs) >= MOST_INPUTS:
        row = Row("linear", "")
        bias = rng.choice(("", ", bias=False"))
        name = draft.add_module("linear", f"nn.Linear({inner}, {outer}{bias}{draft.float_dtype})", [inner, outer])
        draft.weights.append((inner, outer))
        text, reads = f"self.{name}({x.name})", [x.name]
    else:
        dims = (*x.dims[:-2], inner, outer) if way == "matmul" else (*x.dims[:-2], outer, inner)
        y = draft.add_input(dims)
        turned = f"{y.name}.transpose(-1, -2)" if way == "turned" else y.name
        text, reads = f"({x.name} @ {turned}) * {x.name}.shape[-1] ** -0.5", [x.name, y.name]
    draft.products += 1
    draft.add_step(row, text, reads, (*x.dims[:-1], outer), frozenset(), inner)
