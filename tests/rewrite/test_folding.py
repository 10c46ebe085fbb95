"""Long lines are broken where a formatter would break them, and mean the same."""

from __future__ import annotations

import ast

import pytest

from mtmc.rewrite.folding import LONGEST, docstring, folded

LONG = "a_long_name_of_a_tensor"
SUM = f"{LONG}_ptr + (offs // size_1) * {LONG}_stride_0 + (offs % size_1) * {LONG}_stride_1 + rows"
LINES = {
    "call": f"    y = torch.empty(({LONG}.shape[0], {LONG}.shape[1]), device={LONG}.device, dtype={LONG}.dtype)",
    "sum": f"    left = {SUM} * {LONG}_stride_2",
    "sum in a call": f"    x = tl.load({SUM}, mask=mask, other=0.0).to(tl.float32)",
    "index": f"    {LONG}_kernel[(triton.cdiv({LONG}.shape[2], 64), {LONG}.shape[0], {LONG}.shape[1])](x, y)",
    "quotes": f"    y = function({LONG}, 'one, two) and (three', {LONG}, {LONG}, float(\"-inf\"), another={LONG})",
    "one item": f"    y = a_function_of_{LONG}((({LONG} * {LONG} * {LONG} * shape)).contiguous())",
    "condition": f"    if first({LONG}, {LONG}, {LONG}) and second({LONG}, {LONG}, {LONG}):",
    "tuple": f"    return ({LONG}_1, {LONG}_2, {LONG}_3, {LONG}_4, {LONG}_5, {LONG}_6,)",
}


@pytest.mark.parametrize("name", LINES)
def test_a_folded_line_means_the_same(name: str) -> None:
    line = LINES[name]
    body = "\n        pass" if line.endswith(":") else ""
    lines = folded(line)
    assert len(line) > LONGEST and len(lines) > 1 and max(map(len, lines)) <= LONGEST
    texts = [f"def f():\n{text}{body}\n" for text in (line, "\n".join(lines))]
    assert ast.dump(ast.parse(texts[0])) == ast.dump(ast.parse(texts[1]))


def test_sums_stand_below_each_other() -> None:
    lines = folded(LINES["sum"])
    assert [line.split()[0] for line in lines] == ["left", f"{LONG}_ptr", "+", "+", "+", ")"]


@pytest.mark.parametrize(
    "line",
    [
        "x = 1",
        f'    """{LONG * 6}"""',
        f"    y = function({LONG * 6})  # a comment",
        f"    kernel[({LONG * 6},)](",
        f"    ), {LONG * 6})",
    ],
)
def test_what_stays(line: str) -> None:
    assert folded(line) == [line]


def test_a_long_docstring_goes_on_in_another_line() -> None:
    ops = ", ".join(f"operation_{number}" for number in range(30))
    lines = docstring(f"{ops}: a row-wise kernel.")
    assert len(lines) > 1 and max(map(len, lines)) <= LONGEST and all(line.startswith("    ") for line in lines)
    text = ast.get_docstring(ast.parse("\n".join(["def f():", *lines])).body[0], clean=True)  # type: ignore[arg-type]
    assert text is not None and " ".join(text.split()) == f"{ops}: a row-wise kernel."
    assert docstring("short") == ['    """short"""']
