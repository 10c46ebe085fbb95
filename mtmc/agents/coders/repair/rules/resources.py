"""More than a multiprocessor has: shared memory, threads, registers, elements of a tile."""

from __future__ import annotations

import re
from collections.abc import Callable

import libcst as cst

from mtmc.agents.coders.repair.edits import integer, without_argument
from mtmc.agents.coders.repair.fixed import Fixed
from mtmc.agents.coders.repair.kernels import (
    Setting,
    kernel_at,
    kernel_named,
    launches,
    settings,
    step_names,
    tile_names,
)
from mtmc.agents.coders.repair.program import New, Program
from mtmc.outcome import RESOURCE_ERROR, Diagnosis

SMALLEST = 16
"""Least size of a tile that is multiplied, in each direction."""
USUAL = 16_384
"""Elements of the largest tile that a program of the usual size (four warps) holds without spilling most of it."""
STAGES = 2
"""Fewest stages in which loads still run ahead of the products."""
_SHORTAGE = re.compile(r"kernel (\w+): out of resource: ([\w ]+), Required: (\d+), Hardware limit: (\d+)")
_Change = Callable[[Setting], dict[cst.CSTNode, New]]


def shared_memory(program: Program, diagnosis: Diagnosis, hardware: str) -> Fixed | None:
    """Fewer stages if that is enough, then a shorter step of the loop, then the largest tile halved.

    A step's tiles lie in shared memory `num_stages` times, so both go in proportion with what is required.
    """
    found = _shortage(diagnosis, "shared memory")
    kernel = kernel_named(program, found[0]) if found else None
    if found is None or kernel is None:
        return None
    required, limit = found[1:]
    steps, least = step_names(program, kernel), SMALLEST if program.calls("triton.language.dot", kernel) else 1

    def change(setting: Setting) -> dict[cst.CSTNode, New]:
        stages = setting.options.get("num_stages")
        fewer = int(stages.value) * limit // required if stages is not None else 0
        if stages is not None and STAGES <= fewer < int(stages.value):
            return {stages: integer(fewer)}
        for name in sorted(steps & setting.tiles.keys()):
            size = int(setting.tiles[name].value)
            while size * required > limit * int(setting.tiles[name].value) and size // 2 >= least:
                size //= 2
            if size < int(setting.tiles[name].value):
                return {setting.tiles[name]: integer(size)}
        return _halved(setting, least)

    return _fixed(program, settings(program, kernel), change, f"{required} bytes of shared memory where {limit} are")


def tile_limit(program: Program, diagnosis: Diagnosis, hardware: str) -> Fixed | None:
    """A tile with more elements than Triton allows: its largest side is made as short as a program's registers ask for."""
    found = re.search(r"numel \((\d+)\) exceeds triton maximum tensor numel \((\d+)\)", diagnosis.message)
    kernel = kernel_at(program, diagnosis.line)
    if found is None or kernel is None:
        return None
    times = -(-int(found[1]) // min(USUAL, int(found[2])))
    named = {name.value for call in program.at(cst.Call, diagnosis.line) for name in program.find(cst.Name, call)}
    tiles = tile_names(program, kernel) & named

    def change(setting: Setting) -> dict[cst.CSTNode, New]:
        sizes = {int(setting.tiles[name].value): setting.tiles[name] for name in tiles if name in setting.tiles}
        size = max(sizes, default=0)
        smaller = size >> (times - 1).bit_length()
        return {sizes[size]: integer(smaller)} if smaller else {}

    return _fixed(program, settings(program, kernel), change, f"a tile of {found[1]} elements where {found[2]} may be")


def warps(program: Program, diagnosis: Diagnosis, hardware: str) -> Fixed | None:
    """As many warps as a program can have, or as the registers allow; a power of two."""
    found = _shortage(diagnosis, "threads")
    if found is not None:
        kernel = kernel_named(program, found[0])
        chosen = [] if kernel is None else settings(program, kernel)
        return _fixed(
            program,
            chosen,
            lambda setting: _warps(setting, lambda number: number * found[2] // found[1]),
            f"{found[1]} threads a program where {found[2]} may be",
        )
    if diagnosis.message.startswith("num_warps must be a power of 2"):
        here = [launch.call for launch in launches(program) if launch.call in program.at(cst.Call, diagnosis.line)]
        chosen = [s for k in program.functions for s in settings(program, k) if s.call in here]
        return _fixed(
            program, chosen, lambda setting: _warps(setting, _power_above), "a number of warps that is no power of 2"
        )
    return None


def registers(program: Program, diagnosis: Diagnosis, hardware: str) -> Fixed | None:
    """A limit of registers under which the kernel cannot be assembled: the launch goes without it."""
    if diagnosis.kind != "PTXASError" or "Insufficient registers" not in diagnosis.message:
        return None
    function = program.function_at(diagnosis.line)
    calls = [launch.call for launch in launches(program) if launch.function is function]
    limited = [call for call in calls if any(a.keyword and a.keyword.value == "maxnreg" for a in call.args)]
    if len(limited) != 1:
        return None
    source = program.changed({limited[0]: without_argument(limited[0], "maxnreg")})
    return Fixed(source, "left out maxnreg, under which the kernel cannot be assembled")


def _shortage(diagnosis: Diagnosis, resource: str) -> tuple[str, int, int] | None:
    """Kernel, what it requires and what there is."""
    found = _SHORTAGE.search(diagnosis.message) if diagnosis.kind == RESOURCE_ERROR else None
    if found is None or found[2] != resource:
        return None
    return found[1], int(found[3]), int(found[4])


def _halved(setting: Setting, least: int) -> dict[cst.CSTNode, New]:
    sizes = {int(literal.value): literal for _, literal in sorted(setting.tiles.items())}
    size = max(sizes, default=0)
    return {sizes[size]: integer(size // 2)} if size // 2 >= least else {}


def _warps(setting: Setting, change: Callable[[int], int]) -> dict[cst.CSTNode, New]:
    literal = setting.options.get("num_warps")
    if literal is None:
        return {}
    number = change(int(literal.value))
    return {literal: integer(1 << (number.bit_length() - 1))} if number else {}


def _power_above(number: int) -> int:
    return min(32, 1 << (number - 1).bit_length())


def _fixed(program: Program, chosen: list[Setting], change: _Change, why: str) -> Fixed | None:
    """All settings changed, or None: one that stays as it is would fail again."""
    changes: dict[cst.CSTNode, New] = {}
    for setting in chosen:
        one = change(setting)
        if not one:
            return None
        changes |= one
    if not changes:
        return None
    texts = [
        f"{program.code(old)} is now {program.code(new)}"
        for old, new in changes.items()
        if isinstance(new, cst.CSTNode)
    ]
    return Fixed(program.changed(changes), f"{why}: {', '.join(texts)}")
