"""Replies as models write them: each gives exactly the file that is meant, or the reason why it gives none."""

from __future__ import annotations

import ast
import random
import textwrap
import time
from typing import Any

import pytest

from mtmc.agents.coders.editing import patches, reading
from mtmc.agents.coders.editing.patches import DIVIDER, REPLACE, SEARCH
from mtmc.agents.coders.editing.reply import REPLY_LIMIT, Unusable, is_same, parse_reply, without_reasoning
from tests.agents.versions import BLOCKS, CHILD, FENCED, PARENT

OTHER = CHILD.replace("BLOCK=1024", "BLOCK=512")
KERNEL, MODEL = CHILD.split("\n\n\nclass ModelNew")
MODEL = f"class ModelNew{MODEL}"


def block(search: str, replace: str) -> str:
    return f"{SEARCH}\n{search}\n{DIVIDER}\n{replace}\n{REPLACE}\n"


def shown_with_numbers(text: str) -> str:
    return "\n".join(f"{number:>2} | {line}" for number, line in enumerate(text.rstrip("\n").split("\n"), 1))


def why(reply: str, base: str = PARENT, truncated: bool = False) -> Unusable:
    with pytest.raises(Unusable) as raised:
        parse_reply(reply, base, truncated)
    assert len(str(raised.value)) > 10
    return raised.value


WHOLE_FILES = {
    "as asked": FENCED,
    "prose around": f"Sure! I fused them.\n\n{FENCED}\nThis saves one launch; `tl.load` is masked.",
    "no tag": f"```\n{CHILD}```",
    "another tag": f"```Py\n{CHILD}```",
    "tag and title": f"```python title=new.py\n{CHILD}```",
    "tag in braces": f"```{{.python}}\n{CHILD}```",
    "tildes": f"~~~python\n{CHILD}~~~\n",
    "long fence": f"`````python\n{CHILD}`````",
    "windows": FENCED.replace("\n", "\r\n"),
    "old macintosh": FENCED.replace("\n", "\r"),
    "byte order mark": f"\ufeff{FENCED}",
    "in a list": f"1. The file:\n{textwrap.indent(FENCED, '   ')}2. Done",
    "fence behind a list mark": f"- ```python\n{textwrap.indent(CHILD, '  ')}  ```",
    "only the fences indented": f"    ```python\n{CHILD}    ```",
    "only the code indented": f"```python\n{textwrap.indent(CHILD, '    ')}```",
    "fence never closed": f"```python\n{CHILD}",
    "fence never opened": f"{CHILD}```\nThat is all.",
    "no fence": CHILD,
    "no fence, after a line of prose": f"Here is the new file, made from the old one:\n{CHILD}",
    "reasoning": f"<think>\nFirst idea:\n```python\n{OTHER}```\nno.\n</think>\n{FENCED}",
    "reasoning without its first tag": f"Perhaps\n```python\n{OTHER}```\n</think>\n\n{FENCED}",
    "two reasonings": f"<thinking>a</thinking>\n{FENCED}<thinking>b",
    "a shell block first": f"```bash\npip install triton\n```\n{FENCED}",
    "a usage block last": f"{FENCED}\nUse it:\n```python\nmodel = ModelNew()\nprint(model(torch.ones(3)))\n```",
    "an output block last": f"{FENCED}\n```text\nModelNew: 0.3 ms\n```",
    "the old file quoted first": f"Before:\n```python\n{PARENT}```\nAfter:\n{FENCED}",
    "the old file quoted last": f"{FENCED}\nIt was:\n```python\n{PARENT}```\n",
    "a broken fence before": f"```python\nx = (\n{FENCED}",
    "in two parts": f"The kernel:\n```python\n{KERNEL}\n```\nand the module:\n```python\n{MODEL}```",
    "with line numbers": f"```python\n{shown_with_numbers(CHILD)}\n```",
    "no last newline": FENCED.replace("return out\n", "return out\n").rstrip("\n"),
    "blank lines around": f"```python\n\n\n{CHILD}\n\n```",
    "two files": f"```python\n{OTHER}```\nBetter:\n{FENCED}",
    "file and blocks": f"{BLOCKS}\nThe whole file:\n{FENCED}",
}


@pytest.mark.parametrize("form", WHOLE_FILES)
def test_a_whole_file_however_it_is_wrapped(form: str) -> None:
    assert parse_reply(WHOLE_FILES[form], PARENT).source == (
        CHILD if form != "in two parts" else f"{KERNEL}\n\n\n{MODEL}"
    )


@pytest.mark.parametrize(
    ("form", "note"),
    [
        ("two files", "2 files define ModelNew; the last one is taken"),
        ("fence never closed", "the code fence was never closed"),
        ("no fence", "the file came without a code fence"),
        ("in two parts", "put together from several code blocks"),
    ],
)
def test_what_had_to_be_chosen_is_noted(form: str, note: str) -> None:
    assert parse_reply(WHOLE_FILES[form], PARENT).notes == (note,)
    assert parse_reply(FENCED, PARENT).notes == ()


def test_a_fence_inside_of_the_file_does_not_end_it() -> None:
    source = CHILD.replace('one kernel."""', 'one kernel.\n\n```\nModelNew()(x)\n```\n"""')
    assert parse_reply(f"```python\n{source}```\nDone.", PARENT).source == source


SEARCHED = {
    "as asked": BLOCKS,
    "prose around": f"Two changes.\n\n{BLOCKS}\nThat fuses them.",
    "in one fence": f"```python\n{BLOCKS}```",
    "a fence each": BLOCKS.replace(SEARCH, f"```\n{SEARCH}").replace(REPLACE, f"{REPLACE}\n```"),
    "fences inside": BLOCKS.replace(f"{SEARCH}\n", f"{SEARCH}\n```python\n")
    .replace(f"\n{DIVIDER}\n", f"\n```\n{DIVIDER}\n```python\n")
    .replace(f"\n{REPLACE}", f"\n```\n{REPLACE}"),
    "windows": BLOCKS.replace("\n", "\r\n"),
    "marks of another length": BLOCKS.replace("<<<<<<<", "<<<<<").replace(">>>>>>>", ">>>>>>>>"),
    "lower case": BLOCKS.replace("SEARCH", "search").replace("REPLACE", "replace"),
    "indented": textwrap.indent(BLOCKS, "    "),
    "blanks at ends": BLOCKS.replace("y = torch.relu(x)", "y = torch.relu(x)   "),
    "blank lines around the search": BLOCKS.replace("        y = torch", "\n        y = torch").replace(
        "* 2.0\n=", "* 2.0\n\n="
    ),
    "without indentation": "\n".join(line.removeprefix("        ") for line in BLOCKS.split("\n")),
    "reasoning": f"<think>{block('import torch', 'import os')}</think>{BLOCKS}",
}


@pytest.mark.parametrize("form", SEARCHED)
def test_blocks_however_they_are_written(form: str) -> None:
    made = parse_reply(SEARCHED[form], PARENT).source
    if form == "without indentation":  # the kernel's own lines have lost theirs too, as far as they had as much
        assert made.endswith(MODEL)
    else:
        assert made == CHILD


def test_a_search_with_line_numbers_is_found() -> None:
    old, new = "        y = torch.relu(x)\n        return y * 2.0", "        return torch.relu(x + x)"
    reply = block(" 8 |         y = torch.relu(x)\n>  9 |         return y * 2.0", new)
    assert parse_reply(reply, PARENT).source == PARENT.replace(old, new)


def test_indentation_that_is_off_is_put_right_in_the_replacement_too() -> None:
    reply = block("y = torch.relu(x)", "if x.numel():\n    y = torch.relu(x)\nelse:\n    y = x")
    parsed = parse_reply(reply, PARENT)
    expected = "        if x.numel():\n            y = torch.relu(x)\n        else:\n            y = x\n        return"
    assert expected in parsed.source
    assert parsed.notes == ("block 1: found ignoring indentation",)


def test_an_exact_place_wins_over_one_with_other_indentation() -> None:
    base = PARENT + "\n\ndef g(x):\n    y = torch.relu(x)\n    return y\n"
    assert parse_reply(block("    y = torch.relu(x)\n    return y", "    return x"), base).source == base.replace(
        "    y = torch.relu(x)\n    return y\n", "    return x\n"
    ).replace("        return y * 2.0", "        return y * 2.0")


def test_a_line_that_looks_like_the_divider_may_stand_in_the_file() -> None:
    base = '"""Title\n=======\ntext"""\n' + PARENT
    reply = block('"""Title\n=======\ntext"""', '"""Heading\n=======\ntext"""\nimport math')
    made = parse_reply(reply, base).source
    assert made == '"""Heading\n=======\ntext"""\nimport math\n' + PARENT


def test_lines_can_be_removed_and_later_blocks_see_earlier_ones() -> None:
    reply = f"{SEARCH}\n        y = torch.relu(x)\n{DIVIDER}\n{REPLACE}\n" + block(
        "    def forward(self, x):\n        return y * 2.0", "    def forward(self, x):\n        return x.relu() * 2.0"
    )
    assert parse_reply(reply, PARENT).source == PARENT.replace("        y = torch.relu(x)\n", "").replace(
        "y *", "x.relu() *"
    )


BROKEN = CHILD.replace("out = torch", "out == = torch")
HALF = FENCED[: FENCED.index("x, out, x.numel()")]

UNUSABLE = {
    "nothing": ("", "empty"),
    "blanks": (" \n\t\n", "empty"),
    "refusal": ("I'm sorry, but I can't help with that.", "no code"),
    "prose": ("Fusing these saves a launch and the bytes of y. Use `tl.maximum`.", "no code"),
    "only a shell block": ("```bash\npip install triton\n```", "no code"),
    "only reasoning": (f"<think>{FENCED}</think>", "no code"),
    "reasoning never ended": (f"<think>Let me see.\n{FENCED}", "no code"),
    "only the kernel": (f"```python\n{KERNEL}\n```", "no ModelNew"),
    "another class": (FENCED.replace("ModelNew", "Model"), "no ModelNew"),
    "syntax error": (f"```python\n{BROKEN}```", "does not parse"),
    "the old file and a broken one": (f"```python\n{PARENT}```\n```python\n{BROKEN}```", "does not parse"),
    "no fence and a syntax error": (BROKEN, "does not parse"),
    "fence never closed, half a file": (HALF, "truncated"),
    "unchanged": (f"```python\n{PARENT}```", "unchanged"),
    "unchanged but for a comment": (f"```python\n# now faster\n{PARENT}```", "unchanged"),
    "a block that changes nothing": (block("import torch", "import torch"), "unchanged"),
    "no such lines": (block("z = torch.sigmoid(x)", "z = x"), "no match"),
    "nothing searched": (block("", "import math"), "no match"),
    "no divider": (f"{SEARCH}\nimport torch\n{REPLACE}", "no match"),
    "no end": (f"{SEARCH}\nimport torch\n{DIVIDER}\nimport math\n", "truncated"),
    "next block before the end": (f"{SEARCH}\nimport torch\n{DIVIDER}\nimport math\n{BLOCKS}", "truncated"),
    "blocks that break the file": (block("        return y * 2.0", "        return y * * 2.0"), "does not parse"),
    "blocks that remove the class": (block("class ModelNew(torch.nn.Module):", "class Model:"), "no ModelNew"),
    "left out": (FENCED.replace("        x = x.contiguous()", "        # ... as before"), "abbreviated"),
    "a placeholder": ("```python\nimport torch\n\n\nclass ModelNew(torch.nn.Module):\n    ...\n```", "abbreviated"),
    "null byte": (f"```python\n{CHILD}\0\n```", "does not parse"),
    "too deep": (f"```python\nModelNew = {'-' * 300_000}1\n```", "does not parse"),
    "far too long": (FENCED + "x" * REPLY_LIMIT, "too long"),
}


@pytest.mark.parametrize("form", UNUSABLE)
def test_what_cannot_be_used_has_a_reason(form: str) -> None:
    reply, kind = UNUSABLE[form]
    assert why(reply).why == kind


def test_an_ambiguous_search_names_its_places() -> None:
    base = (
        PARENT
        + "\n\ndef g(x):\n    y = torch.relu(x)\n    return y\n\n\ndef h(x):\n    y = torch.relu(x)\n    return y\n"
    )
    error = why(block("    y = torch.relu(x)\n    return y", "    return x"), base)
    assert error.why == "ambiguous" and "13, 18" in str(error)
    assert base.split("\n")[12] == base.split("\n")[17] == "    y = torch.relu(x)"


def test_a_search_that_matches_nothing_names_the_line_most_like_it() -> None:
    assert "line 8: 'y = torch.relu(x)'" in str(why(block("y = torch.relu(z)", "y = z")))


def test_a_syntax_error_names_its_line() -> None:
    line = next(number for number, text in enumerate(BROKEN.split("\n"), 1) if "== =" in text)
    assert f"line {line}:" in str(why(f"```python\n{BROKEN}```"))


@pytest.mark.parametrize(
    "reply",
    [
        HALF,
        f"```python\n{CHILD}",  # it parses, but how much is missing nobody knows
        CHILD,
        BLOCKS,
        f"{BLOCKS}{SEARCH}\n    def",
        "<think>I wonder",
        "",
        "I will now",
    ],
)
def test_a_reply_that_was_cut_gives_no_half_file(reply: str) -> None:
    assert why(reply, truncated=True).why == "truncated"


def test_a_reply_cut_after_its_file_is_whole() -> None:
    assert parse_reply(f"{FENCED}\nThis is fast because", PARENT, truncated=True).source == CHILD


def test_reasoning_is_what_stands_between_tags() -> None:
    assert without_reasoning("<think>a</think>b<THINK>c</THINK>d") == ("bd", False)
    assert without_reasoning("a</think>b") == ("b", False)
    assert without_reasoning("b<think>c") == ("b", True)
    assert without_reasoning("x < think > y") == ("x < think > y", False)


@pytest.mark.parametrize(
    "text",
    [
        "<think>",
        "```\n",
        "```" + " " * 60 + "`\n",
        f"{SEARCH}\n",
        f"{SEARCH}\n{DIVIDER}\n{REPLACE}\n",
        "(",
        "~~~a\n```\n",
        "\t",
    ],
)
def test_a_huge_reply_takes_no_time_to_speak_of(text: str) -> None:
    reply = text * (REPLY_LIMIT // len(text))
    started = time.process_time()
    assert why(reply).why in ("no code", "truncated", "no match", "empty", "does not parse")
    assert time.process_time() - started < 20


@pytest.mark.parametrize("reply", [FENCED, CHILD, BLOCKS, f"<think>hm</think>\n{FENCED}", f"Now:\n{BLOCKS}\nDone."])
def test_no_cut_of_a_reply_gives_half_a_file(reply: str) -> None:
    for end in range(len(reply)):
        try:
            assert parse_reply(reply[:end], PARENT, truncated=True).source == CHILD
        except Unusable as error:
            assert error.why == "truncated"


def test_whatever_a_reply_is_made_of_it_gives_a_file_or_a_reason() -> None:
    pieces = [
        FENCED,
        BLOCKS,
        CHILD,
        PARENT,
        HALF,
        KERNEL,
        MODEL,
        "```",
        "~~~python",
        "<think>",
        "</think>",
        "prose",
        "",
    ]
    pieces += [SEARCH, DIVIDER, REPLACE, "import torch", "\r\n", "    ", "1 | x", "\0", "\u2028", "\ud800"]
    chance = random.Random(0)
    given = 0
    for _ in range(600):
        reply = "\n".join(chance.choices(pieces, k=chance.randint(1, 6)))
        try:
            source = parse_reply(reply, PARENT, truncated=chance.random() < 0.3).source
        except Unusable:
            continue
        given += 1
        assert any(isinstance(node, ast.ClassDef) and node.name == "ModelNew" for node in ast.parse(source).body)
        assert not is_same(source, PARENT)
    assert 50 < given < 550


LINE = "    y = tl.load(x_ptr + offs, mask=offs < n)\n"


@pytest.mark.parametrize(
    "reply",
    [
        "```python\ndef f():\n" + LINE * 5000 + "x = (\n```\n",
        ("```python\ndef f():\n" + LINE * 250 + "x = (\n```\n") * 20,
        ("```python\ndef f():\n" + LINE * 25 + "x = (\n") * 200,
        "'''\n" + ("```\n" + LINE * 25) * 200 + "'''\nclass ModelNew:\n    pass x\n",
        "<<<<<<< SEARCH\nclass ModelNew:\n" + "x = 1\n=======\n" * 2500 + ">>>>>>> REPLACE\n",
        LINE * 5000,
    ],
    ids=["one block", "twenty blocks", "tags alone", "fences in a docstring", "dividers", "no fence"],
)
def test_the_work_of_reading_a_long_reply_grows_with_its_length(reply: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In characters parsed and in places searched, of which the time follows."""
    parsed, searched, find = 0, 0, patches._replaced

    def counted(text: str) -> ast.Module:
        nonlocal parsed
        parsed += len(text)
        return ast.parse(text)

    def counting(*arguments: Any) -> Any:
        nonlocal searched
        searched += 1
        return find(*arguments)

    monkeypatch.setattr(reading, "parse", counted)
    monkeypatch.setattr(patches, "_replaced", counting)
    with pytest.raises(Unusable):
        parse_reply(reply, PARENT)
    most = max(reading.PARSED_MOST * len(reply), reading.PARSED_LEAST)
    assert parsed <= most + len(reply) + 2 * len(PARENT), "and once more to say why it is broken"
    assert searched <= 2 * patches.DIVIDERS


def test_trees_are_the_same_whatever_the_layout_and_differ_at_the_first_difference() -> None:
    deep = "x = " + "(" * 80 + "1" + ")" * 80
    assert is_same(deep + "  # a comment\n", deep) and is_same("x = 1\n\n\ny=2", "x=1\ny = 2\n")
    for one, other in (("x = 1", "x = 1.0"), ("x = True", "x = 1"), ("x = 1", "x = 1; y = 2"), ("x = a", "x = 'a'")):
        assert not is_same(one, other)
