"""How a printed file makes inputs like the examples of a live module's call: same values where they mean something.

Floating inputs are drawn at random, of the example's range. What looks like a choice keeps the example's OWN VALUES at
the example's shapes; at other shapes it gets values of the same kind:

    positions    start + step * arange along one dimension: the same at any size
    offsets      one dimension, ascending: some of them, scaled to the size that they end at
    triangles    one value where column - row is above a number, another elsewhere (causal masks): the same at any size
    masks        bool, integers of two values, floating ones that hold -inf or the least number, or up to four values:
                 the example's beginning, repeated where it is too short; no row becomes all one value that was none
    rows         integers that only say which rows of tables are meant (tokens): drawn in the example's range, at any shape
    integers     drawn from the example's values; below each open size that the example's are below

The values stand in the text, as words with counts ("0.0*5 -inf*3"), at most `_LONGEST` characters a tensor: the file
has to stay one that people and models read. Of a longer mask the text has the beginning, longer lists of integers are
drawn in their range. Inputs get the example's strides too (transposed, expanded, sliced, channels last), where these
are those of a part of a dense tensor (`mtmc.task.live_layout`).
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import torch

from mtmc.task.live_layout import as_tuple, contiguous, layout_of

_log = logging.getLogger(__name__)

_LONGEST = 12_000
_FEW, _ENOUGH = 4, 16
"""Floating values of a mask at most; elements from which on few values are no accident."""
HELPERS = {
    "numbers": '''
    def numbers(text, kind, *shape):
        """Numbers in a text, "0.0*5" for five of one."""
        words = [word.split("*") for word in text.split()]
        values = torch.tensor([float(word[0]) if kind.is_floating_point else int(word[0]) for word in words]).to(kind)
        counts = torch.tensor([int(word[1]) if len(word) > 1 else 1 for word in words])
        return values.repeat_interleave(counts, output_size=math.prod(shape)).reshape(shape)
''',
    "tiled": '''
    def tiled(values, *shape):
        """The beginning of the values, repeated where they are too few."""
        for dim, size in enumerate(shape):
            values = values.index_select(dim, torch.arange(size) % values.shape[dim])
        return values
''',
    "mixed": '''
    def mixed(values, low, high):
        """The values, with a `high` in each row that would hold `low` alone."""
        first = torch.where((values == low).all(-1), torch.full_like(values[..., 0], high), values[..., 0])
        return torch.cat((first[..., None], values[..., 1:]), -1)
''',
    "drawn": '''
    def drawn(values, *shape):
        """The values where they have this shape, else drawn from them."""
        return values if values.shape == shape else values.flatten()[torch.randint(values.numel(), shape)]
''',
    "spread": '''
    def spread(values, size, last):
        """Ascending values: `size` of them, in the same order, up to `last`."""
        places = torch.arange(size) * (len(values) - 1) // max(size - 1, 1)
        return values[places] * last // values[-1]
''',
}
"""What get_inputs() defines for itself where it needs it. All of it runs without data too."""


@dataclass(frozen=True)
class _Expression:
    """The text of a tensor, and the helpers that it calls."""

    text: str
    helpers: tuple[str, ...] = ()


def print_inputs(
    names: Sequence[str],
    examples: Sequence[torch.Tensor],
    shapes: Sequence[Sequence[str]],
    sizes: Mapping[str, int],
    task: str,
    rows: Collection[str] = (),
) -> list[str]:
    """The lines of get_inputs(). shapes: of the inputs, as text. sizes: the open ones, by name. task: for messages. rows:
    names of inputs that only say which rows of tables are meant."""
    lines: list[str] = []
    helpers: set[str] = set()
    for name, example, shape in zip(names, examples, shapes, strict=True):
        text, used = _input(name, example, shape, sizes, task, name in rows)
        helpers |= set(used)
        lines.append(f"    {name} = {text}")
    defined = [line for key in HELPERS if key in helpers for line in [*HELPERS[key].strip("\n").splitlines(), ""]]
    return [*defined, *lines, f"    return [{', '.join(names)}]"]


def _input(
    name: str, example: torch.Tensor, shape: Sequence[str], sizes: Mapping[str, int], task: str, rows: bool
) -> tuple[str, tuple[str, ...]]:
    """The expression of one input, with the example's strides, and the helpers it needs."""
    expanded = [dim for dim, step in enumerate(example.stride()) if step == 0 and example.shape[dim] > 1]
    base, base_shape = example, list(shape)
    for dim in expanded:
        base, base_shape[dim] = base.narrow(dim, 0, 1), "1"
    layout = layout_of(base, base_shape)
    if layout is None:
        _log.warning("task %s: input %s has strides %s, which no part of a dense tensor has", task, name, base.stride())
        layout = contiguous(base_shape)
    found = _own_values(name, base, base_shape, sizes, task, rows)
    if found is None:
        text, helpers = layout.part(random_input(base, layout.memory)), tuple[str, ...]()
    elif layout.is_whole:
        text, helpers = found.text, found.helpers
    else:
        empty = f"torch.zeros({as_tuple(layout.memory)}, dtype={base.dtype})"
        text, helpers = f"{layout.part(empty)}.copy_({found.text})", found.helpers
    if expanded:
        text = f"({text}).expand({', '.join(shape)})"
    return text, helpers


def _own_values(
    name: str, example: torch.Tensor, shape: Sequence[str], sizes: Mapping[str, int], task: str, rows: bool
) -> _Expression | None:
    """An expression for the example's own values, None where they are drawn."""
    if not example.numel() or not (example.dtype == torch.bool or _is_choice(example)):
        return None
    values = example.detach().cpu()
    dtype = f"dtype={example.dtype}"
    if bool((values == values.flatten()[0]).all()):
        only = values.flatten()[0].item()
        below = _below(values, sizes) if only > 1 else []
        return _Expression(" % ".join([f"torch.full({as_tuple(shape)}, {_number(only)}, {dtype})", *below]))
    found = _positions(values, shape, dtype) or _triangle(values, shape, dtype) or _offsets(values, shape, sizes)
    if found is not None or (rows and _is_integer(values)):
        return found
    if len(values.unique()) <= (2 if _is_integer(values) else _FEW) or values.is_floating_point():
        return _mask(name, values, shape, task)
    text = _words(values)
    if len(text) > _LONGEST:
        _log.warning("task %s: input %s is drawn from its range: its values make a text too long", task, name)
        return None
    values_text = f"numbers({text!r}, {example.dtype}, {', '.join(map(str, values.shape))})"
    if all(part.isdigit() for part in shape):
        return _Expression(values_text, ("numbers",))
    drawn = f"drawn({values_text}, {', '.join(shape)})"
    return _Expression(" % ".join([drawn, *_below(values, sizes)]), ("numbers", "drawn"))


def _below(values: torch.Tensor, sizes: Mapping[str, int]) -> list[str]:
    """The open sizes that integers stay below, as indices into a dimension of that size would."""
    if not _is_integer(values) or int(values.min()) < 0:
        return []
    return [size for size, value in sizes.items() if value > int(values.max())]


def _is_integer(values: torch.Tensor) -> bool:
    return not values.is_floating_point() and values.dtype != torch.bool


def _is_choice(example: torch.Tensor) -> bool:
    """Whether values mean something: integers, and floating ones that look like a mask."""
    if not example.is_floating_point():
        return True
    values = example.detach()
    if bool((values <= torch.finfo(torch.float16).min).any()):
        return True
    distinct = len(values.double().unique()) if values.numel() >= _ENOUGH else _FEW + 1
    return 1 < distinct <= _FEW


def _positions(values: torch.Tensor, shape: Sequence[str], dtype: str) -> _Expression | None:
    """start + step * arange along one dimension, the same along the others."""
    if not _is_integer(values):
        return None
    for dim in reversed(range(values.dim())):
        line = values.movedim(dim, -1).reshape(-1, values.shape[dim])
        if line.shape[1] < 3 or not bool((line == line[0]).all()):
            continue
        steps = line[0].diff()
        if bool((steps == steps[0]).all()) and int(steps[0]):
            start, step = int(line[0, 0]), int(steps[0])
            text = f"torch.arange({shape[dim]}, {dtype})"
            text = text if step == 1 else f"{step} * {text}"
            text = text if start == 0 else f"{start} + {text}"
            if values.dim() == 1:
                return _Expression(text)
            view = ", ".join("-1" if other == dim else "1" for other in range(values.dim()))
            return _Expression(f"({text}).view({view}).repeat({', '.join(_times(shape, dim))})")
    return None


def _times(shape: Sequence[str], dim: int) -> list[str]:
    return ["1" if other == dim else size for other, size in enumerate(shape)]


def _triangle(values: torch.Tensor, shape: Sequence[str], dtype: str) -> _Expression | None:
    """One value where column - row is above a number, another elsewhere, over the last two dimensions."""
    if values.dim() < 2 or min(values.shape[-2:]) < 2:
        return None
    rows, cols = values.shape[-2:]
    plane = values.reshape(-1, rows, cols)
    if not bool((plane == plane[0]).all()):
        return None
    low, high = plane[0, -1, 0], plane[0, 0, -1]
    above = torch.arange(cols) - torch.arange(rows)[:, None]
    kept = above[plane[0] == low]
    if bool(low == high) or not kept.numel():
        return None
    last = int(kept.max())
    if not torch.equal(plane[0], torch.where(above > last, high, low)):
        return None
    condition = f"torch.arange({shape[-1]}) > torch.arange({shape[-2]})[:, None] + {last}".removesuffix(" + 0")
    numbers = [_number(each.item()) for each in (high, low)]
    if values.dtype == torch.bool:
        text = f"({condition})" if bool(high) else f"~({condition})"
    else:
        text = f"torch.where({condition}, torch.tensor({numbers[0]}, {dtype}), torch.tensor({numbers[1]}, {dtype}))"
    if values.dim() > 2:
        text = f"({text}).repeat({', '.join([*shape[:-2], '1', '1'])})"
    return _Expression(text)


def _offsets(values: torch.Tensor, shape: Sequence[str], sizes: Mapping[str, int]) -> _Expression | None:
    """One dimension, ascending, which ends at an open size or one before it: where the parts of a whole begin."""
    if not _is_integer(values) or values.dim() != 1 or len(values) < 3 or not bool((values.diff() >= 0).all()):
        return None
    last, text = int(values[-1]), _words(values)
    if len(text) > _LONGEST or last <= 0 or int(values[0]) < 0:
        return None
    ends = {value: size for size, value in sizes.items()} | {
        value - 1: f"({size} - 1)" for size, value in sizes.items()
    }
    if last not in ends:
        return None
    return _Expression(
        f"spread(numbers({text!r}, {values.dtype}, {len(values)}), {shape[0]}, {ends[last]})", ("numbers", "spread")
    )


def _mask(name: str, values: torch.Tensor, shape: Sequence[str], task: str) -> _Expression:
    """The beginning of the values, repeated where they are too few."""
    for dim in range(values.dim()):  # What is the same along a dimension is written once.
        if bool((values == values.narrow(dim, 0, 1)).all()):
            values = values.narrow(dim, 0, 1)
    text, cut = _words(values), False
    while len(text) > _LONGEST:
        dim = max(range(values.dim()), key=lambda dim: values.shape[dim])
        values, cut = values.narrow(dim, 0, (values.shape[dim] + 1) // 2), True
        text = _words(values)
    if cut:
        _log.warning("task %s: input %s repeats the beginning of the example, whose text is too long", task, name)
    found = f"numbers({text!r}, {values.dtype}, {', '.join(map(str, values.shape))})"
    if list(map(str, values.shape)) == list(shape):
        return _Expression(found, ("numbers",))
    helpers: tuple[str, ...] = ("numbers", "tiled")
    found = f"tiled({found}, {', '.join(shape)})"
    if all(part.isdigit() for part in shape) and not cut:
        return _Expression(found, helpers)
    distinct = [each.item() for each in values.flatten().unique()]
    for one in distinct if values.shape[-1] > 1 else []:
        if not bool((values == one).all(-1).any()):
            other = next(each for each in reversed(distinct) if each != one)
            found, helpers = f"mixed({found}, {_number(one)}, {_number(other)})", ("numbers", "tiled", "mixed")
    return _Expression(found, helpers)


def _words(values: torch.Tensor) -> str:
    """The values as words with counts. A long text is not finished: it is too long anyway."""
    words: list[str] = []
    length = 0
    for value, group in groupby(_numbers(values)):
        count = sum(1 for _ in group)
        words.append(f"{value}*{count}" if count > 1 else str(value))
        length += len(words[-1]) + 1
        if length > _LONGEST:
            return "*" * (_LONGEST + 1)
    return " ".join(words)


def _numbers(values: torch.Tensor) -> list[Any]:
    flat = values.flatten()
    numbers: list[Any] = (flat.double() if flat.is_floating_point() else flat.long()).tolist()
    return numbers


def _number(value: bool | int | float) -> str:
    return f'float("{value}")' if value in (float("inf"), float("-inf")) or value != value else repr(value)


def random_input(example: torch.Tensor, shape: Sequence[str]) -> str:
    """An expression for a random tensor like the example: its shape, dtype and, for integers, its range."""
    sizes = as_tuple(shape)
    if example.dtype == torch.bool:
        share = example.double().mean().item() if example.numel() else 0.5
        return f"torch.rand({sizes}) < {share:.3g}"
    if not example.is_floating_point():
        least, most = (int(example.min()), int(example.max())) if example.numel() else (0, 0)
        dtype = "" if example.dtype == torch.int64 else f", dtype={example.dtype}"
        return f"torch.randint({least}, {most + 1}, {sizes}{dtype})"
    cast = "" if example.dtype == torch.float32 else f".to({example.dtype})"
    finite = example.detach().double()
    finite = finite[finite.isfinite()]
    low, high = (finite.min().item(), finite.max().item()) if finite.numel() else (-1.0, 1.0)
    if low < 0 or low == high:
        scale = finite.std(correction=0).item() if finite.numel() and low < high else 1.0
        text = f"torch.randn({sizes})" if 0.5 < scale < 2 else f"{scale:.3g} * torch.randn({sizes})"
    else:  # Never negative: it may have to stay so, for a logarithm or a square root.
        text = f"{low:.3g} + {high - low:.3g} * torch.rand({sizes})"
    return f"({text}){cast}" if cast else text
