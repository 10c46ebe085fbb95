"""guard_conditions: guards -> what is asked of tensors and numbers, in Python, and what is said where it does not hold."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from mtmc.rewrite.guards import Guards, TensorGuard, renamed


def conditions(guards: Guards, names: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Conditions under which the kernels do not hold, and the reasons, in Python.

    names: what the guards' variables are called there.
    """
    anchor = ""
    for guard in guards.tensors:
        name, label = names[guard.variable], inside(guard.label)
        yield (
            f"type({name}) not in (torch.Tensor, torch.nn.Parameter)",
            f'f"{label} is a {{type({name}).__name__}}, this version holds for a plain tensor"',
        )
        yield (
            f"{name}.layout != torch.strided or {name}.is_nested",
            f"f\"{label} has the layout {{{name}.layout}}{{' and is nested' * {name}.is_nested}}, "
            'this version holds for a dense tensor"',
        )
        rank = len(guard.dimensions)
        yield (
            f"{name}.dim() != {rank}",
            f'f"{label} has {{{name}.dim()}} dimensions, this version holds for {rank}"',
        )
        dtype = f"torch.{guard.dtype}"
        yield f"{name}.dtype != {dtype}", f'f"{label} is {{{name}.dtype}}, this version holds for {dtype}"'
        if anchor:
            place = f"{{{name}.device}} and {inside(guards.tensors[0].label)} on {{{anchor}.device}}"
            yield f"{name}.device != {anchor}.device", f'f"{label} is on {place}"'
        anchor = anchor or name
    for guard in guards.tensors:
        yield from _sizes(guards, guard, names)
        yield _layout(guard, names[guard.variable])
    yield from _together(guards, names)


def _sizes(guards: Guards, guard: TensorGuard, names: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    name, label = names[guard.variable], inside(guard.label)
    for at, dimension in enumerate(guard.dimensions):
        size, said = f"{name}.shape[{at}]", f"{label}.shape[{at}] is {{{name}.shape[{at}]}}"
        if dimension.kind == "constant":
            yield f"{size} != {dimension.value}", f'f"{said}, it must be {dimension.value}"'
        elif dimension.kind == "tied":
            text = renamed(dimension.text, names)
            spoken = inside(guards.spoken(dimension.text))
            yield f"{size} != {text}", f'f"{said}, it must be {spoken} = {{{text}}}"'
        elif dimension.kind == "free":
            if dimension.low:
                yield f"{size} < {dimension.low}", f'f"{said}, it must be {dimension.low} or more"'
            if dimension.high is not None:
                yield f"{size} > {dimension.high}", f'f"{said}, it must be {dimension.high} or less"'


def _layout(guard: TensorGuard, name: str) -> tuple[str, str]:
    label = inside(guard.label)
    said = f"{label} has the shape {{tuple({name}.shape)}} and the strides {{{name}.stride()}}"
    if guard.contiguous:
        return f"not {name}.is_contiguous()", f'f"{said}, it must be contiguous"'
    if guard.order is None:
        return f"{name}.stride() != {guard.strides}", f'f"{said}, the strides must be {guard.strides}"'
    condition = f"not {name}.permute({', '.join(map(str, guard.order))}).is_contiguous()"
    return condition, f'f"{said}, its dimensions must lie in the order {guard.order}"'


def _together(guards: Guards, names: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    listed, rows = guards.listed
    if listed:
        sizes = f"({', '.join(renamed(text, names) for text in listed)}{',' * (len(listed) == 1)})"
        said = f"({', '.join(inside(guards.spoken(text)) for text in listed)}) is {{{sizes}}}"
        yield f"{sizes} not in {rows}", f'f"{said}, it must be one of {rows}"'
    for text in guards.conditions:
        yield f"not ({renamed(text, names)})", repr(f"it does not hold that {guards.spoken(text)}")


def inside(text: str) -> str:
    """Text as it stands inside of an f-string."""
    return text.replace("\\", "\\\\").replace('"', "'").replace("{", "{{").replace("}", "}}")
