"""compose: programs drawn at random: single ops, subgraphs, small networks; chains and graphs with branches."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from mtmc.rl.tasks import table
from mtmc.rl.tasks.program import Dims, Program, Step, Value
from mtmc.rl.tasks.table import KEEPS, LARGE, Row

_KINDS = (("single", 0.15, 1, 1), ("subgraph", 0.5, 2, 6), ("network", 0.35, 5, 12))
"""Kind of a program, its share, fewest and most steps."""
_LAYOUTS: tuple[tuple[Dims, float], ...] = (
    (("rows", "cols"), 0.6),
    (("batch", "rows", "cols"), 0.25),
    (("batch", "channels", "height", "width"), 0.15),
)
_DTYPES = (("fp32", 0.6), ("fp16", 0.2), ("bf16", 0.2))
_INPUT_NAMES = ("x", "y", "z", "u", "v", "w")
MOST_INPUTS = 4
MOST_PRODUCTS = 4


@dataclass
class _Draft:
    """A program in the making. current: the value that the next step works on."""

    rng: random.Random
    dtype: str
    inputs: list[Value] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    modules: dict[str, str] = field(default_factory=dict)
    arguments: dict[str, None] = field(default_factory=dict)
    weights: list[Dims] = field(default_factory=list)
    products: int = 0
    current: Value = field(default_factory=lambda: Value("x", ()))

    def add_input(self, dims: Dims) -> Value:
        value = Value(_INPUT_NAMES[len(self.inputs)], dims)
        self.inputs.append(value)
        return value

    def add_module(self, stem: str, constructor: str, sizes: Sequence[str]) -> str:
        name = f"{stem}{sum(each.rstrip('0123456789') == stem for each in self.modules) + 1}"
        self.modules[name] = constructor
        self.arguments.update(dict.fromkeys(sizes))
        return name

    def add_step(
        self,
        row: Row,
        text: str,
        reads: Sequence[str],
        dims: Dims,
        traits: frozenset[str],
        inner: str = "",
        times: int = 1,
    ) -> None:
        name = f"{'abcdefghijklmnopqrs'[len(self.steps)]}"
        result = Value(name, dims, traits)
        self.steps.append(
            Step(row.name, text, tuple(dict.fromkeys(reads)), result, row.flops, inner, times, row.passes)
        )
        self.current = result

    def number(self, row: Row) -> float:
        return self.rng.choice(row.numbers) if row.numbers else 0.0

    @property
    def float_dtype(self) -> str:
        return {"fp32": "", "fp16": ", dtype=torch.float16", "bf16": ", dtype=torch.bfloat16"}[self.dtype]


def compose(rng: random.Random) -> Program:
    """A program; `rng` decides all of it."""
    kind, _, least, most = rng.choices(_KINDS, [each[1] for each in _KINDS])[0]
    layout = rng.choices([each[0] for each in _LAYOUTS], [each[1] for each in _LAYOUTS])[0]
    dtype = rng.choices([each[0] for each in _DTYPES], [each[1] for each in _DTYPES])[0]
    draft = _Draft(rng, dtype)
    draft.current = draft.add_input(layout)
    wanted = rng.randint(least, most)
    for _ in range(8 * wanted):  # a drawn group may have no op that fits
        if len(draft.steps) >= wanted:
            break
        group = _group(draft, kind, last=len(draft.steps) == wanted - 1)
        group(draft)
    return Program(
        kind=kind,
        dtype=dtype,
        inputs=tuple(draft.inputs),
        steps=tuple(draft.steps),
        outputs=_outputs(draft),
        modules=dict(draft.modules),
        arguments=tuple(draft.arguments),
        weights=tuple(draft.weights),
    )


def _outputs(draft: _Draft) -> tuple[str, ...]:
    """The last value, and any other that nothing reads."""
    read = {name for step in draft.steps for name in step.reads}
    return tuple(step.result.name for step in draft.steps if step.result.name not in read)


Group = Callable[[_Draft], None]


def _group(draft: _Draft, kind: str, last: bool) -> Group:
    """What kind of step comes next."""
    ranks = len(draft.current.dims)
    weights: dict[Group, float] = {_pointwise: 4.0, _binary: 1.8, _vector: 0.8}
    if kind == "single":
        weights = {_pointwise: 0.6, _binary: 0.6, _vector: 0.4}
    if ranks in (2, 3):
        weights |= {_norm: 1.2, _product: 1.0 if kind == "subgraph" else 2.0}
    if ranks == 4:
        weights |= {_window: 0.6, _convolution: 1.2, _norm: 0.3, _pixels: 0.8 if last else 0.1}
    if ranks >= 2 and last:
        weights[_reduction] = 1.5
    if ranks == 1:
        weights = {_pointwise: 1.0}
    if kind == "network" and not draft.products and len(draft.steps) >= 2 and ranks in (2, 3):
        weights = {_product: 1.0}
    if draft.products >= MOST_PRODUCTS:
        weights = {group: weight for group, weight in weights.items() if group not in (_product, _convolution)}
    return draft.rng.choices(list(weights), list(weights.values()))[0]


def _fitting(draft: _Draft, rows: Sequence[Row]) -> Row | None:
    """A row that may be applied to the current value; none that was applied just before."""
    traits = draft.current.traits
    before = draft.steps[-1].op if draft.steps else ""
    fits = [row for row in rows if row.needs <= traits and not row.refuses & traits and row.name != before]
    return draft.rng.choice(fits) if fits else None


def _traits(row: Row, *operands: Value) -> frozenset[str]:
    """What is known of a result. Large numbers stay so, unless the op bounds them."""
    known = operands[0].traits if KEEPS in row.gives else frozenset[str]()
    large = any(LARGE in each.traits for each in operands) and table.BOUNDED not in row.gives
    made = known | (row.gives - {KEEPS})
    if LARGE in made and all(table.BOUNDED in each.traits for each in operands):
        made -= {LARGE}
    return made | ({LARGE} if large else frozenset())


def _pointwise(draft: _Draft) -> None:
    x = draft.current
    shares = table.SHARED in x.traits  # tiny numbers: most functions are flat there
    row = _fitting(draft, [each for each in table.POINTWISE if not shares or table.KEEPS in each.gives])
    if row is not None:
        draft.add_step(row, row.text.format(x=x.name, c=draft.number(row)), [x.name], x.dims, _traits(row, x))


def _binary(draft: _Draft) -> None:
    row = _fitting(draft, table.BINARY)
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
    draft.add_step(row, text, [x.name, y.name], x.dims, _traits(row, x, y))


def _vector(draft: _Draft) -> None:
    row = _fitting(draft, table.VECTOR)
    x = draft.current
    if row is None or len(x.dims) not in (2, 3):
        return
    size = x.dims[-1]
    constructor = f"nn.Parameter(({row.module.format(d=size)}){_cast(draft)})"
    name = draft.add_module(row.name, constructor, [size])
    draft.weights.append((size,))
    text = row.text.format(x=x.name, m=f"self.{name}")
    draft.add_step(row, text, [x.name], x.dims, _traits(row, x))


def _norm(draft: _Draft) -> None:
    row = _fitting(draft, table.NORMS)
    if row is None:
        return
    x = draft.current
    module = ""
    if row.module:
        module = draft.add_module(row.name, f"{row.module.format(d=x.dims[-1])[:-1]}{draft.float_dtype})", [x.dims[-1]])
        draft.weights.append((x.dims[-1],))
    draft.add_step(row, row.text.format(x=x.name, m=module), [x.name], x.dims, _traits(row, x))


def _reduction(draft: _Draft) -> None:
    row = _fitting(draft, table.REDUCTIONS)
    if row is not None:
        x = draft.current
        draft.add_step(row, row.text.format(x=x.name), [x.name], x.dims[:-1], _traits(row, x))


def _pixels(draft: _Draft) -> None:
    """The mean over height and width."""
    x = draft.current
    if table.CENTRED not in x.traits:
        row = Row("pixel_mean", "")
        draft.add_step(row, f"{x.name}.mean(dim=(2, 3))", [x.name], x.dims[:2], _traits(row, x))


def _window(draft: _Draft) -> None:
    row = _fitting(draft, table.WINDOWS)
    x = draft.current
    if row is not None and not any("//" in dim for dim in x.dims):
        dims = (*x.dims[:2], *(f"{dim} // 2" for dim in x.dims[2:]))
        draft.add_step(row, row.text.format(x=x.name), [x.name], dims, _traits(row, x))


def _convolution(draft: _Draft) -> None:
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
    draft.add_step(row, f"self.{name}({x.name})", [x.name], dims, frozenset(), x.dims[1], taps * taps)


def _product(draft: _Draft) -> None:
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


def _cast(draft: _Draft) -> str:
    return {"fp32": "", "fp16": ".to(torch.float16)", "bf16": ".to(torch.bfloat16)"}[draft.dtype]
