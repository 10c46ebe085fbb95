"""The text of a file as everybody takes it, and its syntax tree.

A file can be read in more than one way: a line that names a coding, a form feed or a lone carriage return moves lines, and
what stands under `if __name__ == "__main__":` runs or not. A kernel version is audited, executed, read again by Triton and
`inspect`, and handed out; `canonical_text` is the one text that all of these take.
"""

from __future__ import annotations

import ast
import logging
import re
import threading
import unicodedata
from functools import lru_cache

_log = logging.getLogger(__name__)
_parsing = threading.Lock()

_CODING = re.compile(r"^[ \t\f]*#.*?coding[:=][ \t]*([-\w.]+)")
"""How Python finds the coding of a file in its first two lines (PEP 263)."""
_UTF8 = ("utf-8", "utf8", "utf_8")
_UNUSUAL = re.compile(r"[^\t\n\x20-\x7e]")
_REFUSED_KINDS = ("Cc", "Cs", "Zl", "Zp")
"""Kinds of characters that end lines for some readers and not for others, or that no file can hold."""
_REORDERING = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\ufeff")
"""Characters that show a text in another order than it has, and the mark of byte order."""
KEPT_TEXTS = 16
"""Texts of which a process knows what follows from them alone: it takes the same few again for each set of shapes, and to
parse one of a thousand lines takes 25 ms."""
KEPT_TREES = 4
"""Texts whose trees are kept: some megabytes each."""


def parse(source: str) -> ast.Module:
    """The syntax tree of a text.

    Up to Python 3.12 two threads that parse at a time count each other's depth and raise SystemError; so one at a time
    here, and once more where other code (triton, torch) was parsing.

    Raises: SyntaxError or ValueError if the text is no Python.
    """
    with _parsing:
        while True:
            try:
                return ast.parse(source)
            except SystemError:
                _log.debug("another thread was parsing: once more")


@lru_cache(maxsize=KEPT_TREES)
def tree_of(source: str) -> ast.Module:
    """As `parse`, one tree for all who ask for the same text: it is read and never changed. Raises: as `parse`."""
    return parse(source)


@lru_cache(maxsize=KEPT_TEXTS)
def canonical_text(source: str) -> str:
    """The text that a version is taken for, with every line where it was; the canonical text of itself.

    Line ends are line feeds, a mark of byte order at the start is gone, and lines under `if __name__ == "__main__":` at
    the top level, which no import runs, are empty.
    Raises: SyntaxError, with its line, for a text that is no Python, names a coding other than UTF-8, or has characters
        that readers do not agree on; ValueError, RecursionError or MemoryError as `ast.parse` does.
    """
    text = source.removeprefix("\ufeff").replace("\r\n", "\n")
    for found in _UNUSUAL.finditer(text):
        if unicodedata.category(found[0]) in _REFUSED_KINDS or found[0] in _REORDERING:
            message = f"readers do not agree on the character U+{ord(found[0]):04X}; leave it out or write an escape"
            raise SyntaxError(message, ("<version>", text.count("\n", 0, found.start()) + 1, 1, None))
    lines = text.split("\n")
    for at, line in enumerate(lines[:2], 1):
        coding = _CODING.match(line)
        if coding and coding[1].lower() not in _UTF8:
            message = f"the file declares the coding {coding[1]}; it is read as UTF-8, so leave that line out"
            raise SyntaxError(message, ("<version>", at, 1, None))
    for node in tree_of(text).body:
        if isinstance(node, ast.If) and is_main_guard(node.test) and not node.orelse and node.col_offset == 0:
            lines[node.lineno - 1 : node.end_lineno] = [""] * ((node.end_lineno or node.lineno) - node.lineno + 1)
    return "\n".join(lines)


def names_in(node: ast.AST) -> set[str]:
    """All names that a piece of text mentions; of a function not its own, unless it calls itself."""
    return {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}


def is_main_guard(test: ast.expr) -> bool:
    """Whether a condition is `__name__ == "__main__"`."""
    return (
        isinstance(test, ast.Compare)
        and isinstance(test.left, ast.Name)
        and test.left.id == "__name__"
        and len(test.ops) == 1
        and isinstance(test.ops[0], ast.Eq)
        and isinstance(test.comparators[0], ast.Constant)
        and test.comparators[0].value == "__main__"
    )
