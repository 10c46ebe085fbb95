"""Kernels of a program, their launches, and the constants of the text that become their tile sizes and options."""

from __future__ import annotations

import re
from dataclasses import dataclass

import libcst as cst

from mtmc.agents.coders.repair.edits import argument
from mtmc.agents.coders.repair.program import Program, number, parameters

_SHAPES = ("zeros", "full", "arange", "reshape", "view", "broadcast_to", "static_range", "make_block_ptr")
OPTIONS = (
    "num_warps", "num_stages", "num_ctas", "maxnreg", "grid", "warmup", "debug", "enable_fp_fusion",
    "waves_per_eu", "matrix_instr_nonkdim", "kpack",
)  # fmt: skip
"""Keywords of a launch that are no parameters of the kernel."""


@dataclass(frozen=True)
class Launch:
    """`kernel[grid](...)`. function: the one that it stands in."""

    call: cst.Call
    grid: cst.SubscriptElement
    function: cst.CSTNode

    @property
    def grid_value(self) -> cst.BaseExpression | None:
        """What stands in the brackets; None where that is no single expression."""
        return self.grid.slice.value if isinstance(self.grid.slice, cst.Index) else None


@dataclass(frozen=True)
class Setting:
    """Constants that one launch, or one configuration of a tuner, gives a kernel.

    call: of the launch or of `triton.Config`. tiles: parameter -> the only literal that its value comes from.
    options: num_stages, num_warps and their kin, where they are literals.
    """

    call: cst.Call
    tiles: dict[str, cst.Integer]
    options: dict[str, cst.Integer]


def is_kernel(program: Program, function: cst.FunctionDef) -> bool:
    """Whether a function is decorated with `triton.jit`."""
    decorators = (part.decorator for part in function.decorators)
    paths = [program.path(part.func if isinstance(part, cst.Call) else part) for part in decorators]
    return "triton.jit" in paths


def kernels(program: Program) -> list[cst.FunctionDef]:
    """All functions that are compiled for the GPU."""
    return [function for function in program.functions if is_kernel(program, function)]


def kernel_named(program: Program, name: str) -> cst.FunctionDef | None:
    """The only kernel of that name."""
    found = [kernel for kernel in kernels(program) if kernel.name.value == name]
    return found[0] if len(found) == 1 else None


def kernel_at(program: Program, line: int | None) -> cst.FunctionDef | None:
    """The kernel that a line is part of."""
    function = program.function_at(line)
    return function if function is not None and is_kernel(program, function) else None


def launches(program: Program, name: str | None = None) -> list[Launch]:
    """All launches, or those of one kernel."""
    known = {kernel.name.value for kernel in kernels(program)}
    found = []
    for call in program.find(cst.Call):
        target = call.func
        if not isinstance(target, cst.Subscript) or not isinstance(target.value, cst.Name):
            continue
        if target.value.value in known and name in (None, target.value.value) and len(target.slice) > 0:
            function = program.around(call, cst.FunctionDef) or program.module
            found.append(Launch(call, target.slice[0], function))
    return found


def launched_kernel(program: Program, launch: Launch) -> cst.FunctionDef | None:
    """The kernel of a launch."""
    target = launch.call.func
    assert isinstance(target, cst.Subscript) and isinstance(target.value, cst.Name)
    return kernel_named(program, target.value.value)


def given(kernel: cst.FunctionDef, call: cst.Call, name: str) -> cst.BaseExpression | None:
    """What a launch gives for a parameter, by keyword or position; its default; None where neither is in the text."""
    names = [parameter.name.value for parameter in parameters(kernel)]
    found = argument(call, name, names.index(name) if name in names else None)
    if found is not None:
        return found.value
    return next((p.default for p in parameters(kernel) if p.name.value == name), None)


def is_constexpr(program: Program, parameter: cst.Param) -> bool:
    """Whether a parameter is annotated with `tl.constexpr`."""
    annotation = parameter.annotation
    return annotation is not None and program.path(annotation.annotation) == "triton.language.constexpr"


def tile_names(program: Program, kernel: cst.FunctionDef) -> set[str]:
    """Parameters that say how large a tile is: constexprs inside `tl.arange` and shapes."""
    constexprs = {p.name.value for p in parameters(kernel) if is_constexpr(program, p)}
    inside: set[str] = set()
    for shape in _SHAPES:
        for call in program.calls(f"triton.language.{shape}", kernel):
            inside.update(name.value for name in program.find(cst.Name, call))
    return constexprs & inside


def step_names(program: Program, kernel: cst.FunctionDef) -> set[str]:
    """Tile sizes that a loop of the kernel steps by or divides a length by: the grid does not know them."""
    found: set[str] = set()
    for loop in program.find(cst.For, kernel):
        found.update(name.value for name in program.find(cst.Name, loop.iter))
    return found & tile_names(program, kernel)


def settings(program: Program, kernel: cst.FunctionDef) -> list[Setting]:
    """One for each configuration of a kernel's tuner; where it has none, one for each of its launches."""
    found = []
    for decorator in kernel.decorators:
        for config in program.calls("triton.Config", decorator):
            tiles = argument(config, "kwargs", 0)
            values = _entries(tiles.value) if tiles is not None else {}
            found.append(Setting(config, values, _options(config)))
    return found or [_setting(program, kernel, launch) for launch in launches(program, kernel.name.value)]


def _setting(program: Program, kernel: cst.FunctionDef, launch: Launch) -> Setting:
    literals = {name: _literal(program, kernel, launch, name) for name in tile_names(program, kernel)}
    tiles = {name: literals[name] for name in sorted(literals)}
    return Setting(launch.call, {n: v for n, v in tiles.items() if v is not None}, _options(launch.call))


def _options(call: cst.Call) -> dict[str, cst.Integer]:
    named = {arg.keyword.value: arg.value for arg in call.args if arg.keyword is not None}
    return {name: value for name, value in named.items() if name in OPTIONS and isinstance(value, cst.Integer)}


def _entries(node: cst.BaseExpression) -> dict[str, cst.Integer]:
    if not isinstance(node, cst.Dict):
        return {}
    pairs = [part for part in node.elements if isinstance(part, cst.DictElement)]
    named = {str(part.key.evaluated_value): part.value for part in pairs if isinstance(part.key, cst.SimpleString)}
    return {name: value for name, value in named.items() if isinstance(value, cst.Integer)}


def grid_text(program: Program, launch: Launch) -> str:
    """The text of what a launch's grid comes from: its own, or that of the only value of its name."""
    value = launch.grid_value
    if isinstance(value, cst.Name):
        value = program.value(value.value, launch.function)
    return "" if value is None else program.code(value)


def _literal(program: Program, kernel: cst.FunctionDef, launch: Launch, name: str) -> cst.Integer | None:
    """The literal that a launch's value of a parameter comes from, if to change it changes all that goes with it."""
    value = given(kernel, launch.call, name)
    grid = grid_text(program, launch)
    follows = name in step_names(program, kernel) or re.search(rf"""\[["']{name}["']\]""", grid) is not None
    if isinstance(value, cst.Integer):
        others = program.find(cst.Integer, launch.function)
        alone = not any(other is not value and number(other) == number(value) for other in others)
        return value if alone and follows else None
    if not isinstance(value, cst.Name):
        return None
    source = program.value(value.value, launch.function)
    follows = follows or re.search(rf"\b{value.value}\b", grid) is not None
    return source if isinstance(source, cst.Integer) and follows else None
