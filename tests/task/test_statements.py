"""A file compiled a statement at a time is the file."""

from __future__ import annotations

import traceback
from typing import Any

import pytest

from mtmc.errors import TaskError
from mtmc.task import statements
from mtmc.task.constants import apply_constants
from mtmc.task.statements import compiled

FILES = {
    "future": "from __future__ import annotations\nsize = 4\ndef f(x: Unknown) -> None: ...\nresult = f.__annotations__",
    "decorated": "size = 4\n\n# a word\n@(\n    lambda f: f() + size\n)\ndef result():\n    return 1\n",
    "one line": "size = 4; twice = 2 * size\nresult = twice; other = 3",
    "strings": 'size = 4\ntext = """a\n\nsize = 9\n"""; result = (text, size)\n',
    "parts": "a, b = 4, 5\nif a > 4:\n    result = b\nelse:\n    result = [\n        a,\n        b]\n",
    "own names": "size = 4\nclass A:\n    size = size\nresult = [A.size for _ in range(size)]",
    "nothing": "",
}


def run(codes: Any) -> Any:
    names: dict[str, Any] = {}
    for code in codes:
        exec(code, names)
    return names.get("result")


@pytest.mark.parametrize("kind", FILES)
@pytest.mark.parametrize("value", [None, 7])
def test_a_file_gives_what_it_gives_as_a_whole(kind: str, value: int | None) -> None:
    source = FILES[kind]
    name = "a" if kind == "parts" else "size"
    constants = () if value is None or not source else ((name, value),)
    whole = compile(apply_constants(source, constants), "whole", "exec", dont_inherit=True)
    assert run(compiled(source, constants, "parts")) == run([whole])


def test_lines_keep_their_numbers() -> None:
    source = 'size = 4\ntext = """\n\n"""\n\n# why\ndef f():\n    return 1 // (size - 5)\n\n\nf()\n'
    with pytest.raises(ZeroDivisionError) as failure:
        run(compiled(source, (("size", 5),), "<the file>"))
    frames = traceback.extract_tb(failure.tb)[-2:]
    assert [(frame.filename, frame.lineno) for frame in frames] == [("<the file>", 11), ("<the file>", 8)]


def test_at_other_sizes_only_their_statements_are_compiled_anew() -> None:
    source = "rows = 40\ncols = 50\nclass Model:\n    'one that nobody else has'\n    size = (rows, cols)\n"
    first = compiled(source, (), "file")
    statements._statement.cache_clear()
    compiled(source, (), "file")
    again = compiled(source, (("rows", 3),), "file")
    assert statements._statement.cache_info().misses == len(first) + 1
    assert run([*again, compile("result = Model.size", "", "exec")]) == (3, 50)


def test_what_is_no_file_is_refused() -> None:
    with pytest.raises(SyntaxError):
        compiled("size = 4\ndef f(:\n", (), "file")
    with pytest.raises(TaskError, match="'rows' is no module-level integer"):
        compiled("size = 4\n", (("rows", 3),), "file")
